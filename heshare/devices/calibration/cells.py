"""Which measurements anchor which workload on which GPU, and how the cells without any are filled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from heshare.devices.calibration.data import (
    EAGER,
    FUSED,
    IMAGE_MODELS,
    MODELS_EAGER,
    MODELS_MPS,
    MPS,
    Rows,
    rows,
    table,
    traffic,
)
from heshare.devices.calibration.times import Card, Fitted, Prior, fit, scaled
from heshare.devices.constants import Power, Timing
from heshare.world import catalogue

Cell = tuple[str, str, str]
"""(gpu, engine, workload)."""

HOST_PER_LAYER_S = 0.095e-3
"""Host time of a layer before measurements, s; the fit of each workload replaces it."""

BANDWIDTH = {"T4": 0.7, "V100": 0.85, "V100-SXM2": 0.85, "A100": 0.85}
"""Share of the peak bandwidth that unfused operators reach: 0.7 from ResNet-50 on a T4, with and without TensorRT."""
_BANDWIDTH = 0.85

LANGUAGE = Prior(fill=0.3)
"""Prior of a language model: as the eager image models, but for its memory traffic."""

_LAYERS = {"densenet169": 169, "inceptionv3": 94}
_BIG_BATCH = 16
_DERIVED = 0.12
_GUESSED = 0.35


def memory_s(workload: str, gpu: str, *, fused: bool) -> float | None:
    """Memory time of one sample at the reachable bandwidth, s; None for workloads whose traffic was not computed."""
    if workload not in traffic():
        return None
    moved_mb = traffic()[workload][0 if fused else 1]
    return moved_mb / (1e3 * catalogue.gpu(gpu).mem_bw_gbs * BANDWIDTH.get(gpu, _BANDWIDTH))


def card(gpu: str, power: Mapping[str, Power]) -> Card:
    """What throttles measurements on a GPU of the catalogue."""
    known = catalogue.gpu(gpu)
    return Card(power[gpu], known.max_mhz, known.tdp_w)


def mps_prior(workload: str) -> Prior:
    """Prior of a workload of the MPS record."""
    return Prior(memory_s(workload, "V100-SXM2", fused=True))


def mps_cells() -> dict[str, Fitted]:
    """The workloads of the MPS record on the V100-SXM2; none of these runs met the power limit."""
    source = "icloud-ecnu/igniter: latency by inference batch size and MPS percentage"
    return {name: fit(rows("V100-SXM2", name, MPS), mps_prior(name), source=source) for name in MODELS_MPS}


def eager_prior(workload: str) -> Prior:
    """Prior of a workload of the A100's eager record."""
    layers = _LAYERS[workload] if workload in _LAYERS else catalogue.model(workload).layers
    return Prior(memory_s(workload, "A100", fused=False), layers * HOST_PER_LAYER_S, fill=0.3)


def eager_cells() -> dict[str, Fitted]:
    """The workloads of the eager record on the A100, with their host floors; it never met its power limit."""
    source = "MunQ-Lee/ParvaGPU_SC24: throughput of the whole GPU by inference batch size"
    return {name: fit(rows("A100", name, EAGER), eager_prior(name), source=source) for name in MODELS_EAGER}


def fused_cell(gpu: str, workload: str, power: Mapping[str, Power], known: Mapping[str, Fitted]) -> Fitted:
    """A workload of the TensorRT record on the T4 or the V100; the MPS record shapes those that it holds."""
    prior = Prior(memory_s(workload, gpu, fused=True))
    if gpu == "V100" and workload in known:
        shape = known[workload].timing
        prior = Prior(
            shape.memory_s,
            None,
            shape.work_s / shape.latency_s,
            shape.fill_s / shape.latency_s,
            (0.1, 0.5, 0.2, 0.2),
        )
    source = "PaddlePaddle/PaddleClas: TensorRT latency at inference batch sizes 1 and 8"
    return fit(rows(gpu, workload, FUSED), prior, card(gpu, power), source)


def bert_cell(gpu: str, power: Mapping[str, Power] | None, workload: str = "bert_large") -> Fitted:
    """BERT Large on one GPU, TensorFlow 2 graphs (no host floor)."""
    source = "NVIDIA/DeepLearningExamples: BERT Large, TensorFlow 2, latency by inference batch size"
    limits = None if power is None else card(gpu, power)
    return fit(rows(gpu, workload, "TensorFlow 2"), LANGUAGE, limits, source)


def clock_cell() -> Fitted:
    """BERT base with 512 tokens on the T4 at locked clocks; one inference batch size, so its split is in the clock."""
    found = rows("T4", "bert_base_s512", "TensorFlow 2")
    return clock_fit(found)


def clock_fit(found: Rows) -> Fitted:
    """SM part and fixed part of an iteration from its time at several clocks (the fixed part waits for memory)."""
    top = catalogue.gpu("T4").max_mhz
    slow = top / found.sm_mhz
    columns = np.c_[slow, np.ones(len(found))] / found.time_s[:, None]
    (work, fixed), *_ = np.linalg.lstsq(columns, np.ones(len(found)), rcond=None)
    size = float(found.batch[0])
    timing = Timing(0.0, float(fixed) / size, 0.0, float(work) / size, anchored=True, uncertainty=0.02)
    return Fitted(timing, {}, "boringlee24/NLP_on_T4: latency by SM clock")


def transformer_cell(gpu: str, power: Mapping[str, Power]) -> Fitted:
    """One output position of the Transformer; its host floor is set by the fastest of the three hosts."""
    source = "NVIDIA/FasterTransformer: PyTorch decoder, beam 4, inference batch sizes 1 and 8"
    found = rows(gpu, "transformer", "PyTorch, beam 4")
    host_s = 0.75 * float(rows("A100", "transformer", "PyTorch, beam 4").time_s.min())
    return fit(found, Prior(None, host_s, spread=(0.35, 0.1, 0.8, 0.8)), card(gpu, power), source)


def gpt2_cell(power: Mapping[str, Power]) -> Fitted:
    """GPT-2 on 128 tokens on the V100, from BERT base: the same layers, and the head on top."""
    base = rows("V100", "bert_base_s128", "ONNX Runtime")
    ratio = catalogue.model("gpt2").gflops / (2 * 11.174)
    grown = Rows(base.batch, base.share, base.time_s * ratio, base.sm_mhz)
    source = "microsoft/onnxruntime: BERT base with 128 tokens x 1.44 (multiply-accumulates of GPT-2 over BERT base)"
    found = fit(grown, LANGUAGE, card("V100", power), source)
    return replace(found, timing=replace(found.timing, anchored=False, uncertainty=_GUESSED))


def eager_from_fused(cell: Fitted, gpu: str, workload: str, host_s: float) -> Fitted:
    """Eager execution of a workload known from TensorRT: unfused operators move more memory, and the host launches."""
    less, more = memory_s(workload, gpu, fused=True), memory_s(workload, gpu, fused=False)
    extra_s = 0.0 if less is None or more is None else more - less
    timing = replace(
        cell.timing,
        memory_s=cell.timing.memory_s + extra_s,
        host_s=host_s,
        anchored=False,
        uncertainty=math.hypot(cell.timing.uncertainty, _DERIVED),
    )
    return Fitted(timing, cell.spread, "the tensorrt cell, memory traffic of unfused operators, the A100's host")


def fused_from_eager(cell: Fitted, gpu: str, workload: str) -> Fitted:
    """TensorRT execution of a workload known from eager execution: less memory traffic, no host part."""
    less, more = memory_s(workload, gpu, fused=True), memory_s(workload, gpu, fused=False)
    ratio = 1.0 if less is None or more is None else less / more
    timing = replace(
        cell.timing,
        memory_s=cell.timing.memory_s * ratio,
        host_s=0.0,
        anchored=False,
        uncertainty=math.hypot(cell.timing.uncertainty, 2 * _DERIVED),
    )
    return Fitted(timing, cell.spread, "the eager cell without its host part and the traffic of unfused operators")


def eager_resnet50(gpu: str, power: Mapping[str, Power], like: Timing, host_s: float) -> Fitted:
    """ResNet-50 in PyTorch at inference batch sizes whose host part does not show (its host was a slower one)."""
    found = rows(gpu, "resnet50", "PyTorch")
    big = found.where(found.batch >= _BIG_BATCH)
    prior = Prior(
        memory_s("resnet50", gpu, fused=False),
        None,
        like.work_s / like.latency_s,
        like.fill_s / like.latency_s,
        (0.2, 0.5, 0.3, 0.3),
    )
    cell = fit(big, prior, card(gpu, power), "NVIDIA/DeepLearningExamples: ResNet-50, PyTorch, batch sizes 16 to 256")
    timing = replace(cell.timing, latency_s=like.latency_s, work_s=like.work_s, fill_s=like.fill_s, host_s=host_s)
    return replace(cell, timing=timing)


def moved(cell: Fitted, source: str, doubt: float, *, work: float, memory: float, latency: float = 1.0) -> Fitted:
    """A cell on another GPU, every constant in proportion."""
    timing = scaled(cell.timing, work=work, memory=memory, latency=latency)
    return Fitted(replace(timing, uncertainty=math.hypot(timing.uncertainty, doubt)), cell.spread, source)


def ratio(over: Mapping[str, Fitted], under: Mapping[str, Fitted]) -> float:
    """Geometric mean of the SM times per sample of the workloads in both, `over` to `under`."""
    both = sorted(set(over) & set(under) & set(IMAGE_MODELS))
    logs = [math.log(over[name].timing.work_per_sample_s / under[name].timing.work_per_sample_s) for name in both]
    return math.exp(sum(logs) / len(logs))


def slow_host(workload: str) -> float:
    """Time at inference batch size 12 on the A100 of a slower host, s."""
    times = table("times")
    keep = (times.framework == "PyTorch, slower host") & (times.workload == workload)
    return float(times[keep].time_s.iloc[0])
