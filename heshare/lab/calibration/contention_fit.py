"""Fit of contention: how co-runners slow one another down while their shares add up to 100 %."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.devices.constants import Constants, Contention
from heshare.devices.device_model import co_run
from heshare.lab.calibration.measurements import kernel_counts, records, table
from heshare.lab.calibration.power_fit import RangedValue
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

PAIRS_GPU = "V100-SXM2"
SHARPNESS = (8.0, 12.0, 16.0, 20.0, 24.0, 32.0)
"""Values of `Contention.sharpness` among which the pairs choose."""

_SCALE = 0.02
_AS_GOOD = 1.05
_START_STRENGTH, _START_WAIT_S = 0.1, 4e-6


@cache
def pair_rows() -> pd.DataFrame:
    """Return one row for each task of each measured pair.

    Columns pair, workload, batch_size, mps_pct, time_s, solo_s, other_workload, other_batch_size, other_mps_pct,
    kernels, turns (1: power limit and taking turns are not taken into account yet).
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
    return rows.assign(kernels=rows.workload.map(kernel_counts()), turns=1.0)


def with_turns(rows: pd.DataFrame, constants: Constants) -> pd.DataFrame:
    gpu = catalogue.gpu(PAIRS_GPU)
    known = replace(constants.contention[gpu.name], strength=0.0, wait_s=0.0)
    no_contention = replace(constants, contention={gpu.name: known})
    pairs = [residents(row) for row in records(rows)]
    alone_s = {own: co_run(gpu, [own], constants=no_contention).tasks[0].time_s for own in {own for own, _ in pairs}}
    turns = [co_run(gpu, pair, constants=no_contention).tasks[0].time_s / alone_s[pair[0]] for pair in pairs]
    return rows.assign(turns=turns)


def fit_sharpness(rows: pd.DataFrame, constants: Constants) -> tuple[RangedValue, pd.DataFrame]:
    """Return (sharpness that explains the pairs best, `rows` with `turns` at it); range: hardly larger errors."""
    errors, tables, known = {}, {}, constants.contention[PAIRS_GPU]
    measured = (rows.time_s / rows.solo_s).to_numpy(float)
    for sharpness in SHARPNESS:
        contention = {PAIRS_GPU: replace(known, sharpness=sharpness)}
        tables[sharpness] = with_turns(rows, replace(constants, contention=contention))
        modelled = slowdowns(fit_contention(tables[sharpness]), tables[sharpness])
        errors[sharpness] = float(np.abs(modelled / measured - 1.0).mean())
    best = min(errors, key=lambda sharpness: errors[sharpness])
    good = [sharpness for sharpness, error in errors.items() if error <= _AS_GOOD * errors[best]]
    source = "icloud-ecnu/igniter: pairs within 100 %; range: values hardly worse"
    return RangedValue(best, min(good), max(good), source), tables[best]


def residents(row: Any) -> tuple[Resident, Resident]:
    own = Workload(str(row.workload), int(row.batch_size), engine="tensorrt")
    other = Workload(str(row.other_workload), int(row.other_batch_size), engine="tensorrt")
    return Resident(own, int(row.mps_pct)), Resident(other, int(row.other_mps_pct))


def slowdowns(contention: Contention, rows: pd.DataFrame) -> FloatArray:
    waits = contention.wait_s * rows.kernels.to_numpy(float) / rows.solo_s.to_numpy(float)
    strength = contention.strength * rows.other_mps_pct.to_numpy(float) / rows.mps_pct.to_numpy(float)
    return np.asarray(rows.turns.to_numpy(float) * (1.0 + strength + waits), dtype=np.float64)


def fit_contention(rows: pd.DataFrame) -> Contention:
    measured = (rows.time_s / rows.solo_s).to_numpy(float)

    def residuals(q: FloatArray) -> FloatArray:
        return np.asarray(slowdowns(Contention(q[0], q[1] * 1e-6), rows) / measured - 1.0, dtype=np.float64)

    start = (_START_STRENGTH, _START_WAIT_S * 1e6)
    solved = least_squares(residuals, start, bounds=((0, 0), (1, 100)), loss="soft_l1", f_scale=_SCALE)
    return Contention(float(solved.x[0]), float(solved.x[1]) * 1e-6)


def left_out_fits(rows: pd.DataFrame) -> dict[str, Contention]:
    return {pair: fit_contention(rows[rows.pair != pair]) for pair in sorted(rows.pair.unique())}
