"""Signed errors of a predictor against the device model, by how tasks share and for the sets that plans contain."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.device_model import co_run
from heshare.paper.figures.rows import interval_rows, value_line
from heshare.prediction.predictor import Predictor
from heshare.scheduling.plan import Plan
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.catalogue import memory_mib, paper_models
from heshare.world.workload import Resident, Workload

IN_PLANS = "sets of HeShare's plans"
SHARES: Mapping[str, tuple[int, ...]] = {
    "alone": (100,),
    "sum at most 100 %": tuple(range(10, 51, 10)),
    "sum 100 to 200 %": tuple(range(40, 101, 10)),
    "all at 100 %": (100,),
}
"""Percentages from which each task's is drawn, by the class of a set."""
MOST_TASKS = 4
UPPER_CLOCKS = 0.6
"""Clocks that are drawn, from this part of the top clock: plans have few lower ones."""
_SUMS: Mapping[str, tuple[int, int]] = {"sum at most 100 %": (0, 100), "sum 100 to 200 %": (101, 200)}
"""The least and the largest sum of percentages, where a class limits it."""
CoRun = tuple[str, tuple[Resident, ...], int | None]
"""A GPU's name, its residents and the clock, MHz."""


def drawn_sets(kind: str, gpu: str, count: int, batch_sizes: Sequence[int], rng: np.random.Generator) -> list[CoRun]:
    """Return `count` sets of a class of `SHARES`: a task alone, or 2 to 4 that fit the GPU, at one of its upper clocks.

    Each task has one of the inference batch sizes.
    """
    card = find_gpu(gpu)
    names = sorted(paper_models())
    clocks_mhz = [mhz for mhz in card.clocks_mhz if mhz >= UPPER_CLOCKS * card.max_mhz]
    least, most = _SUMS.get(kind, (0, 100 * MOST_TASKS))
    found: list[CoRun] = []

    while len(found) < count:
        size = 1 if kind == "alone" else int(rng.integers(2, MOST_TASKS + 1))
        pcts = rng.choice(SHARES[kind], size=size).tolist()
        workloads = [
            Workload(names[place], int(rng.choice(batch_sizes))) for place in rng.integers(len(names), size=size)
        ]
        fits = sum(map(memory_mib, workloads)) <= card.memory_mib
        if fits and least <= sum(pcts) <= most:
            found.append((gpu, tuple(map(Resident, workloads, pcts)), int(rng.choice(clocks_mhz))))
    return found


def sets_of_plans(plans: Iterable[Plan]) -> list[CoRun]:
    """Return the batches of plans in which tasks share, as sets."""
    found: list[CoRun] = []
    for plan in plans:
        workloads = {task.id: task.workload for task in plan.tasks}
        for gpu, queue in zip(plan.cluster.gpus, plan.queues, strict=True):
            for batch in queue:
                members = zip(batch.tasks, batch.mps_pct, strict=True)
                residents = tuple(Resident(workloads[id], pct) for id, pct in members)
                if len(residents) > 1:
                    found.append((gpu.name, residents, batch.sm_mhz))
    return found


def signed_errors(sets: Mapping[str, Sequence[CoRun]], predictor: Predictor) -> pd.DataFrame:
    """Return the signed errors of times and power, %, by class and GPU: below zero is predicted too fast or too low.

    Returns:
        Columns sharing, gpu, time_pct, time_low_pct, time_high_pct (median and quartiles over tasks), power_pct (median
        over sets), sets, tasks, provenance.
    """
    rows = []
    for kind, every in sets.items():
        for name in sorted({name for name, _, _ in every}, key=lambda name: find_gpu(name).sm_count):
            gpu = find_gpu(name)
            sets_of_gpu = [(residents, mhz) for on, residents, mhz in every if on == name]
            guess = predictor.co_run([residents for residents, _ in sets_of_gpu], gpu, [mhz for _, mhz in sets_of_gpu])
            true = [co_run(gpu, residents, mhz) for residents, mhz in sets_of_gpu]

            true_s = np.array([task.time_s for each in true for task in each.tasks])
            time_pct = 100 * (guess.time_s[np.isfinite(guess.time_s)] / true_s - 1)
            power_pct = 100 * (guess.power_w / np.array([each.power_w for each in true]) - 1)
            low, middle, high = np.percentile(time_pct, [25, 50, 75]).tolist()
            rows.append(
                {
                    "sharing": kind,
                    "gpu": name,
                    "time_pct": middle,
                    "time_low_pct": low,
                    "time_high_pct": high,
                    "power_pct": float(np.median(power_pct)),
                    "sets": len(sets_of_gpu),
                    "tasks": len(true_s),
                }
            )
    return pd.DataFrame(rows).assign(provenance="emulated")


def draw(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the median and quartiles of the signed error of times, a row a class, a mark a GPU."""
    interval_rows(ax, table, row="sharing", value="time_pct", low="time_low_pct", high="time_high_pct", series="gpu")
    value_line(ax, 0.0, line="-")
    ax.set_xlabel("Predicted over true time (%)")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=table["gpu"].nunique())
