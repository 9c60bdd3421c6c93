"""The study of EaCO's measured sets of trainings: the same sets on an emulated node, one by one and together."""

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import median_intervals, with_median
from heshare.lab.systems.shared.training import MeasuredSet, measured_alone, measured_sets, measured_slowdown, step
from heshare.paper.claims.sources import claim_of_row
from heshare.paper.figures.series_styles import category_style
from heshare.paper.studies.systems import eaco_study
from heshare.paper.texts import render
from heshare.shared.arrays import FloatArray
from heshare.world.task import Task

EPOCHS = 90
"""Epochs of EaCO's trainings of ImageNet."""
SPREAD = 0.25
"""By how much the numbers of epochs differ from that at most, either way, as a share; assumed."""


def run_sets(seed: int, seeds: int) -> pd.DataFrame:
    """Run EaCO on each of its measured sets, on one node, against the same jobs one after the other.

    `seeds` repetitions with other numbers of epochs follow one (repetition -1) with 90 for every job.

    Returns:
        One row a set and repetition: set, size, repetition, saving_pct (of the node), gpus_pct (of its GPUs alone),
        slowdown_pct (mean over jobs), utilisation_pct, measured_pct and measured_slowdown_pct (EaCO's), provenance.
    """
    drawn = {each: 1 + Repetition(each, seed).rng().uniform(-SPREAD, SPREAD, 4) for each in range(seeds)}
    rows = [
        {"set": set_name(entry), "size": len(entry.workloads), "repetition": number, **_measures(entry, length)}
        for entry in measured_sets()
        for number, length in {-1: np.ones(4), **drawn}.items()
    ]
    return pd.DataFrame(rows).assign(provenance="emulated")


def set_name(entry: MeasuredSet) -> str:
    return "+".join(workload.model.removeprefix("eaco_") for workload in entry.workloads)


def _measures(entry: MeasuredSet, length: FloatArray) -> dict[str, float]:
    tasks = [
        Task(number, workload, EPOCHS * float(part) * steps, gpus=eaco_study.NODE, epochs=EPOCHS)
        for number, (workload, part) in enumerate(zip(entry.workloads, length, strict=False))
        for steps in [step(workload).epoch_samples / (workload.batch_size * eaco_study.NODE)]
    ]
    rng = np.random.default_rng(0)
    apart, together = (
        eaco_study.run_on_nodes(tasks, 1, eaco_study.SYSTEMS[title](), rng)
        for title in (eaco_study.FIFO, eaco_study.EACO)
    )
    alone_kwh = sum(measured_alone()[workload].energy_kwh for workload in entry.workloads)
    return {
        "saving_pct": 100 * (eaco_study.nodes_energy_j(together) / eaco_study.nodes_energy_j(apart) - 1),
        "gpus_pct": 100 * (together.energy_cluster_j / apart.energy_cluster_j - 1),
        "slowdown_pct": 100 * (float(np.mean(together.execution_s / apart.execution_s)) - 1),
        "utilisation_pct": 100 * eaco_study.utilisation(together),
        "measured_pct": 100 * (entry.energy_kwh / alone_kwh - 1),
        "measured_slowdown_pct": 100 * (measured_slowdown(entry) - 1),
    }


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    equal = frame[frame["repetition"] < 0].rename(columns={"saving_pct": "equal_pct"})
    drawn = median_intervals(frame[frame["repetition"] >= 0], ["set"], ["saving_pct"])
    table = equal.merge(drawn.rename(columns={"median": "median_pct"}).drop(columns="provenance"), on="set")
    columns = ["set", "measured_pct", "equal_pct", "median_pct", "low", "high", "n", "gpus_pct"]
    return table[[*columns, "measured_slowdown_pct", "slowdown_pct", "utilisation_pct", "provenance"]]


def best_sets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the change of energy (%) by the set that saves most in each repetition of `run_sets`, and their median."""
    drawn = frame[frame["repetition"] >= 0]
    return with_median(drawn.groupby("repetition")["saving_pct"].min()).assign(provenance="emulated")


def evaluate_energy_per_job(frame: pd.DataFrame, best_of_each: pd.DataFrame) -> dict[str, Any]:
    equal = frame[frame["repetition"] < 0]
    gap = (equal["saving_pct"] - equal["measured_pct"]).abs().max()
    best = equal.sort_values("saving_pct").iloc[0]
    note = render("14_eaco", "energy_per_job", best=best, gap=gap, host_w=eaco_study.host_w())
    return claim_of_row(best_of_each, "E1", "energy") | {"note": note}


def evaluate_utilisation(frame: pd.DataFrame) -> dict[str, Any]:
    equal = frame[frame["repetition"] < 0]
    most: Any = equal.sort_values("utilisation_pct").iloc[-1]
    alone = max(step(workload).busy for workload in measured_alone())
    return {
        "holds": {
            "together GPUs are used more than by any of the jobs alone": bool(most["utilisation_pct"] > 100 * alone),
            "a set reaches 97 %": bool(most["utilisation_pct"] >= 97),
        },
        "measured": float(most["utilisation_pct"]),
        "at": {"set": most["set"]},
        "n": len(equal),
        "provenance": "emulated",
        "note": render("14_eaco", "utilisation", most=most, alone=alone),
    }


def panel(ax: Axes, sets: pd.DataFrame) -> None:
    at = np.arange(len(sets))
    ax.plot(sets["measured_pct"], at, "|", color="black", markersize=9, markeredgewidth=1.4, label="measured by EaCO")
    for index, (column, label) in enumerate((("equal_pct", "emulated"), ("gpus_pct", "emulated, GPUs alone"))):
        ax.plot(sets[column], at, label=label, **category_style(index).line_arguments(linestyle=""))
    titles = {"alexnet": "AlexNet", "resnet18": "ResNet-18", "resnet50": "ResNet-50", "vgg16": "VGG-16"}
    names = [" + ".join(titles[member] for member in text.split("+")) for text in sets["set"]]
    ax.set_yticks(at, ["\n".join(textwrap.wrap(name, 23)) for name in names])
    ax.set(ylim=(len(sets) - 0.5, -0.5), xlabel="Energy against one after the other (%)")
    ax.grid(axis="x")
    ax.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=3, borderaxespad=0.2, columnspacing=0.8)
