"""Fit of the laws by which GPUs and networks without measurements are scaled, to all records that compare some.

`data/calibration/cards.csv` holds throughputs of several GPUs by one program; `times.csv` holds more of them. Laws are
fitted by kind of network and precision, since memory binds convolutions and arithmetic binds transformers.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
import pandas as pd

from heshare.devices.constants import CardSpeed, Laws, Power, PowerLaw, SpeedLaw, WorkloadLaw
from heshare.devices.derived_constants import LEAST_BATCH, nearest_by
from heshare.lab.calibration.measurements import records, table
from heshare.lab.calibration.scaling.feature_law import (
    FeatureRows,
    fit_law,
    left_out_errors,
    left_out_spread,
)
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

SPEED_EXPONENTS = (0.5, 0.5, 0.0, 0.0)
"""Means of the priors of peak rate and bandwidth (twice of both is twice the speed), and of what training adds."""
TIME_EXPONENTS = (0.5, 0.5, 0.0)
"""Means of the priors of operations, activations and layers."""
_LANGUAGE = {"bert": "transformer", "gpt": "transformer", "transformer": "decode"}
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
    alone = alone[(alone.batch_size >= LEAST_BATCH) & alone.gpu.isin(list(catalogue.gpus()))]
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
    """Return the comparisons of GPUs for one kind of network in one precision.

    Features are peak rate and bandwidth, and the same again for trainings, whose exponents may differ.
    """
    known = comparisons()
    rows = known[(known.kind == kind) & (known.precision == precision)]
    return FeatureRows(
        rows.gpu.tolist(),
        (rows.record + ", " + rows.workload).tolist(),
        np.array([_features(row.gpu, precision, row.workload) for row in records(rows)]),
        np.log(rows.per_s.to_numpy(float)),
    )


def _features(gpu: str, precision: str, workload: str = "") -> tuple[float, float, float, float]:
    card, training = catalogue.gpu(gpu), workload.endswith("-train")
    rate, bandwidth = math.log(card.peak_tflops(precision)), math.log(card.mem_bw_gbs)
    return rate, bandwidth, rate * training, bandwidth * training


def fit_laws(power: Mapping[str, Power], timed: frozenset[str]) -> Laws:
    """Return all laws, from the power constants of GPUs with measurements of power and the GPUs with fitted times."""
    speed_laws, card_speeds = fit_speed_laws(timed)
    return Laws(speed_laws, card_speeds, fit_power_law(power), fit_workload_law())


def fit_speed_laws(
    timed: frozenset[str],
) -> tuple[dict[tuple[str, str], SpeedLaw], dict[tuple[str, str, str], CardSpeed]]:
    """Return (laws, speeds of the GPUs that the records speak of).

    `timed` are the GPUs whose times were fitted; the others take the cells of one of them.
    """
    cards = [catalogue.gpu(name) for name in sorted(timed)]
    laws, speeds, spread = {}, {}, speed_spread()
    for kind, precision in speed_classes():
        rows = speed_rows(kind, precision)
        law = fit_law(rows, SPEED_EXPONENTS)
        rate, bandwidth = (float(value) for value in law.exponents[:2])
        laws[kind, precision] = SpeedLaw(rate, bandwidth, spread)
        for name in law.items:
            base = nearest_by(laws["cnn", "fp32"], catalogue.gpu(name), cards)
            apart = np.array(_features(name, precision)) - np.array(_features(base, precision))
            known = math.hypot(law.ratio_spread(name, base, apart), _OTHER_PROGRAM)
            speeds[name, kind, precision] = CardSpeed(law.offset_of(name), min(known, spread))
    return laws, speeds


def speed_classes() -> list[tuple[str, str]]:
    """Return each (kind of network, precision) for which GPUs were compared, CNNs in FP32 first."""
    known = comparisons()
    return sorted(
        set(zip(known.kind, known.precision, strict=True)), key=lambda group: (group != ("cnn", "fp32"), group)
    )


@cache
def _speed_errors(kind: str, precision: str) -> dict[str, FloatArray]:
    """{gpu: logarithmic errors of its speeds by the law without it} for one kind of network and precision."""
    return left_out_errors(speed_rows(kind, precision), SPEED_EXPONENTS)


def speed_spread(*, without: str = "") -> float:
    """Return the root mean square of the errors of every GPU that is left out, but for one GPU.

    Over all kinds of networks and precisions together: each has too few GPUs to tell apart how uncertain it is.
    """
    found = [_speed_errors(*group) for group in speed_classes()]
    errors = [logs for by_gpu in found for gpu, logs in by_gpu.items() if gpu != without]
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def speeds_without(gpu: str, kind: str, precision: str) -> Laws:
    """Return law and speeds of the other GPUs fitted without one, uncertain as the errors of the others say."""
    rows = speed_rows(kind, precision)
    law = fit_law(rows.where([name != gpu for name in rows.items]), SPEED_EXPONENTS)
    rate, bandwidth = (float(value) for value in law.exponents[:2])
    spread = speed_spread(without=gpu)
    others = {(name, kind, precision): CardSpeed(law.offset_of(name), spread) for name in law.items}
    return Laws({(kind, precision): SpeedLaw(rate, bandwidth, spread)}, others)


def fit_power_law(power: Mapping[str, Power]) -> PowerLaw:
    """Return the law of power constants from those of GPUs with measurements of power.

    Power above idle of a full GPU is a geometric mean over its limit less idle power, the others are means. The
    uncertainty is that of the power above idle of a GPU that is left out.
    """
    cards = {name: catalogue.gpu(name) for name in power}
    room_w = {name: card.tdp_w - card.idle_w for name, card in cards.items()}
    logs = np.log([(known.dynamic_w + known.clock_w) / room_w[name] for name, known in power.items()])
    others = [np.delete(logs, index).mean() for index in range(len(logs))]
    full, clock = float(np.exp(logs.mean())), [known.clock_w / room_w[name] for name, known in power.items()]

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    return PowerLaw(
        dynamic=full - mean(clock),
        clock=mean(clock),
        knee=mean(power[name].knee_mhz / card.max_mhz for name, card in cards.items()),
        memory_knee=mean(power[name].memory_knee_mhz / card.max_mhz for name, card in cards.items()),
        v_min=mean(known.v_min for known in power.values()),
        memory=mean(known.memory for known in power.values()),
        sharing=mean(known.sharing for known in power.values()),
        parked=mean(power[name].parked_w / card.idle_w for name, card in cards.items()),
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
