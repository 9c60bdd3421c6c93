"""Evaluation of the paper's claims: each function returns the arguments of one `Context.claim`.

An ordering is split into parts that hold or fail. Its measured number is a related size, which the note explains.
"""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct
from heshare.lab.sweeps.study_runs import median_intervals, paired_change
from heshare.paper.claims.sources import source
from heshare.paper.claims.verdicts import Claim, paper_claims, verdict
from heshare.paper.figures.series_styles import LITERALLY
from heshare.paper.tables import literal_text
from heshare.paper.texts import change as change_words
from heshare.prediction.table5 import LITERAL_FOREST

METRICS = {
    "avg_jct_s": "s",
    "avg_waiting_s": "s",
    "avg_execution_s": "s",
    "makespan_s": "s",
    "energy_active_j": "J",
    "energy_cluster_j": "J",
}


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


def mlp_over_forest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the MLP's errors over the forest's, with both; `frame` as for `prediction_error`.

    Returns:
        One row an error: error, mlp_pct, forest_pct, ratio, low and high (of the ends of both errors' intervals),
        provenance.
    """
    rows: Any = _table_5(frame)
    found = []
    for error in ("absolute", "relative"):
        ours, theirs = rows.loc[("RF", error)], rows.loc[("MLP", error)]
        sizes = {"mlp_pct": theirs["mean_pct"], "forest_pct": ours["mean_pct"]}
        ends = {"low": theirs["low_pct"] / ours["high_pct"], "high": theirs["high_pct"] / ours["low_pct"]}
        found.append({"error": error, **sizes, "ratio": theirs["mean_pct"] / ours["mean_pct"], **ends})
    return pd.DataFrame(found).assign(provenance="emulated")


def mlp_claim(table: pd.DataFrame, error: str) -> dict[str, Any]:
    """Return claim P5: the MLP's error over the forest's; `table` as from `mlp_over_forest`."""
    row: Any = table.set_index("error").loc[error]
    return ConfidenceInterval(float(row["ratio"]), float(row["low"]), float(row["high"]), 1).claim_arguments(
        "Interval: of the ends of both errors' intervals.",
        interval="range",
        of="pair of errors",
        source=source("x04d_mlp", "ratio", error=error),
    )


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


_PAPER: Mapping[tuple[str, str], tuple[str, str]] = {
    ("Morak", "energy_active_j"): ("H1", "energy"),
    ("Morak", "avg_jct_s"): ("H1", "jct"),
    ("μ-Serve", "energy_active_j"): ("H2", "energy"),
    ("μ-Serve", "avg_jct_s"): ("H2", "jct"),
}
"""Claims on Trade-off against a rival, by the rival's title and the metric."""


def beside_paper(medians: pd.DataFrame) -> pd.DataFrame:
    """Return medians with the column `paper`: where a rival would be if the paper's reduction by Trade-off held.

    `medians` is as from `medians`. The paper gives no absolute values; other cells are NaN.
    """
    ours = medians[medians["title"] == "Trade-off"].set_index("metric")["median"]
    values = [
        ours[metric] / (1 + paper_claims()[_PAPER[title, metric]].value / 100) if (title, metric) in _PAPER else np.nan
        for title, metric in zip(medians["title"], medians["metric"], strict=True)
    ]
    return medians.assign(paper=values)


def comparison_seen(changes: pd.DataFrame) -> str:
    """Return the first sentences of Fig. 6's caption; `changes` has the rows of `paired` for energy and JCT."""
    sizes: Any = changes.set_index(["ours", "theirs", "metric"])["change_pct"].sort_index()

    def both(ours: str, theirs: str) -> str:
        energy, jct = (change_words(sizes[ours, theirs, name]) for name in ("energy_active_j", "avg_jct_s"))
        return f"{energy} energy and {jct} average JCT than {theirs}"

    slower = sizes["Morak", "Random", "avg_jct_s"]
    return (
        f"Trade-off takes {both('Trade-off', 'Morak')} and {both('Trade-off', 'μ-Serve')}, which are placed at random "
        f"as in the paper; Morak's average JCT is {abs(slower):.0f} % {'above' if slower > 0 else 'below'} Random's "
        "(Table x09i: why). "
        f"By the paper's words literally Trade-off takes {both('Trade-off' + LITERALLY, 'Trade-off')} as shipped; SRTF "
        f"at a fixed 0.8 clock takes {both('SRTF at 0.8 clock', 'Trade-off')}."
    )


def paired(runs: pd.DataFrame, metric: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return the change of every policy against every other, paired by seed, %, with 95 % bootstrap intervals."""
    wide = runs.pivot_table(index="repetition", columns="title", values=metric)
    rows = []
    for ours, theirs in permutations(dict.fromkeys(runs["title"]), 2):
        change = change_pct(wide[ours], wide[theirs], rng).columns("change_pct", "low_pct", "high_pct")
        rows.append({"ours": ours, "theirs": theirs, "metric": metric, **change})
    return pd.DataFrame(rows).assign(provenance="emulated")


_METRIC_WORDS = {
    "avg_jct_s": "average JCT",
    "energy_active_j": "energy (active)",
    "energy_cluster_j": "energy (cluster)",
}


def change(
    runs: pd.DataFrame, claim: Claim, ours: str, theirs: str, metric: str, rng: np.random.Generator
) -> dict[str, Any]:
    """Return claim H3 or H4: a policy's metric against another's, paired by seed, and the same by the paper's words."""
    others = ["avg_jct_s" if metric.startswith("energy") else "energy_active_j"]
    if metric == "energy_active_j":
        others.append("energy_cluster_j")
    found, *beside = (paired_change(runs, ours, theirs, name, rng) for name in (metric, *others))
    values_text = ", ".join(
        f"{_METRIC_WORDS[name]} {size.value:+.0f} %" for name, size in zip(others, beside, strict=True)
    )
    random_words = (
        " Random puts a task on any GPU with equal chance and runs all of a GPU's tasks that fit its memory at once."
        if theirs == "Random"
        else ""
    )
    by_text, text = by_words(runs, claim, ours, theirs, metric, rng)
    sizes = [change_words(each.value) for each in (found, by_text)]
    name = _METRIC_WORDS[metric]
    return found.claim_arguments(
        f"{name[0].upper()}{name[1:]}. Beside it: {values_text}.{random_words} {text}",
        why=f"{sizes[0]} here, {sizes[1]} by the paper's words literally; the paper has {claim.paper}.",
        source=source("x05b_changes", "change_pct", ours=ours, theirs=theirs, metric=metric),
    )


def by_words(
    runs: pd.DataFrame, claim: Claim, ours: str, theirs: str, metric: str, rng: np.random.Generator
) -> tuple[ConfidenceInterval, str]:
    """Return a claim's change if HeShare follows the paper's words in all settings, and a sentence with it.

    Args:
        runs: with the policies of `Settings.literal` as well, whose titles end with `LITERALLY`.
        claim: the claim.
        ours: title of HeShare's plan as shipped.
        theirs: title of the other policy; of a plan of HeShare's, that by the paper's words is taken.
        metric: a column of `runs`.
        rng: random numbers of the bootstrap.
    """
    other = theirs + LITERALLY if theirs + LITERALLY in set(runs["title"]) else theirs
    found = paired_change(runs, ours + LITERALLY, other, metric, rng)
    word = verdict(claim, found.value, found.low, found.high, n=found.n)
    size = f"{found.value:+.0f} % [{found.low:+.0f}, {found.high:+.0f}]"
    return found, f"By the paper's words literally it is {size}, which would be: {word}."


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
        f"Medians over seeds; best: {best}; poorest: {poorest}. Measured: average JCT of Random against Sched-only, "
        "which is best in neither almost by construction: HeShare's front also holds the schemes of the first stage, "
        f"and Sched-only's is searched for one task at a time, but runs tasks together. {why}"
    )
    return found.claim_arguments(
        note.strip(),
        holds=holds,
        unit="%, Random's average JCT against Sched-only's",
        source=source("x05b_changes", "change_pct", ours="Random", theirs="Sched-only", metric="avg_jct_s"),
    )
