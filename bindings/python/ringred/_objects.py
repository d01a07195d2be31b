# SPDX-License-Identifier: Apache-2.0
"""Objects between ranks, by pickle. A rank whose object cannot be pickled says so to the others, which then
raise instead of waiting for it."""
import array
import pickle
from typing import Any, List, Optional, Sequence, Tuple

from ._errors import Error, InvalidArgumentError

_NONE = -1                                    # as a length: there is nothing, since pickling failed


def _pack(what: Any) -> Tuple[bytes, int, Optional[BaseException]]:
    try:
        data = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        return data, len(data), None
    except Exception as failure:
        return b"", _NONE, failure


def _check(lengths: Sequence[int], failure: Optional[BaseException]) -> None:
    if failure is not None:
        raise failure
    failed = [r for r, length in enumerate(lengths) if length < 0]
    if failed:
        raise Error("the object of rank %s could not be pickled there" % ", ".join(map(str, failed)), failed[0])


def _unpack(data: Any, lengths: Sequence[int]) -> List[Any]:
    objects, at = [], 0
    with memoryview(data) as view:
        for length in lengths:
            objects.append(pickle.loads(view[at:at + length]))
            at += length
    return objects


def broadcast(comm: Any, what: Any, root: int) -> Any:
    data, length, failure = _pack(what) if comm.rank == root else (b"", 0, None)
    lengths = array.array("q", [length])
    comm.broadcast(lengths, root)
    if lengths[0] < 0:
        _check([lengths[0] if r == root else 0 for r in range(comm.size)], failure)
    everybodys = data if comm.rank == root else bytearray(lengths[0])
    comm.broadcast(everybodys, root)
    return what if comm.rank == root else _unpack(everybodys, lengths)[0]


def _lengths(comm: Any, length: int) -> List[int]:
    lengths = array.array("q", bytes(8 * comm.size))
    comm.allgather(array.array("q", [length]), lengths)
    return lengths.tolist()


def allgather(comm: Any, what: Any) -> List[Any]:
    data, length, failure = _pack(what)
    lengths = _lengths(comm, length)
    _check(lengths, failure)
    everything = bytearray(sum(lengths))
    comm.allgatherv(data, lengths, everything)
    return _unpack(everything, lengths)


def gather(comm: Any, what: Any, root: int) -> Optional[List[Any]]:
    data, length, failure = _pack(what)
    lengths = _lengths(comm, length)
    _check(lengths, failure)
    if comm.rank != root:
        comm.gatherv(data, root=root)
        return None
    everything = bytearray(sum(lengths))
    comm.gatherv(data, lengths, everything, root)
    return _unpack(everything, lengths)


def scatter(comm: Any, what: Optional[Sequence[Any]], root: int) -> Any:
    lengths, packed, failure = array.array("q", bytes(8 * comm.size)), [], None
    if comm.rank == root:
        try:
            if what is None or len(what) != comm.size:
                raise InvalidArgumentError("the root gives one object for each of %d ranks" % comm.size)
            packed = [pickle.dumps(one, pickle.HIGHEST_PROTOCOL) for one in what]
            lengths = array.array("q", map(len, packed))
        except Exception as raised:
            failure, lengths[root] = raised, _NONE
    comm.broadcast(lengths, root)
    _check(lengths, failure)
    mine = bytearray(lengths[comm.rank])
    if comm.rank == root:
        comm.scatterv(b"".join(packed), lengths, mine, root)
    else:
        comm.scatterv(out=mine, root=root)
    return _unpack(mine, [len(mine)])[0]
