"""Fit how co-runners slow one another down while their shares add up to 100 %."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from heshare.devices.calibrate_data import FloatArray, table
from heshare.devices.constants import Contention

_SCALE = 0.02
_START = (0.1, 0.1, 4e-6)


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
    return found.assign(kernels=found.workload.map(kernels))


def slowdowns(contention: Contention, rows: pd.DataFrame) -> FloatArray:
    """Modelled slowdown of each row, shape (n,)."""
    size = (rows.other_batch_size.to_numpy(float) / 8.0) ** contention.size
    waits = contention.wait_s * rows.kernels.to_numpy(float) / rows.solo_s.to_numpy(float)
    return 1.0 + contention.strength * size + waits


def fit(rows: pd.DataFrame) -> Contention:
    """The contention constants that fit the slowdowns of `rows` best, robustly against odd pairs."""
    measured = (rows.time_s / rows.solo_s).to_numpy(float)

    def residuals(q: FloatArray) -> FloatArray:
        return slowdowns(Contention(q[0], q[1], q[2] * 1e-6), rows) / measured - 1.0

    start = (_START[0], _START[1], _START[2] * 1e6)
    found = least_squares(residuals, start, bounds=((0, 0, 0), (1, 1, 100)), loss="soft_l1", f_scale=_SCALE)
    return Contention(float(found.x[0]), float(found.x[1]), float(found.x[2]) * 1e-6)


def spread() -> dict[str, tuple[float, float]]:
    """(lowest, highest) of each constant when one pair of workloads after the other is left out."""
    rows = victims()
    fits = [fit(rows[rows.pair != pair]) for pair in sorted(rows.pair.unique())]
    return {
        name: (min(getattr(one, name) for one in fits), max(getattr(one, name) for one in fits))
        for name in ("strength", "size", "wait_s")
    }


def left_out() -> pd.DataFrame:
    """`victims()` with the slowdown modelled by a fit that never saw this pair of workloads."""
    rows = victims()
    answers = np.zeros(len(rows))
    for pair in sorted(rows.pair.unique()):
        unseen = (rows.pair == pair).to_numpy()
        answers[unseen] = slowdowns(fit(rows[~unseen]), rows[unseen])
    return rows.assign(modelled=answers, measured=rows.time_s / rows.solo_s)
