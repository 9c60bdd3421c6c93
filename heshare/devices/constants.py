"""The fitted constants of the emulated device, as `data/calibration/constants.csv` holds them.

`make calibrate` rewrites that file from the measured figures beside it; nothing here is typed in by hand.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from heshare import files
from heshare.errors import InputError


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of one iteration goes, for one workload on one GPU at its top clock and at 100 %.

    With inference batch size b, share s (0 to 1) and clock f: the GPU part is
    `latency + memory b mu(f) + (work + work_per_sample b) (f_max / f) / s`, and it overlaps with the host part
    `host + host_per_sample b` (zero for `tensorrt`).

    Attributes:
        latency_s: time that neither share nor clock changes, s.
        memory_s: time per sample that waits for memory, s.
        work_s: time of the SMs whatever the inference batch size, s.
        work_per_sample_s: time of the SMs per sample, s.
        host_s: time in which the host launches kernels, s.
        host_per_sample_s: the same, per sample, s.
        anchored: whether measurements of this very workload on this GPU went into the fit.
        uncertainty: relative standard uncertainty of a time from this row.
    """

    latency_s: float
    memory_s: float
    work_s: float
    work_per_sample_s: float
    host_s: float = 0.0
    host_per_sample_s: float = 0.0
    anchored: bool = False
    uncertainty: float = 0.4


@dataclass(frozen=True, slots=True)
class Power:
    """Board power of one GPU: `idle + dynamic X V(f)^2 + dram D`, X = clock x activity, D = DRAM activity.

    Attributes:
        idle_w: power with contexts and nothing running, W.
        dynamic_w: power of fully active SMs at the top clock, above idle, W.
        dram_w: power of a fully busy memory, W.
        knee_mhz: the clock below which the voltage stays at its minimum, MHz.
        v_min: that minimum voltage over the voltage at the top clock.
        memory_knee_mhz: the clock below which memory time grows as 1/f, MHz.
    """

    idle_w: float
    dynamic_w: float
    dram_w: float
    knee_mhz: float
    v_min: float
    memory_knee_mhz: float


@dataclass(frozen=True, slots=True)
class Contention:
    """How residents slow one another down while the GPU is not full: `1 + sum_j strength duty_j ...`.

    Attributes:
        strength: slowdown by one co-runner of inference batch size 8 beside a task of the same size.
        other: exponent of the co-runner's inference batch size over 8.
        own: exponent of the task's own inference batch size over 8 (negative: larger ones suffer less).
    """

    strength: float
    other: float
    own: float


@dataclass(frozen=True, eq=False)
class Constants:
    """Everything that was fitted. Compared by identity, so that it can key a cache.

    Attributes:
        timing: by (gpu, engine, workload).
        power: by gpu.
        contention: by gpu.
    """

    timing: Mapping[tuple[str, str, str], Timing]
    power: Mapping[str, Power]
    contention: Mapping[str, Contention]

    def with_power(self, gpu: str, **changes: float) -> Constants:
        """A copy with other power constants for one GPU, for a sensitivity study."""
        return replace(self, power={**self.power, gpu: replace(self.power[gpu], **changes)})


def _fields(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    table: dict[tuple[str, ...], dict[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            key = (row["kind"], row["gpu"], row["engine"], row["workload"])
            table.setdefault(key, {})[row["name"]] = row["value"]
    return table


def read(path: Path) -> Constants:
    """Read constants from a long CSV with columns kind, gpu, engine, workload, name, value, ...

    Raises:
        InputError: a value is not a number.
    """
    timing, power, contention = {}, {}, {}
    for (kind, gpu, engine, workload), fields in _fields(path).items():
        try:
            values = {name: float(text) for name, text in fields.items()}
        except ValueError as error:
            raise InputError(
                file=path, found=str(error), expected="a number", action="Run `make calibrate` to rewrite the file."
            ) from None
        if kind == "timing":
            anchored = bool(values.pop("anchored"))
            timing[gpu, engine, workload] = Timing(anchored=anchored, **values)
        elif kind == "power":
            power[gpu] = Power(**values)
        elif kind == "contention":
            contention[gpu] = Contention(**values)
    return Constants(timing, power, contention)


@cache
def default() -> Constants:
    """The constants of `data/calibration/constants.csv`."""
    return read(files.data("calibration", "constants.csv"))
