"""A card in a process of its own, `python -m heshare.ops.nvml.card_process`, and its messages.

NVML is not called in the executor's process: a call to a sick card may never return, and no signal ends it. This
process makes the calls of one card, one after the other, for the other end of a socket, and ends when that closes.
Messages are JSON texts in packets: a request is `[number, [[name, argument, ...], ...]]`, its reply
`[number, [[value] or [class of the error, text], ...]]`.
"""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from heshare.ops.nvml import binding
from heshare.ops.nvml.binding import GpuLostError, Nvml, NvmlError, NvmlGpu
from heshare.ops.nvml.card_health import CardHealth
from heshare.shared import signals

LARGEST = 1 << 17
"""Largest message, bytes."""
METHODS = (
    "name", "uuid", "cores", "offered_mhz", "sm_mhz", "limits", "instant_power_w", "usage_power_w", "usage_power_kind",
    "energy_j", "temperature_c", "memory_mib", "power_limit_w", "persistent", "compute_mode", "mig", "has_gpm",
    "lock_clock", "unlock_clock", "processes",
)  # fmt: skip
"""The methods of `NvmlGpu` that can be called; and `health`, and, of all cards, `survey`."""
_ERRORS = {name: kind for name, kind in vars(binding).items() if isinstance(kind, type) and issubclass(kind, NvmlError)}


def encode(message: object) -> bytes:
    return json.dumps(message).encode()


def decode(data: bytes) -> tuple[int, list[Any]]:
    number, content = json.loads(data)
    return number, content


def value_of(answer: Sequence[Any]) -> Any:
    """Return the value of one answer of a reply; lists become tuples."""
    if len(answer) == 1:
        return _tuples(answer[0])
    raise _ERRORS.get(answer[0], NvmlError)(answer[1])


def _tuples(value: Any) -> Any:
    return tuple([_tuples(one) for one in value]) if isinstance(value, list) else value


class CardServer:
    """The card of this process, opened at the first call and again after it could not be opened."""

    def __init__(self, which: int | str) -> None:
        self._which = which
        self._nvml: Nvml | None = None
        self._card: NvmlGpu | None = None
        self._health: CardHealth | None = None

    def answer(self, call: Sequence[Any]) -> list[Any]:
        try:
            return [self._call(*call)]
        except NvmlError as error:
            return [type(error).__name__, str(error)]

    def close(self) -> None:
        if self._health is not None:
            self._health.close()
        if self._nvml is not None:
            self._nvml.close()

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._nvml is None:
            self._nvml = Nvml()
        if name == "survey":
            return [_survey_card(self._nvml, index) for index in range(self._nvml.count())]
        if self._card is None:
            self._card = self._nvml.card(self._which)
        if name == "health":
            return self._read_health(self._card)
        if name not in METHODS:
            raise NvmlError(f"GPU {self._which}: no call {name!r}.")
        method: Callable[..., Any] = getattr(self._card, name)
        return method(*arguments)

    def _read_health(self, card: NvmlGpu) -> tuple[tuple[bool, str], ...]:
        if self._health is None:
            self._health = CardHealth(card)
        return self._health.read()


def _survey_card(nvml: Nvml, index: int) -> tuple[int, str, str, tuple[tuple[int, float], ...]]:
    uuid = ""
    processes: tuple[tuple[int, float], ...] = ()
    try:
        card = nvml.card(index)
        uuid = card.uuid()
        with contextlib.suppress(NvmlError):
            processes = card.processes()
        obstacle = "its compute mode is prohibited" if card.compute_mode() == "prohibited" else ""
        return index, uuid, "it is divided into MIG slices" if card.mig() else obstacle, processes
    except NvmlError as error:
        return index, uuid, str(error), processes


def serve(connection: socket.socket, server: CardServer) -> None:
    """Answer requests until the other end closes."""
    while data := connection.recv(LARGEST):
        number, calls = decode(data)
        answers: list[list[Any]] = []
        for call in calls:
            answers.append(server.answer(call))
            if answers[-1][:-1] == [GpuLostError.__name__]:
                break  # nothing more can be learnt, and each further call may take long
        answers += [answers[-1]] * (len(calls) - len(answers))
        connection.send(encode([number, answers]))


def main(descriptor: int, which: str) -> None:
    # The other end of the socket ends this process; what ends the executor must not end it before that has released
    # the card.
    signals.ignore()
    server = CardServer(int(which) if which.isdecimal() else which)
    with contextlib.suppress(ConnectionError), socket.socket(fileno=descriptor) as connection:
        serve(connection, server)
    server.close()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
