"""How well budgets are kept: wall time of `hs.optimise(budget_s=b)` for 20 to 10,000 tasks, warm, in one process.

A budget is kept if the front is there after 1.15 b or b + 0.15 s, whichever is later. So the row `budget_kept_worst` is

    max over the grid of    wall time / max(b, (b + 0.15 s) / 1.15),    at most 1.15

Run it as `python benchmarks/budgets.py`, which prints the whole grid. It takes about 75 s, most of them the budgets.
"""

from __future__ import annotations

from time import perf_counter

import growth
from bench_rows import Row, single_row

SIZES = (20, 60, 600, 2000, growth.LARGEST)
BUDGETS_S = (0.05, 0.5, 2.0, 10.0)
WARM_UP = ((60, 3.0), (600, 1.0), (20, 0.05))
"""Tasks and budget (s) of the searches before: they compile, and fill tables of predictions."""
LIMIT, SLACK_S = 1.15, 0.15


def wall_s(tasks: int, budget_s: float) -> float:
    """Return the wall time of one search, s; its front is checked."""
    import heshare
    from heshare.scheduling.pareto import non_dominated

    drawn, cluster = heshare.task_set(tasks, seed=1), growth.cluster_of(tasks)
    start_s = perf_counter()
    front = heshare.optimise(drawn, cluster, budget_s=budget_s)
    done_s = perf_counter() - start_s
    if not non_dominated(front.objectives).all() or len(front.trade_off.scheme) != tasks:
        raise AssertionError(f"a bad front for {tasks} tasks in {budget_s} s")
    return done_s


def grid() -> list[tuple[int, float, float]]:
    """Return tasks, budget and wall time (s) of every search, after a warm-up."""
    for tasks, budget_s in WARM_UP:
        wall_s(tasks, budget_s)
    return [(tasks, budget_s, wall_s(tasks, budget_s)) for budget_s in BUDGETS_S for tasks in SIZES]


def over(budget_s: float, done_s: float) -> float:
    """Return the wall time over the budget, with the slack; the limit is 1.15."""
    return done_s / max(budget_s, (budget_s + SLACK_S) / LIMIT)


def results() -> list[Row]:
    """Return the worst wall time over its budget."""
    done = grid()
    worst = max(over(budget_s, done_s) for _, budget_s, done_s in done)
    return [single_row("budget_kept_worst", worst, n=len(done))]


if __name__ == "__main__":
    for tasks, budget_s, done_s in grid():
        print(f"{tasks:6d} tasks, budget {budget_s:5.2f} s: {done_s:7.3f} s, {over(budget_s, done_s):.3f} of {LIMIT}")
