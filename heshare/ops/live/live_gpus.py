"""The GPUs of a live comparison, and the recording of their profiles."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from heshare.devices.device import Device
from heshare.ops.executor.host import Host
from heshare.ops.executor.local_gpus import at_top_clock
from heshare.ops.nvml.binding import NoDriverError, Nvml
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, SurveyedCard, choose
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.open_device import opened
from heshare.ops.recording.profile_device import TABLE, profile
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles import manifest
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import DeviceError
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu

NO_GPU = (
    "No NVIDIA GPU can be used here (heshare doctor gives the reason). "
    "To rehearse on a stand-in, in a clone: make live STAND_IN=H100"
)


@dataclass(frozen=True)
class LiveGpu:
    """One GPU of this machine in a live comparison.

    `clocks` is whether its clock may and can be set; if not, the clocks of `gpu` are its top clock alone. `facts` are
    driver, kind of its power readings, persistence and so on.
    """

    uuid: str
    gpu: Gpu
    clocks: bool
    facts: Mapping[str, str | int | float | bool | None]


OpenGpu = Callable[[LiveGpu], AbstractContextManager[Device]]


def find_live_gpus(devices: str, *, allow_clocks: bool) -> tuple[LiveGpu, ...]:
    """Return the GPUs that `nvml`, or `nvml:0,nvml:1`, names, in that order.

    Raises:
        InputError: another form, or a GPU that is not in the catalogue.
        DeviceError: no GPU, no NVML, or a GPU that cannot be measured.
    """
    cards: Sequence[SurveyedCard]
    try:
        cards = Host().survey()
    except NoDriverError:
        cards = ()
    if not cards:
        raise DeviceError(NO_GPU)

    chosen = choose(cards, devices, os.environ.get(CUDA_VARIABLE))
    return tuple(_live_gpu(uuid, allow_clocks) for uuid in chosen.uuids)


def _live_gpu(uuid: str, allow_clocks: bool) -> LiveGpu:
    with NvmlDevice(uuid, ProcessLauncher(), allow_clocks=allow_clocks) as device:
        clocks = allow_clocks and not device.clock_refusal()
        gpu = device.gpu if clocks else at_top_clock(device.gpu)
        return LiveGpu(uuid, gpu, clocks, device.facts())


def cluster_of(gpus: tuple[LiveGpu, ...]) -> Cluster:
    return Cluster(tuple(live.gpu for live in gpus))


def nvml_is_emulated() -> bool:
    """Return whether the NVML library is the stand-in of the tests, without a real GPU."""
    with Nvml() as nvml:
        return hasattr(nvml.binding.nvmlLib, "fakenvml_reset")


def open_gpu(live: LiveGpu) -> AbstractContextManager[Device]:
    return opened(f"nvml:{live.uuid}", clocks=live.clocks)


def record_profiles(
    gpus: Sequence[LiveGpu],
    folder: Path,
    *,
    budget_s: float,
    seed: int,
    protocol: MeasurementProtocol | None = None,
    opener: OpenGpu = open_gpu,
    progress: bool = True,
) -> tuple[Path, ...]:
    """Record one GPU of each type for `budget_s`, or continue a recording; return the paths of all tables.

    The tables are `folder/profiles/<gpu>/profile.csv`, with clocks `folder/profiles-with-clocks/<gpu>/profile.csv`. The
    other arguments are those of `profile_device.profile`.

    Raises:
        DeviceError: a GPU refuses.
        InputError: too short a budget, or the folder belongs to another recording.
    """
    tables = []
    # Reversed, so that the dict has the first GPU of each type.
    for _, live in sorted({live.gpu.name: live for live in reversed(gpus)}.items()):
        command = f"heshare live --budget {budget_s:g}s --seed {seed}" + (" --allow-clocks" if live.clocks else "")
        profiles = folder / ("profiles-with-clocks" if live.clocks else "profiles")
        path = profiles / live.gpu.name / TABLE
        if not _is_recorded(path, live, command):
            with opener(live) as device:
                profile(
                    device,
                    profiles,
                    budget_s=budget_s,
                    clocks=live.clocks,
                    seed=seed,
                    protocol=protocol,
                    command=command,
                    progress=progress,
                )
        tables.append(path)
    return tuple(tables)


def _is_recorded(path: Path, live: LiveGpu, command: str) -> bool:
    manifest_path = path.with_name(manifest.NAME)
    if not (path.is_file() and manifest_path.is_file()):
        return False
    recorded = manifest.read(manifest_path)
    same_gpu = all(recorded["device"].get(name) == live.facts.get(name) for name in ("uuid", "driver"))
    return same_gpu and recorded["command"] == command
