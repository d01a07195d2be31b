#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm of two nodes, n1 and n2, which are both this machine: its daemons run until this script is ended. FOLDER/in
# runs a command as its user would; FOLDER/ready says that the nodes are up. Nothing is written outside FOLDER: the
# names of the nodes are in an /etc/hosts that only this script's processes see.
# slurm_here.sh FOLDER
export PATH=$PATH:/usr/sbin:/sbin
folder=$1
if [ "$2" != inside ]; then
    mkdir -p "$folder" && exec unshare --mount "$0" "$folder" inside
fi
own=()
clean()
{
    for pid in "${own[@]}"; do kill "$pid" 2>/dev/null; done
    for pid in "${own[@]}"; do wait "$pid" 2>/dev/null; done
}
trap clean EXIT
trap 'exit 0' TERM INT

cd "$folder" || exit 1
mkdir -p state spool.n1 spool.n2 munge etc
{ cat /etc/hosts; echo "127.0.0.1 n1 n2"; } > hosts
mount --bind hosts /etc/hosts || exit 1
free_ports()
{
    python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
for one in s: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in s))'
}
read -r control one two < <(free_ports)

dd if=/dev/urandom of=munge/key bs=1024 count=1 2>/dev/null
chmod 600 munge/key
chmod 755 "$folder" munge
munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" &
own+=($!)

cat > etc/slurm.conf <<END
ClusterName=here
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CryptoType=crypto/munge
SlurmctldPort=$control
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/linear
NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$one CPUs=$(nproc) State=UNKNOWN
NodeName=n2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$two CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES OverSubscribe=FORCE:4 State=UP
END
printf "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n" > etc/cgroup.conf
export SLURM_CONF=$folder/etc/slurm.conf
slurmctld -D -c &
own+=($!)
for node in n1 n2; do
    slurmd -D -N $node -f "$SLURM_CONF" &
    own+=($!)
done

cat > in <<END
#!/bin/bash
export PATH=\$PATH:/usr/sbin SLURM_CONF=$SLURM_CONF
exec nsenter --target $$ --mount --wd="\$PWD" "\$@"
END
chmod 755 in
for _ in $(seq 200); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    read -rt 0.2 _ <> <(:)
done
sinfo
[ "$(sinfo -h -t idle -o %D)" = 2 ] || { tail -5 ./*.log; exit 1; }
touch ready
wait
