"""What holds for every plan of the improved scheduler, whatever the task set and the cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import clusters, task_sets
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.assembly import Archive
from heshare.scheduling.costs import BatchCosts, Freedom
from heshare.scheduling.effort import Effort
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.improved import optimise
from heshare.scheduling.objectives import instance, objectives
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.plan import Plan
from heshare.scheduling.planner import configure
from heshare.scheduling.settings import Settings
from heshare.scheduling.sharing import NOBODY, Batches, Sharing
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TINY = Effort(rounds=2, weights=3, coarse=3, kicks=1, freedom=Freedom(clocks=3, variants=2, mps_pcts=(50, 100)))
SEEDS = st.integers(0, 2**32 - 1)


def toy() -> Toy:
    return Toy(speed={name: 1.0 + index for index, name in enumerate(gpus())}, demand=DEMANDS)


def executed(plan: Plan) -> tuple[float, float]:
    """Energy and average JCT of a plan's batches, run by `Sharing` one after the other."""
    world = instance(plan.tasks, plan.cluster, toy())
    sharing, index = Sharing(world, toy()), {task.id: at for at, task in enumerate(plan.tasks)}
    energy_j, jct_s = 0.0, 0.0
    for gpu, queue in enumerate(plan.queues):
        start_s = 0.0
        for batch in queue:
            tasks = np.array([[index[task] for task in batch.tasks]])
            run = sharing.execute(
                Batches(world.kind_of[[gpu]], tasks, np.array([batch.mps_pct]), np.array([batch.sm_mhz])),
                piecewise=True,
            )
            energy_j += run.energy_j[0]
            jct_s += (start_s + run.time_s[tasks != NOBODY]).sum()
            start_s += run.end_s[0]
    return energy_j, jct_s / len(plan.tasks)


@settings(max_examples=10, deadline=None)
@given(task_sets(), clusters(max_gpus=4), SEEDS)
def test_every_plan_is_valid_and_costs_what_it_says(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    front = optimise(tasks, cluster, toy(), rng=np.random.default_rng(seed), effort=TINY)
    assert non_dominated(front.objectives).all()
    for plan in {id(one): one for one in (front.en_opt, front.trade_off, front.jct_opt)}.values():
        assert sorted(plan.scheme) == sorted(task.id for task in tasks)  # the plan itself checks memory and clocks
        np.testing.assert_allclose((plan.energy_j, plan.jct_s), executed(plan), rtol=1e-9)


@settings(max_examples=8, deadline=None)
@given(task_sets(max_size=5), clusters(max_gpus=3), SEEDS)
def test_never_worse_than_the_second_stage_on_the_same_assignment(
    tasks: tuple[Task, ...], cluster: Cluster, seed: int
) -> None:
    """With all clocks and shares that the second stage may use, and batches as large as it may make them."""
    rng = np.random.default_rng(seed)
    world = instance(tasks, cluster, toy())
    allowed = np.array([rng.choice(np.flatnonzero(row)) for row in world.fits])
    schemes = Schemes(allowed[None], objectives(allowed[None], world), 1)
    _, theirs = configure(schemes, world, toy(), Settings(clocks=3, mps_pcts=(100,)))
    effort = Effort(labels=1000, merge=1000, freedom=Freedom(width=max(1, len(tasks)), variants=1, clocks=3))
    archive = Archive(BatchCosts(world, toy(), effort.freedom), effort)
    archive.add([allowed])
    ours = archive.objectives()
    for point in theirs:
        assert (ours <= point * (1 + 1e-9)).all(axis=1).any()


SCRIPT = """
import sys
import numpy as np
from toy_predictor import DEMANDS, Toy, mixed_tasks
from heshare.scheduling.costs import Freedom
from heshare.scheduling.effort import Effort
from heshare.scheduling.improved import optimise
from heshare.world.cluster import Cluster

effort = Effort(rounds=2, weights=3, coarse=3, kicks=1, freedom=Freedom(clocks=3, variants=2, mps_pcts=(50, 100)))
front = optimise(
    mixed_tasks(7), Cluster.parse("1xT4,1xA100"), Toy(demand=DEMANDS), rng=np.random.default_rng(5), effort=effort
)
sys.stdout.write(front.objectives.tobytes().hex() + repr([plan.queues for plan in front.plans]))
"""


@pytest.mark.parametrize("compiled", [True, False])
def test_the_same_seed_gives_the_same_bytes_in_every_process_compiled_or_not(compiled: bool) -> None:
    front = optimise(
        mixed_tasks(7), Cluster.parse("1xT4,1xA100"), Toy(demand=DEMANDS), rng=np.random.default_rng(5), effort=TINY
    )
    here = Path(__file__)
    paths = os.pathsep.join((str(here.parents[2]), str(here.parent)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": paths, "NUMBA_DISABLE_JIT": "0" if compiled else "1", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == front.objectives.tobytes().hex() + repr([plan.queues for plan in front.plans])
