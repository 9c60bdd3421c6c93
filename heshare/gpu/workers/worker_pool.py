"""Worker processes of a live device: started from argument lists, read without blocking, never left behind."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol

from heshare.errors import DeviceError
from heshare.gpu.worker_program.worker_main import KEEP, STANDBY, order
from heshare.gpu.workers.worker_process import ProcessWorker, SpawnedWorker, spawn
from heshare.processes import child_environment
from heshare.world.workload import Workload

RUNNER = (sys.executable, "-m", "heshare.gpu.worker_program")
"""The command that runs a model of Table IV; a test's runs something that only counts."""
WARM_S = 1.0
"""How long a worker warms up, at least, s."""
_PATIENCE_S = 5.0


class SharingEnvironment(Protocol):
    """How processes share the GPU: what `heshare.gpu.mps.MpsSession` offers."""

    def environment(self, mps_pct: int = 100) -> dict[str, str]:
        """What a client's environment must hold before it has a CUDA context.

        Raises:
            DeviceError: a share that nothing would enforce.
        """
        ...


class ProcessLauncher:
    """Starts each task as a process of its own, as `heshare.gpu.workers.launcher.Launcher` asks.

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
        spares: how many processes to keep on stand-by, which have imported PyTorch but have no CUDA context, so that
            their share can still be set: a task then starts within a second or two instead of five or more.
        keep: how many processes to keep warm when their task is over. Each has its context, its share and its loaded
            kernels, and takes another task of the same share without any of that; it also has some hundred MiB of the
            card, which `shed` gives back.
    """

    def __init__(
        self,
        sharing: SharingEnvironment | None = None,
        *,
        command: Sequence[str] = RUNNER,
        device: str = "cuda",
        log_dir: Path | None = None,
        hold: bool = False,
        start_timeout_s: float = 300.0,
        grace_s: float = 15.0,
        period_s: float = 0.1,
        warmup: int = 5,
        warmup_s: float = WARM_S,
        spares: int = 0,
        keep: int = 0,
    ) -> None:
        self._sharing = sharing
        self._command = tuple(command)
        self._log_dir = log_dir
        self._hold = hold
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._options = {"device": device, "period-s": period_s, "warmup": warmup, "warmup-s": warmup_s}
        self._workers: list[ProcessWorker] = []
        self._spares: list[SpawnedWorker] = []
        self._spare_count = spares
        self._kept: list[tuple[Mapping[str, str], SpawnedWorker]] = []
        self._keep_count = keep
        self._going: list[SpawnedWorker] = []
        self._started = 0
        self._failed = False
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
        worker = self.start_held(task_id, workload, mps_pct, iterations, gpu_uuid=gpu_uuid)
        if not self._hold:
            worker.go()
        return worker

    def start_held(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> ProcessWorker:
        """As `start`; the worker waits for its `go`, or for `release`, before its first iteration.

        Raises:
            DeviceError: as `start`.
        """
        name = f"task {task_id} ({workload}@{mps_pct})"
        arguments = self._arguments(name, workload, iterations)
        share = self._share(name, mps_pct, gpu_uuid)
        worker = ProcessWorker(
            self._spawn(name, arguments, share),
            name=name,
            iterations=iterations,
            start_timeout_s=self._start_timeout_s,
            grace_s=self._grace_s,
            take_back=partial(self._take_back, share) if self._keep_count else None,
        )
        self._failed = self._failed or any(one.failure is not None for one in self._workers)
        self._workers = [one for one in self._workers if not one.closed] + [worker]
        return worker

    def stand_by(self) -> None:
        """Have as many processes on stand-by as `spares` says, so that they import while something else is measured.

        Raises:
            DeviceError: a process does not start.
        """
        try:
            while len(self._spares) < self._spare_count:
                self._spares.append(self._new([STANDBY], {}))
        except OSError as error:
            raise DeviceError(f"{self._command[0]} does not start: {error.strerror}. Check the command.") from error

    def shed(self) -> None:
        """End the processes that are kept warm, and wait until the card has their memory back."""
        for _, one in self._kept:
            one.dismiss()
        self._going += [one for _, one in self._kept]
        self._kept.clear()
        self._see_off(_PATIENCE_S)

    def release(self) -> None:
        """Let every worker that waits begin."""
        for worker in self._workers:
            worker.go()

    def close(self) -> None:
        """Stop every worker that is still there. May be repeated. The logs in a given `log_dir` stay."""
        while self._spares:
            self._spares.pop().discard()
        while self._workers:
            worker = self._workers.pop()
            worker.stop()
            self._failed = self._failed or worker.failure is not None
        self.shed()
        if self._own_dir is not None and not self._failed:
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
        words = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        return [*words, KEEP] if self._keep_count else words

    def _share(self, name: str, mps_pct: int, gpu_uuid: str) -> dict[str, str]:
        """What a worker's environment must hold before it has a CUDA context."""
        if self._sharing is not None:
            return self._sharing.environment(mps_pct)
        if mps_pct != 100:
            raise DeviceError(f"{name}: without MPS nothing enforces a share of {mps_pct} %. Ask for 100 %.")
        return {"CUDA_VISIBLE_DEVICES": gpu_uuid}

    def _spawn(self, name: str, arguments: Sequence[str], share: Mapping[str, str]) -> SpawnedWorker:
        """A process that runs this: a warm one of this share, else one on stand-by, else a new one."""
        self._see_off(0.0)
        try:
            spawned = (
                self._order(self._warm(share), arguments, share)
                or self._order(self._spares, arguments, share)
                or self._fresh(arguments, share)
            )
            self.stand_by()
        except OSError as error:
            program = self._command[0]
            raise DeviceError(f"{name}: {program} does not start: {error.strerror}. Check the command.") from error
        return spawned

    def _order(
        self, candidates: list[SpawnedWorker], arguments: Sequence[str], share: Mapping[str, str]
    ) -> SpawnedWorker | None:
        """Give the order to the first candidate that takes it; what is taken or dead leaves the list."""
        while candidates:
            one = candidates.pop(0)
            if one.alive and one.process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    one.process.stdin.write(order(arguments, share))
                    return one
            one.discard()
        return None

    def _fresh(self, arguments: Sequence[str], share: Mapping[str, str]) -> SpawnedWorker:
        """A new process; one that will be kept imports first what any model needs, not each model's in its turn."""
        if not self._keep_count:
            return self._new(arguments, share)
        one = self._new([STANDBY], {})
        return self._order([one], arguments, share) or self._new(arguments, share)

    def _warm(self, share: Mapping[str, str]) -> list[SpawnedWorker]:
        """Take the warm process of a share that was used last, if there is one."""
        found = next((one for one in reversed(self._kept) if one[0] == share), None)
        if found is None:
            return []
        self._kept.remove(found)
        return [found[1]]

    def _take_back(self, share: Mapping[str, str], spawned: SpawnedWorker) -> None:
        """Keep a process that waits for another task; those that were used longest ago go."""
        self._kept.append((share, spawned))
        while len(self._kept) > self._keep_count:
            leaving = self._kept.pop(0)[1]
            leaving.dismiss()
            self._going.append(leaving)

    def _see_off(self, patience_s: float) -> None:
        """Give back what belonged to dismissed processes; with patience, wait for each of them."""
        for one in [one for one in self._going if patience_s or not one.alive]:
            self._going.remove(one)
            one.discard(patience_s)

    def _new(self, arguments: Sequence[str], share: Mapping[str, str]) -> SpawnedWorker:
        self._started += 1
        # Nothing is downloaded, whatever a model library would like.
        environment = child_environment(HF_HUB_OFFLINE="1", **share)
        log = self._folder() / f"worker-{os.getpid()}-{self._started}.log"
        return spawn([*self._command, *arguments], environment, log)

    def _folder(self) -> Path:
        if self._log_dir is not None:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            return self._log_dir
        if self._own_dir is None:
            self._own_dir = Path(tempfile.mkdtemp(prefix="heshare-workers-"))
        return self._own_dir
