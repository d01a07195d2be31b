# SPDX-License-Identifier: Apache-2.0
"""Moves elements between two places in memory that have the same shape and strides of their own.

Everything here is done by memoryviews of memory that we describe ourselves, so that it works for any
exporter, and without numpy: along one dimension Python copies, the others are walked here.
"""
import ctypes
import itertools
from typing import Any, List, Tuple

Layout = Tuple[int, Tuple[int, ...]]          # where the first element lies, and bytes between neighbours


def dense_strides(shape: Tuple[int, ...], itemsize: int) -> Tuple[int, ...]:
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


class PyBuffer(ctypes.Structure):
    """Py_buffer; obj is never used through it, so it may as well be a number."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.restype, _get.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.restype, _release.argtypes = None, [ctypes.POINTER(PyBuffer)]
_view_of = ctypes.pythonapi.PyMemoryView_FromBuffer
_view_of.restype, _view_of.argtypes = ctypes.py_object, [ctypes.POINTER(PyBuffer)]
_FULL_RO = 0x11C                              # PyBUF_FULL_RO: any layout, read-only too

# Python keeps the pointer: these live as long as it does.
_formats = {1: ctypes.c_char_p(b"B"), 2: ctypes.c_char_p(b"H"), 4: ctypes.c_char_p(b"I"),
            8: ctypes.c_char_p(b"Q")}


def address_of(view: memoryview) -> int:
    """Where its first element lies. The view itself keeps the memory there."""
    buffer = PyBuffer()
    _get(view, ctypes.byref(buffer), _FULL_RO)
    address = buffer.buf or 0
    _release(ctypes.byref(buffer))
    return address


def _row(address: int, length: int, stride: int, itemsize: int) -> memoryview:
    one = ctypes.c_ssize_t * 1
    described = PyBuffer(address, None, length * itemsize, itemsize, 0, 1, _formats[itemsize], one(length),
                         one(stride), None, None)
    return _view_of(ctypes.byref(described))


def _dimensions(shape: Tuple[int, ...], to: Tuple[int, ...], frm: Tuple[int, ...]) -> List[List[int]]:
    """[length, stride there, stride here] of each, neighbours that can be walked as one joined."""
    joined: List[List[int]] = []
    for length, there, here in zip(shape, to, frm):
        if length == 1:
            continue
        last = joined[-1] if joined else None
        if last and last[1] == length * there and last[2] == length * here:
            joined[-1] = [last[0] * length, there, here]
        else:
            joined.append([length, there, here])
    return joined


def move(to: Layout, frm: Layout, shape: Tuple[int, ...], itemsize: int) -> None:
    """Copies all elements of a shape; the two may not overlap."""
    if 0 in shape:
        return
    unit = itemsize if itemsize in _formats else 8 if itemsize % 8 == 0 else 1
    if unit != itemsize:
        shape, to, frm = (*shape, itemsize // unit), (to[0], (*to[1], unit)), (frm[0], (*frm[1], unit))
    dimensions = _dimensions(shape, to[1], frm[1]) or [[1, unit, unit]]
    inner = max(dimensions, key=lambda d: d[0])
    dimensions.remove(inner)
    length, there, here = inner
    for index in itertools.product(*(range(d[0]) for d in dimensions)):
        at = to[0] + sum(i * d[1] for i, d in zip(index, dimensions))
        of = frm[0] + sum(i * d[2] for i, d in zip(index, dimensions))
        _row(at, length, there, unit)[:] = _row(of, length, here, unit)


def meets_itself(shape: Tuple[int, ...], strides: Tuple[int, ...], itemsize: int) -> bool:
    """Whether two indices may mean the same place, as with a stride of 0."""
    if 0 in shape:
        return False
    reach = itemsize
    for stride, length in sorted(zip(map(abs, strides), shape)):
        if length > 1:
            if stride < reach:
                return True
            reach = stride * (length - 1) + reach
    return False


def extent(address: int, shape: Tuple[int, ...], strides: Tuple[int, ...], itemsize: int) -> Tuple[int, int]:
    """The first byte, and the one behind the last, that some element lies in."""
    if 0 in shape:
        return address, address
    low = address + sum(min(0, s * (n - 1)) for s, n in zip(strides, shape))
    high = address + sum(max(0, s * (n - 1)) for s, n in zip(strides, shape))
    return low, high + itemsize


def is_dense(shape: Tuple[int, ...], strides: Tuple[int, ...], itemsize: int) -> bool:
    """Whether the elements lie one behind the other, in the order of the indices."""
    if 0 in shape:
        return True
    step = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length > 1:
            if stride != step:
                return False
            step *= length
    return True
