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

MakeLauncher = Callable[..., ProcessLauncher]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[MakeLauncher]:
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


def begun(one: ProcessLauncher, model: str = "spin:1", pct: int = 100, iterations: float | None = 3) -> ProcessWorker:
    worker = one.start(7, Workload(model, 4), pct, iterations, gpu_uuid=GPU)
    worker.go()
    return worker


def finished(*given: Any, **more: Any) -> ProcessWorker:
    worker = begun(*given, **more)
    poll_until(worker, lambda: worker.finished)
    return worker


def test_kept_process(launcher: MakeLauncher) -> None:
    """A process is kept for the next tasks of its MPS percentage, and the count of each task is exact."""
    one = launcher()
    pids = set()
    for number in range(1, 5):
        worker = finished(one, f"spin:{number}", iterations=10 * number)
        assert worker.title == f"spin of {number} ms"
        assert worker.stop() == worker.stop() == 10 * number
        worker = begun(one, iterations=None)
        poll_until(worker, lambda worker=worker: worker.done > 3)  # type: ignore[misc]
        assert worker.stop() == worker.done > 3
        assert (worker.closed, worker.failure) == (True, None)
        pids.add(worker.pid)
    (pid,) = pids
    assert not has_ended(pid)
    one.close()
    assert has_ended(pid)


def test_other_percentage(launcher: MakeLauncher) -> None:
    """Another MPS percentage needs another process; the one used longest ago is ended."""
    one = launcher()
    pids: dict[int, int] = {}
    for pct in (100, 30, 100, 30, 50):
        worker = finished(one, pct=pct)
        worker.stop()
        assert pids.setdefault(pct, worker.pid) == worker.pid
    assert len(set(pids.values())) == 3
    one.end_idle_workers()
    assert all(map(has_ended, pids.values()))


def test_late_stop(launcher: MakeLauncher) -> None:
    """A stop after the end of a task does not end the next one."""
    one = launcher()
    for number in range(20):
        worker = begun(one, "spin:0.01", iterations=1 + number % 3)
        poll_until(worker, lambda worker=worker: worker.ready)  # type: ignore[misc]
        if number % 2:
            poll_until(worker, lambda worker=worker: worker.finished)  # type: ignore[misc]
        worker.stop()
        assert worker.failure is None
        assert not number % 2 or worker.done == 1 + number % 3


def test_not_kept(launcher: MakeLauncher) -> None:
    """A worker that failed, was loading or has ended is not kept."""
    failed = begun(launcher("--fail-after", "20"), iterations=None)
    poll_until(failed, lambda: failed.failure)
    failed.stop()
    assert has_ended(failed.pid)
    loading = begun(launcher("--load-s", "60"), iterations=None)
    time.sleep(0.2)
    assert loading.stop() == 0
    assert has_ended(loading.pid)
    one = launcher()
    ended = finished(one)
    ended.stop()
    os.kill(ended.pid, 9)
    os.waitpid(ended.pid, os.WNOHANG)
    time.sleep(0.1)
    assert finished(one).pid != ended.pid


def test_start_together(fake: FakeNvml, mps_mode: Callable[[str], Path], launcher: MakeLauncher) -> None:
    """Tasks that are started together begin when the last is ready."""
    mps_mode("works")
    mps = MpsSession(GPU)
    one = launcher("--load-s", "0.3")
    one._sharing = mps
    wanted = {n: resident(f"mobilenet:4@{10 * n + 10}") for n in range(4)}
    with NvmlDevice(0, one, mps=mps) as device:
        device.start_together(wanted)
        reading = device.read()
        assert {task: found.resident for task, found in reading.residents.items()} == wanted
        # Of 2 ms each: less than the 0.3 s that one takes to load.
        assert max(found.done for found in reading.residents.values()) < 20
        assert all(worker.time_s > 0 for worker in device._tasks.progress().values())
        pids = {worker.pid for worker in one._workers}
        for task in wanted:
            device.stop(task)
        device.start_together({9: wanted[3], 8: wanted[2]})
        assert {worker.pid for worker in one._workers if not worker.closed} <= pids
        assert len(device.read().residents) == 2


def test_all_or_none(fake: FakeNvml) -> None:
    """Tasks that are started together all start, or none does."""
    wanted = {n: resident("mobilenet:4@100") for n in range(3)}
    toys = ToyLauncher(failure="fails-at-start")
    with NvmlDevice(0, toys) as device:
        with pytest.raises(DeviceError, match="out of memory"):
            device.start_together(wanted)
        assert device.read().residents == {}
    assert all(worker.stopped for worker in toys.started)
    toys = ToyLauncher()
    with NvmlDevice(0, toys) as device:
        with pytest.raises(DeviceError, match="without MPS"):
            device.start_together({**wanted, 3: resident("mobilenet:4@50")})
        fake.set("free_mib", 2000.0)
        with pytest.raises(DeviceError, match="2000 are free"):
            device.start_together({n: resident("vgg19:8@100") for n in range(3)})
        assert toys.started == []


def test_short_memory(fake: FakeNvml) -> None:
    """Warm processes are ended if memory is short."""
    launcher = ToyLauncher()
    launcher.end_idle_workers = lambda: fake.set("free_mib", 40_000.0)  # type: ignore[method-assign]
    fake.set("free_mib", 10.0)
    with NvmlDevice(0, launcher) as device:
        device.start(0, Workload("mobilenet", 4), 100)
        assert set(device.read().residents) == {0}


def test_stand_by(fake: FakeNvml, launcher: MakeLauncher, tmp_path: Path) -> None:
    """`stand_by` starts the spares before the first task."""
    one = launcher(spares=3)
    with NvmlDevice(0, one) as device:
        device.stand_by()
        spares = {spare.process.pid for spare in one._spares}
        assert len(spares) == 3
        device.stand_by()
        assert {spare.process.pid for spare in one._spares} == spares
    assert all(map(has_ended, spares))
    missing = ProcessLauncher(command=("/no/such/program",), log_dir=tmp_path, spares=1)
    with NvmlDevice(0, missing) as device, pytest.raises(DeviceError, match="does not start"):
        device.stand_by()
