"""HeShare+ against a rival at equal energy and at equal average JCT, by plans of its front that were run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from heshare.policies.policy import Policy, Traits
from heshare.policies.release import ReleasesPlan
from heshare.reporting.forms import ENERGY, JCT
from heshare.reporting.statistics import median_interval
from heshare.running import means
from heshare.running.draw import draw
from heshare.running.repetition import repetition
from heshare.scheduling import improved
from heshare.scheduling.effort import Effort
from heshare.scheduling.pareto import Front
from heshare.scheduling.plan import Batch
from heshare.world.cluster import Cluster
from heshare.world.task import Task

KNEE, POINT = "HeShare+", "HeShare+, other plans"


class FrontPoint(ReleasesPlan):
    """A plan at a place along HeShare+'s front; those that share `known` plan the front once.

    Args:
        known: an empty list, into which the front is put.
        along: 0 is the least energy, 1 the least average JCT; None the knee.
        effort: how hard to search.
    """

    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, known: list[Front], along: float | None, effort: Effort) -> None:
        self.name = "heshare+" if along is None else f"heshare+ at {along:.3f}"
        self._known, self._along, self._effort = known, along, effort

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """The batches of the plan."""
        if not self._known:
            found = improved.optimise(tasks, self.cluster, self.predictor, rng=self.rng, effort=self._effort)
            self._known.append(found)
        front = self._known[0]
        if self._along is None:
            return front.trade_off.queues
        order = np.argsort(front.objectives[:, 0], kind="stable")
        return front.plans[int(order[round(self._along * (len(order) - 1))])].queues


def runs(n: int, cluster: str, *, seed: int, seeds: int, points: int, effort: Effort) -> pd.DataFrame:
    """Run the knee of HeShare+'s front, and plans spread along it, on the task sets that a sweep of this seed draws.

    Args:
        n: tasks of a set.
        cluster: the GPUs, such as `4xT4,2xV100,2xA100`.
        seed: of all repetitions.
        seeds: how many repetitions.
        points: how many plans besides the knee.
        effort: how hard HeShare+ searches.

    Returns:
        One row a repetition and plan: repetition, policy, title (`KNEE` or `POINT`), then those of `Run.summary` but
        wall time and predictor calls, which the plans of a front share.
    """
    rows = []
    believed = means.predictor(means.PAPER)()  # one for all: what it was asked is of no account here
    for number in tqdm(range(seeds), desc="HeShare+"):
        known: list[Front] = []
        places = [None, *np.linspace(0, 1, points).tolist()]
        makers: list[Callable[[], Policy]] = [partial(FrontPoint, known, along, effort) for along in places]
        sequence = np.random.SeedSequence(seed, spawn_key=(number,))
        drawn: Any = partial(draw, n)
        for done in repetition(sequence, drawn, Cluster.parse(cluster), makers, lambda: believed):
            title = KNEE if done.policy == "heshare+" else POINT
            row = {"repetition": number, "policy": done.policy, "title": title, **done.summary()}
            rows.append(row)
    found = pd.DataFrame(rows)
    return found.drop(columns=["planning_s", "predictor_calls"])


def least_within(plans: pd.DataFrame, least: str, within: str, limit: float) -> float:
    """The least value of one column among plans that are within a limit in another; NaN if none is."""
    return float(plans.loc[plans[within] <= limit, least].min())


def at_equal(plus: pd.DataFrame, rival: pd.DataFrame, name: str, rng: np.random.Generator) -> pd.DataFrame:
    """What HeShare+ gains on a rival at equal energy, and at equal average JCT.

    Nothing is interpolated: at equal energy it is the fastest of the plans that were run and took no more energy than
    the rival did on the same task set; at equal JCT the one of least energy that was no slower. A seed in which no plan
    is within the rival's value counts as no gain (0 %), and is counted.

    Args:
        plus: as from `runs`.
        rival: one row a repetition.
        name: what to call the rival.
        rng: of the bootstrap.

    Returns:
        Two rows: rival, at, metric, change_pct, low_pct, high_pct, n, reached (seeds with a plan within), provenance.
    """
    theirs = rival.set_index("repetition")
    rows = []
    for at, metric, within in (("equal energy", JCT, ENERGY), ("equal average JCT", ENERGY, JCT)):
        gains = []
        for number, plans in plus.groupby("repetition"):
            other: Any = theirs.loc[number]
            gains.append(100 * (least_within(plans, metric, within, other[within]) / other[metric] - 1))
        found = median_interval(np.nan_to_num(gains, nan=0.0), rng)
        reached = int(np.isfinite(gains).sum())
        rows.append((name, at, metric, found.value, found.low, found.high, found.n, reached, "emulated"))
    columns = ["rival", "at", "metric", "change_pct", "low_pct", "high_pct", "n", "reached", "provenance"]
    return pd.DataFrame(rows, columns=columns)
