"""A worker whose GPU is played: `python -m heshare.testing.played --model resnet50 ...`, as fast as the player says.

It is the real worker process but for the model. A folder, `HESHARE_PLAYED` in its environment, is all that it shares
with `heshare.testing.player`: one small file a worker, named after what it runs, with the time until which it is busy
(the worker's to write) and the seconds that an iteration takes now (the player's).
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
from pathlib import Path

from heshare.devices.runner.main import main

FOLDER = "HESHARE_PLAYED"
SIZE = 16
SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_CHUNK_S, _PAUSE_S, _ASK_S = 0.02, 0.1, 0.001


class Slot:
    """The file of one worker.

    Args:
        path: the file, which is made if it is not there.
    """

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
        """Until when its worker is busy, s of the monotonic clock."""
        return float(struct.unpack_from("d", self._map, 0)[0])

    @busy_until_s.setter
    def busy_until_s(self, value: float) -> None:
        """Say until when it is, s of the monotonic clock."""
        struct.pack_into("d", self._map, 0, value)

    @property
    def time_s(self) -> float:
        """Seconds per iteration now; 0 as long as the player has not said."""
        return float(struct.unpack_from("d", self._map, 8)[0])

    @time_s.setter
    def time_s(self, value: float) -> None:
        """Say how long an iteration takes from now on, s."""
        struct.pack_into("d", self._map, 8, value)

    def close(self) -> None:
        """Forget it; the file is its worker's to remove."""
        self._map.close()


class Played:
    """Iterations at the pace of the moment, which changes whenever the others on the GPU do.

    Args:
        model: a name of Table IV.
        batch_size: inference batch size.
        load_s: seconds that loading takes.
    """

    lag = 0

    def __init__(self, model: str, batch_size: int, load_s: float) -> None:
        time.sleep(load_s)
        pct = os.environ.get(SHARE, "100")
        self.title = f"{model}:{batch_size}@{pct}, played"
        self._slot = Slot(Path(os.environ[FOLDER]) / f"{os.getpid()}-{model}-{batch_size}-{pct}")
        atexit.register(self._slot.path.unlink, missing_ok=True)
        self._ahead = 0.0
        self._last_s = -math.inf

    def step(self) -> None:
        """Let an iteration's time pass; what passes between two steps counts, as on a GPU that is kept fed."""
        work = 1.0 - self._ahead
        now_s = time.monotonic()
        if now_s - self._last_s > _PAUSE_S:
            self._last_s = now_s
        while work > 0.0:
            pace_s = self._slot.time_s
            wait_s = min(work * pace_s, _CHUNK_S) if pace_s > 0.0 else _ASK_S
            self._slot.busy_until_s = self._last_s + _PAUSE_S
            time.sleep(wait_s)
            now_s = time.monotonic()
            work -= (now_s - self._last_s) / pace_s if pace_s > 0.0 else 0.0
            self._last_s = now_s
        self._ahead = -work

    def settle(self) -> None:
        """Nothing is ever under way; the GPU is no longer busy with it."""
        self._slot.busy_until_s = 0.0

    def close(self) -> None:
        """Leave the GPU."""
        self._slot.path.unlink(missing_ok=True)
        self._slot.close()


def played(arguments: Sequence[str]) -> int:
    """Run one worker whose GPU is played; the option of its own comes first, then the worker's."""
    parser = argparse.ArgumentParser(prog="heshare.testing.played", allow_abbrev=False)
    parser.add_argument("--load-s", type=float, default=0.3, help="seconds that loading takes")
    own, rest = parser.parse_known_args(arguments)

    def make(model: str, batch_size: int, precision: str, device: str) -> Played:
        return Played(model, batch_size, own.load_s)

    return main(rest, make, prepare=lambda: None)


if __name__ == "__main__":
    sys.exit(played(sys.argv[1:]))
