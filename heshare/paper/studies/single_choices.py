"""The paper's numbers under another value of a choice that it leaves open, one choice at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import harness
from heshare.paper.claims.fig6_numbers import numbers
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.claims.verdicts import is_near
from heshare.paper.harness import Setting
from heshare.paper.studies import motivation, platforms

SHIPPED = "shipped setting"
"""The axis of the shipped setting, whose level is empty."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting that differs from the shipped one in one choice.

    Attributes:
        axis: the choice.
        level: its value.
        setting: the setting of the runs.
        instead: descriptions of the policies that the choice changes, by title.
        base: axis and level of the choice that this one is compared with.
    """

    axis: str
    level: str
    setting: Setting
    instead: Mapping[str, str] = field(default_factory=dict)
    base: tuple[str, str] = (SHIPPED, "")


def choices(
    setting: Setting,
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]],
    policies: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> list[Choice]:
    """Return the shipped setting and then every setting that differs from it in one choice.

    Args:
        setting: the shipped setting.
        settings: by axis and level the fields of the setting that differ.
        policies: by axis and level the policies that differ, as descriptions by title.
    """
    found = [Choice(SHIPPED, "", setting)]
    for axis, levels in settings.items():
        found += [Choice(axis, level, replace(setting, **changed)) for level, changed in levels.items()]
    for axis, others in policies.items():
        found += [Choice(axis, level, setting, instead) for level, instead in others.items()]
    return found


def numbers_of(chosen: Sequence[Choice], systems: Mapping[str, str], *, seeds: int, seed: int) -> pd.DataFrame:
    """Return the numbers of Fig. 6, and M2, M3 and M7 of Section II where they depend on the choice.

    Choices of one setting share its runs.

    Args:
        chosen: as from `choices`.
        systems: descriptions of the policies of Fig. 6 by title.
        seeds: number of repetitions.
        seed: the seed of all repetitions.

    Returns:
        One row a choice and number: axis, level, id, part, value, low, high, n, base_value (that of `Choice.base`),
        moved (value less base_value), provenance.
    """
    found = {}
    for setting in dict.fromkeys(choice.setting for choice in chosen):
        of_setting = [choice for choice in chosen if choice.setting == setting]
        named = [{**systems, **choice.instead} for choice in of_setting]
        descriptions = dict.fromkeys(text for titles in named for text in titles.values())
        runs = harness.run(setting, {text: text for text in descriptions}, seeds=seeds, seed=seed)

        of_section_2 = section_2(setting)
        for choice, titles in zip(of_setting, named, strict=True):
            rows = pd.concat([numbers(runs, titles), of_section_2], ignore_index=True)
            found[choice.axis, choice.level] = rows.assign(axis=choice.axis, level=choice.level)

    bases = {(choice.axis, choice.level): choice.base for choice in chosen}
    return _compared(pd.concat([found[key] for key in bases], ignore_index=True), bases)


def _compared(table: pd.DataFrame, bases: Mapping[tuple[str, str], tuple[str, str]]) -> pd.DataFrame:
    """Return the numbers with those of the base of each choice.

    Numbers of Section II are omitted where the choice does not change them.
    """
    keys = list(zip(table["axis"], table["level"], table["id"], table["part"], strict=True))
    known = dict(zip(keys, table["value"], strict=True))
    base = np.array([known[(*bases[axis, level], id, part)] for axis, level, id, part in keys])

    columns = ["axis", "level", "id", "part", "value", "low", "high", "n"]
    moved = table["value"] - base
    is_shown = ~table["id"].str.startswith("M") | (table["axis"] == SHIPPED) | (moved != 0)
    compared = table.assign(base_value=base, moved=moved, provenance="emulated")
    shown: pd.DataFrame = compared.loc[is_shown, [*columns, "base_value", "moved", "provenance"]]
    return shown.reset_index(drop=True)


def section_2(setting: Setting) -> pd.DataFrame:
    """Return M2, M3, M7 and M8 of one setting.

    M2 and M3 are the T4's time over the A100's (x), M7 is how much longer pairs take on the A100 (mean, %), and M8 the
    rank correlation between the operations of a workload and how much its energy differs between GPUs.

    They depend on the largest inference batch size, the precision and the platform of a setting, and on no policy.

    Returns:
        One row a number: id, part, value, low, high (two standard deviations of the device model, the range over
        pairs, or the value again), n.
    """
    size = max(setting.batch_sizes)
    constants = platforms.constants(setting.platform)
    solo = motivation.solo(batch_sizes=[size], constants=constants, precision=setting.precision)
    pairs = motivation.pairs(batch_size=size, constants=constants, precision=setting.precision)

    slower = pairs.pivot_table(index="pair", columns="gpu", values="degradation_pct").dropna()["A100"]
    sizes = {"M7": ConfidenceInterval(slower.mean(), slower.min(), slower.max(), len(slower))}

    between = motivation.ratios_between_gpus(solo)
    correlation = float(spearmanr(between["gflops"], between["energy_ratio"]).statistic)
    sizes["M8"] = ConfidenceInterval(correlation, correlation, correlation, len(between))

    ratios = {row["workload"]: row for row in between.to_dict("records")}
    for id, workload in (("M2", "resnet50"), ("M3", "bert_large")):
        ratio = ratios[workload]
        sizes[id] = ConfidenceInterval(ratio["t4_over_a100"], ratio["low"], ratio["high"], 1)
    return pd.DataFrame([{"id": id, "part": "", **sizes[id].columns("value")} for id in sorted(sizes)])


def by_choice(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each choice and a column for each number, for reading; `*` marks a number that holds.

    `table` is as from `numbers_of`.
    """
    claims = [paper_claims()[key] for key in zip(table["id"], table["part"], strict=True)]
    holds = [
        claim.kind == "reduction" and is_near(claim, value) for claim, value in zip(claims, table["value"], strict=True)
    ]
    texts = [f"{value:.3g}{' *' if good else ''}" for value, good in zip(table["value"], holds, strict=True)]

    shown = table.assign(number=[claim.name.replace("jct", "JCT") for claim in claims], text=texts)
    wide = shown.pivot_table(index=["axis", "level"], columns="number", values="text", aggfunc="first", sort=False)
    ordered = wide.reindex(pd.MultiIndex.from_frame(table[["axis", "level"]].drop_duplicates()))
    return ordered.fillna("").reset_index().rename(columns={"axis": "choice"})
