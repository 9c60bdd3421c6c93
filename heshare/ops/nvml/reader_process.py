"""Process that calls NVML for a run, `python -m heshare.ops.nvml.reader_process`, with one thread for each card.

An NVML call to a faulty card may never return, and no signal ends it, so the executor does not call NVML itself. The
process ends when the other end of its socket closes.
"""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from heshare.ops.nvml import binding
from heshare.ops.nvml.binding import GpuLostError, Nvml, NvmlError, NvmlGpu
from heshare.ops.nvml.card_health import CardHealth
from heshare.shared import signals

LARGEST = 1 << 17
"""Largest message, bytes.

Messages are JSON texts, one a packet. A request is `[number, card, [[name, argument, ...], ...]]`; the card is an
index, a UUID, or `""` for calls that concern all cards. Its reply is `[number, card, [[value] or [class of the error,
text], ...]]`.
"""
ALL_CARDS = ""
METHODS = (
    "name", "uuid", "cores", "offered_mhz", "sm_mhz", "limits", "idles", "instant_power_w", "usage_power_w",
    "usage_power_kind", "energy_j", "temperature_c", "memory_mib", "power_limit_w", "largest_limit_w", "persistent",
    "compute_mode", "mig", "remap_failed", "has_gpm", "lock_clock", "unlock_clock", "processes",
)  # fmt: skip
"""The methods of `NvmlGpu` that can be called; and `health`, and, of all cards, `survey`."""
_ERRORS = {name: kind for name, kind in vars(binding).items() if isinstance(kind, type) and issubclass(kind, NvmlError)}

Which = int | str


def encode(number: int, which: Which, content: object) -> bytes:
    return json.dumps([number, which, content]).encode()


def decode(data: bytes) -> tuple[int, Which, list[Any]]:
    number, which, content = json.loads(data)
    return number, which, content


def value_of(answer: Sequence[Any]) -> Any:
    """Return the value of one answer of a reply, or raise its error; lists become tuples."""
    if len(answer) == 1:
        return _tuples(answer[0])
    raise _ERRORS.get(answer[0], NvmlError)(answer[1])


def _tuples(value: Any) -> Any:
    return tuple([_tuples(one) for one in value]) if isinstance(value, list) else value


class CardServer:
    """Makes the calls to one card, which is opened at the first call and again after a failure to open it."""

    def __init__(self, which: Which, nvml: Callable[[], Nvml]) -> None:
        self._which, self._nvml = which, nvml
        self._card: NvmlGpu | None = None
        self._health: CardHealth | None = None

    def answers(self, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """Return an answer for each call; after `GpuLostError` all further calls have that error."""
        answers: list[Any] = []
        for call in calls:
            try:
                answers.append([self._call(*call)])
            except NvmlError as error:
                answers.append([type(error).__name__, str(error)])
                if isinstance(error, GpuLostError):
                    break  # further calls would fail too, and may take long

        missing = len(calls) - len(answers)
        return answers + [answers[-1]] * missing

    def _call(self, name: str, *arguments: Any) -> Any:
        nvml = self._nvml()
        if name == "survey":
            return [_survey_card(nvml, index) for index in range(nvml.count())]

        if self._card is None:
            self._card = nvml.card(self._which)
        if name == "health":
            if self._health is None:
                self._health = CardHealth(self._card)
            return self._health.read()

        if name not in METHODS:
            raise NvmlError(f"GPU {self._which}: no call {name!r}.")
        method: Callable[..., Any] = getattr(self._card, name)
        return method(*arguments)


def _survey_card(nvml: Nvml, index: int) -> tuple[int, str, str, tuple[tuple[int, float], ...]]:
    uuid = ""
    processes: tuple[tuple[int, float], ...] = ()
    try:
        card = nvml.card(index)
        uuid = card.uuid()
        with contextlib.suppress(NvmlError):
            processes = card.processes()
        obstacle = card.obstacle()
    except NvmlError as error:
        obstacle = str(error)
    return index, uuid, obstacle, processes


class Reader:
    """Serves requests from a socket, those of each card one after the other in its own thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._queues: dict[Which, SimpleQueue[tuple[int, list[Any]]]] = {}
        self._opening, self._sending = threading.Lock(), threading.Lock()
        self._nvml: Nvml | None = None

    def serve(self) -> None:
        """Pass requests to the threads of their cards until the other end closes."""
        while data := self._connection.recv(LARGEST):
            number, which, calls = decode(data)
            if which not in self._queues:
                self._queues[which] = SimpleQueue()
                threading.Thread(target=self._serve_card, args=(which,), daemon=True).start()
            self._queues[which].put((number, calls))

    def _serve_card(self, which: Which) -> None:
        server = CardServer(which, self._open)
        while True:
            number, calls = self._queues[which].get()
            reply = encode(number, which, server.answers(calls))
            with self._sending, contextlib.suppress(OSError):
                self._connection.send(reply)

    def _open(self) -> Nvml:
        with self._opening:
            if self._nvml is None:
                self._nvml = Nvml()
            return self._nvml


def main(descriptor: int) -> None:
    # A signal to the executor must not end this process before the executor has released the cards.
    signals.ignore()
    with contextlib.suppress(ConnectionError), socket.socket(fileno=descriptor) as connection:
        Reader(connection).serve()
    os._exit(0)  # without nvmlShutdown, which may wait for a call that hangs in another thread


if __name__ == "__main__":
    main(int(sys.argv[1]))
