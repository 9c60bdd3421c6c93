"""Comparison of searches on the same task sets, by their final plans as run and as predicted (Fig. 7)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from heshare.lab.plus.heshare_plus import optimise
from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, median_interval
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import GUIDE, LITERALLY, series_style
from heshare.paper.studies import front_indicators, pymoo_searches
from heshare.paper.studies.pymoo_searches import SearchCheckpoint, genetic_checkpoints, search_checkpoints
from heshare.paper.texts import render
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import BatchModel, plan_objectives
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.plan import Plan
from heshare.scheduling.settings import LITERAL, Settings
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require, unknown
from heshare.shared.progress import drawn
from heshare.world.cluster import Cluster
from heshare.world.task import Task

OURS, IMPROVED = "HeShare", "HeShare+"
WORDS = OURS + LITERALLY
"""HeShare by the paper's words: `Settings.literal`."""
Start = Literal["random", "rank"]
STARTS: Mapping[Start, str] = {"random": "", "rank": ", HeShare's start"}
"""Endings of the rivals' titles by their initial population: random, as published, or HeShare's."""
PAPER_RATE = "0.1"
WHOLE, ALL_WORDS, NO_OPERATOR = "as it is", "all seven", "all four of these"
OPERATOR, BY_WORDS = "operator", "paper's words"
OPERATORS: Mapping[str, dict[str, Any]] = {
    "random initialisation": {"initialisation": "random"},
    "uniform crossover": {"crossover": "uniform"},
    "random reset": {"mutation": "reset"},
    "no task recovery": {"recovery": False},
}
SECOND_STAGE: Mapping[str, dict[str, Any]] = {
    "batches until memory is full": {"batching": "memory"},
    "no sharing": {"batching": "single"},
    "no MPS percentages": {"mps_goal": "none"},
    "no clocks": {"clock_scope": "none"},
}
DEPARTURES: Mapping[str, str] = {
    "every task migrates": "mutation_rate",
    "only ranks at first": "seed_mutation",
    "subset totals": "segments",
    "static targets": "targets",
    "own JCT for MPS": "mps_goal",
    "one clock for all": "clock_scope",
    "Eq. 13 to the end": "piecewise",
}
"""The settings in which HeShare departs from the paper's text, by what the text says."""
ABLATIONS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "": {WHOLE: {}},
    OPERATOR: {**OPERATORS, NO_OPERATOR: {key: v for part in OPERATORS.values() for key, v in part.items()}},
    "part of stage 2": SECOND_STAGE,
    BY_WORDS: {**{name: {key: LITERAL[key]} for name, key in DEPARTURES.items()}, ALL_WORDS: dict(LITERAL)},
}
"""Changed settings of each ablation by its group and its name: one at a time, and at the end of a group all at once."""

Runner = Callable[..., list[SearchCheckpoint]]
"""Runs a search of an `Instance` with the random numbers `rng`."""
Planner = Callable[..., Iterable[Plan]]
"""Returns plans, such as a front, of tasks, a cluster and a predictor, with the random numbers `rng`."""


@dataclass(frozen=True, slots=True)
class System:
    """A search: how it runs, the settings of its second stage, its mutation rate, and its start, one of `STARTS`."""

    run: Runner
    settings: Settings
    rate: pymoo_searches.Rate
    start: Start = "rank"


@dataclass(frozen=True)
class Study:
    """Results of searches of the same task sets, one task set a seed.

    Attributes:
        final: one row a seed and system: `system`, `rate`, `start`, `seed`, `hypervolume`, `igd_plus` of its final
            plans as run, `predicted_hypervolume`, `extent`, `spacing`, `points` of its final front as predicted.
        curves: one row a seed, system and checkpoint: `system`, `rate`, `start`, `seed`, `evaluations`, `hypervolume`
            of stage 1's front, as predicted.
    """

    final: pd.DataFrame
    curves: pd.DataFrame


def systems(
    ours: Mapping[str, Settings], rivals: Mapping[pymoo_searches.Rate, Sequence[str]], checkpoints: Sequence[int]
) -> dict[str, System]:
    """Return the searches by title: HeShare's with their settings, and the rivals with either start.

    `rivals` has keys of `pymoo_searches.TITLES`, at each mutation rate; their population, generations and second stage
    are those of the first settings. Fronts are kept after those `checkpoints` (evaluations) that end a generation.
    """
    at_rate = rivals.get(0.1, ())
    require("rivals", "none at the rate 0.1", bool(at_rate), "at least one, which the claims compare", "Name one.")
    settings = next(iter(ours.values()))
    total = settings.population * settings.generations
    ends = sorted({total, *(at for at in checkpoints if at < total and at % settings.population == 0)})
    found = {
        title: System(partial(genetic_checkpoints, settings=own, checkpoints=ends), own, own.mutation_rate)
        for title, own in ours.items()
    }
    for start, (rate, those) in product(STARTS, rivals.items()):
        initial = replace(settings, initialisation=start)
        for name in those:
            title = f"{pymoo_searches.TITLES[name].removesuffix(', batched')} at {rate}{STARTS[start]}"
            run = partial(search_checkpoints, name, settings=initial, checkpoints=ends, rate=rate)
            found[title] = System(run, settings, rate, start)
    return found


def compare(
    sets: Mapping[int, Sequence[Task]],
    cluster: Cluster,
    predictor: Predictor,
    *,
    device: Predictor,
    searches: Mapping[str, System],
    planners: Mapping[str, Planner] = MappingProxyType({IMPROVED: optimise}),
    progress: bool | None = None,
) -> Study:
    """Return a study of searches of the same task sets, whose final plans are judged by one evaluator.

    `sets` has the task sets by seed, which is also the seed of the searches; with `device`, a predictor without errors,
    the plans are run. `planners` return whole plans, not schemes that stage 2 configures, by title. `progress` shows
    a bar over the task sets; None: on a terminal.
    """
    final, curves = [], []
    with drawn(progress, iterable=sets.items(), desc="searches", unit="set") as shown:
        for number, tasks in shown:
            world = make_instance(tasks, cluster, predictor)
            model = BatchModel(world, predictor)
            stages = {title: each.run(world, rng=_rng(number, 1)) for title, each in searches.items()}
            found: dict[str, Sequence[Plan]] = {
                title: configure(own[-1].schemes, world, model, searches[title].settings)[0]
                for title, own in stages.items()
            }
            for title, planner in planners.items():
                found[title] = list(planner(world.tasks, cluster, predictor, rng=_rng(number, 2)))
            final += _measured(found, world, model, device, number)
            curves += _curves(stages, front_indicators.random_plan_mean(world, _rng(number, 3)), number)
    known = {title: {"rate": str(each.rate), "start": each.start} for title, each in searches.items()}
    return Study(_described(final, known), _described(curves, known))


def _described(rows: Sequence[Mapping[str, object]], known: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    for place, column in enumerate(("rate", "start"), start=1):
        values = [known.get(str(title), {}).get(column, "") for title in frame["system"]]
        frame.insert(place, column, values)
    return frame


def ablation(
    sets: Mapping[int, Sequence[Task]], cluster: Cluster, predictor: Predictor, *, device: Predictor, base: Settings
) -> pd.DataFrame:
    """Return results of the settings of `ABLATIONS`, whose final plans are judged as in `compare`."""
    rows = []
    settings = {name: replace(base, **changes) for group in ABLATIONS.values() for name, changes in group.items()}
    groups = {name: group for group, names in ABLATIONS.items() for name in names}
    for number, tasks in sets.items():
        world = make_instance(tasks, cluster, predictor)
        model = BatchModel(world, predictor)
        found = {
            name: configure(search(world, own, _rng(number, 1)), world, model, own)[0] for name, own in settings.items()
        }
        rows += _measured(found, world, model, device, number)
    frame = pd.DataFrame(rows)
    frame.insert(0, "group", frame["system"].map(groups))
    return frame


def _rng(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, stream]))


def _measured(
    found: Mapping[str, Sequence[Plan]], world: Instance, model: BatchModel, device: Predictor, seed: int
) -> list[dict[str, object]]:
    true = make_instance(world.tasks, world.cluster, device)
    fronts = {title: plan_objectives(plans, world, model) for title, plans in found.items()}
    runs = {title: plan_objectives(plans, true, device) for title, plans in found.items()}
    predicted, run = (
        front_indicators.FrontIndicators.of(list(each.values()), front_indicators.random_plan_mean(own, _rng(seed, 3)))
        for each, own in ((fronts, world), (runs, true))
    )
    squares = front_indicators.unit_square(fronts)
    return [
        {
            "system": title,
            "seed": seed,
            "hypervolume": run.hypervolume(runs[title]),
            "igd_plus": run.igd_plus(runs[title]),
            "predicted_hypervolume": predicted.hypervolume(front),
            "extent": front_indicators.extent(squares[title]),
            "spacing": front_indicators.spacing(squares[title]),
            "points": len(front),
        }
        for title, front in fronts.items()
    ]


def _curves(stages: Mapping[str, list[SearchCheckpoint]], level: FloatArray, seed: int) -> list[dict[str, object]]:
    indicators = front_indicators.FrontIndicators.of([own[-1].schemes.objectives for own in stages.values()], level)
    return [
        {
            "system": title,
            "seed": seed,
            "evaluations": stage.schemes.evaluations,
            "hypervolume": indicators.hypervolume(stage.schemes.objectives),
        }
        for title, own in stages.items()
        for stage in own
    ]


def summary(final: pd.DataFrame, against: Mapping[str, str]) -> pd.DataFrame:
    """Return each system's hypervolume and IGD+ as run, and the changes of some systems over it, paired by seed.

    `against` has the systems whose change over each row is given, by the name of its column.

    Returns:
        The columns of `final` that describe a system, then hypervolume, low, high (median, 95 % interval),
        igd_plus (median), for each name of `against` `name_pct`, `name_low_pct`, `name_high_pct`, the same of the first
        as predicted, with `predicted` as its name, p_value (Wilcoxon, two-sided, of the first as run), n, provenance. A
        change is NaN over a system with a hypervolume of 0.
    """
    table, predicted = (
        final.pivot_table(index="seed", columns="system", values=name)
        for name in ("hypervolume", "predicted_hypervolume")
    )
    igd_plus = final.groupby("system")["igd_plus"].median()
    described = final.columns[: list(final.columns).index("seed")]
    for title in against.values():
        if title not in table:
            raise unknown(title, map(str, table), column="against")
    ours_first = next(iter(against.values()))
    first = table[ours_first].tolist()
    rows = []
    kinds: list[Any] = final[described].drop_duplicates().to_dict("records")
    for known in kinds:
        title = str(known["system"])
        row: dict[str, Any] = {**known, **median_interval(table[title]).columns("hypervolume")}
        row["igd_plus"] = igd_plus[title]
        changes = {name: (table, ours) for name, ours in against.items()} | {"predicted": (predicted, ours_first)}
        for name, (values, ours) in changes.items():
            change = _change_pct(values[ours], values[title])
            row |= change.columns(f"{name}_pct", f"{name}_low_pct", f"{name}_high_pct")
        rows.append({**row, "p_value": front_indicators.wilcoxon(first, table[title].tolist())})
    found = pd.DataFrame(rows)
    n = found.pop("n")
    return found.assign(n=n, provenance="emulated")


def _change_pct(ours: pd.Series, theirs: pd.Series) -> ConfidenceInterval:
    # Over a hypervolume of 0, of a front that is nowhere better than the mean of random plans, there is no change.
    good = bool((theirs > 0).all())
    return change_pct(ours, theirs) if good else ConfidenceInterval(math.nan, math.nan, math.nan, len(theirs))


def search_table(final: pd.DataFrame) -> pd.DataFrame:
    """Return `summary` of the searches with the changes of HeShare and of HeShare by the paper's words over each."""
    return summary(final, {"change": OURS, "literal": WORDS})


def nearest(table: pd.DataFrame, start: Start, lead: str = "change") -> Any:
    """Return the row of the rival at the paper's mutation rate that is led by least.

    `lead` is `change` for HeShare's, `literal` for that of HeShare by the paper's words.
    """
    rows = _rivals(table, start)
    rows = rows[rows["rate"] == PAPER_RATE]
    return rows.iloc[int(rows[f"{lead}_pct"].argmin())]


def _rivals(table: pd.DataFrame, start: str) -> pd.DataFrame:
    return table[~table["system"].isin([OURS, WORDS, IMPROVED]) & (table["start"] == start)]


def _short(title: object) -> str:
    return str(title).partition(" at ")[0]


def leads(table: pd.DataFrame) -> dict[str, Any]:
    """Return the rivals nearest to HeShare from a random start (found) and its own (same), and to the words (words)."""
    found, same = (nearest(table, start) for start in STARTS)
    return {"found": found, "same": same, "words": nearest(table, "random", "literal")}


def covers_more(table: pd.DataFrame) -> dict[str, Any]:
    """Return claim S1: HeShare's hypervolume over each rival's that starts at random, at the paper's mutation rate.

    The details have the other rate, the rivals with HeShare's initial population, and HeShare by the paper's words.
    `table` is as from `search_table`.
    """
    at_random = _rivals(table, "random")
    priced = at_random[at_random["rate"] == PAPER_RATE].set_index("system")
    known = leads(table)
    found = known["found"]
    value, low, high = (float(found[name]) for name in ("change_pct", "change_low_pct", "change_high_pct"))
    note = render(
        "06_search",
        "covers_more",
        found=found,
        words=known["words"],
        at_random=at_random.to_dict("records"),
        from_ours=_rivals(table, "rank").to_dict("records"),
        rate=PAPER_RATE,
        ahead=(priced["literal_low_pct"] > 0).sum(),
        count=len(priced),
    )
    return ConfidenceInterval(value, low, high, int(found["n"])).claim_arguments(
        note,
        holds=(priced["change_low_pct"] > 0).to_dict(),
        why=render("06_search", "covers_more_in_short", **known),
        at={"system": found["system"]},
    )


def convergence_stages(medians: pd.DataFrame) -> dict[int, tuple[float, float, pd.Series, pd.Series]]:
    """Return hypervolumes after the first and the last number of evaluations, by it; `medians` as from `convergence`.

    Each is of HeShare, of HeShare by the paper's words, and of the rivals at the paper's rate from either start.
    """
    stages = {}
    for at in (medians["evaluations"].min(), medians["evaluations"].max()):
        rows = medians[medians["evaluations"] == at]
        own = rows.set_index("system")["hypervolume"]
        at_rate = rows[rows["rate"] == PAPER_RATE]
        at_random, from_ours = (_rivals(at_rate, start)["hypervolume"] for start in STARTS)
        stages[int(at)] = (float(own[OURS]), float(own[WORDS]), at_random, from_ours)
    return stages


def change_dots(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw Fig. 7: the change of HeShare's hypervolume over each rival's, a panel for each start of the rivals.

    Planners of one's own, which have no start, are in both.
    """
    for ax, (start, words) in zip(axes, STARTS.items(), strict=True):
        rows = pd.concat([_rivals(table, each) for each in (start, "")])
        _run_and_predicted(ax, rows["system"].str.removesuffix(words).tolist(), rows)
        ax.axvline(0.0, color=GUIDE, lw=0.8)
        ax.set_title(words.removeprefix(", ") or "random start", fontsize=7)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


def _run_and_predicted(ax: Axes, names: Sequence[str], rows: pd.DataFrame, at: FloatArray | None = None) -> None:
    # A row a name: the change as run, filled, and as predicted, open, with their intervals.
    at = np.arange(len(names), dtype=float) if at is None else at
    for place, (name, label) in enumerate((("change", "run"), ("predicted", "predicted"))):
        ends = (f"{name}_pct", f"{name}_low_pct", f"{name}_high_pct")
        style = series_style(OURS).line_arguments(linestyle="", markersize=3.5)
        style |= {"markerfacecolor": "white"} if name == "predicted" else {}
        spread = plots.interval_lengths(rows, *ends)
        ax.errorbar(rows[ends[0]].to_numpy(float), at + 0.3 * (place - 0.5), xerr=spread, label=label, **style)
    ax.set_yticks(at, names)
    ax.set_ylim(at[-1] + 0.6, at[0] - 0.6)
    ax.grid(visible=True, axis="x")


def convergence(axes: Sequence[Axes], curves: pd.DataFrame) -> pd.DataFrame:
    """Draw the median predicted hypervolume of stage 1's fronts, a panel for each start of the rivals.

    Returns the medians of all systems, those that are not drawn as well.
    """
    keys = ["system", "rate", "start", "evaluations"]
    medians = curves.groupby(keys, sort=False)["hypervolume"].median().reset_index()
    systems = curves.drop_duplicates("system")
    own = systems["system"].isin([OURS, WORDS, IMPROVED])
    for ax, (start, words) in zip(axes, STARTS.items(), strict=True):
        drawn = own | ((systems["rate"] == PAPER_RATE) & (systems["start"] == start))
        part = medians[medians["system"].isin(systems[drawn]["system"])]
        shown = part.assign(system=part["system"].map(_short))
        plots.lines(ax, shown, x="evaluations", y="hypervolume", series="system")
        at = medians["evaluations"].unique()
        ax.set_xscale("log")
        ax.set_xticks(at[[0, len(at) // 2, -1]], [f"{each:,}" for each in at[[0, len(at) // 2, -1]]])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("Evaluations")
        ax.set_title(words.removeprefix(", ") or "random start", fontsize=7)
    axes[0].set_ylabel("Relative hypervolume")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return medians


def ablation_dots(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the change of hypervolume of HeShare as it is over each other setting, as run and as predicted."""
    rows = table[table["group"] != ""].reset_index(drop=True)
    gap = 0.6 * rows["group"].map(list(dict.fromkeys(rows["group"])).index).to_numpy(float)
    _run_and_predicted(ax, rows["system"].tolist(), rows, np.arange(len(rows)) + gap)
    ax.axvline(0.0, color=GUIDE, lw=0.8)
    ax.set_xlabel("HeShare's hypervolume over it (%)")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
