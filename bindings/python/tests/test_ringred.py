# SPDX-License-Identifier: Apache-2.0
"""Does the Python package do what it promises, between real processes on this machine?

    python3 bindings/python/tests/test_ringred.py        (RINGRED_LIBRARY, PYTHONPATH set)
"""
import array
import gc
import os
import subprocess
import sys
import threading
import time
import unittest
import weakref

import numpy as np

import ringred
from ranks import PATIENCE_S, Interrupted, fork, raise_after, raises, run_ranks

same = np.testing.assert_array_equal


def numbers(rank, shape=(), dtype="float32"):
    count = int(np.prod(shape, dtype=int))
    return np.array((np.arange(count).reshape(shape) % 97 + 1) * (rank + 1), dtype)


def total(size, shape=(), dtype="float32"):
    return sum(numbers(r, shape, dtype) for r in range(size))


# ---- bodies: what each rank does ----

def sums(comm):
    for dtype in ("float32", "float64"):
        for shape in ((), (0,), (1,), (3, 0, 2), (5,), (7, 11), (40000,)):
            mine = numbers(comm.rank, shape, dtype)
            given = mine.copy()
            result = comm.allreduce(given)
            assert result is given
            same(given, total(comm.size, shape, dtype))
            out = np.full(shape, -1, dtype)
            assert comm.allreduce(mine, out, op="avg") is out
            same(out, total(comm.size, shape, dtype) / comm.size)
            same(mine, numbers(comm.rank, shape, dtype))


def layouts(comm):
    want = total(comm.size, (6, 4))
    plain = numbers(comm.rank, (6, 4))
    wide = np.zeros((6, 8), "float32")
    raw = np.zeros(6 * 4 * 4 + 1, "uint8")
    unaligned = raw[1:].view("float32").reshape(6, 4)
    shapes = [
        wide[:, ::2], np.zeros((6, 4), "float32")[::-1, ::-1], np.zeros((4, 6), "float32").T,
        np.zeros((6, 4), ">f4"), np.zeros((6, 4), "<f4"), np.zeros((4, 6), ">f4")[:, ::-1].T, unaligned,
    ]
    for i, mine in enumerate(shapes):
        other = shapes[(i + comm.rank) % len(shapes)]  # each rank has another layout
        other[...] = plain
        comm.allreduce(other)
        same(other, want)
        other[...] = plain
        assert comm.allreduce_async(other).wait() is other
        same(other, want)
        out = np.zeros((4, 6), ">f4").T
        source = np.asfortranarray(plain)
        source.flags.writeable = False
        comm.allreduce(source, out)
        same(out, want)
        mine[...] = plain
        comm.broadcast(mine, root=comm.size - 1)
        same(mine, numbers(comm.size - 1, (6, 4)))
    assert not wide[:, 1::2].any()
    buffer = array.array("f", [1.0, 2.0])
    comm.allreduce(buffer)
    assert buffer.tolist() == [comm.size, 2.0 * comm.size]


def refusals(comm):
    frozen = np.zeros(3, "float32")
    frozen.flags.writeable = False
    windows = np.lib.stride_tricks.as_strided(np.zeros(5, "float32"), (3, 3), (4, 4))
    fine = np.zeros(3, "float32")
    raises(ringred.InvalidArgumentError, comm.allreduce, frozen)
    raises(ValueError, comm.allreduce, np.broadcast_to(fine[:1], (4,)))
    raises(ValueError, comm.allreduce, windows)
    raises(ValueError, comm.allreduce, fine, np.zeros(4, "float32"))
    raises(ValueError, comm.allreduce, fine, np.zeros(3, "float64"))
    raises(ValueError, comm.allreduce, fine, frozen)
    raises(ValueError, comm.allreduce, fine, op="mean")
    raises(ValueError, comm.broadcast, fine, root=comm.size)
    for wrong in ([1.0], "text", None, 3.0, np.ma.zeros(3, "float32"), np.zeros(3, "longdouble"),
                  np.zeros(3, "datetime64[s]"), np.array([None])):
        raises(TypeError, comm.allreduce, wrong)
    assert comm.allreduce(fine) is fine  # nothing has changed


def overlap(comm):
    whole = np.concatenate([numbers(comm.rank, (9,)), np.zeros(1, "float32")])
    comm.allreduce(whole[:-1], whole[1:])
    same(whole[1:], total(comm.size, (9,)))


def broadcasts(comm):
    for root in range(comm.size):
        mine = numbers(comm.rank, (100,), "float64")
        if comm.rank == root:
            mine.flags.writeable = False  # the root only reads
        comm.broadcast(mine, root)
        same(mine, numbers(root, (100,), "float64"))
    comm.barrier()


def many_at_once(comm):
    given = [numbers(comm.rank, (n,)) for n in (1, 10, 1000, 30000)]
    works = [comm.allreduce_async(a) for a in given]
    works.append(comm.barrier_async())
    for work in reversed(works):
        work.wait(PATIENCE_S)
        assert work.done and work.test()
    for a, n in zip(given, (1, 10, 1000, 30000)):
        same(a, total(comm.size, (n,)))


def late_peer(comm, go):
    mine = numbers(comm.rank, (1000,))
    if comm.rank == 0:
        work = comm.allreduce_async(mine)
        failure = raises(ringred.TimeoutError, work.wait, 0.01)
        assert isinstance(failure, TimeoutError) and not work.done and not work.test()
        go.set()
        assert work.wait() is mine
    else:
        assert go.wait(PATIENCE_S)
        comm.allreduce(mine)
    same(mine, total(comm.size, (1000,)))


def all_types(comm):
    """Every type that numpy has a name for, and each operator that takes it."""
    n = comm.size
    for dtype in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                  "uint64", "complex64", "complex128"):
        mine = (np.arange(40) % 3 + 1 + comm.rank % 2).astype(dtype)
        all_ = [(np.arange(40) % 3 + 1 + r % 2).astype(dtype) for r in range(n)]
        same(comm.allreduce(mine.copy()), sum(all_))
        same(comm.allreduce(mine.copy(), op="prod"), np.prod(all_, axis=0, dtype=dtype))
        if not dtype.startswith("complex"):
            same(comm.allreduce(mine.copy(), op="min"), np.min(all_, axis=0))
            same(comm.allreduce(mine.copy(), op="max"), np.max(all_, axis=0))
        if "int" in dtype:
            same(comm.allreduce(mine.copy(), op="band"), np.bitwise_and.reduce(all_))
            same(comm.allreduce(mine.copy(), op="bor"), np.bitwise_or.reduce(all_))
            same(comm.allreduce(mine.copy(), op="bxor"), np.bitwise_xor.reduce(all_))
    mine = np.arange(9) % (comm.rank + 2) == 0
    all_ = [np.arange(9) % (r + 2) == 0 for r in range(n)]
    same(comm.allreduce(mine.copy(), op="land"), np.logical_and.reduce(all_))
    same(comm.allreduce(mine.copy(), op="lor"), np.logical_or.reduce(all_))
    same(comm.allreduce(mine.copy(), op="lxor"), np.logical_xor.reduce(all_))
    raises(ringred.ArgumentTypeError, comm.allreduce, np.array(["a"]))
    raises(ringred.InvalidArgumentError, comm.allreduce, np.ones(3), op="mean")


def moved(comm):
    """The collectives that move parts, into new arrays, into outs, and between strange layouts."""
    n, me = comm.size, comm.rank
    for shape in ((), (0,), (3,), (2, 5)):
        every = [numbers(r, shape) for r in range(n)]
        whole = np.stack(every)
        parts = np.stack([whole * (r + 1) for r in range(n)])  # parts[r][q]: what r has for q
        same(comm.allgather(every[me]), whole)
        out = np.full((n, *shape), -1, "float32")
        assert comm.allgather(every[me], out) is out
        same(out, whole)
        for root in range(n):
            got = comm.gather(every[me], root=root)
            same(got, whole) if me == root else same(got is None, True)
            got = comm.reduce(every[me].copy(), root=root)
            same(got, sum(every)) if me == root else same(got is None, True)
            part = np.full(shape, -1, "float32")
            comm.scatter(whole if me == root else None, part, root=root)
            same(part, every[me])
            if me == root:
                same(comm.scatter(whole, root=root), every[me])
            else:
                comm.scatter(out=part, root=root)
        same(comm.alltoall(parts[me]), np.stack([parts[r][me] for r in range(n)]))
        same(comm.reduce_scatter(parts[me]), sum(parts[r][me] for r in range(n)))
    turned = np.asfortranarray(np.stack([numbers(me, (4, 6)) + r for r in range(n)]))
    out = np.full((n, 4, 12), -1, "float32")[:, :, ::2]
    assert comm.alltoall(turned, out) is out
    same(out, np.stack([numbers(r, (4, 6)) + me for r in range(n)]))
    big = np.zeros((n, 7), "float32")
    big[me] = me + 1
    same(comm.allgather(big[me], big), np.repeat(np.arange(1, n + 1, dtype="float32"), 7).reshape(n, 7))
    raises(ringred.InvalidArgumentError, comm.allgather, np.ones(3), np.ones((n, 4)))
    raises(ringred.InvalidArgumentError, comm.alltoall, np.ones(n + 1))
    raises(ringred.InvalidArgumentError, comm.reduce_scatter, np.ones(()))
    raises(ringred.InvalidArgumentError, comm.gather, np.ones(3), root=n)
    works = [comm.allgather_async(np.full(5, me + i, "int32")) for i in range(8)]
    for i, work in enumerate(works):
        same(work.wait(), np.repeat(np.arange(n) + i, 5).reshape(n, 5))


def messages(comm):
    """From rank to rank, in the order of their starts; from any rank; too long; objects; unequal parts."""
    n, me = comm.size, comm.rank
    right, left = (me + 1) % n, (me - 1) % n
    for count in (0, 3, 100000):
        work = comm.send_async(numbers(me, (count,)), right, tag=count)
        got = np.full(count + 2, -1, "float32")
        came = comm.recv(got, left, tag=count)
        work.wait()
        assert (came.source, came.tag, came.count) == (left, count, count)
        same(got[:count], numbers(left, (count,)))
        same(got[count:], [-1, -1])
    if me == 0:
        from_whom = [comm.recv(np.zeros(1, "int64"), tag=9).source for _ in range(n - 1)]
        assert sorted(from_whom) == list(range(1, n))
    else:
        comm.send(np.array([me]), 0, tag=9)
    strided = np.full((4, 6), -1, "int32")[:, ::3]
    work = comm.recv_async(strided, left)
    comm.send(np.arange(8, dtype="int32"), right)
    assert work.wait().count == 8
    same(strided, np.arange(8).reshape(4, 2))
    counts = [3 * r for r in range(n)]
    same(comm.allgatherv(np.full(3 * me, me), counts), np.concatenate([np.full(3 * r, r) for r in range(n)]))
    raises(ringred.InvalidArgumentError, comm.allgatherv, np.zeros(3 * me + 1), counts)
    value = {"rank": me, "array": np.arange(me)}
    assert [v["rank"] for v in comm.allgather_object(value)] == list(range(n))
    got = comm.broadcast_object(value if me == n - 1 else None, root=n - 1)
    assert got["rank"] == n - 1
    same(got["array"], np.arange(n - 1))


def parts_of_ranks(comm):
    """Communicators of some ranks, which outlive the one that they were made from."""
    half = comm.split(comm.rank % 2, key=-comm.rank)
    mates = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert half.size == len(mates) and mates[half.rank] == comm.rank
    same(half.allreduce(np.array([comm.rank])), [sum(mates)])
    assert comm.split(None if comm.rank == 0 else 3) is None or comm.rank > 0
    ends = comm.subgroup([comm.size - 1, 0] if comm.rank in (0, comm.size - 1) else [])
    assert (ends is None) == (comm.rank not in (0, comm.size - 1))
    if ends is not None:
        same(ends.allgather(np.array([comm.rank], "int64")), [[comm.size - 1], [0]])
    raises(ringred.InvalidArgumentError, comm.split, -2)
    comm.barrier()
    comm.destroy()
    same(half.allreduce(np.array([1.0])), [len(mates)])
    half.destroy()
    if ends is not None:
        ends.destroy()


def dropped_array(comm, go):
    """What was started is not freed, or used for something else, before it has ended."""
    if comm.rank == 0:
        comm.allreduce_async(numbers(0, (50000,)))  # nobody holds array or work
        gc.collect()
        others = [np.full(50000, 7, "float32") for _ in range(20)]
        go.set()
        comm.barrier()
        assert all((a == 7).all() for a in others)
    else:
        assert go.wait(PATIENCE_S)
        mine = numbers(comm.rank, (50000,))
        comm.allreduce(mine)
        same(mine, total(comm.size, (50000,)))
        comm.barrier()


def interrupted_wait(comm, go):
    mine = numbers(comm.rank, (1000,))
    if comm.rank == 0:
        raise_after(0.05)
        raises(Interrupted, comm.allreduce, mine)
        go.set()
        comm.barrier()                              # the allreduce goes on, and comes first
    else:
        assert go.wait(PATIENCE_S)
        comm.allreduce(mine)
        comm.barrier()
    same(mine, total(comm.size, (1000,)))


def ticking(comm, go):
    """A wait does not hold Python's lock."""
    if comm.rank == 0:
        ticks = []
        thread = threading.Thread(target=lambda: (ticks.extend(range(1000)), go.set()))
        work = comm.barrier_async()
        thread.start()
        work.wait()
        thread.join()
        assert len(ticks) == 1000
    else:
        assert go.wait(PATIENCE_S)
        comm.barrier()


def disagreement(comm):
    mine = np.zeros(100 + comm.rank, "float32")
    failure = raises(ringred.MismatchError, comm.allreduce, mine)
    assert "100" in failure.text and "101" in failure.text, failure.text
    raises(ringred.MismatchError, comm.barrier)     # and from then on
    return failure.text


def different_roots(comm):
    """Waits of many slices, since neither rank comes to what the other waits for."""
    began = time.monotonic()
    failure = raises(ringred.MismatchError, comm.broadcast, np.zeros(1000, "float32"), 1 - comm.rank)
    assert "root 0" in failure.text and "root 1" in failure.text, failure.text
    assert time.monotonic() - began < 2             # what is promised
    raises(ringred.MismatchError, comm.barrier)


def refused_memory(comm, go):
    """A refusal is remembered by the library, but ends nothing."""
    raises(MemoryError, comm.empty, 1 << 58)
    mine = numbers(comm.rank, (1000,))
    if comm.rank == 0:
        work = comm.allreduce_async(mine)
        for _ in range(3):
            raises(ringred.TimeoutError, work.wait, 0.01)
            assert not work.done and not work.test()
        thread = threading.Timer(0.05, go.set)      # in one of the later slices
        thread.start()
        comm.barrier()
        assert work.wait() is mine
        thread.join()
    else:
        assert go.wait(PATIENCE_S)
        comm.allreduce(mine)
        comm.barrier()
    same(mine, total(comm.size, (1000,)))


def lost_peer(comm, met):
    comm.barrier()
    met.wait(PATIENCE_S)                            # else who is still in the barrier loses its peer there
    if comm.rank == 1:
        os._exit(0)
    failure = raises(ringred.PeerLostError, comm.allreduce, np.zeros(1000, "float32"))
    assert failure.ranks == (1,) and failure.rank == 1 and isinstance(failure, ConnectionError)
    raises(ringred.PeerLostError, comm.barrier)


def late_abort(comm, go):
    if comm.rank == 0:
        work = comm.barrier_async()
        go.set()
        raises(ringred.AbortedError, work.wait)
        raises(ringred.AbortedError, work.wait)     # the same answer again
    else:
        assert go.wait(PATIENCE_S)
        comm.abort()
        raises(ringred.AbortedError, comm.barrier)


def timed_call(comm, go):
    if comm.rank == 0:
        raises(ringred.TimeoutError, comm.barrier)
        raises(ringred.Error, comm.barrier)         # others cannot know that we gave up
        go.set()
    else:
        assert go.wait(PATIENCE_S)


def shared_memory(comm):
    big = comm.empty((300, 400), "float64")
    assert big.shape == (300, 400) and not big.any()
    big[...] = numbers(comm.rank, (300, 400), "float64")
    view = big[::2]
    comm.allreduce(big)
    same(big, total(comm.size, (300, 400), "float64"))
    none = comm.empty(0)
    assert none.size == 0
    comm.destroy()
    del big, none
    gc.collect()
    same(view, total(comm.size, (300, 400), "float64")[::2])  # outlives communicator and owner


def forked_child(comm):
    """What a child drops, destroys or leaves behind at its exit is still the parent's."""
    freed = []
    ringred._memory.lib.free = freed.append   # there is nothing to free before this ends
    mine = comm.empty(5000)
    mine[...] = numbers(comm.rank, (5000,))
    work = comm.barrier_async()
    for explicit in (False, True):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if explicit:
                    del mine, work
                    gc.collect()
                    raises(ringred.ForkedError, comm.barrier)
                    comm.destroy()
                weakref.finalize._exitfunc()        # as at the end of any program
                assert not freed
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        same(mine, numbers(comm.rank, (5000,)))
    work.wait()
    comm.allreduce(mine)
    same(mine, total(comm.size, (5000,)))


def after_destroy(comm, go):
    if comm.rank == 0:
        work = comm.barrier_async()
        comm.destroy()
        raises(ringred.AbortedError, work.wait)
        raises(ValueError, comm.barrier)
        raises(ValueError, comm.abort)
        comm.destroy()
        go.set()
    else:
        assert go.wait(PATIENCE_S)


def describes(comm):
    text = comm.describe("allreduce", 1 << 20)
    assert isinstance(text, dict) and text
    assert (comm.local_rank, comm.local_size) == (comm.rank, comm.size)
    assert "rank %d of %d" % (comm.rank, comm.size) in repr(comm)


def dumps(comm):
    array = np.zeros(4, "float32")
    comm.allreduce(array, op="max")
    part = comm.split(0)
    last = comm.dump()
    assert (last["schema"], last["rank"], last["status"]) == ("ringred-dump", comm.rank, 0)
    first = last["communicators"][0]["operations"][0]
    assert (first["number"], first["state"], first["op"]) == (1, "done", "max")
    assert [c["name"] for c in part.dump()["communicators"]] == ["all/1.0"]
    part.destroy()
    if comm.size > 1:
        return
    comm.abort()
    raises(ringred.AbortedError, comm.barrier)
    assert comm.dump()["error"]["text"]
    raises(ringred.AbortedError, comm.destroy)


class Collectives(unittest.TestCase):
    def test_sums_and_averages_of_all_shapes(self):
        for size in (1, 2, 3):
            run_ranks(size, sums)

    def test_sums_over_tcp(self):
        run_ranks(2, sums, transport="tcp")

    def test_every_type_and_operator(self):
        run_ranks(3, all_types)

    def test_parts_are_moved(self):
        for settings in ({}, {"transport": "tcp"}):
            run_ranks(3, moved, **settings)

    def test_messages_and_objects(self):
        for settings in ({}, {"transport": "tcp"}):
            run_ranks(3, messages, **settings)

    def test_communicators_of_some_ranks(self):
        run_ranks(4, parts_of_ranks)

    def test_strange_layouts_give_right_answers(self):
        run_ranks(2, layouts)

    def test_what_cannot_be_right_is_refused(self):
        run_ranks(2, refusals)

    def test_overlapping_arrays_go_through_a_copy(self):
        run_ranks(2, overlap)

    def test_broadcast_from_every_root(self):
        run_ranks(3, broadcasts)

    def test_shared_memory_outlives_its_communicator(self):
        run_ranks(2, shared_memory)

    def test_dumps_say_what_ran(self):
        for size in (1, 2):
            run_ranks(size, dumps)

    def test_describe(self):
        run_ranks(2, describes)


class Works(unittest.TestCase):
    def test_many_at_once(self):
        run_ranks(2, many_at_once)

    def test_a_wait_that_times_out_leaves_it_running(self):
        run_ranks(2, late_peer, fork.Event())

    def test_arrays_are_held_until_the_end(self):
        run_ranks(2, dropped_array, fork.Event())

    def test_signal_handlers_run_while_waiting(self):
        run_ranks(2, interrupted_wait, fork.Event())

    def test_other_threads_run_while_waiting(self):
        run_ranks(2, ticking, fork.Event())


class Failures(unittest.TestCase):
    def test_disagreement_is_told_to_every_rank(self):
        run_ranks(2, disagreement, broken=True)

    def test_different_roots_are_told_within_slices(self):
        for transport in ("tcp", "shm"):
            run_ranks(2, different_roots, broken=True, transport=transport)

    def test_a_refusal_leaves_later_waits_right(self):
        for transport in ("tcp", "shm"):
            run_ranks(2, refused_memory, fork.Event(), transport=transport)

    def test_a_lost_peer_is_named(self):
        for transport in ("shm", "tcp"):
            run_ranks(3, lost_peer, fork.Barrier(3), silent=(1,), broken=True, transport=transport)

    def test_abort_ends_the_wait_of_others(self):
        run_ranks(2, late_abort, fork.Event(), broken=True)

    def test_a_blocking_call_keeps_its_time(self):
        run_ranks(2, timed_call, fork.Event(), broken=True, timeout=0.2)

    def test_a_forked_child_leaves_all_as_it_is(self):
        for transport in ("shm", "tcp"):
            run_ranks(2, forked_child, transport=transport)

    def test_after_destroy(self):
        run_ranks(2, after_destroy, fork.Event(), broken=True)

    def test_wrong_setting_names_the_right_one(self):
        failure = raises(ringred.SettingError, ringred.init, rank=0, size=1, transprot="shm")
        self.assertIn("transport", failure.text)
        self.assertIsInstance(failure, ValueError)

    def test_errors_are_pythons_too(self):
        for ours, pythons in (("TimeoutError", TimeoutError), ("PeerLostError", ConnectionError),
                              ("InvalidArgumentError", ValueError), ("ArgumentTypeError", TypeError),
                              ("OutOfMemoryError", MemoryError)):
            kind = getattr(ringred, ours)
            self.assertTrue(issubclass(kind, pythons) and issubclass(kind, ringred.Error))
            self.assertEqual(str(kind("why", 3)), "why")


class Processes(unittest.TestCase):
    def script(self, text, **environment):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                              env={**os.environ, **environment}, timeout=PATIENCE_S)

    def test_missing_library_is_explained(self):
        done = self.script("import ringred", RINGRED_LIBRARY="/nowhere/libringred.so.0")
        self.assertIn("ImportError", done.stderr)
        self.assertIn("RINGRED_LIBRARY", done.stderr)

    def test_exit_without_destroy_keeps_the_exit_code(self):
        done = self.script("import ringred, sys, numpy\n"
                           "comm = ringred.init(rank=0, size=1)\n"
                           "x = comm.empty(4)\n"
                           "work = comm.allreduce_async(x)\n"
                           "sys.exit(7)\n")
        self.assertEqual((done.returncode, done.stderr), (7, ""))

    def test_signal_handlers_run_in_init_and_a_second_init_works(self):
        def alone():
            raise_after(0.1)
            before = time.monotonic()
            raises(Interrupted, ringred.init, rank=0, size=2, id=ringred.unique_id(), init_timeout=5)
            with ringred.init(rank=0, size=1) as comm:
                same(comm.allreduce(np.ones(3, "float32")), np.ones(3))
            return before

        process = fork.Process(target=lambda: (alone(), os._exit(42)))
        process.start()
        process.join(PATIENCE_S)
        self.assertEqual(process.exitcode, 42)


if __name__ == "__main__":
    unittest.main()
