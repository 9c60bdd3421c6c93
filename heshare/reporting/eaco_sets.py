"""EaCO's measured sets of trainings: the same on an emulated node, one after the other and together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from heshare.reporting import eaco
from heshare.reporting.statistics import median_interval
from heshare.world.task import Task
from heshare.world.training import MeasuredSet, measured_sets, step
from heshare.world.workload import Workload

EPOCHS = 90
"""Epochs of EaCO's trainings of ImageNet."""


def sets(seed: int, seeds: int, spread: float = 0.25) -> pd.DataFrame:
    """EaCO on each of its measured sets, on one node, against the same jobs one after the other.

    Args:
        seed: of all draws.
        seeds: how many repetitions with other numbers of epochs, after one (repetition -1) with 90 for every job.
        spread: by how much the numbers of epochs differ from 90 at most, either way, as a share.

    Returns:
        One row a set and repetition: set, size, repetition, saving_pct (of the node), gpus_pct (of its GPUs alone),
        slowdown_pct (mean over jobs), utilisation_pct, measured_pct and measured_slowdown_pct (EaCO's), provenance.
    """
    children = np.random.SeedSequence(seed).spawn(seeds)
    lengths = [np.ones(4), *[1 + np.random.default_rng(child).uniform(-spread, spread, 4) for child in children]]
    rows = [
        {"set": name_of(one), "size": len(one.workloads), "repetition": number - 1, **_set(one, length.tolist())}
        for one in measured_sets()
        if len(one.workloads) > 1
        for number, length in enumerate(lengths)
    ]
    return pd.DataFrame(rows).assign(provenance="emulated")


def name_of(one: MeasuredSet) -> str:
    """The members of a set, such as `alexnet+vgg16`."""
    return "+".join(workload.model.removeprefix("eaco_") for workload in one.workloads)


def _set(one: MeasuredSet, length: list[float]) -> dict[str, float]:
    tasks = [
        Task(number, workload, EPOCHS * part * _epoch(workload), gpus=eaco.NODE, epochs=EPOCHS)
        for number, (workload, part) in enumerate(zip(one.workloads, length, strict=False))
    ]
    rng = np.random.default_rng(0)
    apart, together = (eaco.go(tasks, 1, eaco.SYSTEMS[title](), rng) for title in (eaco.FIFO, eaco.EACO))
    alone = {each.workloads[0]: each for each in measured_sets() if len(each.workloads) == 1}
    measured_kwh = sum(alone[workload].energy_kwh for workload in one.workloads)
    measured_h = float(np.mean([alone[workload].runtime_h for workload in one.workloads]))
    return {
        "saving_pct": 100 * (eaco.nodes_j(together) / eaco.nodes_j(apart) - 1),
        "gpus_pct": 100 * (together.energy_cluster_j / apart.energy_cluster_j - 1),
        "slowdown_pct": 100 * (float(np.mean(together.execution_s / apart.execution_s)) - 1),
        "utilisation_pct": 100 * eaco.utilisation(together),
        "measured_pct": 100 * (one.energy_kwh / measured_kwh - 1),
        "measured_slowdown_pct": 100 * (one.runtime_h / measured_h - 1),
    }


def _epoch(workload: Workload) -> float:
    """Steps of an epoch on a whole node."""
    return step(workload).epoch_samples / (workload.batch_size * eaco.NODE)


def summary(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Each set: EaCO's measurement, the same with equal jobs, and with jobs of other lengths.

    Returns:
        Columns set, measured_pct, equal_pct, median_pct, low, high, n, gpus_pct, measured_slowdown_pct, slowdown_pct,
        utilisation_pct, provenance.
    """
    rows = []
    for name, part in frame.groupby("set", sort=False):
        equal: Any = part[part["repetition"] < 0].iloc[0]
        drawn = part[part["repetition"] >= 0]
        found = median_interval(drawn["saving_pct"], rng)
        rows.append(
            {
                "set": name,
                "measured_pct": equal["measured_pct"],
                "equal_pct": equal["saving_pct"],
                "median_pct": found.value,
                "low": found.low,
                "high": found.high,
                "n": found.n,
                "gpus_pct": equal["gpus_pct"],
                "measured_slowdown_pct": equal["measured_slowdown_pct"],
                "slowdown_pct": equal["slowdown_pct"],
                "utilisation_pct": equal["utilisation_pct"],
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def priced_energy(frame: pd.DataFrame, rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of the claim on energy per job: the set that saves most, repetition by repetition."""
    drawn, equal = frame[frame["repetition"] >= 0], frame[frame["repetition"] < 0]
    found = median_interval(drawn.groupby("repetition")["saving_pct"].min(), rng)
    best: Any = equal.sort_values("saving_pct").iloc[0]
    gap = float((equal["saving_pct"] - equal["measured_pct"]).abs().max())
    return found.priced(
        f"The best set of a repetition whose jobs differ in length; with equal ones "
        f"{best['saving_pct']:+.1f} % ({best['set']}; measured {best['measured_pct']:+.1f} %), and every set within "
        f"{gap:.1f} points of what EaCO measured. Whole node: GPUs and {eaco.host_w():.0f} W of host; of the "
        f"GPUs alone {best['gpus_pct']:+.0f} %."
    )


def priced_utilisation(frame: pd.DataFrame) -> dict[str, Any]:
    """Arguments of the claim on GPU utilisation: whether sets raise it, and how far."""
    equal = frame[frame["repetition"] < 0]
    most: Any = equal.sort_values("utilisation_pct").iloc[-1]
    alone = max(step(each.workloads[0]).busy for each in measured_sets() if len(each.workloads) == 1)
    return {
        "holds": {
            "together GPUs are used more than by any of the jobs alone": bool(most["utilisation_pct"] > 100 * alone),
            "a set reaches 97 %": bool(most["utilisation_pct"] >= 97),
        },
        "n": len(equal),
        "provenance": "emulated",
        "note": f"At most {most['utilisation_pct']:.0f} % ({most['set']}), the best job alone {100 * alone:.0f} %. By "
        "EaCO's own table, four jobs that alone keep GPUs busy for 36 h in all have 44 h together: 82 %; 97 % by "
        "the driver must count more than their work, such as switching between them.",
    }
