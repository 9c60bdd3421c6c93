"""Sensitivity of the claims: the comparisons with the rivals repeated under conditions that differ in one thing.

A `Condition` changes one thing for all systems (the GPUs, the tasks), or the rivals' power cap or latency limit. A
`ClaimSetting` has the cluster and tasks of some of the claims: the mix of Fig. 6, the loads of Figs. 8 and 9, the
single kinds of GPU of Figs. 10 and 11.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.grid import Grid
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.lab.sweeps.sweep import WALL_TIME, sweep
from heshare.paper.claims.verdict_plots import size_word
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.studies import sensitivity_worlds as worlds
from heshare.paper.studies import variants
from heshare.paper.studies.variants import CLUSTER, ENERGY, JCT, PAPER, PLACED, RIVALS
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster

Levels = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""The fields of a `Condition` that differ from the reference, by axis and level."""
PLUS, BETTER = "HeShare+", "better rival"
PLANS = {"Trade-off": "heshare:trade-off", "En-opt": "heshare:en-opt", "JCT-opt": "heshare:jct-opt"}
PARTS = {"Sched-only": "sched-only", "Random": "random"}
BASE = "as calibrated"
ROUNDS = 1
"""Rounds of HeShare+'s search, see `heshare.lab.plus.heshare_plus_policy`."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that differs from the reference.

    `cap` is Morak's power cap, as a share of the TDP, `limit` both rivals' latency limit, as a multiple of the time
    alone; None is their default. `world` is of `sensitivity_worlds.WORLDS`, `draw` a kind of `sensitivity_worlds.draw`,
    and `scale` a factor on the number of tasks.
    """

    axis: str
    level: str
    cap: float | None = None
    limit: float | None = None
    world: str = ""
    draw: str = ""
    arrivals: str = "at_once"
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ClaimSetting:
    """The cluster, tasks and policies with which some claims are measured.

    Claims are over all `loads`; `plans` are titles of our policies, `forms` the rivals' forms: where all GPUs are
    alike, only the paper's placement.
    """

    name: str
    cluster: str
    tasks: int
    loads: tuple[str, ...]
    plans: tuple[str, ...]
    forms: tuple[str, ...] = (PAPER, PLACED)


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a claim: its setting, the two sides of the comparison, and the metric.

    The id is the claim's, `+` for HeShare+ against the better rival, which is not in the paper. `setting` is the name
    of a `ClaimSetting`, or `single` for those of single kinds together. Of several rivals that counts over which the
    gain is smallest.
    """

    id: str
    part: str
    setting: str
    ours: str
    rivals: tuple[str, ...]
    metric: str

    @property
    def label(self) -> str:
        what = "energy" if self.metric == ENERGY else "JCT"
        against = " and ".join(rival.replace("mu-Serve", "μ-Serve") for rival in self.rivals)
        where = f" on {self.setting}" if self.id.startswith("O") and self.id != "O4" else ""
        return f"{'' if self.id == '+' else self.id + ' '}{self.ours} against {against}{where}: {what}"


MORAK, MU_SERVE = RIVALS
MIX, LOADS, KINDS = "mix", "loads", ("T4", "V100", "A100")
MEASURES: Sequence[Measure] = (
    Measure("H1", "energy", MIX, "Trade-off", (MORAK,), ENERGY),
    Measure("H1", "jct", MIX, "Trade-off", (MORAK,), JCT),
    Measure("H2", "energy", MIX, "Trade-off", (MU_SERVE,), ENERGY),
    Measure("H2", "jct", MIX, "Trade-off", (MU_SERVE,), JCT),
    Measure("H3", "Random", MIX, "En-opt", ("Random",), ENERGY),
    Measure("H3", "JCT-opt", MIX, "En-opt", ("JCT-opt",), ENERGY),
    Measure("H4", "Random", MIX, "JCT-opt", ("Random",), JCT),
    Measure("H4", "En-opt", MIX, "JCT-opt", ("En-opt",), JCT),
    Measure("H5", "energy", MIX, "Sched-only", ("Random",), ENERGY),
    Measure("H5", "jct", MIX, "Sched-only", ("Random",), JCT),
    Measure("G1", MORAK, LOADS, "Trade-off", (MORAK,), JCT),
    Measure("G1", MU_SERVE, LOADS, "Trade-off", (MU_SERVE,), JCT),
    Measure("G2", MORAK, LOADS, "Trade-off", (MORAK,), ENERGY),
    Measure("G2", MU_SERVE, LOADS, "Trade-off", (MU_SERVE,), ENERGY),
    Measure("O1", MORAK, "T4", "JCT-opt", (MORAK,), JCT),
    Measure("O1", MU_SERVE, "T4", "JCT-opt", (MU_SERVE,), JCT),
    Measure("O2", "V100", "V100", "Trade-off", (MORAK, MU_SERVE), JCT),
    Measure("O2", "A100", "A100", "Trade-off", (MORAK, MU_SERVE), JCT),
    *(Measure("O3", kind, kind, "En-opt", (MORAK,), ENERGY) for kind in KINDS),
    Measure("O4", "", "single", "Trade-off", (MORAK,), ENERGY),
    Measure("+", "energy", MIX, PLUS, (BETTER,), ENERGY),
    Measure("+", "jct", MIX, PLUS, (BETTER,), JCT),
)
"""H1 to H5, G1, G2, O1 to O4, and HeShare+ against the better rival. Of H5, Random against Sched-only."""


def conditions(levels: Levels, axes: Sequence[str]) -> list[Condition]:
    """Return the reference condition and those that differ from it in one of `axes`, whose levels `levels` has."""
    for axis in axes:
        if axis not in levels:
            raise InputError(repr(axis), ", ".join(levels), "Choose among them.", column="axes")
    kept = {axis: own for axis, own in levels.items() if axis in axes}
    return [Condition("", BASE), *(Condition(axis, level, **how) for axis in kept for level, how in kept[axis].items())]


def level_table(shown: Sequence[Condition]) -> pd.DataFrame:
    """Return one row a condition: its axis and level, what is set, and the constants of each GPU that move."""
    rows = []
    for each in shown:
        how = {field.name: getattr(each, field.name) for field in fields(each)[2:]}
        given = ", ".join(f"{name} {how[name]}" for name in how if how[name] != getattr(Condition("", ""), name))
        moved = {gpu: worlds.moved(each.world, gpu) if each.world else "" for gpu in KINDS}
        rows.append({"axis": each.axis, "level": each.level, "set": given, **moved})
    return pd.DataFrame(rows)


def claim_settings(cluster: str, tasks: int, loads: Sequence[str], single: int) -> tuple[ClaimSetting, ...]:
    """Return the settings of all measures.

    G1 and G2 have the classes `loads`; `single` is the number of tasks on two GPUs of one kind.
    """
    return (
        ClaimSetting(MIX, cluster, tasks, ("mixed",), (*PLANS, *PARTS, PLUS)),
        ClaimSetting(LOADS, cluster, tasks, tuple(loads), ("Trade-off",)),
        *(ClaimSetting(kind, f"2x{kind}", single, ("mixed",), tuple(PLANS), (PAPER,)) for kind in KINDS),
    )


def sizes_in_words(settings: Sequence[ClaimSetting], seeds: int) -> dict[tuple[str, str], str]:
    """Return the number of seeds, tasks and GPUs behind each measure, by its id and part."""
    words = {each.name: f"{seeds} seeds, {each.tasks} tasks on {each.cluster}" for each in settings}
    words["single"] = f"{words[KINDS[0]].rpartition(' on ')[0]} on two GPUs of each kind"
    return {(measure.id, measure.part): words[measure.setting] for measure in MEASURES}


def rivals(condition: Condition, shown: Sequence[str] = (PAPER, PLACED)) -> dict[tuple[str, str], str]:
    """Return the policy of each rival in each form, by (form, rival), under a condition."""
    own = {MORAK: {"cap": condition.cap, "limit": condition.limit}, MU_SERVE: {"limit": condition.limit}}
    ends = {PAPER: "", PLACED: ":heshare-placement"}
    found = {}
    for (rival, name), form in product(RIVALS.items(), shown):
        given = ",".join(f"{key}={value}" for key, value in own[rival].items() if value is not None)
        found[form, rival] = f"{name}{ends[form]}" + (f"({given})" if given else "")
    return found


def runs(
    setting: ClaimSetting,
    condition: Condition,
    *,
    seed: int,
    seeds: int,
    interval_s: float,
    batch_sizes: Sequence[int] = (4, 8),
    folder: str | Path | None = None,
) -> pd.DataFrame:
    """Return the runs of all systems in a setting under a condition.

    `interval_s` is the mean time between two arrivals where tasks do not arrive at once.

    Returns:
        One row a load, repetition and system: columns world, repetition, form, title, energy by both accounts, average
        JCT. Our plans have no form. `BETTER` has the better rival's value of each of the claims' two metrics.
    """
    plans = {**PLANS, **PARTS, PLUS: f"heshare+:trade-off(rounds={ROUNDS})"}
    policies = {("", title): plans[title] for title in setting.plans} | rivals(condition, setting.forms)
    gpus = {gpu.name for gpu in Cluster.parse(setting.cluster).kinds}
    changed = condition.world if condition.world and gpus & set(worlds.WORLDS[condition.world][0]) else ""
    grid = Grid(
        policies=tuple(policies.values()),
        clusters=(setting.cluster,),
        tasks=(max(round(condition.scale * setting.tasks), 1),),
        loads=setting.loads,
        arrivals=(condition.arrivals,),
        intervals_s=(interval_s,),
        batch_sizes=tuple(batch_sizes),
        predictors=(_named("predictor", changed) or resolve.KEPT,),
        devices=(_named("devices", changed) or resolve.EMULATED,),
        draws=(_named("draw", condition.draw) or resolve.RECIPE,),
        seed=seed,
        seeds=seeds,
    )
    found = sweep(grid, folder=folder).drop(columns=list(WALL_TIME))
    forms, titles = zip(*policies, strict=True)
    count = len(found) // len(policies)
    named = found.assign(world=setting.name + " " + found["load"], form=forms * count, title=titles * count)
    kept = named[["world", "repetition", "form", "title", ENERGY, CLUSTER, JCT]]
    theirs = kept[kept["form"] != ""]
    better = theirs.groupby(["world", "repetition", "form"], sort=False)[[ENERGY, JCT]].min().reset_index()
    return pd.concat([kept, better.assign(title=BETTER)], ignore_index=True)


def single_runs(found: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of `runs` that are single runs, those of all frames, without those of `BETTER`."""
    together = pd.concat(found, ignore_index=True)
    return together[together["title"] != BETTER]


def _named(function: str, text: str) -> str:
    return f"{worlds.HERE}:{function}:{text}" if text else ""


def verdicts(found: Mapping[str, pd.DataFrame], condition: Condition) -> pd.DataFrame:
    """Return the size of every claim's change under one condition, with the rivals in both forms."""
    rows = []
    single = pd.concat([found[kind] for kind in KINDS], ignore_index=True)
    for measure in MEASURES:
        part = single if measure.setting == "single" else found[measure.setting]
        theirs = part[part["title"].isin(measure.rivals)]
        # Policies of the paper that are no rivals have one form only.
        for form in [form for form in (PAPER, PLACED) if (theirs["form"] == form).any()] or [PAPER]:
            here = part[part["form"].isin(["", form])]
            sizes = {
                rival: variants.median_change(here, measure.ours, rival, measure.metric) for rival in measure.rivals
            }
            rival = max(sizes, key=lambda name: sizes[name].value)
            rows.append(_row(measure, condition, form, rival, sizes[rival]))
    return pd.DataFrame(rows)


def _row(measure: Measure, condition: Condition, form: str, rival: str, size: ConfidenceInterval) -> dict[str, object]:
    claim = paper_claims().get((measure.id, measure.part))
    paper = np.nan if claim is None else claim.value
    return {
        "id": measure.id,
        "part": measure.part,
        "claim": measure.label,
        "axis": condition.axis,
        "level": condition.level,
        "form": form,
        "rival": rival,
        "metric": measure.metric,
        **size.columns("change_pct", "low_pct", "high_pct"),
        "paper_pct": paper,
        "size": size_word(paper, size.value, size.high),
        "provenance": "emulated",
    }
