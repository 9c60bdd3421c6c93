"""mu-Serve: its control law, its clocks on a toy card computed by hand, and its order of tasks."""

import numpy as np
import pytest
from support.policy_runs import clocks, run_on_toys

from heshare.lab.systems.mu_serve.policy import MuServe, miad
from heshare.prediction.predictor import CoRuns
from heshare.testing.toy import ToyPredictor, toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

# An iteration takes 1000 / clock seconds, so that a limit of 1.5 needs 667 MHz.
CLOCKS = (500, 600, 700, 800, 900, 1000)
GPU, ONE_CLOCK = toy_gpu(clocks_mhz=CLOCKS), toy_gpu(clocks_mhz=(1000,))
SENSITIVE, INDIFFERENT = Workload("resnet18", 4), Workload("mobilenet", 4)


class IndifferentPredictor(ToyPredictor):
    """Predicts that one workload takes a second at any clock."""

    def co_run(self, sets, gpu, sm_mhz):
        predicted = super().co_run(sets, gpu, sm_mhz)
        same = np.array([residents[0].workload == INDIFFERENT for residents in sets])
        return CoRuns(np.where(same[:, None], 1.0, predicted.time_s), predicted.power_w)


def simulate(policy, tasks, gpu=GPU, predictor=None):
    tasks = [Task(0, SENSITIVE, tasks)] if isinstance(tasks, float) else tasks
    return run_on_toys(tasks, policy, (gpu,), predictor=predictor)


@pytest.mark.parametrize(
    ("at", "missed", "after"), [(5, False, 4), (0, False, 0), (0, True, 3), (1, True, 4), (2, True, 5), (5, True, 5)]
)
def test_miad(at, missed, after):
    """The clock falls by one place where limits are met and rises by half where one is missed."""
    assert miad(at, missed, CLOCKS) == after


def test_lower_clock():
    """μ-Serve lowers the clock until the limit is missed once."""
    # 600 MHz takes 1.67 s of 1.5 s: up by half to 900 MHz, down again to 700 MHz, and not back to 600 MHz.
    result = simulate(MuServe(), 20.0)
    trace = [1000, 900, 800, 700, 600, 900, 800, 700]
    assert clocks(result) == [(float(second), mhz) for second, mhz in enumerate(trace)]
    done = sum(trace[:7]) / 1000
    assert result.makespan_s == pytest.approx(7.0 + (20.0 - done) / 0.7)


def test_top_clock():
    """μ-Serve begins each task at the top clock."""
    result = simulate(MuServe(dt_s=100.0), [Task(0, SENSITIVE, 200.0), Task(1, SENSITIVE, 200.0)])
    # 100 s at 1000 MHz, 111.1 s more at 900, 800 ... ; whatever the first ended with, the second begins at the top.
    second = next(each for each in result.record.intervals if each.task == 1)
    assert (second.start_s, 1000) in clocks(result)


def test_responses():
    """With limits of responses the clock passes from task to task."""
    # An iteration a task, one each 2 s. At 600 MHz it takes 1.67 s of 1.5 s: up by half to 900 MHz.
    tasks = [Task(index, SENSITIVE, 1.0, 2.0 * index) for index in range(7)]
    result = simulate(MuServe(latency="response", dt_s=2.0), tasks)
    changes = {row.start_s: row.requested_mhz for row in reversed(list(result.timeline.itertuples()))}
    assert [changes[time_s] for time_s in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)] == [1000, 900, 800, 700, 600, 900, 800]


def test_no_responses():
    """With limits of responses waiting counts, and the clock is held without responses."""
    # Both arrive at 0; the second waits 1 s, so that its response of 2 s misses 1.5 s and the clock stays at the top.
    tasks = [Task(0, SENSITIVE, 1.0), Task(1, SENSITIVE, 1.0), Task(2, SENSITIVE, 1.0, 10.0)]
    result = simulate(MuServe(latency="response", dt_s=2.5), tasks)
    assert {mhz for _, mhz in clocks(result)} == {1000}
    alone = simulate(MuServe(latency="response", dt_s=2.5), [tasks[0], Task(1, SENSITIVE, 1.0, 10.5)])
    steps = [mhz for _, mhz in clocks(alone)]
    assert sorted(set(steps), reverse=True) == [1000, 900], "one response, one step, whatever the time until the next"


def test_shortest_first():
    """μ-Serve runs one task at a time and the shortest first, also without control, at the default clock."""
    tasks = [Task(0, SENSITIVE, 3.0), Task(1, SENSITIVE, 1.0), Task(2, SENSITIVE, 2.0)]
    shortest, fifo, free = (
        simulate(policy, tasks, ONE_CLOCK) for policy in (MuServe(), MuServe(order="fifo"), "mu-serve:no-control")
    )
    expected = [(1, 0.0, 100), (2, 1.0, 100), (0, 3.0, 100)]
    for result in (shortest, free):
        assert [(each.task, each.start_s, each.mps_pct) for each in result.record.intervals] == expected
    assert [each.task for each in fifo.record.intervals] == [0, 1, 2]
    assert free.timeline["requested_mhz"].isna().all()


@pytest.mark.parametrize(("scope", "trace"), [("gpu", [700, 700]), ("task", [500, 700])])
def test_by_prediction(scope, trace):
    """μ-Serve by prediction uses the least clock for all hosted tasks."""
    policy = MuServe(mode="oracle", scope=scope)
    assert policy.tick_s is None
    tasks = [Task(0, INDIFFERENT, 1.0), Task(1, SENSITIVE, 9.0)]
    assert [mhz for _, mhz in clocks(simulate(policy, tasks, predictor=IndifferentPredictor()))] == trace
