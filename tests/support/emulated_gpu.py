"""An emulated stand-in GPU in real time: `python -m support.emulated_gpu --gpu H100 --library PATH`.

It runs until its standard input ends. Workers (`support.emulated_worker`) write that they are busy; the device model
gives the times of their iterations and the power of the board; the stand-in for the NVML library gets power, energy and
clock. So recording, running and comparing can be rehearsed without a GPU, with real processes, real time, and a GPU
whose model is known exactly.
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

from support.emulated_worker import FOLDER, Slot
from support.fakenvml import FakeNvml

from heshare.devices.device_model import Estimate, co_run
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_UPDATE_S = 0.004


class EmulatedGpu:
    def __init__(self, gpu: Gpu, fake: FakeNvml, folder: Path) -> None:
        self._gpu, self._fake, self._folder = gpu, fake, folder
        self._slots: dict[str, tuple[Slot, Resident]] = {}
        self._estimates: dict[tuple[int | None, tuple[Resident, ...]], Estimate] = {}
        self._since_s = time.monotonic()
        self._power_mw = 0.0
        self._energy_mj = fake.get("energy_mj")

    def update(self) -> None:
        """Find the busy workers, set the times of their iterations, and report power, energy and clock."""
        self._find_workers()
        now_s = time.monotonic()
        busy = [(slot, resident) for slot, resident in self._slots.values() if slot.busy_until_s > now_s]
        locked_mhz = int(self._fake.get("locked_mhz")) or None
        estimate = self._estimate(locked_mhz, tuple(resident for _, resident in busy))
        for (slot, _), task in zip(busy, estimate.tasks, strict=True):
            slot.time_s = task.time_s
        self._report(estimate)

    def _find_workers(self) -> None:
        names = {path.name for path in self._folder.iterdir()}
        for name in self._slots.keys() - names:
            self._slots.pop(name)[0].close()
        for name in sorted(names - self._slots.keys()):
            _, model, size, pct = name.split("-")
            self._slots[name] = (Slot(self._folder / name), Resident(Workload(model, int(size)), int(pct)))

    def _estimate(self, locked_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        key = (locked_mhz, residents)
        if key not in self._estimates:
            self._estimates[key] = co_run(self._gpu, residents, locked_mhz)
        return self._estimates[key]

    def _report(self, estimate: Estimate) -> None:
        now_s = time.monotonic()
        self._energy_mj += self._power_mw * (now_s - self._since_s)
        self._since_s, self._power_mw = now_s, 1e3 * estimate.power_w
        self._fake.set("began_s", now_s)
        self._fake.set("energy_mj", self._energy_mj)
        self._fake.set("power_mw", self._power_mw)
        self._fake.set("sm_mhz", estimate.sm_mhz)


@contextmanager
def emulated_gpu(gpu: str, library: Path, folder: Path) -> Iterator[None]:
    """Run the process of a stand-in GPU while a `with` lasts; workers find `folder` in their environment."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER] = str(folder)
    command = [sys.executable, "-m", "support.emulated_gpu", "--gpu", gpu, "--library", str(library)]
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
    parser = argparse.ArgumentParser(prog="support.emulated_gpu")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--library", type=Path, required=True)
    options = parser.parse_args(arguments)
    gpu = EmulatedGpu(find_gpu(options.gpu), FakeNvml(options.library), Path(os.environ[FOLDER]))
    os.set_blocking(0, False)
    gpu.update()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        with suppress(BlockingIOError):
            if not os.read(0, 1):
                return 0
        with suppress(FileNotFoundError):
            gpu.update()
        time.sleep(_UPDATE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
