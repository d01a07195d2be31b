# SPDX-License-Identifier: Apache-2.0
# For scripts whose promise is shown by tests that exist: they have to be there, by name, and pass.

tests=0

# named PROGRAM TEST...: the program of $build/tests passes, and has these tests
named()
{
    program=$build/tests/$1
    shift
    [ -x "$program" ] || skip "$program is not built"
    said=$("$program" 2>&1) || { echo "$said"; fails "$program fails"; }
    for name in "$@"; do
        echo "$said" | grep -q "  OK \] $name\$" || fails "$program has no test $name that passes"
        echo "$name: passes"
        tests=$((tests + 1))
    done
}
