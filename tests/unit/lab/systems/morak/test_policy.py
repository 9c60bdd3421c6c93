"""Morak: its control law, its clocks on a toy card computed by hand, and its shares."""

from dataclasses import replace

import pytest
from support.policy_runs import clocks, run_on_toys

from heshare.lab.systems.morak.policy import Morak, clock_steps, feedback_move
from heshare.testing.toy import toy_gpu
from heshare.world.catalogue import memory_mib
from heshare.world.task import Task
from heshare.world.workload import Workload

# Power is 10 W + clock / 10 and an iteration takes 1000 / clock seconds for each task on the card; the TDP is 110 W.
GPU = toy_gpu(clocks_mhz=(500, 600, 700, 800, 900, 1000))
ONE_CLOCK = toy_gpu(clocks_mhz=(1000,))
LIGHT, HEAVY = Workload("resnet18", 4), Workload("bert_large", 32)


def simulate(policy, tasks, gpu=GPU):
    tasks = [Task(0, LIGHT, tasks)] if isinstance(tasks, float) else tasks
    return run_on_toys(tasks, policy, (gpu,))


def list_intervals(result):
    return [(each.task, each.start_s, each.end_s, each.mps_pct) for each in result.record.intervals]


def test_control_law():
    """The move depends on power and latency, the steps of the clock on the distance of power to the cap."""
    moves = {
        (95.0, 0.9): "larger",
        (95.0, 0.91): "faster",
        (95.1, 5.0): "hold",
        (102.0, 0.1): "hold",
        (102.1, 0.91): "smaller",
        (102.1, 0.9): "slower",
    }
    assert {at: feedback_move(at[0], 100.0, at[1]) for at in moves} == moves

    steps = {79: 10, 85: 5, 94: 2, 95: 1, 100: 1, 104: 1, 106: 2}
    assert {power_w: clock_steps(power_w, 100.0) for power_w in steps} == steps


@pytest.mark.parametrize(
    ("options", "iterations", "trace"),
    [
        # Cap 88 W. 800 MHz draws 90 W, over 1.02 x 88; 700 draws 80 W, below 0.95 x 88, but 800 has broken the cap.
        ({"cap": 0.8}, 10.0, [800, 700]),
        # Cap 110 W. 90 W is 18 % off: five steps, of which the grid has two. 110 W is in the band.
        ({"cap": 1.0}, 10.0, [800, 1000]),
        # Cap 99 W. 90 W is 9 % off: two steps, to 110 W. Over: 890 MHz would keep 99 W, so 800. Two steps again, but
        # not to where it broke the cap: 900 MHz, 100 W, within 1.02 x 99 and over 0.95 x 99.
        ({"cap": 0.9}, 30.0, [800, 1000, 800, 900]),
        # Cap 93.5 W, band from 88.8 W: 800 MHz and 1.25 s an iteration are held under a limit of 1.5 s, not of 1.2 s.
        ({"cap": 0.85}, 10.0, [800]),
        ({"cap": 0.85, "limit": 1.2}, 1.6, [800, 900]),
    ],
)
def test_clocks(options, iterations, trace):
    """Morak changes the clock once a period until power is in the band below the cap, and holds it there."""
    result = simulate(Morak(k=1, **options), iterations)
    assert clocks(result) == [(float(second), mhz) for second, mhz in enumerate(trace)]
    done = sum(trace[:-1]) / 1000
    assert result.makespan_s == pytest.approx(len(trace) - 1 + (iterations - done) / (trace[-1] / 1000))


def test_changed_residents():
    """Morak raises the clock again after a change of the co-runners."""
    # As above for the first task. For the second, from t = 14.14, 800 MHz is open again: 900 is tried (100 W, over),
    # 700 keeps the cap, 800 is tried (90 W, over), and 700 stays.
    result = simulate(Morak(k=1, cap=0.8), [Task(0, LIGHT, 10.0), Task(1, LIGHT, 10.0)])
    end_s = pytest.approx(1.0 + 9.2 / 0.7)
    assert clocks(result)[:3] == [(0.0, 800), (1.0, 700), (end_s, 700)]
    assert clocks(result)[3:] == [(15.0, 900), (16.0, 700), (17.0, 800), (18.0, 700)]


@pytest.mark.parametrize(("k", "pct"), [(1, 100), (3, 33), (4, 25)])
def test_equal_shares(k, pct):
    """Morak gives equal shares."""
    tasks = [Task(index, LIGHT, 1.0) for index in range(6)]
    result = simulate(Morak(k=k, cap=2.0), tasks, ONE_CLOCK)
    assert {each.mps_pct for each in result.record.intervals} == {pct}
    assert max(result.timeline["tasks"]) == k


def test_memory():
    """Morak starts no task before one that waits for memory."""
    gpu = toy_gpu(memory_mib=1.5 * memory_mib(HEAVY), clocks_mhz=(1000,))
    result = simulate(Morak(k=2, cap=2.0), [Task(0, HEAVY, 2.0), Task(1, HEAVY, 2.0), Task(2, LIGHT, 1.0)], gpu)
    assert [(task, start_s) for task, start_s, *_ in sorted(list_intervals(result))] == [
        (0, 0.0),
        (1, 2.0),
        (2, 2.0),
    ]


@pytest.mark.parametrize(("sizes", "expected"), [(8, [4, 8]), (20, [4, 8, 16]), (32, [4, 8, 16, 32])])
def test_batch_size(sizes, expected):
    """Morak grows the inference batch size of a task that allows it once a period, up to the largest that it may."""
    # 110 W under a cap of 220 W, 1 s of a limit of 1.5 s: time to spare. An iteration of the toy card takes as long
    # whatever its size: 4,000 of size 4 are 2,000 of size 8, 1,000 of size 16.
    result = simulate(Morak(k=1, cap=2.0, elastic=True, sizes=sizes), 4000.0, ONE_CLOCK)
    found = [(each.start_s, each.batch_size) for each in result.record.intervals]
    assert found == [(float(second), size) for second, size in enumerate(expected)]
    assert sum(each.iterations for each in result.record.intervals) == pytest.approx(4000.0)


def test_missed_batch_size():
    """Morak does not return to a batch size that missed a limit."""
    # Two tasks take turns, 2 s an iteration, over the limit of 1.5 s at the only clock: the batch shrinks to 1.
    result = simulate(Morak(k=2, cap=2.0, elastic=True), [Task(0, LIGHT, 5.0), Task(1, LIGHT, 5.0)], ONE_CLOCK)
    sizes = [each.batch_size for each in result.record.intervals if each.task == 0]
    assert sizes == [4, 2, 1]


def test_smallest_batch_size():
    """Morak begins at the smallest batch size of its tasks."""
    # Sizes 4 and 16 miss the limit in turns. All residents get one size: the next below the smallest, 2.
    large = replace(LIGHT, batch_size=16)
    result = simulate(Morak(k=2, cap=2.0, elastic=True), [Task(0, LIGHT, 5.0), Task(1, large, 5.0)], ONE_CLOCK)
    sizes = {task: [each.batch_size for each in result.record.intervals if each.task == task] for task in (0, 1)}
    assert (sizes[0][:2], sizes[1][:2]) == ([4, 2], [16, 2])
