#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: what users of other libraries have reported of Python has named tests here: PR-26 strided and foreign arrays, PR-50 the
# lock of Python, PR-52 Ctrl-C, PR-53 how programs end, PR-54 memory in use.
# reports_python.sh BUILD
. "$(dirname "$0")/common.sh"
python=$(python_with numpy)
[ -n "$python" ] || skip "no Python has numpy"
export RINGRED_LIBRARY=$build/lib/libringred.so.0 PYTHONPATH=$top/bindings/python PYTHONDONTWRITEBYTECODE=1
said=$("$python" "$top/bindings/python/tests/test_reports.py" -v 2>&1 && "$python" "$top/bindings/python/tests/test_arrays.py" -v 2>&1) ||
    fails "$(echo "$said" | tail -30)"
for report in 26 50 52 53 54; do
    echo "$said" | grep "^test_PR_${report}_.* ok$" || skip "no test of PR-$report ran: $(echo "$said" | grep "test_PR_$report" | head -1)"
done
holds "$(echo "$said" | grep -c '^test_PR_.* ok$') tests of 5 reports"
