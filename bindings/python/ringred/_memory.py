# SPDX-License-Identifier: Apache-2.0
"""Memory that the peers on a host can reach. It goes back when the last object that uses it is gone."""
import ctypes
import os
import weakref
from typing import Any

from . import _types
from ._errors import InvalidArgumentError
from ._library import lib


def _free(pointer: int, pid: int) -> None:
    """A forked child has copies of our objects, but the memory behind them is its parent's."""
    if os.getpid() == pid:
        lib.free(pointer)


def alloc(state: Any, nbytes: int) -> memoryview:
    nbytes = _types.integer("nbytes", nbytes, 0, _types.INT64_MAX)
    pointer = ctypes.c_void_p()
    state.check(lib.alloc(state.live(), max(nbytes, 1), ctypes.byref(pointer)))
    place = (ctypes.c_ubyte * nbytes).from_address(pointer.value or 0)
    weakref.finalize(place, _free, pointer.value or 0, os.getpid()).atexit = False
    return memoryview(place).cast("B")


def empty(state: Any, shape: Any, dtype: Any) -> Any:
    import numpy                              # whoever wants an array of numpy has it

    whole = numpy.dtype(dtype)
    _types.named(whole)
    dimensions = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    count = 1
    for length in dimensions:
        if length < 0:
            raise InvalidArgumentError("shape %s has a negative length" % (dimensions,))
        count *= int(length)
    place = alloc(state, count * whole.itemsize)
    return numpy.frombuffer(place, whole.newbyteorder("="), count).reshape(dimensions)
