"""What a visit does on a device: start the tasks, wait until they work, warm up, observe a window, leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TypeVar

from heshare.devices.device import Device, Reading, Restartable, StartsTogether
from heshare.errors import DeviceError
from heshare.profiles.protocol import Protocol
from heshare.profiles.visit import Setup, Visit
from heshare.world.workload import Resident

POLL_S = 0.5
T = TypeVar("T")


class Bench:
    """A device under measurement; its time is the only time there is.

    Tasks of one visit go on into the next where that is a subset: starting a real task takes seconds.

    Args:
        device: an idle device.
        protocol: how to measure.
    """

    def __init__(self, device: Device, protocol: Protocol) -> None:
        self._device = device
        self._protocol = protocol
        self._running: dict[int, Resident] = {}
        self._next_id = 0
        self._cooled = False

    def idle(self) -> tuple[float, float]:
        """Power with nothing running, mean over as many windows as there are repeats, W; and the time it took, s."""
        protocol, powers, took_s = self._protocol, [], 0.0
        for number in range(1, protocol.repeats + 1):
            begin_s = self._begin(f"idle#{number}")
            self._clear()
            self._device.set_clock(None)
            self._cool()
            readings = self._window(protocol.window_s)
            powers.append(fmean(reading.power_w for reading in readings[1:]))
            took_s += readings[-1].time_s - begin_s
        return fmean(powers), took_s

    def visit(self, setup: Setup, number: int) -> Visit:
        """Run and observe one setting.

        Raises:
            DeviceError: the device refuses a task or a clock, a task does not get going, or a task ends by itself.
        """
        begin_s = self._begin(f"{setup}#{number}")
        self._arrange(setup)
        self._wait()
        ids, running = list(self._running), self._device.read()
        slowest_s = max(running.residents[one].time_s for one in ids)
        readings = self._window(max(self._protocol.window_s, self._protocol.iterations * slowest_s))
        first, last, seen = readings[0], readings[-1], readings[1:]
        return Visit(
            setup=str(setup),
            number=number,
            took_s=last.time_s - begin_s,
            window_s=last.time_s - first.time_s,
            spent_j=last.energy_j - first.energy_j,
            power_w=fmean(one.power_w for one in seen),
            sm_mhz=fmean(one.sm_mhz for one in seen),
            time_s=tuple(fmean(one.residents[task].time_s for one in seen) for task in ids),
            done=tuple(self._done(first, last, task) for task in ids),
            sm_util_pct=fmean(one.sm_util_pct for one in seen),
            dram_util_pct=fmean(one.dram_util_pct for one in seen),
            l2_util_pct=fmean(one.l2_util_pct for one in seen),
            temperature_c=last.temperature_c,
            throttled=any(one.throttled for one in seen),
        )

    def alone(self, run: Callable[[], T]) -> tuple[T, float]:
        """Have something run on the GPU with no task beside it; returns its answer and the time that it took, s."""
        begin_s = self._begin("alone")
        self._clear()
        self._device.set_clock(None)
        found = run()
        return found, self._device.read().time_s - begin_s

    def leave(self) -> None:
        """Stop what runs and give the clock back to the card."""
        try:
            self._clear()
        finally:
            self._device.set_clock(None)

    def _begin(self, label: str) -> float:
        if isinstance(self._device, Restartable):
            self._device.restart(label)
        return self._device.read().time_s

    def _arrange(self, setup: Setup) -> None:
        """Have exactly the tasks of a setting run, in its order."""
        rest = list(setup.residents)
        kept = {task: one for task, one in self._running.items() if rest and _drop(rest, one)}
        hot = self._device.read().temperature_c > self._protocol.hot_c
        if rest or hot or not self._cooled:
            self._clear()
            self._cool()
            kept, rest = {}, list(setup.residents)
        for task in [task for task in self._running if task not in kept]:
            self._stop(task)
        top = self._device.gpu.max_mhz
        self._device.set_clock(None if setup.sm_mhz == top else setup.sm_mhz)
        self._start(rest)

    def _start(self, residents: Sequence[Resident]) -> None:
        """Start tasks, together where the device can."""
        new = dict(enumerate(residents, start=self._next_id))
        self._next_id += len(new)
        if isinstance(self._device, StartsTogether):
            if new:
                self._device.start_together(new)
                self._running |= new
            return
        for task, one in new.items():
            self._device.start(task, one.workload, one.mps_pct)
            self._running[task] = one

    def _cool(self) -> None:
        """Wait, with nothing running, until the GPU is cool enough or the time for that is over."""
        self._cooled = True
        reading = self._device.read()
        until_s = reading.time_s + self._protocol.cool_limit_s
        while reading.temperature_c > self._protocol.cool_c and reading.time_s < until_s:
            self._device.advance(reading.time_s + POLL_S)
            reading = self._device.read()

    def _wait(self) -> None:
        """Let the tasks warm up once each of them works."""
        begin = self._device.read()
        before = {task: begin.residents[task].done for task in self._running}
        reading = self._advance(begin, self._protocol.warmup_s)
        late = False
        while not all(_works(reading, task, done) for task, done in before.items()):
            late = True
            if reading.time_s - begin.time_s > self._protocol.ready_limit_s:
                raise DeviceError(
                    f"{self._device.gpu.name} ({self._device.provenance}): not every task of "
                    f"{', '.join(map(str, self._running.values()))} did an iteration within "
                    f"{self._protocol.ready_limit_s:g} s. Look into the tasks' logs, or raise ready_limit_s."
                )
            reading = self._advance(reading, POLL_S)
        if late:
            self._advance(reading, self._protocol.warmup_s)

    def _window(self, length_s: float) -> list[Reading]:
        """The reading at the begin, and those of the window, evenly spaced; the last one is at its end."""
        readings = [self._device.read()]
        begin_s = readings[0].time_s
        for number in range(1, self._protocol.readings + 1):
            to_s = begin_s + length_s * number / self._protocol.readings
            readings.append(self._advance(readings[-1], to_s - readings[-1].time_s))
        return readings

    def _advance(self, now: Reading, by_s: float) -> Reading:
        ended = self._device.advance(max(now.time_s, now.time_s + by_s))
        reading = self._device.read()
        gone = {task for task in self._running if task in ended or task not in reading.residents}
        lost = [str(self._running.pop(task)) for task in sorted(gone)]
        if lost:
            raise DeviceError(
                f"{self._device.gpu.name} ({self._device.provenance}): {', '.join(lost)} ended while it was measured. "
                "Look into its log; the visit is not kept."
            )
        return reading

    def _done(self, first: Reading, last: Reading, task: int) -> float:
        done = last.residents[task].done - first.residents[task].done
        if done <= 0 or not 0 < last.residents[task].time_s < math.inf:
            raise DeviceError(
                f"{self._device.gpu.name}: {self._running[task]} completed no iteration in a window; lengthen window_s."
            )
        return done

    def _clear(self) -> None:
        """Stop every task, also when one of them cannot be stopped; the first refusal is told at the end."""
        refusals = []
        for task in list(self._running):
            try:
                self._stop(task)
            except DeviceError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def _stop(self, task: int) -> None:
        # Forgotten first: a task that cannot be stopped twice must not be in the way of the others.
        del self._running[task]
        self._device.stop(task)


def _works(reading: Reading, task: int, before: float) -> bool:
    progress = reading.residents[task]
    return progress.done > before and 0 < progress.time_s < math.inf


def _drop(rest: list[Resident], one: Resident) -> bool:
    """Take `one` out of `rest`; whether it was there."""
    found = one in rest
    if found:
        rest.remove(one)
    return found
