"""Who keeps the GPUs of one host for a run: `python -m heshare.devices.remote.keeper`, a process of its own.

It is started by the host's Dask worker, takes the machine as a run on one machine does (locks, note, watchdog, MPS,
clocks), and gives everything back when it is told to, or when the other end of its line goes: that end goes however the
worker dies, and when Dask drops what an executor that died had there.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import sys
import time
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from heshare.devices.failing import Failed
from heshare.devices.interrupts import Interrupted
from heshare.devices.machine import Machine
from heshare.devices.remote.messages import Answer, Card, Opening, Order, Told
from heshare.devices.saved import state_folder
from heshare.errors import HeShareError

_LONGEST_S = 10.0


class Keeper:
    """The devices of one host: they go on by themselves, and what happens is kept until somebody asks.

    Args:
        machine: the machine, taken.
        now_s: the time of the run, s.
    """

    def __init__(self, machine: Machine, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._machine, self._devices = machine, machine.devices
        self._completed: list[list[int]] = [[] for _ in self._devices]
        self._failed: list[list[Failed]] = [[] for _ in self._devices]
        self._noted = [0] * len(self._devices)
        self._due_s = [math.inf] * len(self._devices)

    def cards(self) -> tuple[Card, ...]:
        """What was taken."""
        return tuple(
            Card(device.gpu, device.uuid, device.sharing, counter_j)
            for device, counter_j in zip(self._devices, self._machine.counters_j(), strict=True)
        )

    def visit(self, orders: Sequence[Order]) -> Answer:
        """Carry out orders, bring every device to the present, and tell of each."""
        results: list[float | None] = []
        refused = ""
        try:
            for order in orders:
                results.append(self._obey(order))
        except HeShareError as error:
            refused = str(error)
        for index in range(len(self._devices)):
            self._advance(index)
        return Answer(tuple(self._tell(index) for index in range(len(self._devices))), tuple(results), refused)

    def step(self, ended: Collection[int] = ()) -> list[int]:
        """Look at the devices that are due, or on which a process has ended; those that have something new to tell."""
        now_s = self.now_s()
        looked = [index for index, due_s in enumerate(self._due_s) if index in ended or due_s <= now_s]
        return [index for index in looked if self._advance(index)]

    def due_s(self) -> float:
        """When a device is to be looked at, s."""
        return min(self._due_s)

    def descriptors(self) -> dict[int, int]:
        """What becomes readable when a job's process ends, and on which device."""
        return {one: index for index, device in enumerate(self._devices) for one in device.descriptors()}

    def _obey(self, order: Order) -> float | None:
        device = self._devices[order.gpu]
        if order.call == "start":
            self._machine.attempts[order.arguments[0]] = order.attempt - 1
            device.start(*order.arguments)
        elif order.call == "stop":
            return device.stop(*order.arguments)
        elif order.call == "set_clock":
            device.set_clock(*order.arguments)
        else:
            device.stop_all()
        return None

    def _advance(self, index: int) -> bool:
        """Bring a device to the present; whether anything became of its jobs, or of itself."""
        device = self._devices[index]
        lost = device.lost
        completed = device.advance(self.now_s())
        failed = device.take_failed()
        self._completed[index] += completed
        self._failed[index] += failed
        self._due_s[index] = device.next_event_s()
        return bool(completed or failed) or device.lost != lost

    def _tell(self, index: int) -> Told:
        device = self._devices[index]
        completed, self._completed[index] = tuple(self._completed[index]), []
        failed, self._failed[index] = tuple(self._failed[index]), []
        attempts, device.attempts = device.attempts, {}
        reading, next_s, standing = device.read(), self._due_s[index], device.standing()
        notes = tuple(device.meter.notes[self._noted[index] :])
        self._noted[index] += len(notes)
        return Told(
            reading, next_s, completed, failed, attempts, standing, device.idle_j, notes, device.lost, device.sharing
        )


def serve(keeper: Keeper, line: Connection, notices: int) -> bool:
    """Go on until told to end (true); who told it went away otherwise, which is an `EOFError` or a `ConnectionError`.

    Args:
        keeper: the devices.
        line: orders come in and answers go out.
        notices: gets a byte, a device's index, when there is something new to ask about.
    """
    while True:
        owner = keeper.descriptors()
        watch = select.poll()
        for descriptor in (line.fileno(), *owner):
            watch.register(descriptor, select.POLLIN)
        wait_s = min(max(0.0, keeper.due_s() - keeper.now_s()), _LONGEST_S)
        ready = {descriptor for descriptor, _ in watch.poll(math.ceil(1e3 * wait_s))}
        if line.fileno() in ready:
            orders = line.recv()
            if orders is None:
                return True
            line.send(keeper.visit(orders))
        for index in keeper.step({owner[one] for one in ready & owner.keys()}):
            os.write(notices, bytes([index]))


def outputs_folder(name: str) -> Path:
    """The folder in which a host keeps the outputs of a run; the run's name is made fit for that."""
    return state_folder() / "runs" / (re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:100].strip(".") or "run")


def keep(line: Connection, notices: int) -> int:
    """Take the machine, serve, give it back; the exit code is 0 if it was told to end and everything is in order."""
    try:
        asked: Opening | None = line.recv()
        if asked is None:
            line.send(None)
            return 0
    except (EOFError, ConnectionError):
        return 1  # whoever started it went before anything was taken
    offset_s = asked.offset_s

    def now_s() -> float:
        return time.monotonic() + offset_s

    told = False
    machine = Machine(
        asked.uuids,
        asked.jobs,
        outputs_folder(asked.name),
        now_s,
        allow_clocks=asked.allow_clocks,
        patience=asked.patience,
    )
    try:
        with machine, contextlib.suppress(EOFError, ConnectionError):
            keeper = Keeper(machine, now_s)
            line.send(keeper.cards())
            told = serve(keeper, line, notices)
    except Interrupted as ended:
        return 128 + ended.number
    except HeShareError as error:
        with contextlib.suppress(ConnectionError):
            line.send(str(error))
        return 2
    if told:
        line.send(None)
    return 0 if told else 1


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as given:
        code = keep(given, int(sys.argv[2]))
    sys.exit(code)
