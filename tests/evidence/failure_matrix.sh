#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two pretended hosts with a wire to cut, and the program failure_matrix on them.
#     failure_matrix.sh BUILD [--sample] [WORD...]      without root: what can be shown on one host
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../support/hosts.sh"
program=$build/tests/evidence/failure_matrix
shift
[ -x "$program" ] || skip "$program is not built"
sample=
[ "${1:-}" = --sample ] && sample=--sample && shift
if ! (hosts_need) >/dev/null || ! command -v iptables >/dev/null || ! command -v ss >/dev/null; then
    exec "$program" $sample "$@"
fi
hosts_make 2
for h in 0 1; do
    hosts_plug "$h" 0 "10.9.0.$((h + 1))/24"
done
"$program" $sample --hosts "${names[0]},${names[1]}" "$@"
exit
