"""Half precision, what profilers report, and the size of repeat noise."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from heshare.devices.calibration.cells import BANDWIDTH
from heshare.devices.calibration.data import FUSED, IMAGE_MODELS, MPS, records, rows, table
from heshare.devices.calibration.power import sweep
from heshare.devices.constants import Constants, HalfPrecision, Utilisation
from heshare.devices.model import co_run
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

_BYTES = 0.5
_FACTORS = tuple(0.3 + 0.02 * step for step in range(31))


def _bias(constants: Constants, work: float) -> float:
    """Mean logarithm of modelled over measured FP16 times on the T4 when SM time shrinks by `work`."""
    half = HalfPrecision(work, _BYTES, 0.0)
    known = Constants(constants.timing, constants.power, constants.contention, {"T4": half})
    gpu, logs = catalogue.gpu("T4"), []
    for name in IMAGE_MODELS:
        found = rows("T4", name, FUSED, precision="fp16")
        for batch, time_s in zip(found.batch, found.time_s, strict=True):
            one = Resident(Workload(name, int(batch), "fp16", "tensorrt"))
            logs.append(np.log(co_run(gpu, [one], constants=known).tasks[0].time_s / time_s))
    return float(np.mean(logs))


def half_precision(constants: Constants) -> dict[str, HalfPrecision]:
    """FP16 on every GPU: SM time by the record of the T4 and the V100, half the bytes; guessed on the others."""
    turing = min((abs(_bias(constants, work)), work) for work in _FACTORS)[1]
    full = rows("V100-SXM2", "resnet50", "PyTorch")
    half = rows("V100-SXM2", "resnet50", "PyTorch", precision="fp16")
    volta = HalfPrecision(float(half.time_s[-1] / full.time_s[-1]), _BYTES, 0.3)
    guess = HalfPrecision(turing, _BYTES, 0.4)
    return {
        "T4": HalfPrecision(turing, _BYTES, 0.25),
        "V100": volta,
        "V100-SXM2": volta,
        "A100": guess,
        "H100": guess,
        "H200": guess,
    }


def utilisation(constants: Constants) -> Utilisation:
    """Reported L2 and DRAM utilisation for the model's SM and memory activity, V100-SXM2.

    Memory time moves data at the bandwidth that was assumed for it; what is reported beyond that goes with SM time.
    """
    times = table("times")
    found = times[(times.framework == MPS) & times.l2_pct.notna()]
    gpu, activity = catalogue.gpu("V100-SXM2"), []
    plain = Constants(constants.timing, constants.power, constants.contention, {})
    for row in records(found):
        one = Resident(Workload(row.workload, int(row.batch_size), engine="tensorrt"), int(row.mps_pct))
        task = co_run(gpu, [one], constants=plain).tasks[0]
        activity.append((task.sm_util_pct, task.dram_util_pct))
    columns = np.array(activity)
    (l2,), _ = nnls(columns[:, :1], found.l2_pct.to_numpy(float))
    moved = BANDWIDTH["V100-SXM2"]
    (sms,), _ = nnls(columns[:, :1], np.maximum(0.0, found.dram_pct.to_numpy(float) - moved * columns[:, 1]))
    return Utilisation(float(l2), float(sms), moved)


def time_noise() -> float:
    """Median standard deviation of a latency over its mean, of 1,250 latencies under MPS."""
    pairs = table("pairs")
    spread = np.concatenate([pairs.std_1_s / pairs.time_1_s, pairs.std_2_s / pairs.time_2_s])
    return float(np.median(spread))


def power_noise() -> float:
    """Median relative scatter of power about a smooth curve over neighbouring clocks, A100."""
    scatter = []
    for _, found in sweep("A100").sort_values("sm_mhz").groupby("application", sort=True):
        power_w = found.power_w.to_numpy(float)
        bend = power_w[2:] - 2.0 * power_w[1:-1] + power_w[:-2]
        # a second difference of independent noise has six times its variance
        scatter.append(float(np.median(np.abs(bend)) / 0.6745 / np.sqrt(6.0) / np.mean(power_w)))
    return float(np.median(scatter))
