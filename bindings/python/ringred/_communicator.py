# SPDX-License-Identifier: Apache-2.0
"""Communicators: what the ranks of a job do together."""
import ctypes
import dataclasses
import json
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _buffers, _library, _memory, _objects, _types
from ._buffers import Call, Memory
from ._errors import ArgumentTypeError, InvalidArgumentError, from_status
from ._interrupts import Interrupt
from ._library import lib
from ._operators import Operator, make_operator, operators
from ._work import FIRST_SLICE_NS, GroupedWork, Request, State, Work, new_request

ANY_SOURCE = -1
_NO_COLOR = -1
Op = Union[str, Operator]

_quick, _start_allreduce, _byref = _buffers.quick, lib.allreduce_start, ctypes.byref


@dataclasses.dataclass(frozen=True)
class Message:
    """What a receive got: from whom, with which tag, and how many elements of the array it filled."""

    source: int
    tag: int
    count: int


class Group:
    """Calls of allreduce that are made as one: see Communicator.group()."""

    def __init__(self, comm: "Communicator"):
        self._comm = comm
        self._thread = threading.get_ident()
        self._calls: List[Tuple[Any, Any, Op, Any, Optional[GroupedWork]]] = []

    def __enter__(self) -> "Group":
        if self._comm._group is not None:
            raise InvalidArgumentError("there is a group already, and one ends before the next begins")
        self._comm._group = self
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._comm._group = None
        calls, self._calls = self._calls, []
        if kind is None and calls:
            self._run(calls)

    def is_mine(self) -> bool:
        return self._thread == threading.get_ident()

    def add(self, array: Any, out: Any, op: Op, dtype: Any, asynchronous: bool) -> Any:
        result = array if out is None else out
        work = GroupedWork(self._comm, result) if asynchronous else None
        self._calls.append((array, out, op, dtype, work))
        return work if asynchronous else result

    def _run(self, every: List[Tuple[Any, Any, Op, Any, Optional[GroupedWork]]]) -> None:
        """One list for each operator, in the order in which they came; all are begun before one is waited for."""
        comm = self._comm
        begun: List[Tuple[Request, bool]] = []
        for op in dict.fromkeys(call[2] for call in every):
            calls = [call for call in every if call[2] == op]
            request = comm._reduce_list("allreduce", [c[0] for c in calls], [c[1] for c in calls], op, 0,
                                        [c[3] for c in calls])
            for call in calls:
                if call[4] is not None:
                    call[4].begin(request)
            begun.append((request, any(call[4] is None for call in calls)))
        for request, blocks in begun:
            if blocks:
                comm._block(request)


class Communicator:
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
        self._rank: int = lib.comm_rank(handle)
        self._size: int = lib.comm_size(handle)

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
        handle = self._state.live()
        name = collective.encode() if collective else None
        return read_json(lambda text, room: lib.comm_describe(handle, name, nbytes, text, room),
                         self._state.failure)

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

    # ---- inside: starts ----

    def _number(self, function: Callable[[int], int]) -> int:
        value = function(self._state.live())
        if value < 0:
            raise from_status(value)
        return value

    def _my_group(self) -> Optional[Group]:
        """The group that this thread is in."""
        return self._group if self._group is not None and self._group.is_mine() else None

    def _ungrouped(self) -> None:
        if self._my_group() is not None:
            raise InvalidArgumentError("inside comm.group() there are allreduces only: their order is not the text's")

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

    def _begin(self, call: Optional[Call], function: Any, *arguments: Any) -> Request:
        self._ungrouped()
        request = new_request(call, call.result if call else None, call.finish if call else None)
        return self._state.start(request, function, *arguments)

    def _block(self, request: Request) -> Any:
        return self._state.block(request, self._timeout)

    def _root(self, root: Any) -> int:
        if not hasattr(root, "__index__") or not 0 <= root.__index__() < self._size:
            raise InvalidArgumentError("root is %r; ranks are 0 to %d" % (root, self._size - 1))
        return root.__index__()

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

    # ---- inside: each collective ----

    def _operate(self, op: Op, memory: Memory) -> Tuple[int, int, int]:
        """What a reduction's call says: operator, type, and how many elements of the caller's are one of it."""
        number = operators.get(op) if isinstance(op, str) else None
        if number is not None:
            return number, memory.type.number, 1
        if not isinstance(op, Operator):
            raise InvalidArgumentError("op is %r; there are %s, and what op() makes" % (op, ", ".join(operators)))
        if op.state is not self._state:
            raise InvalidArgumentError("op was made by another communicator")
        if op.itemsize % memory.itemsize:
            raise InvalidArgumentError(
                "%s has elements of %d bytes, of which the operator's %d bytes are no whole number"
                % (memory.name, memory.itemsize, op.itemsize))
        return op.number, _types.BYTES.number, op.itemsize // memory.itemsize

    @staticmethod
    def _whole(name: str, count: int, unit: int) -> int:
        if count % unit:
            raise InvalidArgumentError("%s has %d elements; the operator takes %d at a time" % (name, count, unit))
        return count // unit

    @staticmethod
    def _same_type(a: Memory, b: Memory) -> None:
        if a.type is not b.type:
            raise InvalidArgumentError(
                "%s has elements of %s but %s of %s" % (a.name, a.type.name, b.name, b.type.name))

    def _reduce(self, what: str, array: Any, out: Any, op: Op, root: Any, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        number, type_, unit = self._operate(op, source)
        count = self._whole("array", source.count, unit)
        root = self._root(root)
        if what == "reduce" and root != self._rank:
            send, recv = call.source(source), None
        elif out is None or out is array:
            send = recv = call.target(source)
            call.result = array
        else:
            target = _buffers.read(out, "out", dtype)
            self._same_type(source, target)
            if target.shape != source.shape:
                raise InvalidArgumentError("array has shape %s but out %s" % (source.shape, target.shape))
            recv = call.target(target)
            send = call.apart(source, recv, recv + target.nbytes, recv)
            call.result = out
        arguments = (send, recv, count, type_, number) + ((root,) if what == "reduce" else ())
        return self._operated(op, self._begin(call, getattr(lib, what + "_start"), *arguments))

    @staticmethod
    def _operated(op: Op, request: Request) -> Request:
        if isinstance(op, Operator):
            request.operator = op
        return request

    def _output(self, call: Call, source: Memory, out: Any, count: int, shape: Tuple[int, ...],
                dtype: Any) -> Memory:
        """out, of which `count` elements are needed, or a new array of this shape."""
        result = _buffers.new_like(source, shape) if out is None else out
        target = _buffers.read(result, "out", source.type.name if out is None else dtype)
        self._same_type(source, target)
        if target.count != count:
            raise InvalidArgumentError("out has %d elements; the result has %d" % (target.count, count))
        call.result = result
        return target

    def _part_shape(self, memory: Memory, out: Any) -> Tuple[int, ...]:
        """The shape of one of `size` parts along the first axis; with an out, only the count is needed."""
        if out is not None and memory.count % self._size == 0:
            return (memory.count // self._size,)
        if not memory.shape or memory.shape[0] != self._size:
            raise InvalidArgumentError(
                "array has shape %s; give one of %d parts, array[r] for rank r (or out, and %d equal parts)"
                % (memory.shape, self._size, self._size))
        return memory.shape[1:]

    def _reduce_scatter(self, array: Any, out: Any, op: Op, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        number, type_, unit = self._operate(op, source)
        shape = self._part_shape(source, out)
        part = source.count // self._size
        target = self._output(call, source, out, part, shape, dtype)
        recv = call.target(target)
        send = self._around(call, source, target, recv, self._rank * part * source.itemsize)
        arguments = (send, recv, self._whole("out", part, unit), type_, number)
        return self._operated(op, self._begin(call, lib.reduce_scatter_start, *arguments))

    @staticmethod
    def _around(call: Call, source: Memory, target: Memory, recv: int, own: int) -> int:
        """Where the source lies that may have the target as its part at byte `own`, and else is apart."""
        address = call.source(source)
        if not (address < recv + target.nbytes and recv < address + source.nbytes) or recv == address + own:
            return address
        return call.apart(source, recv, recv + target.nbytes)

    def _counts(self, name: str, counts: Any, unit: int = 1) -> List[int]:
        """One count for each rank, in the library's elements."""
        try:
            listed = [int(c.__index__()) for c in counts]
        except (TypeError, AttributeError):
            raise ArgumentTypeError("%s is %r; a number of elements for each rank is needed" % (name, counts)) from None
        if len(listed) != self._size or any(c < 0 for c in listed):
            raise InvalidArgumentError("%s is %r; %d numbers from 0 up are needed" % (name, counts, self._size))
        return [self._whole("a part", c, unit) for c in listed] if unit != 1 else listed

    def _places(self, name: str, places: Any, counts: List[int], memory: Memory, writes: bool) -> List[int]:
        """Where each part begins, in elements; all of it has to be inside the array."""
        if places is None:
            listed = [sum(counts[:r]) for r in range(self._size)]
        else:
            listed = self._counts(name, places)
        for at, count in zip(listed, counts):
            if at + count > memory.count:
                raise InvalidArgumentError(
                    "%s has %d elements; a part of %d at %d does not fit" % (memory.name, memory.count, count, at))
        used = sorted((at, count) for at, count in zip(listed, counts) if count)
        if writes and any(a[0] + a[1] > b[0] for a, b in zip(used, used[1:])):
            raise InvalidArgumentError("%s is %r: parts overlap, and results are written to them" % (name, listed))
        return listed

    def _sizes(self, numbers: List[int]) -> Any:
        return (ctypes.c_size_t * self._size)(*numbers)

    def _reduce_scatterv(self, array: Any, counts: Sequence[int], out: Any, op: Op, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        number, type_, unit = self._operate(op, source)
        listed = self._counts("counts", counts)
        if sum(listed) != source.count:
            raise InvalidArgumentError("array has %d elements; counts are %d" % (source.count, sum(listed)))
        mine = listed[self._rank]
        target = self._output(call, source, out, mine, (mine,), dtype)
        recv = call.target(target)
        send = self._around(call, source, target, recv, sum(listed[:self._rank]) * source.itemsize)
        sizes = self._sizes(self._counts("counts", counts, unit))
        return self._operated(op, self._begin(call, lib.reduce_scatterv_start, send, recv, sizes, type_, number))

    def _broadcast(self, array: Any, root: Any, dtype: Any) -> Request:
        call, root = Call(), self._root(root)
        memory = _buffers.read(array, "array", dtype)
        at = call.source(memory) if root == self._rank else call.target(memory)
        call.result = array
        return self._begin(call, lib.broadcast_start, at, at, memory.count, memory.type.number, root)

    def _gather(self, what: str, array: Any, out: Any, root: Any, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        rooted = () if root is None else (self._root(root),)
        count, type_ = source.count, source.type.number
        if rooted and rooted[0] != self._rank:
            return self._begin(call, lib.gather_start, call.source(source), None, count, type_, *rooted)
        target = self._output(call, source, out, count * self._size, (self._size, *source.shape), dtype)
        recv = call.target(target)
        send = call.apart(source, recv, recv + target.nbytes, recv + self._rank * source.nbytes)
        return self._begin(call, getattr(lib, what + "_start"), send, recv, count, type_, *rooted)

    def _scatter(self, array: Any, out: Any, root: Any, dtype: Any) -> Request:
        call, root = Call(), self._root(root)
        if root != self._rank:
            target = _buffers.read(_needed(out, "out"), "out", dtype)
            recv, call.result = call.target(target), out
            return self._begin(call, lib.scatter_start, None, recv, target.count, target.type.number, root)
        source = _buffers.read(_needed(array, "array"), "array", dtype)
        shape, part = self._part_shape(source, out), source.count // self._size
        target = self._output(call, source, out, part, shape, dtype)
        recv = call.target(target)
        send = self._around(call, source, target, recv, self._rank * part * source.itemsize)
        return self._begin(call, lib.scatter_start, send, recv, part, source.type.number, root)

    def _alltoall(self, array: Any, out: Any, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        self._part_shape(source, out)
        target = self._output(call, source, out, source.count, source.shape, dtype)
        recv = call.target(target)
        send = call.apart(source, recv, recv + target.nbytes)
        return self._begin(call, lib.alltoall_start, send, recv, source.count // self._size, source.type.number)

    def _gatherv(self, what: str, array: Any, counts: Any, out: Any, root: Any, places: Any,
                 dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        rooted = () if root is None else (self._root(root),)
        if rooted and rooted[0] != self._rank:
            return self._begin(call, lib.gatherv_start, call.source(source), source.count, None, None, None,
                               source.type.number, *rooted)
        listed = self._counts("counts", counts)
        if out is None and places is not None:
            raise InvalidArgumentError("places says where parts go in out, which is missing")
        result = _buffers.new_like(source, (sum(listed),)) if out is None else out
        target = _buffers.read(result, "out", source.type.name if out is None else dtype)
        self._same_type(source, target)
        at = self._places("places", places, listed, target, True)
        recv, call.result = call.target(target), result
        send = call.apart(source, recv, recv + target.nbytes, recv + at[self._rank] * source.itemsize)
        return self._begin(call, getattr(lib, what + "_start"), send, source.count, recv, self._sizes(listed),
                           self._sizes(at), source.type.number, *rooted)

    def _scatterv(self, array: Any, counts: Any, out: Any, root: Any, places: Any, dtype: Any) -> Request:
        call, root = Call(), self._root(root)
        if root != self._rank:
            target = _buffers.read(_needed(out, "out"), "out", dtype)
            recv, call.result = call.target(target), out
            return self._begin(call, lib.scatterv_start, None, None, None, recv, target.count,
                               target.type.number, root)
        source = _buffers.read(_needed(array, "array"), "array", dtype)
        listed = self._counts("counts", counts)
        at = self._places("places", places, listed, source, False)
        mine = listed[self._rank]
        target = self._output(call, source, out, mine, (mine,), dtype)
        recv = call.target(target)
        send = self._around(call, source, target, recv, at[self._rank] * source.itemsize)
        return self._begin(call, lib.scatterv_start, send, self._sizes(listed), self._sizes(at), recv, mine,
                           source.type.number, root)

    def _alltoallv(self, array: Any, send_counts: Any, recv_counts: Any, out: Any, send_places: Any,
                   recv_places: Any, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        sends, recvs = self._counts("send_counts", send_counts), self._counts("recv_counts", recv_counts)
        if out is None and recv_places is not None:
            raise InvalidArgumentError("recv_places says where parts go in out, which is missing")
        result = _buffers.new_like(source, (sum(recvs),)) if out is None else out
        target = _buffers.read(result, "out", source.type.name if out is None else dtype)
        self._same_type(source, target)
        of = self._places("send_places", send_places, sends, source, False)
        to = self._places("recv_places", recv_places, recvs, target, True)
        recv, call.result = call.target(target), result
        send = call.apart(source, recv, recv + target.nbytes)
        return self._begin(call, lib.alltoallv_start, send, self._sizes(sends), self._sizes(of), recv,
                           self._sizes(recvs), self._sizes(to), source.type.number)

    def _reduce_list(self, what: str, arrays: Sequence[Any], outs: Optional[Sequence[Any]], op: Op, root: Any,
                     dtypes: Any) -> Request:
        number = operators.get(op) if isinstance(op, str) else None
        if number is None:
            raise InvalidArgumentError("op is %r; lists take %s" % (op, ", ".join(operators)))
        root = self._root(root)
        arrays, outs = list(arrays), [None] * len(arrays) if outs is None else list(outs)
        if len(outs) != len(arrays):
            raise InvalidArgumentError("there are %d arrays but %d outs" % (len(arrays), len(outs)))
        call, writes = Call(), what == "allreduce" or root == self._rank
        rows, targets, results = [], [], []
        for i, (array, out) in enumerate(zip(arrays, outs)):
            dtype = dtypes[i] if isinstance(dtypes, list) else dtypes
            row, target = self._list_row(call, i, array, out, dtype, writes)
            rows.append(row)
            targets.append(target)
            results.append(array if out is None else out)
        if writes:
            _buffers.disjoint(targets)
            call.result = results
        arguments = _columns(rows) + (number,) + ((root,) if what == "reduce" else ())
        return self._begin(call, getattr(lib, what + "_list_start"), *arguments)

    def _list_row(self, call: Call, i: int, array: Any, out: Any, dtype: Any,
                  writes: bool) -> Tuple[Tuple[Any, Any, int, int], Memory]:
        source = _buffers.read(array, "arrays[%d]" % i, dtype)
        if not writes:
            return (call.source(source), None, source.count, source.type.number), source
        if out is None or out is array:
            at = call.target(source)
            return (at, at, source.count, source.type.number), source
        target = _buffers.read(out, "outs[%d]" % i, dtype)
        self._same_type(source, target)
        if target.shape != source.shape:
            raise InvalidArgumentError("%s has shape %s but %s %s" % (source.name, source.shape, target.name,
                                                                     target.shape))
        recv = call.target(target)
        send = call.apart(source, recv, recv + target.nbytes, recv)
        return (send, recv, source.count, source.type.number), target

    def _broadcast_list(self, arrays: Sequence[Any], root: Any, dtype: Any) -> Request:
        call, root = Call(), self._root(root)
        memories = [_buffers.read(array, "arrays[%d]" % i, dtype) for i, array in enumerate(arrays)]
        if root == self._rank:
            places = [call.source(m) for m in memories]
        else:
            _buffers.disjoint(memories)
            places = [call.target(m) for m in memories]
        call.result = list(arrays)
        rows = [(at, at, m.count, m.type.number) for at, m in zip(places, memories)]
        return self._begin(call, lib.broadcast_list_start, *_columns(rows), root)

    def _send(self, array: Any, dest: int, tag: int, dtype: Any) -> Request:
        call, source = Call(), _buffers.read(array, "array", dtype)
        return self._begin(call, lib.send_start, call.source(source), source.count, source.type.number,
                           _types.integer("dest", dest), _types.integer("tag", tag))

    def _recv(self, array: Any, source: int, tag: int, dtype: Any) -> Request:
        call, target = Call(), _buffers.read(array, "array", dtype)
        source, tag = _types.integer("source", source), _types.integer("tag", tag)
        came, recv = _library.CMessage(), call.target(target)
        lib.message_init(_byref(came), ctypes.sizeof(came))
        self._ungrouped()
        request = new_request((call, came), None)

        def finish() -> None:
            call.finish()
            request.result = Message(came.source, came.tag, came.count)

        request.finish = finish
        return self._state.start(request, lib.recv_start, recv, target.count, target.type.number, source, tag,
                                 _byref(came))


def _needed(what: Any, name: str) -> Any:
    if what is None:
        raise ArgumentTypeError("%s is missing: this rank needs one" % name)
    return what


def _columns(rows: List[Tuple[Any, Any, int, int]]) -> Tuple[Any, ...]:
    """The arrays that a list call takes: send, recv, counts, types, and their length."""
    n = len(rows)
    sends, recvs, counts, types = zip(*rows) if rows else ((), (), (), ())
    return ((ctypes.c_void_p * n)(*sends), (ctypes.c_void_p * n)(*recvs), (ctypes.c_size_t * n)(*counts),
            (ctypes.c_int32 * n)(*types), n)


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
