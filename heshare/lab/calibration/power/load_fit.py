"""Dynamic power of GPUs whose FP32 networks run in TF32, and of each kind of load.

No record has the power of CNN inference in TF32, to which `Power.dynamic_w` refers. It lies between CNN inference in
INT8 (power limits of the A100-PCIe, the least) and diffusion models in FP16 (the most): the geometric mean of both.
The other GPUs keep the ratios.

The record of saturated GPUs holds time and power by batch size. The largest batch of a model fills the GPU; a smaller
one does the part `u` of its work in the same time. Power is `idle + V^2 (f / f_max clock + min(f, u f_full) / f_max
dynamic)`, and where that passes the card's limit, the clock is lower. Boards average a little below their limit
(`REGULATED`).
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from heshare.devices.constants import Load
from heshare.lab.calibration.measurements import table
from heshare.lab.calibration.power.voltage_fit import VoltageCurve, busy_power, voltage_curve
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

_SATURATED = "ml-energy/leaderboard-v2: power of diffusion models in FP16 by batch size"
_LIMITED = "mlcommons/inference_results_v2.0 and v3.0: throughput of INT8 networks under power limits"
_SAME_CHIP = {"A100-40GB": "A100", "A100-PCIe": "A100", "A100-PCIe-40GB": "A100", "H100-PCIe": "H100", "H200": "H100"}
FITTED = 0.05
"""Relative standard uncertainty of board power that was fitted on the GPU."""
CARRIED, UNMEASURED = 0.1, 0.15
"""The same, carried over from another GPU, and from another precision or load."""
TENSOR_CARDS = ("A100", "A100-PCIe", "A100-40GB", "A100-PCIe-40GB", "H100", "H100-PCIe", "H200")
"""GPUs whose dynamic power follows from networks in FP16 and INT8 (`tensor_power`)."""


@dataclass(frozen=True)
class TensorPower:
    """Power of a GPU: clocks with what they draw idle, dynamic power of CNNs in TF32 with its range, W, and sources."""

    clock_w: float
    dynamic_w: float
    low_w: float
    high_w: float
    source: str
    clock_source: str


@cache
def _ratios() -> tuple[float, float]:
    """(FP16, INT8) dynamic power of CNNs over that in TF32, on the A100."""
    curve = voltage_curve("A100")
    clock_w, half_w = fit_saturated("A100", curve)
    integer_w = busy_power(curve).of_kind("A100-PCIe", "cnn") - clock_w
    full_w = math.sqrt(half_w * integer_w)
    return half_w / full_w, integer_w / full_w


@cache
def tensor_power(gpu: str) -> TensorPower:
    """Return the power of one of the GPUs of the records, or of one with the same chip."""
    curve, (half, integer) = voltage_curve("A100"), _ratios()
    chip = _SAME_CHIP.get(gpu, gpu)
    clock_w, half_w = fit_saturated(chip, curve)
    source = f"{_SATURATED}, and {_LIMITED}: between FP16 and INT8; range: these"
    if gpu in busy_power(curve).card_w:
        old, new = catalogue.gpu(chip), catalogue.gpu(gpu)
        clock_w *= new.sm_count * new.max_mhz / (old.sm_count * old.max_mhz)
        dynamic_w = (busy_power(curve).of_kind(gpu, "cnn") - clock_w) / integer
    else:
        dynamic_w = half_w / half
    clocks = _SATURATED if gpu == chip else f"as the {chip}, by SMs and clock"
    return TensorPower(clock_w, dynamic_w, dynamic_w * integer, dynamic_w * half, source, clocks)


@cache
def transformer_intensity() -> float:
    """Return dynamic power of transformers over that of CNNs on tensor cores: BERT over CNNs, INT8, under limits."""
    curve = voltage_curve("A100")
    clock_w, _ = fit_saturated("A100", curve)
    fit = busy_power(curve)
    return (fit.of_kind("A100-PCIe", "transformer") - clock_w) / (fit.of_kind("A100-PCIe", "cnn") - clock_w)


def fit_loads(memory: float) -> dict[tuple[str, str, str], Load]:
    """Return the loads whose power goes with the time of the SMs, by (gpu, kind of network, precision).

    `memory` is the weight of memory time (`Power.memory`), at which a GPU works that writes token by token.
    """
    half, _ = _ratios()
    dense = transformer_intensity()
    found = {
        ("T4", "transformer", "fp32"): (1.0, FITTED),
        ("V100", "cnn", "fp32"): (1.0, CARRIED),
        ("V100-SXM2", "cnn", "fp32"): (1.0, FITTED),
    }
    for gpu in ("T4", "V100", "V100-SXM2"):
        found[gpu, "transformer", "fp16"] = half * dense, UNMEASURED
    for gpu in TENSOR_CARDS:
        decode, spread = _decode_intensity(gpu, memory)
        found[gpu, "transformer", "fp32"] = dense, UNMEASURED
        found[gpu, "transformer", "fp16"] = half * dense, CARRIED
        found[gpu, "decode", "fp32"] = decode, math.hypot(spread, CARRIED)
        found[gpu, "decode", "fp16"] = decode, spread
    return {key: Load(intensity, 0.0, 0.0, spread) for key, (intensity, spread) in found.items()}


def _decode_intensity(gpu: str, memory: float) -> tuple[float, float]:
    """(Intensity of language models that write token by token, standard deviation of their power over its mean)."""
    chip = _SAME_CHIP.get(gpu, gpu)
    power = tensor_power(chip)
    power_w = table("saturated_power").query("gpu == @chip and kind == 'decode'").power_w.to_numpy(float)
    above_w = float(np.median(power_w)) - catalogue.gpu(chip).idle_w - power.clock_w
    return above_w / (power.dynamic_w * memory), float(np.log(power_w).std())


REGULATED = 0.977
"""Average power of a board at its limit over that limit: the highest of both GPUs in the record."""
_RATIOS = np.linspace(0.3, 1.0, 141)
_CLOCK_WS = tuple(10.0 * step for step in range(13))
_DYNAMIC_WS = tuple(10.0 * step for step in range(20, 91))


@cache
def saturated_rows(gpu: str) -> pd.DataFrame:
    """Return the diffusion models of the record on a GPU: model, kind, power_w, and `load`, the part of full work."""
    rows = table("saturated_power").query("gpu == @gpu and kind != 'decode'").copy()
    per_sample_s = rows.time_s / rows.batch_size
    largest = rows.groupby(["model", "setting"]).batch_size.transform("max")
    full = per_sample_s.where(rows.batch_size == largest)
    rows["load"] = full.groupby([rows.model, rows.setting]).transform("max") / per_sample_s
    return rows


def modelled_w(gpu: str, load: FloatArray, curve: VoltageCurve, clock_w: float, dynamic_w: float) -> FloatArray:
    """Return the power of a GPU with these loads under its own limit, W, shape (n,)."""
    spec = catalogue.gpu(gpu)
    limit_w = REGULATED * spec.tdp_w
    volts2 = curve.voltage(_RATIOS) ** 2
    full_w = spec.idle_w + volts2 * _RATIOS * (clock_w + dynamic_w)
    full = float(np.interp(limit_w, full_w, _RATIOS))
    rate = np.minimum(_RATIOS[:, None], full * load)
    power_w = spec.idle_w + volts2[:, None] * (clock_w * _RATIOS[:, None] + dynamic_w * rate)
    return np.asarray(np.minimum(power_w[-1], limit_w), dtype=np.float64)


@cache
def _costs(gpu: str, curve: VoltageCurve) -> tuple[pd.DataFrame, tuple[tuple[float, float], ...]]:
    """Sum of absolute log errors of each model (row) by each (clock, dynamic) power (column), and these."""
    rows = saturated_rows(gpu)
    grid = tuple((clock_w, dynamic_w) for clock_w in _CLOCK_WS for dynamic_w in _DYNAMIC_WS)
    load, power_w = rows.load.to_numpy(float), rows.power_w.to_numpy(float)
    errors = [np.abs(np.log(modelled_w(gpu, load, curve, *point) / power_w)) for point in grid]
    return pd.DataFrame(np.array(errors).T, index=rows.model.to_numpy()).groupby(level=0).sum(), grid


def fit_saturated(gpu: str, curve: VoltageCurve, without: str = "") -> tuple[float, float]:
    """Return (clock, dynamic) power of FP16 networks on a GPU, W, without one model."""
    costs, grid = _costs(gpu, curve)
    return grid[int(np.argmin(costs[costs.index != without].sum(axis=0).to_numpy()))]
