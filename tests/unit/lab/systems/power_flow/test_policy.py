"""PowerFlow's decisions, step by step, on toy cards whose energies can be worked out by hand."""

import numpy as np
import pytest
from support.policy_runs import run_on_toys

from heshare.lab.systems.power_flow.policy import PowerFlow
from heshare.lab.systems.power_flow.step_models import StepModels
from heshare.lab.systems.shared.training import scaling_efficiency, workloads
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import CoRuns
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.catalogue import gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

# At 500 MHz an iteration takes 2 s at 10 + 12.5 W (45 J), at 1000 MHz 1 s at 110 W (110 J).
GPU, WORK = toy_gpu(), Workload("resnet18", 4)


class CubicDevice(ToyDevice):
    """Power above idle grows with the cube of the clock."""

    def power_w(self, mhz, residents):
        return self.gpu.idle_w + (100.0 * (mhz / self.gpu.max_mhz) ** 3 if residents else 0.0)


class CubicPredictor(ToyPredictor):
    """Predicts what a `CubicDevice` does."""

    def co_run(self, sets, gpu, sm_mhz):
        predicted = super().co_run(sets, gpu, sm_mhz)
        return CoRuns(predicted.time_s, np.array([10.0 + 100.0 * (mhz / gpu.max_mhz) ** 3 for mhz in sm_mhz]))


def simulate(tasks, gpus, policy):
    devices = [CubicDevice(GPU) for _ in range(gpus)]
    return run_on_toys(tasks, policy, (GPU,) * gpus, predictor=CubicPredictor(), devices=devices)


def list_intervals(result):
    """(task, GPU, start, end) of every interval, in order of time."""
    rows = sorted(result.record.intervals, key=lambda each: (each.start_s, each.gpu))
    return [(each.task, each.gpu, round(each.start_s, 6), round(each.end_s, 6)) for each in rows]


def clocks(result):
    return [(row.label, row.start_s, row.requested_mhz) for row in result.timeline.itertuples() if row.tasks]


@pytest.mark.parametrize(
    ("budget", "mhz", "end_s", "energy_j"),
    [
        # Four GPUs cost no more energy than one, so they come first; then the clock, if 11 kJ are within the budget.
        (0.4, 500, 50.0, 4500.0),
        (0.99, 500, 50.0, 4500.0),
        (1.0, 1000, 25.0, 11_000.0),
    ],
)
def test_elastic_job(budget, mhz, end_s, energy_j):
    """PowerFlow gives an elastic job the GPUs and clock of its budget."""
    result = simulate([Task(0, WORK, 100.0, widths=(2, 4))], 4, PowerFlow(budget=budget))
    assert list_intervals(result) == [(0, each, 0.0, end_s) for each in range(4)]
    assert {each.requested_mhz for each in result.record.segments} == {mhz}
    assert result.energy_active_j == pytest.approx(energy_j)


def test_shared_budget():
    """PowerFlow shares the budget among all admitted jobs."""
    # 50 and 100 iterations on a GPU each: 16.5 kJ at the top clock, 6.75 kJ at the low one; raising a clock gains the
    # same per energy for both and costs 3.25 and 6.5 kJ. At 0.7 (11.55 kJ) the first job's fits (10 kJ), at 0.9 (14.85)
    # that alone does too; once it is done, the second one plans with its own budget and stays low.
    tasks = [Task(0, WORK, 50.0), Task(1, WORK, 100.0)]
    assert list_intervals(simulate(tasks, 2, PowerFlow(budget=0.3))) == [(0, 0, 0.0, 100.0), (1, 1, 0.0, 200.0)]
    for budget in (0.7, 0.9):
        result = simulate(tasks, 2, PowerFlow(budget=budget))
        assert list_intervals(result) == [(0, 0, 0.0, 50.0), (1, 1, 0.0, 200.0)]
        assert clocks(result) == [("Toy-0", 0.0, 1000), ("Toy-1", 0.0, 500)]


def test_new_job():
    """PowerFlow shrinks a job for a new one and grows it again."""
    # Job 0 has 4 GPUs at 500 MHz, 2 iterations a second: 20 done at 10 s. Job 1, shorter (50 s against 80 s), needs 2:
    # it comes first into the blocks, job 0 has the other 2 until job 1 is done, 100 s later and 100 iterations on.
    tasks = [Task(0, WORK, 200.0, widths=(2, 4)), Task(1, WORK, 50.0, 10.0, gpus=2)]
    result = simulate(tasks, 4, PowerFlow(budget=0.5))
    shared = [(1, 0, 10.0, 110.0), (1, 1, 10.0, 110.0), (0, 2, 10.0, 110.0), (0, 3, 10.0, 110.0)]
    assert list_intervals(result) == [*[(0, each, 0.0, 10.0) for each in range(4)], *shared,
                             *[(0, each, 110.0, 150.0) for each in range(4)]]  # fmt: skip
    assert result.record.intervals[0].outcome == "migrated"


def test_shortest_remaining_time():
    """PowerFlow runs the shortest remaining time and pauses others."""
    tasks = [Task(0, WORK, 100.0), Task(1, WORK, 30.0, 10.0), Task(2, WORK, 95.0, 20.0)]
    result = simulate(tasks, 1, PowerFlow(clocks=1, elastic=False))
    # At 40 s job 0 has 90 left, less than the 95 of job 2.
    assert list_intervals(result) == [
        (0, 0, 0.0, 10.0),
        (1, 0, 10.0, 40.0),
        (0, 0, 40.0, 130.0),
        (2, 0, 130.0, 225.0),
    ]
    assert {each.requested_mhz for each in result.record.segments} == {None}


def test_moved_jobs():
    """PowerFlow moves only the jobs that block a gang."""
    # Four single jobs of 10, 50, 10 and 50 s; at 20 s GPUs 0 and 2 are free, and a gang of two arrives.
    singles = [Task(number, WORK, length) for number, length in enumerate((10.0, 50.0, 10.0, 50.0))]
    result = simulate([*singles, Task(4, WORK, 100.0, 20.0, gpus=2)], 4, PowerFlow(clocks=1, elastic=False))
    # Shortest first: jobs 0 and 2 have GPUs 0 and 1, jobs 1 and 3 have 2 and 3, so that nothing has to move.
    assert [stay for stay in list_intervals(result) if stay[0] == 4] == [(4, 0, 20.0, 120.0), (4, 1, 20.0, 120.0)]
    odd = [Task(number, WORK, 50.0 - 40.0 * (number % 2), 0.1 * number) for number in range(4)]
    result = simulate([*odd, Task(4, WORK, 100.0, 20.0, gpus=2)], 4, PowerFlow(clocks=1, elastic=False))
    # Here 0 and 2 still run, on GPUs 0 and 2: job 0 moves beside job 2, and the gang has GPUs 0 and 1.
    assert [stay for stay in list_intervals(result) if stay[2] == 20.0] == [
        (4, 0, 20.0, 120.0), (4, 1, 20.0, 120.0), (0, 3, 20.0, 50.0),
    ]  # fmt: skip


class SlowGpuPredictor:
    """Predicts that GPUs named Slow take half as long again."""

    calls = 0

    def co_run(self, sets, gpu, sm_mhz):
        return ToyPredictor(base_s=1.5 if gpu.name == "Slow" else 1.0).co_run(sets, gpu, sm_mhz)


@pytest.mark.parametrize(
    ("lengths", "at_once"),
    [
        # 10 s on the fast GPU; then 20 s: 30 there or 30 on the slow one, the first of equals; then 30 s: 60 or 45.
        ((10.0, 20.0, 30.0), {(0, 0), (2, 1)}),
        ((30.0, 20.0, 10.0), {(2, 0), (0, 1)}),
    ],
)
def test_earliest_completion(lengths, at_once):
    """PowerFlow assigns the shortest job first to the earliest completion."""
    tasks = [Task(number, WORK, length) for number, length in enumerate(lengths)]
    slow = toy_gpu("Slow")
    devices = [ToyDevice(GPU), ToyDevice(slow, base_s=1.5)]
    policy = PowerFlow(clocks=1, elastic=False)
    result = run_on_toys(tasks, policy, (GPU, slow), predictor=SlowGpuPredictor(), devices=devices)
    assert {(task, where) for task, where, start_s, _ in list_intervals(result) if start_s == 0} == at_once


@pytest.mark.parametrize(("name", "record"), [("A100", "miso"), ("V100", "gavel"), ("V100-SXM2", "eaco")])
def test_step_models(name, record):
    """The fitted models of steps are near the device."""
    card, predicted = gpu(name), DevicePredictor()
    models = StepModels(predicted, 8, 0.4, 1.0)
    for workload in workloads(record, name):
        model = models.fitted(workload, card)
        for mhz in models.clocks_mhz(card):
            solo = predicted.solo([workload], card, mhz)
            time_s, power_w, speed = solo.time_s[0, 0], solo.power_w[0], mhz / card.max_mhz
            assert model.time_s(1, speed) == pytest.approx(time_s, rel=0.03)
            assert model.energy_j(time_s, speed) == pytest.approx(time_s * power_w, rel=0.12)
        # The exchange's form is that of the device at the top clock.
        for gpus in (4, 8):
            ratio = model.time_s(gpus, 1.0) / model.time_s(1, 1.0)
            assert ratio == pytest.approx(1 / scaling_efficiency(workload, gpus), rel=0.03)
