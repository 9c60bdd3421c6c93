"""Seconds of large plans, of a comparison, and of runs in which thousands of tasks wait."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench_rows import Row, single_row

import heshare
from heshare.policies.registry import make
from heshare.shared.errors import HeShareError

CLUSTER = "4xT4,2xV100,2xA100"
FIG_6 = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt", "morak", "mu-serve")
WAITING = 2_500
JOBS = 20_000
ONLINE = 2_000
LIMIT_S = 600.0
"""A run that takes longer is stopped, and its row is this long."""


def seconds(call: Callable[[], object]) -> float:
    """Return the wall time of a call, s."""
    begin_s = time.perf_counter()
    call()
    return time.perf_counter() - begin_s


def at_once(policy: str) -> float:
    """Return the time of a run of `WAITING` tasks that arrive at once on 64 GPUs, s."""
    tasks = heshare.task_set(WAITING, seed=1)
    return limited(lambda: heshare.run(tasks, "64xT4", policy, max_time_s=LIMIT_S))


def online() -> float:
    """Return the time of a run of `ONLINE` tasks that arrive at load 0.9 on 64 GPUs under online HeShare, s."""
    cluster = "32xT4,16xV100,16xA100"
    tasks = heshare.task_set(ONLINE, seed=1, arrivals="exponential@0.9", cluster=cluster)
    return limited(lambda: heshare.run(tasks, cluster, "heshare-online:trade-off", max_time_s=LIMIT_S))


def limited(call: Callable[[], object]) -> float:
    """Return the wall time of a call, s, `LIMIT_S` where it takes longer."""
    try:
        return seconds(call)
    except HeShareError:
        return LIMIT_S


def results() -> list[Row]:
    """Return the seconds of each case, predictions included; the process has compiled a plan before."""
    make("heshare:trade-off")
    heshare.plan(8, CLUSTER)
    rows = []
    for count in (60, 1_000, 4_000):
        tasks = heshare.task_set(count, seed=1)
        taken_s = seconds(lambda tasks=tasks: heshare.plan(tasks, CLUSTER))  # type: ignore[misc]
        rows.append(single_row(f"plan_{count}_tasks_s", taken_s, "s"))
    rows.append(
        single_row("compare_60_s", seconds(lambda: heshare.compare(60, CLUSTER, FIG_6, seeds=1, progress=False)), "s")
    )
    fifo = heshare.task_set(JOBS, seed=1)
    rows.append(single_row("fifo_20000_s", seconds(lambda: heshare.run(fifo, "64xT4", "fifo")), "s"))
    rows += [single_row(f"{policy}_2500_s", at_once(policy), "s") for policy in ("srtf", "marginal")]
    rows.append(single_row("heshare_online_2000_s", online(), "s"))
    return rows
