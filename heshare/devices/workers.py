"""Worker processes of a live device: started from argument lists, read without blocking, never left behind."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from heshare.devices.worker import ProcessWorker
from heshare.errors import DeviceError
from heshare.files import PACKAGE
from heshare.world.workload import Workload

RUNNER = (sys.executable, "-m", "heshare.devices.runner")
"""The command that runs a model of Table IV; a test's runs something that only counts."""


class Sharing(Protocol):
    """How processes share the GPU: what `heshare.devices.mps.MpsSession` offers."""

    def environment(self, mps_pct: int = 100) -> dict[str, str]:
        """What a client's environment must hold before it has a CUDA context.

        Raises:
            DeviceError: a share that nothing would enforce.
        """
        ...


class ProcessLauncher:
    """Starts each task as a process of its own, as `heshare.devices.launcher.Launcher` asks.

    Ctrl-C in a terminal does not reach the workers: whoever started them stops them. If it dies, they end by
    themselves, since their standard input ends.

    Args:
        sharing: the MPS session whose clients the workers are. Without one, a worker has the whole GPU or shares it by
            time-slicing, and an MPS percentage below 100 is refused, since nothing would enforce it.
        command: what to run, an argument list; the worker's own arguments follow.
        device: `cuda`, or `cpu` to try things out.
        log_dir: where the workers' logs go; a new temporary folder by default.
        hold: wait for `release` before the first iteration, so that a batch begins together.
        start_timeout_s: how long a worker may take to load and warm up, s.
        grace_s: how long it may take to finish its iteration when it is stopped, s.
        period_s: seconds from report to report.
        warmup: iterations of warm-up, at least.
        warmup_s: seconds of warm-up, at least.
    """

    def __init__(
        self,
        sharing: Sharing | None = None,
        *,
        command: Sequence[str] = RUNNER,
        device: str = "cuda",
        log_dir: Path | None = None,
        hold: bool = False,
        start_timeout_s: float = 300.0,
        grace_s: float = 15.0,
        period_s: float = 0.1,
        warmup: int = 5,
        warmup_s: float = 1.0,
    ) -> None:
        self._sharing = sharing
        self._command = tuple(command)
        self._log_dir = log_dir
        self._hold = hold
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._options = {"device": device, "period-s": period_s, "warmup": warmup, "warmup-s": warmup_s}
        self._workers: list[ProcessWorker] = []
        self._own_dir: Path | None = None

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> ProcessWorker:
        """Start one worker and return at once; it says `ready` later.

        Args:
            task_id: the id that the device knows the task by.
            workload: what to run, in PyTorch (engine `eager`).
            mps_pct: its share of the SMs, %.
            iterations: how many to do, rounded up to whole ones; None runs until it is stopped.
            gpu_uuid: the GPU, as NVML names it.

        Raises:
            DeviceError: another engine, a share that nothing would enforce, no iterations, or no process.
        """
        name = f"task {task_id} ({workload}@{mps_pct})"
        arguments = self._arguments(name, workload, iterations)
        environment = self._environment(name, mps_pct, gpu_uuid)
        log = self._folder() / f"task-{task_id}-{workload.model}-{workload.batch_size}.log".replace(os.sep, "_")
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            with log.open("ab") as output:
                process = _spawn([*arguments, "--report-fd", str(writing)], environment, output, writing)
        except OSError as error:
            os.close(reading)
            raise DeviceError(f"{name}: {arguments[0]} does not start: {error.strerror}. Check the command.") from error
        finally:
            os.close(writing)
        worker = ProcessWorker(
            process,
            reading,
            name=name,
            log=log,
            iterations=iterations,
            start_timeout_s=self._start_timeout_s,
            grace_s=self._grace_s,
        )
        self._workers = [one for one in self._workers if not one.closed] + [worker]
        if not self._hold:
            worker.go()
        return worker

    def release(self) -> None:
        """Let every worker that waits begin."""
        for worker in self._workers:
            worker.go()

    def close(self) -> None:
        """Stop every worker that is still there. May be repeated. The logs in a given `log_dir` stay."""
        failed = False
        while self._workers:
            worker = self._workers.pop()
            worker.stop()
            failed = failed or worker.failure is not None
        if self._own_dir is not None and not failed:
            shutil.rmtree(self._own_dir, ignore_errors=True)
            self._own_dir = None

    def __enter__(self) -> ProcessLauncher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arguments(self, name: str, workload: Workload, iterations: float | None) -> list[str]:
        if workload.engine != "eager":
            raise DeviceError(f"{name}: workers run PyTorch (eager), not {workload.engine}. Ask for engine eager.")
        if iterations is not None and not (math.isfinite(iterations) and iterations > 0):
            raise DeviceError(f"{name}: {iterations} iterations asked for. Ask for more than 0, or for None.")
        options = {
            "model": workload.model,
            "batch-size": workload.batch_size,
            "precision": workload.precision,
            "iterations": "forever" if iterations is None else math.ceil(iterations),
            **self._options,
        }
        return [*self._command, *(part for key, value in options.items() for part in (f"--{key}", str(value)))]

    def _environment(self, name: str, mps_pct: int, gpu_uuid: str) -> dict[str, str]:
        if self._sharing is not None:
            share = self._sharing.environment(mps_pct)
        elif mps_pct == 100:
            share = {"CUDA_VISIBLE_DEVICES": gpu_uuid}
        else:
            raise DeviceError(f"{name}: without MPS nothing enforces a share of {mps_pct} %. Ask for 100 %.")
        path = os.pathsep.join(part for part in (str(PACKAGE.parent), os.environ.get("PYTHONPATH")) if part)
        # Nothing is downloaded, whatever a model library would like.
        return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path, **share}

    def _folder(self) -> Path:
        if self._log_dir is not None:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            return self._log_dir
        if self._own_dir is None:
            self._own_dir = Path(tempfile.mkdtemp(prefix="heshare-workers-"))
        return self._own_dir


def _spawn(
    arguments: list[str], environment: Mapping[str, str], output: IO[bytes], pipe: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        bufsize=0,
        env=environment,
        pass_fds=(pipe,),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
