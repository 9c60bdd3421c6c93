"""The measurement of one visit on a device: start the tasks, wait until they work, warm up, observe a window."""

import math
from collections.abc import Sequence
from statistics import fmean

from heshare.devices.device import Device, Reading
from heshare.profiles.schema import ENERGY_SLACK
from heshare.profiles.visit import MeasurementProtocol, Setup, Visit
from heshare.shared.errors import DeviceError
from heshare.world.workload import Resident

POLL_S = 0.5
WINDOWS = 3
"""Most windows of a visit, until the energy counter and the power readings of one agree."""


class MeasurementBench:
    """An idle device under measurement; all times are the device's.

    Tasks of one visit continue in the next if that is a subset: starting a real task takes seconds.
    """

    def __init__(self, device: Device, protocol: MeasurementProtocol) -> None:
        self._device = device
        self._protocol = protocol
        self._running: dict[int, Resident] = {}
        self._next_id = 0
        self._cooled = False

    def measure_idle(self) -> tuple[float, float]:
        """Return the power with nothing running, mean over as many windows as there are repeats, W; and its time, s."""
        protocol, powers_w, took_s = self._protocol, [], 0.0
        for number in range(1, protocol.repeats + 1):
            begin_s = self._begin(f"idle#{number}")
            self._stop_all()
            self._device.set_clock(None)
            self._cool_down()
            readings = self._read_window(protocol.window_s)
            powers_w.append(fmean(reading.power_w for reading in readings[1:]))
            took_s += readings[-1].time_s - begin_s
        return fmean(powers_w), took_s

    def visit(self, setup: Setup, number: int) -> Visit:
        """Measure one setup once: run its tasks, observe a window and return the visit.

        Raises:
            DeviceError: the device refuses a task or a clock, a task completes no iteration or ends by itself, or the
                energy counter and the power readings disagree in each of `WINDOWS` windows.
        """
        begin_s = self._begin(f"{setup}#{number}")
        self._arrange(setup)
        self._warm_up()

        tasks, residents = list(self._running), self._device.read().residents
        slowest_s = max((residents[task].time_s for task in tasks), default=0.0)
        readings = self._agreeing_window(max(self._protocol.window_s, self._protocol.iterations * slowest_s))

        # The first reading is the start of the counters; means are over those inside the window.
        first, last, inside = readings[0], readings[-1], readings[1:]
        return Visit(
            setup=str(setup),
            number=number,
            took_s=last.time_s - begin_s,
            window_s=last.time_s - first.time_s,
            spent_j=last.energy_j - first.energy_j,
            power_w=fmean(reading.power_w for reading in inside),
            sm_mhz=fmean(reading.sm_mhz for reading in inside),
            time_s=tuple(fmean(reading.residents[task].time_s for reading in inside) for task in tasks),
            done=tuple(self._iterations(first, last, task) for task in tasks),
            sm_util_pct=fmean(reading.sm_util_pct for reading in inside),
            dram_util_pct=fmean(reading.dram_util_pct for reading in inside),
            l2_util_pct=fmean(reading.l2_util_pct for reading in inside),
            temperature_c=last.temperature_c,
            throttled=any(reading.throttled for reading in inside),
        )

    def release(self) -> None:
        """Stop all tasks and unset the clock."""
        try:
            self._stop_all()
        finally:
            self._device.set_clock(None)

    def _begin(self, label: str) -> float:
        self._device.restart(label)
        return self._device.read().time_s

    def _arrange(self, setup: Setup) -> None:
        missing = list(setup.residents)
        kept = {task for task, resident in self._running.items() if _remove(missing, resident)}
        hot = self._device.read().temperature_c > self._protocol.hot_c
        if missing or hot or not self._cooled:
            self._stop_all()
            self._cool_down()
            kept, missing = set(), list(setup.residents)
        for task in [task for task in self._running if task not in kept]:
            self._stop(task)
        # The top clock is measured with the clock unset, as tasks run where no clock is ever set.
        top_mhz = self._device.gpu.max_mhz
        self._device.set_clock(None if setup.sm_mhz == top_mhz else setup.sm_mhz)
        self._start(missing)

    def _start(self, residents: Sequence[Resident]) -> None:
        new = dict(enumerate(residents, start=self._next_id))
        self._next_id += len(new)
        if new:
            self._device.start_together(new)
            self._running |= new

    def _cool_down(self) -> None:
        self._cooled = True
        reading = self._device.read()
        until_s = reading.time_s + self._protocol.cool_limit_s
        while reading.temperature_c > self._protocol.cool_c and reading.time_s < until_s:
            self._device.advance(reading.time_s + POLL_S)
            reading = self._device.read()

    def _warm_up(self) -> None:
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
                    f"{self._protocol.ready_limit_s:g} s. Check the tasks' logs, or raise ready_limit_s."
                )
            reading = self._advance(reading, POLL_S)
        if late:
            self._advance(reading, self._protocol.warmup_s)

    def _read_window(self, length_s: float) -> list[Reading]:
        readings = [self._device.read()]
        begin_s = readings[0].time_s
        for number in range(1, self._protocol.readings + 1):
            to_s = begin_s + length_s * number / self._protocol.readings
            readings.append(self._advance(readings[-1], to_s - readings[-1].time_s))
        return readings

    def _agreeing_window(self, length_s: float) -> list[Reading]:
        # A host that stands still keeps the tasks from the GPU between two readings. No row may hold such a window, in
        # which power x time is not the energy: it is observed again.
        for _ in range(WINDOWS):
            readings = self._read_window(length_s)
            took_s = readings[-1].time_s - readings[0].time_s
            counted_w = (readings[-1].energy_j - readings[0].energy_j) / took_s
            read_w = fmean(reading.power_w for reading in readings[1:])
            if not self._running or read_w / ENERGY_SLACK <= counted_w <= ENERGY_SLACK * read_w:
                return readings
        raise DeviceError(
            f"{self._device.gpu.name} ({self._device.provenance}): {', '.join(map(str, self._running.values()))} took "
            f"{counted_w:.4g} W by the energy counter and {read_w:.4g} W by the power readings, in {WINDOWS} windows "
            "running. Stop what else runs on the host; the visit is discarded, and the same command continues."
        )

    def _advance(self, now: Reading, by_s: float) -> Reading:
        ended = self._device.advance(max(now.time_s, now.time_s + by_s))
        reading = self._device.read()
        gone = {task for task in self._running if task in ended or task not in reading.residents}
        lost = [str(self._running.pop(task)) for task in sorted(gone)]
        if lost:
            raise DeviceError(
                f"{self._device.gpu.name} ({self._device.provenance}): {', '.join(lost)} ended while it was measured. "
                "Check its log; the visit is discarded."
            )
        return reading

    def _iterations(self, first: Reading, last: Reading, task: int) -> float:
        done = last.residents[task].done - first.residents[task].done
        if done <= 0 or not 0 < last.residents[task].time_s < math.inf:
            raise DeviceError(
                f"{self._device.gpu.name}: {self._running[task]} completed no iteration in a window; lengthen window_s."
            )
        return done

    def _stop_all(self) -> None:
        # Stop every task, also when one of them cannot be stopped; the first error is raised at the end.
        errors = []
        for task in list(self._running):
            try:
                self._stop(task)
            except DeviceError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _stop(self, task: int) -> None:
        # Removed first: a task that cannot be stopped must not be stopped again with the others.
        del self._running[task]
        self._device.stop(task)


def _works(reading: Reading, task: int, before: float) -> bool:
    progress = reading.residents[task]
    return progress.done > before and 0 < progress.time_s < math.inf


def _remove(residents: list[Resident], resident: Resident) -> bool:
    if resident not in residents:
        return False
    residents.remove(resident)
    return True
