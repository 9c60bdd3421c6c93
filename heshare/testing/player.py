"""Plays a GPU: `python -m heshare.testing.player --gpu H100 --library PATH`, until its standard input ends.

Workers (`heshare.testing.played`) say that they are busy; the device model says how long their iterations take and
what power the board draws; the stand-in for the NVML library is told power, energy and clock. So a machine without a
GPU rehearses recording, running and comparing with real processes, real time, and a GPU whose truth is known.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from heshare.devices.model import Estimate, co_run
from heshare.testing.fakenvml import FakeNvml
from heshare.testing.played import FOLDER, Slot
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_TURN_S = 0.004
_Known = dict[tuple[int | None, tuple[Resident, ...]], Estimate]


class Player:
    """One played GPU.

    Args:
        gpu: what it is.
        fake: the stand-in for the NVML library; its figures are set.
        folder: where the workers' files are.
    """

    def __init__(self, gpu: Gpu, fake: FakeNvml, folder: Path) -> None:
        self._gpu, self._fake, self._folder = gpu, fake, folder
        self._slots: dict[str, tuple[Slot, Resident]] = {}
        self._known: _Known = {}
        self._since_s = time.monotonic()
        self._power_mw = 0.0
        self._energy_mj = fake.get("energy_mj")

    def turn(self) -> None:
        """Look who is busy, and say what follows from it."""
        self._find()
        now_s = time.monotonic()
        busy = [(slot, one) for slot, one in self._slots.values() if slot.busy_until_s > now_s]
        locked = int(self._fake.get("locked_mhz")) or None
        state = self._state(locked, tuple(one for _, one in busy))
        for (slot, _), task in zip(busy, state.tasks, strict=True):
            slot.time_s = task.time_s
        self._tell(state)

    def _find(self) -> None:
        names = {path.name for path in self._folder.iterdir()}
        for name in self._slots.keys() - names:
            self._slots.pop(name)[0].close()
        for name in sorted(names - self._slots.keys()):
            _, model, size, pct = name.split("-")
            self._slots[name] = (Slot(self._folder / name), Resident(Workload(model, int(size)), int(pct)))

    def _state(self, locked: int | None, residents: tuple[Resident, ...]) -> Estimate:
        key = (locked, residents)
        if key not in self._known:
            self._known[key] = co_run(self._gpu, residents, locked)
        return self._known[key]

    def _tell(self, state: Estimate) -> None:
        """Energy so far, then power from now on, and the clock."""
        now_s = time.monotonic()
        self._energy_mj += self._power_mw * (now_s - self._since_s)
        self._since_s, self._power_mw = now_s, 1e3 * state.power_w
        self._fake.set("began_s", now_s)
        self._fake.set("energy_mj", self._energy_mj)
        self._fake.set("power_mw", self._power_mw)
        self._fake.set("sm_mhz", state.sm_mhz)


@contextmanager
def playing(gpu: str, library: Path, folder: Path) -> Iterator[None]:
    """Have a process play the GPU while a `with` lasts.

    Args:
        gpu: a name of the catalogue; the stand-in must be told to be one.
        library: the stand-in for the NVML library.
        folder: for the workers' files; it is made, and workers find it in their environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER] = str(folder)
    command = [sys.executable, "-m", "heshare.testing.player", "--gpu", gpu, "--library", str(library)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        process.stdin.close()
        process.wait(10.0)
        process.stdout.close()
        os.environ.pop(FOLDER, None)


def main(arguments: Sequence[str]) -> int:
    """Play until the standard input ends."""
    parser = argparse.ArgumentParser(prog="heshare.testing.player")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--library", type=Path, required=True)
    asked = parser.parse_args(arguments)
    player = Player(find_gpu(asked.gpu), FakeNvml(asked.library), Path(os.environ[FOLDER]))
    os.set_blocking(0, False)
    player.turn()
    sys.stdout.write("playing\n")
    sys.stdout.flush()
    while True:
        with suppress(BlockingIOError):
            if not os.read(0, 1):
                return 0
        with suppress(FileNotFoundError):
            player.turn()
        time.sleep(_TURN_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
