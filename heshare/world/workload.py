"""Workloads (Table IV): a model, an inference batch size, a precision; and how a shared one is written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from heshare.errors import InputError

PRECISIONS = ("fp32", "tf32", "fp16")
ENGINES = ("eager", "tensorrt")
_RESIDENT = re.compile(r"^(?P<model>[a-z0-9_]+)(:(?P<batch>\d+))?(@(?P<pct>\d+))?$")


@dataclass(frozen=True, slots=True)
class Model:
    """One neural network of Table IV, as `data/workloads.csv` describes it.

    Attributes:
        name: the name used everywhere, such as `resnet50`.
        title: the paper's name, such as `ResNet-50`.
        description: Table IV's description.
        load: `low`, `medium` or `high`, the load class of Section V-B.
        layers: operators that eager execution launches one by one, as a count of layers.
        gflops: floating-point operations of one sample's forward pass, GFLOP.
        params_m: parameters, millions.
        activations_m: elements of all layer outputs for one sample, millions.
        memory_fixed_mib: device memory of a process that serves it, without samples (context, weights), MiB.
        memory_per_sample_mib: further device memory for each sample of an inference batch, MiB.
    """

    name: str
    title: str
    description: str
    load: str
    layers: int
    gflops: float
    params_m: float
    activations_m: float
    memory_fixed_mib: float
    memory_per_sample_mib: float


@dataclass(frozen=True, slots=True, order=True)
class Workload:
    """A model with an inference batch size, written `resnet50:16`.

    Attributes:
        model: a name of Table IV.
        batch_size: inference batch size, samples per iteration.
        precision: `fp32` (what PyTorch did by default: TF32 on Ampere and later), `tf32` or `fp16`.
        engine: `eager` (PyTorch, host-bound when layers are small) or `tensorrt` (no host floor).
    """

    model: str
    batch_size: int
    precision: str = "fp32"
    engine: str = "eager"

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(
                column="batch_size",
                found=f"an inference batch size of {self.batch_size} for {self.model}",
                expected="a whole number of at least 1",
                action="Correct the batch size.",
            )
        for value, known, column in (
            (self.precision, PRECISIONS, "precision"),
            (self.engine, ENGINES, "engine"),
        ):
            if value not in known:
                raise InputError(
                    column=column, found=repr(value), expected=" or ".join(known), action=f"Choose one {column}."
                )

    def __str__(self) -> str:
        return f"{self.model}:{self.batch_size}"


@dataclass(frozen=True, slots=True, order=True)
class Resident:
    """A workload that runs on a GPU under an MPS percentage, written `resnet50:16@50`.

    Attributes:
        workload: what runs.
        mps_pct: its limit on the GPU's SMs (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), 1 to 100.
    """

    workload: Workload
    mps_pct: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.mps_pct <= 100:
            raise InputError(
                column="mps_pct",
                found=f"{self.mps_pct} % for {self.workload}",
                expected="an MPS percentage from 1 to 100",
                action="Correct the share.",
            )

    def __str__(self) -> str:
        return f"{self.workload}@{self.mps_pct}"


def parse_resident(text: str, /, *, precision: str = "fp32", engine: str = "eager") -> Resident:
    """Read `model[:batch_size][@mps_pct]`, such as `resnet50:16@50`; a missing part is 1 or 100.

    Raises:
        InputError: the text has another form. Whether the model exists is asked of the catalogue.
    """
    match = _RESIDENT.match(text.strip())
    if match is None:
        raise InputError(
            found=repr(text),
            expected="model:batch_size@mps_pct, such as resnet50:16@50",
            action="Write the workload in that form.",
        )
    workload = Workload(match["model"], int(match["batch"] or 1), precision, engine)
    return Resident(workload, int(match["pct"] or 100))
