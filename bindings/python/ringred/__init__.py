# SPDX-License-Identifier: Apache-2.0
"""Collective communication between processes, for arrays and tensors.

    import ringred
    with ringred.init() as comm:            # under ringred-run, torchrun, mpirun, srun, ...
        comm.allreduce(gradient, op="avg")  # in place; the same bits on every rank

Arrays of numpy, torch tensors of the CPU, and anything that has DLPack or the buffer protocol. What is contiguous is
used where it lies; the rest goes through a copy and comes out right.
"""
from ._communicator import ANY_SOURCE, Communicator
from ._errors import (
    AbortedError, ArgumentTypeError, AuthenticationError, BusyError, ConfigError, Error, ForkedError,
    InternalError, InterruptedError, InvalidArgumentError, LimitError, MismatchError, OutOfMemoryError, PartitionError,
    PeerLostError, SettingError, SystemCallError, TimeoutError, UnsupportedError, VersionError, WireError,
)
from ._init import describe, init, unique_id
from ._library import lib as _lib
from ._operators import Operator
from ._starts import Group, Message
from ._work import Work

__version__ = _lib.version().decode()

__all__ = [
    "ANY_SOURCE", "AbortedError", "ArgumentTypeError", "AuthenticationError", "BusyError", "Communicator",
    "ConfigError", "Error", "ForkedError", "Group", "InternalError", "InterruptedError", "InvalidArgumentError",
    "LimitError", "Message", "MismatchError", "Operator", "OutOfMemoryError", "PartitionError", "PeerLostError",
    "SettingError", "SystemCallError", "TimeoutError", "UnsupportedError", "VersionError", "WireError", "Work", "describe", "init",
    "unique_id",
]
