"""Tables of other frameworks for workloads whose times were fitted: they enter no fit of times and test its intervals.

From them come the spread between frameworks, by kind of network, and that of the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.devices.iteration_time import iteration_of, overlap_arrays
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration.measurements import EAGER_RECORD, records, table
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.world import catalogue
from heshare.world.workload import KINDS, Resident, Workload

PARAMETERS = (*KINDS, "tensor", "host")
"""Fields of `Spreads` that these tables determine."""
_CARDS = {"A100 40 GB": "A100"}
_UNFITTED = ("MXNet", "MXNet 1.2", "TensorFlow 1", "PyTorch, slower host")
_FITTED = ("TensorFlow 2",)
_TABLE = ["framework", "gpu", "engine", "precision", "kind"]
_GRID = tuple(round(0.02 * step, 2) for step in range(61))
_START, _ROUNDS, _INSIDE = 0.3, 6, 0.9
_SMALLEST = 1e-4


@dataclass(frozen=True)
class FrameworkErrors:
    """Errors of the model on n rows of other frameworks' tables.

    Attributes:
        residents: what ran, n.
        framework: framework of each row, (n,).
        gpu: GPU of each row, (n,).
        table: number of each row's table (framework, GPU, engine, precision, kind of network), (n,).
        measured: seconds per iteration, (n,).
        modelled: seconds per iteration, (n,).
        known: relative standard uncertainty without framework and host, (n,).
        kind: 1 where the row is of that kind, (3, n).
        tensor: 1 where tensor cores compute, (n,).
        host: effect of each host spread of the grid on the logarithm of the time, (61, n).
    """

    residents: Sequence[Resident]
    framework: Sequence[str]
    gpu: Sequence[str]
    table: IntArray
    measured: FloatArray
    modelled: FloatArray
    known: FloatArray
    kind: FloatArray
    tensor: FloatArray
    host: FloatArray

    def uncertainty(self, spreads: Mapping[str, float]) -> FloatArray:
        """Return the relative standard uncertainty of each row, (n,), with these spreads by name."""
        host = self.host[round(spreads["host"] / _GRID[1])]
        framework = sum(spreads[name] ** 2 * row for name, row in zip(KINDS, self.kind, strict=True))
        return np.asarray(np.sqrt(self.known**2 + framework + spreads["tensor"] ** 2 * self.tensor + host**2))


@cache
def framework_rows() -> pd.DataFrame:
    """Return the rows that enter no fit of times: gpu, workload, engine, framework, precision, batch_size, time_s."""
    times = table("times")
    times = times[(times.processes == 1) & times.sm_mhz.isna()]
    unfitted = times.framework.isin(_UNFITTED)
    # The eager record fits image models only; PyTorch on T4 and V100 at sizes whose host time does not show.
    unfitted |= (times.framework == EAGER_RECORD) & (times.workload == "bert_large")
    unfitted |= (times.framework == "PyTorch") & (times.precision == "fp32") & (times.batch_size < 16)
    frameworks = table("frameworks")
    rows = pd.concat([times[unfitted], frameworks[~frameworks.framework.isin(_FITTED)]], ignore_index=True)
    rows = rows.assign(gpu=rows.gpu.replace(_CARDS))
    known = rows.gpu.isin(list(catalogue.gpus())) & rows.workload.isin(list(catalogue.models()))
    return rows[known].reset_index(drop=True)


def framework_errors(constants: Constants) -> FrameworkErrors:
    """Return the errors of the model on `framework_rows`; `constants` need no spreads between frameworks."""
    rows = framework_rows()
    residents = [
        Resident(Workload(row.workload, int(row.batch_size), row.precision, row.engine)) for row in records(rows)
    ]
    stated = [
        co_run(catalogue.gpu(gpu), [resident], constants=constants).tasks[0]
        for gpu, resident in zip(rows.gpu, residents, strict=True)
    ]
    parts = [iteration_of(constants, gpu, resident) for gpu, resident in zip(rows.gpu, residents, strict=True)]
    hosts = np.maximum([part.host_s for part in parts], 1e-12)
    gpus = np.array([part.gpu_s(1.0, 1.0) for part in parts])
    alone = overlap_arrays(hosts, gpus)
    effects = [np.log(overlap_arrays(hosts * math.exp(spread), gpus) / alone) for spread in _GRID]
    kinds = [catalogue.kind(str(name)) for name in rows.workload]
    tensor = [row.precision == "fp16" or catalogue.gpu(row.gpu).has_tf32 for row in records(rows)]
    return FrameworkErrors(
        residents,
        rows.framework.tolist(),
        rows.gpu.tolist(),
        np.asarray(rows.assign(kind=kinds).groupby(_TABLE).ngroup(), dtype=np.int64),
        rows.time_s.to_numpy(float),
        np.array([task.time_s for task in stated]),
        np.array([math.hypot(task.uncertainty_parts.fit, task.uncertainty_parts.transfer) for task in stated]),
        np.array([[kind == name for kind in kinds] for name in KINDS], dtype=np.float64),
        np.array(tensor, dtype=np.float64),
        np.array(effects),
    )


def fit_framework_spreads(errors: FrameworkErrors, used: BoolArray) -> dict[str, float]:
    """Return the spreads with which the 90 % intervals hold for nine in ten of the rows `used`, (n,).

    They minimise the quantile loss of ln |error| over the half-width of the interval; a table counts as the root of
    its rows, since these are not independent.
    """
    _, index, counts = np.unique(errors.table, return_inverse=True, return_counts=True)
    weights = used / np.sqrt(counts[index])
    deviations = np.log(np.maximum(np.abs(np.log(errors.modelled / errors.measured)), _SMALLEST))

    def loss(spreads: Mapping[str, float]) -> float:
        beyond = deviations - np.log(NORMAL_90 * np.maximum(errors.uncertainty(spreads), _SMALLEST))
        return float(weights @ np.where(beyond > 0, _INSIDE * beyond, (_INSIDE - 1.0) * beyond))

    spreads = dict.fromkeys(PARAMETERS, _START)
    for _ in range(_ROUNDS):
        for name in PARAMETERS:
            spreads[name] = min((loss({**spreads, name: value}), value) for value in _GRID)[1]
    return spreads


def left_out_framework_spreads(errors: FrameworkErrors) -> dict[str, dict[str, float]]:
    """Return, by framework, the spreads that all other frameworks' tables give."""
    names = np.array(errors.framework)
    return {name: fit_framework_spreads(errors, names != name) for name in sorted(set(errors.framework))}
