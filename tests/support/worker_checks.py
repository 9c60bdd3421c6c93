"""What tests of worker processes share: a client's environment without MPS, waiting, and a look at what is left."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heshare.ops.workers.launcher import Worker

SPIN = (sys.executable, "-m", "support.spin_worker", "--ms", "2")
GPU = "GPU-00000000-1111-2222-3333-444444444444"


class ClientEnvironments:
    """The environment of an MPS session's clients, without a daemon."""

    def environment(self, mps_pct: int = 100) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": GPU, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(mps_pct)}


def poll_until(worker: Worker, true: Callable[[], object], patience_s: float = 60.0) -> None:
    limit_s = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < limit_s, f"waited {patience_s} s; failure: {worker.failure}"
        worker.poll()
        time.sleep(0.005)


def has_ended(pid: int) -> bool:
    """Return whether no such process is left, not even one that waits for its parent."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def descriptors() -> list[str]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("no /proc on this machine")
    return sorted(f"{one.name} {one.readlink()}" for one in folder.iterdir() if one.exists())
