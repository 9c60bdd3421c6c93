"""Evaluation of the paper's claims: each function returns the arguments of one `Context.claim`.

An ordering is split into parts that hold or fail. Its measured number is a related size, which the note explains.
"""

from collections.abc import Mapping
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct
from heshare.lab.sweeps.study_runs import median_intervals, paired_change
from heshare.paper.claims.sources import claim_of_row
from heshare.paper.claims.verdicts import Claim, paper_claims, verdict
from heshare.paper.figures.series_styles import LITERALLY
from heshare.paper.texts import render
from heshare.prediction.table5 import DEFAULTS

METRICS = {
    "avg_jct_s": "s",
    "avg_waiting_s": "s",
    "avg_execution_s": "s",
    "makespan_s": "s",
    "energy_active_j": "J",
    "energy_cluster_j": "J",
}
_ERRORS = ("absolute", "relative")
_on_errors = partial(render, "04_prediction")
_on_policies = partial(render, "05_comparison")


def _table_5(frame: pd.DataFrame) -> pd.DataFrame:
    # The paper's techniques on emulated profiles with rows held out.
    chosen = (frame["data"] == "emulated") & (frame["split"] == "row") & (frame["quantity"] == "both")
    chosen &= frame["technique"].isin(list(DEFAULTS))
    return frame[chosen].set_index(["technique", "error"])


def forest_is_best(frame: pd.DataFrame, tuned: pd.DataFrame) -> dict[str, Any]:
    """Return claim P4: the forest errs less than the paper's other techniques; arguments as for `prediction_error`.

    `frame` has the errors by scikit-learn's defaults, `tuned` those with which the note compares.
    """
    rows: Any = _table_5(frame)
    mean = rows["mean_pct"].to_dict()
    others = [name for name in DEFAULTS if name != "RF"]
    holds = {f"below {each}, {error}": mean["RF", error] < mean[each, error] for error in _ERRORS for each in others}
    return {
        **prediction_error(frame, "RF", "absolute"),
        "note": _on_errors("forest_is_best", mean=_table_5(tuned)["mean_pct"].xs("absolute", level="error")),
        "holds": holds,
    }


def mlp_over_forest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the MLP's errors over the forest's, with both; `frame` as for `prediction_error`."""
    rows: Any = _table_5(frame)
    found = []
    for error in _ERRORS:
        ours, theirs = rows.loc[("RF", error)], rows.loc[("MLP", error)]
        sizes = {"mlp_pct": theirs["mean_pct"], "forest_pct": ours["mean_pct"]}
        ends = {"low": theirs["low_pct"] / ours["high_pct"], "high": theirs["high_pct"] / ours["low_pct"]}
        found.append(
            {"error": error, **sizes, "ratio": theirs["mean_pct"] / ours["mean_pct"], **ends, "n": ours["test_sets"]}
        )
    return pd.DataFrame(found).assign(provenance="emulated")


def mlp_claim(table: pd.DataFrame, error: str) -> dict[str, Any]:
    return claim_of_row(table, "P5", error) | {"note": _on_errors("mlp_over_forest")}


def prediction_error(frame: pd.DataFrame, technique: str, error: str) -> dict[str, Any]:
    """Return a claim of P1 to P3: a technique's error in Table V; `frame` as from `table5.prediction_errors`.

    The error is that of time and power together, with rows held out at random, on the emulated profiles. The note has
    the error on published times.
    """
    of_error = frame[(frame["error"] == error) & frame["technique"].isin(list(DEFAULTS))]
    emulated = of_error[of_error["data"] == "emulated"]
    parts = emulated[emulated["split"] == "row"].set_index(["technique", "quantity"])["mean_pct"]
    chosen = emulated[emulated["quantity"] == "both"].set_index(["split", "technique"])
    row: Any = chosen.loc[("row", technique)]
    rivals = chosen.loc["row"]["mean_pct"]
    is_forest = technique == "RF"
    published = of_error[(of_error["data"] == "published") & (of_error["technique"] == technique)]
    note = _on_errors(
        "error",
        is_forest=is_forest,
        against=float(rivals.drop("RF").min() if is_forest else rivals["RF"]),
        parts=parts[technique],
        held_out=chosen["mean_pct"].xs(technique, level="technique"),
        published=dict(zip(published["split"], published["mean_pct"], strict=True)),
    )
    middle, low, high = (float(row[name]) for name in ("mean_pct", "low_pct", "high_pct"))
    return ConfidenceInterval(middle, low, high, int(row["test_sets"])).claim_arguments(note)


def medians(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the median and 95 % interval of each policy and metric; `runs` as from `heshare.compare`."""
    table = median_intervals(runs, ["title"], METRICS)
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
    sizes: Any = changes.set_index(["ours", "theirs", "metric"])["change_pct"].sort_index()
    both = {"energy": "energy_active_j", "jct": "avg_jct_s"}
    found = {
        rival: {word: sizes["Trade-off", rival, metric] for word, metric in both.items()}
        for rival in ("Morak", "μ-Serve")
    }
    return _on_policies("seen", changes=found, slower=sizes["Morak", "Random", "avg_jct_s"])


def paired(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the change of every policy against every other, paired by seed, %, with 95 % intervals."""
    wide = runs.pivot_table(index="repetition", columns="title", values=metric)
    rows = []
    for ours, theirs in permutations(dict.fromkeys(runs["title"]), 2):
        change = change_pct(wide[ours], wide[theirs]).columns("change_pct", "low_pct", "high_pct")
        rows.append({"ours": ours, "theirs": theirs, "metric": metric, **change})
    return pd.DataFrame(rows).assign(provenance="emulated")


_METRIC_WORDS = {
    "avg_jct_s": "average JCT",
    "energy_active_j": "energy (active)",
    "energy_cluster_j": "energy (cluster)",
}


def change(runs: pd.DataFrame, claim: Claim, ours: str, theirs: str, metric: str) -> dict[str, Any]:
    """Return claim H3 or H4: a policy's metric against another's, paired by seed, and the same by the paper's words."""
    others = ["avg_jct_s" if metric.startswith("energy") else "energy_active_j"]
    if metric == "energy_active_j":
        others.append("energy_cluster_j")
    found, *beside = (paired_change(runs, ours, theirs, name) for name in (metric, *others))
    by_text, text = by_words(runs, claim, ours, theirs, metric)
    sizes = {_METRIC_WORDS[name]: size.value for name, size in zip(others, beside, strict=True)}
    name = _METRIC_WORDS[metric]
    return found.claim_arguments(
        _on_policies("change", name=name, beside=sizes, is_random=theirs == "Random", by_words=text),
        why=_on_policies("change_in_short", here=found.value, by_words=by_text.value, paper=claim.paper),
    )


def by_words(runs: pd.DataFrame, claim: Claim, ours: str, theirs: str, metric: str) -> tuple[ConfidenceInterval, str]:
    """Return a claim's change if HeShare follows the paper's words in all settings, and a sentence with it.

    `runs` has the policies of `Settings.literal` as well, whose titles end with `LITERALLY`. `ours` is the title of
    HeShare's plan as shipped, `theirs` that of the other policy; of a plan of HeShare's that by the paper's words is
    taken.
    """
    other = theirs + LITERALLY if theirs + LITERALLY in set(runs["title"]) else theirs
    found = paired_change(runs, ours + LITERALLY, other, metric)
    word = verdict(claim, found.value, found.low, found.high, n=found.n)
    return found, _on_policies("by_words", size=found, verdict=word)


def cost_of_jct(runs: pd.DataFrame) -> dict[str, Any]:
    """Return claim H6: JCT-opt pays for its JCT with more energy than HeShare's other plans."""
    sizes = {plan: paired_change(runs, "JCT-opt", plan, "energy_active_j") for plan in ("En-opt", "Trade-off")}
    holds = {f"more energy than {plan}": size.low > 0 for plan, size in sizes.items()}
    note = _on_policies("cost_of_jct", trade_off=sizes["Trade-off"].value)
    return sizes["En-opt"].claim_arguments(note, holds=holds)


def poorest_and_best(runs: pd.DataFrame, why: str = "") -> dict[str, Any]:
    """Return claim H5: Random is poorest in both objectives; `why` ends the note.

    That Sched-only is best in neither holds by construction, and is told in the note alone.
    """
    metrics = {"energy": "energy_active_j", "JCT": "avg_jct_s"}
    middle = {word: runs.groupby("title", sort=False)[name].median() for word, name in metrics.items()}
    best = {word: str(values.idxmin()) for word, values in middle.items()}
    poorest = {word: str(values.idxmax()) for word, values in middle.items()}
    holds = {f"Random poorest in {word}": title == "Random" for word, title in poorest.items()}
    found = paired_change(runs, "Random", "Sched-only", "avg_jct_s")
    return found.claim_arguments(_on_policies("poorest_and_best", best=best, poorest=poorest, why=why), holds=holds)
