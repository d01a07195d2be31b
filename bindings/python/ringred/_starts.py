# SPDX-License-Identifier: Apache-2.0
"""How each call begins: from what the caller gives to what the library takes. What cannot be right is refused here, in
words, before anything has begun."""
import ctypes
import dataclasses
import threading
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from . import _buffers, _library, _types
from ._buffers import Call, Memory
from ._errors import ArgumentTypeError, InvalidArgumentError
from ._library import lib
from ._operators import Operator, operators
from ._work import GroupedWork, Request, State, new_request

Op = Union[str, Operator]

_byref = ctypes.byref


@dataclasses.dataclass(frozen=True)
class Message:
    """What a receive got: from whom, with which tag, and how many elements of the array it filled."""

    source: int
    tag: int
    count: int


class Group:
    """Calls of allreduce that are made as one: see Communicator.group()."""

    def __init__(self, comm: "Starts"):
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
        try:
            if kind is None and calls:
                self._run(calls)
        finally:
            for call in calls:
                if call[4] is not None:
                    call[4].leave()

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


class Starts:
    """What a communicator has to begin calls with; the calls themselves are in _communicator.py."""

    _state: State
    _rank: int
    _size: int
    _timeout: Optional[float]                 # of blocking calls, in seconds
    _group: Optional[Group]

    def _my_group(self) -> Optional[Group]:
        """The group that this thread is in."""
        return self._group if self._group is not None and self._group.is_mine() else None

    def _ungrouped(self) -> None:
        if self._my_group() is not None:
            raise InvalidArgumentError("inside comm.group() there are allreduces only: their order is not the text's")

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
            counts = list(counts)
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
        arrays = list(arrays)
        memories = [_buffers.read(array, "arrays[%d]" % i, dtype) for i, array in enumerate(arrays)]
        if root == self._rank:
            places = [call.source(m) for m in memories]
        else:
            _buffers.disjoint(memories)
            places = [call.target(m) for m in memories]
        call.result = arrays
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
