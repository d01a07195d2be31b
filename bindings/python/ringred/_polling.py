# SPDX-License-Identifier: Apache-2.0
"""`await work`: works that tasks of an asyncio loop wait for.

The loop waits for the library's descriptor, which becomes readable when there is something to do; where a
loop has no readers, a timer of its own looks.
"""
import asyncio
from typing import Any, Dict

from ._library import lib

FIRST_DELAY_S, LAST_DELAY_S = 0.0005, 0.02    # of the timer


class Poller:
    """The works of one communicator that one loop waits for."""

    def __init__(self, comm: Any, loop: asyncio.AbstractEventLoop):
        self._state, self._loop = comm._state, loop
        self._waiting: Dict["asyncio.Future[None]", Any] = {}
        self._descriptor = -1
        self._timer: Any = None
        self._delay = FIRST_DELAY_S

    def watch(self, work: Any) -> "asyncio.Future[None]":
        """A future that is done when the work has ended, in whatever way; work.wait() then tells."""
        future = self._loop.create_future()
        self._waiting[future] = work
        if len(self._waiting) == 1:
            self._begin()
        self._loop.call_soon(self.look)
        return future

    def _begin(self) -> None:
        self._delay = FIRST_DELAY_S
        if self._state.handle is None:
            return
        descriptor = lib.comm_descriptor(self._state.handle)
        if descriptor < 0:
            return
        try:
            self._loop.add_reader(descriptor, self.look)
        except (NotImplementedError, OSError, ValueError):
            return
        self._descriptor = descriptor

    def _again(self) -> None:
        if self._timer is None and self._descriptor < 0:
            self._timer = self._loop.call_later(self._delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._delay = min(2 * self._delay, LAST_DELAY_S)
        self.look()

    def look(self) -> None:
        """Tells the futures of works that have ended; one that is over may have moved another."""
        ended = True
        while ended and self._waiting:
            if self._descriptor >= 0 and self._state.handle is not None:
                lib.poll(self._state.handle)  # arms the descriptor; a failure shows in the tests
            ended = False
            for future, work in list(self._waiting.items()):
                if future.done() or self._has_ended(work):
                    del self._waiting[future]
                    ended = True
                    if not future.done():
                        future.set_result(None)
        if self._waiting:
            self._again()
        else:
            self._end()

    @staticmethod
    def _has_ended(work: Any) -> bool:
        try:
            return work.test()
        except Exception:                     # work.wait() raises it again, to the task
            return True

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1


def poller(comm: Any) -> Poller:
    """The running loop's own; loops that are closed are forgotten."""
    loop = asyncio.get_running_loop()
    pollers = comm._pollers
    for other in [other for other in pollers if other.is_closed()]:
        del pollers[other]
    if loop not in pollers:
        pollers[loop] = Poller(comm, loop)
    return pollers[loop]
