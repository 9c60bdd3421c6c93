"""Real time of online planning over the time that its policies charge, and the speed of the kernel loop.

`python benchmarks/online.py` prints it as JSON.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from bench_rows import Row, sample_row

SIZES = (5, 10, 20, 40, 80)
CLUSTER = "4xT4,2xV100,2xA100"
REQUESTS = 200


def results() -> list[Row]:
    """Return `online_charged` and `online_plus_charged` (real over charged, medians over sizes), `kernels_per_s`."""
    import heshare
    from heshare.lab.plus.online import HeShareOnline, HeSharePlusOnline

    predictor = heshare.load_predictor()
    plain, plus = HeShareOnline(), HeSharePlusOnline()
    rows = []
    for name, policy in (("online_charged", plain), ("online_plus_charged", plus)):
        ratios = [ratio(policy, size, predictor) for size in SIZES]
        rows.append(sample_row(name, ratios))
    return [*rows, sample_row("kernels_per_s", [kernels_per_s() for _ in range(3)], "1/s")]


def ratio(policy: Any, tasks: int, predictor: Any) -> float:
    """Return the CPU time of one planning of a policy over the time that it charges."""
    import heshare
    from heshare.world.cluster import Cluster

    policy.reset(Cluster.parse(CLUSTER), predictor, np.random.default_rng(0))
    drawn, ready_s = heshare.task_set(tasks, seed=tasks), np.zeros(len(policy.cluster))
    policy.front(drawn, ready_s, [])
    start_s = time.process_time()
    policy.front(drawn, ready_s, [])
    return float((time.process_time() - start_s) / policy.charged_s(tasks))


def kernels_per_s() -> float:
    """Return the number of kernels that the loop runs in a second of CPU time: FIKIT, an urgent and another task."""
    from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, share
    from heshare.lab.systems.fikit.kernel_trace import traces

    high, low = traces()["mobilenetv2"], traces()["resnet50"]
    arrivals_s = tuple((0.02 * np.arange(REQUESTS)).tolist())
    clients = [Client(high, REQUESTS, 0, arrivals_s), Client(low, 0, 1)]
    share(clients, FikitRule())
    start_s = time.process_time()
    found = share(clients, FikitRule())
    spent_s = time.process_time() - start_s
    done = REQUESTS * len(high) + found.rate[1] * found.end_s / low.busy_s * len(low)
    return float(done / spent_s)


if __name__ == "__main__":
    print(json.dumps(results(), indent=2))
