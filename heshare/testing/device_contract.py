"""Contract tests of a device, emulated, replayed or real: subclass `DeviceContract` and add the fixture `device`."""

import math

import pytest

from heshare.devices.device import Device
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.workload import Workload


class DeviceContract:
    """Contract tests of a device. Subclass it as `TestMyDevice` with a fixture that returns a fresh, idle device.

    A device in wall time overrides `go` to sleep until the time has come.

    Attributes:
        light: a workload of which the device can run at least two at the same time.
        other: another workload.
        iterations: a number of iterations that takes a reasonable time.
        energy_rtol: relative tolerance of energy against power times time while nothing changes.
        time_rtol: relative tolerance of progress, and of a task's time with a co-runner against its time alone.
        sets_clocks: whether the device can set clocks on this machine; one that cannot must raise `DeviceError`.
    """

    light = Workload("mobilenet", 4)
    other = Workload("resnet50", 8)
    iterations = 100.0
    energy_rtol = 1e-9
    time_rtol = 1e-9
    sets_clocks = True

    @pytest.fixture
    def device(self) -> Device:
        """A fresh, idle device."""
        raise NotImplementedError("Provide a fixture `device` that returns a fresh, idle device.")

    def go(self, device: Device, to_s: float) -> list[int]:
        """Advance the device to `to_s`."""
        return device.advance(to_s)

    def test_begins_idle(self, device: Device) -> None:
        """A fresh device runs nothing, has no next event, and draws power."""
        reading = device.read()
        assert reading.residents == {}
        assert device.next_event_s() == math.inf
        assert reading.power_w > 0
        assert device.provenance in ("emulated", "measured")

    def test_runs_a_task_to_its_end(self, device: Device) -> None:
        """A task is resident until it completes, is reported once, and then uses no resources."""
        device.start(3, self.light, 100, self.iterations)
        assert set(device.read().residents) == {3}
        assert self._finish(device, 1) == [3]
        assert device.read().residents == {}
        assert device.next_event_s() == math.inf

    def test_reports_progress(self, device: Device) -> None:
        """After half of the time half of the iterations are done, and `stop` returns them."""
        device.start(0, self.light, 100, self.iterations)
        begun = device.read()
        time_s = begun.residents[0].time_s
        assert 0 < time_s < math.inf
        self.go(device, begun.time_s + self.iterations * time_s / 2)
        half = pytest.approx(self.iterations / 2, rel=max(0.25, self.time_rtol))
        assert device.read().residents[0].done == half
        assert device.stop(0) == half

    def test_keeps_work_over_a_pause(self, device: Device) -> None:
        """The iterations before a stop and after a new start add up to all of them."""
        device.start(0, self.light, 100, self.iterations)
        begun = device.read()
        self.go(device, begun.time_s + self.iterations * begun.residents[0].time_s / 4)
        done = device.stop(0)
        assert 0 < done < self.iterations
        device.start(0, self.light, 100, self.iterations - done)
        assert self._finish(device, 1) == [0]

    def test_integrates_power(self, device: Device) -> None:
        """Energy is power times time, idle and busy."""
        idle = device.read()
        self.go(device, idle.time_s + 1.0)
        after = device.read()
        assert after.energy_j - idle.energy_j == pytest.approx(idle.power_w, rel=max(self.energy_rtol, 1e-9))
        device.start(0, self.light, 100)
        busy = device.read()
        self.go(device, busy.time_s + 2.0)
        spent_j = device.read().energy_j - busy.energy_j
        assert spent_j == pytest.approx(2.0 * busy.power_w, rel=max(self.energy_rtol, 1e-9))
        assert busy.power_w >= idle.power_w
        device.stop(0)

    def test_shares_between_tasks(self, device: Device) -> None:
        """Two tasks under MPS both finish, none faster than alone."""
        device.start(0, self.light, 50, self.iterations)
        alone_s = device.read().residents[0].time_s
        device.start(1, self.other, 50, self.iterations)
        together = device.read()
        assert set(together.residents) == {0, 1}
        assert together.residents[0].time_s >= alone_s * (1 - self.time_rtol)
        assert sorted(self._finish(device, 2)) == [0, 1]

    def test_sets_and_releases_its_clock(self, device: Device) -> None:
        """A clock of the grid can be requested, is not exceeded, and is released with None."""
        clock = device.gpu.clocks_mhz[len(device.gpu.clocks_mhz) // 2]
        if not self.sets_clocks:
            with pytest.raises(DeviceError):
                device.set_clock(clock)
            return
        device.set_clock(clock)
        reading = device.read()
        assert reading.requested_mhz == clock
        assert 0 < reading.sm_mhz <= clock
        device.set_clock(None)
        assert device.read().requested_mhz is None

    def test_refuses_a_clock_off_its_grid(self, device: Device) -> None:
        """A clock that is not on the grid raises `InputError`."""
        with pytest.raises(InputError):
            device.set_clock(device.gpu.clocks_mhz[0] - 1)

    def test_refuses_a_task_twice(self, device: Device) -> None:
        """A task id that runs cannot be started again."""
        device.start(0, self.light, 100)
        with pytest.raises(DeviceError):
            device.start(0, self.light, 100)
        device.stop(0)

    def test_refuses_to_stop_an_absent_task(self, device: Device) -> None:
        """Stopping a task that does not run raises `DeviceError`."""
        with pytest.raises(DeviceError):
            device.stop(5)

    def test_refuses_more_than_its_memory(self, device: Device) -> None:
        """A task that needs more memory than the GPU has raises `DeviceError` and changes nothing."""
        samples = 1
        while memory_mib(Workload(self.other.model, samples)) <= device.gpu.memory_mib:
            samples *= 2
        with pytest.raises(DeviceError):
            device.start(0, Workload(self.other.model, samples), 100)
        assert device.read().residents == {}

    def test_never_exceeds_its_mps_clients(self, device: Device) -> None:
        """Neither the memory nor the limit of MPS clients is exceeded."""
        tiny = Workload(self.light.model, 1)
        started = 0
        with pytest.raises(DeviceError):  # noqa: PT012 (the loop is the subject)
            for task in range(device.gpu.mps_clients + 1):
                device.start(task, tiny, 10)
                started += 1
        assert 1 < started <= device.gpu.mps_clients
        assert started * memory_mib(tiny) <= device.gpu.memory_mib
        for task in range(started):
            device.stop(task)

    def _finish(self, device: Device, tasks: int) -> list[int]:
        completed: list[int] = []
        for _ in range(1_000_000):
            if len(completed) >= tasks:
                break
            completed += self.go(device, device.next_event_s())
        return completed
