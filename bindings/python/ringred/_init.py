# SPDX-License-Identifier: Apache-2.0
"""How the communicator of a job is made."""
import ctypes
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from . import _types
from ._communicator import Communicator, read_json
from ._errors import EINTERRUPTED, InvalidArgumentError, SettingError, from_status, new_c_error
from ._interrupts import Interrupt
from ._library import AllgatherFunction, CConfig, CStore, CUniqueId, GetFunction, LogFunction, SetFunction, lib

_FAILED = -1


def unique_id() -> bytes:
    """Opens a meeting place in this process, which must become rank 0; hand the bytes to the others.

    Whoever holds them can join the job.
    """
    made, error = CUniqueId(), new_c_error()
    status = lib.unique_id_create(ctypes.byref(made), ctypes.byref(error))
    if status < 0:
        raise from_status(status, error)
    return bytes(made.bytes)


def describe() -> Dict[str, Any]:
    """This build, its transports, settings and the launcher that was found."""
    return read_json(lib.describe)


class _Bootstrap:
    """The caller's own store or allgather, as the library calls them; what they raise is kept."""

    def __init__(self, size: int):
        self.size, self.failure = size, None  # type: int, Optional[BaseException]
        self.held: List[Any] = []

    def _kept(self, function: Callable[..., int], *arguments: Any) -> int:
        try:
            return function(*arguments)
        except BaseException as failure:
            self.failure = failure
            return _FAILED

    def use_store(self, config: CConfig, store: Any) -> None:
        def put(key: bytes, value: int, nbytes: int) -> int:
            store.set(key.decode(), ctypes.string_at(value, nbytes))
            return 0

        def get(key: bytes, value: int, room: int) -> int:
            found = bytes(store.get(key.decode()))
            if len(found) > room:
                raise InvalidArgumentError("the store has %d bytes as %r; at most %d were set"
                                           % (len(found), key, room))
            ctypes.memmove(value, found, len(found))
            return len(found)

        described = CStore()
        lib.store_init(ctypes.byref(described), ctypes.sizeof(described))
        described.set = SetFunction(lambda _, *arguments: self._kept(put, *arguments))
        described.get = GetFunction(lambda _, *arguments: self._kept(get, *arguments[:3]))
        self.held.append(described)
        config.store = ctypes.pointer(described)

    def use_allgather(self, config: CConfig, allgather: Callable[[bytes], Sequence[bytes]]) -> None:
        def gather(mine: int, nbytes: int, everything: int) -> int:
            parts = [bytes(part) for part in allgather(ctypes.string_at(mine, nbytes))]
            if any(len(part) != nbytes for part in parts):
                raise InvalidArgumentError("allgather returned parts of %s bytes; each rank gave %d"
                                           % ([len(part) for part in parts], nbytes))
            if self.size >= 0 and len(parts) != self.size:
                raise InvalidArgumentError("allgather returned %d parts; there are %d ranks" % (len(parts), self.size))
            ctypes.memmove(everything, b"".join(parts), nbytes * len(parts))
            return 0

        config.allgather = AllgatherFunction(lambda _, *arguments: self._kept(gather, *arguments))


def _setting_text(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, (str, int, float)):
        raise SettingError("setting %s is a %s; a text or number is needed" % (name, type(value).__name__))
    if "\0" in str(value):
        raise SettingError("setting %s is %r, which has a NUL" % (name, value))
    return ("%s=%s" % (name, value)).encode()


def _call_timeout(settings: Dict[str, Any]) -> Optional[float]:
    """Blocking calls are made of start and wait here, so their timeout is kept on this side."""
    text = settings.get("timeout")
    if text is None:
        text = next((s["value"] for s in describe()["settings"] if s["name"] == "timeout"), -1)
    seconds = float(text)
    return seconds if seconds >= 0 else None


def init(
    *,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    root: Optional[str] = None,
    id: Optional[bytes] = None,
    store: Any = None,
    allgather: Optional[Callable[[bytes], Sequence[bytes]]] = None,
    key: Union[bytes, str, None] = None,
    log: Optional[Callable[[int, str], None]] = None,
    **settings: Any,
) -> Communicator:
    """Makes the communicator of all ranks of the job, and waits until all have arrived.

    Without arguments the launcher's environment says who we are. Else rank and size, and where rank 0 is: root
    ("host:port"), id (unique_id() of rank 0), a store (an object with set(key, value) and get(key), which waits, as
    torch's stores), or a function allgather (bytes to the list of all ranks' bytes). Settings are those that
    `ringred-info --settings` lists, such as transport="tcp"; log is called with a level and a line.
    """
    config, error, handle = CConfig(), new_c_error(), ctypes.c_void_p()
    lib.config_init(ctypes.byref(config), ctypes.sizeof(config))
    if rank is not None:
        config.rank = _types.integer("rank", rank)
    if size is not None:
        config.size = _types.integer("size", size)
    if root is not None:
        config.root = root.encode()
    if id is not None:
        if len(id) != ctypes.sizeof(CUniqueId):
            raise InvalidArgumentError("id has %d bytes; unique_id() makes %d" % (len(id), ctypes.sizeof(CUniqueId)))
        config.id = ctypes.pointer(CUniqueId.from_buffer_copy(id))
    if key is not None:
        secret = key.encode() if isinstance(key, str) else bytes(key)
        config.key, config.key_bytes = secret, len(secret)
    bootstrap = _Bootstrap(config.size)
    if store is not None:
        bootstrap.use_store(config, store)
    if allgather is not None:
        bootstrap.use_allgather(config, allgather)
    texts = [_setting_text(name, value) for name, value in settings.items()]
    config.settings = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
    interrupt, callbacks = Interrupt(), []
    config.interrupt = interrupt.callback
    if log is not None:
        written = log
        callbacks.append(LogFunction(lambda _, level, line: written(level, line.decode(errors="replace"))))
        config.log = callbacks[0]
    status = lib.comm_create(ctypes.byref(config), ctypes.byref(handle), ctypes.byref(error))
    if status == EINTERRUPTED:
        interrupt.raise_what_came()
    if status < 0:
        raise from_status(status, error) from bootstrap.failure
    return Communicator(handle.value or 0, interrupt, callbacks, _call_timeout(settings))
