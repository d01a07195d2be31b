# SPDX-License-Identifier: Apache-2.0
"""Finds libringred, checks that it is the one we know, and declares its functions to ctypes.

The functions release Python's global lock while they run (ctypes.CDLL does that).
"""
import ctypes
import os
from typing import Any, Callable, Dict

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
        ("interrupt", ctypes.c_void_p),
        ("interrupt_context", ctypes.c_void_p),
        ("allgather", ctypes.c_void_p),
        ("allgather_context", ctypes.c_void_p),
        ("store", ctypes.c_void_p),
    ]


_status, _pointer, _count = ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t
_out = ctypes.POINTER(ctypes.c_void_p)
_error = ctypes.POINTER(CError)

# name: (result, arguments)
_functions: Dict[str, Any] = {
    "error_init": (None, [_error]),
    "status_text": (ctypes.c_char_p, [_status]),
    "unique_id_create": (_status, [ctypes.POINTER(CUniqueId), _error]),
    "config_init": (None, [ctypes.POINTER(CConfig), ctypes.c_size_t]),
    "comm_create": (_status, [ctypes.POINTER(CConfig), _out, _error]),
    "comm_destroy": (_status, [_pointer]),
    "comm_abort": (_status, [_pointer]),
    "comm_rank": (_status, [_pointer]),
    "comm_size": (_status, [_pointer]),
    "comm_local_rank": (_status, [_pointer]),
    "comm_local_size": (_status, [_pointer]),
    "comm_error": (_status, [_pointer, _error]),
    "comm_describe": (
        ctypes.c_int64,
        [_pointer, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, _count],
    ),
    "alloc": (_status, [_pointer, _count, _out]),
    "free": (_status, [_pointer]),
    "allreduce_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _status, _out]),
    "message_init": (None, [ctypes.POINTER(CMessage), ctypes.c_size_t]),
    "send_start": (_status, [_pointer, _pointer, _count, _status, _status, _status, _out]),
    "recv_start": (_status, [_pointer, _pointer, _count, _status, _status, _status, ctypes.POINTER(CMessage), _out]),
    "allgatherv_start": (_status, [_pointer, _pointer, _count, _pointer, _pointer, _pointer, _status, _out]),
    "comm_split": (_status, [_pointer, _status, _status, _out]),
    "comm_group": (_status, [_pointer, _pointer, _status, _out]),
    "reduce_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _status, _status, _out]),
    "reduce_scatter_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _status, _out]),
    "allgather_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _out]),
    "gather_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _status, _out]),
    "scatter_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _status, _out]),
    "alltoall_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _out]),
    "broadcast_start": (_status, [_pointer, _pointer, _pointer, _count, _status, _status, _out]),
    "barrier_start": (_status, [_pointer, _out]),
    "wait": (_status, [_pointer, ctypes.c_int64]),
    "test": (_status, [_pointer]),
    "describe": (ctypes.c_int64, [ctypes.c_char_p, _count]),
    "version": (ctypes.c_char_p, []),
    "abi_version": (_status, []),
}


def _open() -> ctypes.CDLL:
    """RINGRED_LIBRARY, else the copy in this package, else what the system's loader finds."""
    asked = os.environ.get("RINGRED_LIBRARY")
    package = os.path.dirname(os.path.abspath(__file__))
    bundled = os.path.join(os.path.dirname(package), ".ringred.mesonpy.libs", SONAME)  # where a wheel has it
    if not os.path.exists(bundled):
        bundled = os.path.join(package, SONAME)
    if asked:
        path, where = asked, "named by RINGRED_LIBRARY"
    elif os.path.exists(bundled):
        path, where = bundled, "inside this package"
    else:
        path, where = SONAME, "found by the system's loader"
    try:
        return ctypes.CDLL(path)
    except OSError as failure:
        raise ImportError(
            "ringred needs the library %s (%s): %s. Install libringred, or set RINGRED_LIBRARY to "
            "the path of %s." % (path, where, failure, SONAME)
        ) from None


class _Library:
    """The declared functions, without their prefix."""

    def __init__(self) -> None:
        library = _open()
        self.path = str(library._name)
        for name, (result, arguments) in _functions.items():
            try:
                function = getattr(library, "ringred_" + name)
            except AttributeError:
                raise ImportError(
                    "%s has no function ringred_%s: it is another version than this package needs"
                    % (library._name, name)
                ) from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        found = self.abi_version()
        if found != ABI:
            raise ImportError(
                "%s has ABI %d; this package needs ABI %d" % (library._name, found, ABI)
            )

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers only
        raise AttributeError(name)


lib = _Library()
