"""Errors of the pooled fit on what was left out of it: every laboratory whole, and half of the settings of each record.

A laboratory is predicted from the others: effects that only its rows support are 0. What an estimate of it is based on
(`uncertainty.SUPPORTS`) is judged by the rows that stay. The intervals follow from these errors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
LEAST_ROWS = 20
"""Rows below which a group takes the interval of all groups of its quantity and sharing."""
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

    `errors` are those of laboratories left out, `within` those of settings left out of a record. A group with fewer
    than `LEAST_ROWS` rows takes all supports of its quantity and sharing, and then all sharings.
    """
    found = {}
    for quantity in (TIME, POWER):
        for support in SUPPORTS:
            for sharing in (IS_ALONE, SHARED):
                total = _spread(errors, quantity, support, sharing)
                of_framework = _spread(within, quantity, CELL, sharing)
                found[quantity, support, sharing] = Uncertainty(max(total, of_framework), of_framework)

    limit = errors[errors["quantity"] == LIMIT]
    spread = quantile(limit["error"].to_numpy(float), limit["weight"].to_numpy(float)) / NORMAL_90
    found["limit", "", ""] = Uncertainty(spread, spread)
    shared = _spread(within, TIME, CELL, SHARED)
    found["slowdown", "", "mps"] = Uncertainty(shared, shared)
    return found


def _spread(errors: pd.DataFrame, quantity: str, support: str, sharing: str) -> float:
    of_quantity = errors[errors["quantity"] == quantity]
    of_sharing = of_quantity[of_quantity["sharing"] == sharing]
    of_group = of_sharing[of_sharing["support"] == support]
    chosen = next((part for part in (of_group, of_sharing) if len(part) >= LEAST_ROWS), of_quantity)
    return quantile(chosen["error"].to_numpy(float), chosen["weight"].to_numpy(float)) / NORMAL_90


def coverage(errors: pd.DataFrame) -> pd.DataFrame:
    """Return how often the interval of each group holds what was measured, and its width.

    The interval of a row is that of its group without the row's own laboratory.

    Returns:
        Columns quantity, support, sharing, n, laboratories, within_90_pct (weighted as in the fit), width (upper end
        over lower end).
    """
    rows = []
    for (quantity, support, sharing), part in errors[errors["quantity"] != LIMIT].groupby(
        ["quantity", "support", "sharing"], sort=False
    ):
        inside = np.zeros(len(part))
        for laboratory in part["laboratory"].unique():
            others = errors[errors["laboratory"] != laboratory]
            spread = _spread(others, str(quantity), str(support), str(sharing))
            is_left_out = (part["laboratory"] == laboratory).to_numpy()
            inside[is_left_out] = np.abs(part["error"].to_numpy(float)[is_left_out]) <= NORMAL_90 * spread

        share = float(np.average(inside, weights=part["weight"]))
        width = float(np.exp(2.0 * NORMAL_90 * _spread(errors, str(quantity), str(support), str(sharing))))
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
