# SPDX-License-Identifier: Apache-2.0
"""The calls beyond the common ones: lists, groups, parts of unequal length, operators, objects, await."""
import array
import asyncio
import os
import threading
import unittest

import numpy as np

import ringred
from ranks import PATIENCE_S, fork, raises, run_ranks

same = np.testing.assert_array_equal


def unequal(comm):
    n, me = comm.size, comm.rank
    counts = [(3 * r + 1) % 4 for r in range(n)]         # 1, 0, 3, 2, ...
    every = [np.arange(c, dtype="int32") + 10 * r for r, c in enumerate(counts)]
    joined = np.concatenate(every)
    same(comm.allgatherv(every[me], counts), joined)
    places = [4 * (n - 1 - r) for r in range(n)]
    spread = np.full(4 * n, -1, "int32")
    want = spread.copy()
    for r in range(n):
        want[places[r]:places[r] + counts[r]] = every[r]
    assert comm.allgatherv(every[me], counts, spread, places) is spread
    same(spread, want)
    for root in range(n):
        got = comm.gatherv(every[me], counts if me == root else None, root=root)
        assert got is None if me != root else (got == joined).all()
        part = np.full(counts[me], -1, "int32")
        if me == root:
            comm.scatterv(joined, counts, part, root)
            same(comm.scatterv(want, counts, None, root, places), every[me])
        else:
            comm.scatterv(out=part, root=root)
            comm.scatterv(out=np.empty_like(part), root=root)
        same(part, every[me])
    sends = [(me + r) % 3 for r in range(n)]
    mine = np.concatenate([np.full(c, 100 * me + r) for r, c in enumerate(sends)])
    got = comm.alltoallv(mine, sends, sends)             # (me + r) % 3 both ways
    same(got, np.concatenate([np.full((me + r) % 3, 100 * r + me) for r in range(n)]))
    summed = comm.reduce_scatterv(joined.astype("float32") * (me + 1), counts)
    same(summed, every[me] * (n * (n + 1) / 2))
    raises(ringred.InvalidArgumentError, comm.allgatherv, every[me], counts[:-1])
    raises(ringred.InvalidArgumentError, comm.allgatherv, np.zeros(9, "int32"), counts)
    if n > 1:
        raises(ringred.InvalidArgumentError, comm.allgatherv, every[me], counts, spread, [0] * n)
    raises(ringred.ArgumentTypeError, comm.allgatherv, every[me], ["a"] * n)
    raises(ringred.InvalidArgumentError, comm.alltoallv, mine, sends, [-1] * n)


def lists(comm):
    n, me = comm.size, comm.rank
    total = n * (n + 1) // 2

    def some():
        return [np.full(3, me + 1, "float32"), np.full((2, 2), me + 1, "int64").T, np.zeros(0, "float64"),
                array.array("d", [me + 1.0] * 40000)]

    mine = some()
    results = comm.allreduce_list(mine)
    assert all(a is b for a, b in zip(results, mine))
    for one in mine:
        assert (np.asarray(one) == total).all()
    outs = [np.zeros((3, 2), "float32")[:, 1], np.zeros((2, 2), "int64"), np.zeros(0, "float64"), np.zeros(40000)]
    work = comm.allreduce_list_async(some(), outs, op="avg" if n == 1 else "sum")
    for one in work.wait():
        assert (one == (1 if n == 1 else total)).all()
    assert comm.allreduce_list([]) == []
    got = comm.reduce_list(some(), root=n - 1)
    assert (got is None) == (me != n - 1)
    if got:
        assert all((np.asarray(one) == total).all() for one in got)
    mine = some()
    comm.broadcast_list(mine, root=0)
    assert all((np.asarray(one) == 1).all() for one in mine)
    whole = np.zeros(10, "float32")
    raises(ringred.InvalidArgumentError, comm.allreduce_list, [whole[:6], whole[5:]])
    raises(ringred.InvalidArgumentError, comm.allreduce_list, [whole], [whole, whole])


def groups(comm):
    n, me = comm.size, comm.rank
    a, b, c, d = np.full(5, me + 1.0), np.full(7, me, "int32"), np.full(3, me + 1.0, "float32"), np.ones(2)
    with comm.group():
        comm.allreduce(a)
        work = comm.allreduce_async(b, op="max")
        comm.allreduce(c, op="avg")
        later = comm.allreduce_async(d)
        raises(ringred.InvalidArgumentError, work.wait)
        raises(ringred.InvalidArgumentError, comm.barrier)
        assert (a == me + 1).all()                       # nothing has begun
    same(a, n * (n + 1) / 2)
    same(c, np.float32((n + 1) / 2))
    assert work.wait() is b and later.wait() is d
    same(b, n - 1)
    same(d, n)
    try:
        with comm.group():
            comm.allreduce(a)
            raise KeyError
    except KeyError:
        pass
    same(a, n * (n + 1) / 2)
    comm.barrier()


def own_operators(comm):
    """2 x 2 matrices under multiplication: the order of ranks counts."""
    n, me = comm.size, comm.rank

    def multiply(left, right, result):
        shaped = [np.frombuffer(view, "int64").reshape(-1, 2, 2) for view in (left, right, result)]
        shaped[2][...] = shaped[0] @ shaped[1]

    matrices = [np.array([[1, r + 1], [r % 2, 1]]) for r in range(n)]
    want = matrices[0]
    for m in matrices[1:]:
        want = want @ m
    times = comm.op(multiply, 32)
    mine = np.stack([matrices[me]] * 500)
    comm.allreduce(mine, op=times)
    same(mine, np.stack([want] * 500))
    got = comm.reduce(matrices[me], np.zeros((2, 2), "int64"), op=times, root=0)
    if me == 0:
        same(got, want)
    part = comm.reduce_scatter(np.stack([matrices[me]] * n), op=times)
    same(part, want)
    raises(ringred.InvalidArgumentError, comm.allreduce, np.zeros(3, "int64"), op=times)
    raises(ringred.InvalidArgumentError, comm.allreduce, np.zeros(3), op=multiply)
    raises(ringred.InvalidArgumentError, comm.op, 5, 8)


def failing_operator(comm):
    def fails(left, right, result):
        raise ZeroDivisionError("an operator's own")

    broken = comm.op(fails, 4)
    raises((ZeroDivisionError, ringred.AbortedError), comm.allreduce, np.zeros(1, "int32"), op=broken)
    raises(ringred.AbortedError, comm.barrier)


def objects(comm):
    n, me = comm.size, comm.rank
    mine = {"rank": me, "text": "x" * (1000 * me)}
    for root in range(n):
        assert comm.broadcast_object(mine if me == root else None, root)["rank"] == root
        got = comm.gather_object(mine, root)
        assert [g["rank"] for g in got] == list(range(n)) if me == root else got is None
        assert comm.scatter_object([(r, root) for r in range(n)] if me == root else None, root) == (me, root)
    assert [len(o["text"]) for o in comm.allgather_object(mine)] == [1000 * r for r in range(n)]
    unpicklable = threading.Lock()
    culprit = n - 1
    for call in (lambda what: comm.allgather_object(what), lambda what: comm.gather_object(what, 0),
                 lambda what: comm.broadcast_object(what, culprit),
                 lambda what: comm.scatter_object([what] * n, culprit)):
        failure = raises(TypeError if me == culprit else ringred.Error, call, unpicklable if me == culprit else 1)
        assert me == culprit or "rank %d" % culprit in failure.text
    raises((ringred.InvalidArgumentError, ringred.Error), comm.scatter_object, [1] * (n + 1), 0)
    comm.barrier()


def awaited(comm):
    n, me = comm.size, comm.rank

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.ensure_future(tick())
        arrays = [np.full(k, me + 1.0) for k in (1, 1000, 300000)]
        results = await asyncio.gather(*(asyncio.ensure_future(wait(comm.allreduce_async(a))) for a in arrays))
        assert all(a is b for a, b in zip(results, arrays))
        for a in arrays:
            same(a, n * (n + 1) / 2)
        if n > 1:
            right, left = (me + 1) % n, (me - 1) % n
            send, got = comm.send_async(np.array([me]), right), np.zeros(1, "int64")
            message = await comm.recv_async(got, left)
            await send
            assert (message.source, got[0]) == (left, left)
        await comm.barrier_async()
        ticker.cancel()
        return ticks

    async def wait(work):
        return await work

    assert asyncio.run(main()) > 0
    asyncio.run(main())                                  # a loop of its own again


def awaited_late(comm, go):
    """The loop sleeps until the peer comes: a task that waits lets others run."""
    async def main():
        work, asleep = comm.allreduce_async(np.ones(3)), asyncio.get_running_loop().create_future()

        async def other():
            asleep.set_result(None)
            go.set()

        task = asyncio.ensure_future(other())
        result = await work
        await task
        assert asleep.done()
        same(result, [2.0] * 3)

    if comm.rank == 0:
        asyncio.run(main())
    else:
        assert go.wait(PATIENCE_S)
        same(comm.allreduce(np.ones(3)), [2.0] * 3)


def awaited_failure(comm, go):
    async def main():
        work = comm.barrier_async()
        go.set()
        try:
            await work
        except ringred.AbortedError:
            return
        raise AssertionError("the failure was not raised")

    if comm.rank == 0:
        asyncio.run(main())
    else:
        assert go.wait(PATIENCE_S)
        comm.abort()
        raises(ringred.AbortedError, comm.barrier)


def awaited_destroyed(comm, go):
    async def main():
        work = comm.barrier_async()

        async def other():
            comm.destroy()

        task = asyncio.ensure_future(other())
        try:
            await work
            raise AssertionError("the failure was not raised")
        except ringred.AbortedError:
            pass
        await task
        pipe = os.pipe()                                 # gets the descriptor's number
        os.close(pipe[0])
        os.close(pipe[1])
        go.set()

    if comm.rank == 0:
        asyncio.run(main())
    else:
        assert go.wait(PATIENCE_S)


def shared_by_threads(comm):
    """Threads of one rank: calls are started one after the other. The order is that of the ranks' agreement here, since
    all are alike."""
    failures = []

    def work():
        try:
            for _ in range(50):
                same(comm.allreduce(np.ones(10)), [comm.size] * 10)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures, failures


class Store:
    """As torch's: get waits for set."""

    def __init__(self, folder):
        self.pipe = folder

    def set(self, key, value):
        for end in self.pipe:
            end.put((key, value))

    def get(self, key):
        found = self.pipe[0].get(timeout=PATIENCE_S)
        assert found[0] == key
        return found[1]


class Calls(unittest.TestCase):
    def everywhere(self, body):
        for size, settings in ((1, {}), (3, {}), (4, {"transport": "tcp"})):
            run_ranks(size, body, **settings)

    def test_parts_of_unequal_length(self):
        self.everywhere(unequal)

    def test_lists(self):
        self.everywhere(lists)

    def test_groups(self):
        self.everywhere(groups)

    def test_own_operators(self):
        self.everywhere(own_operators)

    def test_an_operator_that_fails_breaks_the_communicator(self):
        run_ranks(2, failing_operator, broken=True)

    def test_objects(self):
        self.everywhere(objects)

    def test_await(self):
        self.everywhere(awaited)

    def test_await_sleeps_until_the_peer_comes(self):
        for transport in ("shm", "tcp"):
            run_ranks(2, awaited_late, fork.Event(), transport=transport)

    def test_await_raises_what_failed(self):
        run_ranks(2, awaited_failure, fork.Event(), broken=True)

    def test_await_is_told_of_the_end(self):
        run_ranks(2, awaited_destroyed, fork.Event(), broken=True)

    def test_threads_share_a_communicator(self):
        run_ranks(2, shared_by_threads)


class Bootstrap(unittest.TestCase):
    def join(self, **how):
        """The ranks as threads of this process; how: what rank r passes to init."""
        results = [None] * 3

        def run(rank):
            try:
                with ringred.init(rank=rank, size=3, **{k: v(rank) for k, v in how.items()}) as comm:
                    results[rank] = float(comm.allreduce(np.ones(1))[0])
            except BaseException as failure:
                results[rank] = failure

        threads = [threading.Thread(target=run, args=(r,)) for r in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        return results

    def test_own_store(self):
        import queue
        queues = [queue.Queue() for _ in range(3)]
        self.assertEqual(self.join(store=lambda r: Store(queues if r == 0 else [queues[r]])), [3.0] * 3)

    def test_own_allgather(self):
        barrier, slots = threading.Barrier(3), [None] * 3

        def allgather(rank):
            def call(mine):
                slots[rank] = mine
                barrier.wait(PATIENCE_S)
                return slots
            return call

        self.assertEqual(self.join(allgather=allgather), [3.0] * 3)

    def test_what_the_callers_own_raises_is_the_cause(self):
        def allgather(rank):
            def call(mine):
                raise KeyError("nothing there")
            return call

        for failure in self.join(allgather=allgather):
            self.assertIsInstance(failure, ringred.Error)
            self.assertIsInstance(failure.__cause__, KeyError)


if __name__ == "__main__":
    unittest.main()
