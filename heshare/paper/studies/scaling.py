"""Average JCT and energy over GPU mixes, loads and numbers of tasks (Figs. 8 to 11)."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from heshare.lab.sweeps.statistics import median_interval
from heshare.lab.sweeps.study_runs import median_intervals
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import BAND, EDGE, GUIDE, PLACED, series_style
from heshare.paper.studies import variants
from heshare.paper.texts import render

OWN_PLANS = ("Trade-off", "En-opt", "JCT-opt")
"""Titles of HeShare's own plans."""
REFERENCE = "Trade-off"
"""The policy that the others are compared with in Figs. 8 to 11."""
SEVEN = ("Random", "Sched-only", "Trade-off", "En-opt", "JCT-opt", "Morak", "μ-Serve")
"""Titles of the paper's policies in the order of Fig. 6."""
ROWS = ("Random", "Sched-only", "En-opt", "JCT-opt", "Morak", "Morak" + PLACED, "μ-Serve", "μ-Serve" + PLACED)
"""Titles of the rows of Figs. 8 to 11."""
_RATIO = ("ratio", "ratio_low", "ratio_high")
_words = partial(render, "10_mixes")


def ratios(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return medians of average JCT and energy (both accounts) beside ratios to `REFERENCE`, paired by seed."""
    rows = []
    for metric in variants.METRICS:
        wide = runs.pivot_table(index=[*by, "repetition"], columns="title", values=metric, sort=False)
        over = wide.div(wide[REFERENCE], axis=0)
        for world, part in over.groupby(list(by), sort=False):
            key = {**dict(zip(by, world, strict=True)), "metric": metric}
            found = {title: median_interval(part[title]).columns(*_RATIO) for title in part}
            rows += [{**key, "title": title, **each} for title, each in found.items()]
    beside = pd.DataFrame(rows).drop(columns="n")
    columns = [*by, "title", "metric", "median", "low", "high", *_RATIO, "n", "provenance"]
    medians = median_intervals(runs, [*by, "title"], variants.METRICS)
    return medians.merge(beside, on=[*by, "title", "metric"], validate="one_to_one")[columns]


def overall(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return `ratios` over all worlds together: the geometric mean over worlds of each seed, then as for one world."""
    logs = runs.assign(**{metric: np.log(runs[metric]) for metric in variants.METRICS})
    means = logs.groupby(["title", "repetition"], sort=False)[list(variants.METRICS)].mean().apply(np.exp)
    return ratios(means.reset_index().assign(**dict.fromkeys(by, ALL), provenance="emulated"), by)


ALL = "all"
"""The group of all worlds together."""
_TICKS, _WIDE_TICKS = (0.7, 0.85, 1.0, 1.2, 1.5, 2.0), (0.5, 1.0, 2.0, 5.0, 10.0)
"""Ticks of ratios over a narrow and a wide range."""
Published = Mapping[tuple[str, str], tuple[str, str, str]]
"""Claims by group and policy: the claim's id and part, and HeShare's plan with which it compares the policy."""


def panels(
    axes: Sequence[Axes],
    frame: pd.DataFrame,
    total: pd.DataFrame,
    metric: str,
    *,
    by: Sequence[str],
    paper: Published,
) -> None:
    """Draw ratios of one metric to `REFERENCE`: a row for each policy, a panel for all worlds and one for each group.

    The first panel has the numbers of `total`, as from `overall`. The others are of the groups in the column `by[0]` of
    `frame`, as from `ratios`, with a mark for each value of the column `by[1]`. A tick is where the paper's reduction
    would put the policy.
    """
    rows = [title for title in ROWS if title in set(total["title"])]
    worlds = list(frame[by[1]].unique())
    groups = [(ALL, total), *frame.groupby(by[0], sort=False)]
    for ax, (group, every) in zip(axes, groups, strict=True):
        part = every[every["metric"] == metric]
        of_world = {name: cell.set_index("title") for name, cell in part.groupby(by[1], sort=False)}
        ax.axvline(1.0, color=GUIDE, linewidth=0.6, zorder=0)
        for place, title in enumerate(rows):
            if place % 2:
                ax.axhspan(place - 0.5, place + 0.5, color=BAND, alpha=0.5, linewidth=0, zorder=0)
            for name, cell in of_world.items():
                alone = group == ALL
                shift = 0.0 if alone else 0.72 * ((worlds.index(name) + 0.5) / len(worlds) - 0.5)
                shape = {"markersize": 4.0} if alone else {"marker": _SHAPES[worlds.index(name)]}
                _ratio_mark(ax, title, place + shift, *cell.loc[title, list(_RATIO)], **shape)
            if group == ALL:
                number = f"{100 * (of_world[ALL].loc[title, 'ratio'] - 1):+.0f} %"
                ax.text(1.0, place, number, transform=ax.get_yaxis_transform(), fontsize=6.5, va="center", ha="right")
            if (group, title) in paper:
                id, claimed, plan = paper[group, title]
                over = np.exp(np.mean([np.log(cell.loc[plan, "ratio"]) for cell in of_world.values()]))
                value = over / (1 + paper_claims()[id, claimed].value / 100)
                ax.plot([value] * 2, [place - 0.42, place + 0.42], color=EDGE, linewidth=1.4)
        ax.set_yticks(range(len(rows)), [title.replace(PLACED, ", placed") for title in rows], fontsize=6.5)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.grid(visible=False, axis="y")
        plots.log_axis(ax, "x")
        ax.grid(axis="x")
        ax.tick_params(axis="y", length=0)
        ax.set_title("all together" if group == ALL else str(group), fontsize=7, pad=3)
    ends = np.array([ax.get_xlim() for ax in axes[1:]])
    for ax in axes[1:]:
        ax.set_xlim(ends[:, 0].min(), ends[:, 1].max())
    low, high = axes[0].get_xlim()
    axes[0].set_xlim(low, high * (high / low) ** 0.35)
    for ax in axes:
        low, high = ax.get_xlim()
        ax.xaxis.set_major_locator(FixedLocator(_TICKS if high < 4 * low else _WIDE_TICKS))
    words = {variants.JCT: "Average JCT", variants.ENERGY: "Energy"}[metric]
    labels = [each if isinstance(each, str) else f"{each} {by[1]}" for each in worlds]
    axes[len(axes) // 2].set_xlabel(f"{words} over Trade-off's", fontsize=7)
    axes[0].figure.legend(handles=_handles(labels, bool(paper)), loc="outside upper center", ncols=6)


_SHAPES = ("o", "s", "^", "D", "v", "P")
"""Markers of the values within a group."""


def _ratio_mark(ax: Axes, title: str, at: float, ratio: float, low: float, high: float, **shape: Any) -> None:
    how = series_style(title).line_arguments(linestyle="", **{"markersize": 2.8, "markeredgewidth": 0.6, **shape})
    ax.plot([low, high], [at, at], color=how["color"], linewidth=0.7)
    ax.plot([ratio], [at], **how)


def _handles(worlds: Sequence[str], has_paper: bool) -> list[Line2D]:
    style: dict[str, Any] = {"ls": "", "markersize": 3.2, "color": EDGE}
    found = [Line2D([], [], marker=shape, label=name, **style) for shape, name in zip(_SHAPES, worlds, strict=False)]
    tick = Line2D([], [], ls="", color=EDGE, marker="|", markersize=7, markeredgewidth=1.4, label="the paper")
    return [*found, tick] if has_paper else found


def seen(total: pd.DataFrame, metric: str, paper: Published) -> str:
    """Return the sentence with which a caption begins: Trade-off against both rivals, here and in the paper.

    `total` is as from `overall`; the claims of `ALL` in `paper` have the paper's values.
    """
    rows = total[total["metric"] == metric].set_index("title")["ratio"]
    sizes = {rival: 100 * (1 / float(rows[rival]) - 1) for rival in ("Morak", "μ-Serve")}
    placed = {rival: 100 * (1 / float(rows[rival + PLACED]) - 1) for rival in sizes}
    claimed = {rival: paper_claims()[paper[ALL, rival][:2]].value for rival in sizes if (ALL, rival) in paper}
    return _words("seen", word=_METRIC_WORDS[metric], sizes=sizes, placed=placed, paper=claimed)


_METRIC_WORDS = {variants.JCT: "JCT", variants.ENERGY: "energy"}


def own_plan_changes(runs: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the changes of each of HeShare's plans against the others, paired by world and seed, for each `by`."""
    rows = []
    for group, part in runs.groupby(by, sort=False):
        for (ours, theirs), metric in product(permutations(OWN_PLANS, 2), (variants.ENERGY, variants.JCT)):
            size = variants.median_change(part, ours, theirs, metric).columns("change_pct", "low_pct", "high_pct")
            rows.append({by: group, "ours": ours, "theirs": theirs, "metric": metric, **size})
    return pd.DataFrame(rows).assign(provenance="emulated")


def own_plan_claim(table: pd.DataFrame, group: str, ours: str, theirs: str, metric: str) -> dict[str, Any]:
    sizes = variants.intervals(table[table[table.columns[0]] == group], "ours", "theirs", "metric")
    energy = metric == variants.ENERGY
    note = _words(
        "own_plans",
        word="average JCT" if energy else "energy",
        beside=sizes[ours, theirs, variants.JCT if energy else variants.ENERGY],
        energy=sizes["En-opt", "JCT-opt", variants.ENERGY].value,
        jct=sizes["JCT-opt", "En-opt", variants.JCT].value,
    )
    return sizes[ours, theirs, metric].claim_arguments(note)


def least_energy(table: pd.DataFrame, plans: pd.DataFrame) -> dict[str, Any]:
    """Return claim O5: En-opt has the least energy on every GPU and number of tasks."""
    energy = table[table["metric"] == variants.ENERGY]
    shown = energy[energy["title"].isin(SEVEN)]
    best = shown.loc[shown.groupby(["GPU", "tasks"], sort=False)["median"].idxmin()]
    holds = {f"{row.GPU}, {row.tasks} tasks": row.title == "En-opt" for row in best.itertuples()}
    others = best[best["title"] != "En-opt"].to_dict("records")
    found = own_plan_claim(plans, "all", "En-opt", "Trade-off", variants.ENERGY)
    return {**found, "note": _words("least_energy", others=others), "holds": holds}


def below_both(table: pd.DataFrame, ours: str) -> dict[str, Any]:
    """Return claim O6: a plan takes less energy than either rival on every GPU."""
    chosen = (table["ours"] == ours) & (table["metric"] == variants.ENERGY) & (table["form"] == variants.PAPER)
    rows = table[chosen & (table["gpu"] != "all")]
    holds = {f"below {row['rival']} on {row['gpu']}": row["high_pct"] < 0 for row in rows.to_dict("records")}
    worst: Any = rows.sort_values("change_pct").iloc[-1]
    sizes = variants.intervals(rows, "rival", "gpu")
    return sizes[worst["rival"], worst["gpu"]].claim_arguments(
        _words("below_both", worst=worst),
        holds=holds,
        at={"rival": worst["rival"], "gpu": worst["gpu"]},
    )


def both_rivals(table: pd.DataFrame, ours: str, metric: str, end: str = "") -> dict[str, Any]:
    """Return the arguments of a claim on Morak and mu-Serve at once: in each form the smaller gain counts."""
    rows = table[(table["ours"] == ours) & (table["metric"] == metric) & (table["form"] == variants.PAPER)]
    sizes = dict(zip(rows["rival"], rows["change_pct"], strict=True))
    worst, other = sorted(sizes, key=lambda rival: -sizes[rival])
    more = _words("other_rival", rival=other, size=sizes[other], end=end)
    found = variants.rival_claim(table, ours, worst, metric, more)
    each = [variants.rival_claim(table, ours, rival, metric)["forms"] for rival in sizes]
    forms = {form: max(forms[form] for forms in each) for form in found["forms"]}
    return {**found, "forms": forms, "at": {"rival": worst}}
