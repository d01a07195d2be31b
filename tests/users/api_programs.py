# SPDX-License-Identifier: Apache-2.0
"""The Python program of the wish list, as users would write it; a rank of a job that some launcher starts."""
import asyncio

import numpy as np

import ringred

with ringred.init() as comm:
    ranks = comm.size * (comm.size + 1) / 2
    grad = np.full(1000, comm.rank + 1.0, "float32")
    comm.allreduce(grad)
    assert (grad == ranks).all()
    work = comm.allreduce_async(grad, op="avg")
    work.wait(timeout=5)
    assert (grad == ranks).all()

    async def step():
        return await comm.allreduce_async(np.ones(3))

    assert (asyncio.run(step()) == comm.size).all()
    for kind, of in ((ringred.TimeoutError, TimeoutError), (ringred.PeerLostError, ConnectionError),
                     (ringred.InvalidArgumentError, ValueError)):
        assert issubclass(kind, of)
    try:
        comm.allreduce(grad, op="mean")
    except ringred.InvalidArgumentError as failure:
        assert "mean" in str(failure) and "avg" in str(failure)
    print("rank %d of %d: fine" % (comm.rank, comm.size))
