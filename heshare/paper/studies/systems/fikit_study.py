"""The study of FIKIT in the setting of its own paper: an urgent and another task on a GPU, over all pairs of models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.task_sizes import draw
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import median_interval
from heshare.lab.sweeps.study_runs import medians, repeat, with_median
from heshare.lab.systems.fikit.kernel_rules import (
    Client,
    FikitRule,
    MpsRule,
    OneQueueRule,
    Sharing,
    TimeSliceRule,
    share,
)
from heshare.lab.systems.fikit.kernel_table import read
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, traces, traces_of
from heshare.lab.systems.fikit.priority_sharing import demand_of_trace, speeds
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import BAND, EFFECT, GUIDE, category_style
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.shared import files
from heshare.world.cluster import Cluster

WAYS: Mapping[str, Sharing] = {
    "FIKIT": FikitRule(),
    "FIKIT, any gap": FikitRule(least_gap_s=0.0),
    "FIKIT, no filling": FikitRule(fills=False),
    "time slices": TimeSliceRule(),
    "one queue": OneQueueRule(),
    "MPS": MpsRule(),
}
DEFAULT = "time slices"
"""The default sharing of processes, which the claims compare FIKIT with."""
EACH = 0
"""As a number of waits: the host waits for each kernel."""
_PIECES = 20_000
TASKS = ("urgent", "other")
_MANY = 40  # requests, so that the first gap, for which there is no prediction, does not matter
PAPER_RANGE = (paper_claims()["F1", "least"].value, paper_claims()["F1", "most"].value)
"""Least and largest speed-up of the paper's cases."""
FEW = paper_claims()["F1", "median"].value
"""Speed-up that more than half of the paper's cases exceed."""
_TITLES = {
    "bert": "BERT",
    "mobilenetv2": "MobileNetV2",
    "resnet101": "ResNet-101",
    "resnet50": "ResNet-50",
    "transformer_xl": "Transformer-XL",
}
_CASE = ["high", "low", "load", "waits", "slice_ms"]


@dataclass(frozen=True, slots=True)
class PairSetting:
    """Setting of a pair of tasks.

    Attributes:
        load: requests of the urgent task as a share of what it could serve alone, Poisson; 0: one after the other.
        waits: kernels of an iteration that the host waits for, `EACH` for all of them; 1 is plain PyTorch.
        slice_s: length of a time slice, s.
    """

    load: float = 0.0
    waits: int = 1
    slice_s: float = TimeSliceRule().slice_s


def traced(models: Sequence[str], recorded: str = "") -> dict[str, KernelTrace]:
    """Return the traces of some models, or all that were recorded on a GPU.

    `models` are names of `data/kernels/v100.csv`, `recorded` a GPU with kernels in `data/profiles/measured`.

    Raises:
        InputError: no such record, or a bad cell of it.
    """
    if recorded:
        return traces_of(read(files.data("profiles", "measured", recorded, "kernels.csv")))
    return {name: traces()[name] for name in models}


def study(
    settings: Sequence[PairSetting],
    *,
    ways: Sequence[str],
    models: Mapping[str, KernelTrace],
    requests: int,
    seeds: int,
    seed: int,
    jitter: float = 0.05,
) -> pd.DataFrame:
    """Run every pair of models in every setting and way of sharing; the other task always has a next request.

    Arrivals and jitter are the same for all ways of sharing and settings of one pair and repetition. `jitter` is
    the coefficient of variation of each kernel and launch; assumed.

    Returns:
        One row a case: repetition, high, low, load, waits, slice_ms, sharing, jct_s (mean of the urgent task), alone_s
        (its time alone) and low_speed (of the other task, over its speed alone).
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for setting, (one, high), (two, low) in product(settings, enumerate(models), enumerate(models)):
            pair = [_waiting(models[name], setting.waits) for name in (high, low)]
            varied = {"load": setting.load, "waits": setting.waits, "slice_ms": 1e3 * setting.slice_s}
            for way in ways:
                rng = np.random.default_rng(np.random.SeedSequence([seed, repetition.number, one, two]))
                outcome = _case(pair, setting, WAYS[way], requests, jitter, rng)
                yield {"high": high, "low": low, **varied, "sharing": way, **outcome}

    return repeat(run_one, seed=seed, seeds=seeds)


def _waiting(trace: KernelTrace, waits: int) -> KernelTrace:
    return trace.with_waits(min(waits, len(trace)) if waits else len(trace))


def _case(
    pair: Sequence[KernelTrace],
    setting: PairSetting,
    how: Sharing,
    requests: int,
    jitter: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    high, low = pair
    alone_s, slow_s = high.alone()[1], low.alone()[1]
    steps_s = rng.exponential(alone_s / setting.load if setting.load else 0.0, requests)
    arrivals_s = tuple(np.cumsum(steps_s).tolist()) if setting.load else None
    if isinstance(how, TimeSliceRule):
        how = replace(how, slice_s=setting.slice_s)
    outcome = share([Client(high, requests, 0, arrivals_s), Client(low, 0, 1)], how, rng=rng, jitter=jitter)
    low_speed = float(outcome.rate[1] * slow_s / low.busy_s)
    return {"jct_s": float(outcome.jct_s[0].mean()), "alone_s": alone_s, "low_speed": low_speed}


def gains(frame: pd.DataFrame, against: str = DEFAULT) -> pd.DataFrame:
    """Return the gain of FIKIT over another way of sharing, case by case."""
    cases = frame.set_index([*_CASE, "repetition"])
    fikit, other = (cases[cases["sharing"] == way] for way in ("FIKIT", against))
    other = other.loc[fikit.index]
    return pd.DataFrame(
        {"speedup": other["jct_s"] / fikit["jct_s"], "low_ratio": fikit["low_speed"] / other["low_speed"]}
    ).reset_index()


def by_case(gained: pd.DataFrame) -> pd.DataFrame:
    return medians(gained, _CASE)


def summary(gained: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return speed-ups over the pairs of each setting, and the other task's ratio: least, median, most."""
    rows = []
    for key, part in by_case(gained).groupby(list(by), sort=False):
        speedup, low = part["speedup"], part["low_ratio"]
        rows.append(
            {
                **dict(zip(by, key, strict=True)),
                "cases": len(part),
                "least": speedup.min(),
                **median_interval(speedup).columns("median"),
                "most": speedup.max(),
                "above_pct": 100.0 * (speedup > FEW).mean(),
                "low_least": low.min(),
                "low_median": low.median(),
                "low_most": low.max(),
            }
        )
    return pd.DataFrame(rows).drop(columns="n")


def of_all_cases(gained: pd.DataFrame) -> pd.DataFrame:
    """Return what claims F1 and F2 are about: medians over the cases, and the extremes of each repetition."""
    cases, each = by_case(gained), gained.groupby("repetition")["speedup"]
    over_cases = {"speedup": cases["speedup"], "low_ratio": cases[cases["load"] > 0]["low_ratio"]}
    parts = [with_median(values, measure=name).tail(1) for name, values in over_cases.items()]
    parts += [with_median(values, measure=name) for name, values in (("least", each.min()), ("most", each.max()))]
    return pd.concat(parts, ignore_index=True).assign(provenance="emulated")


def overhead_pct(models: Mapping[str, KernelTrace], launch_s: float = FikitRule().launch_s) -> pd.DataFrame:
    """Return the overhead of interception for each model alone.

    Returns:
        Columns model, alone_ms, overhead_pct, and limit_us, the time of an interception that makes 5 %.
    """
    rows = []
    for name, trace in models.items():
        plain_s, loss = trace.alone()[1], _loss(trace, launch_s)
        costs_s = np.linspace(0.0, 100e-6, 1001)
        over = np.array([_loss(trace, cost_s) for cost_s in costs_s]) > 0.05
        limit_us = 1e6 * float(costs_s[over][0]) if over.any() else np.inf
        rows.append((name, 1e3 * plain_s, 100.0 * loss, limit_us))
    return pd.DataFrame(rows, columns=["model", "alone_ms", "overhead_pct", "limit_us"])


def _loss(trace: KernelTrace, launch_s: float) -> float:
    return trace.with_host(each_s=launch_s).alone()[1] / trace.alone()[1] - 1.0


def form_errors(models: Mapping[str, KernelTrace], gaps_ms: Sequence[float]) -> pd.DataFrame:
    """Compare the task-level form with the kernel loop: the filler's share of the GPU for each pair and host gap.

    `gaps_ms` is host time before each iteration of the urgent task: long gaps, which its trace alone lacks.
    """
    rule, rows = FikitRule(), []
    for gap_ms, high, low in product(gaps_ms, models, models):
        pair = [models[high].with_host(first_s=1e-3 * gap_ms), models[low]]
        outcome = share([Client(pair[0], _MANY), Client(pair[1], priority=1)], rule)
        demands = [demand_of_trace(one.with_host(each_s=rule.launch_s), at) for at, one in enumerate(pair)]
        form = 100.0 * speeds(demands)[1] * demands[1].busy
        loop = 100.0 * float(outcome.rate[1])
        rows.append((gap_ms, high, low, loop, form, form - loop))
    return pd.DataFrame(rows, columns=["gap_ms", "high", "low", "loop_pct", "form_pct", "error_pct"])


def title_of(name: str) -> str:
    return _TITLES.get(name, name)


def why_panel(ax: Axes, rows: pd.DataFrame, x: str, label: str) -> None:
    """Draw median, least and most speed-up at each value of `x`, and the range of the paper's cases."""
    names = [_label(x, value) for value in rows[x].tolist()]
    at = np.arange(len(names))
    ax.axhspan(*PAPER_RANGE, color=BAND, zorder=0, label="the paper's cases")
    ax.axhline(FEW, color=GUIDE, linewidth=0.8, label=f"more than half of the paper's cases are above {FEW:g}")
    ax.vlines(at, rows["least"], rows["most"], color=EFFECT, linewidth=0.9, label="all pairs, least to most")
    ax.plot(at, rows["median"], "o", color=EFFECT, label="their median")
    ax.set_xticks(at, names)
    plots.log_axis(ax)
    ax.set(xlabel=label, ylabel="Speed-up of the urgent task")


def _label(what: str, value: float) -> str:
    if what == "load":
        return f"{100 * value:g} %" if value else "one after the other"
    return "all" if what == "waits" and value == EACH else f"{value:g}"


def by_class(policies: Sequence[str], cluster: str, tasks: int, *, seeds: int, seed: int) -> pd.DataFrame:
    """Run policies on emulated GPUs with a fifth of the tasks urgent, drawn by lot, and return medians."""
    predictor, gpus = DevicePredictor(), Cluster.parse(cluster)

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        streams = np.random.SeedSequence([seed, repetition.number]).spawn(2)
        rng = np.random.default_rng(streams[0])
        drawn = draw(tasks, rng=rng, load="mixed", arrivals="miso")
        urgent = set(rng.choice(tasks, max(1, tasks // 5), replace=False).tolist())
        ranked = [replace(task, priority=0 if task.id in urgent else 1) for task in drawn]
        for policy in policies:
            done = run(ranked, gpus, make(policy), predictor=predictor, rng=np.random.default_rng(streams[1]))
            is_urgent = np.array([task.id in urgent for task in done.tasks])
            yield {
                "policy": policy,
                "urgent_jct_s": float(done.jct_s[is_urgent].mean()),
                "other_jct_s": float(done.jct_s[~is_urgent].mean()),
                "avg_jct_s": float(done.jct_s.mean()),
                "energy_active_j": float(done.gpu_energy_active_j.sum()),
            }

    return medians(repeat(run_one, seed=seed, seeds=seeds), ["policy"])


def pieces(
    high: KernelTrace, low: KernelTrace, ways: Mapping[str, Sharing], *, arrivals_ms: Sequence[float], until_ms: float
) -> pd.DataFrame:
    """Return the pieces of a short time: requests of the urgent task arrive, the other always has a next one."""
    arrivals_s = tuple(1e-3 * each for each in arrivals_ms)
    rows: list[tuple[str, str, float, float]] = []
    for way, how in ways.items():
        found = share([Client(high, len(arrivals_s), 0, arrivals_s), Client(low, 0, 1)], how, pieces=_PIECES)
        for place, task in enumerate(TASKS):
            own = 1e3 * found.pieces[found.pieces[:, 0] == place, 1:]
            for start_ms, end_ms in own[own[:, 0] < until_ms].tolist():
                follows = bool(rows) and rows[-1][:2] == (way, task) and start_ms - rows[-1][3] < 1e-6
                begin_ms = rows.pop()[2] if follows else start_ms
                rows.append((way, task, begin_ms, min(end_ms, until_ms)))
    return pd.DataFrame(rows, columns=["way", "task", "start_ms", "end_ms"])


def timeline_panel(ax: Axes, rows: pd.DataFrame, arrivals_ms: Sequence[float]) -> None:
    ways = list(dict.fromkeys(rows["way"]))
    for number, each in enumerate(arrivals_ms):
        ax.axvline(
            each, color=GUIDE, linewidth=0.8, linestyle=":", label="_" if number else "an urgent request arrives"
        )
    for (way, task), part in rows.groupby(["way", "task"], sort=False):
        lane, how = TASKS.index(str(task)), category_style(1 if task == "urgent" else 0)
        spans = [(start, end - start) for start, end in zip(part["start_ms"], part["end_ms"], strict=True)]
        low = ways.index(str(way)) + 0.4 * lane - 0.4
        label = str(task) if way == ways[0] else "_"
        ax.broken_barh(spans, (low, 0.36), facecolor=how.colour, linewidth=0, label=label)
    ax.set_yticks(range(len(ways)), ways)
    ax.set(ylim=(len(ways) - 0.45, -0.55), xlabel="Time (ms)")
    ax.grid(visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, borderaxespad=0.2)
