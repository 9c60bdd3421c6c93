"""Power constants of every GPU with their ranges and sources: fitted where measured, derived from others elsewhere.

The voltage curve comes from clock sweeps, the dynamic power from inference under MPS on the V100, and from networks on
tensor cores (`heshare.lab.calibration.power`) on newer GPUs.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from heshare.devices.board_power import activity, relative_voltage
from heshare.devices.constants import Contention, Power, PowerLaw, Timing
from heshare.devices.crowding import contention_factors
from heshare.devices.derived_constants import scaled_power
from heshare.devices.iteration_time import iteration_at
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration.grid_fit import CACHE, WorkEnergy
from heshare.lab.calibration.grid_fit import SOURCE as GRID_SOURCE
from heshare.lab.calibration.measurements import MPS_MODELS, records, table
from heshare.lab.calibration.power import load_fit, voltage_fit
from heshare.lab.calibration.time_fit import FittedTiming
from heshare.lab.calibration.timing_constants import fit_t4_clocks
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

SWEEPS = {"A100": 510, "V100": 705}
"""GPUs with clock sweeps and the lowest clock used, MHz: below it the V100's memory clock changes too."""
MEMORY_KNEES_MHZ = range(600, 1101, 50)
"""Clocks among which the one is chosen below which memory time grows as 1/f."""

_KNEES_MHZ = range(990, 1231, 30)
_V_MINS = tuple(0.7 + 0.02 * step for step in range(14))
_OUTLIERS = ("lavamd", "lud")
T4_CAPPED_MHZ = 1030.0
"""The clock that 70 W leave to a T4 at about 60 C under FP32 BERT, MHz (boringlee24/NLP_on_T4)."""

_T4_KNEE, _T4_V_MIN = 0.8, 0.8


def sweep(gpu: str) -> pd.DataFrame:
    """Return the clock sweep of a GPU: one row an application and clock, without codes whose power jumps."""
    clocks = table("clocks")
    keep = (clocks.gpu == gpu) & (clocks.sm_mhz >= SWEEPS[gpu]) & (clocks.sm_mhz <= catalogue.gpu(gpu).max_mhz)
    return clocks[keep & ((gpu != "V100") | ~clocks.application.isin(_OUTLIERS))]


def spaced(clocks: Sequence[int], count: int) -> list[int]:
    ordered = sorted(set(clocks))
    return [ordered[round(index * (len(ordered) - 1) / (count - 1))] for index in range(count)]


Form = Callable[[FloatArray], FloatArray]
"""What a quantity of a code is a sum of, by clock, MHz: (n,) to (n, k)."""
_SweepPart = tuple[FloatArray, FloatArray]
"""Clocks, MHz, and a quantity at each of them, both (n,)."""


def power_forms(gpu: str) -> Iterator[Form]:
    """Yield static and dynamic power of a busy SM, for each voltage curve."""
    top = catalogue.gpu(gpu).max_mhz

    def columns(curve: Power, sm_mhz: FloatArray) -> FloatArray:
        volts = np.array([relative_voltage(curve, clock, top) for clock in sm_mhz])
        return np.column_stack([np.ones(len(sm_mhz)), sm_mhz / top * volts**2])

    for knee_mhz, v_min in product(_KNEES_MHZ, _V_MINS):
        yield partial(columns, Power(0, 0, 0, knee_mhz, v_min, 0))


def time_form(gpu: str, knee_mhz: float) -> Form:
    """Return time that goes with the clock, with that of the memory below its knee, and neither."""
    top = catalogue.gpu(gpu).max_mhz
    return lambda clock: np.column_stack([top / clock, np.maximum(1.0, knee_mhz / clock), np.ones(len(clock))])


def sweep_parts(train: pd.DataFrame, test: pd.DataFrame, quantity: str) -> list[tuple[_SweepPart, _SweepPart]]:
    parts = []
    for application, known in train.groupby("application", sort=True):
        both = known, test[test.application == application]
        first, second = ((rows.sm_mhz.to_numpy(float), rows[quantity].to_numpy(float)) for rows in both)
        parts.append((first, second))
    return parts


def fit_sweep(parts: Sequence[tuple[_SweepPart, _SweepPart]], columns: Form) -> tuple[float, FloatArray]:
    """Return (sum of squares over the first parts, relative errors on the second), each application fitted alone."""
    cost, errors = 0.0, []
    for (sm_mhz, values), (unseen_mhz, unseen) in parts:
        solution, residual = nnls(columns(sm_mhz) / values[:, None], np.ones(len(values)))
        cost += residual**2
        errors.append(columns(unseen_mhz) @ solution / unseen - 1.0)
    return cost, np.concatenate(errors)


def memory_knee(gpu: str) -> int:
    """Return the clock below which memory time grows as 1/f, MHz: the one that fits the times of a sweep best."""
    parts = sweep_parts(sweep(gpu), sweep(gpu), "time_s")
    return min(MEMORY_KNEES_MHZ, key=lambda knee: fit_sweep(parts, time_form(gpu, knee))[0])


def extend_voltage(knee_mhz: float, v_min: float, from_mhz: float, to_mhz: float) -> tuple[float, float]:
    """Return (lowest voltage, voltage at `from_mhz`) over that at `to_mhz`, on the straight line of a curve."""
    top = v_min + (1.0 - v_min) * (to_mhz - knee_mhz) / (from_mhz - knee_mhz)
    return v_min / top, 1.0 / top


def activity_alone(timing: Timing, batch: int, share: float, memory: float, slow: float = 1.0) -> float:
    """Return the activity of one resident at `slow` = top clock / clock; `memory` weighs its memory time."""
    weights = Power(0, 0, memory, 0, 1, 0)
    return activity(weights, [iteration_at(timing, batch, share)], slow, 1.0)


def mps_power() -> pd.DataFrame:
    power = table("power")
    return power[power.batch_size.notna()]


def fit_dynamic_w(timings: Mapping[str, Timing], workloads: Sequence[str], idle_w: float, memory: float) -> float:
    """Return the dynamic power of a full V100-SXM2, W, from runs of these workloads that no power limit throttled."""
    rows = mps_power()
    rows = rows[rows.workload.isin(workloads) & (rows.sm_mhz > catalogue.gpu("V100-SXM2").max_mhz - 1)]
    power_w = rows.power_w.to_numpy(float)
    active = np.array(
        [activity_alone(timings[row.workload], int(row.batch_size), row.mps_pct / 100, memory) for row in records(rows)]
    )
    weight = active / power_w
    return float(weight @ ((power_w - idle_w) / power_w) / (weight @ weight))


def fit_sharing_power(timing: Timing, idle_w: float, memory: float, contention: Contention) -> float:
    """Return the extra dynamic power per unit of co-running activity, from 1 to 3 processes of VGG-19 at 20 % each.

    Processes that slow one another down each do less work.
    """
    power = table("power")
    rows = power[power.processes.gt(1) | power.batch_size.isna()].sort_values("processes")
    alone_w = float(rows.power_w.iloc[0]) - idle_w
    per_process = activity_alone(timing, 16, 0.2, memory)
    count = rows.processes.to_numpy(float)[1:]
    iterations = [iteration_at(timing, 16, 0.2)] * int(count.max())
    slowed = [
        iterations[0].time_s(1.0, 1.0, *contention_factors(contention, iterations[: int(number)])[0])
        for number in count.tolist()
    ]
    rate = iterations[0].time_s(1.0, 1.0) / np.array(slowed)
    excess = (rows.power_w.to_numpy(float)[1:] - idle_w) / (count * rate * alone_w) - 1.0
    others = (count - 1.0) * rate * per_process
    return float(others @ excess / (others @ others))


@dataclass(frozen=True)
class RangedValue:
    """A value with the range in which it may lie, and its source."""

    value: float
    low: float
    high: float
    source: str

    @classmethod
    def within(cls, value: float, relative: float, source: str) -> "RangedValue":
        return cls(value, value * (1 - relative), value * (1 + relative), source)

    @classmethod
    def by_factor(cls, value: float, spread: float, source: str) -> "RangedValue":
        factor = math.exp(NORMAL_90 * spread)
        return cls(value, value / factor, value * factor, source)


PowerRanges = dict[str, RangedValue]
"""Constants of `heshare.devices.constants.Power`, by name."""


def fit_power(mps: Mapping[str, FittedTiming], memory: RangedValue, contention: Contention) -> dict[str, PowerRanges]:
    """Return the power constants of every GPU with measurements of power, by name.

    `mps` holds the timings of the MPS record on the V100-SXM2, `memory` is the weight of memory time (`Power.memory`),
    `contention` that of its pairs.
    """
    ranges = {"V100-SXM2": _v100_sxm2(mps, memory, contention)}
    sharing = ranges["V100-SXM2"]["sharing"]
    ranges["V100"] = _v100(ranges["V100-SXM2"])
    ranges["T4"] = _t4(memory)
    ranges |= {gpu: _tensor_card(gpu, memory) for gpu in load_fit.TENSOR_CARDS}
    return {
        gpu: {
            "idle_w": _idle_w(gpu),
            **ranges[gpu],
            "sharing": sharing,
            "parked_w": _reading(gpu, "parked"),
            "cache_mb": RangedValue.within(CACHE * catalogue.gpu(gpu).l2_mib, 0.5, GRID_SOURCE),
        }
        for gpu in catalogue.gpus()
        if gpu in ranges
    }


def _reading(gpu: str, state: str) -> RangedValue:
    """A reading of `idle_power.csv`: `parked`, `idle`, or what the top clock adds, busy (`clock`) or `idle clock`."""
    row = table("idle_power").query("gpu == @gpu and state == @state").iloc[0]
    return RangedValue(float(row.value), float(row.low), float(row.high), str(row.source))


def _idle_w(gpu: str) -> RangedValue:
    idle_w = catalogue.gpu(gpu).idle_w
    if gpu == "T4":
        return _reading(gpu, "idle")
    low, high = (53.5, 53.5) if gpu == "V100-SXM2" else (0.85 * idle_w, 1.2 * idle_w)
    return RangedValue(idle_w, low, high, "data/gpus.csv")


def _v100_sxm2(mps: Mapping[str, FittedTiming], memory: RangedValue, contention: Contention) -> PowerRanges:
    timings = {name: fitted.timing for name, fitted in mps.items()}
    idle_w = catalogue.gpu("V100-SXM2").idle_w
    others = (MPS_MODELS, *([name for name in MPS_MODELS if name != out] for out in MPS_MODELS))
    dynamic_w, *without = (fit_dynamic_w(timings, names, idle_w, memory.value) for names in others)
    sharing = fit_sharing_power(timings["vgg19"], idle_w, memory.value, contention)
    source = "icloud-ecnu/igniter: power by inference batch size and MPS percentage; range: a workload left out"
    knee, low, _ = _v100_curve()
    curve = "the V100's curve on one straight line up to 1530 MHz"
    return {
        "dynamic_w": RangedValue(dynamic_w, min(without), max(without), source),
        "memory": memory,
        "knee_mhz": RangedValue.within(knee, 0.08, curve),
        "v_min": RangedValue.within(low, 0.05, curve),
        "memory_knee_mhz": RangedValue.within(memory_knee("A100"), 0.1, "as the A100"),
        "sharing": RangedValue.within(sharing, 0.5, "icloud-ecnu/igniter: 1 to 3 VGG-19 at 20 % each"),
    }


def _v100_curve() -> tuple[float, float, float]:
    """Knee in MHz; lowest voltage, and that at the V100's top clock, over that at the V100-SXM2's."""
    curve, top = voltage_fit.voltage_curve("V100"), catalogue.gpu("V100").max_mhz
    knee = curve.knee * top
    return knee, *extend_voltage(knee, curve.v_min, top, catalogue.gpu("V100-SXM2").max_mhz)


def _v100(sxm2: PowerRanges) -> PowerRanges:
    scale = catalogue.gpu("V100").max_mhz / catalogue.gpu("V100-SXM2").max_mhz * _v100_curve()[2] ** 2
    known = sxm2["dynamic_w"]
    origin = "the V100-SXM2's at 1380 MHz and its voltage there"
    return {
        "dynamic_w": RangedValue(known.value * scale, known.low * scale * 0.9, known.high * scale * 1.1, origin),
        "memory": sxm2["memory"],
        **_curve_ranges("V100", "V100", "blackjack2015/NV-DVFS-Benchmark: time and power of 20 codes at 7 clocks"),
        "memory_knee_mhz": sxm2["memory_knee_mhz"],
    }


def _curve_ranges(gpu: str, measured: str, source: str) -> PowerRanges:
    """The voltage curve that was measured on one GPU for `gpu`, in proportion to the top clocks."""
    curve, top_mhz = voltage_fit.voltage_curve(measured), catalogue.gpu(gpu).max_mhz
    knees, v_mins = voltage_fit.curve_ranges(measured)
    wider = 1.0 if gpu == measured else 1.05
    source += "; range: curves within 10 % of the smallest error"
    return {
        "knee_mhz": RangedValue(curve.knee * top_mhz, knees[0] / wider * top_mhz, knees[1] * wider * top_mhz, source),
        "v_min": RangedValue(curve.v_min, v_mins[0] / wider, v_mins[1] * wider, source),
    }


def _tensor_card(gpu: str, memory: RangedValue) -> PowerRanges:
    """A GPU whose FP32 networks run in TF32; its voltage curve is the A100's, in proportion to the top clocks."""
    power, idle_clock_w = load_fit.tensor_power(gpu), _reading(gpu, "idle clock")
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: time and power of 25 codes at 61 clocks"
    origin = "" if gpu == "A100" else "as the A100: "
    ratio = catalogue.gpu(gpu).max_mhz / catalogue.gpu("A100").max_mhz
    knee_mhz = memory_knee("A100") * ratio
    return {
        "dynamic_w": RangedValue(power.dynamic_w, power.low_w, power.high_w, power.source),
        "memory": memory,
        **_curve_ranges(gpu, "A100", origin + source),
        "memory_knee_mhz": RangedValue.within(knee_mhz, 0.1 if gpu == "A100" else 0.3, origin + source),
        "clock_w": RangedValue.within(power.clock_w - idle_clock_w.value, 0.4, power.clock_source),
        "idle_clock_w": idle_clock_w,
    }


def consumer_cards(energy: WorkEnergy, law: PowerLaw) -> dict[str, PowerRanges]:
    """Return the power constants of the cards with the chip of the grid's RTX 3080 Ti; the law stands for the rest."""
    found: dict[str, PowerRanges] = {}
    for gpu in ("RTX-3080-Ti", "RTX-3090"):
        card = catalogue.gpu(gpu)
        values = asdict(scaled_power(law, card))
        found[gpu] = {
            name: RangedValue.within(value, 0.3, "the law of power constants") for name, value in values.items()
        }
        found[gpu] |= {
            "idle_w": RangedValue(card.idle_w, 60.0, 1.2 * card.idle_w, "data/gpus.csv"),
            "clock_w": RangedValue.within(energy.clock_w, 0.4, GRID_SOURCE),
        }
    return found


def t4_power_curve(memory: float, idle_w: float, v_min: float, capped_mhz: float = T4_CAPPED_MHZ) -> Power:
    """Return a T4 with another idle power or lowest voltage to which 70 W leave the same clock under FP32 BERT.

    A T4's power by clock was never published; this is the family of curves that the public record allows. `idle_w` is
    with a context, 26 to 31 W, `v_min` is over the voltage at the top clock, 0.72 to 0.88, `capped_mhz` is the clock
    that the limit leaves, 950 (73 C) to 1080 MHz (40 C), and `memory` is `Power.memory`.
    """
    t4 = catalogue.gpu("T4")
    clock_w = _reading("T4", "clock").value
    known = Power(idle_w, 0.0, memory, _T4_KNEE * t4.max_mhz, v_min, 0.0, clock_w=clock_w)
    timing = fit_t4_clocks().timing
    active = activity_alone(timing, 8, 1.0, memory, t4.max_mhz / capped_mhz)
    scale = capped_mhz / t4.max_mhz * relative_voltage(known, capped_mhz, t4.max_mhz) ** 2
    return replace(known, dynamic_w=((t4.tdp_w - idle_w) / scale - clock_w) / min(1.0, active))


def _t4(memory: RangedValue) -> PowerRanges:
    idle_w = catalogue.gpu("T4").idle_w
    value, low, high = (
        t4_power_curve(memory.value, idle_w, _T4_V_MIN, clock) for clock in (T4_CAPPED_MHZ, 1080.0, 950.0)
    )
    source = "the clock that 70 W leave to FP32 BERT (boringlee24/NLP_on_T4); range: that clock at 40 C and at 73 C"
    return {
        "dynamic_w": RangedValue(value.dynamic_w, low.dynamic_w, high.dynamic_w, source),
        "memory": memory,
        "knee_mhz": RangedValue.within(value.knee_mhz, 0.1, "assumed: 0.8 of the top clock, as on V100 and A100"),
        "v_min": RangedValue(_T4_V_MIN, 0.72, 0.88, "assumed: between the V100 and the A100"),
        "clock_w": _reading("T4", "clock"),
        "memory_knee_mhz": RangedValue(0.0, 0.0, 600.0, "boringlee24/NLP_on_T4: no such knee down to 585 MHz"),
    }
