"""The measured figures of `data/calibration/`, and which of them anchor which constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heshare import files
from heshare.world import catalogue

FloatArray = NDArray[np.float64]

MPS = "TensorRT 8.0"
"""iGniter: V100-SXM2, FP32, MPS percentages."""
FUSED = "Paddle Inference with TensorRT"
"""PaddleClas: T4 and V100, FP32 and FP16."""
EAGER = "PyTorch 21.11"
"""ParvaGPU: A100, TF32; throughputs."""

MODELS_MPS = ("alexnet", "resnet50", "ssd", "vgg19")
MODELS_EAGER = (
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
IMAGE_MODELS = tuple(name for name, model in catalogue.models().items() if model.load != "high")


@dataclass(frozen=True)
class Rows:
    """Measured iterations of one workload alone on one GPU, n of them.

    Attributes:
        batch: inference batch sizes, shape (n,).
        share: shares of the SMs, 0 to 1, shape (n,).
        time_s: seconds per iteration, shape (n,).
        sm_mhz: locked clocks, NaN where the card was left to itself, MHz, shape (n,).
    """

    batch: FloatArray
    share: FloatArray
    time_s: FloatArray
    sm_mhz: FloatArray

    def __len__(self) -> int:
        return len(self.batch)

    def where(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows that `mask` keeps."""
        return Rows(self.batch[mask], self.share[mask], self.time_s[mask], self.sm_mhz[mask])


@cache
def table(name: str) -> pd.DataFrame:
    """A table of `data/calibration/`, such as `times`."""
    return pd.read_csv(files.data("calibration", f"{name}.csv"))


def records(frame: pd.DataFrame) -> list[Any]:
    """The rows of a table as named tuples."""
    return list(frame.itertuples())


def rows(
    gpu: str, workload: str, framework: str, *, precision: str = "fp32", processes: int = 1, engine: str | None = None
) -> Rows:
    """The rows of `times.csv` for one workload, GPU and framework, by inference batch size and share."""
    times = table("times")
    keep = (
        (times.gpu == gpu)
        & (times.workload == workload)
        & (times.framework == framework)
        & (times.precision == precision)
        & (times.processes == processes)
    )
    if engine is not None:
        keep &= times.engine == engine
    found = times[keep].sort_values(["batch_size", "mps_pct", "sm_mhz"], kind="stable")
    return Rows(
        found.batch_size.to_numpy(float),
        found.mps_pct.to_numpy(float) / 100.0,
        found.time_s.to_numpy(float),
        found.sm_mhz.to_numpy(float),
    )


@cache
def traffic() -> dict[str, tuple[float, float]]:
    """{workload: (fused, unfused)}: memory traffic of a sample, MB, with and without fused operators."""
    found = table("traffic")
    return {row.workload: (float(row.fused_mb), float(row.unfused_mb)) for row in records(found)}
