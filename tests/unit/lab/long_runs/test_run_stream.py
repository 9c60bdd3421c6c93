"""Runs of a stream of tasks: the results of the list, in memory for the tasks in the cluster, from any checkpoint."""

import csv
import gc
import math

import numpy as np
import pytest

from heshare.devices.task_sizes import draw
from heshare.lab.long_runs import run_stream as run_stream_module
from heshare.lab.long_runs.exact_sum import ExactSum
from heshare.lab.long_runs.run_long import Checkpoints, run_long
from heshare.lab.long_runs.run_stream import run_stream
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.registry import make
from heshare.running.state import TaskRun
from heshare.shared.errors import InputError
from heshare.testing.toy import ScriptedPolicy, ToyPredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

SCENARIOS = {
    "fifo": ("24xV100", lambda: venus_tasks(150, rng=np.random.default_rng(1), gpus=24, load=0.9)[0]),
    "random": ("2xT4,1xV100", lambda: draw(25, rng=np.random.default_rng(2), arrivals="poisson", interval_s=20.0)),
    "morak": ("T4,V100", lambda: draw(12, rng=np.random.default_rng(1))),
    "power-flow": ("8xV100", lambda: venus_tasks(40, rng=np.random.default_rng(3), gpus=8, load=1.1)[0]),
    "eaco": ("8xV100", lambda: venus_tasks(60, rng=np.random.default_rng(3), gpus=8, load=1.1)[0]),
}


def options():
    return {"predictor": ToyPredictor(), "rng": np.random.default_rng(5)}


def short_tasks(n, rng_seed=0):
    rng = np.random.default_rng(rng_seed)
    for index in range(n):
        yield Task(index, Workload("mobilenet", 4), float(rng.uniform(100, 2000)), 2.0 * (index // 2))


def fifo_stream(n, path, folder=None, tasks=None):
    tasks = short_tasks(n) if tasks is None else tasks
    return run_stream(
        tasks, Cluster.parse("6xV100"), make("fifo"), checkpoint=path, folder=folder, timeline=bool(folder), **options()
    )


def listed_outcomes(folder):
    with (folder / "intervals.csv").open() as file:
        return {row["outcome"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_stream_has_the_results_of_the_list_to_the_last_bit(name, tmp_path):
    cluster, tasks = Cluster.parse(SCENARIOS[name][0]), SCENARIOS[name][1]()
    listed = run_long(tasks, cluster, make(name), record=tmp_path / "list", **options())
    streamed = run_stream(iter(tasks), cluster, make(name), folder=tmp_path / "stream", timeline=True, **options())
    for file in ("segments.csv", "intervals.csv"):
        assert (tmp_path / "list" / file).read_bytes() == (tmp_path / "stream" / file).read_bytes()
    with (tmp_path / "stream" / "tasks.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["task"]))
    frame = listed.to_frame().drop(columns="provenance")
    assert list(rows[0]) == list(frame.columns)
    assert [list(row.values()) for row in rows] == [list(map(str, row)) for row in frame.itertuples(index=False)]
    outcomes = listed_outcomes(tmp_path / "list")
    assert outcomes >= ({"completed", "paused", "migrated"} if name == "power-flow" else {"completed"})
    for column in ("waiting_s", "execution_s", "jct_s"):
        assert getattr(streamed, column) == math.fsum(getattr(listed, column)), column
    same = {key: value for key, value in listed.summary().items() if not key.endswith("jct_s") and key != "planning_s"}
    found = streamed.summary()
    for key in ("avg_waiting_s", "avg_execution_s"):
        assert found[key] == pytest.approx(same.pop(key), rel=1e-12)
    assert {key: found[key] for key in same} == same
    assert streamed.run.device_energy_j.tobytes() == listed.device_energy_j.tobytes()


def test_only_tasks_in_the_cluster_are_kept():
    def states():
        return sum(isinstance(item, TaskRun) for item in gc.get_objects())

    gc.collect()
    most = before = states()

    def counted(n):
        nonlocal most
        for task in short_tasks(n):
            if task.id % 250 == 0:
                most = max(most, states())
            yield task

    result = run_stream(counted(2000), Cluster.parse("6xV100"), make("fifo"), **options())
    assert result.count == 2000
    # Those that run or wait are fewer than 50 here; up to as many again and 100 are forgotten later.
    assert most - before < 300


class Killed(BaseException):
    pass


class KillingCheckpoints(Checkpoints):
    """Saves after every tenth event, and kills the run at one of them."""

    left = 0

    def after_event(self, state):
        self._every = 10
        super().after_event(state)
        type(self).left -= 1
        if type(self).left == 0:
            raise Killed


def interrupted(path, folder=None, at=(150, 41, 100)):
    for events in at:
        KillingCheckpoints.left = events
        with pytest.raises(Killed):
            fifo_stream(200, path, folder)


def test_a_stream_continues_from_a_checkpoint_to_the_same_bytes(tmp_path, monkeypatch):
    whole = fifo_stream(200, None, tmp_path / "whole")
    monkeypatch.setattr(run_stream_module, "Checkpoints", KillingCheckpoints)
    interrupted(tmp_path / "c", tmp_path / "part")
    began = []
    KillingCheckpoints.left = 0
    monkeypatch.setattr(run_stream_module, "begin", lambda *given, **named: began.append(given))
    part = fifo_stream(200, tmp_path / "c", tmp_path / "part")
    assert not began
    assert (part, part.run) == (whole, whole.run)
    for file in ("tasks.csv", "segments.csv", "intervals.csv"):
        assert (tmp_path / "part" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize("tasks", [lambda: short_tasks(200, rng_seed=1), lambda: short_tasks(20)])
def test_a_checkpoint_refuses_another_stream(tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(run_stream_module, "Checkpoints", KillingCheckpoints)
    interrupted(tmp_path / "c", at=(100,))
    with pytest.raises(InputError, match=r"other tasks among the first .* the same tasks each time"):
        fifo_stream(200, tmp_path / "c", tasks=tasks())


def task(index, arrival_s, **others):
    return Task(index, Workload("mobilenet", 4), 100.0, arrival_s, **others)


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        ([], "no task"),
        ([task(0, 0.0), task(2, 1.0)], "after 1 tasks"),
        ([task(0, 5.0), task(1, 1.0)], "after 1 tasks, the last at 5 s"),
        ([task(0, 0.0), task(1, 1.0, gpus=7)], "task 1, mobilenet:4, for 7 GPUs"),
        ([task(0, 0.0), "task"], "'task' after 1 tasks"),
    ],
)
def test_run_stream_refuses_bad_tasks(tasks, found):
    with pytest.raises(InputError, match=found):
        fifo_stream(0, None, tasks=tasks)


def test_run_stream_refuses_a_timeline_without_a_folder():
    with pytest.raises(InputError, match="timeline without a folder"):
        run_stream(short_tasks(2), Cluster.parse("V100"), make("fifo"), timeline=True, **options())


def test_a_policy_sees_an_unknown_number_to_come_until_the_last_arrival():
    policy, seen = make("fifo"), []

    def decide(event, view):
        seen.append(view.pending)
        return policy.decide(event, view)

    scripted = ScriptedPolicy(decide)
    policy.reset(Cluster.parse("6xV100"), ToyPredictor(), np.random.default_rng(0))
    run_stream(short_tasks(6), Cluster.parse("6xV100"), scripted, **options())
    assert seen[:1] == [math.inf]
    assert set(seen) == {math.inf, 2, 0}


def test_fikit_refuses_a_stream_without_priorities():
    with pytest.raises(InputError, match="stream of unknown length"):
        run_stream(short_tasks(6), Cluster.parse("6xV100"), make("fikit"), **options())


def test_exact_sum_is_that_of_fsum_in_any_order():
    rng = np.random.default_rng(0)
    values = np.exp(rng.uniform(-40, 40, 5000)) * rng.choice([-1, 1], 5000)
    for order in (values, values[::-1], rng.permutation(values)):
        total = ExactSum()
        for value in order.tolist():
            total.add(value)
        assert total.value == math.fsum(values)
        assert len(total._values) < 1100
