# SPDX-License-Identifier: Apache-2.0
"""Whose memory the package takes, and whether what lies in it in any way comes out right.

Two ranks live in this process, so that an example costs microseconds.
"""
import array
import ctypes
import gc
import mmap
import sys
import threading
import unittest

import numpy as np

import ringred
from ranks import PATIENCE_S, raises

try:
    from hypothesis import given, settings
    from hypothesis import strategies as some
except ImportError:
    some = None

ranks = [None, None]


def setUpModule():
    job = ringred.unique_id()

    def join(rank):
        ranks[rank] = ringred.init(rank=rank, size=2, id=job)

    threads = [threading.Thread(target=join, args=(r,)) for r in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert None not in ranks


def tearDownModule():
    for comm in ranks:
        comm.destroy()


def both(call):
    """call(comm) starts a work on each rank; their results."""
    works = [call(comm) for comm in ranks]
    while not all([work.test() for work in works]):
        pass
    return [work.wait() for work in works]


same = np.testing.assert_array_equal
DTYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint64", "bool", "complex64",
          "complex128")


class Layout:
    """How an array's elements lie: the order of its axes in memory, steps between them, where it begins, and the order
    of bytes in a number."""

    def __init__(self, order, steps, shift, swapped):
        self.order, self.steps, self.shift, self.swapped = order, steps, shift, swapped

    def __repr__(self):
        return "Layout(%s, %s, %d, %s)" % (self.order, self.steps, self.shift, self.swapped)

    def place(self, values):
        """(array with these values, all the memory around it, which of its bytes are the array's)"""
        dtype = values.dtype.newbyteorder(">") if self.swapped else values.dtype
        order = sorted(range(values.ndim), key=lambda axis: self.order[axis])
        strides, reach, begin = [0] * values.ndim, dtype.itemsize, self.shift
        for axis in order:
            length, step = values.shape[axis], self.steps[axis]
            strides[axis] = reach * step
            if step < 0:
                begin += reach * -step * max(length - 1, 0)
            reach *= abs(step) * max(length, 1)
        memory = np.full(self.shift + reach + 64, 0xA5, "uint8")
        laid = np.ndarray(values.shape, dtype, memory, begin, strides)
        laid[...] = values
        used = np.zeros(memory.size, bool)
        view = np.ndarray((*values.shape, dtype.itemsize), bool, used, begin, (*strides, 1))
        view[...] = True
        return laid, memory, used


def rest(memory, used):
    return memory[~used]


if some is not None:
    @some.composite
    def cases(draw):
        shape = tuple(draw(some.lists(some.integers(0, 5), min_size=0, max_size=4)))
        axes = len(shape)

        def layout():
            return Layout(draw(some.permutations(range(axes))),
                          [draw(some.sampled_from((1, 1, 2, 3, -1, -2))) for _ in range(axes)],
                          draw(some.integers(0, 16)), draw(some.booleans()))

        dtype = draw(some.sampled_from(DTYPES))
        count = int(np.prod(shape, dtype=int))
        values = [(np.arange(count).reshape(shape) % 5 * (r + 1) % 7).astype(dtype) for r in (0, 1)]
        return values, [layout() for _ in range(4)]


@unittest.skipIf(some is None, "hypothesis is not installed")
class Layouts(unittest.TestCase):
    """Each rank's arrays lie in another way; what lies between their elements must not change."""

    def check(self, placed, call, want):
        before = [rest(memory, used).copy() for _, memory, used in placed]
        both(call)
        for (laid, memory, used), expected, old in zip(placed, want, before):
            same(laid, expected)
            same(rest(memory, used), old)

    if some is not None:
        @settings(max_examples=300, deadline=None, derandomize=True, database=None)
        @given(cases())
        def test_PR_26_sums_in_place(self, case):
            values, layouts = case
            op = "lor" if values[0].dtype == bool else "sum"
            want = values[0] | values[1] if op == "lor" else values[0] + values[1]
            placed = [layouts[r].place(values[r]) for r in (0, 1)]
            self.check(placed, lambda c: c.allreduce_async(placed[c.rank][0], op=op), [want, want])

        @settings(max_examples=200, deadline=None, derandomize=True, database=None)
        @given(cases())
        def test_PR_26_sums_into_another(self, case):
            values, layouts = case
            op = "lor" if values[0].dtype == bool else "sum"
            want = values[0] | values[1] if op == "lor" else values[0] + values[1]
            sources = [layouts[r].place(values[r]) for r in (0, 1)]
            placed = [layouts[2 + r].place(np.zeros_like(want)) for r in (0, 1)]
            self.check(placed, lambda c: c.allreduce_async(sources[c.rank][0], placed[c.rank][0], op), [want, want])
            for source, value in zip(sources, values):
                same(source[0], value)

        @settings(max_examples=200, deadline=None, derandomize=True, database=None)
        @given(cases())
        def test_PR_26_moves(self, case):
            values, layouts = case
            pairs = [np.stack([v, v]) for v in values]
            whole = np.stack(values)
            sources = [layouts[r].place(values[r]) for r in (0, 1)]
            grown = [Layout([*layouts[2 + r].order, values[0].ndim], [*layouts[2 + r].steps, 2], layouts[2 + r].shift,
                            layouts[2 + r].swapped) for r in (0, 1)]
            placed = [grown[r].place(np.zeros_like(pairs[0])) for r in (0, 1)]
            self.check(placed, lambda c: c.allgather_async(sources[c.rank][0], placed[c.rank][0]), [whole, whole])
            parts = [grown[1 - r].place(np.stack([values[r], values[1 - r]])) for r in (0, 1)]
            self.check(placed, lambda c: c.alltoall_async(parts[c.rank][0], placed[c.rank][0]),
                       [whole, whole[::-1]])
            placed = [layouts[2 + r].place(np.zeros_like(values[0])) for r in (0, 1)]
            self.check(placed, lambda c: c.scatter_async(parts[0][0] if c.rank == 0 else None, placed[c.rank][0]),
                       [values[0], values[1]])
            placed = [layouts[2 + r].place(values[r]) for r in (0, 1)]
            self.check(placed, lambda c: c.broadcast_async(placed[c.rank][0], 1), [values[1], values[1]])

            def message(c):
                return c.send_async(sources[0][0], 1) if c.rank == 0 else c.recv_async(placed[1][0])
            self.check(placed, message, [values[1], values[0]])


class OnlyDLPack:
    """An object that shows its memory by DLPack alone."""

    def __init__(self, of, device=(1, 0), old=False):
        self.of, self.device, self.old = of, device, old

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **asked):
        if self.old and asked:
            raise TypeError("unexpected arguments")
        return self.of.__dlpack__()


class Exporters(unittest.TestCase):
    def sums(self, objects, want, read, dtype=None):
        both(lambda c: c.allreduce_async(objects[c.rank], dtype=dtype))
        for each in objects:
            self.assertEqual(read(each), want)

    def test_buffer_protocol(self):
        self.sums([array.array("d", [r, 2]) for r in (0, 1)], [1, 4], lambda a: a.tolist())
        self.sums([(ctypes.c_int32 * 3)(1, 2, r) for r in (0, 1)], [2, 4, 1], list)
        self.sums([bytearray([1, r]) for r in (0, 1)], [2, 1], list)
        self.sums([memoryview(bytearray(8)).cast("i") for _ in (0, 1)], [0, 0], list)
        place = mmap.mmap(-1, 4096)
        place[0:4] = b"\1\2\3\4"
        both(lambda c: c.broadcast_async(place if c.rank == 0 else bytearray(4096), 0))
        result = both(lambda c: c.broadcast_async(b"abc" if c.rank == 1 else bytearray(3), 1))
        self.assertEqual([bytes(r) for r in result], [b"abc", b"abc"])
        every = both(lambda c: c.allgather_async(array.array("h", [c.rank, 5])))
        self.assertEqual([type(e) for e in every], [array.array] * 2)
        self.assertEqual(every[0].tolist(), [0, 5, 1, 5])

    def test_names_for_what_has_none(self):
        one, two = 0x3F80, 0x4000                   # of bfloat16
        self.sums([array.array("H", [one]) for _ in (0, 1)], [two], lambda a: a.tolist(), "bfloat16")
        self.sums([bytearray(one.to_bytes(2, "little")) for _ in (0, 1)], list(two.to_bytes(2, "little")), list,
                  "bfloat16")
        self.sums([bytearray([0x38]) for _ in (0, 1)], [0x40], list, "float8_e4m3fn")
        self.sums([bytearray([0x3C]) for _ in (0, 1)], [0x40], list, "float8_e5m2")
        self.sums([np.array([one], "uint16") for _ in (0, 1)], [two], lambda a: a.tolist(), "bfloat16")
        failure = raises(ringred.ArgumentTypeError, ranks[0].allreduce, bytearray(2), dtype="bfloat17")
        self.assertIn("bfloat16", failure.text)
        raises(ringred.InvalidArgumentError, ranks[0].allreduce, np.ones(2, "float32"), dtype="bfloat16")
        raises(ringred.InvalidArgumentError, ranks[0].allreduce, bytearray(3), dtype="bfloat16")

    def test_dlpack(self):
        for old in (False, True):
            for layout in (np.s_[:], np.s_[::-2], np.s_[1::3]):
                mine = [np.arange(12, dtype="float32") * (r + 1) for r in (0, 1)]
                want = mine[0][layout] + mine[1][layout]
                both(lambda c: c.allreduce_async(OnlyDLPack(mine[c.rank][layout], old=old)))
                for each in mine:
                    same(each[layout], want)

    def test_dlpack_gives_its_memory_back(self):
        mine = [np.ones(1000, "float32") for _ in (0, 1)]
        before = [sys.getrefcount(m) for m in mine]
        both(lambda c: c.allreduce_async(OnlyDLPack(mine[c.rank])))
        gc.collect()
        self.assertEqual([sys.getrefcount(m) for m in mine], before)

    def test_dlpack_that_cannot_be(self):
        failure = raises(ringred.ArgumentTypeError, ranks[0].allreduce, OnlyDLPack(np.ones(1), (2, 0)))
        self.assertIn("CUDA", failure.text)
        frozen = np.ones(1)
        frozen.flags.writeable = False
        raises(ringred.InvalidArgumentError, ranks[0].allreduce, OnlyDLPack(frozen))
        raises(ringred.ArgumentTypeError, ranks[0].allreduce, OnlyDLPack(object()))

        class Used(OnlyDLPack):
            def __dlpack__(self, **asked):
                capsule = super().__dlpack__()
                np.from_dlpack(type("Once", (), {"__dlpack__": lambda *_, **__: capsule,
                                                 "__dlpack_device__": lambda _: (1, 0)})())
                return capsule

        raises(ringred.ArgumentTypeError, ranks[0].allreduce, Used(np.ones(1)))

    def test_what_has_no_plain_memory(self):
        for wrong in ([1.0], "text", None, 3.0, np.ma.zeros(3, "float32"), np.zeros(3, "longdouble"),
                      np.zeros(3, "datetime64[s]"), np.array([None]), np.zeros(2, "f4,i4"), np.array(["a"]), {},
                      object):
            raises(TypeError, ranks[0].allreduce, wrong)
        frozen = np.zeros(3, "float32")
        frozen.flags.writeable = False
        for wrong in (frozen, b"abc", np.broadcast_to(np.ones(1), (4,)),
                      np.lib.stride_tricks.as_strided(np.zeros(5), (3, 3), (8, 8))):
            raises(ValueError, ranks[0].allreduce, wrong)

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            mine = [np.ones(5, dtype) for _ in (0, 1)]
            both(lambda c: c.allreduce_async(mine[c.rank]))
            same(mine[0].astype("float32"), np.full(5, 2.0))
            every = both(lambda c: c.allgather_async(mine[c.rank]))
            self.assertEqual(every[0].dtype, np.dtype(dtype))

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8,
                      torch.complex64):
            mine = [torch.ones(4, 6, dtype=dtype).t()[::2] for _ in (0, 1)]
            both(lambda c: c.allreduce_async(mine[c.rank]))
            self.assertTrue(bool((mine[0] == 2).all()) and bool((mine[1] == 2).all()))
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            mine = [torch.ones(4).to(dtype) for _ in (0, 1)]
            both(lambda c: c.allreduce_async(mine[c.rank]))
            self.assertEqual(mine[0].float().tolist(), [2.0] * 4)
        flags = [torch.tensor([True, r == 0]) for r in (0, 1)]
        both(lambda c: c.allreduce_async(flags[c.rank], op="land"))
        self.assertEqual(flags[1].tolist(), [True, False])
        every = both(lambda c: c.allgather_async(torch.full((2, 3), float(c.rank))))
        self.assertEqual(tuple(every[0].shape), (2, 2, 3))
        leaf = torch.ones(3, requires_grad=True)
        self.assertIn("detach", raises(ringred.InvalidArgumentError, ranks[0].allreduce, leaf).text)
        with torch.no_grad():
            both(lambda c: c.allreduce_async(leaf if c.rank == 0 else torch.ones(3)))
        self.assertEqual(leaf.tolist(), [2.0] * 3)
        raises(ringred.ArgumentTypeError, ranks[0].allreduce, torch.eye(3).to_sparse())
        raises(ringred.ArgumentTypeError, ranks[0].allreduce, torch.ones(3, dtype=torch.complex64).conj())
        raises(ringred.ArgumentTypeError, ranks[0].allreduce, torch.ones(3, device="meta"))
        saved = torch.ones(3, requires_grad=True) * 2
        squared = saved ** 2
        both(lambda c: c.allreduce_async(saved.detach() if c.rank == 0 else torch.ones(3)))
        with self.assertRaises(RuntimeError):       # autograd knows that what it kept is another
            squared.sum().backward()


if __name__ == "__main__":
    unittest.main()
