"""The package's launcher: a pool of PyTorch worker processes, spare (on stand-by), running a task, or idle."""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from heshare.ops.descriptors import start_error
from heshare.ops.mps import MpsSession
from heshare.ops.private_files import make_private_folder
from heshare.ops.worker_program.worker_main import STANDBY
from heshare.ops.worker_program.worker_messages import Order
from heshare.ops.workers.launcher import Launcher
from heshare.ops.workers.worker_process import ProcessWorker, SpawnedWorker, spawn
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.processes import child_environment
from heshare.world.workload import Workload

RUNNER = (sys.executable, "-m", "heshare.ops.worker_program")
"""The command of a worker process; tests use a program that only counts."""
WARM_S = 1.0
"""Least time of a worker's warm-up, s."""
_PATIENCE_S = 5.0


class ProcessLauncher(Launcher):
    """Runs each task in a separate worker process.

    Ctrl-C in a terminal does not reach the workers: their parent stops them. They also end with their parent, which
    closes their stdin.

    Args:
        sharing: the MPS session of the workers; None refuses an MPS percentage below 100.
        start_timeout_s: longest time of a worker to load and warm up, s.
        grace_s: longest time to finish its iteration when it is stopped, s.
        period_s: interval of reports, s.
        warmup, warmup_s: least number of iterations and least time of warm-up.
        spares: number of spare processes, which have imported PyTorch but have no CUDA context, so that their share can
            still be set: a task then starts within one or two seconds instead of five or more.
        keep: number of idle processes to reuse. Each has its CUDA context, share and loaded kernels, and starts another
            task of the same share faster. It uses some hundred MiB of GPU memory, which `end_idle_workers` frees.
    """

    def __init__(
        self,
        sharing: MpsSession | None = None,
        *,
        command: Sequence[str] = RUNNER,
        log_dir: Path | None = None,
        start_timeout_s: float = 300.0,
        grace_s: float = 15.0,
        period_s: float = 0.1,
        warmup: int = 5,
        warmup_s: float = WARM_S,
        spares: int = 0,
        keep: int = 0,
    ) -> None:
        self._sharing, self._command, self._log_dir = sharing, tuple(command), log_dir
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._order = partial(Order, keep=keep > 0, period_s=period_s, warmup=warmup, warmup_s=warmup_s)
        self._spare_count, self._keep_count = spares, keep
        self._workers: list[ProcessWorker] = []
        self._spares: list[SpawnedWorker] = []
        self._kept: list[tuple[Mapping[str, str], SpawnedWorker]] = []
        self._going: list[SpawnedWorker] = []
        self._started = 0
        self._failed = False
        self._own_dir: Path | None = None

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> ProcessWorker:
        """Start one worker, as `Launcher.start`; a number of iterations is rounded up to whole ones."""
        name = f"task {task_id} ({workload}@{mps_pct})"
        if workload.engine != "eager":
            raise DeviceError(f"{name}: workers run PyTorch (engine eager), not {workload.engine}. Use engine eager.")
        if iterations is not None and not (math.isfinite(iterations) and iterations > 0):
            raise DeviceError(f"{name}: {iterations} iterations requested. Request more than 0, or None.")
        share = (self._sharing or MpsSession(gpu_uuid)).environment(mps_pct)
        count = None if iterations is None else math.ceil(iterations)
        order = self._order(workload.model, workload.batch_size, workload.precision, count, share)
        spawned = self._place(order.line(), share)
        take_back = partial(self._take_back, share) if self._keep_count else None
        worker = ProcessWorker(
            spawned,
            name=name,
            iterations=iterations,
            take_back=take_back,
            start_timeout_s=self._start_timeout_s,
            grace_s=self._grace_s,
        )
        self._failed = self._failed or any(one.failure is not None for one in self._workers)
        self._workers = [one for one in self._workers if not one.closed] + [worker]
        self.stand_by()
        return worker

    def stand_by(self) -> None:
        while len(self._spares) < self._spare_count:
            self._spares.append(self._spawn(STANDBY))

    def end_idle_workers(self) -> None:
        for _, spawned in self._kept:
            spawned.dismiss()
        self._going += [spawned for _, spawned in self._kept]
        self._kept.clear()
        self._discard_dismissed(_PATIENCE_S)

    def close(self) -> None:
        """End every process. Idempotent. The logs in a given `log_dir` stay."""
        while self._spares:
            self._spares.pop().discard()
        while self._workers:
            worker = self._workers.pop()
            worker.stop()
            self._failed = self._failed or worker.failure is not None
        self.end_idle_workers()
        if self._own_dir is not None and not self._failed:
            shutil.rmtree(self._own_dir, ignore_errors=True)
            self._own_dir = None

    def __enter__(self) -> "ProcessLauncher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _place(self, order: bytes, share: Mapping[str, str]) -> SpawnedWorker:
        self._discard_dismissed(0.0)
        for spawned in self._waiting(share):
            if spawned.send(order):
                return spawned
            spawned.discard()
        # A reusable worker imports the libraries of all models first, not those of each model in turn. A worker that
        # ends before it has its order reports that like any other failure.
        spawned = self._spawn(*([STANDBY] if self._keep_count else []))
        spawned.send(order)
        return spawned

    def _waiting(self, share: Mapping[str, str]) -> Iterator[SpawnedWorker]:
        warm = [entry for entry in self._kept if entry[0] == share][-1:]
        for entry in warm:
            self._kept.remove(entry)
            yield entry[1]
        while self._spares:
            yield self._spares.pop(0)

    def _take_back(self, share: Mapping[str, str], spawned: SpawnedWorker) -> None:
        self._kept.append((share, spawned))
        while len(self._kept) > self._keep_count:
            leaving = self._kept.pop(0)[1]
            leaving.dismiss()
            self._going.append(leaving)

    def _discard_dismissed(self, patience_s: float) -> None:
        for spawned in list(self._going):
            if patience_s or spawned.process.poll() is not None:
                self._going.remove(spawned)
                spawned.discard(patience_s)

    def _spawn(self, *options: str) -> SpawnedWorker:
        self._started += 1
        folder = self._log_dir or self._own_dir
        if folder is None:
            folder = self._own_dir = Path(tempfile.mkdtemp(prefix="heshare-workers-"))
        log = folder / f"worker-{os.getpid()}-{self._started}.log"
        try:
            make_private_folder(folder)
            # Model libraries must not download anything.
            return spawn([*self._command, *options], child_environment(HF_HUB_OFFLINE="1"), log)
        except (OSError, InputError) as error:
            raise start_error(self._command[0], error) from error
