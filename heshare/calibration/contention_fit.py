"""Fit of contention: how co-runners slow one another down, within 100 % of shares and on an oversubscribed GPU."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.arrays import FloatArray
from heshare.calibration.measurements import EAGER_RECORD, TimeRows, kernel_counts, records, table, time_rows
from heshare.devices.constants import Constants, Contention
from heshare.devices.device_model import co_run
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

PAIRS_GPU = "V100-SXM2"
TWO_PROCESS_MODELS = (
    "densenet121",
    "densenet201",
    "mobilenetv2",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
)
"""Workloads whose record of two processes on one A100 has no implausible rows."""

_SCALE = 0.02
_MEMORY_WEIGHTS = tuple(0.3 + 0.02 * step for step in range(46))
_START_STRENGTH, _START_WAIT_S = 0.1, 4e-6


@cache
def pair_rows() -> pd.DataFrame:
    """Return one row for each task of each measured pair.

    Returns:
        Columns pair, workload, batch_size, mps_pct, time_s, solo_s, other_workload, other_batch_size,
        other_mps_pct, kernels, throttling (1: the power limit is not taken into account yet).
    """
    pairs, setting = table("pairs"), ("workload", "batch_size", "mps_pct")
    halves = [
        pd.DataFrame(
            {
                "pair": pairs.workload_1 + "+" + pairs.workload_2,
                "time_s": pairs[f"time_{own}_s"],
                "solo_s": pairs[f"solo_{own}_s"],
                **{name: pairs[f"{name}_{own}"] for name in setting},
                **{f"other_{name}": pairs[f"{name}_{other}"] for name in setting},
            }
        )
        for own, other in (("1", "2"), ("2", "1"))
    ]
    rows = pd.concat(halves, ignore_index=True)
    return rows.assign(kernels=rows.workload.map(kernel_counts()), throttling=1.0)


def with_throttling(rows: pd.DataFrame, constants: Constants) -> pd.DataFrame:
    """Return `rows` with `throttling` set to the slowdown by the power limit alone, which is no contention."""
    gpu = catalogue.gpu(PAIRS_GPU)
    no_contention = replace(constants, contention={gpu.name: Contention(0.0, 0.0)})
    throttling = []
    for row in records(rows):
        own, other = residents(row)
        alone_s = co_run(gpu, [own], constants=no_contention).tasks[0].time_s
        throttling.append(co_run(gpu, [own, other], constants=no_contention).tasks[0].time_s / alone_s)
    return rows.assign(throttling=throttling)


def residents(row: Any) -> tuple[Resident, Resident]:
    """Return (the task of a row of `pair_rows`, its co-runner)."""
    own = Workload(str(row.workload), int(row.batch_size), engine="tensorrt")
    other = Workload(str(row.other_workload), int(row.other_batch_size), engine="tensorrt")
    return Resident(own, int(row.mps_pct)), Resident(other, int(row.other_mps_pct))


def slowdowns(contention: Contention, rows: pd.DataFrame) -> FloatArray:
    """Return the modelled slowdown of each row, shape (n,)."""
    waits = contention.wait_s * rows.kernels.to_numpy(float) / rows.solo_s.to_numpy(float)
    return np.asarray(rows.throttling.to_numpy(float) * (1.0 + contention.strength + waits), dtype=np.float64)


def fit_contention(rows: pd.DataFrame) -> Contention:
    """Return the constants that fit the slowdowns of `rows` best, robustly against odd pairs."""
    measured = (rows.time_s / rows.solo_s).to_numpy(float)

    def residuals(q: FloatArray) -> FloatArray:
        return np.asarray(slowdowns(Contention(q[0], q[1] * 1e-6), rows) / measured - 1.0, dtype=np.float64)

    start = (_START_STRENGTH, _START_WAIT_S * 1e6)
    solved = least_squares(residuals, start, bounds=((0, 0), (1, 100)), loss="soft_l1", f_scale=_SCALE)
    return Contention(float(solved.x[0]), float(solved.x[1]) * 1e-6)


def left_out_fits(rows: pd.DataFrame) -> dict[str, Contention]:
    """Return, by pair of workloads, the fit to `rows` without this pair."""
    return {pair: fit_contention(rows[rows.pair != pair]) for pair in sorted(rows.pair.unique())}


def two_processes(constants: Constants, workload: str) -> tuple[TimeRows, FloatArray]:
    """Return (measured rows of two processes of one workload on the whole A100, modelled times in s)."""
    rows = time_rows("A100", workload, EAGER_RECORD, processes=2)
    gpu = catalogue.gpu("A100")
    pairs = [[Resident(Workload(workload, int(batch)))] * 2 for batch in rows.batch]
    return rows, np.array([co_run(gpu, pair, constants=constants).tasks[0].time_s for pair in pairs])


def memory_weight_costs(constants: Constants) -> pd.DataFrame:
    """Return the sum of absolute log errors of `two_processes`: a row a weight of memory time, a column a workload."""

    def cost(weight: float, workload: str) -> float:
        rows, modelled = two_processes(constants.with_power("A100", memory=weight), workload)
        return float(np.abs(np.log(modelled / rows.time_s)).sum())

    costs = {name: [cost(weight, name) for weight in _MEMORY_WEIGHTS] for name in TWO_PROCESS_MODELS}
    return pd.DataFrame(costs, index=list(_MEMORY_WEIGHTS))


def memory_weight(costs: pd.DataFrame, *, without: str = "") -> float:
    """Return the weight of memory time beside SM time (`Power.memory`) that costs least, without one workload."""
    used = costs[[name for name in TWO_PROCESS_MODELS if name != without]]
    return _MEMORY_WEIGHTS[int(np.argmin(used.sum(axis=1).to_numpy(float)))]
