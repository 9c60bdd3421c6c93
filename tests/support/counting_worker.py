"""Workers that only count iterations by the clock, without a process: a launcher for tests of live devices."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from heshare.ops.workers.launcher import Launcher
from heshare.world.workload import Workload


class ToyWorker:
    """A worker that completes an iteration every `period_s` from `go` on; `how` is a failure of `ToyLauncher`."""

    pid = 0

    def __init__(
        self,
        period_s: float,
        iterations: float | None,
        how: str = "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._period_s, self._how, self._now_s = period_s, how, now_s
        self._wanted = math.inf if iterations is None else iterations
        self._begun_s = math.inf
        self.ready = self.stopped = False
        self.done, self.time_s = 0.0, math.nan
        self.failure: str | None = None

    @property
    def finished(self) -> bool:
        return self.done >= self._wanted

    def go(self) -> None:
        self._begun_s = min(self._begun_s, self._now_s())

    def poll(self) -> None:
        if self.stopped or self.failure is not None:
            return
        if self._how == "fails-at-start":
            self.failure = "out of memory"
        self.ready = self._how in ("", "crashes")

        passed_s = max(0.0, self._now_s() - self._begun_s)
        whole = float((passed_s + 1e-9) // self._period_s)
        self.done = min(whole, self._wanted) if self.ready else 0.0
        if self._how == "crashes" and self.done >= 5.0:
            self.done, self.failure = 5.0, "device-side assert"
        if self.done > 0.0:
            self.time_s = self._period_s

    def stop(self) -> float:
        self.poll()
        self.stopped = True
        return self.done


class ToyLauncher(Launcher):
    """Starts `ToyWorker`s.

    Args:
        period_s: seconds per iteration, for any workload and any co-runners.
        failure: how the workers fail: `fails-at-start` is never ready, `silent` neither, without a failure, `crashes`
            ends at the fifth iteration; empty is no failure.
    """

    def __init__(self, period_s: float = 0.005, *, failure: str = "") -> None:
        self._period_s, self._failure = period_s, failure
        self.started: list[ToyWorker] = []

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> ToyWorker:
        self.started.append(ToyWorker(self._period_s, iterations, self._failure))
        return self.started[-1]
