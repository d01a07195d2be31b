# SPDX-License-Identifier: Apache-2.0
"""What of an array the library may touch.

The library sees plain memory: native numbers, one after the other, in the order of the indices. An
array that already is that is used where it lies. Any other (strided, transposed, another byte order,
not aligned) goes through a plain copy, whose content is written back where it is an output: what
lies in memory differently on each rank still means the same. An array that cannot be right is refused.
"""
from typing import Any, Dict, Optional, Tuple

import numpy

from ._errors import ArgumentTypeError, InvalidArgumentError

# by numpy's names; bfloat16 and float8 are those of the package ml_dtypes, which need not be there
_types: Dict[str, int] = {
    "float32": 1, "float64": 2, "float16": 3, "bfloat16": 4, "float8_e4m3fn": 5, "float8_e5m2": 6, "int8": 7,
    "int16": 8, "int32": 9, "int64": 10, "uint8": 11, "uint16": 12, "uint32": 13, "uint64": 14, "bool": 15,
    "complex64": 16, "complex128": 17,
}


def _as_array(what: Any, name: str) -> numpy.ndarray:
    """A view of the caller's own memory, never a copy of it."""
    if isinstance(what, numpy.ma.MaskedArray):
        raise ArgumentTypeError("%s is a masked array; pass its data, or fill it first" % name)
    if isinstance(what, numpy.ndarray):
        return what
    try:
        return numpy.asarray(memoryview(what))
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            "%s is a %s; a numpy array is needed, or an object with a buffer of numbers"
            % (name, type(what).__name__)
        ) from None


def _type_of(array: numpy.ndarray, name: str) -> int:
    type_ = _types.get(array.dtype.name)
    if type_ is None:
        raise ArgumentTypeError("%s has elements of type %s, which is none of %s" % (name, array.dtype, ", ".join(_types)))
    return type_


def _may_meet_itself(array: numpy.ndarray) -> bool:
    """Whether two indices may mean the same place, as with a stride of 0."""
    reach = array.itemsize
    for stride, length in sorted(zip(map(abs, array.strides), array.shape)):
        if length > 1:
            if stride < reach:
                return True
            reach = stride * (length - 1) + reach
    return False


def _is_plain(array: numpy.ndarray) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.dtype.isnative


def _check_output(array: numpy.ndarray, name: str) -> None:
    if not array.flags.writeable:
        raise InvalidArgumentError("%s is read-only, and the result is written to it" % name)
    if array.size and not array.flags.c_contiguous and _may_meet_itself(array):
        raise InvalidArgumentError(
            "several elements of %s lie in the same place, so a result cannot be written to it" % name
        )


def _plain_copy(array: numpy.ndarray) -> numpy.ndarray:
    return numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True, subok=False)


def address(array: numpy.ndarray) -> int:
    return array.__array_interface__["data"][0]


class Buffers:
    """The memory of one call: what is sent, where the result comes, and what the caller gets back.

    It holds references to all of it, so that nothing is freed while the library uses it.
    """

    __slots__ = ("send", "recv", "count", "type", "result", "_target")

    def __init__(self, send: numpy.ndarray, recv: numpy.ndarray, type_: int, result: Any,
                 target: Optional[numpy.ndarray]):
        self.send, self.recv = send, recv
        self.count, self.type = recv.size, type_
        self.result = result
        self._target = target

    def finish(self) -> None:
        """Writes the result where the caller wants it, if that is not where it came."""
        if self._target is not None:
            self._target[...] = self.recv.reshape(self._target.shape)


def _in_place(caller: Any, name: str, writes: bool) -> Buffers:
    array = _as_array(caller, name)
    type_ = _type_of(array, name)
    if writes:
        _check_output(array, name)
    if _is_plain(array):
        return Buffers(array, array, type_, caller, None)
    plain = _plain_copy(array)
    return Buffers(plain, plain, type_, caller, array if writes else None)


def for_allreduce(array: Any, out: Any) -> Buffers:
    if out is None or out is array:
        return _in_place(array, "array", True)
    source, target = _as_array(array, "array"), _as_array(out, "out")
    type_ = _type_of(source, "array")
    if _type_of(target, "out") != type_ or target.shape != source.shape:
        raise InvalidArgumentError(
            "array is %s of shape %s but out is %s of shape %s"
            % (source.dtype, source.shape, target.dtype, target.shape)
        )
    _check_output(target, "out")
    send = source if _is_plain(source) else _plain_copy(source)
    if _is_plain(target) and not _overlap(send, target):
        return Buffers(send, target, type_, out, None)
    recv = numpy.empty(target.shape, target.dtype.newbyteorder("="))
    return Buffers(send, recv, type_, out, target)


def _overlap(a: numpy.ndarray, b: numpy.ndarray) -> bool:
    """Both plain: whether they share some bytes without being the same place."""
    begin_a, begin_b = address(a), address(b)
    return begin_a != begin_b and begin_a < begin_b + b.nbytes and begin_b < begin_a + a.nbytes


def _meet(a: numpy.ndarray, b: numpy.ndarray) -> bool:
    """Both plain: whether they share some bytes."""
    return address(a) < address(b) + b.nbytes and address(b) < address(a) + a.nbytes


def for_parts(array: Any, out: Any, shape: Tuple[int, ...]) -> Buffers:
    """From an array into one of another shape, which is new where out is None. count is that of array."""
    source = _as_array(array, "array")
    type_ = _type_of(source, "array")
    send = source if _is_plain(source) else _plain_copy(source)
    if out is None:
        recv = numpy.empty(shape, send.dtype)
        buffers = Buffers(send, recv, type_, recv, None)
    else:
        target = _as_array(out, "out")
        if _type_of(target, "out") != type_ or target.shape != shape:
            raise InvalidArgumentError("out is %s of shape %s; %s of shape %s is needed"
                                       % (target.dtype, target.shape, source.dtype, shape))
        _check_output(target, "out")
        fits = _is_plain(target) and not _meet(send, target)
        recv = target if fits else numpy.empty(shape, send.dtype)
        buffers = Buffers(send, recv, type_, out, None if fits else target)
    buffers.count = send.size
    return buffers


def to_send(array: Any) -> Buffers:
    """What only goes away."""
    source = _as_array(array, "array")
    type_ = _type_of(source, "array")
    send = source if _is_plain(source) else _plain_copy(source)
    return Buffers(send, send, type_, None, None)


def to_receive(out: Any) -> Buffers:
    """What only comes."""
    return _in_place(out, "out", True)


class Incoming(Buffers):
    """A message under way to this rank; what came is written into `came` when it has ended."""

    __slots__ = ("message", "came")

    def __init__(self, target: Any, message: Any, came: Any):
        plain = _in_place(target, "array", True)
        super().__init__(plain.send, plain.recv, plain.type, came, plain._target)
        self.message, self.came = message, came

    def finish(self) -> None:
        super().finish()
        self.came.source, self.came.tag, self.came.count = self.message.source, self.message.tag, self.message.count


def shape_of(array: Any) -> Tuple[int, ...]:
    return _as_array(array, "array").shape


def for_broadcast(array: Any, is_root: bool) -> Buffers:
    return _in_place(array, "array", not is_root)


def parse_shape(shape: Any, dtype: Any) -> Tuple[Tuple[int, ...], numpy.dtype]:
    whole = numpy.dtype(dtype)
    dimensions = (shape,) if isinstance(shape, (int, numpy.integer)) else tuple(shape)
    if whole.name not in _types:
        raise ArgumentTypeError("type %s is none of %s" % (whole, ", ".join(_types)))
    if any(d < 0 for d in dimensions):
        raise InvalidArgumentError("shape %s has a negative length" % (dimensions,))
    return tuple(int(d) for d in dimensions), whole.newbyteorder("=")
