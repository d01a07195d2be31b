# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, and other signals whose handlers are Python's, in calls of the library that block.

Python runs a handler between two steps of its own code in the main thread, never inside a call of C.
Collectives are started and then waited for in slices; while communicators are made or ended, the library
asks ringred_config.interrupt whether to go on.
"""
from typing import Any, Generator, List

from ._library import InterruptFunction

STOP, GO_ON = 1, 0


class Interrupt:
    """What ringred_config.interrupt points to: it lets signal handlers run, and keeps what they raise.

    The callback is the send() of a generator: a handler runs as the generator resumes, inside its try.
    In a function it would run as that is entered, where nothing could catch what it raises.
    """

    def __init__(self) -> None:
        self._raised: List[BaseException] = []
        answers = self._answers()
        next(answers)
        self.callback = InterruptFunction(answers.send)  # the library calls it: keep it

    def _answers(self) -> Generator[int, Any, None]:
        answer = GO_ON
        while True:
            try:
                while True:
                    yield answer
            except GeneratorExit:
                return
            except BaseException as raised:
                self._raised.append(raised)
                answer = STOP

    def raise_what_came(self) -> None:
        if self._raised:
            raised = self._raised[0]
            del self._raised[:]
            raise raised
