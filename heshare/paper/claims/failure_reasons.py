"""Studies of the reasons why claims fail: each is an experiment whose numbers end the claim's note.

A study returns its numbers as rows (study, variant, measure, value, low, high, n, provenance). For each claim it also
returns sentences with these numbers. `heshare.paper.claims.claim_table.merge` adds them to the details of
claims that fall short.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.devices.task_sizes import draw
from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.optimum.lower_bound import lower_bound
from heshare.lab.plus.search_settings import BatchChoices
from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.grid import Grid
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.lab.sweeps.sweep import sweep
from heshare.paper.claims.verdict_plots import size_word
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.studies import variants
from heshare.paper.studies.variants import ENERGY, JCT
from heshare.paper.texts import render
from heshare.policies import registry
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.objectives import make_instance
from heshare.world.cluster import Cluster

_words = partial(render, "12_sensitivity")
Reasons = dict[tuple[str, str], str]
BOUND, ON_DEVICE = "proven bound", "En-opt, knowing the device"
_ENERGY, _SWEPT = "energy against Morak, %", "En-opt's energy against it, %"
_WORDS = {ENERGY: "energy", JCT: "average JCT"}
BOUND_CHOICES = BatchChoices(clocks=48, mps_variants=16)
"""The plans that the bound is about: those of HeShare+, with four times its clocks and every MPS percentage of a pair
that is the best one for some lengths of its tasks and some goal (`heshare.lab.plus.rates`).

More clocks and larger batches than these lower the least energy by nothing that the tests find; MPS percentages of
three tasks at once by up to a few percent, which would take a minute to include.
"""
BOUND_WORDS = _words("bound_words", width=BOUND_CHOICES.width, clocks=BOUND_CHOICES.clocks)
"""What the bound is about, for captions and notes."""


def row(study: str, variant: str, measure: str, found: ConfidenceInterval) -> dict[str, object]:
    return {"study": study, "variant": variant, "measure": measure, **found.columns("value"), "provenance": "emulated"}


def least_energy_j(
    n: int,
    cluster: str,
    *,
    seed: int,
    repetition: int,
    choices: BatchChoices = BOUND_CHOICES,
    predictor: DevicePredictor | None = None,
) -> float:
    """Return a proven lower bound on the energy of any plan with these `choices`, on the device itself, J.

    The task set is that of one repetition of a sweep with this seed; bounds may share a `predictor` and its cache.
    """
    # The same random stream as that of the tasks in `heshare.lab.sweeps.sweep`.
    tasks, predictor = draw(n, rng=Repetition(repetition, seed).rng(0)), predictor or DevicePredictor()
    costs = BatchCosts(make_instance(tasks, Cluster.parse(cluster), predictor), predictor, choices)
    return float(lower_bound(costs, np.array([[1.0, 0.0]])).least[0])


def energy_on_one_kind(
    kinds: Sequence[str],
    n: int,
    *,
    shares: Sequence[int],
    caps: Sequence[float],
    seed: int,
    seeds: int,
    folder: str | Path | None = None,
) -> tuple[pd.DataFrame, Reasons]:
    """Study claims O3 and O4: the least possible energy on two GPUs of one kind, against every setting of Morak.

    `shares` are Morak's concurrent tasks, `caps` its power caps as shares of the TDP; `folder` is for finished runs.
    """
    ours = {"En-opt": "heshare:en-opt", "Trade-off": "heshare:trade-off", ON_DEVICE: "heshare:en-opt(belief=device)"}
    settings = [registry.canonical(f"morak(cap={cap},k={k})") for k, cap in product(shares, caps)]
    clusters = {f"2x{kind}": kind for kind in kinds}
    policies = tuple(dict.fromkeys([*ours.values(), "morak", *settings]))
    # The predictor of notebook 11, which has some of these runs.
    grid = Grid(policies, tuple(clusters), (n,), predictors=(resolve.KEPT,), seeds=seeds, seed=seed)
    runs = sweep(grid, folder=folder)
    titled = runs.assign(
        world=runs["cluster"].map(clusters), title=runs["title"].where(runs["policy"] != ours[ON_DEVICE], ON_DEVICE)
    )
    device, bounds = DevicePredictor(), []
    for (name, kind), at in product(clusters.items(), range(seeds)):
        least_j = least_energy_j(n, name, seed=seed, repetition=at, predictor=device)
        bounds.append({"world": kind, "repetition": at, "title": BOUND, ENERGY: least_j})
    everything = pd.concat([titled, pd.DataFrame(bounds)], ignore_index=True)
    rows: list[dict[str, object]] = []
    reasons: Reasons = {}
    for kind in kinds:
        table = _against_morak(everything[everything["world"] == kind], [*ours, BOUND], settings, kind)
        rows += table
        if ("O3", kind) in paper_claims():
            size = f"{n} tasks on two {kind}, {seeds} seeds"
            reasons["O3", kind] = _why_o3(pd.DataFrame(table), paper_claims()["O3", kind].value, size)
    table = _against_morak(everything, [*ours, BOUND], settings, "all")
    sizes, size = _sizes(pd.DataFrame(table), _ENERGY), f"{n} tasks on two GPUs, {seeds} seeds"
    known = {"bound": sizes[BOUND], "least": sizes["En-opt"], "own": sizes["Trade-off"]}
    reasons["O4", ""] = _words("o4", paper=paper_claims()["O4", ""].value, size=size, **known)
    return pd.DataFrame([*rows, *table]), reasons


def by_setting(rows: pd.DataFrame, kinds: Sequence[str], shares: Sequence[int], caps: Sequence[float]) -> pd.DataFrame:
    swept = [(f"cap {cap}", f"k {k}", f"morak(cap={cap},k={k})") for cap, k in product(caps, shares)]
    columns = [("possible", name, name, _ENERGY) for name in (BOUND, ON_DEVICE)]
    columns += [("En-opt", "defaults", "En-opt", _ENERGY)]
    columns += [(axis, level, registry.title(registry.canonical(text)), _SWEPT) for axis, level, text in swept]
    cells = []
    for kind, (axis, level, variant, measure) in product(kinds, columns):
        size = _sizes(rows[rows["study"] == kind], measure)[variant]
        word = size_word(paper_claims()["O3", kind].value, size.value, size.high)
        cell = {"claim": f"O3 on {kind}", "axis": axis, "level": level.removeprefix("En-opt, ")}
        change = size.columns("change_pct", "low_pct", "high_pct")
        cells.append({**cell, **change, "size": word, "provenance": "emulated"})
    return pd.DataFrame(cells)


def _against_morak(
    runs: pd.DataFrame, ours: Sequence[str], settings: Sequence[str], study: str
) -> list[dict[str, object]]:
    # Our policies against Morak by default, and En-opt against Morak at each setting.
    pairs = [(title, _ENERGY, title, "Morak") for title in ours]
    pairs += [(title, _SWEPT, "En-opt", title) for title in map(registry.title, settings)]
    return [
        row(study, title, measure, variants.median_change(runs, one, other, ENERGY))
        for title, measure, one, other in pairs
    ]


def _sizes(table: pd.DataFrame, measure: str) -> dict[str, ConfidenceInterval]:
    part = table[table["measure"] == measure].set_index("variant")[["value", "low", "high", "n"]]
    return {str(name): ConfidenceInterval(*numbers) for name, *numbers in part.itertuples()}


def _why_o3(table: pd.DataFrame, paper: float, size: str) -> str:
    sizes, swept = _sizes(table, _ENERGY), _sizes(table, _SWEPT)
    reached = [
        title.partition("(")[2].rstrip(")") or "its defaults" for title, own in swept.items() if own.value <= paper
    ]
    found = {"own": sizes["En-opt"], "bound": sizes[BOUND], "knowing": sizes[ON_DEVICE], "settings": len(swept)}
    return _words("o3", paper=paper, size=size, bound_words=BOUND_WORDS, reached=reached, **found)
