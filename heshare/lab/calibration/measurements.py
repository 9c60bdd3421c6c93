"""The public measurements of `data/calibration/`: times, power, clocks, pairs, kernels and memory traffic."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from heshare.shared import files
from heshare.shared.arrays import BoolArray, FloatArray
from heshare.world import catalogue

MPS_RECORD = "TensorRT 8.0"
"""Framework of iGniter: V100-SXM2, FP32, MPS percentages."""
FUSED_RECORD = "Paddle Inference with TensorRT"
"""Framework of PaddleClas: T4 and V100, FP32 and FP16."""
FUSED_DECODER = "FasterTransformer decoder, beam 4"
"""Framework of the Transformer with fused kernels: T4, V100 and A100, FP32 (TF32) and FP16."""
EAGER_RECORD = "PyTorch 21.11"
"""Framework of ParvaGPU: A100, TF32; throughputs."""

MPS_MODELS = ("alexnet", "resnet50", "ssd", "vgg19")
EAGER_MODELS = (
    "resnet50",
    "resnet101",
    "resnet152",
    "densenet121",
    "densenet201",
    "vgg16",
    "vgg19",
    "mobilenetv2",
    "densenet169",
    "inceptionv3",
)


@dataclass(frozen=True)
class TimeRows:
    """Measured iterations of one workload alone on one GPU, n of them.

    Attributes:
        batch: inference batch sizes, shape (n,).
        share: shares of the SMs, 0 to 1, shape (n,).
        time_s: seconds per iteration, shape (n,).
        sm_mhz: locked clocks, MHz, NaN where no clock was set, shape (n,).
    """

    batch: FloatArray
    share: FloatArray
    time_s: FloatArray
    sm_mhz: FloatArray

    def __len__(self) -> int:
        return len(self.batch)

    def where(self, mask: BoolArray) -> "TimeRows":
        return TimeRows(self.batch[mask], self.share[mask], self.time_s[mask], self.sm_mhz[mask])


_left_out: list[str] = []
_WHOLE = ("kernels", "traffic", "records")
"""Tables that no record is left out of: what networks are, and names of records."""


@cache
def table(name: str) -> pd.DataFrame:
    """Return a table of `data/calibration/` without the records that are left out (`without`)."""
    rows = as_default(pd.read_csv(files.data("calibration", f"{name}.csv")))
    for record in _left_out if name not in _WHOLE else ():
        rows = rows[~rows.source.str.startswith(record)]
    return rows


def rows_of(record: str, name: str) -> pd.DataFrame:
    """Return the rows of a table whose `source` starts with `record`, whether it is left out or not."""
    rows = as_default(pd.read_csv(files.data("calibration", f"{name}.csv")))
    return rows[rows.source.str.startswith(record)]


def as_default(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with `fp32` for `tf32` and `mixed`, of which only cards with TF32 have any.

    Tables and profiles say in which precision a row ran. These fits treat `fp32` as what frameworks do by default.
    """
    if "precision" not in rows:
        return rows
    return rows.assign(precision=rows.precision.replace(["tf32", "mixed"], "fp32"))


@contextmanager
def without(record: str) -> Iterator[None]:
    """Leave a record out of every table: the rows whose `source` starts with `record`, such as `icloud-ecnu/igniter`.

    What the modules of the fits keep is forgotten at both ends, so that nothing is fitted to other rows than it says.
    """
    _left_out.append(record)
    _forget()
    try:
        yield
    finally:
        _left_out.pop()
        _forget()


def _forget() -> None:
    for name, module in tuple(sys.modules.items()):
        if name.startswith(__package__):
            for kept in tuple(vars(module).values()):
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()


def records(frame: pd.DataFrame) -> list[Any]:
    return list(frame.itertuples())


def time_rows(gpu: str, workload: str, framework: str, *, precision: str = "fp32", processes: int = 1) -> TimeRows:
    """Return the rows of `times.csv` for one workload, GPU and framework, by inference batch size and share."""
    times = table("times")
    chosen = times[
        (times.gpu == gpu)
        & (times.workload == workload)
        & (times.framework == framework)
        & (times.precision == precision)
        & (times.processes == processes)
    ].sort_values(["batch_size", "mps_pct", "sm_mhz"], kind="stable")
    return TimeRows(
        chosen.batch_size.to_numpy(float),
        chosen.mps_pct.to_numpy(float) / 100.0,
        chosen.time_s.to_numpy(float),
        chosen.sm_mhz.to_numpy(float),
    )


IMAGE_MODELS = tuple(
    name
    for name, model in catalogue.models().items()
    if model.kind == "cnn" and len(time_rows("T4", name, FUSED_RECORD)) and len(time_rows("V100", name, FUSED_RECORD))
)
"""The convolutional networks of Table IV, which the record of TensorRT holds; further ones follow by their features."""


@cache
def traffic() -> dict[str, tuple[float, float]]:
    """Return {workload: (fused, unfused)}: memory traffic of a sample, MB, with and without fused operators."""
    return {row.workload: (float(row.fused_mb), float(row.unfused_mb)) for row in records(table("traffic"))}


@cache
def kernel_counts() -> dict[str, float]:
    return {row.workload: float(row.kernels) for row in records(table("kernels"))}
