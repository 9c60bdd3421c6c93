"""Evaluation of the paper's claims: each function returns the arguments of one `Context.claim`.

An ordering is split into parts that hold or fail. Its measured number is a related size, which the note explains.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from heshare.experiments.claims.sources import source
from heshare.experiments.statistics import ConfidenceInterval, median_interval
from heshare.experiments.studies import motivation
from heshare.experiments.studies.motivation import ratio, spread
from heshare.experiments.study_runs import median_intervals, paired_change
from heshare.experiments.tables import literal_text
from heshare.prediction.table5 import LITERAL_FOREST

LIGHT, HEAVY = ("mobilenet", "mobilenetv2"), ("densenet201", "bert_large")
METRICS = {
    "avg_jct_s": "s",
    "avg_waiting_s": "s",
    "avg_execution_s": "s",
    "makespan_s": "s",
    "energy_active_j": "J",
    "energy_cluster_j": "J",
}
_SIZES: Mapping[str, str] = {"interval": "range", "of": "inference batch sizes"}
"""Arguments of a claim whose interval is the range over inference batch sizes."""


def energy_spread(frame: pd.DataFrame, batch_size: int) -> dict[str, Any]:
    """Return claim M1: the energy of light models differs less between GPUs than that of heavy ones.

    `frame` is as from `motivation.solo`.
    """
    by_size = {size: spread(part, "energy_j") for size, part in frame.groupby("batch_size")}
    heavy_over_light = {
        size: float(values[list(HEAVY)].mean() / values[list(LIGHT)].mean()) for size, values in by_size.items()
    }
    here = by_size[batch_size]
    holds = {f"{heavy} above {light}": bool(here[heavy] > here[light]) for heavy in HEAVY for light in LIGHT}
    values_text = ", ".join(f"{name} {here[name]:.1f}x" for name in (*LIGHT, *HEAVY))
    return _range(heavy_over_light[batch_size], heavy_over_light.values()).claim_arguments(
        f"Largest over smallest energy between the GPUs at inference batch size {batch_size}: {values_text}. "
        f"Measured: mean spread of the heavy over that of the light. {_unanchored(frame, LIGHT + HEAVY)}",
        holds=holds,
        unit="x, mean spread of the heavy models over that of the light",
        **_SIZES,
    )


def _range(value: float, sizes: Iterable[float]) -> ConfidenceInterval:
    """Return a value with the range of some sizes as its interval."""
    ordered = sorted(sizes)
    return ConfidenceInterval(value, ordered[0], ordered[-1], len(ordered))


def _unanchored(frame: pd.DataFrame, names: tuple[str, ...]) -> str:
    """Return a sentence with the workloads and GPUs whose times come from the feature model, not from a measurement."""
    rows = frame[frame["workload"].isin(names) & ~frame["anchored"]].drop_duplicates(["workload", "gpu"])
    cells = [f"{row.workload} on {row.gpu}" for row in rows.itertuples()]
    return f"Not anchored by a measurement: {', '.join(cells)}." if cells else ""


def time_ratio(frame: pd.DataFrame, workload: str, batch_size: int) -> dict[str, Any]:
    """Return claim M2 or M3: a workload's time on a T4 over that on an A100."""
    here = frame[frame["batch_size"] == batch_size]
    middle, low, high = ratio(here, workload)
    sizes = {str(size): ratio(part, workload)[0] for size, part in frame.groupby("batch_size")}
    values_text = ", ".join(f"{size}: {value:.1f}x" for size, value in sizes.items())
    clock = float(here[(here["workload"] == workload) & (here["gpu"] == "T4")]["sm_mhz"].item())
    return ConfidenceInterval(middle, low, high, 1).claim_arguments(
        f"At inference batch size {batch_size}; by size: {values_text}. The A100 uses TF32, as PyTorch does by "
        f"default; the limit holds the T4 at {clock:.0f} MHz. Interval: the device model's own uncertainty inside one "
        f"framework. {_unanchored(frame, (workload,))}",
        interval="two standard deviations",
        of="device model",
    )


def time_spread(frame: pd.DataFrame, batch_size: int) -> dict[str, Any]:
    """Return claim M4: the time of MobileNet differs less between GPUs than that of heavier models."""
    sizes = {size: spread(part, "time_s") for size, part in frame.groupby("batch_size")}
    here = sizes[batch_size]
    values = [float(each["mobilenet"]) for each in sizes.values()]
    values_text = ", ".join(
        f"{name} {here[name]:.1f}x" for name in ("mobilenet", "mobilenetv2", "resnet50", "bert_large")
    )
    return _range(float(here["mobilenet"]), values).claim_arguments(
        f"Slowest over fastest GPU at inference batch size {batch_size}: {values_text}. The paper does not say what is "
        f"little. {_unanchored(frame, ('mobilenet',))}",
        holds={f"below {name}": bool(here["mobilenet"] < here[name]) for name in ("resnet50", *HEAVY)},
        unit="x, slowest over fastest GPU",
        **_SIZES,
    )


def clock_effect(frame: pd.DataFrame, apart: float = 0.05) -> dict[str, Any]:
    """Return claim M5: the clock's effect on ResNet-152 differs between GPUs; `frame` as from `motivation.clocks`.

    The effect is the elasticity of time over the upper half of a GPU's clocks: -1 where time falls as the clock rises,
    0 where it no longer matters. Two GPUs differ if theirs are more than `apart` apart.
    """
    effect = {key: _elasticity(part) for key, part in frame.groupby(["batch_size", "gpu"], sort=False)}
    sizes = list(dict.fromkeys(size for size, _ in effect))
    gpus = list(dict.fromkeys(gpu for _, gpu in effect))
    holds = {
        f"{one} and {other} differ at {size}": abs(effect[size, one] - effect[size, other]) > apart
        for size in sizes
        for one, other in combinations(gpus, 2)
    }
    ranges = [max(effect[s, g] for g in gpus) - min(effect[s, g] for g in gpus) for s in sizes]
    values_text = "; ".join(f"{size}: " + ", ".join(f"{g} {effect[size, g]:.2f}" for g in gpus) for size in sizes)
    return _range(float(np.mean(ranges)), ranges).claim_arguments(
        f"Elasticity of time over the upper half of the clocks that can be asked for, by inference batch size: "
        f"{values_text}. Measured: its range over GPUs, mean over sizes. The T4's power limit holds its clock.",
        holds=holds,
        unit="range of the elasticity over GPUs",
        **_SIZES,
    )


def _elasticity(part: pd.DataFrame) -> float:
    upper = part[part["requested_mhz"] >= 0.5 * part["requested_mhz"].max()]
    slope = np.polyfit(np.log(upper["requested_mhz"].to_numpy(float)), np.log(upper["time_s"].to_numpy(float)), 1)
    return float(slope[0])


def pair_degradation(frame: pd.DataFrame, rng: np.random.Generator) -> dict[str, Any]:
    """Return claim M6: pairs are slower together than alone, most on the T4 and least on the A100.

    `frame` is as from `motivation.pairs`.
    """
    table = frame.pivot_table(index="pair", columns="gpu", values="degradation_pct").dropna()
    means = table.mean()
    gap = median_interval(table["T4"] - table["A100"], rng)
    holds = {f"every pair is slower on {gpu}": bool((table[gpu] > 0).all()) for gpu in ("T4", "V100", "A100")}
    holds |= {f"{a} worse than {b}": bool(means[a] > means[b]) for a, b in (("T4", "V100"), ("V100", "A100"))}
    values_text = ", ".join(f"{gpu} +{means[gpu]:.0f} %" for gpu in ("T4", "V100", "A100"))
    note = (
        f"Mean slowdown of the pairs: {values_text}. {motivation.SHARING_RECORD} Measured: T4 less A100, median over "
        "pairs."
    )
    unit = "percentage points, slowdown on T4 less that on A100"
    return gap.claim_arguments(note, holds=holds, of="pairs", unit=unit)


def close_to_alone(frame: pd.DataFrame, rng: np.random.Generator, most_pct: float = 25.0) -> dict[str, Any]:
    """Return claim M7: pairs on an A100 take little longer than alone, `most_pct` at most in the mean.

    `frame` is as from `motivation.pairs`.
    """
    slower = frame[frame["gpu"] == "A100"]["degradation_pct"].dropna()
    return median_interval(slower, rng).claim_arguments(
        f"Mean slowdown of the pairs on the A100: {slower.mean():.0f} %, the worst {slower.max():.0f} %. The paper "
        f"does not define 'close'; here at most {most_pct:g} % in the mean. Measured: the median over pairs.",
        holds={f"at most {most_pct:g} % longer in the mean": bool(slower.mean() <= most_pct)},
        of="pairs",
        unit="%, slowdown of a pair on the A100",
    )


def _table_5(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of Table V on emulated profiles with rows held out, by technique and error."""
    chosen = (frame["data"] == "emulated") & (frame["split"] == "row") & (frame["quantity"] == "both")
    return frame[chosen].set_index(["technique", "error"])


def forest_is_best(frame: pd.DataFrame) -> dict[str, Any]:
    """Return claim P4: the forest errs less than the paper's other techniques; `frame` as for `prediction_error`."""
    rows: Any = _table_5(frame)
    mean = rows["mean_pct"].to_dict()
    others = [
        name for name in dict.fromkeys(rows.index.get_level_values(0)) if name not in ("RF", "Physics", *LITERAL_FOREST)
    ]
    errors = ("absolute", "relative")
    holds = {f"below {each}, {error}": mean["RF", error] < mean[each, error] for error in errors for each in others}
    found = prediction_error(frame, "RF", "absolute")
    note = "Measured: the forest's absolute error. See P1 to P3 for the others'."
    return {**found, "note": note, "holds": holds, "unit": "%, the forest's absolute error"}


def mlp_over_forest(frame: pd.DataFrame, error: str) -> dict[str, Any]:
    """Return claim P5: the MLP's error over the forest's; `frame` as for `prediction_error`."""
    rows: Any = _table_5(frame)
    ours, theirs = rows.loc[("RF", error)], rows.loc[("MLP", error)]
    ends = (theirs["low_pct"] / ours["high_pct"], theirs["high_pct"] / ours["low_pct"])
    size = ConfidenceInterval(float(theirs["mean_pct"] / ours["mean_pct"]), float(ends[0]), float(ends[1]), 1)
    note = "Interval: of the ends of both errors' intervals."
    return size.claim_arguments(note, interval="range", of="pair of errors")


_ROW = {"data": "emulated", "split": "row", "quantity": "both"}
"""The cells of the errors that claims P1 to P5 are about: time and power together, rows held out at random."""


def prediction_error(frame: pd.DataFrame, technique: str, error: str) -> dict[str, Any]:
    """Return a claim of P1 to P3: a technique's error in Table V; `frame` as from `table5.prediction_errors`.

    The error is that of time and power together, with rows held out at random, on the emulated profiles. The note has
    the error on published times.
    """
    of_error = frame[frame["error"] == error]
    emulated = of_error[of_error["data"] == "emulated"]
    parts = emulated[emulated["split"] == "row"].set_index(["technique", "quantity"])["mean_pct"].to_dict()
    chosen = emulated[emulated["quantity"] == "both"].set_index(["split", "technique"])
    row: Any = chosen.loc[("row", technique)]
    rivals = chosen.loc["row"]["mean_pct"].drop([*LITERAL_FOREST, "Physics"], errors="ignore")
    against = float(rivals.drop("RF").min()) if technique == "RF" else float(rivals["RF"])
    means = chosen["mean_pct"].to_dict()
    held_out = ", ".join(f"by {kind} {means[kind, technique]:.1f} %" for kind in ("workload", "gpu"))
    first = f"Best rival: {against:.2f} %." if technique == "RF" else f"The forest: {against:.2f} %."
    literal = f" {literal_text(frame)}" if technique == "RF" and set(LITERAL_FOREST) < set(frame["technique"]) else ""
    middle, low, high = (float(row[name]) for name in ("mean_pct", "low_pct", "high_pct"))
    return ConfidenceInterval(middle, low, high, int(row["test_sets"])).claim_arguments(
        f"{first} Time {parts[technique, 'time']:.1f} %, power {parts[technique, 'power']:.1f} %. Held out "
        f"{held_out}.{_on_published(of_error, technique)}{literal}",
        of="test sets",
        source=source("x04a_errors", "mean_pct", **_ROW, technique=technique, error=error),
    )


def _on_published(frame: pd.DataFrame, technique: str) -> str:
    """Return a sentence with the technique's errors on published times; empty where there are none."""
    rows = frame[(frame["data"] == "published") & (frame["technique"] == technique)]
    found = ", ".join(f"by {row.split} {row.mean_pct:.2f} %" for row in rows.itertuples())
    return f" On the published V100 MPS times (not priced, time only): {found}." if found else ""


def medians(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return the median and 95 % bootstrap interval of each policy and metric; `runs` as from `heshare.compare`.

    Returns:
        Columns title, metric, unit, median, low, high, n, provenance.
    """
    table = median_intervals(runs, ["title"], METRICS, rng)
    table.insert(2, "unit", table["metric"].map(METRICS))
    return table


def paired(runs: pd.DataFrame, metric: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return the change of every policy against every other, paired by seed, %, with 95 % bootstrap intervals."""
    rows = []
    for ours, theirs in permutations(dict.fromkeys(runs["title"]), 2):
        change = paired_change(runs, ours, theirs, metric, rng).columns("change_pct", "low_pct", "high_pct")
        rows.append({"ours": ours, "theirs": theirs, "metric": metric, **change})
    return pd.DataFrame(rows).assign(provenance="emulated")


def change(runs: pd.DataFrame, ours: str, theirs: str, metric: str, rng: np.random.Generator) -> dict[str, Any]:
    """Return a claim of H3, H4 or H6: a policy's metric against another's, paired by seed."""
    others = ["avg_jct_s" if metric.startswith("energy") else "energy_active_j"]
    if metric == "energy_active_j":
        others.append("energy_cluster_j")
    found, *beside = (paired_change(runs, ours, theirs, name, rng) for name in (metric, *others))
    words = {"avg_jct_s": "average JCT", "energy_active_j": "energy (active)", "energy_cluster_j": "energy (cluster)"}
    values_text = ", ".join(f"{words[name]} {size.value:+.0f} %" for name, size in zip(others, beside, strict=True))
    why = (
        " Random puts a task on any GPU with equal chance and runs all of a GPU's tasks that fit its memory at once."
        if theirs == "Random"
        else ""
    )
    return found.claim_arguments(
        f"{words[metric][0].upper() + words[metric][1:]}. Beside it: {values_text}.{why}",
        source=source("x05b_changes", "change_pct", ours=ours, theirs=theirs, metric=metric),
    )


def cost_of_jct(runs: pd.DataFrame, rng: np.random.Generator) -> dict[str, Any]:
    """Return claim H6: JCT-opt pays for its JCT with more energy than HeShare's other plans."""
    sizes = {plan: paired_change(runs, "JCT-opt", plan, "energy_active_j", rng) for plan in ("En-opt", "Trade-off")}
    return sizes["En-opt"].claim_arguments(
        f"Measured: against En-opt; against Trade-off {sizes['Trade-off'].value:+.0f} %.",
        holds={f"more energy than {plan}": size.low > 0 for plan, size in sizes.items()},
        unit="%, JCT-opt's energy against En-opt's",
        source=source("x05b_changes", "change_pct", ours="JCT-opt", theirs="En-opt", metric="energy_active_j"),
    )


def poorest_and_best(runs: pd.DataFrame, rng: np.random.Generator, why: str = "") -> dict[str, Any]:
    """Return claim H5: Random is poorest in both objectives, Sched-only best in neither; `why` ends the note."""
    metrics = {"energy": "energy_active_j", "JCT": "avg_jct_s"}
    middle = {word: runs.groupby("title", sort=False)[name].median() for word, name in metrics.items()}
    ends = {word: (str(values.idxmin()), str(values.idxmax())) for word, values in middle.items()}
    holds = {f"Random poorest in {word}": poorest == "Random" for word, (_, poorest) in ends.items()}
    holds |= {f"Sched-only not best in {word}": best != "Sched-only" for word, (best, _) in ends.items()}
    found = paired_change(runs, "Random", "Sched-only", "avg_jct_s", rng)
    best, poorest = (", ".join(f"{end[at]} in {word}" for word, end in ends.items()) for at in (0, 1))
    note = (
        f"Medians over seeds; best: {best}; poorest: {poorest}. Measured: average JCT of Random against "
        f"Sched-only. {why}"
    )
    return found.claim_arguments(
        note.strip(),
        holds=holds,
        unit="%, Random's average JCT against Sched-only's",
        source=source("x05b_changes", "change_pct", ours="Random", theirs="Sched-only", metric="avg_jct_s"),
    )
