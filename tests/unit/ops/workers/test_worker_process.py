"""Worker processes and their launcher, with real processes of a program that only sleeps."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until
from support.worker_checks import GPU, SPIN, ClientEnvironments, has_ended, poll_until

from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.ops.workers.worker_process import ProcessWorker
from heshare.shared.errors import DeviceError
from heshare.shared.processes import is_running
from heshare.world.workload import Workload

Start = Callable[..., ProcessWorker]
RESNET = Workload("resnet50", 1)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `spin:2` (or another model) with a launcher of its own, which is closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, model: str = "spin:2", iterations: float | None = None, **how: Any) -> ProcessWorker:
            how = {"warmup": 1, "warmup_s": 0.0, "log_dir": tmp_path, "command": (*SPIN, *options), **how}
            launcher = stack.enter_context(ProcessLauncher(ClientEnvironments(), **how))
            worker = launcher.start(7, Workload(model, 4), 100, iterations, gpu_uuid=GPU)
            worker.go()
            return worker

        yield start


def test_end(start: Start) -> None:
    """A worker runs to its end and leaves no process."""
    worker = start(iterations=19.5)
    poll_until(worker, lambda: worker.finished)
    assert worker.ready
    assert worker.failure is None
    assert worker.done == 19.5  # the last one runs in full, and its fraction counts
    assert worker.time_s >= 0.002
    assert worker.title == "spin of 2 ms"
    poll_until(worker, lambda: worker.closed)
    assert has_ended(worker.pid)
    assert worker.stop() == 19.5


def test_exact_count(start: Start) -> None:
    """`stop` returns the exact count of iterations, not that of the last report."""
    worker = start(period_s=60.0)
    poll_until(worker, lambda: worker.ready)
    assert worker.done == 0
    time.sleep(0.2)
    done = worker.stop()
    assert done == int(done) >= 1
    assert (worker.failure, worker.finished, worker.stop()) == (None, False, done)
    assert has_ended(worker.pid)


def python(code: str) -> dict[str, Any]:
    return {"command": (sys.executable, "-c", code)}


NO_MESSAGE = "import os,sys; os.write(int(sys.argv[sys.argv.index('--report-fd')+1]), b'hello\\n')"


@pytest.mark.parametrize(
    ("options", "how", "message"),
    [
        (("--fail-after", "30"), {}, "RuntimeError: a kernel failed"),
        (("--fail-after", "30", "--error", "memory"), {}, "out of GPU memory: OutOfMemoryError: CUDA out of memory"),
        (("--fail-after", "30", "--error", "killed"), {}, "ended without a message, by SIGKILL"),
        ((), python("import sys; sys.exit(3)"), "ended without a message, exit code 3"),
        ((), python(NO_MESSAGE), "no message"),
        (("--load-s", "60"), {"start_timeout_s": 0.3}, "not ready after 0.3 s"),
    ],
)
def test_failure(start: Start, options: tuple[str, ...], how: dict[str, Any], message: str) -> None:
    """A failure names the task, the error and the log."""
    worker = start(*options, **how)
    poll_until(worker, lambda: worker.failure)
    assert worker.failure is not None
    assert worker.failure.startswith("task 7 (spin:2:4@100): ")
    assert message in worker.failure
    assert str(worker.log) in worker.failure
    assert not worker.finished
    poll_until(worker, lambda: worker.closed)
    assert has_ended(worker.pid)
    if "RuntimeError" in message:
        assert "Traceback" in worker.log.read_text("utf-8")


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of a signal."""
    caught = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_stop_kills(start: Start) -> None:
    """`stop` kills a worker that does not react."""
    worker = start(model="spin:60000", warmup=1, grace_s=0.2)
    # Warm-up takes a minute here. A stopped process cannot react once it has a handler; without one SIGTERM ends it.
    assert until(lambda: handles(worker.pid, signal.SIGTERM))
    os.kill(worker.pid, signal.SIGSTOP)
    assert worker.stop() == 0
    assert "was killed" in str(worker.failure)
    assert has_ended(worker.pid)


PARENT = """
import sys, time
from pathlib import Path
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.world.workload import Workload
command = (sys.executable, "-m", "support.spin_worker")
launcher = ProcessLauncher(command=command, log_dir=Path(sys.argv[1]), warmup=1, warmup_s=0.0)
worker = launcher.start(1, Workload("spin:2", 1), 100, None, gpu_uuid="x")
while not worker.ready:
    worker.poll()
    time.sleep(0.01)
print(worker.pid, flush=True)
time.sleep(60)
"""


def test_parent_killed(tmp_path: Path) -> None:
    """A worker ends with its parent."""
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not has_ended(pid)
        parent.kill()
    assert until(lambda: not is_running(pid))


@pytest.mark.parametrize(
    ("workload", "mps_pct", "iterations", "message"),
    [
        (RESNET, 50, None, "without MPS"),
        *[(RESNET, 100, bad, "iterations") for bad in (0.0, math.nan, math.inf)],
        (Workload("resnet50", 1, engine="tensorrt"), 100, None, "tensorrt"),
    ],
)
def test_refused(workload: Workload, mps_pct: int, iterations: float | None, message: str) -> None:
    """What cannot be run is refused."""
    with pytest.raises(DeviceError, match=message):
        ProcessLauncher().start(1, workload, mps_pct, iterations, gpu_uuid=GPU)


ORDERED = """
import os, sys
from heshare.ops.worker_program.worker_main import main
def make(*what):
    names = 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE', 'CUDA_VISIBLE_DEVICES'
    raise SystemExit(' '.join(os.environ[name] for name in names))
sys.exit(main(sys.argv[1:], make, prepare=lambda: print('ready to take an order')))
"""


@pytest.mark.parametrize("spares", [0, 1])
def test_spare_environment(spares: int, tmp_path: Path) -> None:
    """A spare takes the environment of its order, with the MPS percentage, before it has a CUDA context."""
    how: dict[str, Any] = {**python(ORDERED), "log_dir": tmp_path, "spares": spares}
    with ProcessLauncher(ClientEnvironments(), **how) as launcher:
        for share in (30, 60):
            worker = launcher.start(1, RESNET, share, None, gpu_uuid=GPU)
            poll_until(worker, lambda worker=worker: worker.failure)  # type: ignore[misc]
            assert f"SystemExit: {share} {GPU}" in str(worker.failure)
            worker.stop()
        assert ("ready to take an order" in worker.log.read_text("utf-8")) == (spares > 0)
