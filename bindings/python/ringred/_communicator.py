# SPDX-License-Identifier: Apache-2.0
"""Communicators: what the ranks of a job do together."""
import ctypes
import json
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _buffers, _memory, _objects, _types
from ._errors import EINTERRUPTED, InvalidArgumentError, from_status, new_c_error
from ._interrupts import Interrupt
from ._library import CUniqueId, lib
from ._operators import Operator, make_operator, operators
from ._starts import Group, Message, Op, Starts
from ._work import FIRST_SLICE_NS, LONGEST_S, Request, State, Work, new_request

ANY_SOURCE = -1
_NO_COLOR = -1

_quick, _start_allreduce, _byref = _buffers.quick, lib.allreduce_start, ctypes.byref


def _time(timeout: Optional[float]) -> int:
    """Seconds as nanoseconds; 0, as the setting says, for None. None of these is too short to be a limit."""
    if timeout is None:
        return 0
    if not timeout >= 0:
        raise InvalidArgumentError("timeout is %r; give seconds from 0 up, or None" % (timeout,))
    return max(1, int(min(timeout, LONGEST_S) * 1e9))


class Communicator(Starts):
    """The ranks of a job, or some of them. Made by ringred.init(), split() and subgroup(); a context
    manager that destroys it at its end.

    All ranks make the same calls in the same order, with the same counts, types, operator and root.
    Arrays are anything whose memory can be reached: numpy arrays, torch tensors of the CPU, whatever
    has DLPack or the buffer protocol (bytearray, memoryview, array.array, ctypes arrays). They are used
    where they lie if they are contiguous; results of others go through a copy and come out right.
    dtype="bfloat16" and the like say what elements are that an object has no name for.

    With `_async` in its name, a call returns a Work at once, and arrays must not be touched until that
    has ended. Threads may share a communicator: their calls are started one after the other.
    """

    def __init__(self, handle: int, interrupt: Interrupt, callbacks: Sequence[Any] = (),
                 timeout: Optional[float] = None):
        self._state = State(handle, list(callbacks), interrupt)
        self._timeout = timeout               # of blocking calls, in seconds
        self._finalizer = weakref.finalize(self, self._state.at_exit)
        self._group: Optional[Group] = None
        self._pollers: Dict[Any, Any] = {}    # by event loop
        self.previous_ranks: Optional[List[int]] = None  # of one that shrink() made: what its ranks were called
        self._rank: int = lib.comm_rank(handle)
        self._size: int = lib.comm_size(handle)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a communicator is one process's own: it can be neither copied nor pickled")

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
        handle = self._state.live()
        name = collective.encode() if collective else None
        return read_json(lambda text, room: lib.comm_describe(handle, name, nbytes, text, room),
                         self._state.failure)

    def dump(self) -> Dict[str, Any]:
        """What this rank did last, and whom it waits for. Any thread may call it while others wait, and after a failure."""
        handle = self._state.live()
        return read_json(lambda text, room: lib.comm_dump(handle, text, room), self._state.failure)

    # ---- reductions ----

    def allreduce(self, array: Any, out: Any = None, op: Op = "sum", dtype: Any = None) -> Any:
        """The ranks' arrays joined element by element, the same bits on every rank.

        op: "sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", or what
        op() made. In place, or into out. Returns the array that holds the result.
        """
        if out is None and dtype is None and self._group is None:
            found, number = _quick(array), operators.get(op)  # type: ignore[arg-type]
            if found is not None and number is not None:
                return self._quick_allreduce(array, found, number)
        group = self._my_group()
        if group is not None:
            return group.add(array, out, op, dtype, False)
        return self._block(self._reduce("allreduce", array, out, op, 0, dtype))

    def allreduce_async(self, array: Any, out: Any = None, op: Op = "sum", dtype: Any = None) -> Work:
        group = self._my_group()
        if group is not None:
            work: Work = group.add(array, out, op, dtype, True)
            return work
        return Work(self, self._reduce("allreduce", array, out, op, 0, dtype))

    def reduce(self, array: Any, out: Any = None, op: Op = "sum", root: int = 0, dtype: Any = None) -> Any:
        """The same on rank root only, in its array or its out, which is returned there; None elsewhere."""
        return self._block(self._reduce("reduce", array, out, op, root, dtype))

    def reduce_async(self, array: Any, out: Any = None, op: Op = "sum", root: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._reduce("reduce", array, out, op, root, dtype))

    def reduce_scatter(self, array: Any, out: Any = None, op: Op = "sum", dtype: Any = None) -> Any:
        """array[r] is the part for rank r; each rank gets its own, reduced: a new array, or out.

        With out, only the number of elements counts: array has size times as many.
        """
        return self._block(self._reduce_scatter(array, out, op, dtype))

    def reduce_scatter_async(self, array: Any, out: Any = None, op: Op = "sum", dtype: Any = None) -> Work:
        return Work(self, self._reduce_scatter(array, out, op, dtype))

    def reduce_scatterv(self, array: Any, counts: Sequence[int], out: Any = None, op: Op = "sum",
                        dtype: Any = None) -> Any:
        """The same with parts of counts[r] elements, one behind the other; counts are the same on all ranks."""
        return self._block(self._reduce_scatterv(array, counts, out, op, dtype))

    def reduce_scatterv_async(self, array: Any, counts: Sequence[int], out: Any = None, op: Op = "sum",
                              dtype: Any = None) -> Work:
        return Work(self, self._reduce_scatterv(array, counts, out, op, dtype))

    def allreduce_list(self, arrays: Sequence[Any], outs: Optional[Sequence[Any]] = None, op: Op = "sum",
                       dtype: Any = None) -> List[Any]:
        """Many allreduces in one call, of mixed types and lengths: faster where many are short."""
        return self._block(self._reduce_list("allreduce", arrays, outs, op, 0, dtype))

    def allreduce_list_async(self, arrays: Sequence[Any], outs: Optional[Sequence[Any]] = None, op: Op = "sum",
                             dtype: Any = None) -> Work:
        return Work(self, self._reduce_list("allreduce", arrays, outs, op, 0, dtype))

    def reduce_list(self, arrays: Sequence[Any], outs: Optional[Sequence[Any]] = None, op: Op = "sum",
                    root: int = 0, dtype: Any = None) -> Optional[List[Any]]:
        """The same on rank root only; None elsewhere."""
        return self._block(self._reduce_list("reduce", arrays, outs, op, root, dtype))

    def reduce_list_async(self, arrays: Sequence[Any], outs: Optional[Sequence[Any]] = None, op: Op = "sum",
                          root: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._reduce_list("reduce", arrays, outs, op, root, dtype))

    def group(self) -> Group:
        """with comm.group(): the calls of allreduce in it become one list, begun where it ends.

        Results are there behind it; works of allreduce_async can be waited for behind it. All ranks make
        the same calls. Other collectives of this communicator wait until behind it.
        """
        return Group(self)

    def op(self, function: Callable[[memoryview, memoryview, memoryview], None], itemsize: int) -> Operator:
        """An operator of your own, for op= of the reductions, over elements of itemsize bytes.

        function(left, right, result) writes result[i] = left[i] (operator) right[i] for all elements in
        three memoryviews of bytes; result may be left or right itself. It must be associative, need not
        be commutative, must give the same bits on every rank, and makes no calls of ringred. It runs in
        any thread, for other ranks' elements too. If it raises, the communicator is aborted. Collective:
        all ranks make the same operators in the same order.
        """
        self._ungrouped()
        return make_operator(self._state, function, itemsize)

    # ---- what is moved ----

    def broadcast(self, array: Any, root: int = 0, dtype: Any = None) -> Any:
        """Every rank's array becomes the array of rank root. Returns it."""
        return self._block(self._broadcast(array, root, dtype))

    def broadcast_async(self, array: Any, root: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._broadcast(array, root, dtype))

    def broadcast_list(self, arrays: Sequence[Any], root: int = 0, dtype: Any = None) -> List[Any]:
        """Many broadcasts from one root in one call."""
        return self._block(self._broadcast_list(arrays, root, dtype))

    def broadcast_list_async(self, arrays: Sequence[Any], root: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._broadcast_list(arrays, root, dtype))

    def allgather(self, array: Any, out: Any = None, dtype: Any = None) -> Any:
        """result[r] is the array of rank r: a new array of shape (size, *array.shape), or out.

        array may be this rank's part of out.
        """
        return self._block(self._gather("allgather", array, out, None, dtype))

    def allgather_async(self, array: Any, out: Any = None, dtype: Any = None) -> Work:
        return Work(self, self._gather("allgather", array, out, None, dtype))

    def gather(self, array: Any, out: Any = None, root: int = 0, dtype: Any = None) -> Any:
        """The same on rank root only; None elsewhere."""
        return self._block(self._gather("gather", array, out, root, dtype))

    def gather_async(self, array: Any, out: Any = None, root: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._gather("gather", array, out, root, dtype))

    def scatter(self, array: Any = None, out: Any = None, root: int = 0, dtype: Any = None) -> Any:
        """Rank r gets array[r] of rank root, in out. array counts on the root only, where out may be
        left out for a new array."""
        return self._block(self._scatter(array, out, root, dtype))

    def scatter_async(self, array: Any = None, out: Any = None, root: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._scatter(array, out, root, dtype))

    def alltoall(self, array: Any, out: Any = None, dtype: Any = None) -> Any:
        """result[r] is what rank r has in array[this rank]: a new array like array, or out."""
        return self._block(self._alltoall(array, out, dtype))

    def alltoall_async(self, array: Any, out: Any = None, dtype: Any = None) -> Work:
        return Work(self, self._alltoall(array, out, dtype))

    def allgatherv(self, array: Any, counts: Sequence[int], out: Any = None,
                   places: Optional[Sequence[int]] = None, dtype: Any = None) -> Any:
        """Rank r's counts[r] elements come to places[r] of the result (one part behind the other where
        places is None): a new array of one dimension, or out. counts are the same on all ranks."""
        return self._block(self._gatherv("allgatherv", array, counts, out, None, places, dtype))

    def allgatherv_async(self, array: Any, counts: Sequence[int], out: Any = None,
                         places: Optional[Sequence[int]] = None, dtype: Any = None) -> Work:
        return Work(self, self._gatherv("allgatherv", array, counts, out, None, places, dtype))

    def gatherv(self, array: Any, counts: Optional[Sequence[int]] = None, out: Any = None, root: int = 0,
                places: Optional[Sequence[int]] = None, dtype: Any = None) -> Any:
        """The same on rank root only, where alone counts is needed; None elsewhere."""
        return self._block(self._gatherv("gatherv", array, counts, out, root, places, dtype))

    def gatherv_async(self, array: Any, counts: Optional[Sequence[int]] = None, out: Any = None, root: int = 0,
                      places: Optional[Sequence[int]] = None, dtype: Any = None) -> Work:
        return Work(self, self._gatherv("gatherv", array, counts, out, root, places, dtype))

    def scatterv(self, array: Any = None, counts: Optional[Sequence[int]] = None, out: Any = None, root: int = 0,
                 places: Optional[Sequence[int]] = None, dtype: Any = None) -> Any:
        """Rank r gets counts[r] elements from places[r] of rank root's array. array and counts count on
        the root only, where out may be left out for a new array of one dimension."""
        return self._block(self._scatterv(array, counts, out, root, places, dtype))

    def scatterv_async(self, array: Any = None, counts: Optional[Sequence[int]] = None, out: Any = None,
                       root: int = 0, places: Optional[Sequence[int]] = None, dtype: Any = None) -> Work:
        return Work(self, self._scatterv(array, counts, out, root, places, dtype))

    def alltoallv(self, array: Any, send_counts: Sequence[int], recv_counts: Sequence[int], out: Any = None,
                  send_places: Optional[Sequence[int]] = None, recv_places: Optional[Sequence[int]] = None,
                  dtype: Any = None) -> Any:
        """send_counts[r] elements go to rank r, whose recv_counts[this rank] must be the same. A new array
        of one dimension, or out."""
        return self._block(
            self._alltoallv(array, send_counts, recv_counts, out, send_places, recv_places, dtype))

    def alltoallv_async(self, array: Any, send_counts: Sequence[int], recv_counts: Sequence[int],
                        out: Any = None, send_places: Optional[Sequence[int]] = None,
                        recv_places: Optional[Sequence[int]] = None, dtype: Any = None) -> Work:
        return Work(
            self, self._alltoallv(array, send_counts, recv_counts, out, send_places, recv_places, dtype))

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._block(self._begin(None, lib.barrier_start))

    def barrier_async(self) -> Work:
        return Work(self, self._begin(None, lib.barrier_start))

    # ---- messages ----

    def send(self, array: Any, dest: int, tag: int = 0, dtype: Any = None) -> None:
        """Sends an array to one rank. Returns when the array may be used again."""
        self._block(self._send(array, dest, tag, dtype))

    def send_async(self, array: Any, dest: int, tag: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._send(array, dest, tag, dtype))

    def recv(self, array: Any, source: int = ANY_SOURCE, tag: int = 0, dtype: Any = None) -> Message:
        """Receives a message with this tag, of at most as many elements as array has, from a rank or from
        any, into the beginning of array."""
        return self._block(self._recv(array, source, tag, dtype))

    def recv_async(self, array: Any, source: int = ANY_SOURCE, tag: int = 0, dtype: Any = None) -> Work:
        return Work(self, self._recv(array, source, tag, dtype))

    # ---- objects ----

    def broadcast_object(self, what: Any = None, root: int = 0) -> Any:
        """Rank root's object, on all ranks. Objects are pickled: a rank that is not to be trusted can have
        any other run any code with them."""
        return _objects.broadcast(self, what, self._root(root))

    def allgather_object(self, what: Any) -> List[Any]:
        """All ranks' objects, on all ranks (pickled: see broadcast_object)."""
        return _objects.allgather(self, what)

    def gather_object(self, what: Any, root: int = 0) -> Optional[List[Any]]:
        """All ranks' objects on rank root; None elsewhere (pickled: see broadcast_object)."""
        return _objects.gather(self, what, self._root(root))

    def scatter_object(self, what: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
        """what[r] of rank root, which has one object for each rank (pickled: see broadcast_object)."""
        return _objects.scatter(self, what, self._root(root))

    # ---- others made from it ----

    def split(self, color: Optional[int], key: int = 0) -> Optional["Communicator"]:
        """A communicator for each color, of the ranks that gave it, in order of key and then of rank. None
        for those whose color is None. Collective."""
        number = _NO_COLOR if color is None else _types.integer("color", color)
        if color is not None and number < 0:
            raise InvalidArgumentError("color is %r; give one from 0 up, or None to belong to none" % (color,))
        order = _types.integer("key", key)
        return self._part(lambda handle, part: lib.comm_split(handle, number, order, part))

    def subgroup(self, ranks: Sequence[int]) -> Optional["Communicator"]:
        """A communicator of these ranks, in this order; None for those who give an empty list. Collective:
        all ranks call it, those of a list with the same list; lists share no rank."""
        listed = [_types.integer("a rank of ranks", r) for r in ranks]
        array = (ctypes.c_int32 * max(len(listed), 1))(*listed)
        return self._part(lambda handle, part: lib.comm_group(handle, array, len(listed), part))

    def shrink(self, timeout: Optional[float] = None) -> "Communicator":
        """A communicator of those that are left of this one, which is broken by it if it is not broken yet.

        Each rank that lives calls it; all that succeed have the same members, in the order of their ranks, which were
        called previous_ranks[r] here. Those that may still come are waited for half of the time (seconds; None: the
        setting init_timeout). PartitionError: too few have come, or the others have gone on without this rank. This
        communicator is still to be destroyed.
        """
        ranks = (ctypes.c_int32 * self._size)()
        nanoseconds = _time(timeout)
        smaller = self._remade(lambda handle, made, error: lib.comm_shrink(handle, nanoseconds, made, ranks, error))
        smaller.previous_ranks = list(ranks[:smaller.size])
        return smaller

    def grow(self, id: Optional[bytes], size: int, timeout: Optional[float] = None) -> "Communicator":
        """A communicator of size ranks: these, with their numbers, and newcomers, which make theirs with init(id=id,
        size=size) and a rank from this size up. Collective; id, of unique_id() on rank 0, counts there alone. This
        communicator stays as it is, also if the newcomers do not come in time."""
        given = None
        if self._rank == 0:
            if id is None or len(id) != ctypes.sizeof(CUniqueId):
                raise InvalidArgumentError("rank 0 gives the id: %d bytes that unique_id() made" % ctypes.sizeof(CUniqueId))
            given = _byref(CUniqueId.from_buffer_copy(id))
        number, nanoseconds = _types.integer("size", size), _time(timeout)
        return self._remade(lambda handle, made, error: lib.comm_grow(handle, given, number, nanoseconds, made, error))

    # ---- memory ----

    def alloc(self, nbytes: int) -> memoryview:
        """New memory, zeroed, that the peers on this host can reach: the fastest to reduce from.

        It goes back when the last object that uses it is gone, even after the communicator. For torch:
        torch.frombuffer(comm.alloc(4 * n), dtype=torch.float32).
        """
        return _memory.alloc(self._state, nbytes)

    def empty(self, shape: Any, dtype: Any = "float32") -> Any:
        """A new numpy array, of zeros, in memory of alloc()."""
        return _memory.empty(self._state, shape, dtype)

    # ---- its end ----

    def abort(self) -> None:
        """Breaks the communicator here and at every peer. Any thread may call it."""
        self._state.check(lib.comm_abort(self._state.live()))

    def destroy(self) -> None:
        """Says goodbye to the peers and frees everything. Again is fine. Raises what had failed."""
        status = self._state.destroy()
        self._finalizer.detach()
        for loop, poller in self._pollers.items():
            if not loop.is_closed():          # who awaits is told, and the descriptor is not watched any more
                loop.call_soon_threadsafe(poller.look)
        self._state.interrupt.raise_what_came()
        if status < 0:
            raise from_status(status)

    # ---- inside ----

    def _number(self, function: Callable[[int], int]) -> int:
        value = function(self._state.live())
        if value < 0:
            raise from_status(value)
        return value

    def _quick_allreduce(self, array: Any, found: Tuple[Any, int, int], operator: int) -> Any:
        """What _reduce, start and block do, without what a plain numpy array in place has no need of."""
        state, (holder, address, type_) = self._state, found
        request = new_request(holder, array)
        running = state.running
        with state.lock:
            handle = state.live()
            if running:
                state.end_orphans()
            running[id(request)] = request
            status = _start_allreduce(handle, address, address, array.size, type_, operator, _byref(request))
            if status < 0:
                del running[id(request)]
                raise state.failure(status)
        if not state.advance(request, FIRST_SLICE_NS):
            state.block(request, self._timeout)
        return array

    def _part(self, make: Callable[[int, Any], int]) -> Optional["Communicator"]:
        """split and subgroup. Who gives up breaks the communicator: the others wait for this rank."""
        self._ungrouped()
        state, pointer = self._state, ctypes.c_void_p()
        with state.lock:
            handle = state.live()
            state.check(make(handle, ctypes.byref(pointer)))
        if not pointer.value:
            return None
        return Communicator(pointer.value, state.interrupt, state.callbacks, self._timeout)

    def _remade(self, make: Callable[[int, Any, Any], int]) -> "Communicator":
        self._ungrouped()
        state, pointer, error = self._state, ctypes.c_void_p(), new_c_error()
        with state.lock:
            status = make(state.live(), _byref(pointer), _byref(error))
        if status == EINTERRUPTED:
            state.interrupt.raise_what_came()
        if status < 0:
            raise from_status(status, error)
        return Communicator(pointer.value or 0, state.interrupt, state.callbacks, self._timeout)


def read_json(write: Callable[[Any, int], int], failure: Callable[[int], BaseException] = from_status) -> Any:
    room = 1 << 16
    while True:
        text = ctypes.create_string_buffer(room)
        need = write(text, room)
        if need < 0:
            raise failure(need)
        if need < room:
            return json.loads(text.value)
        room = need + 1
