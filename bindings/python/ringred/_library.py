# SPDX-License-Identifier: Apache-2.0
"""Finds libringred, checks that it is the one we know, and declares its functions to ctypes.

The functions release Python's global lock while they run (ctypes.CDLL does that).
"""
import ctypes
import os
from typing import Any, Callable, Dict, List, Tuple

ABI = 0
SONAME = "libringred.so.%d" % ABI


class CError(ctypes.Structure):
    """ringred_error"""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("code", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("system", ctypes.c_int32),
        ("transport", ctypes.c_char * 16),
        ("text", ctypes.c_char * 488),
    ]


class CUniqueId(ctypes.Structure):
    """ringred_unique_id"""

    _fields_ = [("bytes", ctypes.c_ubyte * 256)]


class CMessage(ctypes.Structure):
    """ringred_message"""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("source", ctypes.c_int32),
        ("tag", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("count", ctypes.c_size_t),
    ]


LogFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)
OperatorFunction = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
InterruptFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

AllgatherFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
SetFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
GetFunction = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
)


class CStore(ctypes.Structure):
    """ringred_store"""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("set", SetFunction),
        ("get", GetFunction),
    ]


class CConfig(ctypes.Structure):
    """ringred_config"""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("root", ctypes.c_char_p),
        ("id", ctypes.POINTER(CUniqueId)),
        ("key", ctypes.c_char_p),
        ("key_bytes", ctypes.c_size_t),
        ("timeout_ns", ctypes.c_int64),
        ("settings", ctypes.POINTER(ctypes.c_char_p)),
        ("log", LogFunction),
        ("log_context", ctypes.c_void_p),
        ("choose", ctypes.c_void_p),
        ("choose_context", ctypes.c_void_p),
        ("interrupt", InterruptFunction),
        ("interrupt_context", ctypes.c_void_p),
        ("allgather", AllgatherFunction),
        ("allgather_context", ctypes.c_void_p),
        ("store", ctypes.POINTER(CStore)),
    ]


_status, _pointer, _count = ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t
_size = ctypes.c_int64
_out = ctypes.POINTER(ctypes.c_void_p)
_error = ctypes.POINTER(CError)
_text = ctypes.c_char_p

# send, recv, count, type
_vector = [_pointer, _pointer, _count, _status]
# send[], recv[], counts[], types[], n
_list = [_pointer, _pointer, _pointer, _pointer, _count]

# name: what a collective takes between the communicator and the request
_collectives: Dict[str, List[Any]] = {
    "allreduce": _vector + [_status],
    "reduce": _vector + [_status, _status],
    "reduce_scatter": _vector + [_status],
    "broadcast": _vector + [_status],
    "allgather": _vector,
    "gather": _vector + [_status],
    "scatter": _vector + [_status],
    "alltoall": _vector,
    "allgatherv": [_pointer, _count, _pointer, _pointer, _pointer, _status],
    "gatherv": [_pointer, _count, _pointer, _pointer, _pointer, _status, _status],
    "scatterv": [_pointer, _pointer, _pointer, _pointer, _count, _status, _status],
    "reduce_scatterv": [_pointer, _pointer, _pointer, _status, _status],
    "alltoallv": [_pointer] * 6 + [_status],
    "allreduce_list": _list + [_status],
    "reduce_list": _list + [_status, _status],
    "broadcast_list": _list + [_status],
    "barrier": [],
    "send": [_pointer, _count, _status, _status, _status],
    "recv": [_pointer, _count, _status, _status, _status, ctypes.POINTER(CMessage)],
}

# name: (result, arguments)
_functions: Dict[str, Any] = {
    "error_init": (None, [_error]),
    "status_text": (_text, [_status]),
    "unique_id_create": (_status, [ctypes.POINTER(CUniqueId), _error]),
    "config_init": (None, [ctypes.POINTER(CConfig), _count]),
    "store_init": (None, [ctypes.POINTER(CStore), _count]),
    "message_init": (None, [ctypes.POINTER(CMessage), _count]),
    "comm_create": (_status, [ctypes.POINTER(CConfig), _out, _error]),
    "comm_split": (_status, [_pointer, _status, _status, _out]),
    "comm_group": (_status, [_pointer, _pointer, _status, _out]),
    "comm_shrink": (_status, [_pointer, _size, _out, ctypes.POINTER(_status), _error]),
    "comm_grow": (_status, [_pointer, ctypes.POINTER(CUniqueId), _status, _size, _out, _error]),
    "comm_destroy": (_status, [_pointer]),
    "comm_abort": (_status, [_pointer]),
    "comm_rank": (_status, [_pointer]),
    "comm_size": (_status, [_pointer]),
    "comm_local_rank": (_status, [_pointer]),
    "comm_local_size": (_status, [_pointer]),
    "comm_error": (_status, [_pointer, _error]),
    "comm_dump": (_size, [_pointer, _text, _count]),
    "comm_describe": (_size, [_pointer, _text, ctypes.c_uint64, _text, _count]),
    "op_create": (_status, [_pointer, OperatorFunction, _pointer, _count, ctypes.POINTER(_status)]),
    "alloc": (_status, [_pointer, _count, _out]),
    "free": (_status, [_pointer]),
    "wait": (_status, [_pointer, ctypes.c_int64]),
    "test": (_status, [_pointer]),
    "comm_descriptor": (_status, [_pointer]),
    "poll": (_status, [_pointer]),
    "describe": (_size, [_text, _count]),
    "simulate": (_size, [_text, _text, _count]),
    "explain": (_size, [_text, ctypes.POINTER(_text), _text, _count]),
    "version": (_text, []),
    "abi_version": (_status, []),
}
_functions.update({n + "_start": (_status, [_pointer, *a, _out]) for n, a in _collectives.items()})


def _candidates() -> Tuple[str, str]:
    """The library's path, and in words who says so: the variable, this wheel, or the system."""
    asked = os.environ.get("RINGRED_LIBRARY")
    if asked:
        return asked, "named by RINGRED_LIBRARY"
    package = os.path.dirname(os.path.abspath(__file__))
    for place in (package, os.path.join(os.path.dirname(package), ".ringred.mesonpy.libs")):
        bundled = os.path.join(place, SONAME)
        if os.path.exists(bundled):
            return bundled, "inside this package"
    return SONAME, "found by the system's loader"


def _open(path: str, where: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as failure:
        raise ImportError(
            "ringred needs the library %s (%s): %s. Install libringred, or set RINGRED_LIBRARY to "
            "the path of %s." % (path, where, failure, SONAME)
        ) from None


def _path_of(function: Any, otherwise: str) -> str:
    """The file that a function was loaded from: the loader alone knows where it found a bare name."""
    class Information(ctypes.Structure):      # Dl_info
        _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                    ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]

    try:
        find = ctypes.CDLL(None).dladdr
    except AttributeError:
        return otherwise
    found = Information()
    at = ctypes.cast(function, ctypes.c_void_p)
    return os.fsdecode(found.file) if find(at, ctypes.byref(found)) and found.file else otherwise


class _Library:
    """The declared functions, without their prefix."""

    def __init__(self) -> None:
        path, self.where = _candidates()
        library = _open(path, self.where)
        self.abi_version = self._declare(library, "abi_version")
        found = self.abi_version()
        if found != ABI:                      # before all else: it explains what may be missing
            raise ImportError(
                "%s has ABI %d; this package needs ABI %d" % (library._name, found, ABI)
            )
        for name in _functions:
            setattr(self, name, self._declare(library, name))
        self.path = _path_of(self.version, path)

    @staticmethod
    def _declare(library: ctypes.CDLL, name: str) -> Any:
        function = getattr(library, "ringred_" + name, None)
        if function is None:
            raise ImportError(
                "%s has no function ringred_%s: it is another version than this package needs"
                % (library._name, name)
            )
        function.restype, function.argtypes = _functions[name]
        return function

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers only
        raise AttributeError(name)


lib = _Library()
