"""The study of μ-Serve in the setting of its own paper: requests to many models over time, under latency limits.

From the abstract: a homogeneous cluster serves many models; the GPU frequency follows the attainment of latency limits;
models are placed so that those that react to the clock do not share a GPU with those that do not. Recalled and not
confirmed: V100 cards, and latency limits that are multiples of a request's time alone. Load, lengths of requests, that
multiple and inference batch sizes are not in the record: assumed, and changed one at a time in `sensitivity`.

A request is a run of iterations of one model. The GPUs have their models loaded all the time, so that no GPU is parked.
`run_systems` gives power and attained limits over a window after the start, `savings` compares them, `energy_and_time`
compares the same clocks with requests over time and all at once, and `queueing` the order of requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, median_interval
from heshare.lab.sweeps.study_runs import paired_change, repeat
from heshare.paper.claims.sources import claim_of_row
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures.rows import TITLE, interval_rows
from heshare.paper.figures.series_styles import BAND, GUIDE, TEXT, series_style
from heshare.paper.texts import render
from heshare.policies.predictions import TaskPredictions
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.running.timeline import energy_j
from heshare.shared.errors import require
from heshare.world.catalogue import gpu, paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

TOP, SLOWER, MU_SERVE = "One at a time", "One at a time, 0.8 clock", "μ-Serve"
AIMED, MIXED = "μ-Serve, 0.6 of the limit", "μ-Serve, mixed groups"
BY_ITERATION = "μ-Serve, limits of iterations"
SHOWN = (SLOWER, MU_SERVE, AIMED)
"""The systems that are compared with one at a time at the top clock under every load."""
PAPER = (paper_claims()["U1", "least"].value, paper_claims()["U1", "most"].value)
"""The range of the paper's power savings."""
NO_CONTROL = "mu-serve:no-control"
RESPONSES = "mu-serve(latency=response,limit={limit},step=2)"
"""μ-Serve with single requests as tasks; its clock falls by two places, 15 MHz on a V100."""

_PREDICTOR = DevicePredictor()
_words = partial(render, "09_rivals")


@dataclass(frozen=True, slots=True)
class ServingSystem:
    """A system of the study.

    Attributes:
        policy: its description; `{limit}` is filled in.
        clock: a fixed clock as a share of the top one, 0 for a clock that the policy sets.
        grouped: whether models of similar sensitivity to the clock share a GPU; otherwise groups are drawn.
        aim: the limit that the controller is given, as a share of the promised one.
    """

    policy: str
    clock: float = 0.0
    grouped: bool = True
    aim: float = 1.0


SYSTEMS: Mapping[str, ServingSystem] = {
    TOP: ServingSystem(NO_CONTROL, clock=1.0),
    SLOWER: ServingSystem(NO_CONTROL, clock=0.8),
    MU_SERVE: ServingSystem(RESPONSES),
    AIMED: ServingSystem(RESPONSES, aim=0.6),
    MIXED: ServingSystem(RESPONSES, grouped=False),
    BY_ITERATION: ServingSystem("mu-serve"),
}
"""The systems, by title."""


@dataclass(frozen=True, slots=True)
class StudySetting:
    """Setting of μ-Serve's study; all assumed.

    Attributes:
        load: time that the requests of a card need alone at the top clock, as a share of all time.
        limit: latency limit of a request's response, as a multiple of its time alone at the top clock.
        request_s: mean time of a request alone at the top clock, s.
        spread: standard deviation of the logarithm of that time.
        burstiness: coefficient of variation of the time between two arrivals; 1 is Poisson.
        window_s: end of the window that is measured, s.
        warm_up_s: its beginning, s.
    """

    gpu: str = "V100"
    gpus: int = 3
    load: float = 0.4
    limit: float = 5.0
    batch_size: int = 8
    request_s: float = 0.5
    spread: float = 0.0
    burstiness: float = 1.0
    window_s: float = 240.0
    warm_up_s: float = 60.0

    def __post_init__(self) -> None:
        require("window_s", self.window_s, self.window_s > self.warm_up_s, f"more than {self.warm_up_s:g} s")

    def draw_groups(self, grouped: bool, rng: np.random.Generator) -> list[list[str]]:
        """Return the models of each GPU, as many on each: in order of their sensitivity to the clock, or as drawn."""
        names, known = rng.permutation(sorted(paper_models())).tolist(), TaskPredictions(_PREDICTOR)
        if grouped:
            names.sort(key=lambda name: known.sensitivity(Workload(name, self.batch_size), gpu(self.gpu)))
        return [part.tolist() for part in np.array_split(np.array(names), self.gpus)]

    def draw_requests(self, rng: np.random.Generator) -> list[Task]:
        """Return the requests of all GPUs by arrival, until the window's end, each of a model drawn from all."""
        names = sorted(paper_models())
        shape, mean_s = self.burstiness**-2, self.request_s / (self.load * self.gpus)
        count = int(2 * self.window_s / mean_s) + 10
        arrivals_s = np.cumsum(rng.gamma(shape, mean_s / shape, count))
        lengths_s = self.request_s * rng.lognormal(-(self.spread**2) / 2, self.spread, count)
        drawn = rng.integers(len(names), size=count)
        tasks = []
        for index in np.flatnonzero(arrivals_s < self.window_s).tolist():
            workload = Workload(names[drawn[index]], self.batch_size)
            iterations = float(lengths_s[index]) / alone_s(self.gpu, workload)
            tasks.append(Task(index, workload, iterations, float(arrivals_s[index])))
        return tasks


@cache
def alone_s(card: str, workload: Workload) -> float:
    """Return the time of an iteration alone at the top clock of a card, s."""
    return float(_PREDICTOR.solo([workload], gpu(card), gpu(card).max_mhz).time_s[0, 0])


def run_systems(
    setting: StudySetting, *, seed: int, seeds: int, titles: Sequence[str] = tuple(SYSTEMS)
) -> pd.DataFrame:
    """Run systems on requests that are the same for all with the same groups of models.

    Returns:
        One row a repetition and system: title, load, power_w (mean of all GPUs together in the window), attained_pct
        (requests that arrived in the window and met their limits), slowdown (their median response over the time
        alone), requests; provenance.
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        groups = {grouped: setting.draw_groups(grouped, repetition.rng(0)) for grouped in (True, False)}
        requests = setting.draw_requests(repetition.rng(1))
        for title in titles:
            system = SYSTEMS[title]
            parts = []
            for models in groups[system.grouped]:
                hosted = [task for task in requests if task.workload.model in models]
                parts.append(_measures(run_gpu(setting, hosted, system), setting))
            power_w, slowdowns = sum(part[0] for part in parts), np.concatenate([part[1] for part in parts])
            met = 100.0 * float((slowdowns <= setting.limit * (1 + 1e-9)).mean())
            row = {"title": title, "load": setting.load, "power_w": power_w, "attained_pct": met}
            yield {**row, "slowdown": float(np.median(slowdowns)), "requests": len(slowdowns)}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def run_gpu(setting: StudySetting, tasks: Sequence[Task], system: ServingSystem) -> Run:
    card = gpu(setting.gpu)
    device = EmulatedDevice(card)
    if system.clock:
        device.set_clock(min(card.clocks_mhz, key=lambda mhz: abs(mhz - system.clock * card.max_mhz)))
    policy = make(system.policy.format(limit=system.aim * setting.limit))
    numbered = [replace(task, id=index) for index, task in enumerate(tasks)]
    rng = np.random.default_rng(0)
    return run(numbered, Cluster((card,)), policy, predictor=_PREDICTOR, rng=rng, devices=[device])


def _measures(result: Run, setting: StudySetting) -> tuple[float, np.ndarray[Any, Any]]:
    until_j = [energy_j(result.record.segments, np.array([at])) for at in (setting.warm_up_s, setting.window_s)]
    power_w = float((until_j[1] - until_j[0])[0]) / (setting.window_s - setting.warm_up_s)
    counted = np.array([task.arrival_s >= setting.warm_up_s for task in result.tasks])
    alone = np.array([task.iterations * alone_s(setting.gpu, task.workload) for task in result.tasks])
    return power_w, (result.jct_s / alone)[counted]


def savings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return how many times less power each system takes than one at a time at the top clock, by load.

    Returns:
        One row a load and title: load, title, ratio with low and high, lost_pct (percentage points fewer attained
        limits than at the top clock) with lost_low and lost_high, n, attained_pct and slowdown (medians); provenance.
    """
    rows = []
    for (load, title), part in runs.groupby(["load", "title"], sort=False):
        ratio, lost = _beside_top(runs, load, title)
        row: dict[str, Any] = {"load": load, "title": title, **median_interval(ratio).columns("ratio")}
        row |= median_interval(lost).columns("lost_pct", "lost_low", "lost_high")
        rows.append({**row, **{name: float(part[name].median()) for name in ("attained_pct", "slowdown")}})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _beside_top(runs: pd.DataFrame, load: Any, title: Any) -> tuple[pd.Series, pd.Series]:
    rows = runs[runs["load"] == load].set_index("repetition")
    top, own = rows[rows["title"] == TOP], rows[rows["title"] == title]
    return top["power_w"] / own["power_w"], top["attained_pct"] - own["attained_pct"]


VARIANTS: Mapping[str, dict[str, Any]] = {
    "as in Fig. x09d": {},
    "limit 2": {"limit": 2.0},
    "limit 3": {"limit": 3.0},
    "limit 10": {"limit": 10.0},
    "inference batch size 1": {"batch_size": 1},
    "inference batch size 32": {"batch_size": 32},
    "arrivals in bursts": {"burstiness": 1.5},
    "lengths of requests vary": {"spread": 0.7},
    "T4": {"gpu": "T4"},
    "A100": {"gpu": "A100"},
}
"""The change of the setting in each variant of `sensitivity`, by title."""


def sensitivity(setting: StudySetting, *, seed: int, seeds: int) -> pd.DataFrame:
    """Compare power and attained limits with one assumed setting changed at a time (`VARIANTS`)."""
    found = {
        variant: savings(run_systems(replace(setting, **changed), seed=seed, seeds=seeds, titles=(TOP, *SHOWN)))
        for variant, changed in VARIANTS.items()
    }
    return pd.concat(found, names=["variant"]).reset_index("variant").reset_index(drop=True)


def energy_and_time(
    setting: StudySetting, cards: Sequence[str], limits: Sequence[float], *, seed: int, seeds: int
) -> pd.DataFrame:
    """Compare lower clocks with the top clock, for requests over time and for the same requests all at once.

    Each request runs at the least clock at which an iteration takes at most `limit` times as long as at the top clock.
    Over time the energy is that of the window, which is as long at every clock. All at once, as in HeShare's
    comparison, it is that until the last request is done, so that slower requests pay for idle power longer.

    Returns:
        One row a card and limit: gpu, limit, over_time_pct, at_once_pct (changes of energy, %), longer_pct (change of
        the time until all are done, all at once, %), n, provenance; medians over repetitions.
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for card in cards:
            on_card = replace(setting, gpu=card, gpus=1)
            over_time = on_card.draw_requests(repetition.rng())
            at_once = [replace(task, arrival_s=0.0) for task in over_time]
            top = _energies(on_card, over_time, at_once, SYSTEMS[TOP])
            for limit in limits:
                system = ServingSystem(f"mu-serve(mode=oracle,scope=task,limit={limit})")
                change = 100 * (_energies(on_card, over_time, at_once, system) / top - 1)
                names = ("over_time_pct", "at_once_pct", "longer_pct")
                yield {"gpu": card, "limit": limit, **dict(zip(names, change.tolist(), strict=True))}

    frame = repeat(run_one, seed=seed, seeds=seeds)
    found = frame.groupby(["gpu", "limit"], sort=False).median().drop(columns="repetition").reset_index()
    return found.assign(n=seeds, provenance="emulated")


def _energies(
    setting: StudySetting, over_time: Sequence[Task], at_once: Sequence[Task], system: ServingSystem
) -> np.ndarray[Any, Any]:
    window, whole = (run_gpu(setting, tasks, system) for tasks in (over_time, at_once))
    window_j = energy_j(window.record.segments, np.array([setting.window_s]))[0]
    return np.array([window_j, whole.energy_cluster_j, whole.makespan_s])


def queueing(setting: StudySetting, *, seed: int, seeds: int) -> pd.DataFrame:
    """Run requests in the order of their lengths and in order of arrival, one GPU at the top clock."""

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        tasks = replace(setting, gpus=1).draw_requests(repetition.rng())
        for title, order in (("shortest first", "ssjf"), ("in order", "fifo")):
            system = ServingSystem(f"{NO_CONTROL}(order={order})", clock=1.0)
            yield {"title": title, "avg_jct_s": run_gpu(setting, tasks, system).avg_jct_s}

    return repeat(run_one, seed=seed, seeds=seeds)


LEAST, MOST = "power, least of the loads", "power, most of the loads"
GROUPED = "power of groups by sensitivity (change, %), inference batch size {}"
SHORTEST = "average JCT of shortest first (change, %)"


def claim_numbers(runs: pd.DataFrame, by_size: Mapping[int, pd.DataFrame], orders: pd.DataFrame) -> pd.DataFrame:
    """Return what the claims are about beyond `savings`, from runs of several kinds.

    `by_size` has runs with `MU_SERVE` and `MIXED` by inference batch size, `orders` is as from `queueing`.

    Returns:
        One row a measure and title: measure (one at a time over the title in power, by the least and the most of the
        loads in a repetition; changes against drawn groups and against order of arrival), title, value, low, high, n,
        provenance.
    """
    rows = []
    for title in SHOWN:
        ratios = pd.DataFrame({load: _beside_top(runs, load, title)[0] for load in runs["load"].unique()})
        rows.append((LEAST, title, median_interval(ratios.min(axis=1))))
        rows.append((MOST, title, median_interval(ratios.max(axis=1))))
    for size, part in by_size.items():
        rows.append((GROUPED.format(size), MU_SERVE, paired_change(part, MU_SERVE, MIXED, "power_w")))
    rows.append((SHORTEST, TOP, paired_change(orders, "shortest first", "in order", "avg_jct_s")))
    found = [{"measure": measure, "title": title, **value.columns("value")} for measure, title, value in rows]
    return pd.DataFrame(found).assign(provenance="emulated")


def power_claim(numbers: pd.DataFrame, energies: pd.DataFrame, measure: str) -> dict[str, Any]:
    ratio = numbers[numbers["measure"] == measure].set_index("title")["value"]
    reach = 1 / (1 + energies.loc[energies["gpu"] == StudySetting().gpu, "over_time_pct"].min() / 100)
    known = {"ratio": ratio, "load": StudySetting().load, "reach": reach}
    texts = {"note": _words("mu_serve_power", **known), "why": _words("mu_serve_power_in_short", **known)}
    return claim_of_row(numbers, "U1", "least" if measure == LEAST else "most") | texts


def limits_claim(found: pd.DataFrame) -> dict[str, Any]:
    own, aimed, slower = (found[found["title"] == title] for title in (MU_SERVE, AIMED, SLOWER))
    worst: Any = own.sort_values("lost_pct").iloc[-1]
    value = ConfidenceInterval(worst["lost_pct"], worst["lost_low"], worst["lost_high"], int(worst["n"]))
    return value.claim_arguments(
        _words("mu_serve_limits", aimed=aimed, slower=slower),
        holds={f"load {100 * row['load']:g} %": row["lost_pct"] <= 1.0 for _, row in own.iterrows()},
        at={"load": worst["load"]},
        why=_words("mu_serve_limits_in_short", own=own, aimed=aimed),
    )


def groups_claim(numbers: pd.DataFrame, sizes: Sequence[int]) -> dict[str, Any]:
    rows = numbers.set_index("measure")
    by_size: dict[int, Any] = {size: rows.loc[GROUPED.format(size)] for size in sizes}
    return claim_of_row(numbers, "U3", size=sizes[0]) | {
        "note": _words("mu_serve_groups", by_size=by_size),
        "holds": {f"less power at inference batch size {s}": row["high"] < 0 for s, row in by_size.items()},
        "why": _words("mu_serve_groups_in_short", value=by_size[sizes[0]]["value"]),
    }


def order_claim(numbers: pd.DataFrame, setting: StudySetting) -> dict[str, Any]:
    note = _words("mu_serve_order", load=setting.load, spread=setting.spread)
    why = "Load and spread of lengths are assumed, and lengths are known: it is not the paper's prediction."
    return claim_of_row(numbers, "U4") | {"note": note, "testable": False, "why": why}


def draw_panels(axes: Sequence[Axes], found: pd.DataFrame, energies: pd.DataFrame) -> None:
    """Draw power saved and limits missed by load, and the energy of lower clocks, with what each mark means."""
    shown = found[found["title"].isin(SHOWN)]
    shown = shown.assign(row=[f"load {100 * load:g} %" for load in shown["load"]])
    interval_rows(axes[0], shown, row="row", value="ratio", low="low", high="high", series="title")
    axes[0].axvspan(*PAPER, color=BAND, zorder=0)
    axes[0].text(sum(PAPER) / 2, 0.5, "the paper's savings", ha="center", fontsize=6, color=TEXT)
    axes[0].set(xlabel="Power, one at a time over it", xlim=(0.97, None))
    interval_rows(
        axes[1], shown, row="row", value="lost_pct", low="lost_low", high="lost_high", series="title", names=False
    )
    axes[1].axvline(1.0, color=GUIDE, linewidth=0.8, linestyle="--")
    axes[1].text(1.15, -0.35, "one point", fontsize=6, color=TEXT)
    axes[1].set(xlabel="Limits missed more (points)")
    for card, part in energies.groupby("gpu", sort=False):
        style = series_style(str(card))
        axes[2].plot(part["limit"], part["over_time_pct"], label=str(card), **style.line_arguments(linestyle="-"))
        axes[2].plot(part["limit"], part["at_once_pct"], **style.line_arguments(linestyle=":", markerfacecolor="white"))
    for line, words in (("-", "over time"), (":", "all at once")):
        axes[2].plot([], [], color=TEXT, linestyle=line, label=words)
    axes[2].axhline(0.0, color=GUIDE, linewidth=0.7)
    axes[2].set(xlabel="Time over that at the top clock", ylabel="Energy (change, %)")
    for ax, words in zip(axes, ("Power saved", "Limits missed", "Energy at lower clocks"), strict=True):
        ax.set_title(words, **TITLE)
    axes[0].figure.legend(*axes[1].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    axes[0].figure.legend(*axes[2].get_legend_handles_labels(), loc="outside upper right", ncols=5)
