"""A machine in virtual time: its processes and threads as greenlets, one event after the other, killed at any call."""

from __future__ import annotations

import heapq
import signal
from collections.abc import Callable, Sequence
from typing import Any

from greenlet import getcurrent, greenlet

MOST_CALLS = 500_000
"""Most calls of one run to its machine."""


class Killed(BaseException):
    """Unwinds the threads of a process that was killed: each call to the machine raises it again, without effect."""


class Exited(BaseException):
    """The end of a process by `os._exit`."""


class EndlessError(Exception):
    """A program goes round and round."""


class Waitable:
    """What threads wait for: `wake` has each of them look again."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Thread] = []

    def wake(self) -> None:
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for thread in waiters:
                thread.resume_at(thread.machine.now)

    def ready(self) -> bool:
        raise NotImplementedError


class Thread(Waitable):
    """A thread of a process; the first one is the process's main thread."""

    __slots__ = ("done", "greenlet", "machine", "process", "turn")

    def __init__(self, process: Process, target: Callable[[], object]) -> None:
        super().__init__()
        self.process, self.machine, self.turn, self.done = process, process.machine, 0, False
        self.greenlet = greenlet(lambda: self._run(target), self.machine.hub)
        process.threads.append(self)
        self.resume_at(self.machine.now)

    def ready(self) -> bool:
        return self.done

    def resume_at(self, time_s: float) -> None:
        self.machine.at(time_s, self._resume, self.turn)

    def _resume(self, turn: int) -> None:
        if turn == self.turn and not self.done:
            self.turn += 1
            self.machine.thread = self
            if self.process.alive or not self.greenlet:
                self.greenlet.switch()
            else:
                self.greenlet.throw(Killed)
            self.machine.thread = None

    def interrupt(self, error: BaseException) -> None:
        """Raise an exception in it, where it waits."""
        if self.greenlet and not self.done:
            self.turn += 1
            self.machine.thread = self
            self.greenlet.throw(error)
            self.machine.thread = None

    def _run(self, target: Callable[[], object]) -> None:
        code = 0
        try:
            if self.process.alive:
                target()
        except Killed:
            pass
        except Exited as end:
            code = int(end.args[0])
        except BaseException as error:
            code = 1
            self.process.failed = error
            if self.process.name != "executor" or self is not self.process.threads[0]:
                self.machine.violate(f"{self.process.name} ended by {type(error).__name__}: {error}", error)
        self.done = True
        if self.process.alive and self is self.process.threads[0]:
            self.process.end(code)
        self.wake()


class Process(Waitable):
    """A process; `run` is its program, or None for one that is modelled by callbacks (`on_signal`)."""

    def __init__(
        self, machine: Machine, name: str, environment: dict[str, str], parent: Process | None, comm: str = "python"
    ) -> None:
        super().__init__()
        machine.pids += 1
        self.machine, self.name, self.pid, self.parent, self.comm = machine, name, machine.pids, parent, comm
        self.environment, self.started = environment, machine.pids * 7
        self.files: dict[int, Any] = {}
        self.threads: list[Thread] = []
        self.handlers: list[Callable[[int], None]] = []
        self.ignores = False
        self.alive, self.reaped = True, False
        self.returncode: int | None = None
        self.failed: BaseException | None = None
        self.streams: dict[str, Any] = {}
        self.on_signal: Callable[[int], None] | None = None
        self.on_end: list[Callable[[], None]] = []
        machine.processes[self.pid] = self
        machine.log("process", self.pid, name)

    def ready(self) -> bool:
        return not self.alive

    def run(self, target: Callable[[], object]) -> Thread:
        return Thread(self, target)

    def end(self, code: int) -> None:
        """End it, in order or not: its files are closed, what it locked is free."""
        if not self.alive:
            return
        self.alive, self.returncode = False, code
        self.machine.log("ended", self.pid, self.name, code)
        for number in list(self.files):
            self.close(number)
        for thread in self.threads:
            if thread is not self.machine.thread and not thread.done:
                thread.resume_at(self.machine.now)
        for call in self.on_end:
            call()
        self.wake()
        for child in [one for one in self.machine.processes.values() if one.parent is self and not one.alive]:
            child.reap()
        if self.parent is None or not self.parent.alive:
            self.reap()

    def reap(self) -> None:
        self.reaped = True
        self.machine.processes.pop(self.pid, None)

    def close(self, number: int) -> None:
        file = self.files.pop(number)
        file.references -= 1
        if not file.references:
            file.closed()

    def signal(self, number: int) -> None:
        """Do what a signal does: end it, call its handler, or nothing."""
        if not self.alive:
            return
        self.machine.log("signal", self.pid, self.name, int(number))
        if number == signal.SIGKILL:
            self.machine.kill(self)
        elif self.on_signal is not None:
            self.on_signal(number)
        elif self.ignores:
            return
        elif self.handlers:
            main = self.threads[0]
            try:
                self.handlers[-1](number)
            except BaseException as error:
                if self.machine.thread is main:
                    raise
                main.machine.at(main.machine.now, main.interrupt, error)
        else:
            self.machine.kill(self, -int(number))


class Machine:
    """Time, processes and events. `hub` is the greenlet of the event loop; `thread` is what runs now."""

    def __init__(self) -> None:
        self.now, self.pids, self.sequence = 1000.0, 100, 0
        self.events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self.processes: dict[int, Process] = {}
        self.hub = getcurrent()
        self.thread: Thread | None = None
        self.history: list[tuple[Any, ...]] = []
        self.violations: list[tuple[str, BaseException | None]] = []
        self.numbers = 1000
        self.calls = 0
        self.powered: Callable[..., None] = lambda starts=False: None
        """Called after each change of power; `starts`: a job has started, or a clock was raised."""

    @property
    def process(self) -> Process:
        assert self.thread is not None
        return self.thread.process

    def log(self, *what: Any) -> None:
        self.history.append((round(self.now, 6), *what))

    def violate(self, text: str, error: BaseException | None = None) -> None:
        self.log("VIOLATION", text)
        self.violations.append((text, error))

    def at(self, time_s: float, call: Callable[..., object], *arguments: Any) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (time_s, self.sequence, call, arguments))

    def later(self, after_s: float, call: Callable[..., object], *arguments: Any) -> None:
        self.at(self.now + after_s, call, *arguments)

    def run_until(self, done: Callable[[], bool], most_s: float) -> bool:
        """Process events until `done`, or for so long at most; return whether it is done."""
        until_s = self.now + most_s
        while not done():
            if not self.events or self.events[0][0] > until_s:
                self.now = max(self.now, until_s)
                return done()
            self.calls += 1
            if self.calls > MOST_CALLS:
                raise EndlessError(f"more than {MOST_CALLS} calls: a program goes round and round")
            time_s, _, call, arguments = heapq.heappop(self.events)
            self.now = max(self.now, time_s)
            call(*arguments)
        return True

    def alive(self) -> None:
        """Raise `Killed` in a thread of a process that is not alive; every call to the machine begins with this."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise EndlessError(f"more than {MOST_CALLS} calls: a program goes round and round")
        if self.thread is not None and not self.thread.process.alive:
            raise Killed

    def block(self, waitables: Sequence[Waitable], until_s: float | None) -> None:
        """Wait until one of these wakes this thread, or until the time."""
        thread = self.thread
        assert thread is not None, "only a thread can wait"
        for one in waitables:
            one.waiters.append(thread)
        if until_s is not None:
            thread.resume_at(max(until_s, self.now))
        self.hub.switch()
        for one in waitables:
            if thread in one.waiters:
                one.waiters.remove(thread)
        self.alive()

    def wait(self, waitable: Waitable, timeout_s: float | None = None) -> bool:
        self.alive()
        until_s = None if timeout_s is None else self.now + max(0.0, timeout_s)
        while not waitable.ready():
            if until_s is not None and self.now >= until_s:
                return False
            self.block([waitable], until_s)
        return True

    def sleep(self, time_s: float) -> None:
        self.alive()
        self.block([], self.now + max(0.0, time_s))

    def kill(self, process: Process, code: int = -int(signal.SIGKILL)) -> None:
        """Kill a process; a thread of it that runs now is unwound."""
        process.end(code)
        if self.thread is not None and self.thread.process is process:
            raise Killed

    def number(self, process: Process, file: Any) -> int:
        """Give an open file a number in a process; numbers are never used again."""
        self.numbers += 1
        process.files[self.numbers] = file
        file.references += 1
        return self.numbers
