"""Errors of the pooled fit on what was left out of it: every laboratory whole, and half of the settings of each record.

A laboratory is predicted from the others: effects that only its rows support are 0. What an estimate of it is based on
(`uncertainty.SUPPORTS`) is judged by the rows that stay.

The intervals follow from these errors by conformal prediction for hierarchical data (Lee, Barber and Willett, 2023,
arXiv 2306.06342): laboratories, not rows, are exchangeable. Each of k laboratories weighs the same and a further one
is unbounded, so that a 90 % interval is the quantile at 0.9 (k + 1) / k.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.uncertainty import ALONE as IS_ALONE
from heshare.devices.uncertainty import CARD, CELL, NONE, NORMAL_90, SHARED, SUPPORTS, Uncertainty
from heshare.lab.calibration.observations import LIMIT, Observation
from heshare.lab.calibration.pooled_fit import Fit, PooledProblem, Values
from heshare.shared.arrays import BoolArray, FloatArray

TIME, POWER = "time", "power"
INSIDE = 0.9
"""Part of the errors that an interval should hold."""
LEAST_LABORATORIES = 9
"""Laboratories from which on 0.9 (k + 1) / k is at most 1; groups of fewer are pooled."""
LEFT_OUT_STEPS = 3
"""Steps of a fit without a laboratory, from the fit of all."""


@dataclass(frozen=True)
class LeftOut:
    """Errors of n observations in fits that did not see them.

    Attributes:
        errors: log(modelled / measured) of time and of power, (2, n); NaN where nothing was measured.
        support: what each estimate is based on, (n,).
        fits: the effects without each laboratory, by laboratory.
    """

    errors: FloatArray
    support: tuple[str, ...]
    fits: Mapping[str, Values]


def laboratories(problem: PooledProblem, fit: Fit, used: BoolArray, progress: Callable[[str], None]) -> LeftOut:
    """Return the errors on each laboratory from a fit to the others."""
    names = np.array([row.laboratory for row in problem.rows])
    errors = np.full(problem.measured.shape, np.nan)
    support = np.full(len(names), NONE, dtype=object)
    fits, slopes = {}, problem.derivatives(fit.effects, used)
    for name in dict.fromkeys(names.tolist()):
        progress(name)
        left_out = names == name
        train = used & ~left_out

        fits[name] = problem.fit(train, problem.supported(fit.effects, train), LEFT_OUT_STEPS, slopes).effects
        errors[:, left_out] = problem.errors(fits[name])[:, left_out]
        support[left_out] = supports(
            [row for row, keep in zip(problem.rows, train, strict=True) if keep], problem.rows, left_out
        )
    return LeftOut(errors, tuple(support.tolist()), fits)


def halves(problem: PooledProblem, fit: Fit, used: BoolArray) -> FloatArray:
    """Return the errors, (2, n), on every other setting of each record, from a fit to the others; NaN for these.

    Rows with the same residents and clock are one setting. The rows that are not `used` are tested as well.
    """
    settings = [(row.record, row.sm_mhz, tuple(sorted(map(str, row.tasks)))) for row in problem.rows]
    order = {setting: place for place, setting in enumerate(dict.fromkeys(settings))}
    train = used & np.array([order[setting] % 2 == 0 for setting in settings])
    # A ratio needs both of its rows, which alone have a limit.
    train |= np.array([bool(np.isfinite(row.cap_w)) for row in problem.rows])

    partial = problem.fit(train, problem.supported(fit.effects, train), LEFT_OUT_STEPS)
    errors = problem.errors(partial.effects)
    errors[:, train] = np.nan
    return errors


def supports(train: Sequence[Observation], rows: Sequence[Observation], tested: BoolArray) -> list[str]:
    """Return what estimates of the rows `tested` are based on, if only the rows `train` are known."""
    cells = {(row.gpu.name, row.engine, row.precision, task.network.name) for row in train for task in row.tasks}
    cards = {(gpu, precision) for gpu, _, precision, _ in cells}
    found = []
    for row in (row for row, chosen in zip(rows, tested, strict=True) if chosen):
        key = row.gpu.name, row.engine, row.precision
        has_cell = all((*key, task.network.name) in cells for task in row.tasks)
        on_card = (row.gpu.name, row.precision) in cards
        found.append(CELL if has_cell else CARD if on_card else NONE)
    return found


def quantile(errors: FloatArray, weights: FloatArray, part: float = INSIDE) -> float:
    """Return the weighted quantile of absolute errors, (n,)."""
    order = np.argsort(np.abs(errors), kind="stable")
    cumulated = np.cumsum(weights[order])
    place = int(np.searchsorted(cumulated, part * cumulated[-1]))
    return float(np.abs(errors)[order][min(place, len(order) - 1)])


def group_table(problem: PooledProblem, left_out: LeftOut) -> pd.DataFrame:
    """Return one row an error of a left-out laboratory: quantity, support, sharing, record, laboratory, error, weight.

    A record of n rows weighs as in the fit.
    """
    weights = problem.weights(np.ones(len(problem.rows), dtype=bool))
    parts = []
    for place, quantity in enumerate((TIME, POWER)):
        frame = pd.DataFrame(
            {
                "quantity": [quantity if row.kind != LIMIT else LIMIT for row in problem.rows],
                "support": left_out.support,
                "sharing": [SHARED if len(row.tasks) > 1 else IS_ALONE for row in problem.rows],
                "record": problem.records,
                "laboratory": [row.laboratory for row in problem.rows],
                "error": left_out.errors[place],
                "weight": weights[place],
            }
        )
        parts.append(frame[frame["error"].notna()])
    return pd.concat(parts, ignore_index=True)


def intervals(errors: pd.DataFrame, within: pd.DataFrame) -> dict[tuple[str, str, str], Uncertainty]:
    """Return the conformal uncertainty of each group; arguments as from `group_table`.

    `errors` are those of laboratories left out (`half_width`), `within` those of settings left out of a record, of
    which each group of a quantity and sharing takes the quantile.
    """
    found = {}
    for quantity, support, sharing in product((TIME, POWER), SUPPORTS, (IS_ALONE, SHARED)):
        of_record = within[(within["quantity"] == quantity) & (within["sharing"] == sharing)]
        total, of_framework = half_width(errors, quantity, support, sharing), _quantile_of(of_record)
        found[quantity, support, sharing] = Uncertainty(max(total, of_framework) / NORMAL_90, of_framework / NORMAL_90)

    spread = _quantile_of(errors[errors["quantity"] == LIMIT]) / NORMAL_90
    found["limit", "", ""] = Uncertainty(spread, spread)
    shared = found[TIME, CELL, SHARED].within_framework
    found["slowdown", "", "mps"] = Uncertainty(shared, shared)
    return found


def half_width(errors: pd.DataFrame, quantity: str, support: str, sharing: str) -> float:
    """Return the largest absolute log error inside the 90 % interval of a group; `errors` as from `group_table`.

    The first of these sets of rows with at least `LEAST_LABORATORIES` laboratories decides: the group; its support,
    alone and shared; that with supports by fewer rows, one after the other. If none has as many, no quantile over
    laboratories is finite, and the largest of the quantiles of single laboratories, of all rows of the quantity, is
    taken.
    """
    of_quantity = errors[errors["quantity"] == quantity]
    weaker = SUPPORTS[SUPPORTS.index(support) :]
    group = of_quantity[(of_quantity["support"] == support) & (of_quantity["sharing"] == sharing)]
    pools = [of_quantity[of_quantity["support"].isin(weaker[: count + 1])] for count in range(len(weaker))]

    for pool in (group, *pools):
        if pool["laboratory"].nunique() >= LEAST_LABORATORIES:
            return _over_laboratories(pool)
    return max(_quantile_of(own) for _, own in of_quantity.groupby("laboratory"))


def _over_laboratories(pool: pd.DataFrame) -> float:
    # The quantile with the same weight for each of k laboratories and for a further, unbounded one.
    count = pool["laboratory"].nunique()
    of_laboratory = pool.groupby("laboratory")["weight"].transform("sum")
    same = pool.assign(weight=pool["weight"] / of_laboratory)
    return _quantile_of(same, INSIDE * (count + 1) / count)


def _quantile_of(rows: pd.DataFrame, part: float = INSIDE) -> float:
    return quantile(rows["error"].to_numpy(float), rows["weight"].to_numpy(float), part)


def coverage(errors: pd.DataFrame) -> pd.DataFrame:
    """Return how often the interval of each group holds what was measured, and its width.

    The interval of a row is that of its group without the row's own laboratory.

    Returns:
        Columns quantity, support, sharing, n, laboratories, within_90_pct (weighted as in the fit), width (upper end
        over lower end).
    """
    rows = []
    groups = errors[errors["quantity"] != LIMIT].groupby(["quantity", "support", "sharing"], sort=False)
    for keys, part in groups:
        quantity, support, sharing = map(str, keys)
        absolute = part["error"].abs()
        inside = pd.Series(data=False, index=part.index)
        for laboratory in part["laboratory"].unique():
            own = part["laboratory"] == laboratory
            others = errors[errors["laboratory"] != laboratory]
            inside[own] = absolute[own] <= half_width(others, quantity, support, sharing)

        share = float(np.average(inside, weights=part["weight"]))
        width = math.exp(2.0 * half_width(errors, quantity, support, sharing))
        rows.append((quantity, support, sharing, len(part), part["laboratory"].nunique(), 100.0 * share, width))
    return pd.DataFrame(rows, columns=["quantity", "support", "sharing", "n", "laboratories", "within_90_pct", "width"])


def errors_by(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return errors by group, %: n, bias_pct, mape_pct (mean), median_pct and p90_pct of the absolute error."""
    relative = 100.0 * np.expm1(frame["error"])
    grouped = frame.assign(signed=relative, error_pct=relative.abs()).groupby(list(keys), sort=False)
    found = grouped.agg(
        n=("signed", "size"),
        bias_pct=("signed", "mean"),
        mape_pct=("error_pct", "mean"),
        median_pct=("error_pct", "median"),
        p90_pct=("error_pct", lambda part: part.quantile(0.9)),
    )
    return found.reset_index()
