"""Growth of HeShare+'s time and peak memory with the cluster, in a process of its own, the smallest size first.

Run some sizes as `python benchmarks/growth.py TASKS ...`; it prints one JSON object for each. Predictions are shared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from bench_rows import Row, peak_mib, single_row

if TYPE_CHECKING:
    from heshare.lab.plus.heshare_plus import SearchSettings
    from heshare.prediction.predictor import Predictor

UNIT = {"T4": 4, "V100": 2, "A100": 2}
UNIT_TASKS = 60
"""Number of tasks for each unit of 8 GPUs (`UNIT`)."""
SMALL_TASKS = 6
SIZES = (60, 600, 2_400)


def each_size(sizes: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield the times of a plan of each size and the peak memory so far, after a small plan that compiles."""
    import heshare
    from heshare.lab.plus.heshare_plus import SearchSettings

    predictor = heshare.load_predictor()
    plan(SMALL_TASKS, predictor, seed=0, effort=SearchSettings(rounds=2, weights=2))
    for tasks in sizes:
        row = plan(tasks, predictor, seed=1, effort=SearchSettings(rounds=2, weights=12))
        yield {**row, "peak_gib": peak_mib() / 1024}


def cluster_of(tasks: int) -> str:
    """Return the cluster for so many tasks: a unit for each `UNIT_TASKS` tasks."""
    units = max(1, tasks // UNIT_TASKS)
    return ",".join(f"{count * units}x{name}" for name, count in UNIT.items())


def plan(tasks: int, predictor: Predictor, *, seed: int, effort: SearchSettings) -> dict[str, Any]:
    """Return tasks, gpus, points of the front, rows predicted, and the times of the table and of the search, s."""
    from heshare.devices.task_sizes import draw
    from heshare.lab.plus.batch_table import BatchTable
    from heshare.lab.plus.heshare_plus import PlusSearch
    from heshare.scheduling.objectives import make_instance
    from heshare.world.cluster import Cluster

    cluster = Cluster.parse(cluster_of(tasks))
    calls, start_s = predictor.calls, perf_counter()
    drawn = draw(tasks, rng=np.random.default_rng(seed), load="mixed", arrivals="at_once")
    table = BatchTable(make_instance(drawn, cluster, predictor), predictor, effort.choices)
    filled_s = perf_counter()
    search = PlusSearch(table, effort, np.random.default_rng(seed))
    search.run()
    row = {"tasks": tasks, "gpus": len(cluster), "points": len(search.front())}
    row["predictor_rows"] = predictor.calls - calls
    return {**row, "tables_s": filled_s - start_s, "search_s": perf_counter() - filled_s}


def in_a_process(sizes: Iterable[int]) -> list[dict[str, Any]]:
    """Return `each_size` of a new process, whose peak memory is that of these plans alone."""
    done = subprocess.run([sys.executable, __file__, *map(str, sizes)], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def results(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Return the exponent of time at fixed tasks a GPU, the largest peak memory, the smallest front, each time."""
    rows = in_a_process(sizes)
    tasks, seconds = (np.log([row[name] for row in rows]) for name in ("tasks", "search_s"))
    summary = [
        single_row("scale_exponent", np.polyfit(tasks, seconds, 1)[0], n=len(rows)),
        single_row("scale_peak_gib", max(row["peak_gib"] for row in rows), "GiB", len(rows)),
        single_row("scale_least_points", min(row["points"] for row in rows), n=len(rows)),
    ]
    return summary + [single_row(f"scale_{row['tasks']}x{row['gpus']}", row["search_s"], "s") for row in rows]


if __name__ == "__main__":
    for row in each_size(map(int, sys.argv[1:])):
        print(json.dumps(row))
