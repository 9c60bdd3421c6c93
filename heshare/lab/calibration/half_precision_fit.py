"""Fit of FP16: times of their own where networks were measured in FP16, factors on the times of FP32 for the others."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, HalfPrecision
from heshare.devices.iteration_time import WorkPower, work_power
from heshare.lab.calibration.laws_fit import kind_of
from heshare.lab.calibration.measurements import FUSED_DECODER, FUSED_RECORD, IMAGE_MODELS, TimeRows, table, time_rows
from heshare.lab.calibration.time_fit import FittedTiming, Prior, ThrottledGpu, fit_timing
from heshare.lab.calibration.timing_constants import LANGUAGE_PRIOR, TimingKey, memory_s, with_kernels
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue
from heshare.world.workload import ENGINES, KINDS, Workload

BERT_RECORD = "TensorRT demo"
"""Record of BERT in FP16 under TensorRT on five cards, in `cards.csv`."""
BERT_CARDS = ("T4", "A100", "A30", "L4", "L40S")
BYTES = 0.5
"""Bytes of FP16 over those of FP32."""

_BIG_BATCH = 8
_HOST_BOUND = 0.7
_LEAST, _MOST = 0.1, 1.2
_OTHER_NETWORK, _OTHER_GPU = 0.2, 0.4
"""Assumed: relative standard uncertainty of a factor for another network of the kind, and from other GPUs."""
_CARDS = {"A100 40 GB": "A100", "V100-SXM2 32 GB": "V100-SXM2"}


def bert_rows(gpu: str, workload: str = "bert_large") -> TimeRows:
    cards = table("cards")
    rows = cards[(cards.gpu == gpu) & (cards.record == BERT_RECORD) & (cards.workload == workload)]
    return _by_batch(rows.assign(time_s=rows.batch_size / rows.per_s))


def _by_batch(rows: pd.DataFrame) -> TimeRows:
    rows, ones = rows.sort_values("batch_size"), np.ones(len(rows))
    return TimeRows(rows.batch_size.to_numpy(float), ones, rows.time_s.to_numpy(float), np.nan * ones)


def throttled_in_half(constants: Constants, gpu: str, name: str) -> ThrottledGpu:
    spec, load = catalogue.gpu(gpu), constants.loads.get((gpu, catalogue.kind(name), "fp16"))

    def draws(batch: int) -> WorkPower:
        return work_power(load, Workload(name, batch, "fp16", "tensorrt"))

    return ThrottledGpu(constants.power[gpu], spec.max_mhz, spec.tdp_w, draws)


def fit_half_timings(constants: Constants) -> dict[TimingKey, FittedTiming]:
    measured: dict[TimingKey, tuple[TimeRows, Prior, str]] = {}
    source = "NVIDIA/TensorRT: demo/BERT, FP16, inference batch sizes 1 to 128"
    for gpu in BERT_CARDS:
        measured[gpu, "tensorrt", "bert_large"] = bert_rows(gpu), LANGUAGE_PRIOR, source
    source = "NVIDIA/DeepLearningExamples: BERT Large, TensorFlow 2, FP16"
    eager = table("frameworks").query(
        "workload == 'bert_large' and framework == 'TensorFlow 2' and precision == 'fp16'"
    )
    for gpu in ("T4", "V100-SXM2", "A100"):
        measured[gpu, "eager", "bert_large"] = _by_batch(eager[eager.gpu == gpu]), LANGUAGE_PRIOR, source
    source = "NVIDIA/FasterTransformer: fused decoder, beam 4, FP16, inference batch sizes 1 and 8"
    for gpu in ("T4", "V100", "A100"):
        rows = time_rows(gpu, "transformer", FUSED_DECODER, precision="fp16")
        measured[gpu, "tensorrt", "transformer"] = rows, LANGUAGE_PRIOR, source
    source = "PaddlePaddle/PaddleClas: TensorRT FP16 latency at inference batch sizes 1 and 8"
    for name in IMAGE_MODELS:
        rows = time_rows("T4", name, FUSED_RECORD, precision="fp16")
        if len(rows):
            prior = Prior(BYTES * (memory_s(name, "T4", fused=True) or 0.0) or None)
            measured["T4", "tensorrt", name] = rows, prior, source
    throttled = {key: throttled_in_half(constants, key[0], key[2]) for key in measured}
    return {
        key: with_kernels(key[2], fit_timing(rows, prior, throttled[key], source))
        for key, (rows, prior, source) in measured.items()
    }


def fit_half_precision(constants: Constants) -> dict[tuple[str, str, str], HalfPrecision]:
    """Return FP16 by measured GPU, engine and kind of network: half the bytes, and what FP16 saves of SM time.

    What it saves is the ratio of its time to that of FP32 (TF32) in one framework, at the largest inference batch size;
    the mean of all networks of a kind. A GPU of the same architecture stands for one without; else all GPUs do.
    """
    saved = savings(constants).groupby(["gpu", "kind"])
    found = {(str(gpu), str(kind)): _factor(part.work.to_numpy(float)) for (gpu, kind), part in saved}
    measured = {gpu for gpu, _, _ in constants.timing}
    keys = product((gpu for gpu in catalogue.gpus() if gpu in measured), ENGINES, KINDS)
    return {(gpu, engine, kind): _known(found, gpu, kind) for gpu, engine, kind in keys}


def savings(constants: Constants) -> pd.DataFrame:
    times = table("times")
    alone = times[(times.processes == 1) & (times.mps_pct == 100) & times.sm_mhz.isna()]
    rows = pd.concat([alone, table("frameworks")], ignore_index=True)
    rows = rows[(rows.batch_size >= _BIG_BATCH) & rows.precision.isin(["fp32", "fp16"])]
    rows = rows.assign(gpu=rows.gpu.replace(_CARDS))
    found = []
    for (gpu, framework, name, engine), part in rows.groupby(["gpu", "framework", "workload", "engine"]):
        seconds = {precision: own.groupby("batch_size").time_s.mean() for precision, own in part.groupby("precision")}
        key = str(gpu), str(engine), str(name)
        both = sorted(set(seconds["fp32"].index) & set(seconds["fp16"].index)) if len(seconds) == 2 else []
        if not both or key not in constants.timing:
            continue
        timing, size = constants.timing[key], float(both[-1])
        memory_s, work_s = size * timing.memory_s, timing.work_s + timing.fill_s + size * timing.work_per_sample_s
        if timing.host_s > _HOST_BOUND * (timing.latency_s + memory_s + work_s):
            continue
        total_s = float(seconds["fp16"][size] / seconds["fp32"][size]) * (timing.latency_s + memory_s + work_s)
        work = min(_MOST, max(_LEAST, (total_s - timing.latency_s - BYTES * memory_s) / work_s))
        found.append((key[0], kind_of(key[2]), str(framework), key[2], work))
    return pd.DataFrame(found, columns=["gpu", "kind", "framework", "workload", "work"])


def _factor(work: FloatArray) -> HalfPrecision:
    logs = np.log(work)
    spread = float(logs.std()) if len(logs) > 1 else 0.0
    return HalfPrecision(float(np.exp(logs.mean())), BYTES, math.hypot(_OTHER_NETWORK, spread))


def _known(found: Mapping[tuple[str, str], HalfPrecision], gpu: str, kind: str) -> HalfPrecision:
    """The factors of a GPU, or else the mean of those of its architecture, of all GPUs, of all kinds."""
    if (gpu, kind) in found:
        return found[gpu, kind]
    cards = catalogue.gpus()
    of_kind = {other: one for (other, own), one in found.items() if own == kind}
    like = [one for other, one in of_kind.items() if cards[other].architecture == cards[gpu].architecture]
    mean = _factor(np.array([one.work for one in like or list(of_kind.values() or found.values())]))
    return replace(mean, uncertainty=max(mean.uncertainty, _OTHER_NETWORK if like else _OTHER_GPU))
