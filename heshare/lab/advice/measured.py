"""Workloads given by measurements of them alone on a card: their parameters in the device model."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from heshare.devices import uncertainty
from heshare.devices.constants import Constants
from heshare.devices.device_model import register_iteration_model
from heshare.devices.iteration_time import BATCH_EXPONENT, OVERLAP, Iteration, iteration_at
from heshare.devices.timing_effects import Key, Timing
from heshare.devices.uncertainty import CARD, CELL, Spreads, Uncertainty
from heshare.lab.advice.meter_log import reading_of
from heshare.shared.errors import InputError, require
from heshare.world.gpu import Gpu
from heshare.world.workload import MEASURED, Resident, Workload

TIME_SPREAD, POWER_SPREAD = 0.03, 0.05
"""Relative standard uncertainty of a measured rate and power; assumed."""
OVER_LIMIT = 1.1
"""Highest measured power over the card's limit: samples may exceed it for a moment; assumed."""
_FORM = "name=per_s:104,sm:6 and any of w:155, dram:20, gpu:60, mib:9000, log:FILE"
_FIELDS = {"per_s": "per_s", "sm": "sm_pct", "w": "power_w", "dram": "dram_pct", "gpu": "gpu_pct", "mib": "memory_mib"}
_LEAST = {"per_s": 1e-9, "sm_pct": 0.1, "power_w": 1.0, "dram_pct": 0.0, "gpu_pct": 0.1, "memory_mib": 0.0}


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a workload alone on the card at the default clock; `InputError` for values out of range.

    Attributes:
        name: a name of lower-case letters, digits and `_`.
        per_s: iterations a second, whatever an iteration is: batches, requests, tokens.
        sm_pct: SM activity, % (DCGM's `DCGM_FI_PROF_SM_ACTIVE`).
        power_w: board power, W; None takes the power of SMs that compute a CNN in FP32.
        dram_pct: activity of the memory interface, % (`DCGM_FI_PROF_DRAM_ACTIVE`).
        gpu_pct: part of the time in which some kernel runs, % (nvidia-smi's `utilization.gpu`); None if unknown.
        memory_mib: device memory, MiB; 0 if unknown: then everything fits.
        small: whether activities of at most 1 are %; else they are taken for DCGM's ratios of 0 to 1, and refused.

    Example:
        >>> from heshare import Measured
        >>> Measured.parse("asr=per_s:104,w:155,sm:6") == Measured("asr", 104, 6, power_w=155)
        True
    """

    name: str
    per_s: float
    sm_pct: float
    power_w: float | None = None
    dram_pct: float = 0.0
    gpu_pct: float | None = None
    memory_mib: float = 0.0
    small: bool = False

    def __post_init__(self) -> None:
        good = isinstance(self.name, str) and re.fullmatch("[a-z0-9_]+", self.name) is not None
        require("name", repr(self.name), good, "small letters, digits and _", "Rename the workload.")
        for field, least in _LEAST.items():
            value, most = getattr(self, field), 100.0 if field.endswith("_pct") else 1e9
            number = type(value) in (int, float)
            if number and field.endswith("_pct") and 0 < value <= 1 and not self.small:
                raise self._ratio(field.removesuffix("_pct"), value)
            good = (number and least <= value <= most) or (value is None and field in ("power_w", "gpu_pct"))
            require(field, f"{value!r} of {self.name}", good, f"a number from {least:g} to {most:g}", "Correct it.")

    def _ratio(self, field: str, value: float) -> InputError:
        found = f"{value!r} of {self.name}, which may be a ratio, as DCGM writes its activities (0 to 1)"
        action = f"Write {field}:{100 * value:g} if it is one, else {field}:{value:g}% (in Python small=True)."
        return InputError(found, "an activity in %", action, column=f"{field}_pct")

    @classmethod
    def parse(cls, text: str) -> "Measured":
        """Return the measurement of a text such as `asr=per_s:104,w:155,sm:6` or `asr=per_s:104,sm:6,log:smi.csv`.

        `log` names a log of nvidia-smi, with `#GPU` if it has several, from which power and utilisation are taken.
        """
        name, _, rest = text.partition("=")
        parts = [each.partition(":") for each in rest.split(",")]
        values = {key.strip(): number.strip() for key, _, number in parts}
        good = len(values) == len(parts) and {"per_s", "sm"} <= set(values) <= {*_FIELDS, "log"}
        require("workload", repr(text), good, _FORM, "Write each field once.")
        log, hash_mark, gpu = values.pop("log", "").partition("#")
        small = any(number.endswith("%") for number in values.values())
        try:
            numbers = {_FIELDS[key]: float(number.removesuffix("%")) for key, number in values.items()}
        except ValueError:
            raise InputError(repr(text), _FORM, "Write numbers.") from None
        found = _of_log(log, gpu if hash_mark else None) if log else {}
        return cls(name.strip(), **{**found, **numbers}, small=small)

    @classmethod
    def of_log(
        cls, name: str, log: str | Path, *, per_s: float, sm_pct: float, gpu: str | int | None = None, **more: Any
    ) -> "Measured":
        """Return a measurement whose power and utilisation are those of a log of nvidia-smi.

        Args:
            name: its name; this, per_s and sm_pct as in the class.
            per_s: iterations a second.
            sm_pct: SM activity, %.
            log: the file, see `heshare.lab.advice.meter_log.read_meter`.
            gpu: the GPU, as the log names it, if it has several.
            more: other attributes of the class.
        """
        return cls(name, per_s, sm_pct, **{**_of_log(log, gpu), **more})

    @property
    def workload(self) -> Workload:
        """Return the workload in the device model, of batch size 1: an iteration is the unit of `per_s`."""
        return Workload(self.name, 1, phase=MEASURED)


def _of_log(log: str | Path, gpu: str | int | None) -> dict[str, Any]:
    reading = reading_of(log, gpu)
    utilisation = {} if math.isnan(reading.gpu_pct) else {"gpu_pct": reading.gpu_pct}
    return {"power_w": reading.power_w, **utilisation}


def busy_parts(one: Measured, constants: Constants) -> tuple[float, float, float]:
    """Return the part of the time in which some kernel runs, 0 to 1: a likely one, the least, the most."""
    least = sum(_parts(one, constants))
    if one.gpu_pct is None:
        return 0.5 * (least + 1.0), least, 1.0
    return (max(least, one.gpu_pct / 100.0),) * 3


def place(constants: Constants, gpu: Gpu, each: Sequence[tuple[Measured, float]]) -> Constants:
    """Return constants that contain measured workloads on a card, each with the part B of its time."""
    # An iteration of T seconds with SMs active for the part S and memory for the part D has the memory time M and the
    # SM time W with which the model gives that activity (W is reduced where both do not fit into T). Some kernel runs
    # for the part B of T, between (W + M) / T and 1: the rest of B are kernels that do not fill the GPU, the rest of T
    # waits for the host. If B was not measured, both ends are evaluated. Power above that of the idle card and of busy
    # clocks is proportional to W and M.
    added, power = dict[Key, Timing](), constants.power[gpu.name]
    for one, busy in each:
        work, memory = _parts(one, constants)

        # The fill with which `filled(work, fill)` is the time of kernels other than memory time.
        fill = max(0.0, (busy - memory) ** BATCH_EXPONENT - work**BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT)
        host, time_s = max(0.0, 1.0 - busy**OVERLAP) ** (1.0 / OVERLAP), 1.0 / one.per_s

        intensity = 1.0
        if one.power_w is not None:
            found, expected = f"{one.power_w:g} W of {one.name}", f"more than the idle {power.idle_w:g} W of {gpu.name}"
            good = power.idle_w < one.power_w <= OVER_LIMIT * gpu.tdp_w
            expected += f", and at most {OVER_LIMIT:g} times its limit of {gpu.tdp_w:g} W"
            require("power_w", found, good, expected, "Measure the board power of this card under load.")
            above_w = max(0.0, one.power_w - power.idle_w - power.idle_clock_w - power.clock_w * busy)
            intensity = above_w / (power.dynamic_w * (work + power.memory * memory))

        added[gpu.name, MEASURED, one.name, ""] = Timing(
            latency_s=0.0,
            memory_s=memory * time_s,
            work_s=work * time_s,
            fill_s=fill * time_s,
            host_s=host * time_s,
            intensity=intensity,
            support=CARD if one.power_w is None else CELL,  # that of the power: the time was measured
        )
    return replace(constants, timing=constants.timing.with_added(added))


def _parts(one: Measured, constants: Constants) -> tuple[float, float]:
    # W and M over T.
    utilisation, active = constants.utilisation, one.sm_pct / 100.0
    memory = max(0.0, one.dram_pct / 100.0 - utilisation.dram_per_sm * active) / utilisation.dram_per_memory
    memory = min(memory, 0.99)
    return min(active, 1.0 - memory), memory


@lru_cache(maxsize=4096)
def measured_iteration(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    timing, share = constants.timing[gpu, MEASURED, resident.workload.model, ""], resident.mps_pct / 100.0
    return replace(
        iteration_at(timing, 1, share, "", constants),
        anchored=True,
        time=_of_time(constants.spreads, share),
        power=_of_power(constants.spreads, timing.support),
    )


def _of_time(spreads: Spreads, share: float) -> tuple[Uncertainty, Uncertainty]:
    # Alone and beside others. A smaller share was not measured. Waiting for each other's kernels is at least as
    # uncertain as in time slices.
    measured, turns = Uncertainty(TIME_SPREAD, TIME_SPREAD), spreads.of("slowdown", "", "time-slice")
    alone, shared = (spreads.of("time", CARD, sharing) for sharing in (uncertainty.ALONE, uncertainty.SHARED))
    beside = max(shared.total, turns.total), max(shared.within_framework, turns.within_framework)
    own = measured if share == 1.0 else measured.beside(alone.total, alone.within_framework)
    return own, measured.beside(*beside)


def _of_power(spreads: Spreads, support: str) -> tuple[Uncertainty, Uncertainty]:
    if support == CELL:
        return (Uncertainty(POWER_SPREAD, POWER_SPREAD),) * 2
    return spreads.of("power", CARD, uncertainty.ALONE), spreads.of("power", CARD, uncertainty.SHARED)


register_iteration_model(MEASURED, measured_iteration)
