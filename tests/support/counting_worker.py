"""Worker processes that only count: a launcher for tests of live devices that really starts processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable

from heshare.ops.workers.launcher import Launcher
from heshare.world.workload import Workload

# Prints "ready", then a line for each completed iteration; the third argument selects a failure.
_PROGRAM = """
import sys, time
period_s, iterations, failure = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if failure == "silent":
    time.sleep(3600)
if failure == "fails-at-start":
    sys.exit("out of memory")
print("ready", flush=True)
sys.stdin.read(1)
began_s, done = time.perf_counter(), 0
while done < iterations:
    done += 1
    time.sleep(max(0.0, began_s + done * period_s - time.perf_counter()))
    print(done, flush=True)
    if failure == "crashes" and done == 5:
        sys.exit("device-side assert")
"""


class ToyWorker:
    """A process that counts an iteration every `period_s`."""

    def __init__(self, period_s: float, iterations: float | None, failure: str, environment: dict[str, str]) -> None:
        self._wanted = math.inf if iterations is None else iterations
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _PROGRAM, repr(period_s), repr(self._wanted), failure],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._period_s = period_s
        self._text = b""
        self._stopped = False
        self.pid = self._process.pid
        self.ready = False
        self.done = 0.0
        self.time_s = math.nan
        self.finished = False
        self.failure: str | None = None

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def poll(self) -> None:
        if self._stopped:
            return
        ended = self._process.poll()
        self._take()
        if ended is not None and not self.finished:
            assert self._process.stderr is not None
            lines = self._process.stderr.read().decode().strip().splitlines() if self.failure is None else []
            self.failure = self.failure or (lines[-1] if lines else f"ended with exit code {ended}")

    def stop(self) -> float:
        if not self._stopped:
            self._process.kill()
            self._process.wait()
            self.go()
            self._take()
            self._stopped = True
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                stream.close()
        return self.done

    def _take(self) -> None:
        assert self._process.stdout is not None
        self._text += self._process.stdout.read() or b""
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            if line == b"ready":
                self.ready = True
            else:
                self.done, self.time_s = float(line), self._period_s
        self.finished = self.done >= self._wanted


class ToyLauncher(Launcher):
    """Starts `ToyWorker`s.

    Args:
        period_s: seconds per iteration, for any workload and any co-runners.
        environment: returns a client's environment for a share in %, as `MpsSession.environment` does.
        failure: how the workers fail: `fails-at-start` ends before it is ready, `silent` is never ready, `crashes` ends
            at the fifth iteration; empty is no failure.
    """

    def __init__(
        self,
        period_s: float = 0.005,
        *,
        environment: Callable[[int], dict[str, str]] | None = None,
        failure: str = "",
    ) -> None:
        self._period_s, self._environment, self.failure = period_s, environment, failure
        self.started: list[ToyWorker] = []
        self.environments: list[dict[str, str]] = []

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> ToyWorker:
        extra = {"CUDA_VISIBLE_DEVICES": gpu_uuid} if self._environment is None else self._environment(mps_pct)
        self.environments.append(extra)
        worker = ToyWorker(self._period_s, iterations, self.failure, extra)
        self.started.append(worker)
        return worker
