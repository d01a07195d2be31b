# SPDX-License-Identifier: Apache-2.0
"""Communicators and the work that runs on them.

No call sleeps inside the library for longer than a slice of 50 ms, so that Ctrl-C and other signal
handlers of Python run: what blocks is started, then waited for in slices. The first slice is long
enough for most calls to need no second.
"""
import ctypes
import json
import os
import pickle
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy

from . import _arrays
from ._errors import (
    OK, PENDING, AbortedError, InvalidArgumentError, SettingError, TimeoutError, from_status, new_c_error,
)
from ._library import CConfig, CMessage, CUniqueId, LogFunction, lib

FIRST_SLICE_NS = 1_000_000
LAST_SLICE_NS = 50_000_000
ANY_SOURCE = -1
_operators = {name: 257 + i for i, name in enumerate(
    ("sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"))}


def _interruptible(function: Callable[[], Any], undo: Callable[[Any], None]) -> Any:
    """Runs a call that cannot be cut into slices beside us, so that signals are handled meanwhile.

    If one of their handlers raises, the call is left to end by itself, and undo gets its result.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    result: List[Any] = []
    abandoned, ended = threading.Event(), threading.Event()
    lock = threading.Lock()

    def run() -> None:
        value = function()
        with lock:
            result.append(value)
            late = abandoned.is_set()
        ended.set()
        if late:
            undo(value)

    threading.Thread(target=run, name="ringred", daemon=True).start()
    try:
        while not ended.wait(0.05):
            pass
    except BaseException:
        with lock:
            abandoned.set()
            done = bool(result)
        if done:
            undo(result[0])
        raise
    return result[0]


class _State:
    """What is left to clean up when a communicator is dropped: shared with its finalizer."""

    def __init__(self, handle: int, log: Any):
        self.handle: Optional[int] = handle
        self.pid = os.getpid()
        self.log = log                        # the library calls it for as long as handle lives
        self.running: Dict[int, "_Request"] = {}

    def destroy(self) -> int:
        handle, self.handle = self.handle, None
        if handle is None or os.getpid() != self.pid:
            return OK                         # a forked child owns nothing of it
        status = lib.comm_destroy(handle)
        for request in self.running.values():  # the library freed them
            request.handle = None
            request.failure = AbortedError("the communicator was destroyed before the operation ended")
        self.running.clear()
        return status


class _Request:
    """A request of the library, and the memory that it uses, until it has ended."""

    __slots__ = ("handle", "buffers", "failure", "lock", "orphan")

    def __init__(self, handle: int, buffers: Optional[_arrays.Buffers]):
        self.handle: Optional[int] = handle
        self.buffers = buffers
        self.failure: Optional[Exception] = None
        self.lock = threading.Lock()
        self.orphan = False


class Work:
    """A collective that was started. It moves when somebody waits, tests, or makes further calls."""

    __slots__ = ("_comm", "_request", "_result", "__weakref__")

    def __init__(self, comm: "Communicator", request: _Request):
        self._comm = comm
        self._request = request
        self._result = request.buffers.result if request.buffers else None

    def __del__(self) -> None:
        request = getattr(self, "_request", None)
        if request is not None:
            request.orphan = True             # the communicator ends it; its memory stays until then

    @property
    def done(self) -> bool:
        """Whether it is known to have ended. Does not look; test() does."""
        return self._request.handle is None

    def test(self) -> bool:
        """Moves it along; whether it has ended. Raises what it failed with."""
        return self._comm._advance(self._request, 0)

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until it has ended, at most timeout seconds, and returns the array of the result.

        TimeoutError leaves it running: wait again, or later. Only if it is done by then, a time limit
        elsewhere (a blocking call's, a peer's) has ended it and broken the communicator.
        """
        comm, request = self._comm, self._request
        if not comm._wait(request, timeout):
            raise TimeoutError("the operation did not end within %g s; it goes on" % (timeout or 0))
        return self._result


class Message:
    """What a receive got: from whom, with which tag, and how many elements of the array it filled."""

    __slots__ = ("source", "tag", "count")

    def __init__(self) -> None:
        self.source, self.tag, self.count = ANY_SOURCE, -1, 0

    def __repr__(self) -> str:
        return "<ringred.Message of %d elements from rank %d, tag %d>" % (self.count, self.source, self.tag)


class Communicator:
    """The ranks of a job. Made by ringred.init(); a context manager that destroys it at its end."""

    def __init__(self, handle: int, log: Any = None, timeout: Optional[float] = None):
        self._state = _State(handle, log)
        self._handle = handle
        self._timeout = timeout               # of blocking calls, in seconds
        self._finalizer = weakref.finalize(self, self._state.destroy)
        self._rank = lib.comm_rank(handle)
        self._size = lib.comm_size(handle)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def __repr__(self) -> str:
        state = "" if self._state.handle else ", destroyed"
        return "<ringred.Communicator rank %d of %d%s>" % (self._rank, self._size, state)

    # ---- what it is ----

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    @property
    def local_rank(self) -> int:
        """The rank among those of this host."""
        return self._number(lib.comm_local_rank)

    @property
    def local_size(self) -> int:
        return self._number(lib.comm_local_size)

    def describe(self, collective: Optional[str] = None, nbytes: int = 0) -> Dict[str, Any]:
        """What the communicator is made of; and which plan a call of nbytes bytes would run."""
        handle = self._live()
        name = collective.encode() if collective else None
        return _read_json(lambda text, room: lib.comm_describe(handle, name, nbytes, text, room))

    # ---- collectives ----

    def allreduce(self, array: Any, out: Any = None, op: str = "sum") -> Any:
        """The ranks' arrays joined element by element, the same bits on every rank.

        op: "sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor" or "lxor". In place, or into
        out. Returns the array that holds the result.
        """
        return self._block(self._allreduce(array, out, op))

    def allreduce_async(self, array: Any, out: Any = None, op: str = "sum") -> Work:
        """The same, started. The arrays must not be touched until the work has ended."""
        return Work(self, self._allreduce(array, out, op))

    def reduce(self, array: Any, out: Any = None, op: str = "sum", root: int = 0) -> Any:
        """The same on rank root only, in its array or its out, which is returned there; None elsewhere."""
        return self._block(self._reduce(array, out, op, root))

    def reduce_async(self, array: Any, out: Any = None, op: str = "sum", root: int = 0) -> Work:
        return Work(self, self._reduce(array, out, op, root))

    def reduce_scatter(self, array: Any, out: Any = None, op: str = "sum") -> Any:
        """array[r] is the part for rank r; each rank gets its own, reduced, in a new array or in out."""
        return self._block(self._reduce_scatter(array, out, op))

    def reduce_scatter_async(self, array: Any, out: Any = None, op: str = "sum") -> Work:
        return Work(self, self._reduce_scatter(array, out, op))

    def allgather(self, array: Any, out: Any = None) -> Any:
        """result[r] is the array of rank r: a new array of shape (size, *array.shape), or out."""
        return self._block(self._allgather(array, out))

    def allgather_async(self, array: Any, out: Any = None) -> Work:
        return Work(self, self._allgather(array, out))

    def gather(self, array: Any, out: Any = None, root: int = 0) -> Any:
        """The same on rank root only; None elsewhere."""
        return self._block(self._gather(array, out, root))

    def gather_async(self, array: Any, out: Any = None, root: int = 0) -> Work:
        return Work(self, self._gather(array, out, root))

    def scatter(self, array: Any = None, out: Any = None, root: int = 0) -> Any:
        """Rank r gets array[r] of rank root, in out. array counts on the root only, where out may be left out
        for a new array."""
        return self._block(self._scatter(array, out, root))

    def scatter_async(self, array: Any = None, out: Any = None, root: int = 0) -> Work:
        return Work(self, self._scatter(array, out, root))

    def alltoall(self, array: Any, out: Any = None) -> Any:
        """result[r] is what rank r has in array[this rank]: a new array like array, or out."""
        return self._block(self._alltoall(array, out))

    def alltoall_async(self, array: Any, out: Any = None) -> Work:
        return Work(self, self._alltoall(array, out))

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """Every rank's array becomes the array of rank root. Returns it."""
        return self._block(self._broadcast(array, root))

    def broadcast_async(self, array: Any, root: int = 0) -> Work:
        return Work(self, self._broadcast(array, root))

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._block(self._start(None, lib.barrier_start))

    def barrier_async(self) -> Work:
        return Work(self, self._start(None, lib.barrier_start))

    # ---- parts of unequal length, messages, objects ----

    def allgatherv(self, array: Any, counts: Sequence[int], out: Any = None) -> Any:
        """The arrays of all ranks, one behind the other: rank r's has counts[r] elements, which all ranks give alike.
        A new array of one dimension, or out."""
        return self._block(self._allgatherv(array, counts, out))

    def allgatherv_async(self, array: Any, counts: Sequence[int], out: Any = None) -> Work:
        return Work(self, self._allgatherv(array, counts, out))

    def send(self, array: Any, dest: int, tag: int = 0) -> None:
        """An array to one rank. Returns when the array may be changed."""
        self._block(self._send(array, dest, tag))

    def send_async(self, array: Any, dest: int, tag: int = 0) -> Work:
        return Work(self, self._send(array, dest, tag))

    def recv(self, array: Any, source: int = ANY_SOURCE, tag: int = 0) -> Message:
        """The next message with that tag, from one rank or from any, into the front of array."""
        return self._block(self._recv(array, source, tag))

    def recv_async(self, array: Any, source: int = ANY_SOURCE, tag: int = 0) -> Work:
        return Work(self, self._recv(array, source, tag))

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """The object of rank root, on every rank, by pickle: only among ranks that trust each other."""
        root = self._root(root)
        mine = numpy.frombuffer(pickle.dumps(value), "uint8").copy() if root == self._rank else None
        length = numpy.array([len(mine) if mine is not None else 0], "int64")
        self.broadcast(length, root)
        data = mine if mine is not None else numpy.empty(int(length[0]), "uint8")
        self.broadcast(data, root)
        return value if root == self._rank else pickle.loads(data.tobytes())

    def allgather_object(self, value: Any) -> List[Any]:
        """The objects of all ranks, in their order, by pickle: only among ranks that trust each other."""
        mine = numpy.frombuffer(pickle.dumps(value), "uint8").copy()
        lengths = [int(n) for n in self.allgather(numpy.array([len(mine)], "int64"))[:, 0]]
        data = self.allgatherv(mine, lengths)
        ends = numpy.cumsum(lengths)
        return [pickle.loads(data[end - n:end].tobytes()) for end, n in zip(ends, lengths)]

    # ---- communicators of some of the ranks ----

    def split(self, color: Optional[int], key: int = 0) -> Optional["Communicator"]:
        """A communicator of the ranks that give the same color (from 0 up), in order of key and of rank. With
        color None this rank takes part, and gets None."""
        part = ctypes.c_void_p()
        mine = -1 if color is None else int(color)
        if color is not None and mine < 0:
            raise InvalidArgumentError("color is %r; give one from 0 up, or None" % (color,))
        return self._part(lambda: lib.comm_split(self._live(), mine, int(key), ctypes.byref(part)), part)

    def subgroup(self, ranks: Sequence[int]) -> Optional["Communicator"]:
        """A communicator of these ranks, in this order. All ranks call it; those in no list give an empty one."""
        listed, part = [int(r) for r in ranks], ctypes.c_void_p()
        array = (ctypes.c_int32 * max(1, len(listed)))(*listed)
        return self._part(lambda: lib.comm_group(self._live(), array, len(listed), ctypes.byref(part)), part)

    # ---- its end ----

    def abort(self) -> None:
        """Breaks the communicator here and at every peer. Any thread may call it."""
        self._check(lib.comm_abort(self._live()))

    def destroy(self) -> None:
        """Says goodbye to the peers and frees everything. Again is fine. Raises what had failed."""
        if self._state.handle is None:
            return
        status = _interruptible(self._state.destroy, lambda _: None)
        self._finalizer.detach()
        if status < 0:
            raise from_status(status)

    # ---- inside ----

    def _live(self) -> int:
        if self._state.handle is None:
            raise InvalidArgumentError("the communicator was destroyed")
        return self._handle

    def _number(self, function: Callable[[int], int]) -> int:
        value = function(self._live())
        if value < 0:
            raise from_status(value)
        return value

    def _failure(self, status: int) -> Exception:
        error = new_c_error()
        if self._state.handle is not None:
            lib.comm_error(self._handle, ctypes.byref(error))
        return from_status(status, error)

    def _check(self, status: int) -> None:
        if status < 0:
            raise self._failure(status)

    def _allreduce(self, array: Any, out: Any, op: str) -> _Request:
        operator = self._operator(op)
        self._live()
        buffers = _arrays.for_allreduce(array, out)
        return self._start(
            buffers, lib.allreduce_start, _arrays.address(buffers.send), _arrays.address(buffers.recv),
            buffers.count, buffers.type, operator,
        )

    @staticmethod
    def _operator(op: str) -> int:
        operator = _operators.get(op)
        if operator is None:
            raise InvalidArgumentError("op is %r; there are %s" % (op, ", ".join(_operators)))
        return operator

    def _root(self, root: Any) -> int:
        if not isinstance(root, (int, numpy.integer)) or not 0 <= root < self._size:
            raise InvalidArgumentError("root is %r; ranks are 0 to %d" % (root, self._size - 1))
        return int(root)

    def _part(self, call: Callable[[], int], part: ctypes.c_void_p) -> Optional["Communicator"]:
        status = _interruptible(lambda: (call(), part.value or 0),
                                lambda made: lib.comm_destroy(made[1]) if made[0] >= 0 and made[1] else None)[0]
        self._check(status)
        return Communicator(part.value, self._state.log, self._timeout) if part.value else None

    def _reduce(self, array: Any, out: Any, op: str, root: Any) -> _Request:
        operator, root = self._operator(op), self._root(root)
        self._live()
        mine = root == self._rank
        b = _arrays.for_allreduce(array, out) if mine else _arrays.to_send(array)
        recv = _arrays.address(b.recv) if mine else None
        return self._start(b, lib.reduce_start, _arrays.address(b.send), recv, b.count, b.type, operator, root)

    def _parts_of(self, array: Any) -> Tuple[int, ...]:
        """The shape of one part of an array that has one for each rank."""
        shape = _arrays.shape_of(array)
        if not shape or shape[0] != self._size:
            raise InvalidArgumentError("array has shape %s; its first length must be the number of ranks, %d"
                                       % (shape, self._size))
        return shape[1:]

    def _reduce_scatter(self, array: Any, out: Any, op: str) -> _Request:
        operator = self._operator(op)
        self._live()
        b = _arrays.for_parts(array, out, self._parts_of(array))
        return self._start(b, lib.reduce_scatter_start, _arrays.address(b.send), _arrays.address(b.recv),
                           b.count // self._size, b.type, operator)

    def _allgather(self, array: Any, out: Any) -> _Request:
        self._live()
        b = _arrays.for_parts(array, out, (self._size, *_arrays.shape_of(array)))
        return self._start(b, lib.allgather_start, _arrays.address(b.send), _arrays.address(b.recv), b.count, b.type)

    def _gather(self, array: Any, out: Any, root: Any) -> _Request:
        root = self._root(root)
        self._live()
        mine = root == self._rank
        b = (_arrays.for_parts(array, out, (self._size, *_arrays.shape_of(array))) if mine
             else _arrays.to_send(array))
        recv = _arrays.address(b.recv) if mine else None
        return self._start(b, lib.gather_start, _arrays.address(b.send), recv, b.count, b.type, root)

    def _scatter(self, array: Any, out: Any, root: Any) -> _Request:
        root = self._root(root)
        self._live()
        mine = root == self._rank
        if (array if mine else out) is None:
            raise InvalidArgumentError("rank %d of a scatter from rank %d needs %s" % (self._rank, root,
                                                                                   "array" if mine else "out"))
        b = _arrays.for_parts(array, out, self._parts_of(array)) if mine else _arrays.to_receive(out)
        send = _arrays.address(b.send) if mine else None
        count = b.count // self._size if mine else b.count
        return self._start(b, lib.scatter_start, send, _arrays.address(b.recv), count, b.type, root)

    def _alltoall(self, array: Any, out: Any) -> _Request:
        self._live()
        b = _arrays.for_parts(array, out, (self._size, *self._parts_of(array)))
        return self._start(b, lib.alltoall_start, _arrays.address(b.send), _arrays.address(b.recv),
                           b.count // self._size, b.type)

    def _allgatherv(self, array: Any, counts: Sequence[int], out: Any) -> _Request:
        self._live()
        listed = [int(n) for n in counts]
        if len(listed) != self._size or min(listed) < 0:
            raise InvalidArgumentError("counts is %r; %d numbers from 0 up are needed" % (counts, self._size))
        b = _arrays.for_parts(array, out, (sum(listed),))
        if b.count != listed[self._rank]:
            raise InvalidArgumentError("array has %d elements; counts says %d of rank %d"
                                       % (b.count, listed[self._rank], self._rank))
        sizes = (ctypes.c_size_t * self._size)(*listed)
        return self._start(b, lib.allgatherv_start, _arrays.address(b.send), b.count, _arrays.address(b.recv), sizes,
                           None, b.type)

    def _send(self, array: Any, dest: int, tag: int) -> _Request:
        self._live()
        b = _arrays.to_send(array)
        return self._start(b, lib.send_start, _arrays.address(b.send), b.count, b.type, int(dest), int(tag))

    def _recv(self, array: Any, source: int, tag: int) -> _Request:
        self._live()
        message = CMessage()
        lib.message_init(ctypes.byref(message), ctypes.sizeof(message))
        b = _arrays.Incoming(array, message, Message())
        return self._start(b, lib.recv_start, _arrays.address(b.recv), b.count, b.type, int(source), int(tag),
                           ctypes.byref(message))

    def _broadcast(self, array: Any, root: int) -> _Request:
        root = self._root(root)
        self._live()
        buffers = _arrays.for_broadcast(array, root == self._rank)
        at = _arrays.address(buffers.recv)
        return self._start(
            buffers, lib.broadcast_start, at, at, buffers.count, buffers.type, int(root)
        )

    def _start(self, buffers: Optional[_arrays.Buffers], function: Any, *arguments: Any) -> _Request:
        handle = self._live()
        if self._state.running:
            self._end_orphans()
        pointer = ctypes.c_void_p()
        self._check(function(handle, *arguments, ctypes.byref(pointer)))
        request = _Request(pointer.value or 0, buffers)
        self._state.running[id(request)] = request
        return request

    def _end_orphans(self) -> None:
        for request in [r for r in self._state.running.values() if r.orphan]:
            try:
                self._advance(request, 0)
            except Exception:                 # nobody is there to be told; later calls fail likewise
                pass

    def _advance(self, request: _Request, slice_ns: int) -> bool:
        """Moves a request for a slice of time; whether it has ended. Raises what it failed with."""
        if not request.lock.acquire(timeout=slice_ns / 1e9):
            return False                      # another thread waits for it
        try:
            if request.failure is not None:
                raise request.failure
            if request.handle is None:
                return True
            status = lib.wait(request.handle, slice_ns) if slice_ns else lib.test(request.handle)
            if status == PENDING:             # anything else has ended it
                return False
            self._end(request, status)
            return True
        finally:
            request.lock.release()

    def _end(self, request: _Request, status: int) -> None:
        request.handle = None
        self._state.running.pop(id(request), None)
        buffers, request.buffers = request.buffers, None
        if status < 0:
            request.failure = self._failure(status)
            raise request.failure
        if buffers is not None:
            buffers.finish()

    def _wait(self, request: _Request, timeout: Optional[float]) -> bool:
        """Waits in slices; whether it has ended in time. timeout None or negative: for ever."""
        slice_ns = FIRST_SLICE_NS
        if timeout is None or timeout < 0:
            while not self._advance(request, slice_ns):
                slice_ns = min(2 * slice_ns, LAST_SLICE_NS)
            return True
        deadline = time.monotonic_ns() + int(timeout * 1e9)
        while True:
            left = deadline - time.monotonic_ns()
            if self._advance(request, max(0, min(slice_ns, left))):
                return True
            if left <= 0:
                return False
            slice_ns = min(2 * slice_ns, LAST_SLICE_NS)

    def _block(self, request: _Request) -> Any:
        result = request.buffers.result if request.buffers else None
        request.orphan = True                 # if a signal handler raises, later calls end it
        if not self._wait(request, self._timeout):
            lib.comm_abort(self._handle)      # the peers cannot know that we gave up
            raise TimeoutError(
                "the operation did not end within %g s (setting timeout)" % (self._timeout or 0)
            )
        return result


# ---- making one ----

def unique_id() -> bytes:
    """Opens a meeting place in this process, which must become rank 0; hand the bytes to the others.

    Whoever holds them can join the job.
    """
    made, error = CUniqueId(), new_c_error()
    status = lib.unique_id_create(ctypes.byref(made), ctypes.byref(error))
    if status < 0:
        raise from_status(status, error)
    return bytes(made.bytes)


def _setting_text(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, (str, int, float)):
        raise SettingError("setting %s is a %s; a text or number is needed" % (name, type(value).__name__))
    return ("%s=%s" % (name, value)).encode()


def _call_timeout(settings: Dict[str, Any]) -> Optional[float]:
    """Blocking calls are made of start and wait here, so their timeout is kept on this side."""
    text = settings.get("timeout", os.environ.get("RINGRED_TIMEOUT", -1))
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        return None                           # the library refuses it, with the right words
    return seconds if seconds >= 0 else None


def init(
    *,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    root: Optional[str] = None,
    id: Optional[bytes] = None,
    key: Union[bytes, str, None] = None,
    log: Optional[Callable[[int, str], None]] = None,
    **settings: Any,
) -> Communicator:
    """Makes the communicator of all ranks of the job, and waits until all have arrived.

    Without arguments the launcher's environment says who we are. Settings are those that
    `ringred-info --settings` lists, such as transport="tcp"; log is called with a level and a line.
    """
    config, error, handle = CConfig(), new_c_error(), ctypes.c_void_p()
    lib.config_init(ctypes.byref(config), ctypes.sizeof(config))
    if rank is not None:
        config.rank = rank
    if size is not None:
        config.size = size
    if root is not None:
        config.root = root.encode()
    held: List[Any] = [config]
    if id is not None:
        if len(id) != ctypes.sizeof(CUniqueId):
            raise InvalidArgumentError("id has %d bytes; unique_id() makes 256" % len(id))
        held.append(CUniqueId.from_buffer_copy(id))
        config.id = ctypes.pointer(held[-1])
    if key is not None:
        secret = key.encode() if isinstance(key, str) else bytes(key)
        config.key, config.key_bytes = secret, len(secret)
    texts = [_setting_text(name, value) for name, value in settings.items()]
    config.settings = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
    call = LogFunction(lambda _, level, line: log(level, line.decode(errors="replace"))) if log else None
    if call is not None:
        config.log = call

    def create() -> Tuple[int, int]:
        status = lib.comm_create(ctypes.byref(config), ctypes.byref(handle), ctypes.byref(error))
        return status, handle.value or 0

    def undo(made: Tuple[int, int]) -> None:
        if made[0] >= 0:
            lib.comm_destroy(made[1])

    status, made = _interruptible(create, undo)
    del held
    if status < 0:
        raise from_status(status, error)
    return Communicator(made, call, _call_timeout(settings))


def _free(pointer: int, pid: int) -> None:
    """A forked child has copies of our objects, but the memory behind them is its parent's."""
    if os.getpid() == pid:
        lib.free(pointer)


def empty(comm: Communicator, shape: Any, dtype: Any = "float32") -> numpy.ndarray:
    """A new array, of zeros, in memory that the peers on this host can reach: the fastest to reduce.

    The memory goes back when the last array that uses it is gone, even after the communicator.
    """
    dimensions, whole = _arrays.parse_shape(shape, dtype)
    count = 1
    for length in dimensions:
        count *= length
    nbytes, pointer = count * whole.itemsize, ctypes.c_void_p()
    comm._check(lib.alloc(comm._live(), max(nbytes, 1), ctypes.byref(pointer)))
    place = (ctypes.c_char * max(nbytes, 1)).from_address(pointer.value or 0)
    weakref.finalize(place, _free, pointer.value or 0, os.getpid()).atexit = False
    return numpy.frombuffer(place, whole, count).reshape(dimensions)


def _read_json(write: Callable[[Any, int], int]) -> Dict[str, Any]:
    room = 1 << 16
    while True:
        text = ctypes.create_string_buffer(room)
        need = write(text, room)
        if need < 0:
            raise from_status(need)
        if need < room:
            return json.loads(text.value)
        room = need + 1


def describe() -> Dict[str, Any]:
    """This build, its transports, settings and the launcher that was found."""
    return _read_json(lib.describe)
