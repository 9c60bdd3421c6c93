"""A worker on an emulated stand-in GPU: `python -m support.emulated_worker`.

It is the real worker process with a model whose iterations take the time that `support.emulated_gpu` sets. The two
share only a folder of the GPU, named after its UUID, in `HESHARE_EMULATED_GPU` of its environment: one small file a
task, named after its worker and itself, with the time until which it is busy (written by the worker) and the seconds
that an iteration takes now (of the GPU).
"""

from __future__ import annotations

import argparse
import atexit
import math
import mmap
import os
import struct
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from heshare.ops.worker_program.worker_main import main

FOLDER = "HESHARE_EMULATED_GPU"
SIZE = 16
SHARE, GPU = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES"
_CHUNK_S, _PAUSE_S, _POLL_S = 0.02, 0.1, 0.001
_NUMBERS = count()


class Slot:
    def __init__(self, path: Path) -> None:
        self.path = path
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, SIZE)
            self._map = mmap.mmap(handle, SIZE)
        finally:
            os.close(handle)

    @property
    def busy_until_s(self) -> float:
        """Time until which its worker is busy, s of the monotonic clock."""
        return float(struct.unpack_from("d", self._map, 0)[0])

    @busy_until_s.setter
    def busy_until_s(self, value: float) -> None:
        struct.pack_into("d", self._map, 0, value)

    @property
    def time_s(self) -> float:
        """Seconds per iteration now; 0 until the GPU has set it."""
        return float(struct.unpack_from("d", self._map, 8)[0])

    @time_s.setter
    def time_s(self, value: float) -> None:
        struct.pack_into("d", self._map, 8, value)

    def close(self) -> None:
        self._map.close()


class EmulatedModel:
    """A model whose iterations take the time of the moment, which changes with the other tasks on the GPU."""

    lag = 0

    def __init__(self, model: str, batch_size: int, load_s: float) -> None:
        time.sleep(load_s)
        pct = os.environ.get(SHARE, "100")
        self.title = f"{model}:{batch_size}@{pct}, emulated"
        # A name of its own: the GPU might miss that a file was replaced by one of the same name.
        name = f"{os.getpid()}.{next(_NUMBERS)}-{model}-{batch_size}-{pct}"
        self._slot = Slot(Path(os.environ[FOLDER]) / os.environ[GPU] / name)
        atexit.register(self._slot.path.unlink, missing_ok=True)
        self._ahead = 0.0
        self._last_s = -math.inf

    def step(self) -> None:
        """Let an iteration's time pass; time between two steps counts, as on a GPU that always has work queued."""
        work = 1.0 - self._ahead
        now_s = time.monotonic()
        if now_s - self._last_s > _PAUSE_S:
            self._last_s = now_s
        while work > 0.0:
            pace_s = self._slot.time_s
            wait_s = min(work * pace_s, _CHUNK_S) if pace_s > 0.0 else _POLL_S
            self._slot.busy_until_s = self._last_s + _PAUSE_S
            time.sleep(wait_s)
            now_s = time.monotonic()
            work -= (now_s - self._last_s) / pace_s if pace_s > 0.0 else 0.0
            self._last_s = now_s
        self._ahead = -work

    def settle(self) -> None:
        """Mark the worker as idle: no iteration is ever under way."""
        self._slot.busy_until_s = 0.0

    def close(self) -> None:
        self._slot.path.unlink(missing_ok=True)
        self._slot.close()


def emulated_worker(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="support.emulated_worker", allow_abbrev=False)
    parser.add_argument("--load-s", type=float, default=0.3, help="seconds that loading takes")
    own, rest = parser.parse_known_args(arguments)

    def make(model: str, batch_size: int, precision: str) -> EmulatedModel:
        return EmulatedModel(model, batch_size, own.load_s)

    return main(rest, make, prepare=lambda: None)


if __name__ == "__main__":
    sys.exit(emulated_worker(sys.argv[1:]))
