"""Workloads (Table IV): a model, an inference batch size and a precision; residents: workloads that share a GPU."""

import re
from dataclasses import dataclass
from numbers import Integral

from heshare.shared.errors import InputError
from heshare.shared.inputs.bounds import MOST_BATCH, parse_whole
from heshare.world.language_model import LanguageModel

PRECISIONS = ("mixed", "fp32", "tf32", "fp16")
"""What a framework is set to, the default first: TF32 for convolutions alone, FP32 alone, TF32 for convolutions and
matrix products, FP16. GPUs without TF32 run `mixed` and `tf32` in FP32 (`Gpu.arithmetic`)."""
DEFAULT_PRECISION = PRECISIONS[0]
"""The default of PyTorch since version 1.12."""
ENGINES = ("eager", "tensorrt")
PHASES = ("inference", "training")
MEASURED = "measured"
"""The phase of a workload that is known by what was measured of it alone (`heshare.lab.advice`), in no task set."""
KINDS = ("cnn", "transformer", "decode")
"""Kinds of network: convolutions on images, whole sequences, one output position at a time."""
LOADS = ("low", "medium", "high", "none")
"""Load classes of Section V-B; `none` for a network that is not in Table IV."""
SHARINGS = (
    "mps",
    "time-slice",
    *(f"mig-{slices}g" for slices in (1, 2, 3, 4, 7)),
    *(f"priority-{level}" for level in range(10)),
)
"""Ways of sharing a GPU: under MPS, by the hardware's time slices, in a MIG instance of so many slices, or kernel by
kernel in the gaps of the processes with a lower priority number (FIKIT)."""
_RESIDENT = re.compile(
    r"^(?P<model>[a-z0-9_]+)(?P<phase>-train)?(:(?P<batch>[0-9]+))?(@((?P<pct>[0-9]+)|(?P<sharing>[a-z]+-\w+)))?$"
)


@dataclass(frozen=True, slots=True)
class Model:
    """One neural network, of Table IV or not, as `data/workloads.csv` describes it.

    Attributes:
        name: its name, such as `resnet50`.
        title: the paper's name, such as `ResNet-50`.
        description: Table IV's description.
        load: `low`, `medium` or `high`, the load class of Section V-B; `none` for a network that is not in Table IV,
            which no drawn task set holds.
        kind: one of `KINDS`, or `prefill` (prompts of a language model).
        layers: number of layers, whose operators eager execution launches one by one.
        gflops: floating-point operations of one sample's forward pass, GFLOP.
        params_m: parameters, millions.
        activations_m: elements of all layer outputs for one sample, millions.
        memory_fixed_mib: device memory of a process that runs it, without samples (context, weights), MiB.
        memory_per_sample_mib: device memory for each sample of an inference batch, MiB; of a language model in FP16.
        language: shape of a language model, from which the sizes follow; None for other networks.
    """

    name: str
    title: str
    description: str
    load: str
    kind: str
    layers: int
    gflops: float
    params_m: float
    activations_m: float
    memory_fixed_mib: float
    memory_per_sample_mib: float
    language: LanguageModel | None = None


@dataclass(frozen=True, slots=True, order=True)
class Workload:
    """A model with an inference batch size, written `resnet50:16`; its training is written `resnet50-train:64`.

    Attributes:
        model: a name of `hs.models()`, or of the training workloads.
        batch_size: inference batch size, samples per iteration; in training, samples per step on one GPU.
        precision: one of `PRECISIONS`.
        engine: `eager` (PyTorch, host-bound when layers are small) or `tensorrt` (no host floor).
        phase: `inference`, `training` or `measured`.

    Example:
        >>> from heshare import Workload
        >>> str(Workload("resnet50", 16))
        'resnet50:16'
    """

    model: str
    batch_size: int
    precision: str = DEFAULT_PRECISION
    engine: str = "eager"
    phase: str = "inference"

    def __post_init__(self) -> None:
        # Built often: the text of an error only where there is one.
        if not isinstance(self.model, str):
            raise InputError(repr(self.model), "the name of a model", "Write Workload('resnet50', 8).", column="model")
        size = self.batch_size
        if (
            type(size) is not int and (not isinstance(size, Integral) or isinstance(size, bool))
        ) or not 1 <= size <= MOST_BATCH:
            raise InputError(
                f"an inference batch size of {size!r} for {self.model}",
                f"a whole number of at least 1 and at most {MOST_BATCH}",
                "Correct the batch size.",
                column="batch_size",
            )
        for column, value, names in (
            ("precision", self.precision, PRECISIONS),
            ("engine", self.engine, ENGINES),
            ("phase", self.phase, (*PHASES, MEASURED)),
        ):
            if value not in names:
                raise InputError(repr(value), " or ".join(names), f"Choose one {column}.", column=column)

    def __hash__(self) -> int:
        return hash((self.model, self.batch_size))

    def __str__(self) -> str:
        return f"{self.model}{'-train' * (self.phase == 'training')}:{self.batch_size}"


@dataclass(frozen=True, slots=True, order=True)
class Resident:
    """A workload that runs on a GPU under an MPS percentage, written `resnet50:16@50`.

    Attributes:
        workload: the workload.
        mps_pct: its limit on the GPU's SMs (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), 1 to 100; 100 unless it shares by MPS.
        sharing: its way of sharing, one of `SHARINGS`; at any moment all residents of a GPU share in the same way (time
            slices or MPS), or each has its own MIG instance.
    """

    workload: Workload
    mps_pct: int = 100
    sharing: str = "mps"

    def __post_init__(self) -> None:
        if not 1 <= self.mps_pct <= 100:
            raise InputError(
                f"{self.mps_pct} % for {self.workload}",
                "an MPS percentage from 1 to 100",
                "Correct the share.",
                column="mps_pct",
            )
        if self.sharing not in SHARINGS:
            raise InputError(repr(self.sharing), " or ".join(SHARINGS), "Choose one way to share.", column="sharing")

    def __hash__(self) -> int:
        return hash((self.workload.model, self.workload.batch_size, self.mps_pct))

    def __str__(self) -> str:
        return f"{self.workload}@{self.mps_pct if self.sharing == 'mps' else self.sharing}"


def parse_resident(text: str, /, *, precision: str = DEFAULT_PRECISION, engine: str = "eager") -> Resident:
    """Return the resident of `model[-train][:batch_size][@mps_pct]`, such as `resnet50:16@50`, or an `InputError`.

    A missing part is 1 or 100. Another way of sharing replaces the percentage: `resnet50:16@time-slice`,
    `resnet50:16@mig-3g`. The model is not looked up in the catalogue.
    """
    match = _RESIDENT.match(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            repr(text), "model:batch_size@mps_pct, such as resnet50:16@50", "Write the workload in that form."
        )
    phase = PHASES[match["phase"] is not None]
    batch_size = parse_whole(match["batch"] or "1", "batch_size", least=1, most=MOST_BATCH)
    workload = Workload(match["model"], batch_size, precision, engine, phase)
    mps_pct = parse_whole(match["pct"] or "100", "mps_pct", least=0, most=MOST_BATCH)
    return Resident(workload, mps_pct, match["sharing"] or "mps")
