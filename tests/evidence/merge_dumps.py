# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that goes wrong, for merge_dumps.sh:  merge_dumps.py WAY FOLDER

disagree: rank 3 gives other elements     lose: rank 2 is killed
miss: rank 1 leaves out an operation      hang: rank 0 never comes, and nobody gives up
"""
import array
import os
import signal
import sys

import ringred

way, folder = sys.argv[1:]
comm = ringred.init()
sums = array.array("f", [1.0, 2.0])
for _ in range(100):
    comm.allreduce(sums)
half = comm.split(comm.rank % 2)
half.allreduce(sums)
if way == "hang":
    with open(os.path.join(folder, "pid.%d" % comm.rank), "w") as file:
        file.write(str(os.getpid()))
    if comm.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
if way == "lose" and comm.rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
if not (way == "miss" and comm.rank == 1):
    comm.broadcast(array.array("d", [1.0]) if way == "disagree" and comm.rank == 3 else sums)
comm.barrier()
