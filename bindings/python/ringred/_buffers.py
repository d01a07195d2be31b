# SPDX-License-Identifier: Apache-2.0
"""What of a caller's object the library may touch.

The library sees plain memory: native numbers, one after the other, in the order of the indices. Memory
that already is that is used where it lies. What lies otherwise (strided, transposed, reversed, not
aligned, its bytes in the other order) goes through a plain copy, whose content is written back where it is
an output: what lies in memory differently on each rank still means the same. Whatever cannot be right is
refused.

Objects are asked for their memory by the buffer protocol (PEP 3118), then by DLPack, then by numpy's
__array_interface__; torch's tensors say themselves where they are. None of these packages is needed.
"""
import array as _array
import ctypes
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _dlpack, _strided, _types
from ._errors import ArgumentTypeError, InvalidArgumentError


class Memory:
    """An object's memory as it lies. `holder` keeps it there: nothing may free, move or resize it."""

    __slots__ = ("name", "owner", "holder", "address", "shape", "strides", "itemsize", "type", "type_text",
                 "read_only", "changed", "swapped")

    def __init__(self, name: str, owner: Any, holder: Any, address: int, shape: Tuple[int, ...],
                 strides: Tuple[int, ...], itemsize: int, type_: Optional[_types.Type], type_text: str,
                 read_only: bool, changed: Optional[Callable[[], None]] = None):
        self.name, self.owner, self.holder = name, owner, holder
        self.address, self.shape, self.strides, self.itemsize = address, shape, strides, itemsize
        self.type: Any = type_                # None: there is none, until dtype= says which
        self.type_text, self.read_only = type_text, read_only
        self.changed = changed                # to be called when the content is another
        self.swapped = False                  # the bytes of each number are in the other order

    @property
    def count(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def nbytes(self) -> int:
        return self.count * self.itemsize

    @property
    def is_dense(self) -> bool:
        return _strided.is_dense(self.shape, self.strides, self.itemsize)

    @property
    def is_plain(self) -> bool:
        alignment = self.type.alignment if self.type else 1
        return self.is_dense and not self.swapped and self.address % alignment == 0

    def places(self, dense: int) -> Tuple[_strided.Layout, _strided.Layout, Tuple[int, ...], int]:
        """What _strided.move takes: this memory, and a plain copy at address `dense`."""
        here, shape, size = self.strides, self.shape, self.itemsize
        if not self.swapped:
            return (self.address, here), (dense, _strided.dense_strides(shape, size)), shape, size
        number = size // 2 if self.type is not None and self.type.kind == "c" else size
        shape = (*shape, size // number, number)  # its bytes, from the last to the first
        return ((self.address + number - 1, (*here, number, -1)), (dense, _strided.dense_strides(shape, 1)), shape, 1)

    def extent(self) -> Tuple[int, int]:
        return _strided.extent(self.address, self.shape, self.strides, self.itemsize)

    def check_output(self) -> None:
        if self.read_only:
            raise InvalidArgumentError("%s is read-only, and the result is written to it" % self.name)
        if not self.is_dense and _strided.meets_itself(self.shape, self.strides, self.itemsize):
            raise InvalidArgumentError(
                "several elements of %s lie in the same place, so a result cannot be written to it" % self.name
            )


# ---- objects ----

def _refuse(name: str, what: Any, why: str) -> ArgumentTypeError:
    return ArgumentTypeError("%s is a %s; %s" % (name, type(what).__name__, why))


def _check_numpy(what: Any, name: str) -> None:
    numpy: Any = sys.modules.get("numpy")
    ndarray: Any = getattr(numpy, "ndarray", ())
    if isinstance(what, ndarray):
        masked: Any = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())  # asking numpy for it would import it
        if isinstance(what, masked):
            raise ArgumentTypeError("%s is a masked array; pass its data, or fill it first" % name)
        if what.dtype.hasobject:
            raise ArgumentTypeError("%s has elements of type %s, which are Python's objects" % (name, what.dtype))


def _from_view(what: Any, view: memoryview, name: str) -> Memory:
    letters = view.format or "B"
    if view.suboffsets and any(s >= 0 for s in view.suboffsets):
        raise _refuse(name, what, "its rows are found by pointers, which cannot be used")
    if "O" in re.sub(":[^:]*:", "", letters):
        raise ArgumentTypeError("%s has elements of format %r, which are Python's objects" % (name, letters))
    shape = view.shape if view.shape is not None else (view.nbytes // view.itemsize,)
    strides = view.strides if view.strides else _strided.dense_strides(shape, view.itemsize)
    memory = Memory(name, what, view, _strided.address_of(view), shape, strides, view.itemsize,
                    _types.from_format(letters, view.itemsize), "format %r" % letters, view.readonly)
    memory.swapped = _types.is_swapped(letters, view.itemsize)
    return memory


def _from_dlpack(what: Any, name: str) -> Memory:
    e = _dlpack.read(what, name)
    return Memory(name, what, e.holder, e.address, e.shape, e.strides, e.itemsize, e.type, e.type_text, e.read_only)


def _from_interface(what: Any, interface: Dict[str, Any], name: str) -> Memory:
    """numpy's own description, for elements that the buffer protocol has no letter for."""
    text, shape, data = interface["typestr"], tuple(interface["shape"]), interface.get("data")
    if not isinstance(data, tuple) or interface.get("mask") is not None:
        raise _refuse(name, what, "its __array_interface__ has a mask, or no address")
    described = re.fullmatch(r"([<>|=])([?a-zA-Z])(\d+)(\[.*\])?", text)
    if described is None or described[2] in "OU":
        raise ArgumentTypeError("%s has elements of type %s, which are no plain numbers" % (name, text))
    itemsize = int(described[3])
    strides = interface.get("strides") or _strided.dense_strides(shape, itemsize)
    called = getattr(getattr(what, "dtype", None), "name", None)  # bfloat16 of ml_dtypes is "<V2" here
    found = _types.by_name.get(called) if isinstance(called, str) else None
    kind = {"b": "?", "i": "i", "u": "u", "f": "f", "c": "c"}.get(text[1], "")
    if found is None or found.itemsize != itemsize:
        found = _types.by_kind.get((kind, itemsize))
    memory = Memory(name, what, (what, interface), data[0], shape, tuple(strides), itemsize, found, called or text,
                    bool(data[1]))
    memory.swapped = itemsize > 1 and described[1] == ">"
    return memory


def _from_torch(what: Any, torch: Any, name: str) -> Memory:
    """A tensor says all of it without a capsule, for types, too, that DLPack or this torch's has not."""
    if what.device.type != "cpu":
        raise ArgumentTypeError(
            "%s is in the memory of a device (%s); copy it to the CPU first" % (name, what.device)
        )
    if what.layout is not torch.strided:
        raise ArgumentTypeError("%s is a tensor of layout %s; make it dense first" % (name, what.layout))
    if what.is_conj() or what.is_neg():
        raise ArgumentTypeError("%s is a conjugated or negated view; call resolve_conj() and resolve_neg()" % name)
    itemsize = what.element_size()
    text = str(what.dtype).rpartition(".")[2]

    def changed() -> None:                    # autograd then notices that it had saved another content
        increment = getattr(getattr(torch, "autograd", None), "graph", None)
        increment = getattr(increment, "increment_version", None)
        if increment is not None and not what.is_inference():
            increment(what)

    memory = Memory(name, what, what, what.data_ptr(), tuple(what.shape),
                    tuple(s * itemsize for s in what.stride()), itemsize, _types.by_name.get(text), text, False,
                    changed)
    memory.holder = (what, what.untyped_storage() if hasattr(what, "untyped_storage") else None)
    return memory


def _check_grad(memory: Memory, torch: Any) -> None:
    what = memory.owner
    if getattr(what, "requires_grad", False) and torch.is_grad_enabled():
        raise InvalidArgumentError(
            "%s requires a gradient, and the result is written to it: pass x.detach(), or call under "
            "torch.no_grad()" % memory.name
        )


def _find(what: Any, name: str) -> Memory:
    torch: Any = sys.modules.get("torch")
    tensor: Any = getattr(torch, "Tensor", ())
    if isinstance(what, tensor):
        return _from_torch(what, torch, name)
    _check_numpy(what, name)
    try:
        view = memoryview(what)
    except (TypeError, ValueError, BufferError):
        view = None
    if view is not None:
        return _from_view(what, view, name)
    interface = getattr(what, "__array_interface__", None)
    if hasattr(what, "__dlpack__"):
        try:
            return _from_dlpack(what, name)
        except ArgumentTypeError:
            if interface is None:
                raise
    if isinstance(interface, dict):
        return _from_interface(what, interface, name)
    if hasattr(what, "__cuda_array_interface__"):
        raise ArgumentTypeError("%s is in the memory of a device (CUDA); copy it to the CPU first" % name)
    raise _refuse(name, what, "a numpy array is needed, or an object with a buffer of numbers (the buffer "
                  "protocol, DLPack)")


# ---- types ----

def _retype(memory: Memory, wanted: _types.Type) -> Memory:
    """dtype= says what elements are that their exporter cannot name: bits, or bytes."""
    if memory.type is wanted:
        return memory
    opaque = memory.type is None or memory.type.kind in "ux"
    if opaque and memory.itemsize == wanted.itemsize:
        pass
    elif wanted is _types.BYTES and memory.is_dense:
        memory.shape, memory.strides, memory.itemsize = (memory.nbytes,), (1,), 1
    elif opaque and memory.itemsize == 1 and memory.is_dense and memory.nbytes % wanted.itemsize == 0:
        memory.shape, memory.strides = (memory.nbytes // wanted.itemsize,), (wanted.itemsize,)
        memory.itemsize = wanted.itemsize
    else:
        raise InvalidArgumentError(
            "%s has elements of %s, which dtype %s does not fit: it names what unsigned numbers or bytes of "
            "that size stand for" % (memory.name, memory.type_text, wanted.name)
        )
    memory.type = wanted
    return memory


def read(what: Any, name: str, dtype: Any = None) -> Memory:
    """The memory of an object, and what its elements are."""
    memory = _find(what, name)
    if dtype is not None:
        return _retype(memory, _types.named(dtype))
    if memory.type is None:
        raise ArgumentTypeError(
            "%s has elements of %s, which there is no type for; there are %s (dtype=)"
            % (name, memory.type_text, ", ".join(_types.by_name))
        )
    memory.type_text = memory.type.name
    return memory


# ---- one call ----

def _new_plain(nbytes: int) -> Tuple[Any, int]:
    """Plain memory, and its address; what is returned keeps it."""
    place = ctypes.c_char.from_buffer(bytearray(max(nbytes, 16)))
    return place, ctypes.addressof(place)


class Call:
    """The memory of one call. It holds references to all of it until the call has ended."""

    __slots__ = ("held", "back", "result", "_changed")

    def __init__(self) -> None:
        self.held: List[Any] = []
        self.back: List[Tuple[_strided.Layout, _strided.Layout, Tuple[int, ...], int]] = []
        self.result: Any = None
        self._changed: List[Callable[[], None]] = []

    def source(self, memory: Memory) -> int:
        """Where what is sent lies one after the other."""
        self.held.append(memory)
        return memory.address if memory.is_plain else self._copy(memory)

    def _copy(self, memory: Memory) -> int:
        place, address = _new_plain(memory.nbytes)
        self.held.append(place)
        here, dense, shape, itemsize = memory.places(address)
        _strided.move(dense, here, shape, itemsize)
        return address

    def target(self, memory: Memory) -> int:
        """Where the result comes; what the library leaves there stays as it is."""
        memory.check_output()
        torch = sys.modules.get("torch")
        if torch is not None:
            _check_grad(memory, torch)
        self.held.append(memory)
        if memory.changed is not None:
            self._changed.append(memory.changed)
        if memory.is_plain:
            return memory.address
        address = self._copy(memory)
        self.back.append(memory.places(address))
        return address

    def apart(self, source: Memory, begin: int, end: int, in_place: int = -1) -> int:
        """As source(), but away from the bytes that the result comes to, unless it begins where it may."""
        address = self.source(source)
        if address == in_place or address >= end or begin >= address + source.nbytes:
            return address
        return self._copy(source)

    def finish(self) -> None:
        """Writes results where the caller wants them, if that is not where they came."""
        for to, frm, shape, itemsize in self.back:
            _strided.move(to, frm, shape, itemsize)
        for changed in self._changed:
            changed()
        del self.back[:], self.held[:], self._changed[:]


def disjoint(memories: List[Memory]) -> None:
    """Refuses outputs that lie in each other's places."""
    extents = sorted((m.extent() + (m.name,) for m in memories if m.count), key=lambda e: e[:2])
    for a, b in zip(extents, extents[1:]):
        if b[0] < a[1]:
            raise InvalidArgumentError("%s and %s overlap or are interleaved, and results are written to both"
                                       % (a[2], b[2]))


def new_like(memory: Memory, shape: Tuple[int, ...]) -> Any:
    """A new object of the kind that `memory` is of, for a result of this shape."""
    what: Any = memory.owner
    count = 1
    for length in shape:
        count *= length
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    tensor: Any = getattr(torch, "Tensor", ())
    if isinstance(what, tensor):
        return torch.empty(shape, dtype=what.dtype)
    ndarray: Any = getattr(numpy, "ndarray", ())
    if isinstance(what, ndarray):
        return numpy.empty(shape, what.dtype.newbyteorder("="))
    if isinstance(what, _array.array):
        return _array.array(what.typecode, bytes(count * what.itemsize))
    plain = memoryview(bytearray(count * memory.itemsize))
    if memory.type is None or memory.type.kind == "c":
        return plain
    return plain.cast(memory.type.code, shape) if count and shape else plain.cast(memory.type.code)


# ---- numpy's arrays, the common case, with nothing made that is not needed ----

_ndarray: Any = None
_dtypes: Dict[Any, Tuple[int, int]] = {}      # numpy's dtype: the type's number, its alignment
_from_buffer, _addressof = ctypes.c_char.from_buffer, ctypes.addressof


def _learn_numpy() -> bool:
    global _ndarray
    numpy = sys.modules.get("numpy")
    if _ndarray is not None or numpy is None or not hasattr(numpy, "ndarray"):
        return False
    for t in _types.TYPES:
        if t.kind in "iufc?":
            _dtypes[numpy.dtype(t.name)] = t.number, t.alignment
    _ndarray = numpy.ndarray
    return True


def quick(what: Any) -> Optional[Tuple[Any, int, int]]:
    """(holder, address, type) of a numpy array that is plain and writable; None: ask read()."""
    if type(what) is not _ndarray:
        if not _learn_numpy() or type(what) is not _ndarray:
            return None
    try:
        number, alignment = _dtypes[what.dtype]
        holder = _from_buffer(what)           # refuses what is read-only or not dense
    except (KeyError, TypeError, ValueError, BufferError):
        return None
    address = _addressof(holder)
    return None if address % alignment else (holder, address, number)
