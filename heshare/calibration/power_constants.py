"""Power constants of every GPU with their ranges and sources: fitted where measured, derived from others elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heshare.calibration import power_fit
from heshare.calibration.measurements import MPS_MODELS
from heshare.calibration.time_fit import FittedTiming
from heshare.calibration.timing_constants import fit_t4_clocks
from heshare.devices.constants import Power
from heshare.world import catalogue

T4_CAPPED_MHZ = 1030.0
"""The clock that 70 W leave to a T4 at about 60 C under FP32 BERT, MHz (boringlee24/NLP_on_T4)."""

_T4_KNEE, _T4_V_MIN = 0.8, 0.8


@dataclass(frozen=True)
class RangedValue:
    """A value with the range in which it may lie, and its source."""

    value: float
    low: float
    high: float
    source: str

    @classmethod
    def within(cls, value: float, relative: float, source: str) -> RangedValue:
        """Return a value with a range of `relative` to both sides."""
        return cls(value, value * (1 - relative), value * (1 + relative), source)


PowerRanges = dict[str, RangedValue]
"""Constants of `heshare.devices.constants.Power`, by name."""


def fit_power(mps: Mapping[str, FittedTiming], memory: RangedValue) -> dict[str, PowerRanges]:
    """Return the power constants of every GPU, by name.

    Args:
        mps: timings of the MPS record on the V100-SXM2.
        memory: weight of memory time (`Power.memory`).
    """
    ranges = {"V100-SXM2": _v100_sxm2(mps, memory)}
    ranges["V100"] = _v100(ranges["V100-SXM2"])
    ranges["A100"] = _a100(ranges["V100-SXM2"]["memory"])
    ranges["T4"] = _t4(ranges["V100-SXM2"]["memory"])
    for gpu in ("H100", "H200"):
        ranges[gpu] = _hopper(gpu, ranges["A100"])
    sharing = ranges["V100-SXM2"]["sharing"]
    return {
        gpu: {"idle_w": _idle_w(gpu), **ranges[gpu], "sharing": sharing} for gpu in catalogue.gpus() if gpu in ranges
    }


def _idle_w(gpu: str) -> RangedValue:
    idle_w = catalogue.gpu(gpu).idle_w
    low, high = {"T4": (15.0, 27.0), "V100-SXM2": (53.5, 53.5)}.get(gpu, (0.85 * idle_w, 1.2 * idle_w))
    return RangedValue(idle_w, low, high, "data/gpus.csv")


def _v100_sxm2(mps: Mapping[str, FittedTiming], memory: RangedValue) -> PowerRanges:
    timings = {name: fitted.timing for name, fitted in mps.items()}
    idle_w = catalogue.gpu("V100-SXM2").idle_w
    partial = [
        power_fit.fit_dynamic_w(timings, [name for name in MPS_MODELS if name != out], idle_w, memory.value)
        for out in MPS_MODELS
    ]
    source = "icloud-ecnu/igniter: power by inference batch size and MPS percentage; range: a workload left out"
    dynamic_w = power_fit.fit_dynamic_w(timings, MPS_MODELS, idle_w, memory.value)
    knee, v_min = power_fit.voltage_curve("V100")
    low, _ = power_fit.extend_voltage(knee, v_min, catalogue.gpu("V100").max_mhz, catalogue.gpu("V100-SXM2").max_mhz)
    curve = "the V100's curve on one straight line up to 1530 MHz"
    return {
        "dynamic_w": RangedValue(dynamic_w, min(partial), max(partial), source),
        "memory": memory,
        "knee_mhz": RangedValue.within(knee, 0.08, curve),
        "v_min": RangedValue.within(low, 0.05, curve),
        "memory_knee_mhz": RangedValue.within(power_fit.memory_knee("A100"), 0.1, "as the A100"),
        "sharing": RangedValue.within(
            power_fit.fit_sharing_power(timings["vgg19"], idle_w, memory.value),
            0.5,
            "icloud-ecnu/igniter: 1 to 3 VGG-19 at 20 % each",
        ),
    }


def _v100(sxm2: PowerRanges) -> PowerRanges:
    knee, v_min = power_fit.voltage_curve("V100")
    pcie, other = catalogue.gpu("V100").max_mhz, catalogue.gpu("V100-SXM2").max_mhz
    _, volts = power_fit.extend_voltage(knee, v_min, pcie, other)
    scale = pcie / other * volts**2
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: power of 19 codes at 27 clocks"
    known = sxm2["dynamic_w"]
    origin = "the V100-SXM2's at 1380 MHz and its voltage there"
    return {
        "dynamic_w": RangedValue(known.value * scale, known.low * scale * 0.9, known.high * scale * 1.1, origin),
        "memory": sxm2["memory"],
        "knee_mhz": RangedValue.within(knee, 0.08, source),
        "v_min": RangedValue.within(v_min, 0.05, source),
        "memory_knee_mhz": sxm2["memory_knee_mhz"],
    }


def _a100(memory: RangedValue) -> PowerRanges:
    knee, v_min = power_fit.voltage_curve("A100")
    median, low, high = power_fit.dynamic_w_of_sweep("A100", catalogue.gpu("A100").idle_w)
    source = "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models: power of 25 codes at 61 clocks"
    return {
        "dynamic_w": RangedValue(
            median, low, high, f"{source}: median and quartiles of the busy ones; no inference among them"
        ),
        "memory": memory,
        "knee_mhz": RangedValue.within(knee, 0.03, source),
        "v_min": RangedValue.within(v_min, 0.03, source),
        "memory_knee_mhz": RangedValue.within(power_fit.memory_knee("A100"), 0.1, source),
    }


def t4_power_curve(memory: float, idle_w: float, v_min: float, capped_mhz: float = T4_CAPPED_MHZ) -> Power:
    """Return a T4 with another idle power or lowest voltage to which 70 W leave the same clock under FP32 BERT.

    A T4's power by clock was never published; this is the family of curves that the public record allows.

    Args:
        memory: weight of memory time (`Power.memory`).
        idle_w: idle power, W: 15 to 27.
        v_min: lowest voltage over the voltage at the top clock: 0.72 to 0.88.
        capped_mhz: the clock that the limit leaves, MHz: 950 (73 C) to 1080 (40 C).
    """
    t4 = catalogue.gpu("T4")
    partial = Power(idle_w, 0.0, memory, _T4_KNEE * t4.max_mhz, v_min, 0.0)
    timing = fit_t4_clocks().timing
    dynamic_w = power_fit.dynamic_w_at_cap(timing, 8, partial, capped_mhz, t4.max_mhz, t4.tdp_w)
    return replace(partial, dynamic_w=dynamic_w)


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
        "memory_knee_mhz": RangedValue(0.0, 0.0, 600.0, "boringlee24/NLP_on_T4: no such knee down to 585 MHz"),
    }


def _hopper(gpu: str, a100: PowerRanges) -> PowerRanges:
    """H100 and H200: no measurement at all."""
    old, new = catalogue.gpu("A100"), catalogue.gpu(gpu)
    limits = (new.tdp_w - new.idle_w) / (old.tdp_w - old.idle_w)
    source = "the A100's in proportion to the power limits above idle; no measurement"
    clocks = new.max_mhz / old.max_mhz
    by_clock = "the A100's in proportion to the top clocks"
    return {
        "dynamic_w": RangedValue.within(a100["dynamic_w"].value * limits, 0.5, source),
        "memory": a100["memory"],
        "knee_mhz": RangedValue.within(a100["knee_mhz"].value * clocks, 0.15, by_clock),
        "v_min": RangedValue.within(a100["v_min"].value, 0.1, "as the A100"),
        "memory_knee_mhz": RangedValue.within(a100["memory_knee_mhz"].value, 0.3, "as the A100"),
    }
