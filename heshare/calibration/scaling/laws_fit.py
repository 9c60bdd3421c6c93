"""Fit of the laws by which GPUs and networks without measurements are scaled, to all records that compare some.

`data/calibration/cards.csv` holds throughputs of several GPUs by one program; `times.csv` holds more of them. Laws are
fitted by kind of network and precision, since memory binds convolutions and arithmetic binds transformers.
"""

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from heshare.calibration.measurements import table
from heshare.calibration.scaling.feature_law import FeatureRows, fit_law, left_out_spread
from heshare.devices.constants import CardSpeed, Laws, Power, PowerLaw, SpeedLaw, WorkloadLaw
from heshare.devices.derived_constants import nearest_by
from heshare.world import catalogue

SPEED_EXPONENTS = (0.5, 0.5)
"""Means of the priors of peak rate and bandwidth: twice of both is twice the speed."""
TIME_EXPONENTS = (0.5, 0.5, 0.0)
"""Means of the priors of operations, activations and layers."""
_LANGUAGE = {"bert": "transformer", "gpt": "transformer", "transformer": "decode"}
_FULL_BATCH = 8
_OTHER_PROGRAM = 0.1
"""Assumed: relative standard uncertainty with which the programs of the records, trainings among them, speak for
inference."""


def kind_of(workload: str) -> str:
    """Return the kind of a network of a record, such as `bert_base_s128`, by the first word of its name."""
    return next((kind for word, kind in _LANGUAGE.items() if workload.startswith(word)), "cnn")


@cache
def comparisons() -> pd.DataFrame:
    """Return every time that a record lists for two or more GPUs: one row a GPU, record and network, of a full GPU.

    Returns:
        Columns kind, precision, record, workload, gpu, per_s (samples a second, at the largest batch size that all
        GPUs of the record ran, or else at each one's largest).
    """
    times = table("times")
    alone = times[(times.processes == 1) & (times.mps_pct == 100) & times.sm_mhz.isna()]
    alone = alone[(alone.batch_size >= _FULL_BATCH) & alone.gpu.isin(list(catalogue.gpus()))]
    alone = alone.assign(record=alone.framework, per_s=alone.batch_size / alone.time_s)
    cards = table("cards")
    columns = ["precision", "record", "workload", "gpu", "batch_size", "per_s"]
    both = pd.concat([cards[cards.gpu.isin(list(catalogue.gpus()))][columns], alone[columns]])
    both = both.assign(kind=both.workload.map(kind_of))
    keys = ["kind", "precision", "record", "workload"]
    rows = [
        (*key, gpu, per_s)
        for key, group in both.groupby(keys, sort=True)
        if len(set(group.gpu)) > 1
        for gpu, per_s in _full_speeds(group).items()
    ]
    return pd.DataFrame(rows, columns=[*keys, "gpu", "per_s"])


def _full_speeds(group: pd.DataFrame) -> Mapping[str, float]:
    """Samples a second of each GPU at the largest batch size of all, or else at its own largest."""
    ran = group.groupby("batch_size").gpu.nunique()
    shared = ran[ran == len(set(group.gpu))].index
    if len(shared):
        group = group[group.batch_size == shared.max()]
    largest = group.sort_values("batch_size").groupby("gpu", sort=True).tail(1)
    return dict(zip(largest.gpu, largest.per_s, strict=True))


def speed_rows(kind: str, precision: str) -> FeatureRows:
    """Return the comparisons of GPUs for one kind of network in one precision; features: peak rate, bandwidth."""
    known = comparisons()
    rows = known[(known.kind == kind) & (known.precision == precision)]
    return FeatureRows(
        rows.gpu.tolist(),
        (rows.record + ", " + rows.workload).tolist(),
        np.array([_features(name, precision) for name in rows.gpu]),
        np.log(rows.per_s.to_numpy(float)),
    )


def _features(gpu: str, precision: str) -> tuple[float, float]:
    card = catalogue.gpu(gpu)
    return math.log(card.peak_tflops(precision)), math.log(card.mem_bw_gbs)


def fit_laws(power: Mapping[str, Power], timed: frozenset[str]) -> Laws:
    """Return all laws, from the power constants of GPUs with measurements of power and the GPUs with fitted times."""
    speed_laws, card_speeds = fit_speed_laws(timed)
    return Laws(speed_laws, card_speeds, fit_power_law(power), fit_workload_law())


def fit_speed_laws(
    timed: frozenset[str], *, without: str = ""
) -> tuple[dict[tuple[str, str], SpeedLaw], dict[tuple[str, str, str], CardSpeed]]:
    """Return (laws, speeds of the GPUs that the records speak of), without the records of one GPU.

    `timed` are the GPUs whose times were fitted; the others take the cells of one of them.
    """
    known = comparisons()
    laws, speeds = {}, {}
    classes = set(zip(known.kind, known.precision, strict=True))
    for kind, precision in sorted(classes, key=lambda one: (one != ("cnn", "fp32"), one)):
        rows = speed_rows(kind, precision)
        rows = rows.where([name != without for name in rows.items])
        law = fit_law(rows, SPEED_EXPONENTS)
        rate, bandwidth = (float(value) for value in law.exponents)
        laws[kind, precision] = SpeedLaw(rate, bandwidth, left_out_spread(rows, SPEED_EXPONENTS))
        for name in law.items:
            base = nearest_by(laws["cnn", "fp32"], catalogue.gpu(name), [catalogue.gpu(gpu) for gpu in sorted(timed)])
            apart = np.array(_features(name, precision)) - np.array(_features(base, precision))
            spread = law.ratio_spread(name, base, apart)
            speeds[name, kind, precision] = CardSpeed(law.offset_of(name), math.hypot(spread, _OTHER_PROGRAM))
    return laws, speeds


def fit_power_law(power: Mapping[str, Power]) -> PowerLaw:
    """Return the law of power constants from those of GPUs with measurements of power.

    Ratios are geometric means; the uncertainty is that of the dynamic power of a GPU that is left out.
    """
    cards = {name: catalogue.gpu(name) for name in power}
    logs = np.log([power[name].dynamic_w / (card.tdp_w - card.idle_w) for name, card in cards.items()])
    others = [np.delete(logs, index).mean() for index in range(len(logs))]

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    return PowerLaw(
        dynamic=float(np.exp(logs.mean())),
        knee=mean([power[name].knee_mhz / card.max_mhz for name, card in cards.items()]),
        memory_knee=mean([power[name].memory_knee_mhz / card.max_mhz for name, card in cards.items()]),
        v_min=mean([known.v_min for known in power.values()]),
        memory=mean([known.memory for known in power.values()]),
        sharing=mean([known.sharing for known in power.values()]),
        parked=mean([power[name].parked_w / card.idle_w for name, card in cards.items()]),
        uncertainty=float(np.sqrt(np.mean((logs - others) ** 2))),
    )


def workload_rows() -> FeatureRows:
    """Return times of a sample of the networks of Table IV, a full GPU, by GPU, record and kind of network."""
    times, models = table("times"), catalogue.models()
    alone = times[(times.processes == 1) & (times.mps_pct == 100) & times.sm_mhz.isna() & (times.precision == "fp32")]
    alone = alone[alone.workload.isin(list(models)) & alone.gpu.isin(list(catalogue.gpus()))]
    items, groups, logs = [], [], []
    for (gpu, framework), group in alone.groupby(["gpu", "framework"], sort=True):
        ran = group.groupby("batch_size").workload.nunique()
        at = group[group.batch_size == ran[ran == ran.max()].index.max()]
        items += at.workload.tolist()
        groups += [f"{gpu}, {framework}, {models[name].kind}" for name in at.workload]
        logs += np.log(at.time_s / at.batch_size).tolist()
    rows = FeatureRows(items, groups, np.array([workload_features(name) for name in items]), np.array(logs))
    return rows.where([groups.count(group) > 1 for group in groups])


def workload_features(name: str) -> tuple[float, float, float]:
    """Return the logarithms of operations, activations and layers of a network."""
    model = catalogue.model(name)
    return math.log(model.gflops), math.log(model.activations_m), math.log(model.layers)


def fit_workload_law() -> WorkloadLaw:
    """Return the law of the time of a sample; all kinds of networks have the same exponents, each its own level."""
    rows = workload_rows()
    law = fit_law(rows, TIME_EXPONENTS)
    gflops, activations, layers = (float(value) for value in law.exponents)
    return WorkloadLaw(gflops, activations, layers, left_out_spread(rows, TIME_EXPONENTS))
