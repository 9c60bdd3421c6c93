"""Why claims fail: each reason from an experiment whose numbers go into the claim's note.

Each study returns its numbers as rows (study, variant, measure, value, low, high, n, provenance) and, for each claim,
sentences made of them; `heshare.reporting.claims.merge` puts them into the notes of claims that fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.policies import registry
from heshare.prediction.truth import DevicePredictor
from heshare.reporting import claims, forms
from heshare.reporting.claims import known
from heshare.reporting.forms import ENERGY, JCT
from heshare.reporting.statistics import Interval
from heshare.running.draw import draw
from heshare.running.grid import Grid
from heshare.running.sweep import sweep
from heshare.scheduling.bound import lower_bound
from heshare.scheduling.costs import DEFAULT, BatchCosts
from heshare.scheduling.objectives import instance
from heshare.world.cluster import Cluster

Key = tuple[str, str]
Reasons = dict[Key, str]
BOUND, TRUE = "proven bound", "En-opt, knowing the device"
_ENERGY, _SWEPT = "energy against Morak, %", "En-opt's energy against it, %"
_WORDS = {ENERGY: "energy", JCT: "average JCT"}


def row(study: str, variant: str, measure: str, found: Interval) -> dict[str, object]:
    """One number of a study."""
    numbers = {"value": found.value, "low": found.low, "high": found.high, "n": found.n}
    return {"study": study, "variant": variant, "measure": measure, **numbers, "provenance": "emulated"}


def _said(found: Interval) -> str:
    return f"{found.value:+.0f} % [{found.low:+.0f}, {found.high:+.0f}]"


def least_energy_j(n: int, cluster: str, *, seed: int, repetition: int) -> float:
    """The least energy that any plan of HeShare+'s freedom could take on the device itself, J: a proven lower bound.

    Args:
        n: tasks.
        cluster: the GPUs.
        seed: of a sweep.
        repetition: whose task set.
    """
    of_tasks = np.random.SeedSequence(seed, spawn_key=(repetition, 0))
    tasks, truth = draw(n, rng=np.random.default_rng(of_tasks)), DevicePredictor()
    costs = BatchCosts(instance(tasks, Cluster.parse(cluster), truth), truth, DEFAULT)
    return float(lower_bound(costs, np.array([[1.0, 0.0]])).least[0])


def _of_morak(shares: Sequence[int], caps: Sequence[float]) -> list[str]:
    """Morak, placed at random, at every setting."""
    return [registry.canonical(f"morak(cap={cap},k={k})") for k, cap in product(shares, caps)]


def one_kind(
    kinds: Sequence[str],
    n: int,
    *,
    shares: Sequence[int],
    caps: Sequence[float],
    seed: int,
    seeds: int,
    rng: np.random.Generator,
    folder: str | Path | None = None,
) -> tuple[pd.DataFrame, Reasons]:
    """O3, O4: how much less energy than Morak is possible on two GPUs of one kind, and at which of Morak's settings.

    Args:
        kinds: of GPU.
        n: tasks.
        shares: tasks at once of Morak.
        caps: power caps of Morak, shares of the TDP.
        seed: of all repetitions.
        seeds: how many.
        rng: of the bootstrap.
        folder: where finished runs are kept.
    """
    ours = {"En-opt": "heshare:en-opt", "Trade-off": "heshare:trade-off", TRUE: "heshare:en-opt(belief=device)"}
    settings = _of_morak(shares, caps)
    clusters = {f"2x{kind}": kind for kind in kinds}
    policies = tuple(dict.fromkeys([*ours.values(), "morak", *settings]))
    runs = sweep(Grid(policies, tuple(clusters), (n,), seeds=seeds, seed=seed), folder=folder)
    titled = runs.assign(
        world=runs["cluster"].map(clusters), title=runs["title"].where(runs["policy"] != ours[TRUE], TRUE)
    )
    bounds = [
        {"world": kind, "repetition": at, "title": BOUND, ENERGY: least_energy_j(n, name, seed=seed, repetition=at)}
        for (name, kind), at in product(clusters.items(), range(seeds))
    ]
    everything = pd.concat([titled, pd.DataFrame(bounds)], ignore_index=True)
    rows: list[dict[str, object]] = []
    reasons: Reasons = {}
    for kind in kinds:
        table = _against_morak(everything[everything["world"] == kind], [*ours, BOUND], settings, kind, rng)
        rows += table
        if ("O3", kind) in known():
            reasons["O3", kind] = _why_o3(pd.DataFrame(table), known()["O3", kind].value, n)
    table = _against_morak(everything, [*ours, BOUND], settings, "all", rng)
    reasons["O4", ""] = _why_o4(pd.DataFrame(table), known()["O4", ""].value)
    return pd.DataFrame([*rows, *table]), reasons


def by_setting(rows: pd.DataFrame, kinds: Sequence[str], shares: Sequence[int], caps: Sequence[float]) -> pd.DataFrame:
    """O3 at every setting of Morak's, and beside it what is possible at all, as `verdicts.heat` draws it.

    Args:
        rows: as from `one_kind`.
        kinds: of GPU.
        shares: as in `one_kind`.
        caps: as in `one_kind`.
    """
    swept = [(f"cap {cap}", f"k {k}", f"morak(cap={cap},k={k})") for cap, k in product(caps, shares)]
    columns = [("possible", name, name, _ENERGY) for name in (BOUND, TRUE)]
    columns += [("En-opt", "defaults", "En-opt", _ENERGY)]
    columns += [(axis, level, registry.title(registry.canonical(text)), _SWEPT) for axis, level, text in swept]
    cells = []
    for kind, (axis, level, variant, measure) in product(kinds, columns):
        size = _sizes(rows[rows["study"] == kind], measure)[variant]
        verdict = claims.verdict(claims.known()["O3", kind], size.value, size.value, size.high, holds={})
        numbers = {"change_pct": size.value, "low_pct": size.low, "high_pct": size.high, "n": size.n}
        cell = {"claim": f"O3 on {kind}", "axis": axis, "level": level.removeprefix("En-opt, "), **numbers}
        cells.append({**cell, "verdict": verdict, "provenance": "emulated"})
    return pd.DataFrame(cells)


def _against_morak(
    runs: pd.DataFrame, ours: Sequence[str], settings: Sequence[str], study: str, rng: np.random.Generator
) -> list[dict[str, object]]:
    """Energy of ours against Morak as it is, and of En-opt against Morak at each setting."""
    rows = []
    for title in ours:
        rows.append(row(study, title, _ENERGY, forms.between(runs, title, "Morak", ENERGY, rng)))
    for title in map(registry.title, settings):
        rows.append(row(study, title, _SWEPT, forms.between(runs, "En-opt", title, ENERGY, rng)))
    return rows


def _sizes(table: pd.DataFrame, measure: str) -> dict[str, Interval]:
    """The numbers of one measure, by variant."""
    part = table[table["measure"] == measure]
    columns = [part[name].tolist() for name in ("variant", "value", "low", "high", "n")]
    return {name: Interval(value, low, high, n) for name, value, low, high, n in zip(*columns, strict=True)}


def _why_o3(table: pd.DataFrame, paper: float, n: int) -> str:
    sizes, swept = _sizes(table, _ENERGY), _sizes(table, _SWEPT)
    bound, own = sizes[BOUND], sizes["En-opt"]
    first = "no plan can" if bound.low > paper else "a plan might, but En-opt does not"
    reached = [title for title, size in swept.items() if size.value <= paper]
    where = f"only at {'; '.join(map(_setting, reached))}" if reached else "at none"
    return (
        f"{first}. On {n} tasks the least energy that any could take on the device itself (a proven bound over "
        f"HeShare+'s plans) is {_said(bound)} against Morak at its defaults; En-opt takes {_said(own)}, and "
        f"{_said(sizes[TRUE])} if it knows the device. Of {len(swept)} settings of Morak's, En-opt reaches the paper's "
        f"value {where}."
    )


def _setting(title: str) -> str:
    """What is in a title's parentheses."""
    return title.partition("(")[2].rstrip(")") or "its defaults"


def _why_o4(table: pd.DataFrame, paper: float) -> str:
    sizes = _sizes(table, _ENERGY)
    bound, least, own = sizes[BOUND], sizes["En-opt"], sizes["Trade-off"]
    given = own.value - least.value
    for_jct = f", which gives {given:.0f} points of that for a shorter JCT" if given >= 0.5 else ""
    return (
        f"over the three kinds together the least energy that any plan could take (a proven bound, see O3) is "
        f"{_said(bound)} against Morak, where the paper has {paper:+.1f} % for a plan between energy and JCT. En-opt "
        f"takes {_said(least)}, Trade-off {_said(own)}{for_jct}."
    )


def random_and_rivals(
    cluster: str,
    n: int,
    *,
    shares: Sequence[int],
    caps: Sequence[float],
    seed: int,
    seeds: int,
    rng: np.random.Generator,
    folder: str | Path | None = None,
) -> tuple[pd.DataFrame, Reasons]:
    """H5: whether any setting of Morak's beats Random, and what Random would be without sharing.

    Args:
        cluster: the GPUs.
        n: tasks.
        shares: tasks at once of Morak.
        caps: power caps of Morak, shares of the TDP.
        seed: of all repetitions.
        seeds: how many.
        rng: of the bootstrap.
        folder: where finished runs are kept.
    """
    # mu-Serve with no time to give away and no order of its own: one task at a time at the top clock, as placed.
    alone = "mu-serve(limit=1.0,order=fifo)"
    settings = _of_morak(shares, caps)
    policies = tuple(dict.fromkeys(["random", alone, *settings]))
    runs = sweep(Grid(policies, (cluster,), (n,), seeds=seeds, seed=seed), folder=folder)
    found = {
        (title, metric): forms.between(runs, title, "Random", metric, rng)
        for title, metric in product([registry.title(each) for each in [alone, *settings]], (JCT, ENERGY))
    }
    names = {registry.title(alone): "random placement, one task at a time"}
    rows = [
        row("Random", names.get(title, title), f"{_WORDS[metric]} against Random, %", size)
        for (title, metric), size in found.items()
    ]
    jct = {title: size for (title, metric), size in found.items() if metric == JCT and title not in names}
    best = min(jct, key=lambda title: jct[title].value)
    better = sum(size.value < 0 for size in jct.values())
    own = registry.title(alone)
    why = (
        f"Random shares its GPUs as far as memory goes. The same placement with one task at a time, first come, first "
        f"served, at the top clock has {_said(found[own, JCT])} average JCT and {_said(found[own, ENERGY])} energy "
        f"against it. Of {len(jct)} settings of Morak's, placed at random, {better or 'none'} "
        f"{'has' if better == 1 else 'have'} a shorter average JCT than Random; the best, {best}, is at "
        f"{_said(jct[best])}."
    )
    return pd.DataFrame(rows), {("H5", ""): why}
