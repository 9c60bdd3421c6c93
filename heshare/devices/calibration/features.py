"""What the features of a workload alone say of its time: the error to expect of a model that nobody measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heshare.devices.calibration.data import EAGER, FUSED, IMAGE_MODELS, FloatArray, Rows, rows, traffic
from heshare.world import catalogue

_RIDGE = 0.3
_RECORDS = (("T4", FUSED, 0), ("V100", FUSED, 0), ("A100", EAGER, 1))

Answer = tuple[str, str, Rows, FloatArray]
"""(gpu, workload, measured rows, modelled times in s)."""


def features(workload: str, column: int) -> FloatArray:
    """Logarithms of FLOPs, memory traffic (column 0: fused, 1: unfused operators) and layers, shape (3,)."""
    known = catalogue.model(workload)
    return np.asarray(np.log([known.gflops, traffic()[workload][column], known.layers]), dtype=np.float64)


def _predict(seen: FloatArray, logs: FloatArray, asked: FloatArray) -> float:
    """Ridge regression of log times, shape (n,), on features, shape (n, 3); the answer for features of shape (3,)."""
    centre = seen.mean(axis=0)
    scaled = seen - centre
    slopes = np.linalg.solve(scaled.T @ scaled + _RIDGE * np.eye(3), scaled.T @ (logs - logs.mean()))
    return float(np.exp(logs.mean() + (asked - centre) @ slopes))


def left_out() -> Iterator[Answer]:
    """Times of each image workload from the features and times of the others, GPU by GPU."""
    for gpu, framework, column in _RECORDS:
        measured = {name: rows(gpu, name, framework) for name in IMAGE_MODELS}
        measured = {name: found for name, found in measured.items() if len(found)}
        for name, found in measured.items():
            answers = []
            for batch in found.batch:
                others = [
                    (features(other, column), float(np.log(known.time_s[known.batch == batch][0])))
                    for other, known in measured.items()
                    if other != name and batch in known.batch
                ]
                seen, logs = (np.array(part) for part in zip(*others, strict=True))
                answers.append(_predict(seen, logs, features(name, column)))
            yield gpu, name, found, np.array(answers)
