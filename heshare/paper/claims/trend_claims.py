"""Claims about trends and indicators: S2 and S3 (searches), G4 and O7 (growing leads), G5 (where plans place tasks).

For each there is a table, whose rows have the column `part`, the name of the claim's part, and a function that returns
the arguments of one `Context.claim`: a part holds if its whole interval has the right sign.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, median_interval
from heshare.paper.studies import variants
from heshare.paper.studies.search_fronts import OURS, PAPER_RATE, STARTS, Study
from heshare.paper.texts import render
from heshare.policies import registry
from heshare.prediction.predictor import Predictor
from heshare.scheduling.pareto import PlanChoice
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

_ENDS = ("change", "low", "high")
_PLACES: dict[PlanChoice, str] = {"en-opt": "En-opt", "jct-opt": "JCT-opt"}


def _claim(
    table: pd.DataFrame, note: str, *, negative: bool = False, one_unit: bool = True, **at: object
) -> dict[str, Any]:
    """Return a claim whose parts are the rows of a table; the row of the least effect is the measured one.

    If their units differ, the first row is. `negative` says that an effect is below zero; `at` names what the source
    leaves open, by the table's columns.
    """
    sign = -1 if negative else 1
    ends = table[[*_ENDS, "n"]].to_dict("records")
    sizes = {part: ConfidenceInterval(*row.values()) for part, row in zip(table["part"], ends, strict=True)}
    holds = {part: min(sign * size.low, sign * size.high) > 0 for part, size in sizes.items()}
    least = min(sizes, key=lambda part: sign * sizes[part].value) if one_unit else next(iter(sizes))
    row = table[table["part"] == least].iloc[0]
    return sizes[least].claim_arguments(note, holds=holds, at={name: row[str(column)] for name, column in at.items()})


def search_indicators(study: Study) -> pd.DataFrame:
    """Return what claims S2 and S3 say of the searches at the paper's mutation rate, paired by seed.

    S2: the hypervolume after the first checkpoint, from HeShare's first schemes over that from random ones, %. S3: an
    indicator of the final front of a rival with a random start, less that of HeShare's front.
    """
    rows: list[dict[str, object]] = []
    curves = study.curves[study.curves["evaluations"] == study.curves["evaluations"].min()]
    early = curves.pivot_table(index="seed", columns="system", values="hypervolume")
    rivals = [title for title in early if str(title).endswith(f" at {PAPER_RATE}")]
    for title in rivals:
        size = change_pct(early[title + STARTS["rank"]], early[title]).columns(*_ENDS)
        rows.append({"claim": "S2", "system": title, "part": f"{_name(title)} covers more", **size})
    indicators = {
        "SPEA2": ("SPEA2 is farther from the union front", 1, "igd_plus"),
        "NSGA-II": ("NSGA-II has the smaller extent", -1, "extent"),
        "MOEA/D": ("MOEA/D has the larger spacing", 1, "spacing"),
    }
    for title in rivals:
        word, sign, column = indicators[_name(title)]
        values = study.final.pivot_table(index="seed", columns="system", values=column)
        size = median_interval(sign * (values[title] - values[OURS])).columns(*_ENDS)
        rows.append({"claim": "S3", "system": title, "part": word, **size})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _name(title: str) -> str:
    return title.partition(" at ")[0].partition(",")[0]


def indicator_claim(table: pd.DataFrame, id: str) -> dict[str, Any]:
    rows = table[table["claim"] == id].sort_values(
        "part", key=lambda parts: ~parts.str.startswith("SPEA2"), kind="stable"
    )
    return _claim(rows, render("06_search", f"indicators_{id.lower()}"), one_unit=id == "S2", system="system")


def growth(runs: pd.DataFrame, id: str, cases: Iterable[tuple[str, str, str, str]], more: pd.Series) -> pd.DataFrame:
    """Return by how many percent a plan's measure over a rival's differs where there is more of something, by seed.

    `runs` has the column `world`; `cases` are plan, rival (of `variants.RIVALS`), metric and type of GPU (empty: all
    runs). `more` is True for the runs with more, such as more types of GPU, and False for those with less; others are
    NaN.
    """
    rows = []
    for ours, rival, metric, gpu in cases:
        of_gpu = runs["GPU"] == gpu if gpu else pd.Series(data=True, index=runs.index)
        ratios = [
            np.divide(*(variants.seed_means(runs[of_gpu & (more == side)], each, metric) for each in titles))
            for titles in [(ours, registry.title(variants.RIVALS[rival]))]
            for side in (True, False)
        ]
        size = change_pct(*ratios).columns("change_pct", "low", "high")
        part = f"{ours} over {rival}{f' on {gpu}' if gpu else ''}"
        rows.append({"claim": id, "rival": rival, "gpu": gpu or "all", "metric": metric, "part": part, **size})
    return pd.DataFrame(rows).assign(provenance="emulated")


def growth_claim(table: pd.DataFrame, note: str) -> dict[str, Any]:
    return _claim(table.rename(columns={"change_pct": "change"}), note, negative=True, rival="rival", gpu="gpu")


def places(
    n: int, clusters: Sequence[str], loads: Sequence[str], *, seed: int, seeds: int, predictor: Predictor
) -> pd.DataFrame:
    """Return the share of tasks that En-opt and JCT-opt place on each type of GPU, %, and its difference by seed.

    Task sets and plans are those of a sweep with this seed. A seed's share is the mean over clusters and loads.

    Returns:
        Columns gpu, en_opt, jct_opt (medians, %), change (of the first less the second, points), low, high, n.
    """
    rows = []
    for at, load, cluster in product(range(seeds), loads, map(Cluster.parse, clusters)):
        drawn = Repetition(at, seed)
        front = plan(drawn.task_set(n, load=load), cluster, predictor, rng=drawn.rng(POLICY), settings=Settings())
        for choice, title in _PLACES.items():
            counts = {gpu.name: 0 for gpu in cluster.gpus}
            for gpu, queue in zip(cluster.gpus, front.choose(choice).queues, strict=True):
                counts[gpu.name] += sum(len(batch.tasks) for batch in queue)
            rows += [
                {"seed": at, "title": title, "gpu": gpu, "share": 100 * count / n} for gpu, count in counts.items()
            ]
    shares = pd.DataFrame(rows).pivot_table(index=["gpu", "seed"], columns="title", values="share", sort=False)
    found = []
    for name, part in shares.groupby("gpu", sort=False):
        size = median_interval(part["En-opt"] - part["JCT-opt"]).columns(*_ENDS)
        found.append({"gpu": name, "en_opt": part["En-opt"].median(), "jct_opt": part["JCT-opt"].median(), **size})
    return pd.DataFrame(found).assign(provenance="emulated")


def place_claim(table: pd.DataFrame) -> dict[str, Any]:
    """Return claim G5: En-opt places more on the T4 than JCT-opt, and JCT-opt more on the A100."""
    rows: Any = table.set_index("gpu")
    t4, a100 = rows.loc["T4"], rows.loc["A100"]
    holds = {"En-opt has more on the T4": t4["low"] > 0, "JCT-opt has more on the A100": a100["high"] < 0}
    note = render("10_mixes", "places", rows=table.to_dict("records"))
    change, low, high = (float(t4[end]) for end in _ENDS)
    size = ConfidenceInterval(change, low, high, int(t4["n"]))
    return size.claim_arguments(note, holds={part: bool(good) for part, good in holds.items()})
