"""Time constants of every measured workload on every measured GPU, in both engines: fitted, or derived from others.

A timing that was fitted to measurements of the same workload on the same GPU is *anchored*. GPUs and workloads without
any measurement are scaled by their features when they are asked for (`heshare.devices.derived_constants`).
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from heshare.devices.constants import Power, Timing
from heshare.devices.iteration_time import SM_TIME_ONLY, WorkPower
from heshare.lab.calibration import measurements
from heshare.lab.calibration.power.load_fit import fit_loads
from heshare.lab.calibration.time_fit import FittedTiming, Prior, ThrottledGpu, fit_timing
from heshare.world import catalogue

TimingKey = tuple[str, str, str]
"""(gpu, engine, workload)."""
Timings = dict[TimingKey, FittedTiming]

HOST_PER_LAYER_S = 0.095e-3
"""Prior of the host time of a layer, s; the fit of each workload replaces it."""
BANDWIDTH = {"T4": 0.7, "V100": 0.85, "V100-SXM2": 0.85, "A100": 0.85}
"""Share of the peak bandwidth that unfused operators reach: 0.7 from ResNet-50 on a T4, with and without TensorRT."""
LANGUAGE_PRIOR = Prior(fill=0.3)
"""Prior of a language model: as the eager image models, but for its memory traffic."""
EAGER_SOURCE = "MunQ-Lee/ParvaGPU_SC24: throughput of the whole GPU by inference batch size"
TRANSFORMER_ENGINE = 1.19
"""Eager over fused time of a Transformer layer: BERT base, 512 tokens, V100, TorchScript over ONNX Runtime."""

DEFAULT_BANDWIDTH = 0.85
"""The same on every other GPU."""
_LAYERS = {"densenet169": 169, "inceptionv3": 94}
_BIG_BATCH = 16
_HOST_GPT2_S = 5.5e-3
# Relative uncertainties that a derivation adds.
_DERIVED, _GUESSED, _CLOCK_SCALED = 0.12, 0.35, 0.06


def fit_all_timings(
    power: Mapping[str, Power], mps: Mapping[str, FittedTiming], eager: Mapping[str, FittedTiming]
) -> Timings:
    """Return every timing, auxiliary workloads of the records included.

    `power` holds the constants of each GPU; `mps` is from `fit_mps_timings`, `eager` from `copies_fit`.
    """
    timings: Timings = {("V100-SXM2", "tensorrt", name): fitted for name, fitted in mps.items()}
    hosts_s = host_times_s(eager)
    timings |= {("A100", "eager", name): fitted for name, fitted in eager.items()}
    _add_image_models(timings, power, mps, hosts_s)
    _add_image_models_on_a100(timings, eager, hosts_s)
    _add_language_models(timings, power)
    return {key: with_kernels(key[2], fitted) for key, fitted in timings.items()}


def fit_mps_timings() -> dict[str, FittedTiming]:
    """Return the workloads of the MPS record on the V100-SXM2; none of these runs met the power limit."""
    source = "icloud-ecnu/igniter: latency by inference batch size and MPS percentage"
    return {
        name: fit_timing(
            measurements.time_rows("V100-SXM2", name, measurements.MPS_RECORD), mps_prior(name), source=source
        )
        for name in measurements.MPS_MODELS
    }


def memory_s(workload: str, gpu: str, *, fused: bool) -> float | None:
    """Return the memory time of one sample at the reachable bandwidth, s; None if its traffic was not computed."""
    if workload not in measurements.traffic():
        return None
    moved_mb = measurements.traffic()[workload][0 if fused else 1]
    return moved_mb / (1e3 * catalogue.gpu(gpu).mem_bw_gbs * BANDWIDTH.get(gpu, DEFAULT_BANDWIDTH))


def throttled_gpu(gpu: str, power: Mapping[str, Power], kind: str = "cnn") -> ThrottledGpu:
    """Return a GPU of the catalogue with its power limit, on which a kind of network runs in FP32."""
    spec = catalogue.gpu(gpu)
    load = fit_loads(power[gpu].memory).get((gpu, kind, "fp32"))
    draws = SM_TIME_ONLY if load is None else WorkPower(load.intensity)
    return ThrottledGpu(power[gpu], spec.max_mhz, spec.tdp_w, lambda _: draws)


def mps_prior(workload: str) -> Prior:
    return Prior(memory_s(workload, "V100-SXM2", fused=True))


def eager_prior(workload: str) -> Prior:
    layers = _LAYERS[workload] if workload in _LAYERS else catalogue.model(workload).layers
    return Prior(memory_s(workload, "A100", fused=False), layers * HOST_PER_LAYER_S)


def fit_t4_clocks() -> FittedTiming:
    """Return BERT base with 512 tokens on the T4 at locked clocks."""
    return fit_clocks(measurements.time_rows("T4", "bert_base_s512", "TensorFlow 2"))


def fit_clocks(rows: measurements.TimeRows) -> FittedTiming:
    """Return SM part and fixed part (memory) of iterations of one batch size at several clocks of a T4."""
    slow = catalogue.gpu("T4").max_mhz / rows.sm_mhz
    columns = np.c_[slow, np.ones(len(rows))] / rows.time_s[:, None]
    (work, fixed), *_ = np.linalg.lstsq(columns, np.ones(len(rows)), rcond=None)
    size = float(rows.batch[0])
    timing = Timing(0.0, float(fixed) / size, 0.0, float(work) / size, anchored=True, uncertainty=0.02)
    return FittedTiming(timing, {}, "boringlee24/NLP_on_T4: latency by SM clock")


def with_kernels(workload: str, fitted: FittedTiming) -> FittedTiming:
    return _with(fitted, kernels=measurements.kernel_counts().get(workload, 0.0))


def host_times_s(eager: Mapping[str, FittedTiming]) -> dict[str, float]:
    """Return the host time of each image workload, s: fitted on the A100, else from a slower host, else by layers."""
    hosts_s = {name: fitted.timing.host_s for name, fitted in eager.items()}
    slower_s: dict[str, float] = {}
    for row in measurements.records(measurements.table("times").query("framework == 'PyTorch, slower host'")):
        slower_s.setdefault(row.workload, float(row.time_s))
    both = [name for name in sorted(set(slower_s) & set(hosts_s)) if name.startswith(("resnet", "densenet"))]
    ratio = statistics.median(slower_s[name] / hosts_s[name] for name in both)
    layer_s = statistics.median(hosts_s[name] / catalogue.model(name).layers for name in both)
    for name in measurements.IMAGE_MODELS:
        if name not in hosts_s:
            hosts_s[name] = slower_s[name] / ratio if name in slower_s else layer_s * catalogue.model(name).layers
    return hosts_s


def _fit_fused(gpu: str, workload: str, power: Mapping[str, Power], mps: Mapping[str, FittedTiming]) -> FittedTiming:
    """The MPS record shapes those workloads that it holds."""
    prior = Prior(memory_s(workload, gpu, fused=True))
    if gpu == "V100" and workload in mps:
        shape = mps[workload].timing
        base, fill = shape.work_s / shape.latency_s, shape.fill_s / shape.latency_s
        prior = Prior(shape.memory_s, None, base, fill, (0.1, 0.5, 0.2, 0.2))
    source = "PaddlePaddle/PaddleClas: TensorRT latency at inference batch sizes 1 and 8"
    return fit_timing(
        measurements.time_rows(gpu, workload, measurements.FUSED_RECORD), prior, throttled_gpu(gpu, power), source
    )


def _fit_language(
    key: TimingKey, framework: str, power: Mapping[str, Power], source: str, prior: Prior = LANGUAGE_PRIOR
) -> FittedTiming:
    gpu, _, name = key
    throttled = throttled_gpu(gpu, power, catalogue.kind(name))
    return fit_timing(measurements.time_rows(gpu, name, framework), prior, throttled, source)


def _fit_gpt2(power: Mapping[str, Power]) -> FittedTiming:
    """GPT-2 on 128 tokens on the V100, from BERT base: the same layers, and the head on top."""
    base = measurements.time_rows("V100", "bert_base_s128", "ONNX Runtime")
    ratio = catalogue.model("gpt2").gflops / (2 * 11.174)
    grown = measurements.TimeRows(base.batch, base.share, base.time_s * ratio, base.sm_mhz)
    source = "microsoft/onnxruntime: BERT base with 128 tokens x 1.44 (multiply-accumulates of GPT-2 over BERT base)"
    fitted = fit_timing(grown, LANGUAGE_PRIOR, throttled_gpu("V100", power, "transformer"), source)
    return replace(fitted, timing=replace(fitted.timing, anchored=False, transfer=_GUESSED))


def _fit_eager_resnet50(gpu: str, power: Mapping[str, Power], like: Timing, host_s: float) -> FittedTiming:
    """ResNet-50 in PyTorch at inference batch sizes whose host time does not show (its host was a slower one)."""
    rows = measurements.time_rows(gpu, "resnet50", "PyTorch")
    base, fill = like.work_s / like.latency_s, like.fill_s / like.latency_s
    prior = Prior(memory_s("resnet50", gpu, fused=False), None, base, fill, (0.2, 0.5, 0.3, 0.3))
    source = "NVIDIA/DeepLearningExamples: ResNet-50, PyTorch, batch sizes 16 to 256"
    fitted = fit_timing(rows.where(rows.batch >= _BIG_BATCH), prior, throttled_gpu(gpu, power), source)
    return _with(fitted, latency_s=like.latency_s, work_s=like.work_s, fill_s=like.fill_s, host_s=host_s)


def _scaled(
    fitted: FittedTiming, source: str, uncertainty: float, *, work: float, memory: float, latency: float = 1.0
) -> FittedTiming:
    factors = {"latency_s": latency, "memory_s": memory, "work_s": work, "work_per_sample_s": work, "fill_s": work}
    scaled = {name: getattr(fitted.timing, name) * factor for name, factor in factors.items()}
    return _derived(fitted, source, uncertainty, **scaled)


def _derived(fitted: FittedTiming, source: str, uncertainty: float, **constants: float) -> FittedTiming:
    transfer = math.hypot(fitted.timing.transfer, uncertainty)
    timing = replace(_with(fitted, **constants).timing, anchored=False, transfer=transfer)
    return FittedTiming(timing, fitted.spread, source)


def _with(fitted: FittedTiming, **constants: float) -> FittedTiming:
    return replace(fitted, timing=replace(fitted.timing, **constants))  # type: ignore[arg-type]


def _by_clock(fitted: FittedTiming, gpu: str) -> FittedTiming:
    slower = catalogue.gpu("V100").max_mhz / catalogue.gpu("V100-SXM2").max_mhz
    source = f"the {gpu} cell, SM times in proportion to the clock"
    return _scaled(fitted, source, _CLOCK_SCALED, work=slower if gpu == "V100" else 1.0 / slower, memory=1.0)


def _add_image_models(
    timings: Timings, power: Mapping[str, Power], mps: Mapping[str, FittedTiming], hosts_s: Mapping[str, float]
) -> None:
    for name in measurements.IMAGE_MODELS:
        for gpu in ("T4", "V100"):
            timings[gpu, "tensorrt", name] = _fit_fused(gpu, name, power, mps)
        if name not in mps:
            timings["V100-SXM2", "tensorrt", name] = _by_clock(timings["V100", "tensorrt", name], "V100")
        for gpu in ("T4", "V100", "V100-SXM2"):
            # Unfused operators move more memory, and the host launches them.
            known, source = (
                timings[gpu, "tensorrt", name],
                "the tensorrt cell, memory traffic of unfused operators, the A100's host",
            )
            less, more = (memory_s(name, gpu, fused=one) or 0.0 for one in (True, False))
            memory = known.timing.memory_s + (more - less)
            timings[gpu, "eager", name] = _derived(known, source, _DERIVED, memory_s=memory, host_s=hosts_s[name])
    for gpu in ("T4", "V100-SXM2"):
        like = timings[gpu, "tensorrt", "resnet50"].timing
        timings[gpu, "eager", "resnet50"] = _fit_eager_resnet50(gpu, power, like, hosts_s["resnet50"])
    timings["V100", "eager", "resnet50"] = _by_clock(timings["V100-SXM2", "eager", "resnet50"], "V100-SXM2")


def _add_image_models_on_a100(
    timings: Timings, eager: Mapping[str, FittedTiming], hosts_s: Mapping[str, float]
) -> None:
    fused = {name: timings["V100", "tensorrt", name] for name in measurements.IMAGE_MODELS}
    ratios = [
        eager[name].timing.work_per_sample_s / fused[name].timing.work_per_sample_s for name in eager if name in fused
    ]
    faster = statistics.geometric_mean(ratios)
    for name in measurements.IMAGE_MODELS:
        less, more = (memory_s(name, "A100", fused=one) or 0.0 for one in (True, False))
        if name not in eager:
            source = "the V100 cell by the mean ratio of eight workloads"
            scaled = _scaled(fused[name], source, 0.25, work=faster, memory=1.0)
            timings["A100", "eager", name] = _with(scaled, memory_s=more, host_s=hosts_s[name])
        known = timings["A100", "eager", name]
        memory = known.timing.memory_s * (less / more if more else 1.0)
        source = "the eager cell without its host part and the traffic of unfused operators"
        timings["A100", "tensorrt", name] = _derived(known, source, 2 * _DERIVED, memory_s=memory, host_s=0.0)


def _add_language_models(timings: Timings, power: Mapping[str, Power]) -> None:
    # TensorFlow 2 graphs and fused kernels need no host time to speak of.
    source = "NVIDIA/DeepLearningExamples: BERT Large, TensorFlow 2, latency by inference batch size"
    for key in product(("T4", "V100-SXM2", "A100"), ("eager",), ("bert_large",)):
        timings[key] = _fit_language(key, "TensorFlow 2", power, source)
    # One output position of the Transformer; its host time is set by the fastest of the three hosts.
    source = "NVIDIA/FasterTransformer: PyTorch decoder, beam 4, inference batch sizes 1 and 8"
    host_s = 0.75 * float(measurements.time_rows("A100", "transformer", "PyTorch, beam 4").time_s.min())
    for key in product(("T4", "V100", "A100"), ("eager",), ("transformer",)):
        prior = Prior(None, host_s, spread=(0.35, 0.1, 0.8, 0.8))
        timings[key] = _fit_language(key, "PyTorch, beam 4", power, source, prior)
    timings["V100", "eager", "bert_large"] = _by_clock(timings["V100-SXM2", "eager", "bert_large"], "V100-SXM2")
    scaled = _by_clock(timings["V100", "eager", "transformer"], "V100")
    timings["V100-SXM2", "eager", "transformer"] = replace(scaled, source="the V100 cell by the clock")
    gpt2 = _fit_gpt2(power)
    reference_s = timings["V100", "eager", "bert_large"].timing.work_per_sample_s
    for gpu in ("T4", "V100", "V100-SXM2", "A100"):
        pace = timings[gpu, "eager", "bert_large"].timing.work_per_sample_s / reference_s
        source = gpt2.source if gpu == "V100" else "the V100 cell by the ratio of BERT Large"
        fused = _scaled(gpt2, source, 0.0 if gpu == "V100" else 0.2, work=pace, memory=pace)
        timings[gpu, "tensorrt", "gpt2"] = fused
        eager = _scaled(fused, source, 0.1, work=TRANSFORMER_ENGINE, memory=TRANSFORMER_ENGINE)
        timings[gpu, "eager", "gpt2"] = _with(eager, host_s=_HOST_GPT2_S)
        for name in ("bert_large", "transformer"):
            less = 1.0 / TRANSFORMER_ENGINE
            fused = _scaled(
                timings[gpu, "eager", name], "the eager cell over 1.19", 0.1, work=less, memory=less, latency=less
            )
            timings[gpu, "tensorrt", name] = _with(fused, host_s=0.0)
    source = "NVIDIA/FasterTransformer: fused decoder, beam 4, inference batch sizes 1 and 8"
    for key in product(("T4", "V100", "A100"), ("tensorrt",), ("transformer",)):
        timings[key] = _fit_language(key, measurements.FUSED_DECODER, power, source)
    timings["V100-SXM2", "tensorrt", "transformer"] = _by_clock(timings["V100", "tensorrt", "transformer"], "V100")
