"""Growth of HeShare+'s time and peak memory with the cluster, each size in a process of its own.

Run one size as `python benchmarks/growth.py TASKS`; it prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import numpy as np

SIZES = (60, 600, 10_000)
KIB_IN_GIB = 1024.0**2


def one_size(tasks: int) -> dict[str, Any]:
    """Return the times and the peak memory of one plan, after a small plan that compiles."""
    import heshare
    from heshare.experiments.studies.scaling import study
    from heshare.plus.search_settings import SearchSettings

    study([60], heshare.load_predictor(), seed=0, effort=SearchSettings(rounds=1, weights=2))
    frame = study([tasks], heshare.load_predictor(), seed=1, effort=SearchSettings(rounds=2, weights=12), warm=False)
    row: dict[str, Any] = frame.to_dict(orient="records")[0]
    return {**row, "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_IN_GIB}


def in_a_process(tasks: int) -> dict[str, Any]:
    """Return `one_size` of a new process, whose peak memory is that of one size alone."""
    done = subprocess.run([sys.executable, __file__, str(tasks)], capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def growth(sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """Return the exponent of time at fixed tasks a GPU, the largest peak memory, the smallest front, each time."""
    rows = [in_a_process(size) for size in sizes]
    tasks, seconds = (np.log([row[name] for row in rows]) for name in ("tasks", "search_s"))
    summary = [
        {"name": "scale_exponent", "value": float(np.polyfit(tasks, seconds, 1)[0]), "unit": "1", "n": len(rows)},
        {"name": "scale_peak_gib", "value": max(row["peak_gib"] for row in rows), "unit": "GiB", "n": len(rows)},
        {"name": "scale_least_points", "value": min(row["points"] for row in rows), "unit": "1", "n": len(rows)},
    ]
    return summary + [
        {"name": f"scale_{row['tasks']}x{row['gpus']}", "value": row["search_s"], "unit": "s", "n": 1} for row in rows
    ]


if __name__ == "__main__":
    print(json.dumps(one_size(int(sys.argv[1]))))
