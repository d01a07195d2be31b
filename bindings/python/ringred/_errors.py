# SPDX-License-Identifier: Apache-2.0
"""Statuses as exception classes. Where Python has a class of that meaning, ours is one of it too."""
import builtins
import ctypes
from typing import Dict, Optional, Tuple, Type

from ._library import CError, lib

OK, PENDING, EBUSY, ETIMEOUT, EINTERRUPTED = 0, 1, -104, -302, -305


class Error(RuntimeError):
    """A failure that libringred reported.

    code: the status; rank: the rank at fault, or -1; text: one sentence; system: errno, or 0.
    """

    code = 0

    def __init__(self, text: str, rank: int = -1, code: Optional[int] = None, system: int = 0):
        super().__init__(text)
        self.text = text
        self.rank = rank
        self.system = system
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.text


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong. Nothing has changed."""

    code = -101


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument is of a type that cannot be used. Nothing has changed."""


class SettingError(Error, ValueError):
    """A setting is unknown, out of range or contradicts another."""

    code = -102


class UnsupportedError(Error, NotImplementedError):
    """Legal, but not in this build or on this machine."""

    code = -103


class BusyError(Error):
    """Another thread is starting a collective on this communicator."""

    code = -104


class ForkedError(Error):
    """This process is a fork of the one that made the communicator."""

    code = -105


class OutOfMemoryError(Error, MemoryError):
    """No memory. Nothing has changed."""

    code = -201


class LimitError(Error):
    """Out of descriptors, requests or shared memory. Nothing has changed."""

    code = -202


class SystemCallError(Error, OSError):
    """A system call failed; .system is its errno."""

    code = -203


class PeerLostError(Error, ConnectionError):
    """A peer died, left or reset its connection; .ranks names it. The communicator is broken."""

    code = -301

    @property
    def ranks(self) -> Tuple[int, ...]:
        return (self.rank,) if self.rank >= 0 else ()


class TimeoutError(Error, builtins.TimeoutError):
    """It did not end in its time."""

    code = ETIMEOUT


class AbortedError(Error):
    """Somebody aborted the communicator."""

    code = -303


class WireError(Error, ConnectionError):
    """Bytes came that no peer would send. The communicator is broken."""

    code = -304


class InterruptedError(Error, builtins.InterruptedError):
    """A signal's handler ended what the communicator was doing. The communicator is broken."""

    code = EINTERRUPTED


class PartitionError(Error):
    """Too few ranks are left to go on: the others may live, and do so. .rank is one of them."""

    code = -306


class MismatchError(Error):
    """The ranks asked for different collectives. The communicator is broken."""

    code = -401


class ConfigError(Error, ValueError):
    """The ranks were started with contradicting ranks, sizes or settings."""

    code = -402


class VersionError(Error):
    """A peer speaks another version of the wire."""

    code = -501


class AuthenticationError(Error):
    """A peer did not prove that it knows the job's key."""

    code = -502


class InternalError(Error):
    """A mistake in libringred."""

    code = -901


_classes: Dict[int, Type[Error]] = {
    c.code: c
    for c in (
        InvalidArgumentError, SettingError, UnsupportedError, BusyError, ForkedError, OutOfMemoryError,
        LimitError, SystemCallError, PeerLostError, TimeoutError, AbortedError, WireError,
        InterruptedError, PartitionError, MismatchError, ConfigError, VersionError, AuthenticationError, InternalError,
    )
}


def new_c_error() -> CError:
    error = CError()
    lib.error_init(ctypes.byref(error))
    return error


def from_status(status: int, error: Optional[CError] = None) -> Error:
    """The exception for a status; error tells more where it is about the same failure."""
    kind = _classes.get(status, Error)
    if error is not None and error.code == status:
        text = error.text.decode(errors="replace") or lib.status_text(status).decode()
        return kind(text, error.rank, status, error.system)
    return kind(lib.status_text(status).decode(), -1, status)
