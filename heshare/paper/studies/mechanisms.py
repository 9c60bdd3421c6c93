"""Trade-off without single mechanisms: objectives as planned, the order of tasks, and another reading of En-opt."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
from tqdm import tqdm

from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.paper.harness import ENERGY, JCT, REPETITION, TITLE, Comparable, change
from heshare.policies import registry
from heshare.policies.heshare import FrontPolicy, HeShare
from heshare.policies.planning_cache import PlanningCache
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.scheduling.configuration import configure
from heshare.scheduling.front import Front
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.plan import Batch
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import IntArray
from heshare.world.task import Task

WHOLE = "Trade-off"
"""The title of the plan with all mechanisms."""
_METRICS = {"energy": ENERGY, "jct": JCT}


class _AsNumbered(Instance):
    """An instance whose GPUs run their tasks in the order of their numbers, which is random in a drawn set."""

    @cached_property
    def order_of_kind(self) -> IntArray:
        return np.tile(np.arange(self.n), (len(self.kinds), 1))

    @cached_property
    def order(self) -> IntArray:
        return np.tile(np.arange(self.n), (self.k, 1))


class WithoutOrder(HeShare):
    """Trade-off in which each GPU runs its tasks in the order of their numbers, not in SPT order."""

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        super().__init__("trade-off", settings)
        self.planner = ("heshare as numbered", settings)

    def plan_front(self, tasks: Sequence[Task], predictor: Predictor) -> Front:
        """Return the front of both stages without SPT order in either; its search is not shared with other policies."""
        made = make_instance(tasks, self.cluster, predictor)
        instance = _AsNumbered(**{each.name: getattr(made, each.name) for each in fields(Instance)})
        schemes = search(instance, self.settings, self.rng)
        return Front(*configure(schemes, instance, predictor, self.settings))


class EnOptWithin(HeShare):
    """En-opt as the fastest plan among those of nearly the least energy.

    Args:
        share: largest excess of a plan's energy over the least of the front, as a part of it.
        settings: of both stages.
    """

    def __init__(self, share: float = 0.02, settings: Settings = DEFAULTS) -> None:
        super().__init__("en-opt", settings)
        self.share = share

    def plan(self, tasks: Sequence[Task]) -> Sequence[Sequence[Batch]]:
        """Return the batches of the chosen plan."""
        front = self.front(tasks)
        energy_j, jct_s = front.objectives.T
        near = np.flatnonzero(energy_j <= (1 + self.share) * energy_j.min())
        return front.plans[int(near[np.argmin(jct_s[near])])].queues


def stated(
    settings: Iterable[Comparable], systems: Mapping[str, str | Policy], *, seeds: int, seed: int = 0
) -> pd.DataFrame:
    """Return the planned objectives of HeShare's policies, for the task sets and random states of `harness.run`.

    Args:
        settings: the settings.
        systems: policies that choose a plan of a front, or their descriptions, by title.
        seeds: number of repetitions.
        seed: the seed of all repetitions.

    Returns:
        One row a setting, repetition and system: the setting's columns, repetition, title, stated_j (energy) and
        stated_s (average JCT).
    """
    rows = []
    for setting, number in tqdm(list(product(settings, range(seeds))), desc="plans", leave=False):
        streams = Repetition(number, seed)
        tasks = setting.draw(rng=streams.rng(TASKS))
        predictor = setting.make_predictor()
        cache = PlanningCache()

        for title, given in systems.items():
            policy = registry.make(given) if isinstance(given, str) else given
            assert isinstance(policy, FrontPolicy)
            policy.share_planning(cache)
            policy.reset(setting.gpus, predictor, streams.rng(POLICY))
            plan = policy.front(tasks).choose(policy.choice)
            about = {**setting.labels(), REPETITION: number, TITLE: title}
            rows.append({**about, "stated_j": plan.energy_j, "stated_s": plan.jct_s})
    return pd.DataFrame(rows)


def worth(delivered: pd.DataFrame, planned: pd.DataFrame, removed: Iterable[str]) -> pd.DataFrame:
    """Return the increase of Trade-off's objectives without each mechanism, at each inference batch size.

    Args:
        delivered: runs, as from `harness.run`, of `Trade-off` and of the plans without a mechanism.
        planned: the planned objectives of the same plans, as from `stated`.
        removed: the mechanisms, which are the titles of the plans without them.

    Returns:
        One row each: batch_sizes, mechanism, metric (`energy` or `jct`), basis (`delivered` or `promised`), value (%),
        low, high, n, provenance.
    """
    bases = {"delivered": delivered, "promised": _as_runs(planned)}
    rows = []
    for mechanism, size in product(removed, delivered["batch_sizes"].unique()):
        for (basis, frame), (metric, column) in product(bases.items(), _METRICS.items()):
            here = frame[frame["batch_sizes"] == size]
            about = {"batch_sizes": size, "mechanism": mechanism, "metric": metric, "basis": basis}
            rows.append({**about, **change(here, mechanism, WHOLE, column).columns("value")})
    return pd.DataFrame(rows).assign(provenance="emulated")


def excess(delivered: pd.DataFrame, planned: pd.DataFrame) -> pd.DataFrame:
    """Return the excess of Trade-off's runs over the planned objectives, at each inference batch size.

    Arguments are as of `worth`.

    Returns:
        One row each: batch_sizes, metric, value (%), low, high, n, provenance.
    """
    run = delivered[delivered[TITLE] == WHOLE]
    plan = _as_runs(planned[planned[TITLE] == WHOLE])
    both = pd.concat([run.assign(**{TITLE: "run"}), plan.assign(**{TITLE: "plan"})])
    rows = []
    for size, (metric, column) in product(delivered["batch_sizes"].unique(), _METRICS.items()):
        found = change(both[both["batch_sizes"] == size], "run", "plan", column)
        rows.append({"batch_sizes": size, "metric": metric, **found.columns("value")})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _as_runs(planned: pd.DataFrame) -> pd.DataFrame:
    return planned.rename(columns={"stated_j": ENERGY, "stated_s": JCT})
