"""Opens a device by its name on the command line: `emulated:T4`, `nvml:0`, `nvml:GPU-<uuid>`, `replay:PATH`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from heshare.devices.device import Device
from heshare.devices.emulated_device import EmulatedDevice
from heshare.devices.noise import POWER_CV, TIME_CV, NoiseModel
from heshare.ops.mps import MpsSession
from heshare.ops.nvml.binding import Nvml
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles import store
from heshare.profiles.replay_device import ReplayDevice
from heshare.shared.errors import require
from heshare.world.catalogue import gpu as find_gpu

SPARES = 7
"""Worker processes on stand-by: as many as a recording starts at the same time."""

MIB_OF_IDLE_WORKER = 8192.0
"""GPU memory for each idle worker that is reused, MiB: its CUDA context takes about a sixteenth of that."""


def emulated(gpu: str, *, seed: int = 0, time_cv: float = TIME_CV, power_cv: float = POWER_CV) -> EmulatedDevice:
    """Return an emulated GPU whose readings have repeat noise, by default that of the public measurements."""
    card = find_gpu(gpu)
    rng = np.random.default_rng(np.random.SeedSequence([seed, *card.name.encode()], spawn_key=(1,)))
    return EmulatedDevice(card, noise=NoiseModel(rng=rng, time_cv=time_cv, power_cv=power_cv))


def _nvml(name: str, clocks: bool) -> Device:
    which: int | str = int(name) if name.isdecimal() else name
    with Nvml() as nvml:
        card = nvml.card(which)
        mps, memory_mib = MpsSession(card.uuid()), card.memory_mib()[0]
    launcher = ProcessLauncher(mps, spares=SPARES, keep=int(memory_mib // MIB_OF_IDLE_WORKER))
    return NvmlDevice(which, launcher, mps=mps, allow_clocks=clocks)


def open_device(text: str, *, seed: int = 0, clocks: bool = False) -> Device:
    """Return the device that `text` names; close a live one with `close()`, or use `opened`.

    `text` is `emulated:GPU`, `nvml:INDEX`, `nvml:UUID` or `replay:PATH`; `seed` is for an emulated device's repeat
    noise, and `clocks` says whether a live device may set clocks, if the machine allows it; the others always may.
    """
    kind, _, name = text.partition(":")
    openers: dict[str, Callable[[], Device]] = {
        "emulated": lambda: emulated(name, seed=seed),
        "nvml": lambda: _nvml(name, clocks),
        "replay": lambda: ReplayDevice(store.read(name), source=name),
    }
    expected = "emulated:GPU such as emulated:T4, nvml:INDEX such as nvml:0, nvml:UUID, or replay:PATH"
    action = "Name a device; `heshare doctor` lists the GPUs of this machine."
    require("device", repr(text), kind in openers and bool(name), expected, action)
    return openers[kind]()


@contextmanager
def opened(text: str, *, seed: int = 0, clocks: bool = False) -> Iterator[Device]:
    """Open a device as `open_device`; at the end of the `with` its tasks and MPS end, and clocks are unlocked."""
    device = open_device(text, seed=seed, clocks=clocks)
    try:
        yield device
    finally:
        device.close()
