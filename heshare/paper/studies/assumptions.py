"""What the paper leaves open: the cells of the factorial, the numbers that hold in each, and one choice at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

import numpy as np
import pandas as pd

from heshare.paper import harness
from heshare.paper.claims.factorial import AXES, DURATIONS, QUEUEING, RATIO, SHIPPED, SIZES, THROTTLE, axes_of, cells_of
from heshare.paper.claims.fig6_numbers import NUMBERS, numbers
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.claims.verdicts import is_near
from heshare.paper.harness import ENERGY, JCT, TITLE, Setting
from heshare.paper.studies import motivation, platforms

Titles = Mapping[str, str]
"""Titles of policies in the runs of a cell, by their titles in Fig. 6."""
_OF_SETTING = {DURATIONS: "durations", RATIO: "platform", SIZES: "batch_sizes"}
"""Axes of the factorial that are fields of a setting; the others choose among systems."""


# --- The factorial


def cells(runs: pd.DataFrame, queueing: Mapping[str, Titles], throttle: Mapping[str, Titles]) -> pd.DataFrame:
    """Return the numbers of Fig. 6 in each cell of the factorial.

    Args:
        runs: as from `harness.run`, of one setting for each combination of task sizes, T4 and inference batch sizes.
        queueing: for each level the titles of Random and Sched-only in the runs.
        throttle: for each level the titles of the rivals in the runs.

    Returns:
        One row a cell and number: the columns `factorial.AXES`, id, part, value, low, high, n, provenance.
    """
    frames = []
    for key, part in runs.groupby(list(_OF_SETTING.values()), sort=False):
        place = dict(zip(_OF_SETTING, key, strict=True))
        for (queue, waiting), (limits, throttled) in product(queueing.items(), throttle.items()):
            about = {**place, QUEUEING: queue, THROTTLE: limits}
            frames.append(numbers(part, {**waiting, **throttled}).assign(**about))

    columns = [*AXES, "id", "part", "value", "low", "high", "n"]
    return pd.concat(frames, ignore_index=True)[columns].assign(provenance="emulated")


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many of the eight numbers hold in each cell, the most first.

    A number holds where its median lies within a quarter of the paper's effect. Of cells with equal counts that is
    first whose medians are nearer to the paper's values, on average and as a part of the effect.

    Args:
        table: as from `cells`.

    Returns:
        One row a cell: the columns `factorial.AXES`, shipped (whether it is the shipped one), the value of each number
        (such as `H1 energy`), held, inside (the paper's value lies in the interval), off (the mean distance),
        provenance.
    """
    names = table["id"] + " " + table["part"]
    claims = [paper_claims()[key] for key in zip(table["id"], table["part"], strict=True)]
    paper = np.array([claim.value for claim in claims])
    judged = table.assign(
        number=names,
        held=[is_near(claim, value) for claim, value in zip(claims, table["value"], strict=True)],
        inside=(table["low"] <= paper) & (paper <= table["high"]),
        off=np.abs(table["value"] / paper - 1.0),
    )

    values = judged.pivot_table(index=list(AXES), columns="number", values="value", sort=False)
    totals = judged.groupby(list(AXES), sort=False).agg(held=("held", "sum"), inside=("inside", "sum"), off=("off", "mean"))
    found = values.join(totals).reset_index()
    found.insert(len(AXES), "shipped", [row == SHIPPED for row in found[list(AXES)].to_dict("records")])
    ordered = found.sort_values(["held", "off"], ascending=[False, True], kind="stable", ignore_index=True)
    return ordered.assign(provenance="emulated")


def batch_sizes(text: str) -> tuple[int, ...]:
    """Return the inference batch sizes of a level such as `4+8`."""
    return tuple(int(size) for size in text.split("+"))


def settings_of(chosen: pd.DataFrame, setting: Setting) -> list[Setting]:
    """Return the settings of some cells, each once; `chosen` has the columns `factorial.AXES`."""
    found = []
    for row in chosen.to_dict("records"):
        sizes = batch_sizes(row[SIZES])
        found.append(replace(setting, durations=row[DURATIONS], platform=row[RATIO], batch_sizes=sizes))
    return list(dict.fromkeys(found))


def effects(table: pd.DataFrame) -> pd.DataFrame:
    """Return how far each axis moves each number: the mean change between two cells that differ in that axis alone.

    Args:
        table: as from `cells`.

    Returns:
        One row a number and an axis that enters it: id, part, axis, change (mean absolute change, percentage points),
        shift (mean change from an earlier level to a later one), pairs (of cells), provenance.
    """
    rows = []
    for id, part in NUMBERS:
        claim = paper_claims()[id, part]
        own = cells_of(table, claim)
        for axis in axes_of(claim):
            others = [other for other in axes_of(claim) if other != axis]
            levels = own.pivot(index=others, columns=axis, values="value")[own[axis].unique()]
            steps = [levels[later] - levels[earlier] for earlier, later in combinations(levels.columns, 2)]
            step = pd.concat(steps)
            about = {"id": id, "part": part, "axis": axis}
            rows.append({**about, "change": step.abs().mean(), "shift": step.mean(), "pairs": len(step)})
    return pd.DataFrame(rows).assign(provenance="emulated")


def h5_holds(runs: pd.DataFrame, queueing: Mapping[str, Titles], throttle: Mapping[str, Titles]) -> pd.DataFrame:
    """Return in which cells H5 holds: Random is poorest in both metrics, and Sched-only best in neither.

    Arguments are as of `cells`.

    Returns:
        One row a cell: the columns `factorial.AXES`, h5.
    """
    plans = {plan: plan for plan in ("Trade-off", "En-opt", "JCT-opt")}
    rows = []
    for key, part in runs.groupby(list(_OF_SETTING.values()), sort=False):
        middle = part.groupby(TITLE)[[ENERGY, JCT]].median()
        for (queue, waiting), (limits, throttled) in product(queueing.items(), throttle.items()):
            titles = {**plans, **waiting, **throttled}
            here = middle.loc[list(titles.values())]
            poorest = (here.idxmax() == titles["Random"]).all()
            best = (here.idxmin() == titles["Sched-only"]).any()
            about = {**dict(zip(_OF_SETTING, key, strict=True)), QUEUEING: queue, THROTTLE: limits}
            rows.append({**about, "h5": bool(poorest and not best)})
    return pd.DataFrame(rows)


# --- One choice at a time


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that the paper leaves open, where it differs from the shipped one in one thing.

    Attributes:
        axis: what is chosen.
        level: how.
        setting: the setting of the runs.
        instead: descriptions of the policies that the choice changes, by title.
        base: axis and level of the choice that this one is compared with; none is the shipped setting.
    """

    axis: str
    level: str
    setting: Setting
    instead: Mapping[str, str] = field(default_factory=dict)
    base: tuple[str, str] = ("", "")


def choices(
    setting: Setting,
    settings: Mapping[str, Mapping[str, Mapping[str, object]]],
    policies: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> list[Choice]:
    """Return the shipped setting, whose axis and level are empty, and choices that differ from it in one thing.

    Args:
        setting: the shipped setting.
        settings: by axis and level the fields of the setting that differ.
        policies: by axis and level the policies that differ, as descriptions by title.
    """
    found = [Choice("", "", setting)]
    for axis, levels in settings.items():
        found += [Choice(axis, level, replace(setting, **changed)) for level, changed in levels.items()]  # type: ignore[arg-type]
    for axis, others in policies.items():
        found += [Choice(axis, level, setting, instead) for level, instead in others.items()]
    return found


def numbers_of(chosen: Sequence[Choice], systems: Titles, *, seeds: int, seed: int) -> pd.DataFrame:
    """Return the numbers of Fig. 6, and M2, M3 and M7 of Section II where the setting enters, for each choice.

    Choices of one setting share its runs.

    Args:
        chosen: as from `choices`.
        systems: descriptions of the policies of Fig. 6 by title.
        seeds: number of repetitions.
        seed: the seed of all repetitions.

    Returns:
        One row a choice and number: axis, level, id, part, value, low, high, n, base_value (of the choice that it
        differs from in one thing), moved (value less base_value), provenance.
    """
    frames = []
    for setting in dict.fromkeys(choice.setting for choice in chosen):
        own = [choice for choice in chosen if choice.setting == setting]
        named = [{**systems, **choice.instead} for choice in own]
        descriptions = dict.fromkeys(text for titles in named for text in titles.values())
        runs = harness.run(setting, {text: text for text in descriptions}, seeds=seeds, seed=seed)

        of_section_2 = pd.DataFrame(section_2(setting))
        for choice, titles in zip(own, named, strict=True):
            found = pd.concat([numbers(runs, titles), of_section_2], ignore_index=True)
            frames.append(found.assign(axis=choice.axis, level=choice.level))

    table = pd.concat(frames, ignore_index=True)
    return _compared(table, {(choice.axis, choice.level): choice.base for choice in chosen})


def _compared(table: pd.DataFrame, bases: Mapping[tuple[str, str], tuple[str, str]]) -> pd.DataFrame:
    """Return the rows of every choice with the value of the choice that it is compared with.

    Numbers of Section II are left out where the choice does not enter them.
    """
    known = table.set_index(["axis", "level", "id", "part"])["value"]
    keys = table[["axis", "level", "id", "part"]].itertuples(index=False, name=None)
    base = [known[(*bases[axis, level], id, part)] for axis, level, id, part in keys]

    columns = ["axis", "level", "id", "part", "value", "low", "high", "n"]
    compared = table[columns].assign(base_value=base)
    compared = compared.assign(moved=compared["value"] - compared["base_value"], provenance="emulated")
    of_policies_alone = compared["id"].str.startswith("M") & (compared["axis"] != "") & (compared["moved"] == 0)
    return compared[~of_policies_alone].reset_index(drop=True)


def section_2(setting: Setting) -> Iterator[dict[str, object]]:
    """Yield M2, M3 (T4's time over the A100's, x) and M7 (how much longer pairs take on the A100, mean, %).

    They depend on the largest inference batch size, the precision and the platform of a setting, on no policy.
    """
    size = max(setting.batch_sizes)
    how = {"precision": setting.precision, "constants": platforms.constants(setting.platform)}
    alone = motivation.solo(batch_sizes=[size], **how).pivot(index="workload", columns="gpu", values="time_s")
    pairs = motivation.pairs(batch_size=size, **how)

    ratio = alone["T4"] / alone["A100"]
    on_a100 = pairs[pairs["gpu"] == "A100"]["degradation_pct"]
    for id, value in (("M2", ratio["resnet50"]), ("M3", ratio["bert_large"]), ("M7", on_a100.mean())):
        yield {"id": id, "part": "", "value": value, "low": np.nan, "high": np.nan, "n": 1}


def by_choice(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each choice and a column for each number, for reading; `*` marks a number that holds.

    `table` is as from `numbers_of`.
    """
    claims = [paper_claims()[key] for key in zip(table["id"], table["part"], strict=True)]
    names = [claim.name.replace("jct", "JCT") for claim in claims]
    texts = [
        f"{value:.3g}{' *' if claim.kind == 'reduction' and is_near(claim, value) else ''}"
        for claim, value in zip(claims, table["value"], strict=True)
    ]
    shown = table.assign(number=names, text=texts)
    wide = shown.pivot_table(index=["axis", "level"], columns="number", values="text", aggfunc="first", sort=False)
    return wide.fillna("").reset_index().rename(columns={"axis": "choice"}).rename_axis(columns=None)
