"""What an iteration alone is made of: the parts that the host, the memory and the SMs take, from reference rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heshare.errors import InputError
from heshare.prediction.features import is_reference
from heshare.prediction.fitting import least_squares
from heshare.prediction.predictor import FloatArray
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Workload

OVERLAP = 8.0
"""How sharply the longer of host and GPU part hides the shorter: t = (host^n + gpu^n)^(1/n).

Of 2, 4, 8 and 16 the one that leaves least of the reference rows' times unexplained (a test holds it so); no test set
has a reference row.
"""
PARTS = ("time_s", "host_s", "memory_s", "work_s", "clock", "dram", "l2", "dynamic_w", "busy")
"""Columns: iteration alone (s); host part (s); GPU time on no SM (s); SM time at the top clock (s); clock reached, and
bandwidth, L2 and SM use, as fractions; power above idle (W)."""
_READ = ["time_s", "sm_util_pct", "dram_util_pct", "l2_util_pct", "power_w", "sm_mhz_reached"]

_Key = tuple[str, str, str, str]


class Parts:
    """Parts of every workload's iteration on every GPU that reference rows cover.

    SM utilisation times the time is what the SMs take; what is left of the iteration the host hides or memory and
    latencies take. The two are told apart by how the time grows with the inference batch size b: a host part does
    not, so for each GPU and model `time = (host^n + (m0 + m1 b + busy time)^n)^(1/n)` is fitted to its sizes.

    Args:
        profiles: a table of the profile schema; only its reference rows are read.
    """

    def __init__(self, profiles: pd.DataFrame) -> None:
        alone = profiles[is_reference(profiles)]
        idle_w = alone.groupby("gpu")["idle_w"].mean()
        keys = ["gpu", "workload", "precision", "engine"]
        self._curves: dict[_Key, tuple[FloatArray, FloatArray]] = {}
        for key, rows in alone.sort_values([*keys, "batch_size"]).groupby(keys):
            gpu, workload, precision, engine = map(str, key)
            rows = rows.drop_duplicates("batch_size")
            sizes = rows["batch_size"].to_numpy(float)
            columns = rows[_READ].to_numpy(float).T
            self._curves[gpu, workload, precision, engine] = (
                sizes,
                _parts(sizes, columns, float(idle_w[gpu]), find_gpu(gpu).max_mhz),
            )

    def of(self, gpu: str, workload: Workload) -> FloatArray:
        """Parts of one iteration alone at 100 %, shape (9,), columns as in `PARTS`.

        An inference batch size between two recorded ones is interpolated, logarithms against logarithms.

        Raises:
            InputError: the record does not cover the workload or the size.
        """
        curve = self._curves.get((gpu, workload.model, workload.precision, workload.engine))
        if curve is None or not curve[0][0] <= workload.batch_size <= curve[0][-1]:
            raise InputError(
                column="workload",
                found=f"{workload} on {gpu}, which the profiles do not cover",
                expected="a workload and an inference batch size among the reference rows",
                action=f"Record {workload} alone at 100 % and the top clock with `heshare profile`.",
            )
        sizes, values = curve
        at = np.log(workload.batch_size)
        logs = np.log(values)
        found: FloatArray = np.exp(np.array([np.interp(at, np.log(sizes), column) for column in logs.T]))
        return found


def joined(host_s: FloatArray, gpu_s: FloatArray) -> FloatArray:
    """Time of an iteration (s) whose host part and GPU part (s, same shape) run at once."""
    longer = np.maximum(host_s, gpu_s)
    ratio = np.minimum(host_s, gpu_s) / longer
    together: FloatArray = longer * (1 + ratio**OVERLAP) ** (1 / OVERLAP)
    return together


def _parts(sizes: FloatArray, columns: FloatArray, idle_w: float, max_mhz: int) -> FloatArray:
    time_s, sm_pct, dram_pct, l2_pct, power_w, reached_mhz = columns
    busy, clock = np.clip(sm_pct / 100, 1e-4, 1), reached_mhz / max_mhz
    busy_s = busy * time_s

    def split(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        host, still, each = np.exp(logs)
        return np.full_like(time_s, host), still + each * sizes

    def gaps(logs: FloatArray) -> FloatArray:
        host, memory = split(logs)
        fitted = np.log(joined(host, memory + busy_s))
        # The second part decides what the times do not: a part that never shows.
        return np.concatenate([fitted - np.log(time_s), 0.01 * (logs - start)])

    start = np.log([0.5 * time_s[0], 0.1 * time_s[0], 0.1 * time_s[-1] / sizes[-1]])
    logs = least_squares(gaps, start + np.array([0.3, 0, 0]), start - 12, start + 3, rounds=40)
    host_s, memory_s = split(logs)
    dynamic_w = np.maximum(power_w - idle_w, 0.1)
    uses = [np.maximum(dram_pct, 1e-3) / 100, np.maximum(l2_pct, 1e-3) / 100]
    return np.column_stack([time_s, host_s, memory_s, busy_s * clock, clock, *uses, dynamic_w, busy])
