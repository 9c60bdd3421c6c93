"""The cells of the factorial of choices that the paper leaves open: their numbers, counts and effects."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from heshare.paper.claims.factorial import AXES, DURATIONS, QUEUEING, RATIO, SHIPPED, SIZES, THROTTLE, axes_of, cells_of
from heshare.paper.claims.fig6_numbers import NUMBERS, numbers
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.claims.verdicts import is_near
from heshare.paper.harness import ENERGY, JCT, TITLE, Setting

Titles = Mapping[str, str]
"""Titles of policies in the runs of a cell, by their titles in Fig. 6."""
_OF_SETTING = {DURATIONS: "durations", RATIO: "platform", SIZES: "batch_sizes"}
"""Axes that are fields of a setting; the others choose among the systems that ran."""
_PLANS = {plan: plan for plan in ("Trade-off", "En-opt", "JCT-opt")}


def cells(runs: pd.DataFrame, queueing: Mapping[str, Titles], throttle: Mapping[str, Titles]) -> pd.DataFrame:
    """Return the numbers of Fig. 6 in each cell of the factorial.

    Args:
        runs: as from `harness.run`, of a setting for each combination of task sizes, T4 and inference batch sizes.
        queueing: for each level the titles of Random and Sched-only in the runs.
        throttle: for each level the titles of the baselines in the runs.

    Returns:
        One row a cell and number: the columns `factorial.AXES`, id, part, value, low, high, n, provenance.
    """
    frames = []
    for place, part in _by_setting(runs):
        for (waiting, queued), (limits, throttled) in product(queueing.items(), throttle.items()):
            about = {**place, QUEUEING: waiting, THROTTLE: limits}
            frames.append(numbers(part, {**queued, **throttled}).assign(**about))

    columns = [*AXES, "id", "part", "value", "low", "high", "n"]
    return pd.concat(frames, ignore_index=True)[columns].assign(provenance="emulated")


def _by_setting(runs: pd.DataFrame) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return the runs of each setting, with its levels by axis."""
    groups = runs.groupby(list(_OF_SETTING.values()), sort=False)
    return [(dict(zip(_OF_SETTING, key, strict=True)), part) for key, part in groups]


def h5_holds(runs: pd.DataFrame, queueing: Mapping[str, Titles], throttle: Mapping[str, Titles]) -> pd.DataFrame:
    """Return in which cells H5 holds: Random is worst in energy and JCT, and Sched-only best in neither.

    Arguments are as of `cells`.

    Returns:
        One row a cell: the columns `factorial.AXES`, h5.
    """
    rows = []
    for place, part in _by_setting(runs):
        middle = part.groupby(TITLE)[[ENERGY, JCT]].median()
        for (waiting, queued), (limits, throttled) in product(queueing.items(), throttle.items()):
            titles = {**_PLANS, **queued, **throttled}
            here = middle.loc[list(titles.values())]
            poorest = bool((here.idxmax() == titles["Random"]).all())
            best = bool((here.idxmin() == titles["Sched-only"]).any())
            rows.append({**place, QUEUEING: waiting, THROTTLE: limits, "h5": poorest and not best})
    return pd.DataFrame(rows)


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many of the eight numbers hold in each cell, in descending order.

    A number holds where its median lies within a quarter of the paper's effect. Cells with equal counts
    are sorted by the mean distance of their medians to the paper's values, as a part of the effect.

    Args:
        table: as from `cells`.

    Returns:
        One row a cell: the columns `factorial.AXES`, shipped (whether it is the shipped one), the value of each number
        (such as `H1 energy`), held, inside (the paper's value lies in the interval), off (the mean distance),
        provenance.
    """
    claims = [paper_claims()[key] for key in zip(table["id"], table["part"], strict=True)]
    paper = np.array([claim.value for claim in claims])
    judged = table.assign(
        number=[claim.name for claim in claims],
        held=[is_near(claim, value) for claim, value in zip(claims, table["value"], strict=True)],
        inside=(table["low"] <= paper) & (paper <= table["high"]),
        off=np.abs(table["value"] / paper - 1.0),
    )

    axes = list(AXES)
    values = judged.pivot_table(index=axes, columns="number", values="value", sort=False)
    totals = judged.groupby(axes, sort=False).agg(held=("held", "sum"), inside=("inside", "sum"), off=("off", "mean"))
    found = values.join(totals).reset_index()
    found.insert(len(axes), "shipped", [row == SHIPPED for row in found[axes].to_dict("records")])

    ordered = found.sort_values(["held", "off"], ascending=[False, True], kind="stable", ignore_index=True)
    return ordered.assign(provenance="emulated")


def effects(table: pd.DataFrame) -> pd.DataFrame:
    """Return the effect of each axis on each number: the mean change between two cells that differ in that axis alone.

    Args:
        table: as from `cells`.

    Returns:
        One row a number and an axis of several levels that enters it: id, part, axis, change (mean absolute change,
        percentage points), shift (mean change from an earlier level to a later one), pairs (of cells), provenance.
    """
    rows = []
    for id, part in NUMBERS:
        claim = paper_claims()[id, part]
        cells_of_number = cells_of(table, claim)
        for axis in axes_of(claim):
            others = [other for other in axes_of(claim) if other != axis]
            levels = cells_of_number.pivot_table(index=others, columns=axis, values="value", sort=False)
            steps = [levels[later] - levels[earlier] for earlier, later in combinations(levels.columns, 2)]
            if not steps:
                continue

            step = pd.concat(steps)
            about = {"id": id, "part": part, "axis": axis}
            rows.append({**about, "change": step.abs().mean(), "shift": step.mean(), "pairs": len(step)})
    return pd.DataFrame(rows).assign(provenance="emulated")


def batch_sizes(text: str) -> tuple[int, ...]:
    """Return the inference batch sizes of a level such as `4+8`."""
    return tuple(int(size) for size in text.split("+"))


def settings_of(chosen: pd.DataFrame, setting: Setting) -> list[Setting]:
    """Return the settings of some cells, each once; `chosen` has the columns `factorial.AXES`."""
    rows = chosen.to_dict("records")
    found = [
        replace(setting, durations=row[DURATIONS], platform=row[RATIO], batch_sizes=batch_sizes(row[SIZES]))
        for row in rows
    ]
    return list(dict.fromkeys(found))
