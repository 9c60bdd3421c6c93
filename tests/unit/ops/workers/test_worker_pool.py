"""Processes that are kept warm between tasks, and tasks that are started together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.counting_worker import ToyLauncher
from support.fakenvml import FakeNvml
from support.worker_checks import GPU, SPIN, ClientEnvironments, descriptors, has_ended, poll_until

from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.ops.workers.worker_process import ProcessWorker
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import resident
from heshare.world.workload import Workload


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Callable[..., ProcessLauncher]]:
    """Makes launchers; checks at the end that they have left no open descriptor."""
    before = descriptors()
    made: list[ProcessLauncher] = []

    def make(*options: str, **how: Any) -> ProcessLauncher:
        how = {"warmup": 1, "warmup_s": 0.0, "period_s": 0.02, "log_dir": tmp_path, "keep": 2, **how}
        made.append(ProcessLauncher(ClientEnvironments(), command=(*SPIN, *options), **how))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert descriptors() == before


def _run(
    launcher: ProcessLauncher, model: str = "spin:1", pct: int = 100, iterations: float | None = 3
) -> ProcessWorker:
    worker = launcher.start(7, Workload(model, 4), pct, iterations, gpu_uuid=GPU)
    worker.go()
    return worker


def test_launcher_keeps_a_process_for_the_next_tasks_of_its_share(launcher: Callable[..., ProcessLauncher]) -> None:
    """The count of each task is exact, whether it finished or was stopped."""
    one = launcher()
    pids = []
    for number in range(1, 5):
        worker = _run(one, f"spin:{number}", iterations=10 * number)
        poll_until(worker, lambda worker=worker: worker.finished)  # type: ignore[misc]
        assert worker.title == f"spin of {number} ms"
        assert worker.stop() == worker.stop() == 10 * number
        worker = _run(one, iterations=None)
        poll_until(worker, lambda worker=worker: worker.done > 3)  # type: ignore[misc]
        assert worker.stop() == worker.done > 3
        assert worker.closed
        assert worker.failure is None
        pids.append(worker.pid)
    assert len(set(pids)) == 1
    assert not has_ended(pids[0])
    one.close()
    assert has_ended(pids[0])


def test_launcher_starts_another_process_for_another_share(launcher: Callable[..., ProcessLauncher]) -> None:
    """A share is fixed with the CUDA context; the process used longest ago is ended for a third share."""
    one = launcher()
    pids = {}
    for pct in (100, 30, 100, 30, 50):
        worker = _run(one, pct=pct)
        poll_until(worker, lambda worker=worker: worker.finished)  # type: ignore[misc]
        worker.stop()
        assert pids.setdefault(pct, worker.pid) == worker.pid
    assert len(set(pids.values())) == 3
    one.shed()
    assert all(map(has_ended, pids.values()))


def test_stop_after_the_end_does_not_end_the_next_task(launcher: Callable[..., ProcessLauncher]) -> None:
    one = launcher()
    for number in range(20):
        worker = _run(one, "spin:0.01", iterations=1 + number % 3)
        poll_until(worker, lambda worker=worker: worker.ready)  # type: ignore[misc]
        if number % 2:
            poll_until(worker, lambda worker=worker: worker.finished)  # type: ignore[misc]
        worker.stop()
        assert worker.failure is None
        if number % 2:
            assert worker.done == 1 + number % 3


def test_launcher_does_not_keep_a_worker_that_failed_or_was_loading(launcher: Callable[..., ProcessLauncher]) -> None:
    broken = launcher("--fail-after", "20")
    worker = _run(broken, iterations=None)
    poll_until(worker, lambda: worker.failure)
    worker.stop()
    assert has_ended(worker.pid)
    slow = launcher("--load-s", "60")
    worker = _run(slow, iterations=None)
    time.sleep(0.2)
    assert worker.stop() == 0
    assert has_ended(worker.pid)


def test_launcher_skips_a_warm_process_thathas_ended(launcher: Callable[..., ProcessLauncher]) -> None:
    one = launcher()
    worker = _run(one)
    poll_until(worker, lambda: worker.finished)
    worker.stop()
    os.kill(worker.pid, 9)
    os.waitpid(worker.pid, os.WNOHANG)
    time.sleep(0.1)
    other = _run(one)
    poll_until(other, lambda: other.finished)
    assert other.pid != worker.pid


def test_launcher_uses_a_spare_if_no_warm_process_has_the_share(launcher: Callable[..., ProcessLauncher]) -> None:
    one = launcher(spares=1)
    first = _run(one)
    spare = one._spares[0].process.pid
    second = _run(one, pct=40)
    assert second.pid == spare
    for worker in (first, second):
        poll_until(worker, lambda worker=worker: worker.finished)  # type: ignore[misc]
        worker.stop()
    third = _run(one, pct=40)
    assert third.pid == spare
    poll_until(third, lambda: third.finished)


def test_start_together_begins_all_tasks_when_the_last_is_ready(
    fake: FakeNvml, mps_mode: Callable[[str], Path], launcher: Callable[..., ProcessLauncher]
) -> None:
    """No iteration is counted before the last task is ready."""
    mps_mode("obeys")
    mps = MpsSession(GPU)
    one = launcher("--load-s", "0.3")
    one._sharing = mps
    wanted = {n: resident(f"mobilenet:4@{10 * n + 10}") for n in range(4)}
    with NvmlDevice(0, one, mps=mps) as device:
        device.start_together(wanted)
        reading = device.read()
        assert {task: found.resident for task, found in reading.residents.items()} == wanted
        done = [found.done for found in reading.residents.values()]
        assert max(done) < 20  # of 2 ms each: less than the 0.3 s that one takes to load
        ready_s = [worker.time_s for worker in device._tasks.progress().values()]
        assert all(time_s > 0 for time_s in ready_s)
        pids = {worker.pid for worker in one._workers}
        for task in wanted:
            device.stop(task)
        device.start_together({9: wanted[3], 8: wanted[2]})
        assert {worker.pid for worker in one._workers if not worker.closed} <= pids
        assert len(device.read().residents) == 2


def test_start_together_starts_all_tasks_or_none(fake: FakeNvml) -> None:
    wanted = {n: resident("mobilenet:4@100") for n in range(3)}
    toys = ToyLauncher(doom="unborn")
    with NvmlDevice(0, toys) as device:
        with pytest.raises(DeviceError, match="out of memory"):
            device.start_together(wanted)
        assert device.read().residents == {}
    assert all(worker._process.returncode is not None for worker in toys.started)
    toys = ToyLauncher()
    with NvmlDevice(0, toys) as device:
        with pytest.raises(DeviceError, match="without MPS"):
            device.start_together({**wanted, 3: resident("mobilenet:4@50")})
        fake.set("free_mib", 2000.0)
        with pytest.raises(DeviceError, match="2000 are free"):
            device.start_together({n: resident("vgg19:8@100") for n in range(3)})
        assert toys.started == []


def test_start_ends_warm_processes_if_memory_is_short(fake: FakeNvml) -> None:
    class WarmLauncher(ToyLauncher):
        def shed(self) -> None:
            fake.set("free_mib", 40_000.0)

    fake.set("free_mib", 10.0)
    with NvmlDevice(0, WarmLauncher()) as device:
        device.start(0, Workload("mobilenet", 4), 100)
        assert set(device.read().residents) == {0}


def test_stand_by_starts_the_spares_before_the_first_task(
    fake: FakeNvml, launcher: Callable[..., ProcessLauncher], tmp_path: Path
) -> None:
    one = launcher(spares=3)
    with NvmlDevice(0, one) as device:
        device.stand_by()
        assert len(one._spares) == 3
        spares = {spare.process.pid for spare in one._spares}
        device.stand_by()
        assert {spare.process.pid for spare in one._spares} == spares
    assert all(map(has_ended, spares))
    missing = ProcessLauncher(command=("/no/such/program",), log_dir=tmp_path, spares=1)
    with NvmlDevice(0, missing) as device, pytest.raises(DeviceError, match="does not start"):
        device.stand_by()
