#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Situations of hosts and networks in which ranks must find each other without being told how, and those in which
# they are told and must obey. Each runs on pretended hosts (root and ip(8) are needed).
#     interfaces.sh BUILD SITUATION...        "all": every one, with two and with three hosts
# Each rank is tests/net/net_rank; a situation that does not hold says so and shows what the ranks said.
. "$(dirname "$0")/../evidence/common.sh"
. "$(dirname "$0")/../support/hosts.sh"
rank_program=$build/tests/net/net_rank
slowest=0
shown=0

# job ROOT HOST...: a rank on each host, at once; what rank R says goes to out.R, its log to log.R. Further words for
# all ranks: $settings; for rank R alone: ${own[R]}.
job()
{
    root=$1
    shift
    size=$#
    rank=0
    pids=
    for at in "$@"; do
        # shellcheck disable=SC2086 # words
        hosts_in "$at" timeout -k 1 60 env RINGRED_RANK=$rank RINGRED_SIZE=$size "RINGRED_ROOT=$root" \
            RINGRED_KEY="a key for these tests" RINGRED_LOG=info RINGRED_INIT_TIMEOUT=${limit:-20} ${own[$rank]} \
            "$rank_program" --sockets $settings >"$place/out.$rank" 2>"$place/log.$rank" &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    rank=0
    for pid in $pids; do
        wait "$pid"
        code[rank]=$?
        rank=$((rank + 1))
    done
}

show()
{
    for r in $(seq 0 $((size - 1))); do
        echo "--- rank $r"
        cat "$place/out.$r" "$place/log.$r"
    done
}

wrong()
{
    show
    fails "$situation, $hosts hosts: $*"
}

# all ranks made a communicator and summed
expect_sums()
{
    for r in $(seq 0 $((size - 1))); do
        [ "${code[$r]}" = 0 ] || wrong "rank $r has no right sums"
        took=$(sed -n 's/.* made in \([0-9.]*\) s.*/\1/p' "$place/out.$r")
        slowest=$(printf '%s\n%s\n' "$slowest" "$took" | sort -g | tail -n 1)
    done
    shown=$((shown + 1))
}

# expect_failure RANK WORDS: it has no communicator, and says why
expect_failure()
{
    [ "${code[$1]}" = 3 ] || wrong "rank $1 should have failed"
    grep -q -e "$2" "$place/out.$1" || wrong "rank $1 does not say \"$2\""
}

# expect_link RANK PEER WORDS: its log line about that peer has them
expect_link()
{
    grep "link to rank $2 on host" "$place/log.$1" | grep -q -e "$3" || wrong "rank $1's link to rank $2 is not \"$3\""
}

# every socket that is not loopback's lies on that network: a pattern of both ends
expect_sockets()
{
    for r in $(seq 0 $((size - 1))); do
        grep '^socket' "$place/out.$r" | grep -v -e ' 127\.[0-9.]*:' | grep -v -e "$1" && wrong "rank $r has such sockets"
    done
}

# as many hosts as the situation is tried with, on one network
plug_all()
{
    for h in $(seq 0 $((hosts - 1))); do
        hosts_plug "$h" "$1" "$2$((h + 1))/24"
    done
}

each()
{
    seq 0 $((hosts - 1))
}

# ---- the situations ----

# A host's own name means a loopback address (Debian's 127.0.1.1).
pr_01_host_name_is_loopback()
{
    plug_all 0 10.9.0.
    for h in $(each); do
        lines=
        for other in $(each); do
            [ "$other" = "$h" ] && lines="$lines"$'\n'"127.0.1.1 host$h" ||
                lines="$lines"$'\n'"10.9.0.$((other + 1)) host$other"
        done
        hosts_names "$h" "$lines"
    done
    job host0:29400 $(each)
    expect_sums
    expect_link 1 0 "10.9.0.1:.* over eth0"
}

# The root's name means loopback to the others, too: nobody can be reached, and that is said.
pr_01_only_loopback_is_told()
{
    plug_all 0 10.9.0.
    for h in $(each); do
        hosts_names "$h" "127.0.1.1 host0"
    done
    limit=2
    job host0:29400 $(each)
    limit=
    expect_failure 1 "nothing answered as root at host0:29400 within [0-9.]* s.*127.0.1.1:29400.*a loopback address"
    expect_failure 0 "never arrived at host0:29400"
    shown=$((shown + 1))
}

# Ranks of each host are numbered from 0, and the root is a name, so that each rank 0 can listen: none waits for the
# deadline.
pr_06_local_ranks_on_two_hosts()
{
    plug_all 0 10.9.0.
    for h in $(each); do
        hosts_names "$h" "10.9.0.1 host0"
    done
    own=([2]=RINGRED_RANK=0 [3]=RINGRED_RANK=1)
    limit=30
    job host0:29400 0 0 1 1
    own=() limit=
    for r in 0 1 2 3; do
        expect_failure "$r" "was started twice: on host[01] (pid [0-9]*) and on host[01] (pid"
        took=$(sed -n 's/.* after \([0-9.]*\) s: .*/\1/p' "$place/out.$r")
        awk "BEGIN { exit !($took < 10) }" || wrong "rank $r was told after $took s"
        echo "rank $r was told after $took s"
    done
    shown=$((shown + 1))
}

# Each host has a bridge of one and the same address, which comes first; the ports are the same on all hosts, too, so
# that the address leads to a listener: one's own.
pr_03_the_same_bridge_on_every_host()
{
    for h in $(each); do
        hosts_in "$h" ip link add docker0 type bridge
        hosts_in "$h" ip link set docker0 up
        hosts_address "$h" docker0 172.17.0.1/16
    done
    plug_all 0 10.9.0.
    for times in 1 2 3; do
        settings="port_range=20000-20019"
        job 10.9.0.1:29400 $(each)
        settings=
        expect_sums
        expect_link 0 1 "10.9.0.2:.* over eth0.*candidates that answered"
        expect_link 1 0 "10.9.0.1:.* over eth0"
    done
}

# A network on which packets go one way only: the last host knows a wrong hardware address of all others there.
half_routed_one_direction()
{
    plug_all 0 10.9.0.
    plug_all 1 10.9.1.
    last=$((hosts - 1))
    for h in $(seq 0 $((last - 1))); do
        hosts_in "$last" ip neigh replace "10.9.0.$((h + 1))" lladdr 02:00:00:00:00:77 dev eth0 nud permanent
    done
    job 10.9.1.1:29400 $(each)
    expect_sums
    expect_link 0 "$last" "10.9.1.$hosts:.* over eth1"
    for h in $(each); do
        hosts_names "$h" "10.9.0.1 host0"$'\n'"10.9.1.1 host0"
    done
    job host0:29400 $(each) # now the root is at both, and the last rank reaches one of them
    expect_sums
}

# Everything on the first network vanishes: it has addresses, and nobody is there.
half_routed_black_hole()
{
    for h in $(each); do
        hosts_plug "$h" 0 "10.9.$((h + 10)).1/24"
        for other in $(each); do
            [ "$other" = "$h" ] || hosts_in "$h" ip route add "10.9.$((other + 10)).0/24" via "10.9.$((h + 10)).254"
        done
        hosts_in "$h" ip neigh replace "10.9.$((h + 10)).254" lladdr 02:00:00:00:00:77 dev eth0 nud permanent
    done
    plug_all 1 10.9.1.
    for h in $(each); do
        hosts_names "$h" "10.9.10.1 host0"$'\n'"10.9.1.1 host0"
    done
    job host0:29400 $(each)
    expect_sums
    expect_link 0 1 "10.9.1.2:.* over eth1"
}

# The other's first network is one that this host has no route to.
half_routed_no_route()
{
    for h in $(each); do
        hosts_plug "$h" 0 "10.9.$((h + 10)).1/24"
    done
    plug_all 1 10.9.1.
    job 10.9.1.1:29400 $(each)
    expect_sums
    expect_link 0 1 "10.9.1.2:.* over eth1"
}

ipv6_only()
{
    for h in $(each); do
        hosts_plug "$h" 0 "fd09::$((h + 1))/64"
        hosts_in "$h" ip addr del 127.0.0.1/8 dev lo
    done
    job "[fd09::1]:29400" $(each)
    expect_sums
    expect_link 1 0 "\[fd09::1\]:.* over eth0"
}

# Nothing but link-local addresses, which mean something together with an interface only; and several of these.
ipv6_link_local_only()
{
    for h in $(each); do
        hosts_plug "$h" 0 "fe80::a:$((h + 1))/64"
        hosts_plug "$h" 1 "fe80::b:$((h + 1))/64"
    done
    job "[fe80::a:1%eth0]:29400" $(each)
    expect_sums
    job "[fe80::b:1]:29400" $(each)
    expect_sums
}

# Two networks whose frames differ in length; every stream takes one or the other.
several_networks_of_different_mtu()
{
    plug_all 0 10.9.0.
    plug_all 1 10.9.1.
    for h in $(each); do
        hosts_in "$h" ip link set eth1 mtu 9000
        in_switch ip link set "p$h.1" mtu 9000
        hosts_in "$h" ip link set eth0 mtu 1400
        in_switch ip link set "p$h.0" mtu 1400
    done
    job 10.9.0.1:29400 $(each)
    expect_sums
    expect_link 0 1 "over eth0"
    expect_link 0 1 "over eth1"
}

# Restricted to one of three interfaces, in three ways: all sockets lie on it.
pr_04_all_sockets_keep_to_the_interface()
{
    plug_all 0 10.9.0.
    plug_all 1 10.9.1.
    plug_all 2 10.9.2.
    for h in $(each); do
        hosts_names "$h" "10.9.1.1 host0"
    done
    for way in eth1 10.9.1.0/24 eth1,10.9.1.0/30; do
        settings="interface=$way"
        job host0:29400 $(each)
        expect_sums
        expect_sockets "^socket [a-z]* 10\.9\.1\.[0-9:]*\( 10\.9\.1\.[0-9:]*\)\? *$"
        expect_link 0 1 "10.9.1.2:.* over eth1.*(setting interface"
        expect_link 1 0 "10.9.1.1:.* over eth1.*(setting interface"
    done
    settings=
    for r in $(each); do
        own[r]=RINGRED_INTERFACE=eth1
    done
    job 10.9.1.1:29400 $(each)
    expect_sums
    expect_sockets "^socket [a-z]* 10\.9\.1\.[0-9:]*\( 10\.9\.1\.[0-9:]*\)\? *$"
    own=()
}

# A name that is not there is an error that lists what is; a root elsewhere contradicts.
pr_04_an_unknown_interface_is_told()
{
    plug_all 0 10.9.0.
    plug_all 1 10.9.1.
    limit=2
    settings="interface=eth7"
    job 10.9.0.1:29400 $(each)
    for r in $(each); do
        expect_failure "$r" "no network interface or address \"eth7\".*eth0 (10.9.0.$((r + 1))).*eth1 (10.9.1.$((r + 1)))"
    done
    settings="interface=eth1"
    job 10.9.0.1:29400 $(each)
    expect_failure 0 "the root is at 10.9.0.1, an address of eth0, which the setting interface leaves out"
    settings=
    limit=
    shown=$((shown + 1))
}

# Both settings: all sockets, at both ends, have ports of the range.
ports_keep_to_the_range()
{
    plug_all 0 10.9.0.
    plug_all 1 10.9.1.
    for words in "port_range=20000-20019" "port_range=20000-20019 interface=eth1"; do
        settings=$words
        job 10.9.1.1:20007 $(each)
        expect_sums
        expect_sockets "^socket [a-z]* [^ ]*:200[01][0-9]\( [^ ]*:200[01][0-9]\)\? *$"
    done
    settings=
}

# Twenty jobs of two ranks at once on one host, which share a small range of ports.
pr_05_many_jobs_in_one_range()
{
    plug_all 0 10.9.0.
    pids=
    for j in $(seq 1 20); do
        hosts_in 0 env RINGRED_PORT_RANGE=20000-20069 RINGRED_TRANSPORT=tcp RINGRED_TCP_CONGESTION=system \
            "$build/tools/ringred-run" -n 2 "$rank_program" --sockets >"$place/job.$j" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || { cat "$place"/job.*; fails "a job of twenty in one range of ports has failed"; }
    done
    # the root is ringred-run's own socket, on loopback: all others have ports of the range
    grep -h -e 'socket listen' -e 'socket connect' "$place"/job.* |
        grep -v -e 'socket [a-z]* [^ ]*:200[0-6][0-9] ' && fails "sockets outside of the range"
    shown=$((shown + 1))
}

situations="pr_01_host_name_is_loopback pr_01_only_loopback_is_told pr_06_local_ranks_on_two_hosts pr_03_the_same_bridge_on_every_host
half_routed_one_direction half_routed_black_hole half_routed_no_route ipv6_only ipv6_link_local_only
several_networks_of_different_mtu pr_04_all_sockets_keep_to_the_interface pr_04_an_unknown_interface_is_told
ports_keep_to_the_range pr_05_many_jobs_in_one_range"

shift
hosts_need
[ -x "$rank_program" ] || skip "$rank_program is not built"
numbers=2
[ "${1:-}" = all ] && numbers="2 3" && set -- $situations
for situation in "$@"; do
    for number in $numbers; do
        hosts_make "$number"
        settings= limit= own=() code=()
        "$situation"
        hosts_end
        echo "$situation, $number hosts: as it should be"
    done
done
holds "$shown jobs in $# situations, the slowest communicator made in $slowest s, no variable set where none is the promise"
