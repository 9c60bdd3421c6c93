"""The device that a name on the command line stands for: `emulated:T4`, `nvml:0`, `nvml:GPU-<uuid>`, `replay:PATH`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

import numpy as np

from heshare.devices.device import Device
from heshare.devices.emulated import EmulatedDevice, NoiseModel
from heshare.errors import InputError
from heshare.world.catalogue import gpu as find_gpu


def emulated(gpu: str, *, seed: int = 0) -> EmulatedDevice:
    """An emulated GPU whose readings repeat as badly as real ones do.

    Raises:
        InputError: no such GPU.
    """
    card = find_gpu(gpu)
    rng = np.random.default_rng(np.random.SeedSequence([seed, *card.name.encode()], spawn_key=(1,)))
    return EmulatedDevice(card, noise=NoiseModel(rng=rng))


def _replay(path: str) -> Device:
    # The table is read by a later stage, so it is named, not imported, here.
    device: Device = import_module("heshare.profiles.replayed").open_replay(path)
    return device


def _nvml(name: str, clocks: bool) -> Device:
    from heshare.devices.live import NvmlDevice
    from heshare.devices.mps import MpsSession
    from heshare.devices.nvml import Nvml
    from heshare.devices.workers import ProcessLauncher

    which: int | str = int(name) if name.isdecimal() else name
    with Nvml() as nvml:
        mps = MpsSession(nvml.card(which).uuid())
    return NvmlDevice(which, ProcessLauncher(mps, spares=3), mps=mps, allow_clocks=clocks)


def open_device(text: str, *, seed: int = 0, clocks: bool = False) -> Device:
    """The device that `text` names; close a live one with `close()`, or use `opened`.

    Args:
        text: the kind of device and which: `emulated:GPU`, `nvml:INDEX`, `nvml:UUID` or `replay:PATH`.
        seed: of an emulated device's repeat noise.
        clocks: whether a live device may set clocks, if the machine lets it; the others always may.

    Raises:
        InputError: another form, an unknown kind or an unknown GPU.
        DeviceError: a live device cannot be used; the message says why and what to do.
    """
    kind, _, name = text.partition(":")
    openers: dict[str, Callable[[], Device]] = {
        "emulated": lambda: emulated(name, seed=seed),
        "nvml": lambda: _nvml(name, clocks),
        "replay": lambda: _replay(name),
    }
    if kind not in openers or not name:
        raise InputError(
            column="device",
            found=repr(text),
            expected="emulated:GPU such as emulated:T4, nvml:INDEX such as nvml:0, nvml:UUID, or replay:PATH",
            action="Name a device; `heshare doctor` lists the GPUs of this machine.",
        )
    return openers[kind]()


@contextmanager
def opened(text: str, *, seed: int = 0, clocks: bool = False) -> Iterator[Device]:
    """`open_device` for a `with`: a live device's tasks, MPS daemon and clocks are put in order at its end.

    Raises:
        InputError: as `open_device`.
        DeviceError: as `open_device`.
    """
    device = open_device(text, seed=seed, clocks=clocks)
    try:
        yield device
    finally:
        close = getattr(device, "close", None)
        if close is not None:
            close()
