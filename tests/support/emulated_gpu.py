"""Emulated stand-in GPUs in real time: `python -m support.emulated_gpu --gpu H100 --gpu A100 --library PATH`.

They run until its standard input ends. Workers (`support.emulated_worker`) write that they are busy; the device model
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
from support.fakenvml import FakeNvml, uuid_of

from heshare.devices.device_model import Estimate, co_run
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_UPDATE_S = 0.004


class EmulatedGpu:
    """One GPU, the card `index` of the stand-in for the NVML library; `folder` has the files of its workers."""

    def __init__(self, gpu: Gpu, index: int, fake: FakeNvml, folder: Path) -> None:
        self._gpu, self._index, self._fake, self._folder = gpu, index, fake, folder
        self._slots: dict[str, tuple[Slot, Resident]] = {}
        self._estimates: dict[tuple[int | None, tuple[Resident, ...]], Estimate] = {}
        self._since_s = time.monotonic()
        self._power_mw = 0.0
        self._energy_mj = fake.get("energy_mj", index)
        self._describe()

    def update(self) -> None:
        """Find the busy workers, set the times of their iterations, and report power, energy and clock."""
        self._find_workers()
        now_s = time.monotonic()
        busy = [(slot, resident) for slot, resident in self._slots.values() if slot.busy_until_s > now_s]
        locked_mhz = int(self._fake.get("locked_mhz", self._index)) or None
        estimate = self._estimate(locked_mhz, tuple(resident for _, resident in busy))
        for (slot, _), task in zip(busy, estimate.tasks, strict=True):
            slot.time_s = task.time_s
        self._report(estimate)

    def _describe(self) -> None:
        gpu = self._gpu
        first_mhz, second_mhz, *_ = gpu.clocks_mhz
        figures = {
            "cores": gpu.cuda_cores,
            "memory_mib": gpu.memory_mib,
            "free_mib": 0.99 * gpu.memory_mib,
            "first_mhz": first_mhz,
            "step_mhz": second_mhz - first_mhz,
            "last_mhz": gpu.max_mhz,
            "limit_mw": 1e3 * gpu.tdp_w,
            "most_mw": 1e3 * gpu.tdp_w,
            # The counter is set as a whole: a reader between two figures would see it fall.
            "integrates": 0,
        }
        for name, value in figures.items():
            self._fake.set(name, value, self._index)
        self._fake.rename(self._index, f"{gpu.name} stand-in")

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
        self._fake.set("energy_mj", self._energy_mj, self._index)
        self._fake.set("power_mw", self._power_mw, self._index)
        self._fake.set("sm_mhz", estimate.sm_mhz, self._index)


@contextmanager
def emulated_gpus(gpus: Sequence[str], library: Path, folder: Path) -> Iterator[None]:
    """Run the process of stand-in GPUs while a `with` lasts; workers find `folder` in their environment."""
    for index in range(len(gpus)):
        (folder / uuid_of(index)).mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER] = str(folder)
    chosen = [word for gpu in gpus for word in ("--gpu", gpu)]
    command = [sys.executable, "-m", "support.emulated_gpu", *chosen, "--library", str(library)]
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
    parser.add_argument("--gpu", action="append", required=True)
    parser.add_argument("--library", type=Path, required=True)
    options = parser.parse_args(arguments)
    fake, folder = FakeNvml(options.library), Path(os.environ[FOLDER])
    gpus = [EmulatedGpu(find_gpu(name), index, fake, folder / uuid_of(index)) for index, name in enumerate(options.gpu)]
    fake.set("count", len(gpus))
    os.set_blocking(0, False)
    for gpu in gpus:
        gpu.update()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        with suppress(BlockingIOError):
            if not os.read(0, 1):
                return 0
        for gpu in gpus:
            with suppress(FileNotFoundError):
                gpu.update()
        time.sleep(_UPDATE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
