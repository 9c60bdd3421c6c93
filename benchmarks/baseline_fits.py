"""Two baselines for the device model, on its own rows: a roofline with shrunk offsets, and gradient boosting.

The roofline's time is a soft maximum of operations over the peak rate, bytes over the bandwidth and launches of
kernels, times the loads of all residents. A ridge regression of its error has exponents, classes (engine, precision,
kind), and offsets of programs, GPUs and networks. Its power is the idle power plus the room above it times a linear
form of loads and clock. Boosting has the same features and the program as numbers. Records weigh as in the pooled fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from heshare.devices.timing_effects import offsets
from heshare.lab.calibration.observations import LIMIT, Observation
from heshare.lab.calibration.pooled_fit import CORRELATION
from heshare.shared.arrays import BoolArray, FloatArray

CODES = ["precision", "engine", "kind", "program"]
RIDGE = tuple({"alpha": alpha} for alpha in (0.3, 3.0, 30.0))
TREES = tuple({"max_leaf_nodes": leaves, "max_iter": count} for leaves, count in ((4, 120), (8, 80), (31, 40)))
"""Settings of the baselines among which the training rows choose."""
RATE, BINS = 0.15, 64
"""Learning rate of boosting, and bins of a feature."""
FOLDS = 4
"""Parts of the laboratories; each is left out once to choose settings."""
WEAK = 3.0
"""Scale of the columns of exponents and classes; those of programs, GPUs and networks have 1 and shrink more."""


def features(row: Observation) -> dict[str, float | str]:
    """Return the features of a row: those of its first resident, and sums over all of them."""
    gpu, clock = row.gpu, 1.0 if np.isnan(row.sm_mhz) else row.sm_mhz / row.gpu.max_mhz
    sums = np.zeros(6)
    for task in reversed(row.tasks):
        log_s, net = offsets(row.cell(task)), task.network
        work_s = np.exp(log_s["work"]) * task.batch_size / clock
        memory_s = np.exp(log_s["memory"]) * task.batch_size
        launch_s = np.exp(log_s["host" if row.engine == "eager" else "latency"])
        time_s = np.linalg.norm([work_s / task.share, memory_s, launch_s])  # a soft maximum
        load = np.hypot(work_s, memory_s) / time_s
        sums += [load, work_s / time_s, task.share, net.gflops * task.batch_size, net.activations_m * task.batch_size,
                 net.kernels]  # fmt: skip

    first = row.tasks[0]
    peak = gpu.peak_tflops(row.precision)
    logs = {
        "work": work_s / first.share, "memory": memory_s, "launch": launch_s, "time": time_s, "batch": first.batch_size,
        "share": first.share, "clock": clock, "residents": len(row.tasks), "crowd": np.hypot(1.0, sums[0]),
        "peak": peak,
        "bandwidth": gpu.mem_bw_gbs, "operations": net.gflops * first.batch_size, "outputs": net.activations_m,
        "kernels": net.kernels, "all operations": sums[3], "all outputs": sums[4], "all kernels": sums[5],
    }  # fmt: skip
    plain = {"load": sums[0], "work load": sums[1], "all shares": sums[2], "clock mhz": clock * gpu.max_mhz,
             "idle": gpu.idle_w, "tdp": gpu.tdp_w}  # fmt: skip
    names = {"precision": row.precision, "engine": row.engine, "kind": net.group, "program": row.program,
             "gpu": gpu.name, "network": net.name}  # fmt: skip
    return {name: float(np.log(value)) for name, value in logs.items()} | plain | names


@dataclass
class Baselines:
    """Both baselines over n rows, with the predictions of every fit so far."""

    rows: Sequence[Observation]
    _found: dict[tuple[object, ...], FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = pd.DataFrame([features(row) for row in self.rows])
        self.laboratories = np.array([row.laboratory for row in self.rows])
        self.records = np.unique([row.record for row in self.rows], return_inverse=True)[1]
        times_s = [np.nan if row.kind == LIMIT else row.time_s for row in self.rows]  # those are ratios
        self.measured = np.log([times_s, [row.power_w for row in self.rows]])
        log, classes = self.table, pd.get_dummies(self.table[["precision", "engine", "kind"]])
        own = pd.get_dummies(self.table[["program", "gpu", "network"]]).to_numpy(float)

        exponents = log[["batch", "share", "clock", "residents", "crowd", "peak", "bandwidth"]]
        parts = log[["work", "memory", "launch"]].sub(log["time"], axis=0)
        busy, clock = np.minimum(log[["load", "work load", "all shares"]], 1.0), np.exp(log[["clock"]].to_numpy())
        form = np.hstack([busy, clock, busy * clock, busy * clock**3, parts, log[["residents"]]])
        self._design = [np.hstack([WEAK * np.hstack([each, classes]), own]).astype(float)
                        for each in (np.hstack([exponents, parts]), form)]  # fmt: skip
        coded = log[CODES].apply(lambda names: names.astype("category").cat.codes)
        self._trees = log.drop(columns=["gpu", "network", *CODES]).join(coded)

    def weights(self, quantity: int, used: BoolArray) -> FloatArray:
        """Return the weight of each row: a record of n rows counts as n / (1 + 0.02 (n - 1))."""
        known = used & ~np.isnan(self.measured[quantity])
        size = np.bincount(self.records, known)[self.records]
        found: FloatArray = known / (1.0 + CORRELATION * np.maximum(size - 1.0, 0.0))
        return found

    def fitted(self, settings: Mapping[str, float], quantity: int, train: BoolArray) -> FloatArray:
        """Return the logarithms that a baseline with these settings, trained on `train`, predicts of all rows."""
        key = (*settings.items(), quantity, train.tobytes())
        if key not in self._found:
            fit = self._ridge if "alpha" in settings else self._boosting
            self._found[key] = fit(settings, quantity, self.weights(quantity, train))
        return self._found[key]

    def _ridge(self, settings: Mapping[str, float], quantity: int, weights: FloatArray) -> FloatArray:
        # Log time over the roofline's; or power above idle over the room for it, weighted by relative errors.
        base, design, known = self.table["time"] + self.table["crowd"], self._design[quantity], weights > 0.0
        idle_w, room_w = self.table["idle"], self.table["tdp"] - self.table["idle"]
        with np.errstate(over="ignore"):
            power_w = np.exp(self.measured[1])
        target = self.measured[0] - base if quantity == 0 else (power_w - idle_w) / room_w
        scaled = weights if quantity == 0 else weights * (room_w / power_w) ** 2
        fit = Ridge(**settings).fit(design[known], target[known], scaled[known])
        found = fit.predict(design)
        logs = base + found if quantity == 0 else np.log(idle_w + room_w * np.maximum(found, 0.02))
        return np.asarray(logs, dtype=np.float64)

    def _boosting(self, settings: Mapping[str, float], quantity: int, weights: FloatArray) -> FloatArray:
        known, coded = weights > 0.0, self._trees.columns.isin(CODES)
        trees = HistGradientBoostingRegressor(
            **settings, learning_rate=RATE, max_bins=BINS, early_stopping=False, categorical_features=coded
        )
        trees.fit(self._trees[known], self.measured[quantity][known], weights[known])
        return np.asarray(trees.predict(self._trees), dtype=np.float64)

    def choose(self, grid: Sequence[Mapping[str, float]], quantity: int, train: BoolArray) -> Mapping[str, float]:
        """Return the settings with the least error in cross-validation over the laboratories of the training rows."""
        weights = self.weights(quantity, train)
        names = np.unique(self.laboratories[weights > 0.0])
        parts = [names[place::FOLDS] for place in range(min(FOLDS, len(names)))] if len(names) > 1 else []

        def cost(settings: Mapping[str, float]) -> float:
            total = 0.0
            for part in parts:
                left_out = np.isin(self.laboratories, part)
                errors = self.fitted(settings, quantity, train & ~left_out) - self.measured[quantity]
                own = left_out & (weights > 0.0)
                total += float(weights[own] @ np.abs(errors[own]))
            return total

        return min(grid, key=cost)
