"""Fit how co-runners slow one another down: within 100 % of shares, and when a GPU is asked for too much."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.devices.calibration.data import EAGER, FloatArray, Rows, records, table
from heshare.devices.calibration.data import rows as rows_of
from heshare.devices.constants import Constants, Contention
from heshare.devices.model import co_run
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

CROWDED = (
    "densenet121",
    "densenet201",
    "mobilenetv2",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
)
"""Workloads of the crowded record without bad cells."""

_SCALE = 0.02
_WEIGHTS = tuple(0.3 + 0.02 * step for step in range(46))
_START = (0.1, 4e-6)


@cache
def victims() -> pd.DataFrame:
    """One row a task of each pair: pair, workload, batch_size, mps_pct, time_s, solo_s, kernels, other_batch_size."""
    pairs = table("pairs")
    kernels = dict(zip(table("kernels").workload, table("kernels").kernels, strict=True))
    halves = []
    for own, other in (("1", "2"), ("2", "1")):
        halves.append(
            pd.DataFrame(
                {
                    "pair": pairs.workload_1 + "+" + pairs.workload_2,
                    "row": pairs.index,
                    "workload": pairs[f"workload_{own}"],
                    "batch_size": pairs[f"batch_size_{own}"],
                    "mps_pct": pairs[f"mps_pct_{own}"],
                    "time_s": pairs[f"time_{own}_s"],
                    "solo_s": pairs[f"solo_{own}_s"],
                    "other_workload": pairs[f"workload_{other}"],
                    "other_batch_size": pairs[f"batch_size_{other}"],
                    "other_mps_pct": pairs[f"mps_pct_{other}"],
                }
            )
        )
    found = pd.concat(halves, ignore_index=True)
    return found.assign(kernels=found.workload.map(kernels), held=1.0)


def held_down(rows: pd.DataFrame, constants: Constants) -> pd.DataFrame:
    """`rows` with a column `held`: the slowdown by the power limit alone, which is no contention."""
    gpu = catalogue.gpu("V100-SXM2")
    free = replace(constants, contention={gpu.name: Contention(0.0, 0.0)})
    held = []
    for row in records(rows):
        own, other = residents(row)
        alone = co_run(gpu, [own], constants=free).tasks[0].time_s
        held.append(co_run(gpu, [own, other], constants=free).tasks[0].time_s / alone)
    return rows.assign(held=held)


def residents(row: Any) -> tuple[Resident, Resident]:
    """(the task of a row of `victims`, its co-runner)."""
    own = Workload(str(row.workload), int(row.batch_size), engine="tensorrt")
    other = Workload(str(row.other_workload), int(row.other_batch_size), engine="tensorrt")
    return Resident(own, int(row.mps_pct)), Resident(other, int(row.other_mps_pct))


def slowdowns(contention: Contention, rows: pd.DataFrame) -> FloatArray:
    """Modelled slowdown of each row, shape (n,)."""
    waits = contention.wait_s * rows.kernels.to_numpy(float) / rows.solo_s.to_numpy(float)
    return np.asarray(rows.held.to_numpy(float) * (1.0 + contention.strength + waits), dtype=np.float64)


def fit(rows: pd.DataFrame) -> Contention:
    """The contention constants that fit the slowdowns of `rows` best, robustly against odd pairs."""
    measured = (rows.time_s / rows.solo_s).to_numpy(float)

    def residuals(q: FloatArray) -> FloatArray:
        return np.asarray(slowdowns(Contention(q[0], q[1] * 1e-6), rows) / measured - 1.0, dtype=np.float64)

    start = (_START[0], _START[1] * 1e6)
    found = least_squares(residuals, start, bounds=((0, 0), (1, 100)), loss="soft_l1", f_scale=_SCALE)
    return Contention(float(found.x[0]), float(found.x[1]) * 1e-6)


def spread(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """(lowest, highest) of each constant when one pair of workloads after the other is left out of `rows`."""
    fits = [fit(rows[rows.pair != pair]) for pair in sorted(rows.pair.unique())]
    return {
        name: (min(getattr(one, name) for one in fits), max(getattr(one, name) for one in fits))
        for name in ("strength", "wait_s")
    }


def left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with the slowdown modelled by a fit that never saw this pair of workloads."""
    answers = np.zeros(len(rows))
    for pair in sorted(rows.pair.unique()):
        unseen = (rows.pair == pair).to_numpy()
        answers[unseen] = slowdowns(fit(rows[~unseen]), rows[unseen])
    return rows.assign(modelled=answers, measured=rows.time_s / rows.solo_s)


def crowd(constants: Constants, workload: str) -> tuple[Rows, FloatArray]:
    """(two processes of one workload on the whole A100, modelled times in s)."""
    found = rows_of("A100", workload, EAGER, processes=2)
    gpu = catalogue.gpu("A100")
    pairs = [[Resident(Workload(workload, int(batch)))] * 2 for batch in found.batch]
    return found, np.array([co_run(gpu, pair, constants=constants).tasks[0].time_s for pair in pairs])


def crowd_costs(constants: Constants) -> pd.DataFrame:
    """Sum of absolute log errors of two processes on one A100: a row a weight of memory time, a column a workload."""
    table_ = {
        name: [_crowd_cost(constants.with_power("A100", memory=weight), name) for weight in _WEIGHTS]
        for name in CROWDED
    }
    return pd.DataFrame(table_, index=list(_WEIGHTS))


def _crowd_cost(constants: Constants, workload: str) -> float:
    found, modelled = crowd(constants, workload)
    return float(np.abs(np.log(modelled / found.time_s)).sum())


def memory_weight(costs: pd.DataFrame, *, without: str = "") -> float:
    """How much memory time counts beside SM time when two processes fill a GPU, from the costs of the workloads."""
    used = costs[[name for name in CROWDED if name != without]]
    return _WEIGHTS[int(np.argmin(used.sum(axis=1).to_numpy(float)))]
