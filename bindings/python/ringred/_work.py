# SPDX-License-Identifier: Apache-2.0
"""Operations under way: their memory, their end, and who waits for it.

No wait sleeps inside the library for longer than a slice, so that Ctrl-C and other signal handlers of
Python run. The first slice is long enough for most calls to need no second.
"""
import ctypes
import numbers
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, Generator, List, Optional

from ._errors import (
    EINTERRUPTED, OK, PENDING, AbortedError, ArgumentTypeError, BusyError, InvalidArgumentError, TimeoutError,
    from_status, new_c_error,
)
from ._interrupts import Interrupt
from ._library import lib

FIRST_SLICE_NS = 1_000_000
LAST_SLICE_NS = 50_000_000
LONGEST_S = 1e9                               # of a wait with a limit: more is for ever
ABORT_S = 0.2                                 # a destroyer lets others finish their slices for so long
LEAVE_S = 5.0                                 # and, once it has aborted them, for so long

_wait, _byref = lib.wait, ctypes.byref


class Request(ctypes.c_void_p):
    """A request of the library (0 once it has ended), and the memory that it uses until then."""

    finish: Optional[Callable[[], None]] = None  # at its success, before anybody is told
    result: Any = None
    failure: Optional[BaseException] = None
    owner: Any = None                         # a weak reference to its Work
    told: Any = None                          # [what the library said last]: behind the end it is not asked again
    operator: Any = None                      # a function of the caller's that may fail
    held: Any = None
    lock: Any = None

    @property
    def is_orphan(self) -> bool:
        """Nobody may come to end it but the communicator."""
        return self.owner is None or self.owner() is None


def new_request(held: Any, result: Any, finish: Optional[Callable[[], None]] = None) -> Request:
    request = Request()
    request.held, request.result, request.finish = held, result, finish
    request.lock = threading.RLock()          # a signal's handler may come back to what it interrupted
    request.told = [PENDING]
    return request


_states: "weakref.WeakSet[State]" = weakref.WeakSet()


def _in_child() -> None:
    """Another thread of the parent may hold what this one copied: it is not there to let go."""
    for state in list(_states):
        state.lock = threading.RLock()
        for request in state.running.values():
            request.lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)


class State:
    """What is left to clean up when a communicator is dropped: shared with its finalizer."""

    def __init__(self, handle: int, callbacks: List[Any], interrupt: Interrupt):
        self.handle: Optional[int] = handle
        self.pid = os.getpid()
        self.callbacks = callbacks            # the library may call them for as long as handle lives
        self.interrupt = interrupt
        self.running: Dict[int, Request] = {}
        self.lock = threading.RLock()         # starts, and whatever else one thread at a time may do
        self.closing = False
        _states.add(self)

    # ---- failures ----

    def live(self) -> int:
        handle = self.handle
        if handle is None or self.closing:
            raise InvalidArgumentError("the communicator was destroyed")
        return handle

    def failure(self, status: int) -> BaseException:
        error = new_c_error()
        if self.handle is not None:
            lib.comm_error(self.handle, _byref(error))
        return from_status(status, error)

    def check(self, status: int) -> None:
        if status < 0:
            if status == EINTERRUPTED:
                self.interrupt.raise_what_came()
            raise self.failure(status)

    # ---- starts ----

    def start(self, request: Request, function: Any, *arguments: Any) -> Request:
        """Begins an operation. It is known before it begins: whatever interrupts us, it is held."""
        running = self.running
        with self.lock:
            handle = self.live()
            if running:
                self.end_orphans()
            running[id(request)] = request
            status = function(handle, *arguments, _byref(request))
            if status < 0:
                del running[id(request)]
                raise self.failure(status)
        return request

    def end_orphans(self) -> None:
        for request in list(self.running.values()):  # in one step: other threads end theirs meanwhile
            if not request.is_orphan:
                continue
            if not request.value:             # it was never started
                self.running.pop(id(request), None)
                continue
            try:
                self.advance(request, 0)
            except Exception as failure:
                if failure is not request.failure:
                    raise                     # a signal's handler did; else nobody is there to be told

    # ---- waits ----

    def advance(self, request: Request, slice_ns: int) -> bool:
        """Moves a request for a slice of time; whether it has ended. Raises what it failed with."""
        if self.closing and request.value:
            raise AbortedError("the communicator is being destroyed before the operation has ended")
        if not request.lock.acquire(timeout=slice_ns / 1e9):
            return False                      # another thread waits for it
        try:
            ended = not request.value or self.ask(request, slice_ns)
            if request.failure is not None:
                raise request.failure
            return ended
        finally:
            request.lock.release()

    def ask(self, request: Request, slice_ns: int) -> bool:
        """Whether it has ended. A signal's handler may raise behind each call here, or come back to this request, which
        the library frees as it tells the end: the answer is kept inside one assignment, and what follows it may be
        done again."""
        told = request.told
        if told[0] == PENDING:
            told[:] = map(_wait, (request,), (slice_ns,))
        operator = request.operator
        if operator is not None and operator.failure is not None and request.failure is None:
            self.give_up(request, operator.failure)
        if told[0] == PENDING:                # anything else has ended it
            return False
        if request.value:
            self.end(request, told[0])
        return True

    def end(self, request: Request, status: int) -> None:
        """After the library has freed it."""
        finish = request.finish
        if status < 0:
            request.failure = request.failure or self.failure(status)
        elif finish is not None and request.failure is None:
            finish()
        request.held = request.finish = None
        self.running.pop(id(request), None)
        request.value = None                  # the last: until then, whoever comes does all of this

    def give_up(self, request: Request, failure: BaseException) -> None:
        """The caller's operator has failed: no rank's result is of use any more."""
        if self.handle is not None:
            lib.comm_abort(self.handle)
        request.failure = failure

    def wait(self, request: Request, timeout: Optional[float]) -> bool:
        """Waits in slices; whether it has ended in time. timeout None or negative: for ever."""
        slice_ns = FIRST_SLICE_NS
        if timeout is not None and (not isinstance(timeout, numbers.Real) or timeout != timeout):
            raise ArgumentTypeError("timeout is %r; seconds are needed, or None for ever" % (timeout,))
        if timeout is None or timeout < 0 or timeout > LONGEST_S:
            while not self.advance(request, slice_ns):
                slice_ns = min(2 * slice_ns, LAST_SLICE_NS)
            return True
        deadline = time.monotonic_ns() + int(timeout * 1e9)
        while True:
            left = deadline - time.monotonic_ns()
            if self.advance(request, max(0, min(slice_ns, left))):
                return True
            if left <= 0:
                return False
            slice_ns = min(2 * slice_ns, LAST_SLICE_NS)

    def block(self, request: Request, timeout: Optional[float]) -> Any:
        """Waits for a blocking call's request. If a signal handler raises, later calls end it."""
        if not self.wait(request, timeout):
            lib.comm_abort(self.live())       # the peers cannot know that we gave up
            raise TimeoutError("the operation did not end within %g s (setting timeout)" % (timeout or 0))
        return request.result

    # ---- the end ----

    def _take_requests(self, patience_s: float) -> bool:
        """No other thread is inside a wait, or gets into one; else False."""
        taken = []
        for request in list(self.running.values()):
            if not request.lock.acquire(timeout=patience_s):
                break
            taken.append(request)
        else:
            return True
        for request in taken:
            request.lock.release()
        return False

    def _take_all(self) -> bool:
        self.closing = True                   # who waits gives up after its slice
        if not self.lock.acquire(timeout=ABORT_S):
            lib.comm_abort(self.handle)       # it may be making another one, and wait for peers
            if not self.lock.acquire(timeout=LEAVE_S):
                return False
        if self._take_requests(LEAVE_S):
            return True
        self.lock.release()
        return False

    def destroy(self) -> int:
        if self._is_gone():
            return OK
        if not self._take_all():
            raise BusyError("another thread is inside a call on this communicator, which does not end")
        requests = list(self.running.values())
        try:
            return self._free(requests)
        finally:
            for request in requests:
                request.lock.release()
            self.lock.release()

    def _is_gone(self) -> bool:
        if os.getpid() != self.pid:
            self.handle = None                # a forked child owns nothing of it
        return self.handle is None

    def _free(self, requests: List[Request]) -> int:
        handle, self.handle = self.handle, None
        if handle is None:
            return OK
        status = lib.comm_destroy(handle)
        for request in requests:              # the library has freed them
            request.value = None
            request.failure = AbortedError("the communicator was destroyed before the operation had ended")
            request.held = request.finish = None
        self.running.clear()
        self.callbacks = []
        return status

    def at_exit(self) -> None:
        """By the finalizer: when the communicator is garbage, or when the interpreter ends. The locks stay taken: a
        daemon thread that waits goes on to do so until the process has ended, instead of printing why it cannot. One
        that is inside a call is left there; the process's end then tells the peers."""
        if not self._is_gone() and self.lock.acquire(timeout=ABORT_S) and self._take_requests(ABORT_S):
            self._free(list(self.running.values()))


class Work:
    """An operation that was started. It moves when somebody waits, tests, or makes further calls.

    Dropping it is fine: what it works on is held, and must not be touched, until it has ended.
    """

    __slots__ = ("_comm", "_request", "__weakref__")

    def __init__(self, comm: Any, request: Request):
        self._comm = comm
        self._request = request
        request.owner = weakref.ref(self)     # no __del__: what signals' handlers raise in one is lost

    def __repr__(self) -> str:
        return "<ringred.Work %s>" % ("done" if self.done else "running")

    @property
    def done(self) -> bool:
        """Whether it is known to have ended. Does not look; test() does."""
        return not self._request.value

    @property
    def result(self) -> Any:
        """What wait() returns, of a work that is done."""
        self._started()
        if not self.done:
            raise InvalidArgumentError("the operation has not ended: wait for it first")
        return self.wait()

    def test(self) -> bool:
        """Moves it along; whether it has ended. Raises what it failed with."""
        self._started()
        return self._comm._state.advance(self._request, 0)

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until it has ended, at most timeout seconds, and returns its result: the array that
        holds it, of a receive the ringred.Message.

        TimeoutError leaves it running: wait again, or later. Only if it is done by then, a time limit
        elsewhere (a blocking call's, a peer's) has ended it and broken the communicator.
        """
        self._started()
        if not self._comm._state.wait(self._request, timeout):
            raise TimeoutError("the operation did not end within %g s; it goes on" % (timeout or 0))
        return self._request.result

    def __await__(self) -> Generator[Any, None, Any]:
        """In asyncio: `await work` lets other tasks run until it has ended, and gives its result."""
        if not self.test():
            from ._polling import poller      # asyncio is not cheap to import

            while not self.done:
                yield from poller(self._comm).watch(self).__await__()
        return self.wait()

    def _started(self) -> None:
        pass


class GroupedWork(Work):
    """An allreduce inside comm.group(): it is started where the group ends."""

    __slots__ = ("_result",)

    def __init__(self, comm: Any, result: Any):
        super().__init__(comm, new_request(None, None))
        self._request.value = 1               # not done
        self._result = result

    def begin(self, shared: Request) -> None:
        self._request = shared

    def leave(self) -> None:
        """The group is over: what has not begun never will."""
        if self._request.value == 1:
            self._request.failure = AbortedError("the group failed before it began: this operation was not started")
            self._request.value = None

    def wait(self, timeout: Optional[float] = None) -> Any:
        super().wait(timeout)
        return self._result

    def _started(self) -> None:
        if self._request.value == 1:
            raise InvalidArgumentError("the operation begins where the group ends: wait for it behind that")
