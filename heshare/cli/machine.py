"""`heshare doctor` and `heshare restore`: what this machine has, and putting back what was changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import typer

from heshare.cli.common import Json, emit_json


def doctor(json: Json = False) -> None:
    """Say what this machine has (GPUs, NVML, permissions) and what follows from it."""
    found: dict[str, Any] = {"python": sys.version.split()[0], **_nvml()}
    found["can_set_clocks"] = bool(found["gpus"]) and _is_root()
    found["follows"] = _follows(found)
    if json:
        emit_json(found)
        return
    typer.echo(f"Python {found['python']}")
    typer.echo(f"NVML: {found['nvml']}")
    for gpu in found["gpus"]:
        typer.echo(f"GPU {gpu['index']}: {gpu['name']}, {gpu['memory_mib']:.0f} MiB, driver {found['driver']}")
    for line in found["follows"]:
        typer.echo(f"- {line}")


def _nvml() -> dict[str, Any]:
    """NVML's state and the GPUs that it sees; a machine without it is a fact, not an error."""
    empty: dict[str, Any] = {"driver": None, "gpus": []}
    try:
        import pynvml
    except ImportError:
        return {"nvml": "the package nvidia-ml-py is not installed", **empty}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"nvml": f"not usable: {error}", **empty}
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = [
            {
                "index": index,
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_mib": pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**20,
            }
            for index, handle in enumerate(handles)
        ]
        return {"nvml": "present", "driver": pynvml.nvmlSystemGetDriverVersion(), "gpus": gpus}
    except pynvml.NVMLError as error:
        return {"nvml": f"present, but failed: {error}", **empty}
    finally:
        pynvml.nvmlShutdown()


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _follows(found: dict[str, Any]) -> list[str]:
    lines = ["`make figures`, `make test`, plan, run and compare work here: they use emulated GPUs."]
    if not found["gpus"]:
        return [*lines, "No GPU can be measured on this machine."]
    lines.append("This release only sees these GPUs; it does not measure on them or change their clocks yet.")
    if not found["can_set_clocks"]:
        lines.append("Setting clocks would need root (or CAP_SYS_ADMIN), which this user does not have.")
    return lines


def state_folder() -> Path:
    """Where the settings of GPUs are saved before they are changed."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "heshare"


def restore(json: Json = False) -> None:
    """Put back the GPU settings that an interrupted run left changed."""
    saved = sorted(state_folder().glob("gpu-*.json"))
    if json:
        emit_json({"saved": [path.name for path in saved], "restored": []})
    if saved:
        from heshare.errors import DeviceError

        raise DeviceError(
            f"restore: found {len(saved)} saved GPU settings in {state_folder()}; this release changes no GPU and "
            "cannot restore them. Use the release that wrote them."
        )
    if not json:
        typer.echo("Nothing is saved: no GPU settings were changed by HeShare, so there is nothing to restore.")
