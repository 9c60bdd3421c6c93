"""Detection of this machine's GPUs and of what can be measured on them, for `heshare doctor`."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from heshare.ops import mps
from heshare.ops.clocks import RIGHT, locked_clocks
from heshare.ops.nvml.binding import Nvml, NvmlError, NvmlGpu
from heshare.ops.state.run_state_file import find_runs
from heshare.ops.state.state_file import OwnerStatus
from heshare.shared import files
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.extras import LIBRARIES, install_command
from heshare.world.catalogue import gpus
from heshare.world.gpu import Gpu

MEMORY_RTOL = 0.1
"""Largest relative deviation of a card's memory from the catalogue: ECC takes a few per cent, variants differ more."""


def match(
    name: str,
    *,
    memory_mib: float,
    clocks_mhz: tuple[int, ...],
    cores: int | None = None,
    tdp_w: float | None = None,
) -> Gpu:
    """Return the GPU of `data/gpus.csv` for a card, with the memory, clocks and power limit that the card reports.

    A name of the catalogue fits when each of its parts (`V100`, `SXM2`) is a word of the card's name; the name with
    most parts wins. Memory and cores must agree, so that a variant is not taken for another.
    """
    words = set(re.findall(r"[A-Z0-9]+", name.upper()))
    fitting = [card for card in gpus().values() if set(card.name.upper().split("-")) <= words]
    if not fitting:
        raise _unknown(name, "a card whose name has one of " + ", ".join(gpus()), name.split()[-1])
    card = max(fitting, key=lambda one: len(one.name.split("-")))
    if abs(memory_mib / card.memory_mib - 1) > MEMORY_RTOL:
        expected = f"{card.memory_mib:.0f} MiB, the {card.name} of the catalogue"
        raise _unknown(f"{name} with {memory_mib:.0f} MiB", expected, f"{card.name}-{memory_mib / 1024:.0f}GB")
    if cores is not None and cores != card.cuda_cores:
        expected = f"{card.cuda_cores} cores, the {card.name} of the catalogue"
        raise _unknown(f"{name} with {cores} cores", expected, f"{card.name}-PCIE")
    return replace(card, memory_mib=memory_mib, clocks_mhz=clocks_mhz, tdp_w=card.tdp_w if tdp_w is None else tdp_w)


def _unknown(found: str, expected: str, example: str) -> InputError:
    return InputError(
        found,
        expected,
        "Describe this card in data/gpus.csv: a row for each field, under a name made of words of the card's name, "
        f"such as {example}.",
        file="data/gpus.csv",
        column="gpu",
    )


_OPTIONAL = ("power_instant", "cores", "processes", "idles", "obstacle")
"""Readings that have a substitute or may be missing."""
LOW_CLOCK = 0.9
"""A clock below this part of the top clock counts as locked low, if the card is neither idle nor throttled."""
_CLOCKS = (
    "Clocks can be locked (root or CAP_SYS_ADMIN), if the driver agrees: `heshare profile --clocks` records them too."
)


def low_clock(sm_mhz: float | None, top_mhz: float | None, idles: bool | None, throttled: bool = False) -> str:
    """Return a line about a clock that is low without a known reason, so probably locked; else an empty text."""
    if sm_mhz is None or top_mhz is None or idles is not False or throttled or not sm_mhz < LOW_CLOCK * top_mhz:
        return ""
    return (
        f"its clock is {sm_mhz:.0f} of {top_mhz:.0f} MHz, although it is neither idle nor at a limit: another process "
        "or an administrator has limited it, and plans assume the top clock (nvidia-smi -q -d CLOCK)"
    )


_CAP_SYS_ADMIN = 21
_NO_MPS = (
    f"No MPS ({mps.CONTROL} is not on the PATH): tasks share by time-slicing, which is recorded as such; shares below "
    "100 % cannot be measured."
)


def has_sys_admin(status: str | Path = "/proc/self/status") -> bool | None:
    """Return whether CAP_SYS_ADMIN, which GPU settings need, is effective; None if the kernel does not report it."""
    try:
        lines = Path(status).read_text(encoding="utf-8").splitlines()
        effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
        return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def may_set_clocks() -> bool:
    """Return whether this process has permission to lock SM clocks; the driver may still refuse it."""
    admin = has_sys_admin()
    return os.geteuid() == 0 if admin is None else admin


def probe() -> dict[str, Any]:
    """Return the properties of this machine that decide what can be measured; missing parts are no errors.

    Returns:
        `nvml` (`present` or the reason), `driver`, `gpus` (one dict each, see `describe`), `clock_control` (whether
        there is a GPU whose clocks can be locked), `clocks` (a sentence on it), `mps_control` and `mps_server` (paths
        or None), `libraries` (of the workers, installed or not), and lists of sentences: `in_use` (GPUs of running
        runs), `to_restore` (what ended runs left locked or running), `elsewhere` (state files of other hosts and
        containers), `obstacles` (why no job can run, on the machine or on a GPU of it), `follows` (what to do).
    """
    found: dict[str, Any] = {
        "nvml": "present",
        "driver": None,
        "gpus": [],
        "clock_control": False,
        "clocks": "",
        "mps_control": shutil.which(mps.CONTROL),
        "mps_server": shutil.which("nvidia-cuda-mps-server"),
        "libraries": {name: find_spec(name) is not None for name in LIBRARIES["live"]},
        **_noted(),
    }

    try:
        with Nvml() as nvml:
            found["driver"] = nvml.driver()
            found["gpus"] = [describe(nvml.card(index), index) for index in range(nvml.count())]
            found["clock_control"] = bool(found["gpus"]) and may_set_clocks()
            found["clocks"] = _CLOCKS if found["clock_control"] else RIGHT
    except NvmlError as error:
        found["nvml"] = str(error)

    found["obstacles"] = obstacles(found)
    found["follows"] = follows(found)
    return found


def _noted() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"in_use": [], "to_restore": [], "elsewhere": []}
    try:
        # A clock can also be unlocked if its run was in another container.
        noted = [(run.owner_status, run.owner_status.cleanable, run.text) for run in find_runs()]
        noted += [(clock.owner_status, clock.owner_status.has_ended, clock.text) for clock in locked_clocks()]
    except DeviceError as error:
        return {**found, "elsewhere": [str(error)]}
    for life, mends, text in noted:
        found["in_use" if life is OwnerStatus.RUNNING else "to_restore" if mends else "elsewhere"].append(text)
    return found


def describe(card: NvmlGpu, index: int) -> dict[str, Any]:
    """Return the properties of one card; one that it does not report is None, with the reason under `refused`."""
    refused: dict[str, str] = {}

    def read(name: str, reading: Callable[[], Any]) -> Any:
        try:
            return reading()
        except (NvmlError, InputError) as error:
            refused[name] = str(error)
            return None

    memory = read("memory_mib", card.memory_mib)
    clocks = read("clocks_mhz", card.offered_mhz)
    name = read("name", card.name)
    cores = read("cores", card.cores)
    instant = read("power_instant", card.instant_power_w)
    facts = {
        "index": index,
        "name": name,
        "uuid": read("uuid", card.uuid),
        "memory_mib": None if memory is None else memory[0],
        "free_mib": None if memory is None else memory[1],
        "clocks_mhz": None if clocks is None else [clocks[0], clocks[-1], len(clocks)],
        "power_kind": "instant" if instant is not None else read("power_kind", card.usage_power_kind),
        "power_w": instant if instant is not None else read("power_w", card.usage_power_w),
        "power_limit_w": read("power_limit_w", card.power_limit_w),
        "energy_counter": read("energy_counter", card.energy_j) is not None,
        "temperature_c": read("temperature_c", card.temperature_c),
        "throttled_by": read("throttled_by", card.limits),
        "gpm": read("gpm", card.has_gpm),
        "persistence": read("persistence", card.persistent),
        "compute_mode": read("compute_mode", card.compute_mode),
        "mig": read("mig", card.mig),
        "obstacle": read("obstacle", card.obstacle) or "",
        "idles": read("idles", card.idles),
        "sm_mhz": read("sm_mhz", card.sm_mhz),
        "processes": read("processes", card.processes) or (),
        "catalogue": None,
    }
    if name is not None and memory is not None and clocks is not None:
        known = read("catalogue", lambda: match(name, memory_mib=memory[0], clocks_mhz=clocks, cores=cores))
        facts["catalogue"] = None if known is None else known.name
    return {**facts, "refused": refused}


def obstacles(found: dict[str, Any]) -> list[str]:
    """Return why no job can run on this machine's GPUs, or on some of them; empty if all of them can be used."""
    if found["nvml"] != "present":
        return [found["nvml"]]
    if not found["gpus"]:
        return ["NVML finds no GPU."]

    texts = []
    for gpu in found["gpus"]:
        if gpu["obstacle"]:
            texts.append(f"GPU {gpu['index']}: {gpu['obstacle']}.")
        elif gpu["catalogue"] is None:
            texts.append(f"GPU {gpu['index']}: {gpu['refused'].get('catalogue', 'it cannot be identified')}")
        elif gpu["compute_mode"] not in (None, "default") and found["mps_control"] is None:
            texts.append(f"GPU {gpu['index']}: its compute mode is {gpu['compute_mode']}, and there is no MPS.")
    return texts


def follows(found: dict[str, Any]) -> list[str]:
    """Return sentences on what the results of `probe` mean for the user."""
    targets = "" if files.checkout() is None else "`make figures`, `make test`, "
    lines = [f"{targets}plan, run and compare work here: they use emulated GPUs."]
    lines += [*found["in_use"], *found["to_restore"], *found["elsewhere"]]
    if not found["gpus"]:
        reason = "NVML finds no GPU" if found["nvml"] == "present" else "NVML does not work"
        return [*lines, f"No GPU can be measured on this machine: {reason}."]
    lacking = [name for name, there in found["libraries"].items() if not there]
    if lacking:
        lines.append(f"No model can run on the GPU: {', '.join(lacking)} missing. {install_command('live')}")
    for gpu in found["gpus"]:
        lines += [f"GPU {gpu['index']}: {line}" for line in _of_gpu(gpu)]
    lines.append(_NO_MPS if found["mps_control"] is None else "MPS is there: shares of the SMs can be measured.")
    return [*lines, found["clocks"]]


def _of_gpu(gpu: dict[str, Any]) -> list[str]:
    obstacles = [why for what, why in gpu["refused"].items() if what not in _OPTIONAL]
    if gpu["mig"]:
        obstacles.append(
            "it is divided into MIG slices, whose power cannot be measured separately: turn MIG off to measure."
        )

    lines = [f"it cannot be recorded: {why}" for why in obstacles]
    if gpu["processes"]:
        pids = ", ".join(str(pid) for pid, _ in gpu["processes"])
        lines.append(f"CUDA processes run on it: {pids}. Measurements now would include them.")
    if not obstacles:
        index = gpu["index"]
        lines.append(f"it is the catalogue's {gpu['catalogue']}: `heshare profile --device nvml:{index}` records it.")

    top_mhz = gpu["clocks_mhz"][1] if gpu["clocks_mhz"] else None
    low = low_clock(gpu["sm_mhz"], top_mhz, gpu["idles"], throttled=bool(gpu["throttled_by"]))
    if low:
        lines.append(f"{low}.")

    if gpu["compute_mode"] not in (None, "default"):
        lines.append(f"its compute mode is {gpu['compute_mode']}: set it to default (nvidia-smi -c DEFAULT).")

    if gpu["power_kind"] == "average":
        lines.append("its power is an average over 1 s: windows of several seconds are needed, and are the default.")
    if not gpu["gpm"]:
        lines.append("it has no GPM metrics: SM and DRAM utilisation are left empty in its profile.")
    if gpu["persistence"] is False:
        lines.append("its persistence mode is off: the driver may unload between runs and reset settings.")
    return lines
