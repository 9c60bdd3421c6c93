"""Comparison of searches on the same task sets: their fronts, hypervolume, IGD+ and convergence (Fig. 7)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.arrays import FloatArray
from heshare.experiments.claims.sources import source
from heshare.experiments.figures import plots
from heshare.experiments.figures.series_styles import GUIDE, category_style, series_style
from heshare.experiments.statistics import ConfidenceInterval, change_pct, median_interval
from heshare.experiments.studies import pymoo_searches
from heshare.experiments.studies.front_indicators import FrontIndicators, attainment, random_plan_mean, wilcoxon
from heshare.experiments.studies.pymoo_searches import SearchCheckpoint
from heshare.plus.heshare_plus import optimise
from heshare.plus.search_settings import DEFAULT_SETTINGS, SearchSettings
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchModel
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.plan import Plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task

OURS, IMPROVED = "HeShare", "HeShare+"
CHECKPOINTS = (500, 1000, 2500, 5000, 10_000, 25_000)
ABLATIONS: Mapping[str, dict[str, Any]] = {
    "as it is": {},
    "random initialisation": {"initialisation": "random"},
    "uniform crossover": {"crossover": "uniform"},
    "random reset": {"mutation": "reset"},
    "no task recovery": {"recovery": False},
    "static targets (literal)": {"targets": "static"},
    "subset totals (literal)": {"segments": "totals"},
    "every task migrates (literal)": {"mutation_rate": 1.0},
    "only ranks at first (literal)": {"seed_mutation": 0.0},
    "batches until memory is full": {"batching": "memory"},
    "no sharing": {"batching": "single"},
    "no MPS percentages": {"mps_goal": "none"},
    "own JCT for MPS (literal)": {"mps_goal": "own"},
    "no clocks": {"clock_scope": "none"},
    "one clock for all (literal)": {"clock_scope": "plan"},
}
"""Changed settings of each ablation, by its name; one part of the paper is replaced at a time."""

Runner = Callable[[Instance, np.random.Generator], list[SearchCheckpoint]]


@dataclass(frozen=True)
class Study:
    """Results of searches of the same task sets, one task set a seed.

    Attributes:
        final: one row a seed and system: `system`, `seed`, `hypervolume`, `igd_plus` of its final plans, `points`.
        curves: one row a seed, system and checkpoint: `evaluations`, `hypervolume` of stage 1's front, `seconds`.
        fronts: the final fronts, [J, s], shape (m, 2), by system, one a seed.
    """

    final: pd.DataFrame
    curves: pd.DataFrame
    fronts: Mapping[str, list[FloatArray]]


def systems(settings: Settings, names: Mapping[pymoo_searches.Rate, Sequence[str]]) -> dict[str, Runner]:
    """Return the searches by title: HeShare, and for each mutation rate those of pymoo (keys of `TITLES`)."""
    total = settings.population * settings.generations
    checkpoints = sorted({total, *(at for at in CHECKPOINTS if at < total and at % settings.population == 0)})
    found: dict[str, Runner] = {
        OURS: lambda world, rng: pymoo_searches.genetic_checkpoints(world, settings, rng, checkpoints)
    }
    fair = replace(settings, initialisation="random")
    for rate, those in names.items():
        for name in those:
            title = f"{pymoo_searches.TITLES[name].removesuffix(', batched')} at {rate}"
            found[title] = _pymoo(name, fair, checkpoints, rate)
    return found


def _pymoo(name: str, settings: Settings, checkpoints: Sequence[int], rate: pymoo_searches.Rate) -> Runner:
    return lambda world, rng: pymoo_searches.search_checkpoints(name, world, settings, rng, checkpoints, rate=rate)


def compare(
    sets: Mapping[int, Sequence[Task]],
    cluster: Cluster,
    predictor: Predictor,
    *,
    runners: Mapping[str, Runner],
    settings: Settings,
    improved: SearchSettings | None = DEFAULT_SETTINGS,
) -> Study:
    """Return a study of searches of the same task sets; one second stage configures the schemes of all of them.

    Args:
        sets: task sets by seed, which is also the seed of the searches.
        cluster: the GPUs.
        predictor: the predictor of all systems.
        runners: the systems, as from `systems`.
        settings: the settings of the second stage.
        improved: the settings of HeShare+'s search; None omits HeShare+.
    """
    final, curves = [], []
    fronts: dict[str, list[FloatArray]] = {}
    for number, tasks in sets.items():
        world = make_instance(tasks, cluster, predictor)
        stages = {title: run(world, _rng(number, 1)) for title, run in runners.items()}
        found = {title: configure(own[-1].schemes, world, predictor, settings)[1] for title, own in stages.items()}
        if improved is not None:
            better = optimise(world.tasks, cluster, predictor, rng=_rng(number, 2), effort=improved)
            found[IMPROVED] = better.objectives
        level = random_plan_mean(world, _rng(number, 3))
        final += _measured(found, level, number)
        curves += _curves(stages, level, number)
        for title, front in found.items():
            fronts.setdefault(title, []).append(front)
    return Study(pd.DataFrame(final), pd.DataFrame(curves), fronts)


def ablation(
    sets: Mapping[int, Sequence[Task]], cluster: Cluster, predictor: Predictor, *, base: Settings
) -> pd.DataFrame:
    """Return results with one part of `base` replaced at a time, and with the paper read literally in all parts.

    All final plans are judged by one evaluator, in which tasks speed up when others end, however they were chosen.

    Returns:
        One row a seed and `system`: `hypervolume` and `igd_plus` of the final plans.
    """
    rows = []
    sizes = {"population": base.population, "generations": base.generations}
    variants = {name: replace(base, **changes) for name, changes in ABLATIONS.items()}
    variants["all words literally"] = Settings.literal(**sizes)
    for number, tasks in sets.items():
        world = make_instance(tasks, cluster, predictor)
        found = {}
        for name, settings in variants.items():
            plans, own = configure(search(world, settings, _rng(number, 1)), world, predictor, settings)
            found[name] = own if settings.piecewise else plan_objectives(plans, world, predictor)
        rows += _measured(found, random_plan_mean(world, _rng(number, 3)), number)
    return pd.DataFrame(rows)


def plan_objectives(plans: Sequence[Plan], world: Instance, predictor: Predictor) -> FloatArray:
    """Return [energy in J, average JCT in s] of plans whose tasks speed up when others end, shape (m, 2).

    So plans that were chosen by Eq. 13 are judged as all others are. The tasks of `world` arrive at once.
    """
    index = {task.id: place for place, task in enumerate(world.tasks)}
    number, behind, kind, tasks, mps_pct, sm_mhz = [], [], [], [], [], []
    for place, plan in enumerate(plans):
        for gpu, queue in enumerate(plan.queues):
            after = sum(len(batch.tasks) for batch in queue)
            for batch in queue:
                after -= len(batch.tasks)
                number.append(place)
                behind.append(after)
                kind.append(int(world.kind_of[gpu]))
                tasks.append([index[task] for task in batch.tasks])
                mps_pct.append(list(batch.mps_pct))
                sm_mhz.append(batch.sm_mhz or DEFAULT_CLOCK)
    width = max(map(len, tasks))
    padded = [
        np.array([row + [fill] * (width - len(row)) for row in rows]) for rows, fill in ((tasks, EMPTY), (mps_pct, 100))
    ]
    batches = Batches(np.array(kind), padded[0], padded[1], np.array(sm_mhz))
    done = BatchModel(world, predictor).execute(batches, piecewise=True)
    energy_j = np.bincount(number, done.energy_j, len(plans))
    jct_s = np.bincount(number, done.jct_s(np.array(behind)), len(plans)) / len(world.tasks)
    return np.column_stack((energy_j, jct_s))


def _rng(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, stream]))


def _measured(found: Mapping[str, FloatArray], level: FloatArray, seed: int) -> list[dict[str, object]]:
    indicators = FrontIndicators.of(list(found.values()), level)
    return [
        {
            "system": title,
            "seed": seed,
            "hypervolume": indicators.hypervolume(front),
            "igd_plus": indicators.igd_plus(front),
            "points": len(front),
        }
        for title, front in found.items()
    ]


def _curves(stages: Mapping[str, list[SearchCheckpoint]], level: FloatArray, seed: int) -> list[dict[str, object]]:
    indicators = FrontIndicators.of([own[-1].schemes.objectives for own in stages.values()], level)
    return [
        {
            "system": title,
            "seed": seed,
            "evaluations": stage.schemes.evaluations,
            "hypervolume": indicators.hypervolume(stage.schemes.objectives),
            "seconds": stage.seconds,
        }
        for title, own in stages.items()
        for stage in own
    ]


def summary(final: pd.DataFrame, against: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return each system's hypervolume and IGD+, and the change of `against` over it, paired by seed.

    Returns:
        Columns system, hypervolume, low, high (median, 95 % bootstrap interval), igd_plus (median), change_pct,
        change_low_pct, change_high_pct (`against` over the system), p_value (Wilcoxon, two-sided), n, provenance.
    """
    table = final.pivot_table(index="seed", columns="system", values="hypervolume")
    igd_plus = final.groupby("system")["igd_plus"].median()
    rows = []
    for title in dict.fromkeys(final["system"]):
        row: dict[str, Any] = {"system": title, **median_interval(table[title], rng).columns("hypervolume")}
        change = change_pct(table[against], table[title], rng)
        row |= {"igd_plus": igd_plus[title], **change.columns("change_pct", "change_low_pct", "change_high_pct")}
        rows.append({**row, "p_value": wilcoxon(table[against].tolist(), table[title].tolist())})
    found = pd.DataFrame(rows)
    n = found.pop("n")
    return found.assign(n=n, provenance="emulated")


def surfaces(study: Study, titles: Sequence[str]) -> pd.DataFrame:
    """Return the median attainment surfaces over the seeds: `system`, `energy`, `jct`, relative to the best found."""
    rows = []
    for title in titles:
        scaled = [
            front / np.min([own[at].min(axis=0) for own in study.fronts.values()], axis=0)
            for at, front in enumerate(study.fronts[title])
        ]
        rows += [{"system": title, "energy": x, "jct": y} for x, y in attainment(scaled)]
    return pd.DataFrame(rows)


def covers_more(final: pd.DataFrame, rng: np.random.Generator, rate: str = "0.1") -> dict[str, Any]:
    """Return claim S1: the order of the hypervolumes at the paper's mutation rate; the note also has the other rate."""
    table: Any = summary(final, OURS, rng).set_index("system")
    theirs = [title for title in table.index if title.endswith(f" at {rate}")]
    holds = {title: bool(table["change_low_pct"][title] > 0) for title in theirs}
    nearest = min(theirs, key=lambda title: float(table["change_pct"][title]))
    value, low, high = (float(table[name][nearest]) for name in ("change_pct", "change_low_pct", "change_high_pct"))
    changes_text = ", ".join(
        f"{row.Index} {row.change_pct:+.2f} % (p = {row.p_value:.3g})"
        for row in table.itertuples()
        if str(row.Index) not in (OURS, IMPROVED)
    )
    return ConfidenceInterval(value, low, high, int(table["n"][nearest])).claim_arguments(
        f"Hypervolume of HeShare's final plans over each rival's, paired by seed: {changes_text}. "
        f"Measured: over the nearest at rate {rate}, {nearest}. All have the same encoding, evaluator, evaluations and "
        "second stage.",
        holds=holds,
        unit="%, hypervolume over the nearest rival's",
        source=source("x06a_search", "change_pct", system=nearest),
    )


def front_panels(axes: Sequence[Axes], study: Study, seed: int) -> pd.DataFrame:
    """Draw Fig. 7: the fronts of one seed, and the median attainment surfaces of all, at the paper's mutation rate.

    Returns:
        What is drawn: `panel`, `system`, `energy`, `jct`, over the best found by any system.
    """
    titles = [title for title in study.fronts if not title.endswith("1/n")]
    one = replace(study, fronts={title: own[:1] for title, own in study.fronts.items()})
    data = [surfaces(one, titles).assign(panel=f"seed {seed}"), surfaces(study, titles).assign(panel="median surface")]
    for ax, part in zip(axes, data, strict=True):
        for title, front in part.groupby("system", sort=False):
            how = series_style(str(title))
            ax.plot(front["energy"], front["jct"], color=how.colour, ls=how.line, drawstyle="steps-post", label=title)
        ax.set(xlabel="Energy (best found: 1)", ylabel="Average JCT (best found: 1)", title=part["panel"].iloc[0])
        ax.grid(axis="both")
    axes[0].legend()
    return pd.concat(data, ignore_index=True)[["panel", "system", "energy", "jct"]]


def convergence(ax: Axes, curves: pd.DataFrame, against: str) -> pd.DataFrame:
    """Draw the median hypervolume of stage 1's fronts against `evaluations` or `seconds`; return what is drawn."""
    drawn = curves.groupby(["system", "evaluations"], sort=False)[["hypervolume", "seconds"]].median().reset_index()
    if against == "evaluations":
        drawn = drawn.drop(columns="seconds")
    plots.lines(ax, drawn, x=against, y="hypervolume", series="system")
    ax.set_xscale("log")
    ax.set(xlabel="Evaluations" if against == "evaluations" else "Time (s)", ylabel="Relative hypervolume")
    ax.legend()
    return drawn


def ablation_bars(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the median hypervolume of every ablation with its interval; `table` as from `summary`."""
    place = np.arange(len(table))[::-1]
    value = table["hypervolume"].to_numpy(float)
    spread = plots.interval_lengths(table, "hypervolume", "low", "high")
    literal = table["system"].str.contains("literal").to_numpy(bool)
    for chosen, index, label in ((~literal, 1, "replaced"), (literal, 0, "the paper's words literally")):
        how = category_style(index).line_arguments(linestyle="")
        ax.errorbar(value[chosen], place[chosen], xerr=spread[:, chosen], label=label, **how)
    ax.axvline(value[0], color=GUIDE, lw=0.8)
    ax.set_yticks(place, table["system"])
    ax.set(xlabel="Relative hypervolume")
    ax.grid(axis="both")
    plots.legend_above(ax)
