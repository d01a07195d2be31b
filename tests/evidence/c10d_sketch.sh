#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: a back end of torch.distributed can be written against the public headers alone: tests/users/c10d_sketch.cpp, on 2 and 4 ranks
# under torchrun, does every call right, and trains a model with DDP to the weights that one process gets.
#     c10d_sketch.sh BUILD [TORCH]       TORCH: a virtual environment with torch 2.x (pip install torch==2.13.0)
. "$(dirname "$0")/common.sh"
torch=${2:-}
[ -x "$torch/bin/torchrun" ] || skip "no environment with torch is given"
command -v g++ >/dev/null || skip "g++ is not installed"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python=$torch/bin/python
flags=$("$python" -c 'import sysconfig
from torch.utils import cpp_extension as c
import torch
print(*("-isystem" + p for p in c.include_paths() + [sysconfig.get_paths()["include"]]))
print(*("-L%s -Wl,-rpath,%s" % (p, p) for p in c.library_paths()))
print("-D_GLIBCXX_USE_CXX11_ABI=%d" % torch._C._GLIBCXX_USE_CXX11_ABI)') || fails "torch does not say how it is built against"
version=$("$python" -c 'import torch; print(torch.__version__)')
# shellcheck disable=SC2086 # words
g++ -std=c++20 -O1 -fPIC -shared -Wall -DTORCH_EXTENSION_NAME=ringred_c10d $flags -I"$top/include" "$top/tests/users/c10d_sketch.cpp" \
    -o "$place/ringred_c10d.so" -L"$build/lib" -Wl,-rpath,"$build/lib" -lringred -ltorch -ltorch_cpu -ltorch_python -lc10 >"$place/log" 2>&1 ||
    fails "it does not build: $(head -20 "$place/log")"
for n in 2 4; do
    said=$(PYTHONPATH=$place OMP_NUM_THREADS=1 "$torch/bin/torchrun" --standalone --nproc-per-node $n "$top/tests/users/c10d_check.py" 2>&1) ||
        fails "$n ranks: $(echo "$said" | tail -30)"
    [ "$(echo "$said" | grep -c ': right, loss')" = $n ] || fails "$n ranks: $said"
    echo "$said" | grep 'rank 0'
done
holds "torch $version, 2 and 4 ranks, $(wc -l <"$top/tests/users/c10d_sketch.cpp") lines"
