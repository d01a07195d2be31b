# SPDX-License-Identifier: Apache-2.0
"""What reductions do with two elements: the library's operators, and the caller's own."""
import ctypes
from typing import Any, Callable, Dict, Optional

from . import _types
from ._errors import InvalidArgumentError
from ._library import OperatorFunction, lib

operators: Dict[str, int] = {
    name: 257 + i
    for i, name in enumerate(("sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"))
}


class Operator:
    """What Communicator.op() made; for op= of its reductions."""

    __slots__ = ("state", "number", "itemsize", "failure", "callback", "_function")

    def __init__(self, state: Any, function: Callable[[memoryview, memoryview, memoryview], None], itemsize: int):
        self.state, self.itemsize, self._function = state, itemsize, function
        self.number = 0
        self.failure: Optional[BaseException] = None
        self.callback = OperatorFunction(self._join)

    def _join(self, _: Any, left: int, right: int, result: int, count: int) -> None:
        """By the library. What the function raises is kept: the waits of this rank raise it."""
        try:
            size = count * self.itemsize
            views = [memoryview((ctypes.c_ubyte * size).from_address(at)).cast("B") for at in (left, right, result)]
            self._function(views[0].toreadonly(), views[1].toreadonly(), views[2])
        except BaseException as failure:
            self.failure = failure


def make_operator(state: Any, function: Callable[[memoryview, memoryview, memoryview], None],
                  itemsize: int) -> Operator:
    if not callable(function):
        raise InvalidArgumentError("function is a %s, which cannot be called" % type(function).__name__)
    size = _types.integer("itemsize", itemsize, 1)
    operator, number = Operator(state, function, size), ctypes.c_int32()
    with state.lock:
        state.callbacks.append(operator.callback)
        state.check(lib.op_create(state.live(), operator.callback, None, operator.itemsize, ctypes.byref(number)))
    operator.number = number.value
    return operator
