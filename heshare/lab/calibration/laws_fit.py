"""Fit of the laws by which GPUs and networks without measurements are scaled, to all records that compare some.

`data/calibration/cards.csv` holds throughputs of several GPUs by one program; `times.csv` holds more of them. Laws are
fitted by kind of network and precision, since memory binds convolutions and arithmetic binds transformers.

In a law the logarithm of what was measured is a group's level, plus exponents times the logarithms of features, plus an
offset of the item (a card, a workload), plus noise. A group holds measurements that differ in nothing but the item.
Exponents and offsets have normal priors, so the fit is a linear system, and items without measurements have the offset
0.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.constants import CardSpeed, Laws, Power, PowerLaw, SpeedLaw, WorkloadLaw
from heshare.devices.derived_constants import LEAST_BATCH, nearest_by
from heshare.lab.calibration.intervals import quantile_spread
from heshare.lab.calibration.measurements import records, table
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue

EXPONENT_SPREAD = 0.3
"""Standard deviation of the prior of an exponent."""
_LEVEL_SPREAD = 10.0
_OFFSETS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
_NOISES = (0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True)
class FeatureRows:
    """n measurements: items (cards or workloads), groups, features of the items, (n, k), and what was measured, (n,).

    A group is what else decides the level; features and measurements are logarithms.
    """

    items: Sequence[str]
    groups: Sequence[str]
    features: FloatArray
    logs: FloatArray

    def __len__(self) -> int:
        return len(self.items)

    def where(self, kept: Sequence[bool]) -> "FeatureRows":
        chosen = [row for row, keep in enumerate(kept) if keep]
        items, groups = ([names[row] for row in chosen] for names in (self.items, self.groups))
        return FeatureRows(items, groups, self.features[chosen], self.logs[chosen])


@dataclass(frozen=True)
class FeatureLaw:
    """A fitted law: items with an offset, groups with a level; mean and covariance of exponents, offsets, levels.

    `noise` is the standard deviation of a measurement about these, `offset` that of the offsets.
    """

    items: tuple[str, ...]
    groups: tuple[str, ...]
    mean: FloatArray
    covariance: FloatArray
    noise: float
    offset: float

    @property
    def exponents(self) -> FloatArray:
        return self.mean[: len(self.mean) - len(self.items) - len(self.groups)]

    def offset_of(self, item: str) -> float:
        return float(self.mean[len(self.exponents) + self.items.index(item)]) if item in self.items else 0.0

    def ratio_spread(self, item: str, other: str, features: FloatArray) -> float:
        """Return the spread of the logarithm of a measured ratio; `features` of one item less the other's."""
        row = np.zeros(len(self.mean))
        row[: len(features)] = features
        for name, sign in ((item, 1.0), (other, -1.0)):
            row[len(features) + self.items.index(name)] += sign
        return float(np.sqrt(row @ self.covariance @ row + self.noise**2))


def fit_law(rows: FeatureRows, exponents: Sequence[float], *, extra: str | None = None) -> FeatureLaw:
    """Return the law of the rows; `exponents` are the means of the priors, `extra` an item without measurements.

    The spreads of offsets and noise are those of a grid under which the measurements are most likely.
    """
    items = tuple(sorted({*rows.items, *(() if extra is None else (extra,))}))
    groups = tuple(sorted(set(rows.groups)))
    design = _design(rows, items, groups)
    start = np.concatenate([exponents, np.zeros(len(items)), np.full(len(groups), rows.logs.mean())])
    sizes = len(exponents), len(items), len(groups)
    _, offset, noise = max(
        (_posterior(design, rows.logs, start, _prior(sizes, offset), noise)[2], offset, noise)
        for offset, noise in product(_OFFSETS, _NOISES)
    )
    mean, covariance, _ = _posterior(design, rows.logs, start, _prior(sizes, offset), noise)
    return FeatureLaw(items, groups, mean, covariance, noise, offset)


def left_out(rows: FeatureRows, exponents: Sequence[float], item: str) -> tuple[FeatureRows, FloatArray, FloatArray]:
    """Return (rows of an item in groups that hold another, logarithms predicted without it, their spreads)."""
    others = rows.where([name != item for name in rows.items])
    unseen = rows.where(
        [name == item and group in others.groups for name, group in zip(rows.items, rows.groups, strict=True)]
    )
    if not len(unseen):
        return unseen, np.empty(0), np.empty(0)
    law = fit_law(others, exponents, extra=item)
    design = _design(unseen, law.items, law.groups)
    variance = np.einsum("ni,ij,nj->n", design, law.covariance, design) + law.noise**2
    return unseen, design @ law.mean, np.sqrt(variance)


def left_out_errors(rows: FeatureRows, exponents: Sequence[float]) -> dict[str, FloatArray]:
    """Return {item: logarithmic errors of its rows, predicted without it}, of items in groups that hold another."""
    found = {item: left_out(rows, exponents, item) for item in sorted(set(rows.items))}
    return {item: predicted - unseen.logs for item, (unseen, predicted, _) in found.items() if len(unseen)}


def pooled_spread(errors: Mapping[str, FloatArray], *, without: str = "") -> float:
    """Return the spread whose 90 % interval holds nine in ten of the errors of every item but one."""
    return quantile_spread([np.concatenate([logs for item, logs in errors.items() if item != without])])


def _prior(sizes: tuple[int, int, int], offset: float) -> FloatArray:
    exponents, items, groups = sizes
    return np.array([EXPONENT_SPREAD] * exponents + [offset] * items + [_LEVEL_SPREAD] * groups) ** 2


def _posterior(
    design: FloatArray, logs: FloatArray, start: FloatArray, prior: FloatArray, noise: float
) -> tuple[FloatArray, FloatArray, float]:
    """(mean, covariance, log likelihood) under prior variances and a noise."""
    total = design * prior @ design.T + noise**2 * np.eye(len(logs))
    misfit = logs - design @ start
    gain = np.linalg.solve(total, design * prior).T
    likelihood = -0.5 * misfit @ np.linalg.solve(total, misfit) - 0.5 * float(np.linalg.slogdet(total)[1])
    return start + gain @ misfit, np.diag(prior) - gain @ (design * prior), float(likelihood)


def _design(rows: FeatureRows, items: Sequence[str], groups: Sequence[str]) -> FloatArray:
    """Features, one column an item, one column a group; (n, k + items + groups)."""
    of_item = np.array([[float(name == item) for item in items] for name in rows.items])
    of_group = np.array([[float(name == group) for group in groups] for name in rows.groups])
    return np.hstack([rows.features, of_item, of_group])


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

    Columns kind, precision, record, workload, gpu, per_s (samples a second, at the largest batch size that all GPUs of
    the record ran, or else at each one's largest).
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
            compared = law.ratio_spread(name, base, apart) if base in law.items else spread
            known = math.hypot(compared, _OTHER_PROGRAM)
            speeds[name, kind, precision] = CardSpeed(law.offset_of(name), min(known, spread))
    return laws, speeds


def speed_classes() -> list[tuple[str, str]]:
    known = comparisons()
    return sorted(
        set(zip(known.kind, known.precision, strict=True)), key=lambda group: (group != ("cnn", "fp32"), group)
    )


@cache
def _speed_errors(kind: str, precision: str) -> dict[str, FloatArray]:
    return left_out_errors(speed_rows(kind, precision), SPEED_EXPONENTS)


def speed_spread(*, without: str = "") -> float:
    """Return the spread of the errors of every GPU that is left out, but for one GPU.

    Over all kinds of networks and precisions together: each has too few GPUs to tell apart how uncertain it is.
    """
    found = [_speed_errors(*group) for group in speed_classes()]
    return quantile_spread([np.concatenate([logs for own in found for gpu, logs in own.items() if gpu != without])])


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
    clock_w = {name: known.clock_w + known.idle_clock_w for name, known in power.items()}
    logs = np.log([(known.dynamic_w + clock_w[name]) / room_w[name] for name, known in power.items()])
    others = [np.delete(logs, index).mean() for index in range(len(logs))]
    full, clock = float(np.exp(logs.mean())), [clock_w[name] / room_w[name] for name in power]

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
        cache=mean(known.cache_mb / cards[name].l2_mib for name, known in power.items()),
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
    own = map(models.__getitem__, items)
    features = [tuple(map(math.log, (model.gflops, model.activations_m, model.layers))) for model in own]
    rows = FeatureRows(items, groups, np.array(features), np.array(logs))
    return rows.where([groups.count(group) > 1 for group in groups])


def fit_workload_law() -> WorkloadLaw:
    rows = workload_rows()
    law = fit_law(rows, TIME_EXPONENTS)
    gflops, activations, layers = (float(value) for value in law.exponents)
    return WorkloadLaw(gflops, activations, layers, pooled_spread(left_out_errors(rows, TIME_EXPONENTS)))
