"""One visit on a device: cooling down, late or dying tasks, throttling, and the release of the device."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from heshare.devices.device import Reading
from heshare.devices.emulated_device import EmulatedDevice
from heshare.profiles.measure import MeasurementBench
from heshare.profiles.recorder import record
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import gpu, resident
from heshare.world.workload import Workload

T4 = gpu("T4")
PROTOCOL = MeasurementProtocol(repeats=2)
PAIR = Setup((resident("vgg19:8@50"), resident("mobilenet:4@50")), T4.max_mhz)
ALONE = Setup((resident("vgg19:8@50"),), T4.max_mhz)


class Hot(EmulatedDevice):
    """A device with a temperature, which falls by a degree for each second in which nothing runs."""

    def __init__(self, temperature_c: float, floor_c: float = 20.0) -> None:
        super().__init__(T4)
        self.temperature_c, self.floor_c, self.rested_s = temperature_c, floor_c, 0.0

    def advance(self, to_s: float) -> list[int]:
        if not super().read().residents:
            rest_s = to_s - super().read().time_s
            self.rested_s += rest_s
            self.temperature_c = max(self.floor_c, self.temperature_c - rest_s)
        return super().advance(to_s)

    def read(self) -> Reading:
        return replace(super().read(), temperature_c=self.temperature_c)


class Starts(EmulatedDevice):
    """A device that counts started tasks, which make no progress until `late_s`."""

    def __init__(self, late_s: float = 0.0) -> None:
        super().__init__(T4)
        self.started, self.late_s = 0, late_s

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        self.started += 1
        super().start(task_id, workload, mps_pct, iterations)

    def read(self) -> Reading:
        reading = super().read()
        if reading.time_s >= self.late_s:
            return reading
        still = {task: replace(progress, done=0.0, time_s=math.nan) for task, progress in reading.residents.items()}
        return replace(reading, residents=still)


class Stalls(EmulatedDevice):
    """A device whose host stands still for a minute at these calls of `advance`, while the GPU draws idle power."""

    def __init__(self, calls: set[int]) -> None:
        super().__init__(T4)
        self.calls, self.number, self.still_s = calls, 0, 0.0

    def advance(self, to_s: float) -> list[int]:
        ended = super().advance(to_s - self.still_s)
        self.number += 1
        self.still_s += 60.0 * (self.number in self.calls)
        return ended

    def read(self) -> Reading:
        reading = super().read()
        energy_j = reading.energy_j + T4.idle_w * self.still_s
        return replace(reading, time_s=reading.time_s + self.still_s, energy_j=energy_j)


def test_cooling() -> None:
    """A GPU cools down before the first visit and when it is hot, within a limit."""
    device = Hot(70.0)
    bench = MeasurementBench(device, PROTOCOL)
    assert bench.visit(ALONE, 1).temperature_c == pytest.approx(60.0)
    assert device.rested_s == pytest.approx(10.0)
    device.temperature_c = 79.0
    assert bench.visit(ALONE, 2).took_s == pytest.approx(6.0)
    device.temperature_c = 81.0
    assert bench.visit(ALONE, 3).took_s == pytest.approx(6.0 + 21.0)

    hot = Hot(90.0, floor_c=85.0)
    assert MeasurementBench(hot, PROTOCOL).visit(ALONE, 1).temperature_c == 85.0
    assert hot.rested_s == pytest.approx(PROTOCOL.cool_limit_s)


def test_smaller_set() -> None:
    """Tasks continue in a smaller set with equal results."""
    device = Starts()
    bench = MeasurementBench(device, PROTOCOL)
    bench.visit(PAIR, 1)
    after = bench.visit(ALONE, 1)
    assert device.started == 2
    fresh = MeasurementBench(Starts(), PROTOCOL).visit(ALONE, 1)
    assert after == fresh
    bench.visit(PAIR, 2)
    assert device.started == 4
    bench.release()
    assert device.read().residents == {}


def test_late_task() -> None:
    """The window waits for the last task and its warm up."""
    visit = MeasurementBench(Starts(late_s=3.2), PROTOCOL).visit(PAIR, 1)
    assert visit.took_s == pytest.approx(3.5 + 1.0 + 5.0)
    assert visit.window_s == pytest.approx(5.0)


def test_no_progress() -> None:
    """Tasks without progress are an error."""
    device = Starts(late_s=math.inf)
    bench = MeasurementBench(device, MeasurementProtocol(ready_limit_s=20.0))
    with pytest.raises(DeviceError, match=r"did an iteration within 20 s"):
        bench.visit(PAIR, 1)
    bench.release()
    assert device.read().residents == {}


def test_ended_task() -> None:
    """A task that ends by itself is an error."""

    class Dying(EmulatedDevice):
        def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
            super().start(task_id, workload, mps_pct, 100.0)

    bench = MeasurementBench(Dying(T4), PROTOCOL)
    with pytest.raises(DeviceError, match="ended while it was measured"):
        bench.visit(PAIR, 1)
    bench.release()


def test_stalled_host() -> None:
    """A window in which the host stands still is observed again; nothing of it is in the visit."""
    expected = MeasurementBench(EmulatedDevice(T4), PROTOCOL).visit(PAIR, 1)
    visit = MeasurementBench(Stalls({4}), PROTOCOL).visit(PAIR, 1)
    # One second of warm-up, three of the first window before it stands still, and a second window.
    assert visit.took_s == pytest.approx(1.0 + 3.0 + 60.0 + PROTOCOL.window_s)
    for name in ("window_s", "spent_j", "power_w", "time_s", "done"):
        assert getattr(visit, name) == pytest.approx(getattr(expected, name)), name

    # Two idle windows before it, without a warm-up.
    table = record(Stalls({14}), ALONE.points(), protocol=PROTOCOL, progress=False)
    assert table["energy_j"].tolist() == pytest.approx((table["power_w"] * table["time_s"]).tolist())


def test_disagreeing_energy() -> None:
    """A visit in which every window has another energy than its power readings is an error."""
    bench = MeasurementBench(Stalls({4, 9, 14}), PROTOCOL)
    with pytest.raises(DeviceError, match=r"W by the energy counter and .* W by the power readings, in 3 windows"):
        bench.visit(PAIR, 1)
    bench.release()


def test_stuck_task() -> None:
    """Other tasks are stopped when one cannot be."""

    class Sticky(EmulatedDevice):
        def stop(self, task_id: int) -> float:
            done = super().stop(task_id)
            if task_id == 0:
                raise DeviceError("stuck")
            return done

    device = Sticky(T4)
    bench = MeasurementBench(device, PROTOCOL)
    bench.visit(PAIR, 1)
    with pytest.raises(DeviceError, match="stuck"):
        bench.release()
    assert device.read().residents == {}
    assert device.read().requested_mhz is None


def test_throttled() -> None:
    """Throttled visits are kept and marked."""
    assert MeasurementBench(EmulatedDevice(T4), PROTOCOL).visit(ALONE, 1).throttled
    assert not MeasurementBench(EmulatedDevice(gpu("A100")), PROTOCOL).visit(Setup(ALONE.residents, 1410), 1).throttled


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"warmup_s": -1.0}, {"readings": math.nan}])
def test_bad_protocol(wrong: dict[str, float]) -> None:
    """A bad protocol is refused."""
    with pytest.raises(InputError, match=f"argument {next(iter(wrong))}"):
        MeasurementProtocol(**wrong)  # type: ignore[arg-type]
