# SPDX-License-Identifier: Apache-2.0
# Pretend hosts for tests and evidence to source: each is a network namespace with a host name, an /etc/hosts and
# interfaces of its own; what is plugged into one network is joined by a bridge in a namespace of its own. Nothing
# appears in the machine's own network, and nothing outside can be reached. A keeper process holds each namespace;
# keepers end when the script does, however it ends, and the namespaces with them. Root and ip(8) are needed.
#     hosts_need                      skips, with the reason, where it cannot be done
#     hosts_make 3                    hosts 0, 1 and 2, called host0, host1, host2
#     hosts_plug 1 0 10.9.0.2/24      host 1 gets eth0 on network 0, with these addresses (IPv6 too)
#     hosts_names 1 "127.0.1.1 host1" the lines of host 1's /etc/hosts, from now on
#     hosts_in 1 COMMAND...           runs it there
#     hosts_end                       ends them before the script ends; the trap on EXIT does that, too
# $place is a folder for files, removed at the end.

hosts_need()
{
    [ "$(id -u)" = 0 ] || skip "only root can make network namespaces"
    for tool in ip unshare nsenter setpriv; do
        command -v "$tool" >/dev/null || skip "there is no $tool"
    done
    unshare --net --uts --mount true 2>/dev/null || skip "namespaces cannot be made here"
    unshare --net sh -c 'ip link add name va type veth peer name vb && ip link add name br0 type bridge' 2>/dev/null ||
        skip "this kernel has no veth or no bridge"
}

keepers=()
switch=
place=

hosts_end()
{
    for pid in "${keepers[@]}"; do
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    keepers=()
    [ -z "$place" ] || rm -rf "$place"
    place=
}

# keeper NAME: sets $kept to the process that holds the new host
keeper()
{
    setpriv --pdeathsig KILL unshare --net --uts --mount sh -c \
        'hostname "$0" && ip link set lo up && echo ready && exec sleep infinity' "$1" >"$place/ready" &
    kept=$!
    keepers+=("$kept")
    read -r line <"$place/ready" || line=
    [ "$line" = ready ] || fails "the host $1 cannot be made"
}

hosts_make()
{
    hosts=$1
    place=$(mktemp -d)
    trap hosts_end EXIT
    mkfifo "$place/ready"
    keeper switch
    switch=$kept
    for host in $(seq 0 $((hosts - 1))); do
        keeper "host$host"
        names[host]=$kept
    done
}

hosts_in()
{
    pid=${names[$1]}
    shift
    nsenter --net --uts --mount --target "$pid" -- "$@"
}

in_switch()
{
    nsenter --net --target "$switch" -- "$@"
}

# hosts_plug HOST NET ADDRESS...: eth$NET on host $HOST
hosts_plug()
{
    host=$1 net=$2
    shift 2
    in_switch ip link show "br$net" >/dev/null 2>&1 ||
        { in_switch ip link add "br$net" type bridge stp_state 0 forward_delay 0 &&
            in_switch ip link set "br$net" up; } || fails "network $net cannot be made"
    in_switch ip link add "p$host.$net" type veth peer name "eth$net" netns "${names[$host]}" &&
        in_switch ip link set "p$host.$net" master "br$net" up || fails "host $host cannot be plugged in"
    hosts_in "$host" ip link set "eth$net" addrgenmode none
    hosts_in "$host" ip link set "eth$net" up
    hosts_address "$host" "eth$net" "$@"
}

# hosts_address HOST INTERFACE ADDRESS...
hosts_address()
{
    host=$1 interface=$2
    shift 2
    for address in "$@"; do
        case $address in
        fe80:*) more="nodad scope link" ;;
        *:*) more=nodad ;;
        *) more= ;;
        esac
        # shellcheck disable=SC2086 # words
        hosts_in "$host" ip addr add "$address" dev "$interface" $more || fails "host $host cannot have $address"
    done
}

hosts_names()
{
    printf '127.0.0.1 localhost\n::1 localhost\n%s\n' "$2" >"$place/names.$1"
    hosts_in "$1" umount /etc/hosts 2>/dev/null
    hosts_in "$1" mount --bind "$place/names.$1" /etc/hosts || fails "host $1 cannot have an /etc/hosts of its own"
}
