"""The models of Table IV on the first GPU of this machine, by `pytest -m gpu`: workers, stand-by, kernel traces."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

from heshare.ops.recording.kernel_recorder import Tracer
from heshare.ops.worker_program.networks import RECIPES
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.ops.workers.worker_process import ProcessWorker
from heshare.world.workload import PRECISIONS, Workload

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory):
    with ProcessLauncher(log_dir=tmp_path_factory.mktemp("logs"), spares=2, warmup_s=0.2) as launcher:
        yield launcher


def _until(worker: ProcessWorker, true: Callable[[], object]) -> None:
    limit_s = time.monotonic() + 120
    while not true():
        assert time.monotonic() < limit_s
        assert worker.failure is None, worker.failure
        worker.poll()
        time.sleep(0.01)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", list(RECIPES))
def test_models(model: str, precision: str, launcher: ProcessLauncher, torch_uuid: str) -> None:
    """Every model runs in every precision."""
    worker = launcher.start(0, Workload(model, 4, precision), 100, None, gpu_uuid=torch_uuid)
    worker.go()
    _until(worker, lambda: worker.done >= 20)
    first, first_s = worker.done, worker.at_s
    reported_s: list[float] = []

    def one_second_on() -> bool:
        reported_s.append(worker.time_s)
        return worker.at_s > first_s + 1.0

    _until(worker, one_second_on)
    mean_s = (worker.at_s - first_s) / (worker.done - first)
    # One report covers 0.1 s, in which a host-bound model can be much faster or slower than in the mean.
    assert median(reported_s) == pytest.approx(mean_s, rel=0.3)
    assert worker.stop() >= worker.done > 20
    assert worker.failure is None


def test_out_of_memory(launcher: ProcessLauncher, torch_uuid: str) -> None:
    """Running out of memory is reported."""
    worker = launcher.start(0, Workload("vgg19", 1_000_000), 100, None, gpu_uuid=torch_uuid)
    with pytest.raises(AssertionError, match="out of GPU memory"):
        _until(worker, lambda: False)
    worker.stop()


def test_kernel_trace(torch_uuid: str, tmp_path: Path) -> None:
    """A trace has the kernels of every layer."""
    with closing(Tracer("A100", gpu_uuid=torch_uuid, timeout_s=600.0)) as trace:
        rows = trace(Workload("resnet18", 4))
    assert len(rows) >= 40
    assert all(row.duration_us > 0 for row in rows)
    assert any(row.grid for row in rows)
    assert rows[0].repeats >= 3
