"""Gangs under `marginal`: idle GPUs of one type, nothing beside them, and no gang starves."""

import numpy as np
import pytest

from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.shared.errors import InputError
from heshare.testing.policy_contract import check_run
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

TRAINING = Workload("eaco_resnet50", 32, phase="training")
SMALL = Workload("mobilenet", 4)


def simulate(tasks, cluster, name="marginal", **options):
    predictor, rng = options.pop("predictor", None) or DevicePredictor(), np.random.default_rng(0)
    return run(tasks, Cluster.parse(cluster), make(name), predictor=predictor, rng=rng, **options)


def gpus_of(result, task):
    """The GPUs on which a task ran."""
    return sorted({s.gpu for s in result.record.segments if any(resident[0] == task for resident in s.residents)})


def start_s(result, task):
    return min(interval.start_s for interval in result.record.intervals if interval.task == task)


def test_a_gang_runs_on_idle_gpus_of_one_type():
    result = simulate([Task(0, TRAINING, 50.0), Task(1, TRAINING, 900.0, gpus=3)], "1xA100,4xV100,1xT4")
    assert gpus_of(result, 1) in ([1, 2, 3], [2, 3, 4])


def test_a_gang_waits_for_the_type_where_that_costs_less():
    # Two T4 are idle and the V100 almost: it waits for the V100, on which it takes a fraction of the time.
    tasks = [Task(0, TRAINING, 20.0, gpus=2), Task(1, TRAINING, 9000.0, 1.0, gpus=2)]
    result = simulate(tasks, "2xV100,2xT4")
    assert gpus_of(result, 0) == gpus_of(result, 1) == [0, 1]
    assert start_s(result, 1) > 1.0


def test_nothing_runs_beside_a_gang():
    tasks = [Task(0, TRAINING, 900.0, gpus=2), *(Task(i, SMALL, 100.0, float(i)) for i in range(1, 9))]
    result = simulate(tasks, "2xV100,1xT4")
    for segment in result.record.segments:
        assert len(segment.residents) == 1 or 0 not in [resident[0] for resident in segment.residents]


def short_stream(until_s, every_s=5.0):
    """Tasks that are always shorter than the gang and keep every GPU busy; the gang is task 0."""
    arrivals_s = np.arange(0.0, until_s, every_s)
    return [Task(i + 1, SMALL, 4000.0, float(arrival_s)) for i, arrival_s in enumerate(arrivals_s)]


def test_no_stream_of_shorter_tasks_starves_a_gang():
    gang = Task(0, TRAINING, 3000.0, 20.0, gpus=3)
    stream = short_stream(4000.0)
    result = simulate([gang, *stream], "3xT4")
    alone_s = simulate([Task(0, TRAINING, 3000.0, gpus=3)], "3xT4").jct_s[0]
    longest_s = max(interval.end_s - interval.start_s for interval in result.record.intervals if interval.task)
    # It ages after its time alone, then holds the GPUs until what runs there has ended.
    assert start_s(result, 0) <= 20.0 + alone_s + longest_s
    assert start_s(result, 0) < stream[-1].arrival_s


def test_gangs_that_have_aged_start_in_order_of_arrival():
    gangs = [Task(i, TRAINING, 1500.0, 20.0 + i, gpus=3) for i in range(4)]
    stream = [Task(3 + task.id, SMALL, task.iterations, task.arrival_s) for task in short_stream(4000.0)]
    result = simulate([*gangs, *stream], "4xT4")
    starts_s = [start_s(result, i) for i in range(4)]
    assert starts_s == sorted(starts_s)
    assert starts_s[-1] < stream[-1].arrival_s


@pytest.mark.parametrize("cluster", ["24xV100", "12xV100,12xA100"])
def test_marginal_runs_the_jobs_of_venus(cluster):
    tasks, _ = venus_tasks(80, rng=np.random.default_rng(1), gpus=12, load=0.9, inference=0.3)
    result = simulate(tasks, cluster)
    check_run(result)
    widths = {task.id: task.gpus for task in tasks}
    assert all(len(gpus_of(result, i)) == width for i, width in widths.items())


def test_a_gang_that_no_type_can_hold_is_refused():
    with pytest.raises(InputError, match="2 V100, 2 T4"):
        simulate([Task(0, TRAINING, 9.0, gpus=3)], "2xV100,2xT4")


def test_the_gpus_of_a_gang_that_ends_before_the_next_event_are_known_to_be_free():
    # The second event is the end of the gang; the tasks after it fill both GPUs.
    big = [Task(i, Workload("bert_large", 64), 500.0, 900.0 + i) for i in range(1, 12)]
    check_run(simulate([Task(0, TRAINING, 5.0, gpus=2), *big], "2xV100"))
