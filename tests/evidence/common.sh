# SPDX-License-Identifier: Apache-2.0
# For the evidence scripts to source. Each takes the build folder as its first argument (build/gcc).

top=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$top/build/gcc}

holds()
{
    echo "holds: $*"
    exit 0
}

fails()
{
    echo "FAILS: $*"
    exit 1
}

# 77 tells meson, and the reader, that nothing was shown
skip()
{
    echo "SKIP: $*"
    exit 77
}

python_with()
{
    for python in python3 /usr/bin/python3; do
        "$python" -c "import $1" 2>/dev/null && echo "$python" && return
    done
}
