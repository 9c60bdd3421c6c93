"""Rivals in three forms: as the paper has them, with HeShare's placement, and at their own best setting of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from heshare.policies import registry
from heshare.reporting.statistics import Interval, change_pct

PAPER, PLACED, BEST = "paper's set-up", "HeShare's placement", "own best"
RIVALS: Mapping[str, str] = {"Morak": "morak", "mu-Serve": "mu-serve"}
"""The rivals as claims call them, and their names in the registry."""
ENERGY, JCT, CLUSTER = "energy_active_j", "avg_jct_s", "energy_cluster_j"
METRICS = (ENERGY, JCT, CLUSTER)
"""Energy of the active account, average JCT, energy of the cluster account."""
_WORDS = {ENERGY: "energy", JCT: "average JCT"}


def settings(limits: Sequence[float], shares: Sequence[int], caps: Sequence[float]) -> list[str]:
    """Every policy of the sweep: both rivals as they are and with HeShare's placement, at every setting.

    Args:
        limits: latency limits of mu-Serve, multiples of the time alone.
        shares: tasks at once of Morak.
        caps: power caps of Morak, shares of the TDP.

    Returns:
        Names in the registry's one way to write them, the forms without a setting first.
    """
    ends = ("", ":heshare-placement")
    plain = [name + end for name in RIVALS.values() for end in ends]
    swept = [f"morak{end}(cap={cap},k={k})" for end, k, cap in product(ends, shares, caps)]
    swept += [f"mu-serve{end}(limit={limit})" for end, limit in product(ends, limits)]
    return list(dict.fromkeys(registry.canonical(text) for text in [*plain, *swept]))


def other_seed(seed: int) -> int:
    """A seed for choosing settings: no repetition of it shares a stream with one of `seed`, by `SeedSequence`."""
    return int(np.random.SeedSequence(seed, spawn_key=(2**31,)).generate_state(1, np.uint64)[0])


def best(runs: pd.DataFrame, rival: str) -> str:
    """The policy of a rival with the least median over seeds of energy times average JCT; the first one of equals.

    Args:
        runs: one row a repetition and policy, of other task sets than the rival is then judged on (`other_seed`).
        rival: a name of `RIVALS`.
    """
    mine = runs[runs["policy"].str.match(rf"{RIVALS[rival]}(\W|$)")]
    product_js = mine[ENERGY] * mine[JCT]
    return str(product_js.groupby(mine["policy"], sort=False).median().idxmin())


def three(rival: str, at_best: str) -> dict[str, str]:
    """The policy that stands for each form of a rival.

    Args:
        rival: a name of `RIVALS`.
        at_best: the policy at its own best setting, as `best` finds it in a sweep.
    """
    name = RIVALS[rival]
    return {PAPER: name, PLACED: f"{name}:heshare-placement", BEST: registry.canonical(at_best)}


def changes(
    runs: pd.DataFrame, forms: Mapping[str, Mapping[str, str]], ours: Sequence[str], rng: np.random.Generator
) -> pd.DataFrame:
    """Energy (both accounts) and average JCT of our policies against every form of every rival, by world and seed.

    Args:
        runs: one row a world, repetition and policy; a column `world` tells the worlds apart where there are several.
        forms: for each rival, the policy of each form, as from `three`.
        ours: titles of our policies.
        rng: of the bootstrap.

    Returns:
        One row each: ours, rival, form, setting, metric, change_pct, low_pct, high_pct, n, provenance.
    """
    rows = []
    for metric in METRICS:
        for title, (rival, each) in product(ours, forms.items()):
            for form, policy in each.items():
                told = registry.title(policy)
                found = between(runs, title, told, metric, rng)
                rows.append((title, rival, form, told, metric, found.value, found.low, found.high, found.n, "emulated"))
    columns = ["ours", "rival", "form", "setting", "metric", "change_pct", "low_pct", "high_pct", "n", "provenance"]
    return pd.DataFrame(rows, columns=columns)


def between(runs: pd.DataFrame, ours: str, theirs: str, metric: str, rng: np.random.Generator) -> Interval:
    """By how many percent a metric of `ours` differs from that of `theirs`, both by title.

    Paired by world and seed. A seed's value is the geometric mean over its worlds, and the interval is over seeds
    alone: worlds of one seed share their task sets and are not independent.
    """
    index = [name for name in ("world", "repetition") if name in runs]
    table = runs.pivot_table(index=index, columns="title", values=metric)[[ours, theirs]].apply(np.log)
    by_seed = table.groupby("repetition").mean().apply(np.exp)
    return change_pct(by_seed[ours], by_seed[theirs], rng)


def priced(table: pd.DataFrame, ours: str, rival: str, metric: str, more: str = "") -> dict[str, Any]:
    """Arguments of a claim on a rival: priced in the paper's set-up, the other forms in the note.

    Args:
        table: as from `changes`.
        ours: the title of our policy.
        rival: a name of `RIVALS`.
        metric: `energy_active_j` or `avg_jct_s`.
        more: a sentence for the note's end.
    """
    rows = table[(table["ours"] == ours) & (table["rival"] == rival)].set_index(["form", "metric"])
    here: Any = rows.loc[(PAPER, metric)]
    other = ENERGY if metric == JCT else JCT
    swept = f"at its best setting in the sweep of Fig. 6 ({_setting(rows, BEST)})"
    others = ((f"with {PLACED}", PLACED), (swept, BEST))
    said = "; ".join(f"{words} {_sized(rows, form, metric)}" for words, form in others)
    return {
        "measured": float(here["change_pct"]),
        "low": float(here["low_pct"]),
        "high": float(here["high_pct"]),
        "n": int(here["n"]),
        "provenance": "emulated",
        "note": f"{rival} in the paper's set-up: random placement, {_defaults(rival)} (values of its authors or ours, "
        f"the paper states none); {_WORDS[other]} there {_sized(rows, PAPER, other)}. {rival} {said}. "
        f"{_placement_share(rows, metric)}Paired by seed, active account. {more}".strip(),
    }


def _placement_share(rows: pd.DataFrame, metric: str) -> str:
    """How many of the points HeShare's placement takes away when the rival gets it too."""
    alone, placed = (float(rows.loc[(form, metric), "change_pct"]) for form in (PAPER, PLACED))  # type: ignore[arg-type]
    if alone >= 0:
        return ""
    if placed <= alone:
        return "So placement does not explain it. "
    return f"So placement alone accounts for {placed - alone:.0f} of the {-alone:.0f} points. "


def _sized(rows: pd.DataFrame, form: str, metric: str) -> str:
    row: Any = rows.loc[(form, metric)]
    return f"{row['change_pct']:+.0f} % [{row['low_pct']:+.0f}, {row['high_pct']:+.0f}]"


def _setting(rows: pd.DataFrame, form: str) -> str:
    return str(rows.loc[(form, JCT), "setting"])


def _defaults(rival: str) -> str:
    known = registry.policies()[RIVALS[rival]].parameters
    wanted = {"Morak": ("cap", "k", "limit"), "mu-Serve": ("limit",)}[rival]
    return ", ".join(f"{name} {known[name]}" for name in wanted)


def against_random(runs: pd.DataFrame, rng: np.random.Generator) -> str:
    """How both rivals stand to Random as the paper has them and with HeShare's placement, as a sentence.

    Args:
        runs: a sweep with `random` and both placements of both rivals.
        rng: of the bootstrap.
    """
    said = []
    for rival, policy in RIVALS.items():
        sizes = []
        for end in ("", ":heshare-placement"):
            found = [between(runs, registry.title(policy + end), "Random", name, rng).value for name in (ENERGY, JCT)]
            sizes.append(f"{found[0]:+.0f} % energy, {found[1]:+.0f} % average JCT")
        said.append(f"{rival} {sizes[0]}, with {PLACED} {sizes[1]}")
    return f"Against Random: {'; '.join(said)}."
