"""Power, contention and half-precision constants, and the table that holds them all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import pandas as pd

from heshare.devices.calibration import cells, extras, fill
from heshare.devices.calibration import pairs as sharing
from heshare.devices.calibration import power as watts
from heshare.devices.calibration.cells import Cell
from heshare.devices.calibration.data import MODELS_MPS
from heshare.devices.calibration.times import Fitted
from heshare.devices.constants import Constants, Contention, Power
from heshare.world import catalogue

Line = tuple[str, str, str, str, str, str, str, str, str, str]
COLUMNS = ("kind", "gpu", "engine", "workload", "name", "value", "unit", "low", "high", "source")

T4_FREE_MHZ = 1030.0
"""Where a T4 that is left to itself settles at about 60 C under FP32 BERT, MHz (boringlee24/NLP_on_T4)."""

_T4_SHAPE = (0.8, 0.8)
_TIMES = {"latency_s", "memory_s", "work_s", "work_per_sample_s", "fill_s", "host_s"}
_NORMAL_90 = 1.645


@dataclass(frozen=True)
class Range:
    """A value with the range in which it may lie, and where it comes from."""

    value: float
    low: float
    high: float
    source: str


@dataclass(frozen=True)
class Calibration:
    """All that the fits found.

    Attributes:
        cells: times.
        power: power constants of each GPU, by name.
        constants: the same as the device model takes them.
        pairs: the measured pairs, with what the power limit alone does to them.
    """

    cells: Mapping[Cell, Fitted]
    power: Mapping[str, Mapping[str, Range]]
    constants: Constants = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)


def _about(value: float, relative: float, source: str) -> Range:
    return Range(value, value * (1 - relative), value * (1 + relative), source)


def powers(mps: Mapping[str, Fitted], memory: Range) -> dict[str, dict[str, Range]]:
    """Power constants of every GPU, by name."""
    found = {"V100-SXM2": _v100_sxm2(mps, memory)}
    found["V100"] = _v100(found["V100-SXM2"])
    found["A100"] = _a100(found["V100-SXM2"]["memory"])
    found["T4"] = _t4(found["V100-SXM2"]["memory"])
    for gpu in ("H100", "H200"):
        found[gpu] = _hopper(gpu, found["A100"])
    share = found["V100-SXM2"]["sharing"]
    return {gpu: {"idle_w": _idle(gpu), **found[gpu], "sharing": share} for gpu in catalogue.gpus() if gpu in found}


def _idle(gpu: str) -> Range:
    idle_w = catalogue.gpu(gpu).idle_w
    low, high = {"T4": (15.0, 27.0), "V100-SXM2": (53.5, 53.5)}.get(gpu, (0.85 * idle_w, 1.2 * idle_w))
    return Range(idle_w, low, high, "data/gpus.csv")


def _v100_sxm2(mps: Mapping[str, Fitted], memory: Range) -> dict[str, Range]:
    timings = {name: cell.timing for name, cell in mps.items()}
    idle_w = catalogue.gpu("V100-SXM2").idle_w
    partial = [
        watts.dynamic_w(timings, [name for name in MODELS_MPS if name != out], idle_w, memory.value)
        for out in MODELS_MPS
    ]
    source = "icloud-ecnu/igniter: power by inference batch size and MPS percentage; range: a workload left out"
    whole = watts.dynamic_w(timings, MODELS_MPS, idle_w, memory.value)
    dynamic = Range(whole, min(partial), max(partial), source)
    knee, v_min = watts.card_curve("V100")
    low, _ = watts.extended(knee, v_min, catalogue.gpu("V100").max_mhz, catalogue.gpu("V100-SXM2").max_mhz)
    sweep = "the V100's curve on one straight line up to 1530 MHz"
    return {
        "dynamic_w": dynamic,
        "memory": memory,
        "knee_mhz": _about(knee, 0.08, sweep),
        "v_min": _about(low, 0.05, sweep),
        "memory_knee_mhz": _about(watts.memory_knee("A100"), 0.1, "as the A100"),
        "sharing": _about(
            watts.sharing(timings["vgg19"], idle_w, memory.value),
            0.5,
            "icloud-ecnu/igniter: 1 to 3 VGG-19 at 20 % each",
        ),
    }


def _v100(sxm2: Mapping[str, Range]) -> dict[str, Range]:
    knee, v_min = watts.card_curve("V100")
    pcie, other = catalogue.gpu("V100").max_mhz, catalogue.gpu("V100-SXM2").max_mhz
    _, volts = watts.extended(knee, v_min, pcie, other)
    scale = pcie / other * volts**2
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: power of 19 codes at 27 clocks"
    known = sxm2["dynamic_w"]
    origin = "the V100-SXM2's at 1380 MHz and its voltage there"
    return {
        "dynamic_w": Range(known.value * scale, known.low * scale * 0.9, known.high * scale * 1.1, origin),
        "memory": sxm2["memory"],
        "knee_mhz": _about(knee, 0.08, source),
        "v_min": _about(v_min, 0.05, source),
        "memory_knee_mhz": sxm2["memory_knee_mhz"],
    }


def _a100(memory: Range) -> dict[str, Range]:
    knee, v_min = watts.card_curve("A100")
    dynamic, low, high = watts.from_sweep("A100", catalogue.gpu("A100").idle_w)
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: power of 25 codes at 61 clocks"
    return {
        "dynamic_w": Range(
            dynamic, low, high, f"{source}: median and quartiles of the busy ones; no inference among them"
        ),
        "memory": memory,
        "knee_mhz": _about(knee, 0.03, source),
        "v_min": _about(v_min, 0.03, source),
        "memory_knee_mhz": _about(watts.memory_knee("A100"), 0.1, source),
    }


def t4_power(memory: float, idle_w: float, v_min: float, free_mhz: float = T4_FREE_MHZ) -> Power:
    """A T4 with another idle power or lowest voltage that still settles at `free_mhz` under FP32 BERT and 70 W.

    Nobody published a T4's power by clock; this is the family of curves that the public record allows.

    Args:
        memory: weight of memory time (`Power.memory`).
        idle_w: idle power, W: 15 to 27.
        v_min: lowest voltage over the voltage at the top clock: 0.72 to 0.88.
        free_mhz: where the card settles, MHz: 950 (73 C) to 1080 (40 C).
    """
    known = catalogue.gpu("T4")
    partial = Power(idle_w, 0.0, memory, _T4_SHAPE[0] * known.max_mhz, v_min, 0.0)
    timing = cells.clock_cell().timing
    return replace(partial, dynamic_w=watts.from_free_run(timing, 8, partial, free_mhz, known.max_mhz, known.tdp_w))


def _t4(memory: Range) -> dict[str, Range]:
    idle_w, v_min = catalogue.gpu("T4").idle_w, _T4_SHAPE[1]
    knee = t4_power(memory.value, idle_w, v_min).knee_mhz
    answers = [t4_power(memory.value, idle_w, v_min, clock).dynamic_w for clock in (T4_FREE_MHZ, 1080.0, 950.0)]
    source = "the clock that 70 W leave to FP32 BERT (boringlee24/NLP_on_T4); range: that clock at 40 C and at 73 C"
    return {
        "dynamic_w": Range(answers[0], answers[1], answers[2], source),
        "memory": memory,
        "knee_mhz": _about(knee, 0.1, "assumed: 0.8 of the top clock, as on V100 and A100"),
        "v_min": Range(v_min, 0.72, 0.88, "assumed: between the V100 and the A100"),
        "memory_knee_mhz": Range(0.0, 0.0, 600.0, "boringlee24/NLP_on_T4: no such knee down to 585 MHz"),
    }


def _hopper(gpu: str, a100: Mapping[str, Range]) -> dict[str, Range]:
    old, new = catalogue.gpu("A100"), catalogue.gpu(gpu)
    room = (new.tdp_w - new.idle_w) / (old.tdp_w - old.idle_w)
    source = "the A100's in proportion to the power limits above idle; no measurement"
    clocks = new.max_mhz / old.max_mhz
    return {
        "dynamic_w": _about(a100["dynamic_w"].value * room, 0.5, source),
        "memory": a100["memory"],
        "knee_mhz": _about(a100["knee_mhz"].value * clocks, 0.15, "the A100's in proportion to the top clocks"),
        "v_min": _about(a100["v_min"].value, 0.1, "as the A100"),
        "memory_knee_mhz": _about(a100["memory_knee_mhz"].value, 0.3, "as the A100"),
    }


def calibrate() -> Calibration:
    """Run every fit: times alone, then crowding, then power, then times of throttled cards, then contention."""
    mps, eager = cells.mps_cells(), cells.eager_cells()
    pairs = sharing.victims()
    contention = sharing.fit(pairs)
    weight = _memory(eager, contention)
    ranges = powers(mps, weight)
    power = {gpu: Power(**{name: one.value for name, one in known.items()}) for gpu, known in ranges.items()}
    found = fill.every(power, mps, eager)
    timing = {cell: fitted.timing for cell, fitted in found.items()}
    draft = Constants(timing, power, dict.fromkeys(power, contention), {})
    pairs = sharing.held_down(pairs, draft)
    contention = sharing.fit(pairs)
    draft = replace(draft, contention=dict.fromkeys(power, contention))
    constants = replace(draft, half=extras.half_precision(draft), utilisation=extras.utilisation(draft))
    return Calibration(found, ranges, constants, pairs)


def _memory(eager: Mapping[str, Fitted], contention: Contention) -> Range:
    """The weight of memory time, from two processes on one A100; its range when a workload is left out."""
    timing = {("A100", "eager", name): fill.kernels(name, cell).timing for name, cell in eager.items()}
    roomy = Power(1.0, 1.0, 1.0, 1.0, 1.0, 0.0)
    constants = Constants(timing, {"A100": roomy}, {"A100": contention}, {})
    costs = sharing.crowd_costs(constants)
    partial = [sharing.memory_weight(costs, without=name) for name in sharing.CROWDED]
    source = "MunQ-Lee/ParvaGPU_SC24: two processes on one A100; range: a workload left out"
    return Range(sharing.memory_weight(costs), min(partial), max(partial), source)


def lines(found: Calibration) -> list[Line]:
    """The calibration as the rows of `constants.csv`, in a fixed order."""
    table = []
    for gpu in catalogue.gpus():
        for name, one in found.power[gpu].items():
            unit = "W" if name.endswith("_w") else "MHz" if name.endswith("_mhz") else "1"
            table.append(_line("power", gpu, "", "", name, one, unit))
    spread = sharing.spread(found.pairs)
    source = "icloud-ecnu/igniter: pairs within 100 %; range: a pair of workloads left out"
    for gpu, contention in found.constants.contention.items():
        for name, value in asdict(contention).items():
            other = "" if gpu == "V100-SXM2" else " (measured on the V100-SXM2 only)"
            one = Range(value, *spread[name], source + other)
            table.append(_line("contention", gpu, "", "", name, one, "s" if name.endswith("_s") else "1"))
    for gpu, half in found.constants.half.items():
        for name, value in asdict(half).items():
            one = _about(value, half.uncertainty, "FP16 over FP32 on T4 and V100; assumed on the others")
            table.append(_line("fp16", gpu, "", "", name, one, "1"))
    for name, value in asdict(found.constants.utilisation).items():
        one = _about(
            value, 0.3, "icloud-ecnu/igniter: L2 and DRAM utilisation by inference batch size and MPS percentage"
        )
        table.append(_line("utilisation", "", "", "", name, one, "1"))
    for (gpu, engine, workload), cell in sorted(found.cells.items()):
        table += _timing_lines(gpu, engine, workload, cell)
    return table


def _timing_lines(gpu: str, engine: str, workload: str, cell: Fitted) -> list[Line]:
    table = []
    for name, value in asdict(cell.timing).items():
        doubt = min(2.0, math.hypot(cell.spread.get(name, 0.1), cell.timing.uncertainty)) if name in _TIMES else 0.0
        factor = math.exp(_NORMAL_90 * doubt)
        one = Range(float(value), value / factor, value * factor, cell.source)
        table.append(_line("timing", gpu, engine, workload, name, one, "s" if name in _TIMES else "1"))
    return table


def _line(kind: str, gpu: str, engine: str, workload: str, name: str, one: Range, unit: str) -> Line:
    value, low, high = (f"{number:.4g}" for number in (one.value, one.low, one.high))
    return kind, gpu, engine, workload, name, value, unit, low, high, one.source
