"""Fit of a law from features to measured speeds or times, and its errors on items that were left out.

The logarithm of what was measured is a group's level, plus exponents times the logarithms of features, plus an offset
of the item (a card, a workload), plus noise. A group holds measurements that differ in nothing but the item. Exponents
and offsets have normal priors, so the fit is a linear system, and items without measurements have the offset 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from heshare.shared.arrays import FloatArray

EXPONENT_SPREAD = 0.3
"""Standard deviation of the prior of an exponent."""
_LEVEL_SPREAD = 10.0
_OFFSETS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
_NOISES = (0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True)
class FeatureRows:
    """n measurements.

    Attributes:
        items: the item of each (a card or a workload), n names.
        groups: what else decides the level of each, n names.
        features: logarithms of the item's features, (n, k).
        logs: logarithms of what was measured, (n,).
    """

    items: Sequence[str]
    groups: Sequence[str]
    features: FloatArray
    logs: FloatArray

    def __len__(self) -> int:
        return len(self.items)

    def where(self, kept: Sequence[bool]) -> "FeatureRows":
        """Return the rows that are kept."""
        chosen = [row for row, keep in enumerate(kept) if keep]
        items, groups = ([names[row] for row in chosen] for names in (self.items, self.groups))
        return FeatureRows(items, groups, self.features[chosen], self.logs[chosen])


@dataclass(frozen=True)
class FeatureLaw:
    """A fitted law.

    Attributes:
        items: the items with an offset.
        groups: the groups with a level.
        mean: exponents, offsets, levels; (k + items + groups,).
        covariance: of the same.
        noise: standard deviation of a measurement about exponents, offset and level.
        offset: standard deviation of the offsets.
    """

    items: tuple[str, ...]
    groups: tuple[str, ...]
    mean: FloatArray
    covariance: FloatArray
    noise: float
    offset: float

    @property
    def exponents(self) -> FloatArray:
        """The exponent of each feature, (k,)."""
        return self.mean[: len(self.mean) - len(self.items) - len(self.groups)]

    def offset_of(self, item: str) -> float:
        """Return the offset of an item, 0 without measurements."""
        return float(self.mean[len(self.exponents) + self.items.index(item)]) if item in self.items else 0.0

    def ratio_spread(self, item: str, other: str, features: FloatArray) -> float:
        """Return the standard deviation of the logarithm of a measured ratio of two items.

        `features` are those of `item` less those of `other`, (k,).
        """
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


def left_out_spread(rows: FeatureRows, exponents: Sequence[float]) -> float:
    """Return the root mean square of the logarithmic errors when each item is left out in turn."""
    return root_mean_square(left_out_errors(rows, exponents), without="")


def root_mean_square(errors: Mapping[str, FloatArray], *, without: str) -> float:
    """Return the root mean square of the errors of every item but one."""
    return float(np.sqrt(np.mean(np.concatenate([logs for item, logs in errors.items() if item != without]) ** 2)))


def _prior(sizes: tuple[int, int, int], offset: float) -> FloatArray:
    """Prior variances of exponents, offsets and levels."""
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
