"""The public record of MPS on a V100-SXM2 as samples that predictors can train on and be tested on."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heshare.lab.calibration.measurements import MPS_RECORD, records, table
from heshare.prediction.samples import Samples
from heshare.shared.arrays import FloatArray
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident, Workload

RECORDED_GPU = "V100-SXM2"
SAMPLED_PCTS = (10, 40, 50, 60)
_LOW_PCT, _HIGH_PCT = 20, 80


def published_samples() -> Samples:
    """Return the record of iGniter: AlexNet, ResNet-50, SSD and VGG-19 under TensorRT, alone and in pairs.

    Samples are the times alone at 10, 40, 50 and 60 % and both times of each of the 625 pairs. Power was recorded for
    few settings and for no pair, so it is not among them. The record holds neither times alone at 100 % from the same
    run nor SM utilisation. Both follow from the times at 20 and 80 %, which are therefore no samples: the part of the
    time that goes with 1 / share is work w, and the SM utilisation is w over the time at 100 %. L2 and bandwidth
    utilisation are those at 80 %. Power alone is interpolated over the inference batch sizes 1, 16 and 32.
    """
    gpu = find_gpu(RECORDED_GPU)
    times = table("times")
    times = times[(times["gpu"] == gpu.name) & (times["framework"] == MPS_RECORD)]
    alone = times[times["mps_pct"].isin(SAMPLED_PCTS)]
    members: list[tuple[Resident, ...]] = [
        (_resident(row.workload, row.batch_size, row.mps_pct),) for row in records(alone)
    ]
    time_s = alone["time_s"].tolist()
    for pair in records(table("pairs")):
        first = _resident(pair.workload_1, pair.batch_size_1, pair.mps_pct_1)
        second = _resident(pair.workload_2, pair.batch_size_2, pair.mps_pct_2)
        members += [(first, second), (second, first)]
        time_s += [pair.time_1_s, pair.time_2_s]
    rows = pd.DataFrame(
        {
            "gpu": gpu.name,
            "workload": [tasks[0].workload.model for tasks in members],
            "sm_mhz": gpu.max_mhz,
            "time_s": time_s,
            "power_w": np.nan,
        }
    )
    return Samples(rows, tuple(members), _reference_rows(times), "published")


def _resident(model: str, batch_size: float, mps_pct: float) -> Resident:
    return Resident(Workload(model, int(batch_size), "fp32", "tensorrt"), int(mps_pct))


def _reference_rows(times: pd.DataFrame) -> pd.DataFrame:
    gpu = find_gpu(RECORDED_GPU)
    by_share = times.set_index(["workload", "batch_size", "mps_pct"]).sort_index()
    low, high = (by_share.xs(pct, level="mps_pct") for pct in (_LOW_PCT, _HIGH_PCT))
    work_s = (low["time_s"] - high["time_s"]) / (100 / _LOW_PCT - 100 / _HIGH_PCT)
    time_s = high["time_s"] - (100 / _HIGH_PCT - 1) * work_s
    faster = high["time_s"] / time_s

    references = pd.DataFrame(
        {
            "time_s": time_s,
            "sm_util_pct": 100 * work_s / time_s,
            "dram_util_pct": high["dram_pct"] * faster,
            "l2_util_pct": high["l2_pct"] * faster,
        }
    ).reset_index()

    return references.assign(
        gpu=gpu.name,
        precision="fp32",
        engine="tensorrt",
        mps_pct=100,
        co_runners="",
        sm_mhz=gpu.max_mhz,
        sm_mhz_reached=float(gpu.max_mhz),
        idle_w=gpu.idle_w,
        power_w=_power_w(references["workload"].tolist(), references["batch_size"].to_numpy(float)),
    )


def _power_w(models: Sequence[str], sizes: FloatArray) -> FloatArray:
    """Power alone at 100 %, W, logarithms against logarithms between the recorded inference batch sizes."""
    power = table("power")
    known = power["batch_size"].notna() & (power["gpu"] == RECORDED_GPU) & (power["mps_pct"] == 100)
    power = power[known].sort_values("batch_size")
    logs = np.empty(len(models))
    for model, rows in power.groupby("workload"):
        of_model = np.array([name == model for name in models])
        log_sizes, log_w = np.log(rows["batch_size"].to_numpy(float)), np.log(rows["power_w"])
        logs[of_model] = np.interp(np.log(sizes[of_model]), log_sizes, log_w)
    return np.exp(logs)
