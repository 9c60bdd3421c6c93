"""Fitted constants of the device model, from `data/calibration/constants.csv`.

`make calibrate` rewrites that file from the measurements beside it and the assumptions that it names.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from heshare.devices.timing_effects import Effects, Timings
from heshare.devices.uncertainty import Spreads, Uncertainty
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.gpu import Gpu


@dataclass(frozen=True, slots=True)
class Power:
    """Constants of the board power of one GPU (`heshare.devices.board_power`).

    Attributes:
        idle_w: power with a context and nothing running, at a resting clock, W.
        dynamic_w: power of SMs that all work at the top clock with the intensity 1, above idle, W.
        memory: energy of a second of memory time over that of a second of SM time.
        knee_mhz: the clock below which the voltage stays at its minimum, MHz.
        v_min: the minimum voltage over the voltage at the top clock.
        memory_knee_mhz: the clock below which memory time grows as 1/f, MHz.
        parked_w: power without any context, in the lowest performance state, W.
        clock_w: power of clocks, caches and front end while any kernel runs at the top clock, W.
        idle_clock_w: what a held top clock adds to `idle_w`, W; it goes with `V(f)^2 f / f_max`.
    """

    idle_w: float
    dynamic_w: float
    memory: float
    knee_mhz: float
    v_min: float
    memory_knee_mhz: float
    parked_w: float = 0.0
    clock_w: float = 0.0
    idle_clock_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Contention:
    """Constants of how residents under MPS slow one another down on one GPU (`heshare.devices.contention`).

    Attributes:
        steady: growth of the GPU part beside one co-runner that always uses the GPU, whatever its share.
        by_share: the same for each unit of the co-runner's share of the SMs.
        hold_memory: part of a resident's memory time in which others cannot use its SMs.
        hold_idle: the same of its latency and `fill`.
        sharpness: how suddenly the SMs run out: 1 is a queue, a large number a hard limit.
    """

    steady: float = 0.0
    by_share: float = 0.0
    hold_memory: float = 0.4
    hold_idle: float = 0.2
    sharpness: float = 12.0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Constants that turn the model's activity into the utilisations that profilers report, percent for percent.

    Attributes:
        l2_per_sm: L2 utilisation per SM utilisation.
        dram_per_sm: DRAM utilisation per SM utilisation.
        dram_per_memory: DRAM utilisation per share of the time that waits for memory.
    """

    l2_per_sm: float
    dram_per_sm: float
    dram_per_memory: float


@dataclass(frozen=True, eq=False)
class Constants:
    """All fitted constants. Compared by identity, so that they can key a cache.

    Attributes:
        power: by gpu.
        contention: by gpu.
        timing: by (gpu, engine, workload, arithmetic); computed from the effects when it is asked for.
        utilisation: of the reported utilisations.
        spreads: uncertainty of times and power, by group.
    """

    power: Mapping[str, Power]
    contention: Mapping[str, Contention]
    timing: Timings
    utilisation: Utilisation = Utilisation(0.0, 0.0, 1.0)
    spreads: Spreads = field(default_factory=Spreads)

    def with_power(self, gpu: str, **changes: float) -> Constants:
        """Return a copy with other power constants for one GPU, for a sensitivity study."""
        return replace(self, power={**self.power, gpu: replace(self.power[gpu], **changes)})


(IDLE, IDLE_CLOCK, CLOCK, DYNAMIC, MEMORY_WEIGHT, KNEE, V_MIN, MEMORY_KNEE, TOP, STEADY, BY_SHARE, HOLD_MEMORY,
 HOLD_IDLE, SHARPNESS) = range(14)  # fmt: skip
"""Columns of `card_row`, which the compiled functions read."""


def card_row(power: Power, contention: Contention, gpu: Gpu) -> FloatArray:
    """Return the constants of a GPU as the compiled functions take them, shape (14,): W, MHz, ratios.

    Below the lowest clock that can be set, where only a power limit leaves a card, memory time grows as 1/f too. This
    is assumed: no public measurement has a card there.
    """
    memory_knee_mhz = max(power.memory_knee_mhz, float(gpu.clocks_mhz[0]))
    row = (
        power.idle_w, power.idle_clock_w, power.clock_w, power.dynamic_w, power.memory, power.knee_mhz, power.v_min,
        memory_knee_mhz, float(gpu.max_mhz), contention.steady, contention.by_share, contention.hold_memory,
        contention.hold_idle, contention.sharpness,
    )  # fmt: skip
    return np.array(row, dtype=np.float64)


def read(path: Path) -> Constants:
    """Return the constants of a long CSV file with the columns kind, gpu, engine, workload, name, value, ...

    Raises:
        InputError: a value is not a number.
    """
    power, contention, utilisation = dict[str, Power](), dict[str, Contention](), Constants.utilisation
    effects, rows = dict[tuple[str, str, str], float](), dict[tuple[str, str, str, str], int]()
    intervals: dict[tuple[str, str, str], Uncertainty] = {}

    for (kind, gpu, engine, workload), fields in _fields(path).items():
        try:
            values = {name: float(text) for name, text in fields.items()}
        except ValueError as error:
            raise InputError(str(error), "a number", "Run `make calibrate` to rewrite the file.", file=path) from None
        if kind == "power":
            power[gpu] = Power(**values)
        elif kind == "contention":
            contention[gpu] = Contention(**values)
        elif kind == "effect":
            effects |= {(engine, workload, key): value for key, value in values.items()}
        elif kind == "rows":
            rows |= {(gpu, engine, precision, workload): int(value) for precision, value in values.items()}
        elif kind == "utilisation":
            utilisation = Utilisation(**values)
        elif kind == "interval":
            intervals[gpu, engine, workload] = Uncertainty(**values)

    added = [card for name, card in catalogue.gpus().items() if power and name not in power]
    others, mean = dict(power), _mean(list(contention.values())) if added and contention else Contention()
    power |= {card.name: _like_others(card, others) for card in added}
    contention |= {card.name: mean for card in added}

    timing = Timings(Effects(effects, rows), catalogue.gpus(), catalogue.models())
    return Constants(power, contention, timing, utilisation, Spreads(intervals))


def _like_others(gpu: Gpu, power: Mapping[str, Power]) -> Power:
    # The constants of a GPU that was added after the fit: the mean of the others, relative to the room between idle
    # power and limit, to idle power or to the top clock.
    cards = [catalogue.gpu(name) for name in power]
    room_w, gpu_room_w = [card.tdp_w - card.idle_w for card in cards], gpu.tdp_w - gpu.idle_w
    idle_w, top_mhz = [card.idle_w for card in cards], [float(card.max_mhz) for card in cards]

    def mean(name: str, units: Sequence[float], unit_of_gpu: float) -> float:
        ratios = [float(getattr(each, name)) / unit for each, unit in zip(power.values(), units, strict=True)]
        return unit_of_gpu * sum(ratios) / len(ratios)

    ones = [1.0] * len(cards)
    return Power(
        idle_w=gpu.idle_w,
        dynamic_w=mean("dynamic_w", room_w, gpu_room_w),
        memory=mean("memory", ones, 1.0),
        knee_mhz=mean("knee_mhz", top_mhz, float(gpu.max_mhz)),
        v_min=mean("v_min", ones, 1.0),
        memory_knee_mhz=mean("memory_knee_mhz", top_mhz, float(gpu.max_mhz)),
        parked_w=mean("parked_w", idle_w, gpu.idle_w),
        clock_w=mean("clock_w", room_w, gpu_room_w),
    )


def _mean(contentions: Sequence[Contention]) -> Contention:
    values = np.array([astuple(one) for one in contentions])
    return Contention(*values.mean(axis=0).tolist())


@cache
def default() -> Constants:
    """Return the constants of `data/calibration/constants.csv`.

    They hold every GPU of `data/gpus.csv` and every network of `data/workloads.csv`; a GPU that was added after the fit
    has the mean power and contention of the others.
    """
    return read(files.data("calibration", "constants.csv"))


catalogue.cleared_by_registrations(default)


@cache
def fitted(kind: str) -> Mapping[tuple[str, str, str], Mapping[str, float]]:
    """Return the fitted constants of another model, such as `training`: values by name, by (gpu, engine, workload)."""
    fields = _fields(files.data("calibration", "constants.csv"))
    return {
        (gpu, engine, workload): {name: float(text) for name, text in values.items()}
        for (row_kind, gpu, engine, workload), values in fields.items()
        if row_kind == kind
    }


def _fields(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    table: dict[tuple[str, ...], dict[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            key = (row["kind"], row["gpu"], row["engine"], row["workload"])
            table.setdefault(key, {})[row["name"]] = row["value"]
    return table
