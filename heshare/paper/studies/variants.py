"""Comparison of variants: rivals in three forms, HeShare with one part removed.

The forms of a rival are the one of the paper, the one with HeShare's placement, and its own best setting of those
tried on other seeds (`best_settings`).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, group_means
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import GUIDE, category_style
from heshare.paper.texts import render
from heshare.policies import registry
from heshare.policies.heshare import ABLATIONS
from heshare.shared.arrays import FloatArray, IntArray

PAPER, PLACED, BEST = "paper's set-up", "HeShare's placement", "own best"
RIVALS: Mapping[str, str] = {"Morak": "morak", "mu-Serve": "mu-serve"}
"""Names of the rivals in the registry, by their names in claims."""
BASELINE = "baseline"
BASELINES: Mapping[str, str] = {
    "One at a time": "mu-serve:no-control",
    "SRTF": "srtf",
    "SRTF at 0.8 clock": "srtf:fixed-clock",
    "SJF, fastest GPU": "sjf:fastest",
}
"""Simple baselines that the paper does not have: names in the registry by title."""
ENERGY, JCT, CLUSTER = "energy_active_j", "avg_jct_s", "energy_cluster_j"
METRICS = (ENERGY, JCT, CLUSTER)
"""Energy (active account), average JCT, energy (cluster account)."""
_WORDS = {ENERGY: "energy", JCT: "average JCT"}
_CHANGE = ("change_pct", "low_pct", "high_pct")


def settings(limits: Sequence[float], shares: Sequence[int], caps: Sequence[float]) -> list[str]:
    """Return the policies of the sweep: both rivals, with their own and with HeShare's placement, at every setting.

    `limits` are multiples of the time alone, `shares` numbers of tasks at once on a GPU, `caps` shares of the TDP.
    """
    ends = ("", ":heshare-placement")
    plain = [name + end for name in RIVALS.values() for end in ends]
    swept = [f"morak{end}(cap={cap},k={k})" for end, k, cap in product(ends, shares, caps)]
    swept += [f"mu-serve{end}(limit={limit})" for end, limit in product(ends, limits)]
    return list(dict.fromkeys(registry.canonical(text) for text in [*plain, *swept]))


def other_seed(seed: int) -> int:
    """Return a seed with which settings are chosen; its repetitions share no random stream with those of `seed`."""
    return int(np.random.SeedSequence(seed, spawn_key=(2**31,)).generate_state(1, np.uint64)[0])


def rival_forms(rival: str, at_best: str) -> dict[str, str]:
    """Return the policy of each form of a rival; `at_best` is its policy at its own best setting."""
    name = RIVALS[rival]
    return {PAPER: name, PLACED: f"{name}:heshare-placement", BEST: registry.canonical(at_best)}


def baseline_forms() -> dict[str, dict[str, str]]:
    return {title: {BASELINE: policy} for title, policy in BASELINES.items()}


def changes(runs: pd.DataFrame, forms: Mapping[str, Mapping[str, str]], ours: Sequence[str]) -> pd.DataFrame:
    """Return changes of energy (both accounts) and average JCT of our policies against every form of every rival.

    `forms` has the policy of each form of each rival; a column `world` of `runs` names the world where there are
    several.

    Returns:
        One row each: ours, rival, form, setting, metric, change_pct, low_pct, high_pct, n, over_random_pct (of the
        rival against Random; NaN without its runs), provenance. Changes are paired by seed.
    """
    rows, has_random = [], "Random" in set(runs["title"])
    for metric, title, (rival, each) in product(METRICS, ours, forms.items()):
        for form, policy in each.items():
            theirs = registry.title(policy)
            row = {"ours": title, "rival": rival, "form": form, "setting": theirs, "metric": metric}
            change = median_change(runs, title, theirs, metric).columns(*_CHANGE)
            over = median_change(runs, theirs, "Random", metric).value if has_random else np.nan
            rows.append({**row, **change, "over_random_pct": over})
    return pd.DataFrame(rows).assign(provenance="emulated")


def median_change(runs: pd.DataFrame, ours: str, theirs: str, metric: str) -> ConfidenceInterval:
    """Return the median change, %, of a metric from the policy titled `theirs` to the one titled `ours`.

    Pairs are of one world and seed. A seed's value is the geometric mean over its worlds. The interval is over seeds
    alone, because worlds of one seed share their task sets and are not independent.
    """
    return change_pct(seed_means(runs, ours, metric), seed_means(runs, theirs, metric))


def seed_means(runs: pd.DataFrame, title: str, metric: str) -> FloatArray:
    """Return a policy's geometric means of a metric over worlds, (repetitions,); NaN where it has no run."""
    seed, seeds = _numbered(runs["repetition"])
    world, worlds = _numbered(runs["world"]) if "world" in runs else (np.zeros_like(seed), 1)
    rows = (runs["title"] == title).to_numpy()
    cells = group_means(runs[metric].to_numpy(np.float64)[rows], (world * seeds + seed)[rows], worlds * seeds)
    found = np.flatnonzero(~np.isnan(cells))
    return np.exp(group_means(np.log(cells[found]), found % seeds, seeds))


def _numbered(keys: pd.Series) -> tuple[IntArray, int]:
    numbers, different = pd.factorize(keys, sort=True)
    return numbers, len(different)


def rival_claim(table: pd.DataFrame, ours: str, rival: str, metric: str, more: str = "") -> dict[str, Any]:
    """Return the arguments of a claim on a rival: the value in the paper's set-up, and those with the other forms.

    Where the rival takes more than Random, the claim's sentence says so.
    """
    chosen = (table["ours"] == ours) & (table["rival"] == rival)
    sizes = intervals(table[chosen], "form", "metric")
    known = registry.policies()[RIVALS[rival]].parameters
    details = render(
        "05_comparison",
        "rival",
        ours=ours,
        rival=rival,
        defaults=", ".join(f"{name} {known[name]}" for name in _SETTINGS[rival]),
        setting=table[chosen & (table["form"] == BEST)]["setting"].iloc[0],
        sizes=sizes,
        simple=intervals(table[(table["ours"] == ours) & (table["rival"] == SIMPLE)], "form", "metric"),
        metric=metric,
        other=ENERGY if metric == JCT else JCT,
        more=more,
    )
    forms = {"placed": sizes[PLACED, metric], "best": sizes[BEST, metric]}
    ends = {form: (size.value, size.low, size.high) for form, size in forms.items()}
    own = sizes[PAPER, metric]
    of_set_up = table[chosen & (table["form"] == PAPER) & (table["metric"] == metric)]
    over = float(of_set_up["over_random_pct"].iloc[0])
    why = render("claims", "rival_above_random", measured=own.value, rival=rival, over=over, placed=ends["placed"][0])
    return own.claim_arguments(details, forms=ends, why=why if over > 0 else "")


def intervals(table: pd.DataFrame, *keys: str) -> dict[tuple[object, ...], ConfidenceInterval]:
    """Return the changes of a table such as from `changes` with their intervals, by the cells of the columns `keys`."""
    return {
        tuple(row[key] for key in keys): ConfidenceInterval(
            row["change_pct"], row["low_pct"], row["high_pct"], row["n"]
        )
        for row in table.to_dict("records")
    }


SIMPLE = "SRTF at 0.8 clock"
"""The baseline of `BASELINES` that comes nearest to HeShare."""


_SETTINGS = {"Morak": ("cap", "k", "limit"), "mu-Serve": ("limit",)}


def against_random(runs: pd.DataFrame) -> dict[str, list[list[float]]]:
    """Return the changes (energy, average JCT) of both rivals, with the paper's and HeShare's placement, to Random."""
    return {
        rival: [
            [median_change(runs, registry.title(policy + end), "Random", name).value for name in (ENERGY, JCT)]
            for end in ("", ":heshare-placement")
        ]
        for rival, policy in RIVALS.items()
    }


WHOLE = "heshare:trade-off"
POLICIES = tuple(f"{WHOLE}/{name}" for name in ABLATIONS)
"""Names in the registry of Trade-off with one part removed."""


def ablation_changes(runs: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for metric, (policy, (meaning, _)) in product(METRICS, zip(POLICIES, ABLATIONS.values(), strict=True)):
        change = median_change(runs, registry.title(policy), registry.title(WHOLE), metric).columns(*_CHANGE)
        rows.append({"part": meaning, "metric": metric, **change})
    return pd.DataFrame(rows).assign(provenance="emulated")


def ablation_panels(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    for index, (ax, (metric, words)) in enumerate(zip(axes, _WORDS.items(), strict=True)):
        part, how = table[table["metric"] == metric], category_style(index)
        value, place = part["change_pct"].to_numpy(float), np.arange(len(part))[::-1]
        spread = plots.interval_lengths(part, *_CHANGE)
        ax.errorbar(value, place, xerr=spread, **how.line_arguments(linestyle=""))
        ax.axvline(0.0, color=GUIDE, linewidth=0.8)
        for at, size in zip(place, value.round(1) + 0.0, strict=True):  # not -0.0
            text = f"{size:+.{0 if abs(size) >= 10 else 1}f}"
            ax.text(1.0, at, text, transform=ax.get_yaxis_transform(), fontsize=6.5, va="center")
        ax.set_yticks(place, list(part["part"]))
        ax.set(xlabel=f"{words[0].upper()}{words[1:]} (%)", ylim=(-0.5, len(part) - 0.5))
        ax.grid(visible=True, axis="both")


BY_WORDS = tuple(f"heshare:{plan}/literal" for plan in ("trade-off", "en-opt", "jct-opt"))
"""Names in the registry of HeShare's plans by the paper's words."""
