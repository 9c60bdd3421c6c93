"""Comparison of variants: rivals in three forms, HeShare with one part removed, HeShare+ at equal energy or JCT.

The forms of a rival are the one of the paper, the one with HeShare's placement, and its own best setting of those
tried on other seeds (`best_settings`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.task_sizes import draw
from heshare.lab.plus import heshare_plus
from heshare.lab.plus.search_settings import SearchSettings
from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, group_means, median_interval
from heshare.lab.sweeps.study_runs import repeat
from heshare.lab.sweeps.sweep import repetition
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import GUIDE, category_style
from heshare.paper.texts import render
from heshare.policies import registry
from heshare.policies.heshare import ABLATIONS
from heshare.policies.plan_release import PlanReleasePolicy
from heshare.policies.policy import Policy, Traits
from heshare.scheduling.pareto import Front
from heshare.scheduling.plan import Batch
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.cluster import Cluster
from heshare.world.task import Task

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


def changes(
    runs: pd.DataFrame, forms: Mapping[str, Mapping[str, str]], ours: Sequence[str], rng: np.random.Generator
) -> pd.DataFrame:
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
            change = median_change(runs, title, theirs, metric, rng).columns(*_CHANGE)
            over = median_change(runs, theirs, "Random", metric, rng).value if has_random else np.nan
            rows.append({**row, **change, "over_random_pct": over})
    return pd.DataFrame(rows).assign(provenance="emulated")


def median_change(
    runs: pd.DataFrame, ours: str, theirs: str, metric: str, rng: np.random.Generator
) -> ConfidenceInterval:
    """Return the median change, %, of a metric from the policy titled `theirs` to the one titled `ours`.

    Pairs are of one world and seed. A seed's value is the geometric mean over its worlds. The interval is over seeds
    alone, because worlds of one seed share their task sets and are not independent.
    """
    return change_pct(seed_means(runs, ours, metric), seed_means(runs, theirs, metric), rng)


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
    details = render(
        "05_comparison",
        "rival",
        ours=ours,
        rival=rival,
        defaults=_defaults(rival),
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


def _defaults(rival: str) -> str:
    known = registry.policies()[RIVALS[rival]].parameters
    names = {"Morak": ("cap", "k", "limit"), "mu-Serve": ("limit",)}[rival]
    return ", ".join(f"{name} {known[name]}" for name in names)


def against_random(runs: pd.DataFrame, rng: np.random.Generator) -> dict[str, list[list[float]]]:
    """Return the changes (energy, average JCT) of both rivals, with the paper's and HeShare's placement, to Random."""
    return {
        rival: [
            [median_change(runs, registry.title(policy + end), "Random", name, rng).value for name in (ENERGY, JCT)]
            for end in ("", ":heshare-placement")
        ]
        for rival, policy in RIVALS.items()
    }


WHOLE = "heshare:trade-off"
POLICIES = tuple(f"{WHOLE}/{name}" for name in ABLATIONS)
"""Names in the registry of Trade-off with one part removed."""


def ablation_changes(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for metric, (policy, (meaning, _)) in product(METRICS, zip(POLICIES, ABLATIONS.values(), strict=True)):
        change = median_change(runs, registry.title(policy), registry.title(WHOLE), metric, rng).columns(*_CHANGE)
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


KNEE, POINT = "HeShare+", "HeShare+, other plans"


class FrontPoint(PlanReleasePolicy):
    """A policy that runs one plan of HeShare+'s front; policies that share `fronts` compute the front once.

    `along` is the position on the front: 0 is the least energy, 1 the least average JCT, None the knee.
    """

    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, fronts: list[Front], along: float | None, effort: SearchSettings) -> None:
        self.name = "heshare+" if along is None else f"heshare+ at {along:.3f}"
        self._fronts, self._along, self._effort = fronts, along, effort

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        if not self._fronts:
            found = heshare_plus.optimise(tasks, self.cluster, self.predictor, rng=self.rng, effort=self._effort)
            self._fronts.append(found)
        front = self._fronts[0]
        if self._along is None:
            return front.trade_off.queues
        order = np.argsort(front.objectives[:, 0], kind="stable")
        return front.plans[int(order[round(self._along * (len(order) - 1))])].queues


def runs(n: int, cluster: str, *, seed: int, seeds: int, points: int, effort: SearchSettings) -> pd.DataFrame:
    """Return runs of the knee of HeShare+'s front and of plans spread along it.

    The task sets are those of a sweep with the same seed. `points` is the number of plans besides the knee.

    Returns:
        One row a repetition and plan: repetition, policy, title (`KNEE` or `POINT`), then those of `Run.summary` but
        wall time and predictor calls, which the plans of a front share.
    """
    predictor = resolve.predictor_maker(
        resolve.FOREST
    )()  # shared by all policies, because its calls are not reported here
    positions = [None, *np.linspace(0, 1, points).tolist()]

    def run_one(drawn: Repetition) -> Iterator[dict[str, object]]:
        fronts: list[Front] = []
        makers: list[Callable[[], Policy]] = [partial(FrontPoint, fronts, along, effort) for along in positions]
        tasks: Any = partial(draw, n)
        for done in repetition(drawn, tasks, Cluster.parse(cluster), makers, lambda: predictor):
            title = KNEE if done.policy == "heshare+" else POINT
            yield {"policy": done.policy, "title": title, **done.summary()}

    rows = repeat(run_one, seed=seed, seeds=seeds, progress="HeShare+")
    return rows.drop(columns=["planning_s", "predictor_calls"])


def plans_at_equal(plus: pd.DataFrame, rival: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return HeShare+'s plan at equal energy and at equal average JCT to a rival, for each repetition.

    Nothing is interpolated. At equal energy, the plan is the fastest of those that used no more energy than the
    rival when run on the same task set. At equal JCT, it is the plan of least energy of those that were no slower.
    `rival` has one row a repetition, `name` is its name in the result.

    Returns:
        Two rows a repetition: rival, at, metric (that is compared), repetition, plan, theirs, ours, change_pct,
        provenance. Where no plan is within the rival's energy or JCT, plan is empty, ours is NaN and the change 0.
    """
    rows = []
    for (at, metric, within), theirs in product(_EQUAL, rival.to_dict("records")):
        plans = plus[(plus["repetition"] == theirs["repetition"]) & (plus[within] <= theirs[within])]
        found = {"plan": "", "ours": np.nan, "change_pct": 0.0}
        if len(plans):
            best = plans.loc[plans[metric].idxmin()]
            change = 100 * (best[metric] / theirs[metric] - 1)
            found = {"plan": best["policy"], "ours": best[metric], "change_pct": change}
        known = {"rival": name, "at": at, "metric": metric, "repetition": theirs["repetition"]}
        rows.append({**known, "theirs": theirs[metric], **found})
    return pd.DataFrame(rows).assign(provenance="emulated")


_EQUAL = (("equal energy", JCT, ENERGY), ("equal average JCT", ENERGY, JCT))


def changes_at_equal(plans: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for (rival, at, metric), part in plans.groupby(["rival", "at", "metric"], sort=False):
        change = median_interval(part["change_pct"], rng).columns(*_CHANGE)
        rows.append({"rival": rival, "at": at, "metric": metric, **change, "reached": int((part["plan"] != "").sum())})
    return pd.DataFrame(rows).assign(provenance="emulated")
