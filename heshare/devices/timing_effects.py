"""Constants of the time and power of a network on a GPU: offsets from features, plus effects that are fitted.

A cell is a network run by a program on a GPU in an arithmetic. Each component of its `Timing` is

    log component = offset + sum of effects

The offset follows from features alone: operations over the peak rate, layer outputs over the bandwidth, kernels times a
usual time. An effect belongs to a component and to a key, such as the network, the GPU or the program, and multiplies
every cell with that key. Its prior is a normal distribution around 0 (`PRIORS`), so that an effect with few rows stays
small, and one without any is 0. So a GPU or network without rows gets the mean of the others.

`heshare.lab.calibration.pooled_fit` fits the effects to all records at once.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

from heshare.devices.uncertainty import CARD, CELL, NONE
from heshare.shared import files
from heshare.world.gpu import Gpu
from heshare.world.workload import Model

BITS = {"fp32": 32, "tf32": 19, "fp16": 16}
"""Bits of a number in each arithmetic of emulated GPUs."""
_TIMES = ("latency_s", "memory_s", "work_s", "fill_s", "host_s")
COMPONENTS = ("work", "memory", "fill", "latency", "host", "copy", "intensity")
Key = tuple[str, str, str, str]
"""(gpu, engine, workload, arithmetic) with the arithmetic `fp32`, `tf32` or `fp16`."""
Term = tuple[tuple[str, str, str], float]
"""(component, effect, key) and the factor on that effect."""

PRIORS: Mapping[str, Mapping[str, float]] = {
    "work": {
        "class": 1.0, "engine": 0.5, "peak": 0.3, "bandwidth": 0.3, "activations": 0.5, "size": 0.5, "network": 0.3,
        "network on tensor cores": 0.25, "chip": 0.15, "gpu": 0.1, "chip and precision": 0.15, "record": 0.2,
        "program": 0.2, "cell": 0.12,
    },
    "memory": {"class": 0.7, "network": 0.2, "record": 0.2},
    "fill": {"class": 0.7, "size": 0.3, "engine": 0.5, "network": 0.3, "gpu": 0.2, "record": 0.3},
    "latency": {"class": 0.7, "network": 0.25, "gpu": 0.2, "record": 0.3},
    "host": {"class": 0.7, "network": 0.25, "program": 0.4, "record": 0.25, "cell": 0.15},
    "copy": {"program": 1.0, "record": 0.3},
    "intensity": {
        "class": 0.3, "precision": 0.3, "activations": 0.3, "network": 0.2, "record": 0.1, "cell": 0.08,
    },
}  # fmt: skip
"""Standard deviation of each effect of each component, of the logarithm."""

MEMORY_PASSES = 2.4
"""Times that the bytes of all layer outputs pass the memory, in the offset of `memory`."""
FILL_S, FILL_MHZ = 4e-6, 1500.0
"""Time of a kernel that does not fill the SMs at a usual clock, s and MHz, in the offset of `fill`."""
LATENCY_S, LAUNCH_S, COPY_S = 2e-6, 50e-6, 5e-5
"""Latency of a kernel, launch of a kernel by the host, copy of a sample: in their offsets, s."""
REACHED = 0.5
"""Reached rate over the peak rate, in the offset of `work`."""
KERNELS_PER_LAYER = 1.57
"""Kernels of a network over its layers where they were not counted: the mean of those that were."""

_COPYING = "PctoDL"
"""The laboratory whose program copies each sample to the GPU inside the time."""


@dataclass(frozen=True, slots=True)
class Network:
    """Features of a network, for one sample.

    Attributes:
        name: its name.
        kind: `cnn` or `transformer`.
        group: networks that share the effect `class`: the kind, of trainings or of a benchmark by itself.
        gflops: operations, GFLOP.
        activations_m: elements of all layer outputs, millions.
        layers: layers.
        kernels: kernels that eager execution launches.
        known_size: whether operations and layer outputs are known, and not stand-ins.
    """

    name: str
    kind: str
    group: str
    gflops: float
    activations_m: float
    layers: float
    kernels: float
    known_size: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """A network run by a program on a GPU.

    Attributes:
        program: laboratory and program, `laboratory|program`; empty for one that no record has.
        gpu: the GPU.
        engine: `eager` or `tensorrt`.
        precision: the arithmetic, `fp32`, `tf32`, `fp16` or `int8`.
        network: the network.
        hosted: whether the program's own host counts; otherwise a median host launches the kernels.
    """

    program: str
    gpu: Gpu
    engine: str
    precision: str
    network: Network
    hosted: bool = True

    @property
    def record(self) -> str:
        """Return the key of the record: program, GPU and precision."""
        return f"{self.program}|{self.gpu.name}|{self.precision}"


def chip(gpu: Gpu) -> str:
    """Return the key that GPUs of one chip share: the architecture, and whether it is the large chip with MIG."""
    return gpu.architecture + ("-mig" if gpu.mig_slices else "")


def offsets(cell: Cell) -> dict[str, float]:
    """Return the logarithm of each component that follows from features alone; times in s."""
    network, gpu = cell.network, cell.gpu
    peak = gpu.peak_tflops(cell.precision)
    sample_bytes = 1e6 * network.activations_m * (2.0 if cell.precision in ("fp16", "int8") else 4.0)
    return {
        "work": math.log(network.gflops / (1e3 * peak * REACHED)),
        "memory": math.log(MEMORY_PASSES * sample_bytes / (1e9 * gpu.mem_bw_gbs)),
        "fill": math.log(network.kernels * FILL_S * FILL_MHZ / gpu.max_mhz),
        "latency": math.log(network.kernels * LATENCY_S),
        "host": math.log(network.kernels * LAUNCH_S),
        "copy": math.log(COPY_S),
        "intensity": 0.0,
    }


def terms(cell: Cell) -> Iterator[Term]:
    """Yield every effect on a cell: (component, effect, key), and the factor on it."""
    network, gpu, group = cell.network, cell.gpu, cell.network.group
    cores = "cuda" if _on_cuda_cores(cell) else "tensor"
    density = math.log(network.activations_m / network.gflops) if network.known_size else 0.0
    size = math.log(network.gflops / network.layers) + 1.0 if network.known_size else 0.0
    peak = math.log(gpu.peak_tflops(cell.precision) / 100.0)
    bandwidth = math.log(gpu.mem_bw_gbs / 1000.0)

    yield ("work", "class", f"{cores}|{group}"), 1.0
    yield ("work", "engine", f"{cores}|{cell.engine if network.known_size else group}"), 1.0
    yield ("work", "peak", cores), peak
    yield ("work", "bandwidth", cores), -bandwidth
    yield ("work", "activations", cores), density
    yield ("work", "size", cores), size
    yield ("work", "network", network.name), 1.0
    yield ("work", "network on tensor cores", f"{network.name}|{cores}"), 1.0
    yield ("work", "chip", chip(gpu)), 1.0
    yield ("work", "gpu", gpu.name), 1.0
    yield ("work", "chip and precision", f"{chip(gpu)}|{cell.precision}"), 1.0
    yield ("memory", "class", f"{cell.engine}|{group}"), 1.0
    yield ("memory", "network", network.name), 1.0
    yield ("fill", "class", f"{group}|{cell.engine}"), 1.0
    yield ("fill", "size", "all"), size
    yield ("fill", "engine", cores), 1.0
    yield ("fill", "network", network.name), 1.0
    yield ("fill", "gpu", gpu.name), 1.0
    yield ("latency", "class", f"{group}|{cell.engine}"), 1.0
    yield ("latency", "network", network.name), 1.0
    yield ("latency", "gpu", gpu.name), 1.0
    yield ("host", "class", group), 1.0
    yield ("host", "network", network.name), 1.0
    yield ("intensity", "class", f"{cores}|{network.kind}"), 1.0
    yield ("intensity", "precision", cell.precision), 1.0
    yield ("intensity", "activations", cores), density
    yield ("intensity", "network", network.name), 1.0

    if cell.program:
        yield from _of_program(cell, cores)


def _of_program(cell: Cell, cores: str) -> Iterator[Term]:
    # What belongs to a program, to one of its records, and to one network of that.
    own = f"{cell.record}|{cell.network.name}"
    yield ("work", "program", f"{cell.program}|{cores}"), 1.0
    for component in ("work", "memory", "fill", "latency", "intensity"):
        yield (component, "record", cell.record), 1.0
    for component in ("work", "intensity"):
        yield (component, "cell", own), 1.0
    if cell.hosted:
        yield ("host", "program", cell.program), 1.0
        yield ("host", "record", cell.record), 1.0
        yield ("host", "cell", own), 1.0
    if copies(cell):
        yield ("copy", "program", cell.program), 1.0
        yield ("copy", "record", cell.record), 1.0


def copies(cell: Cell) -> bool:
    """Return whether the program copies each sample to the GPU inside the time of an iteration."""
    return cell.program.startswith(_COPYING)


def _on_cuda_cores(cell: Cell) -> bool:
    return cell.precision == "fp32"


@dataclass(frozen=True, slots=True)
class Timing:
    """Constants of an iteration of one workload on one GPU, at the top clock and with all SMs.

    Attributes:
        latency_s: time that neither inference batch size, share nor clock changes, s.
        memory_s: time per sample that waits for memory, s.
        work_s: time of the SMs per sample, s.
        fill_s: time of a batch too small to fill the SMs, s; it does not shrink with the share.
        host_s: time in which the host launches kernels, s; 0 with the engine `tensorrt`.
        copy_s: time per sample in which the program copies its input to the GPU, s.
        intensity: dynamic power of SMs that all work on it, over the GPU's `Power.dynamic_w`.
        kernels: kernels that an iteration launches.
        support: what the constants are based on, one of `uncertainty.SUPPORTS`.
    """

    latency_s: float
    memory_s: float
    work_s: float
    fill_s: float = 0.0
    host_s: float = 0.0
    copy_s: float = 0.0
    intensity: float = 1.0
    kernels: float = 0.0
    support: str = NONE


@dataclass(frozen=True, eq=False)
class Effects:
    """Fitted effects.

    Attributes:
        values: by (component, effect, key); those that are missing are 0.
        rows: number of measured rows by (gpu, engine, arithmetic, network).
    """

    values: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    rows: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)

    def timing(self, cell: Cell) -> Timing:
        """Return the constants of a cell."""
        logs = offsets(cell)
        for name, factor in terms(cell):
            logs[name[0]] += factor * self.values.get(name, 0.0)
        found = {component: math.exp(value) for component, value in logs.items()}
        return Timing(
            latency_s=found["latency"],
            memory_s=found["memory"],
            work_s=found["work"],
            fill_s=found["fill"],
            host_s=found["host"] if cell.engine == "eager" else 0.0,
            copy_s=found["copy"] if copies(cell) else 0.0,
            intensity=found["intensity"],
            kernels=cell.network.kernels,
            support=self.support(cell),
        )

    def support(self, cell: Cell) -> str:
        """Return what the constants of a cell are based on, one of `uncertainty.SUPPORTS`."""
        if self.rows.get((cell.gpu.name, cell.engine, cell.precision, cell.network.name)):
            return CELL
        if any((gpu, precision) == (cell.gpu.name, cell.precision) for gpu, _, precision, _ in self.rows):
            return CARD
        return NONE


_IGNITER, _PARVAGPU = "icloud-ecnu/igniter|TensorRT 8.0", "MunQ-Lee/ParvaGPU_SC24|PyTorch 21.11"
_PYTORCH_FP32 = "sitar-lab/NeuSight|PyTorch 2.1"
_PADDLE = "PaddlePaddle/PaddleClas|Paddle Inference with TensorRT"
_TENSORFLOW, _BERT_DEMO = "NVIDIA/DeepLearningExamples|TensorFlow 2", "NVIDIA/TensorRT|TensorRT demo"
_BEAMS, _FUSED_BEAMS = (f"NVIDIA/FasterTransformer|{name}, beam 4" for name in ("PyTorch", "FasterTransformer decoder"))
PROGRAMS: Mapping[tuple[str, str, str, str], str] = {
    ("V100-SXM2", "tensorrt", "cnn", "fp32"): _IGNITER,
    ("T4", "tensorrt", "cnn", "fp32"): _PADDLE,
    ("T4", "tensorrt", "cnn", "fp16"): _PADDLE,
    ("V100", "tensorrt", "cnn", "fp32"): _PADDLE,
    ("V100", "tensorrt", "cnn", "fp16"): _PADDLE,
    ("A100", "eager", "cnn", "tf32"): _PARVAGPU,
    ("H100", "eager", "cnn", "tf32"): "H100|eager",
    ("H100", "eager", "bert_large", "tf32"): "H100|eager",
    ("H100", "eager", "gpt2", "tf32"): "H100|eager",
    ("H100", "eager", "transformer", "tf32"): "H100|eager",
    ("", "eager", "bert_large", ""): _TENSORFLOW,
    ("", "eager", "bert_large", "fp32"): _PYTORCH_FP32,
    ("", "tensorrt", "bert_large", "fp16"): _BERT_DEMO,
    ("", "eager", "transformer", ""): _BEAMS,
    ("", "tensorrt", "transformer", ""): _FUSED_BEAMS,
}
"""The program that an emulated GPU runs, by (gpu, engine, network, arithmetic).

The network is a name, or `cnn` for all of these. An empty GPU, network or arithmetic stands for all others. Where no
entry fits, the GPU runs the mean of all programs.
"""


def program_of(
    programs: Mapping[tuple[str, str, str, str], str], gpu: str, engine: str, network: Network, precision: str
) -> str:
    """Return the program that an emulated GPU runs for a network, the most specific entry; empty if none fits."""
    names = (network.name, "cnn", "") if network.kind == "cnn" else (network.name, "")
    keys = product((gpu, ""), names, (precision, ""))
    found = (programs.get((card, engine, name, arithmetic)) for card, name, arithmetic in keys)
    return next((program for program in found if program is not None), "")


@dataclass(frozen=True, eq=False)
class Timings:
    """Constants of every network on every GPU, computed from the effects when they are asked for.

    Attributes:
        effects: the fitted effects.
        gpus: the GPUs, by name.
        models: the networks, by name.
        added: constants that are given, by key; they need no network of the catalogue.
        programs: the program that each GPU runs (`PROGRAMS`).
        hosts: programs whose own host counts; the others have a median host.
        change: what a sensitivity study makes of the constants of a key; None: nothing.
    """

    effects: Effects
    gpus: Mapping[str, Gpu]
    models: Mapping[str, Model]
    added: Mapping[Key, Timing] = field(default_factory=dict)
    change: Callable[[Key, Timing], Timing] | None = None
    programs: Mapping[tuple[str, str, str, str], str] = field(default_factory=lambda: PROGRAMS)
    hosts: frozenset[str] = frozenset()
    _known: dict[Key, Timing] = field(default_factory=dict, init=False, repr=False)
    _from_effects: dict[Key, Timing] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, key: Key) -> Timing:
        """Return the constants of (gpu, engine, workload, arithmetic); `KeyError` without such a GPU or network."""
        if key not in self._known:
            timing = self.added[key] if key in self.added else self._possible(*key)
            self._known[key] = timing if self.change is None else self.change(key, timing)
        return self._known[key]

    def _possible(self, gpu: str, engine: str, workload: str, precision: str) -> Timing:
        # The fitted constants, such that a network without rows of its own is no slower here than on any GPU in any
        # arithmetic that this one matches or exceeds, and takes no more energy than in an arithmetic of more bits.
        timing = self._fitted(gpu, engine, workload, precision)
        if timing.support == CELL:
            return timing

        card = self.gpus[gpu]
        cells = [(other, name) for other in self.gpus.values() for name in BITS]
        below = [(other, name) for other, name in cells if at_least(card, precision, other, name)]
        bounds = [self._not_too_fast(other, engine, workload, name) for other, name in below]
        found = {name: min(getattr(each, name) for each in bounds) for name in _TIMES}

        energy_s = [
            each.intensity * each.work_s for (other, _), each in zip(below, bounds, strict=True) if other == card
        ]
        return replace(timing, **found, intensity=min(energy_s) / found["work_s"])

    def _not_too_fast(self, gpu: Gpu, engine: str, workload: str, precision: str) -> Timing:
        # The fitted constants; without rows, no faster than was measured on what matches or exceeds this GPU.
        timing = self._fitted(gpu.name, engine, workload, precision)
        if timing.support == CELL:
            return timing

        above = [self._fitted(other.name, engine, workload, name) for other in self.gpus.values() for name in BITS
                 if at_least(other, name, gpu, precision)]  # fmt: skip
        measured = [each for each in above if each.support == CELL]
        return replace(timing, **{name: max(getattr(each, name) for each in (timing, *measured)) for name in _TIMES})

    def _fitted(self, gpu: str, engine: str, workload: str, precision: str) -> Timing:
        # Matrix products do not exceed the peak rate. Only programs of records copy their input inside the time.
        key = gpu, engine, workload, precision
        if key not in self._from_effects:
            timing = self.effects.timing(self.cell(*key))
            model = self.models[workload]
            least_s = 0.0 if model.kind == "cnn" else model.gflops / (1e3 * self.gpus[gpu].peak_tflops(precision))
            self._from_effects[key] = replace(timing, work_s=max(timing.work_s, least_s), copy_s=0.0)
        return self._from_effects[key]

    def with_added(self, added: Mapping[Key, Timing]) -> "Timings":
        """Return a copy with further given constants."""
        return replace(self, added={**self.added, **added})

    def with_change(self, change: Callable[[Key, Timing], Timing]) -> "Timings":
        """Return a copy in which the constants of each key are changed, after earlier changes."""
        before = self.change

        def changed(key: Key, timing: Timing) -> Timing:
            return change(key, timing if before is None else before(key, timing))

        return replace(self, change=changed)

    def get(self, key: Key) -> Timing | None:
        """Return the constants of a key, or None."""
        try:
            return self[key]
        except KeyError:
            return None

    def cell(self, gpu: str, engine: str, workload: str, precision: str) -> Cell:
        """Return the cell of a network on an emulated GPU: run by the program of `PROGRAMS` and a median host."""
        card, network = self.gpus[gpu], network_of(self.models[workload])
        program = program_of(self.programs, gpu, engine, network, precision)
        return Cell(program, card, engine, precision, network, hosted=program in self.hosts)


def at_least(gpu: Gpu, precision: str, other: Gpu, coarser: str) -> bool:
    """Return whether a GPU in an arithmetic matches or exceeds another one, or itself, in everything.

    It has as many SMs, the peak rate, memory bandwidth and top clock, and numbers of no more bits.
    """
    if not (_exists(gpu, precision) and _exists(other, coarser)) or BITS[precision] > BITS[coarser]:
        return False
    size = gpu.sm_count >= other.sm_count and gpu.mem_bw_gbs >= other.mem_bw_gbs
    rate = gpu.peak_tflops(precision) >= other.peak_tflops(coarser)
    return size and rate and gpu.max_mhz >= other.max_mhz


def _exists(gpu: Gpu, precision: str) -> bool:
    return precision != "tf32" or gpu.has_tf32


def network_of(model: Model) -> Network:
    """Return the features of a network of the catalogue; one that decodes counts as a transformer."""
    kind = "cnn" if model.kind == "cnn" else "transformer"
    kernels = kernel_counts().get(model.name, KERNELS_PER_LAYER * model.layers)
    return Network(model.name, kind, kind, model.gflops, model.activations_m, model.layers, kernels)


@cache
def kernel_counts() -> Mapping[str, float]:
    """Return how many kernels eager execution of a network launches, by its name, where they were counted."""
    with files.data("calibration", "kernels.csv").open(encoding="utf-8", newline="") as stream:
        return {row["workload"]: float(row["kernels"]) for row in csv.DictReader(stream)}
