"""Policies side by side: paired, seeded, and the same whatever the number of processes."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from heshare.errors import InputError
from heshare.policies.heshare import HeShare, Planner
from heshare.running.compare import WALL_TIME, compare
from heshare.scheduling.settings import Settings
from heshare.testing.toy import ToyPredictor, toy_devices
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = Cluster.parse("2xT4,A100")
TASKS = tuple(Task(index, Workload("resnet18", 4), 10.0 * (1 + index)) for index in range(6))


def draw(*, rng):
    return [Task(index, Workload("resnet18", 4), float(rng.integers(1, 100))) for index in range(6)]


def side_by_side(tasks=draw, policies=("random", "sched-only", "heshare:trade-off"), **options):
    options = {"seed": 3, "seeds": 2, "devices": toy_devices, **options}
    return compare(tasks, CLUSTER, policies, predictor=ToyPredictor, **options)


def without_wall_time(frame):
    return frame.drop(columns=list(WALL_TIME))


def test_one_row_for_each_repetition_and_policy():
    frame = side_by_side()
    assert frame["repetition"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["title"].tolist() == ["Random", "Sched-only", "Trade-off"] * 2
    assert frame.columns[-1] == "planning_s"
    np.testing.assert_allclose(frame["avg_jct_s"], frame["avg_waiting_s"] + frame["avg_execution_s"])
    assert (frame["energy_active_j"] <= frame["energy_cluster_j"] * (1 + 1e-12)).all()
    assert (frame["provenance"] == "emulated").all()


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    first, again, other = side_by_side(seeds=1), side_by_side(seeds=1), side_by_side(seeds=1, seed=4)
    pd.testing.assert_frame_equal(without_wall_time(first), without_wall_time(again), check_exact=True)
    assert not np.array_equal(first["avg_jct_s"], other["avg_jct_s"])


def test_a_policy_gets_the_same_whoever_runs_beside_it():
    alone = side_by_side(policies=("heshare:trade-off",))
    beside = side_by_side(policies=("heshare:en-opt", "random", "heshare:trade-off"))
    beside = beside[beside["policy"] == "heshare:trade-off"].reset_index(drop=True)
    pd.testing.assert_frame_equal(without_wall_time(alone), without_wall_time(beside), check_exact=True)


def test_the_result_does_not_depend_on_the_number_of_processes():
    options = {"tasks": TASKS, "policies": ("random", "sched-only")}
    one, two = side_by_side(n_jobs=1, **options), side_by_side(n_jobs=2, **options)
    pd.testing.assert_frame_equal(without_wall_time(one), without_wall_time(two), check_exact=True)


def test_policies_may_be_functions_with_their_own_settings():
    quick = partial(HeShare, "jct-opt", planner=Planner(Settings(population=4, generations=3)))
    assert side_by_side(policies=(quick,), seeds=1)["policy"].tolist() == ["heshare:jct-opt"]


@pytest.mark.parametrize(("options", "message"), [({"seeds": 0}, "0 repetitions"), ({"policies": ()}, "0 policies")])
def test_nothing_to_compare_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        side_by_side(**options)


def test_an_unknown_policy_is_refused_before_anything_runs():
    with pytest.raises(InputError, match="sched-only"):
        side_by_side(policies=("sched-onyl",))
