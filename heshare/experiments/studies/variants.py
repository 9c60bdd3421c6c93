"""Comparison of variants: rivals in three forms, HeShare with one part removed, HeShare+ at equal energy or JCT.

A rival's forms are that of the paper, with HeShare's placement, and at its own best setting of a sweep.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from heshare.devices.task_sizes import draw
from heshare.experiments.figures import plots
from heshare.experiments.figures.style import series_style
from heshare.experiments.statistics import ConfidenceInterval, change_pct, median_interval
from heshare.experiments.study_runs import Repetition, least_within, repeat
from heshare.experiments.sweeps import resolve
from heshare.experiments.sweeps.sweep import repetition
from heshare.plugins import registry
from heshare.plus import heshare_plus
from heshare.plus.search_settings import SearchSettings
from heshare.policies.heshare import ABLATIONS
from heshare.policies.plan_release import PlanReleasePolicy
from heshare.policies.policy import Policy, Traits
from heshare.scheduling.pareto import Front
from heshare.scheduling.plan import Batch
from heshare.world.cluster import Cluster
from heshare.world.task import Task

PAPER, PLACED, BEST = "paper's set-up", "HeShare's placement", "own best"
RIVALS: Mapping[str, str] = {"Morak": "morak", "mu-Serve": "mu-serve"}
"""The rivals as claims call them, and their names in the registry."""
ENERGY, JCT, CLUSTER = "energy_active_j", "avg_jct_s", "energy_cluster_j"
METRICS = (ENERGY, JCT, CLUSTER)
"""Energy of the active account, average JCT, energy of the cluster account."""
_WORDS = {ENERGY: "energy", JCT: "average JCT"}
_CHANGE = ("change_pct", "low_pct", "high_pct")


def settings(limits: Sequence[float], shares: Sequence[int], caps: Sequence[float]) -> list[str]:
    """Return every policy of the sweep: both rivals as they are and with HeShare's placement, at every setting.

    Args:
        limits: latency limits of mu-Serve, multiples of the time alone.
        shares: tasks at once of Morak.
        caps: power caps of Morak, shares of the TDP.

    Returns:
        Canonical names of the registry, the forms without a setting first.
    """
    ends = ("", ":heshare-placement")
    plain = [name + end for name in RIVALS.values() for end in ends]
    swept = [f"morak{end}(cap={cap},k={k})" for end, k, cap in product(ends, shares, caps)]
    swept += [f"mu-serve{end}(limit={limit})" for end, limit in product(ends, limits)]
    return list(dict.fromkeys(registry.canonical(text) for text in [*plain, *swept]))


def other_seed(seed: int) -> int:
    """Return a seed for choosing settings: no repetition of it shares a random stream with one of `seed`."""
    return int(np.random.SeedSequence(seed, spawn_key=(2**31,)).generate_state(1, np.uint64)[0])


def best_setting(runs: pd.DataFrame, rival: str) -> str:
    """Return the policy of a rival with the least median of energy times average JCT; the first one of equals.

    `runs` has one row a repetition and policy, of other task sets than those of the comparison (`other_seed`).
    """
    mine = runs[runs["policy"].str.match(rf"{RIVALS[rival]}(\W|$)")]
    product_js = mine[ENERGY] * mine[JCT]
    return str(product_js.groupby(mine["policy"], sort=False).median().idxmin())


def rival_forms(rival: str, at_best: str) -> dict[str, str]:
    """Return the policy of each form of a rival; `at_best` is the one at its own best setting (`best_setting`)."""
    name = RIVALS[rival]
    return {PAPER: name, PLACED: f"{name}:heshare-placement", BEST: registry.canonical(at_best)}


def changes(
    runs: pd.DataFrame, forms: Mapping[str, Mapping[str, str]], ours: Sequence[str], rng: np.random.Generator
) -> pd.DataFrame:
    """Compare energy (both accounts) and average JCT of our policies with every form of every rival, paired by seed.

    Args:
        runs: one row a world, repetition and policy; a column `world` names the world where there are several.
        forms: for each rival, the policy of each form, as from `rival_forms`.
        ours: titles of our policies.
        rng: random numbers of the bootstrap.

    Returns:
        One row each: ours, rival, form, setting, metric, change_pct, low_pct, high_pct, n, provenance.
    """
    rows = []
    for metric, title, (rival, each) in product(METRICS, ours, forms.items()):
        for form, policy in each.items():
            theirs = registry.title(policy)
            row = {"ours": title, "rival": rival, "form": form, "setting": theirs, "metric": metric}
            rows.append({**row, **between(runs, title, theirs, metric, rng).columns(*_CHANGE)})
    return pd.DataFrame(rows).assign(provenance="emulated")


def between(runs: pd.DataFrame, ours: str, theirs: str, metric: str, rng: np.random.Generator) -> ConfidenceInterval:
    """Return by how many percent a metric of `ours` differs from that of `theirs`, both by title.

    Pairs are of one world and seed. A seed's value is the geometric mean over its worlds. The interval is over seeds
    alone, because worlds of one seed share their task sets and are not independent.
    """
    index = [name for name in ("world", "repetition") if name in runs]
    table = runs.pivot_table(index=index, columns="title", values=metric)[[ours, theirs]].apply(np.log)
    by_seed = table.groupby("repetition").mean().apply(np.exp)
    return change_pct(by_seed[ours], by_seed[theirs], rng)


def rival_claim(table: pd.DataFrame, ours: str, rival: str, metric: str, more: str = "") -> dict[str, Any]:
    """Return the arguments of a claim on a rival: its value in the paper's set-up, the other forms in the note.

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
    value, low, high = (float(here[name]) for name in _CHANGE)
    note = (
        f"{rival} in the paper's set-up: random placement, {_defaults(rival)} (values of its authors or ours, "
        f"the paper states none); {_WORDS[other]} there {_sized(rows, PAPER, other)}. {rival} {said}. "
        f"{_placement_share(rows, metric)}Paired by seed, active account. {more}"
    )
    return ConfidenceInterval(value, low, high, int(here["n"])).claim_arguments(note.strip())


def _placement_share(rows: pd.DataFrame, metric: str) -> str:
    """Return, as a sentence, how much of a reduction is due to HeShare's placement, which the rival then has too."""
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
    """Return, as a sentence, the change of both rivals, at either placement, against Random."""
    said = []
    for rival, policy in RIVALS.items():
        sizes = []
        for end in ("", ":heshare-placement"):
            found = [between(runs, registry.title(policy + end), "Random", name, rng).value for name in (ENERGY, JCT)]
            sizes.append(f"{found[0]:+.0f} % energy, {found[1]:+.0f} % average JCT")
        said.append(f"{rival} {sizes[0]}, with {PLACED} {sizes[1]}")
    return f"Against Random: {'; '.join(said)}."


WHOLE = "heshare:trade-off"
POLICIES = tuple(f"{WHOLE}/{name}" for name in ABLATIONS)
"""Trade-off with one part removed each, by their names in the registry."""


def ablation_changes(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Compare energy (both accounts) and average JCT of each of `POLICIES` with `WHOLE`, seed by seed.

    Returns:
        One row each: part, metric, change_pct, low_pct, high_pct (95 % bootstrap interval), n, provenance. Above zero,
        the removed part improves the metric by that much.
    """
    rows = []
    for metric, (policy, (meaning, _)) in product(METRICS, zip(POLICIES, ABLATIONS.values(), strict=True)):
        change = between(runs, registry.title(policy), registry.title(WHOLE), metric, rng).columns(*_CHANGE)
        rows.append({"part": meaning, "metric": metric, **change})
    return pd.DataFrame(rows).assign(provenance="emulated")


def ablation_panels(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw the changes of energy (active account) and average JCT, a row for each part; see `ablation_changes`."""
    shown = ((ENERGY, "Energy (%)"), (JCT, "Average JCT (%)"))
    for index, (ax, (metric, label)) in enumerate(zip(axes, shown, strict=True)):
        part, how = table[table["metric"] == metric], series_style("", index)
        value, place = part["change_pct"].to_numpy(float), np.arange(len(part))[::-1]
        spread = plots.interval_lengths(part, *_CHANGE)
        ax.errorbar(value, place, xerr=spread, **how.line_arguments(linestyle=""))
        ax.axvline(0.0, color="#999999", linewidth=0.8)
        ax.set_yticks(place, list(part["part"]))
        # Linear up to 10 %: one part is worth ten times as much as any other.
        ax.set_xscale("symlog", linthresh=10.0)
        ticks = [-10, 0, 10, 100]
        ax.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set(xlabel=label, ylim=(-0.5, len(part) - 0.5), xlim=(-15, 300))
        ax.grid(axis="both")


KNEE, POINT = "HeShare+", "HeShare+, other plans"


class FrontPoint(PlanReleasePolicy):
    """A policy that runs one plan of HeShare+'s front; policies that share `known` plan the front once.

    Args:
        known: an empty list, into which the front is put.
        along: 0 is the least energy, 1 the least average JCT; None the knee.
        effort: settings of the search.
    """

    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, known: list[Front], along: float | None, effort: SearchSettings) -> None:
        self.name = "heshare+" if along is None else f"heshare+ at {along:.3f}"
        self._known, self._along, self._effort = known, along, effort

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of the plan."""
        if not self._known:
            found = heshare_plus.optimise(tasks, self.cluster, self.predictor, rng=self.rng, effort=self._effort)
            self._known.append(found)
        front = self._known[0]
        if self._along is None:
            return front.trade_off.queues
        order = np.argsort(front.objectives[:, 0], kind="stable")
        return front.plans[int(order[round(self._along * (len(order) - 1))])].queues


def runs(n: int, cluster: str, *, seed: int, seeds: int, points: int, effort: SearchSettings) -> pd.DataFrame:
    """Run the knee of HeShare+'s front, and plans spread along it, on the task sets that a sweep of this seed draws.

    Args:
        n: tasks of a set.
        cluster: the GPUs, such as `4xT4,2xV100,2xA100`.
        seed: of all repetitions.
        seeds: how many repetitions.
        points: how many plans besides the knee.
        effort: settings of HeShare+'s search.

    Returns:
        One row a repetition and plan: repetition, policy, title (`KNEE` or `POINT`), then those of `Run.summary` but
        wall time and predictor calls, which the plans of a front share.
    """
    predictor = resolve.predictor_maker(resolve.PAPER)()  # one for all: its calls are not reported here
    places = [None, *np.linspace(0, 1, points).tolist()]

    def run_one(drawn: Repetition) -> Iterator[dict[str, object]]:
        known: list[Front] = []
        makers: list[Callable[[], Policy]] = [partial(FrontPoint, known, along, effort) for along in places]
        tasks: Any = partial(draw, n)
        for done in repetition(drawn.sequence(), tasks, Cluster.parse(cluster), makers, lambda: predictor):
            title = KNEE if done.policy == "heshare+" else POINT
            yield {"policy": done.policy, "title": title, **done.summary()}

    rows = repeat(run_one, seed=seed, seeds=seeds, progress="HeShare+")
    return rows.drop(columns=["planning_s", "predictor_calls"])


def at_equal(plus: pd.DataFrame, rival: pd.DataFrame, name: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return the change of HeShare+ against a rival at equal energy, and at equal average JCT.

    Nothing is interpolated: at equal energy it is the fastest of the plans that, when run, used no more energy than
    the rival on the same task set; at equal JCT the one of least energy that was no slower. A seed without such a plan
    counts as no gain (0 %).

    Args:
        plus: as from `runs`.
        rival: one row a repetition.
        name: of the rival, in the result.
        rng: random numbers of the bootstrap.

    Returns:
        Two rows: rival, at, metric, change_pct, low_pct, high_pct, n, reached (seeds with a plan within), provenance.
    """
    theirs: Any = rival.set_index("repetition").loc
    rows = []
    for at, metric, within in (("equal energy", JCT, ENERGY), ("equal average JCT", ENERGY, JCT)):
        gains = [
            100 * (least_within(plans, metric, within, theirs[number][within]) / theirs[number][metric] - 1)
            for number, plans in plus.groupby("repetition")
        ]
        change = median_interval(np.nan_to_num(gains, nan=0.0), rng).columns(*_CHANGE)
        reached = int(np.isfinite(gains).sum())
        rows.append({"rival": name, "at": at, "metric": metric, **change, "reached": reached})
    return pd.DataFrame(rows).assign(provenance="emulated")
