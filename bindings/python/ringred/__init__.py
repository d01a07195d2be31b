# SPDX-License-Identifier: Apache-2.0
"""Collective communication between processes, for numpy arrays.

    import ringred
    with ringred.init() as comm:            # under ringred-run, torchrun, ...
        comm.allreduce(gradient, op="avg")  # in place; the same bits on every rank

Arrays of numpy's numbers, and of ml_dtypes' bfloat16 and float8. Contiguous ones are used where they lie; others go
through a copy.
"""
from ._communicator import ANY_SOURCE, Communicator, Message, Work, describe, empty, init, unique_id
from ._errors import (
    AbortedError, ArgumentTypeError, AuthenticationError, BusyError, ConfigError, Error, ForkedError,
    InternalError, InvalidArgumentError, LimitError, MismatchError, OutOfMemoryError, PeerLostError,
    SettingError, SystemCallError, TimeoutError, UnsupportedError, VersionError, WireError,
)
from ._library import lib as _lib

__version__ = _lib.version().decode()

__all__ = [
    "ANY_SOURCE", "AbortedError", "ArgumentTypeError", "AuthenticationError", "BusyError", "Communicator",
    "ConfigError", "Error", "ForkedError", "InternalError", "InvalidArgumentError", "LimitError",
    "Message", "MismatchError", "OutOfMemoryError", "PeerLostError", "SettingError", "SystemCallError",
    "TimeoutError", "UnsupportedError", "VersionError", "WireError", "Work", "describe", "empty",
    "init", "unique_id",
]
