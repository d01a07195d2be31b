# SPDX-License-Identifier: Apache-2.0
"""What strangers do: signals at every moment, arguments of every kind, objects that lie about their memory."""
import copy
import pickle
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
        comm.barrier()
        return None
    raised, caught, chance = 0, 0, random.Random(seed)

    def handler(*_):
        nonlocal raised
        raised += 1
        raise Interrupted

    def until_raised(i):  # of its own: what is raised as a loop of Python 3.13 goes back escapes the try around it
        while raised == i:
            comm.broadcast(number, 0) if i % 2 else comm.broadcast_async(number, 0).wait()

    signal.signal(signal.SIGALRM, handler)
    for i in range(rounds):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 60e-6))
            until_raised(i)
        except Interrupted:
            caught += 1
    comm.broadcast(np.full(1, -1), 0)             # number may still be read by what was interrupted last
    comm.barrier()                                # what came before it has ended, and is let go
    return raised, caught, len(comm._state.running)


class Signals(unittest.TestCase):
    def test_handlers_that_raise_at_any_moment_lose_nothing(self):
        """Neither what they raise, nor the ends of operations."""
        raised, caught, left = run_ranks(2, always_interrupted, 3000, 7)[0]
        self.assertEqual((raised, caught), (3000, 3000))
        self.assertEqual(left, 0)


# ---- numbers that are none, or do not fit ----

def odd_numbers(comm):
    one = np.ones(1)
    for wrong in (2 ** 32, 2 ** 31, -2 ** 64, 0.5, 1.0, "0", None, [0]):
        for call in (lambda: comm.send_async(one, wrong), lambda: comm.send_async(one, 0, wrong),
                     lambda: comm.recv_async(one, wrong), lambda: comm.recv_async(one, 0, wrong),
                     lambda: comm.split(0, wrong), lambda: comm.subgroup([wrong]),
                     lambda: comm.op(print, wrong), lambda: ringred.init(rank=wrong or "0", size=1)):
            assert repr(wrong) in raises(ringred.InvalidArgumentError, call).text or wrong is None
        if wrong is not None:
            raises(ringred.InvalidArgumentError, comm.split, wrong)
    for wrong in (-1, 2 ** 64 + 1, 1.0, "1", None):
        raises(ringred.InvalidArgumentError, comm.alloc, wrong)
    assert comm.split(np.int64(0), np.uint8(1)).size == 1 and len(comm.alloc(np.int32(3))) == 3


class Numbers(unittest.TestCase):
    def test_numbers_that_do_not_fit_are_refused(self):
        run_ranks(1, odd_numbers)


# ---- limits of time, and groups ----

def odd_limits(comm):
    for endless in (float("inf"), 1e300, 2 ** 70, None, -1, np.float32(5)):
        comm.barrier_async().wait(endless)
    work = comm.barrier_async()
    for wrong in (float("nan"), "1", [1]):
        assert repr(wrong) in raises(ringred.InvalidArgumentError, work.wait, wrong).text
    work.wait()


def group_again(comm):
    one, two, group = np.ones(2), np.ones(2), comm.group()
    with group:
        comm.allreduce(one)
    with group:
        comm.allreduce(two)
    np.testing.assert_array_equal((one, two), np.full((2, 2), 2.0))


def group_that_fails(comm):
    group, works = comm.group(), []
    raises(ringred.ArgumentTypeError, lambda: enter(group, works, comm))
    assert works[0].done
    raises(ringred.AbortedError, works[0].wait)
    comm.barrier()


def enter(group, works, comm):
    with group:
        works.append(comm.allreduce_async(np.ones(2)))
        comm.allreduce("text")


def one_time_arguments(comm):
    arrays = [np.full(2, comm.rank), np.full(3, comm.rank)]
    assert all(a is b for a, b in zip(comm.broadcast_list(iter(arrays), 1), arrays)) and arrays[1][2] == 1
    np.testing.assert_array_equal(comm.allgatherv(np.ones(1), (1 for _ in range(comm.size))), np.ones(comm.size))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        assert "own" in str(raises(TypeError, copied, comm))
    raises(ringred.SettingError, ringred.init, rank=0, size=1, transport="tcp\0x")


class Uses(unittest.TestCase):
    def test_works_of_a_group_that_fails_have_ended(self):
        run_ranks(2, group_that_fails)

    def test_what_can_be_read_once_or_not_copied(self):
        run_ranks(2, one_time_arguments)

    def test_a_limit_may_be_any_number(self):
        run_ranks(1, odd_limits)

    def test_a_group_that_is_entered_again_begins_anew(self):
        run_ranks(2, group_again)


if __name__ == "__main__":
    unittest.main()
