# SPDX-License-Identifier: Apache-2.0
"""Memory by DLPack: https://dmlc.github.io/dlpack/latest/c_api.html, versions 0 and 1.

A capsule named "dltensor" or "dltensor_versioned" is ours once it is renamed, and its deleter is then
called when nobody needs the memory any more.
"""
import ctypes
import weakref
from typing import Any, NamedTuple, Optional, Tuple

from . import _strided, _types
from ._errors import ArgumentTypeError, InvalidArgumentError

CPU, CUDA_HOST = 1, 3                         # kDLCPU, kDLCUDAHost: plain memory both
_devices = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA managed", 14: "oneAPI"}
_READ_ONLY = 1


class _Tensor(ctypes.Structure):              # DLTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # it may touch Python's objects: with the lock


class _Managed(ctypes.Structure):             # DLManagedTensor
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):           # DLManagedTensorVersioned
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_USED, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"  # a capsule keeps a pointer to its name

# codes of DLDataType: kDLInt, ..., kDLBool, and those of float8 that the library has
_kinds = {0: "i", 1: "u", 2: "f", 4: "b", 5: "c", 6: "?"}
_float8 = {10: "float8_e4m3fn", 12: "float8_e5m2"}


class Export(NamedTuple):
    holder: Any                               # while it lives, the memory does
    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]                  # bytes
    itemsize: int
    type: Optional[_types.Type]
    type_text: str
    read_only: bool


class _Holder:
    """Calls the deleter when it is gone."""

    __slots__ = ("__weakref__",)


def _delete(deleter: int, managed: int) -> None:
    if deleter:
        _Deleter(deleter)(managed)


def _capsule_of(what: Any, name: str) -> Any:
    try:
        device = int(what.__dlpack_device__()[0])
    except AttributeError:
        device = CPU                          # old exporters; the tensor itself says it again
    _check_device(device, name)
    try:
        try:
            return what.__dlpack__(max_version=(1, 0), copy=False)
        except TypeError:                     # an exporter that knows only the old form
            return what.__dlpack__()
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as failure:
        raise ArgumentTypeError("%s cannot give its memory by DLPack: %s" % (name, failure)) from None


def _check_device(device: int, name: str) -> None:
    if device not in (CPU, CUDA_HOST):
        raise ArgumentTypeError(
            "%s is in the memory of a device (%s); copy it to the CPU first"
            % (name, _devices.get(device, "DLPack type %d" % device))
        )


def _type_of(tensor: _Tensor) -> Tuple[Optional[_types.Type], str, int]:
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    text = "DLPack code %d of %d bits x %d" % (tensor.code, tensor.bits, tensor.lanes)
    if tensor.lanes != 1 or tensor.bits % 8:
        return None, text, itemsize
    if tensor.code in _float8:
        return _types.by_name[_float8[tensor.code]], text, itemsize
    return _types.by_kind.get((_kinds.get(tensor.code, ""), itemsize)), text, itemsize


def _take(capsule: Any, name: str) -> Tuple[_Holder, _Tensor, bool]:
    """The capsule becomes ours: the tensor, what keeps it, and whether it is read-only."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _pointer_of(capsule, b"dltensor_versioned")
        newer = _Versioned.from_address(managed)
        if newer.major > 1:                   # not taken: the capsule's own destructor frees it
            raise InvalidArgumentError("%s comes by DLPack %d, of which 1 is known" % (name, newer.major))
        _rename(capsule, _USED_VERSIONED)
        deleter, tensor, read_only = newer.deleter, newer.tensor, bool(newer.flags & _READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        managed = _pointer_of(capsule, b"dltensor")
        _rename(capsule, _USED)
        older = _Managed.from_address(managed)
        deleter, tensor, read_only = older.deleter, older.tensor, False
    else:
        raise ArgumentTypeError("%s.__dlpack__() gave no capsule of DLPack, or a used one" % name)
    holder = _Holder()
    weakref.finalize(holder, _delete, deleter, managed).atexit = False
    return holder, tensor, read_only


def read(what: Any, name: str) -> Export:
    """The memory of an object with __dlpack__, never a copy of it."""
    holder, tensor, read_only = _take(_capsule_of(what, name), name)
    _check_device(tensor.device_type, name)
    type_, text, itemsize = _type_of(tensor)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim))
    else:
        strides = _strided.dense_strides(shape, itemsize)
    address = (tensor.data or 0) + tensor.byte_offset
    return Export(holder, address, shape, strides, itemsize, type_, text, read_only)
