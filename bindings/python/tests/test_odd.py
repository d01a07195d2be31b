# SPDX-License-Identifier: Apache-2.0
"""What strangers do: signals at every moment, arguments of every kind, objects that lie about their memory."""
import random
import signal
import unittest

import numpy as np

import ringred
from ranks import Interrupted, raises, run_ranks


# ---- signals at every moment ----

def always_interrupted(comm, rounds, seed):
    """Rank 0 broadcasts, and is interrupted in every round; rank 1 follows until it hears a negative number."""
    number = np.zeros(1, "int64")
    if comm.rank == 1:
        while number[0] >= 0:
            comm.broadcast(number, 0)
        return None
    raised, caught, chance = 0, 0, random.Random(seed)

    def handler(*_):
        nonlocal raised
        raised += 1
        raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    for i in range(rounds):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 60e-6))
            while raised == i:
                comm.broadcast(number, 0) if i % 2 else comm.broadcast_async(number, 0).wait()
        except Interrupted:
            caught += 1
    number[0] = -1
    comm.broadcast(number, 0)
    return raised, caught, len(comm._state.running)


class Signals(unittest.TestCase):
    def test_handlers_that_raise_at_any_moment_lose_nothing(self):
        """Neither what they raise, nor the ends of operations."""
        raised, caught, left = run_ranks(2, always_interrupted, 3000, 7)[0]
        self.assertEqual((raised, caught), (3000, 3000))
        self.assertLessEqual(left, 1)             # what was interrupted last, if its end was not seen yet


if __name__ == "__main__":
    unittest.main()
