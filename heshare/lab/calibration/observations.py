"""Rows of all records in one form: residents on a GPU, and the time, the power or both that were measured.

A record is what one laboratory measured with one program on one GPU in one precision. Each function below reads one
table of `data/calibration/`; `observations` returns all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, nan
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.timing_effects import KERNELS_PER_LAYER, Cell, Network, kernel_counts, network_of
from heshare.lab.calibration.measurements import records, table
from heshare.profiles import store
from heshare.profiles.schema import residents_of
from heshare.shared import files
from heshare.world import catalogue
from heshare.world.gpu import Gpu

ALONE, EQUAL, PAIRS, SETS = "alone", "equal processes", "pairs", "sets"
LIMIT, FULL_LIMIT = "limit", "card's own limit"
"""Kinds of rows. A row under a limit is a time over that of the row before it, which has the card's own limit."""

IGNITER = "icloud-ecnu/igniter|TensorRT 8.0"
H100_RECORD = "H100|eager"
UNEQUAL = "Css22|MIG"
"""Programs by `laboratory|program`."""
HELD_OUT_SEED = 0
"""Seed that draws which half of the H100's settings is held out."""

_CARDS = {"A100 40 GB": "A100-40GB", "V100-SXM2 32 GB": "V100-SXM2"}
_BEAMS = 4.0
_SLOWER_HOST = "ryujaehun, slower host"


@dataclass(frozen=True)
class Task:
    """One resident: the network, its inference batch size and its share of the SMs (0 to 1)."""

    network: Network
    batch_size: float
    share: float


@dataclass(frozen=True)
class Observation:
    """One measured row.

    Attributes:
        program: `laboratory|program`.
        gpu: the GPU; an instance of a GPU has a name of its own.
        engine: `eager` or `tensorrt`.
        precision: the arithmetic as it ran.
        tasks: the residents; the time is that of the first.
        kind: one of the kinds above.
        time_s: seconds per iteration of the first resident, or a ratio of times for `LIMIT`; NaN where not measured.
        power_w: board power, W; NaN where not measured.
        sm_mhz: the clock that was held, MHz; NaN for the top clock under the GPU's own power limit.
        cap_w: the power limit, W; NaN for the GPU's own, infinite where none acted.
        held_out: whether the row is kept for testing.
    """

    program: str
    gpu: Gpu
    engine: str
    precision: str
    tasks: tuple[Task, ...]
    kind: str
    time_s: float = nan
    power_w: float = nan
    sm_mhz: float = nan
    cap_w: float = nan
    held_out: bool = False

    @property
    def laboratory(self) -> str:
        """Return the laboratory that measured the row."""
        return self.program.split("|")[0]

    @property
    def record(self) -> str:
        """Return the key of the record, `program|gpu|precision`."""
        return f"{self.program}|{self.gpu.name}|{self.precision}"

    def cell(self, task: Task) -> Cell:
        """Return the cell of a resident."""
        return Cell(self.program, self.gpu, self.engine, self.precision, task.network)


@cache
def observations() -> tuple[Observation, ...]:
    """Return the rows of all records of `data/calibration/`, and of the H100's profile."""
    sources = (_times(), _frameworks(), _grid(), _pairs(), _powers(), _unequal(), h100_rows(), _cards(), _true_fp32(),
               _saturated(), _t4_clock(), _limits())  # fmt: skip
    return tuple(row for source in sources for row in source)


def _times() -> Iterator[Observation]:
    for row in _known(table("times")):
        laboratory = _laboratory(row.source, row.framework)
        count = int(row.processes)
        yield _row(
            f"{laboratory}|{row.framework}", row.gpu, row.engine, row.precision,
            [(row.workload, _samples(row), row.mps_pct / 100.0)] * count, ALONE if count == 1 else EQUAL,
            time_s=row.time_s, sm_mhz=row.sm_mhz, cap_w=nan if np.isnan(row.sm_mhz) else inf,
        )  # fmt: skip


def _frameworks() -> Iterator[Observation]:
    for row in _known(table("frameworks")):
        laboratory = _laboratory(row.source, row.framework)
        yield _row(f"{laboratory}|{row.framework}", row.gpu, row.engine, row.precision,
                   [(row.workload, _samples(row), 1.0)], ALONE, time_s=row.time_s)  # fmt: skip


def _grid() -> Iterator[Observation]:
    for row in _known(table("mps_grid")):
        count = int(row.processes)
        tasks = [(row.workload, row.batch_size, row.mps_pct / 100)] * count
        yield _row("PctoDL|eager", row.gpu, "eager", "fp16", tasks,
                   ALONE if count == 1 else EQUAL, time_s=row.batch_size * count / row.throughput_per_s,
                   power_w=row.power_w, sm_mhz=row.sm_mhz, cap_w=inf)  # fmt: skip


def _pairs() -> Iterator[Observation]:
    for row in records(table("pairs")):
        both = [(row.workload_1, row.batch_size_1, row.mps_pct_1 / 100), (row.workload_2, row.batch_size_2,
                row.mps_pct_2 / 100)]  # fmt: skip
        for tasks, time_s in ((both, row.time_1_s), (both[::-1], row.time_2_s)):
            yield _row(IGNITER, row.gpu, "tensorrt", "fp32", tasks, PAIRS, time_s=time_s)


def _powers() -> Iterator[Observation]:
    # Rows without a batch size are processes of VGG-19 with 16 samples each.
    for row in records(table("power")):
        several = np.isnan(row.batch_size)
        tasks = [(row.workload, 16.0 if several else row.batch_size, row.mps_pct / 100)]
        count = int(row.processes) if several else 1
        kind = EQUAL if count > 1 else ALONE
        yield _row(IGNITER, row.gpu, "tensorrt", "fp32", tasks * count, kind, power_w=row.power_w)


def _unequal() -> Iterator[Observation]:
    # In a MIG instance whose size is not recorded; 4 of 7 slices are likeliest.
    gpu = mig_instance("A100", 4, 0.5)
    for row in records(table("unequal_pairs")):
        tasks = [(row.workload, row.batch_size, row.mps_pct / 100)]
        if row.kind != "alone":
            tasks.append((row.workload, row.partner_batch_size, row.partner_mps_pct / 100))
        yield _row(UNEQUAL, gpu, row.engine, row.precision, tasks, PAIRS if len(tasks) > 1 else ALONE,
                   time_s=row.p95_s, cap_w=inf)  # fmt: skip


def mig_instance(name: str, slices: int, memory: float) -> Gpu:
    """Return a MIG instance of a GPU as a GPU: so many of 7 compute slices, and a part of the memory."""
    gpu, part = catalogue.gpu(name), slices / 7.0
    return replace(
        gpu, name=f"{name}-{slices}g", sm_count=round(gpu.sm_count * part), mem_bw_gbs=memory * gpu.mem_bw_gbs,
        fp32_tflops=part * gpu.fp32_tflops, fp16_tflops=part * gpu.fp16_tflops,
    )  # fmt: skip


def h100_rows() -> Iterator[Observation]:
    """Yield the rows of the H100's profile; half of its settings are held out, drawn before any fit."""
    yield from profile_rows(store.read(files.data("profiles", "measured", "H100", "profile.csv")), H100_RECORD)


def profile_rows(profile: pd.DataFrame, program: str, *, all_of_them: bool = False) -> Iterator[Observation]:
    """Yield the rows of a recorded profile; half of its settings are held out, unless all are asked for.

    A setting is a set of residents and a clock. Rows of networks that the catalogue does not hold are left out.
    """
    rows = [(row, residents_of(row)) for row in records(profile)]
    settings = [("+".join(sorted(map(str, residents))), row.sm_mhz) for row, residents in rows]
    ordered = sorted(set(settings))
    drawn = np.random.default_rng(HELD_OUT_SEED).permutation(len(ordered))[::2]
    held = set() if all_of_them else {ordered[place] for place in drawn}
    for (row, residents), setting in zip(rows, settings, strict=True):
        if all(one.workload.model in networks() for one in residents):
            tasks = [(one.workload.model, one.workload.batch_size, one.mps_pct / 100) for one in residents]
            yield _row(
                program, row.gpu, row.engine, row.precision, tasks, SETS if len(tasks) > 1 else ALONE,
                time_s=row.time_s, power_w=row.power_w, sm_mhz=row.sm_mhz_reached, cap_w=inf, held_out=setting in held,
            )  # fmt: skip


def _cards() -> Iterator[Observation]:
    laboratories = {"Lambda, training": "lambdal", "TensorRT demo": "NVIDIA/TensorRT", "timm, AMP": "timm"}
    for row in _known(table("cards")):
        engine = "tensorrt" if "TensorRT" in row.record else "eager"
        yield _row(f"{laboratories[row.record]}|{row.record}", row.gpu, engine, row.precision,
                   [(row.workload, row.batch_size, 1.0)], ALONE, time_s=row.batch_size / row.per_s)  # fmt: skip


def _true_fp32() -> Iterator[Observation]:
    for row in records(table("true_fp32")):
        tasks = [(f"{row.workload}_s{row.sequence}", row.batch_size, 1.0)]
        yield _row("sitar-lab/NeuSight|PyTorch 2.1", row.gpu, "eager", "fp32", tasks, ALONE, time_s=row.time_s)


def _saturated() -> Iterator[Observation]:
    rows = table("saturated_power")
    for row in records(rows[rows.kind != "decode"]):
        yield _row("ml-energy/leaderboard-v2|diffusers", row.gpu, "tensorrt", "fp16",
                   [(_diffusion(row.model, row.setting), row.batch_size, 1.0)], ALONE, time_s=row.time_s,
                   power_w=row.power_w)  # fmt: skip


def _t4_clock() -> Iterator[Observation]:
    # The clock that 70 W leave to a T4 at about 60 C under BERT base with 512 tokens: a row of power at that clock.
    yield _row("boringlee24/NLP_on_T4|TensorFlow 2", "T4", "eager", "fp32", [("bert_base_s512", 8, 1.0)], FULL_LIMIT,
               power_w=70.0, sm_mhz=1030.0, cap_w=inf)  # fmt: skip


def _limits() -> Iterator[Observation]:
    # Throughput under a limit over that under the card's own: two rows, of which the second holds the ratio of times.
    for row in records(table("power_limits")):
        program = "mlcommons/inference_results|" + row.submission.split()[0]
        tasks = [(f"{_MLPERF}{row.benchmark}:{row.kind}", 64.0, 1.0)]
        yield _row(program, row.gpu, "tensorrt", "int8", tasks, FULL_LIMIT, cap_w=float(row.default_w))
        yield _row(program, row.gpu, "tensorrt", "int8", tasks, LIMIT, time_s=1.0 / row.rate, cap_w=float(row.limit_w))


def _row(
    program: str,
    gpu: str | Gpu,
    engine: str,
    precision: str,
    tasks: Sequence[tuple[str, float, float]],
    kind: str,
    **measured: Any,
) -> Observation:
    card = gpu if isinstance(gpu, Gpu) else catalogue.gpu(_CARDS.get(gpu, gpu))
    residents = tuple(Task(network(name), float(size), share) for name, size, share in tasks)
    label = card.arithmetic(precision, residents[0].network.kind)
    return Observation(program, card, engine, label, residents, kind, **measured)


def _known(rows: pd.DataFrame) -> Iterable[Any]:
    # The rows of networks whose features are known. Language models have their own law.
    return [row for row in records(rows) if row.workload != "gpt2_decode" and _has_features(row.workload)]


def _samples(row: Any) -> float:
    # A decoder that follows four beams computes four positions for each sequence.
    return float(row.batch_size) * (_BEAMS if "beam 4" in row.framework else 1.0)


def _laboratory(source: str, framework: str) -> str:
    if "slower host" in source or "slower host" in framework:
        return _SLOWER_HOST
    return source.split("@")[0]


_MLPERF, _DIFFUSION = "mlperf:", "diffusion:"
_TRAINED = ("resnet50", "ssd", "bert_base", "bert_large")
_FURTHER = {
    "alexnet": (1.43, 0.78, 8),
    "densenet169": (6.8, 7.3, 169),
    "inceptionv3": (5.7, 8.97, 95),
    "ssd": (62.8, 24.0, 45),
}
"""Networks outside the catalogue: operations of a sample, GFLOP, layer outputs, millions, and layers."""
_TOKENS = (8, 16, 32, 64, 128, 256, 512)


def _has_features(name: str) -> bool:
    return name in networks()


def network(name: str) -> Network:
    """Return the features of a network of a record."""
    if name.startswith(_MLPERF):
        kind = name.rsplit(":", 1)[1]
        # The share of operations and layer outputs is unknown: stand-ins, whose effect the priors leave open.
        kind = "cnn" if kind == "other" else kind
        return Network(name, kind, "mlperf", 50.0, 20.0, 50, KERNELS_PER_LAYER * 50, known_size=False)
    return networks()[name]


@cache
def networks() -> dict[str, Network]:
    """Return the networks whose features are known, by name, without those of MLPerf."""
    found = {
        name: network_of(model)
        for name, model in catalogue.models().items()
        if model.language is None and name != "bert_large"
    }
    for row in records(table("mps_grid_networks")):
        found[row.workload] = _of_features(row.workload, "cnn", row.gflops, row.activations_m, row.layers)
    for name, (gflops, activations_m, layers) in _FURTHER.items():
        if name not in found:
            found[name] = _of_features(name, "cnn", gflops, activations_m, layers)

    large = catalogue.model("bert_large")
    found["bert_large"] = _of_features(
        "bert_large", "transformer", _encoder(24, 1024, 128)[0], large.activations_m, 146
    )
    for tokens in _TOKENS:
        found[f"bert_base_s{tokens}"] = _of_features(
            f"bert_base_s{tokens}", "transformer", *_encoder(12, 768, tokens), 74
        )
    for tokens in (384, 512):
        name = f"bert_large_s{tokens}"
        found[name] = _of_features(name, "transformer", *_encoder(24, 1024, tokens), 146)
    found["gpt2_large_s1024"] = _of_features("gpt2_large_s1024", "transformer", *_gpt2_large(1024), 146)

    for name in _TRAINED:
        like = found["bert_base_s128" if name == "bert_base" else name]
        # A training step computes three times a forward pass, and keeps its outputs.
        found[f"{name}-train"] = replace(
            _of_features(f"{name}-train", like.kind, 3 * like.gflops, 2.5 * like.activations_m, 3 * like.layers),
            group=f"{like.kind}, training",
        )
    found |= {one.name: one for one in _diffusions()}
    return found


def _of_features(name: str, kind: str, gflops: float, activations_m: float, layers: float) -> Network:
    kernels = kernel_counts().get(name, KERNELS_PER_LAYER * layers)
    return Network(name, kind, kind, gflops, activations_m, layers, kernels)


def _encoder(layers: int, width: int, tokens: int) -> tuple[float, float]:
    # Operations, GFLOP, and layer outputs, millions, of an encoder such as BERT's, one sequence.
    heads = 16 if width == 1024 else 12
    operations = layers * 2 * (12 * width * width * tokens + 2 * tokens * tokens * width)
    outputs = layers * (34 * tokens * width + 2 * heads * tokens * tokens)
    return operations / 1e9, outputs / 1e6


def _gpt2_large(tokens: int) -> tuple[float, float]:
    # 36 layers of width 1280 with 20 heads, and 50,257 words.
    operations = 36 * (24 * 1280 * 1280 * tokens + 4 * tokens * tokens * 1280) + 2 * 1280 * 50257 * tokens
    outputs = 36 * (34 * tokens * 1280 + 40 * tokens * tokens) + tokens * 50257
    return operations / 1e9, outputs / 1e6


def _diffusion(model: str, setting: str) -> str:
    return f"{_DIFFUSION}{model}:{setting}"


def _diffusions() -> Iterator[Network]:
    # Only ratios between batch sizes and GPUs matter: their operations are read from the A100's time at 40 % of its
    # peak, a third of that for models that ran on the H100 alone.
    rows = table("saturated_power")
    for (model, setting), part in rows[rows.kind != "decode"].groupby(["model", "setting"]):
        on_a100 = part[part.gpu == "A100"]
        chosen = on_a100 if len(on_a100) else part
        gflops = 0.4 * 312e3 * (chosen.time_s / chosen.batch_size).min() * (1.0 if len(on_a100) else 3.0)
        name, kind = _diffusion(str(model), str(setting)), str(part.kind.iloc[0])
        yield Network(name, kind, "diffusion", gflops, 0.7 * gflops, 2000, KERNELS_PER_LAYER * 2000, known_size=False)
