"""Policies within a power budget: the sum of power at every moment, what is held back, and what stays as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.scripted_policy import ScriptedPolicy

import heshare as hs
from heshare.devices.device_model import co_run
from heshare.lab.limits.budget_policy import BudgetSettings, within_budget
from heshare.lab.limits.power_bounds import PowerBounds, saturated_w
from heshare.lab.limits.power_budget import PowerBudget, largest_excess
from heshare.lab.sweeps.grid import read_grid
from heshare.lab.sweeps.sweep import sweep
from heshare.policies.function_policy import policy
from heshare.policies.policy import Migrate, Pause, SetClock, Start, Wait
from heshare.policies.registry import make, unregister
from heshare.running.run import run
from heshare.running.timeline import power_steps
from heshare.shared.errors import InputError, PolicyError
from heshare.testing.policy_contract import check_policy
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

CLUSTER = "2xT4,1xV100,1xA100"
POLICIES = ("heshare:trade-off", "heshare+:trade-off", "marginal", "fifo", "morak", "mu-serve", "random", "sched-only",
            "fifo-packed", "pwr")  # fmt: skip


def peak_w(run):
    return float(power_steps(run.record.segments)[1].max())


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.slow
def test_power_is_below_the_limit_at_every_segment(name):
    """At 62 % of each policy's own peak, with arrivals over time."""
    tasks = hs.task_set(12, arrivals="miso")
    free = hs.run(tasks, CLUSTER, name)
    budget = PowerBudget.constant(0.62 * peak_w(free))
    limited = hs.run(tasks, CLUSTER, name, power_limit=budget)
    assert largest_excess(limited.record.segments, budget) is None
    assert largest_excess(free.record.segments, budget) is not None
    assert np.isfinite(limited.jct_s).all()
    assert limited.energy_cluster_j == pytest.approx(limited.device_energy_j.sum())


@pytest.mark.parametrize("name", ["heshare:trade-off(generations=20)", "marginal", "morak", "fifo"])
def test_a_limit_above_the_peak_changes_nothing(name):
    tasks = hs.task_set(10, seed=3, arrivals="miso")
    free = hs.run(tasks, CLUSTER, name, seed=3)
    limited = hs.run(tasks, CLUSTER, name, seed=3, power_limit=2000)
    assert limited.record == free.record
    assert limited.events == free.events


def test_a_falling_limit_lowers_clocks_and_pauses_and_a_rising_one_gives_back():
    tasks = hs.task_set(10, seed=0)
    free = hs.run(tasks, CLUSTER, "sched-only:all-at-once", seed=0)
    step_s = free.makespan_s / 4
    budget = PowerBudget((0.0, step_s, 3 * step_s), (0.9 * peak_w(free), 160.0, 2000.0))
    limited = hs.run(tasks, CLUSTER, "sched-only:all-at-once", seed=0, power_limit=budget)
    assert largest_excess(limited.record.segments, budget) is None
    assert "paused" in {interval.outcome for interval in limited.record.intervals}
    after = [segment for segment in limited.record.segments if segment.start_s >= 3 * step_s and segment.residents]
    assert after
    assert {segment.requested_mhz for segment in after} == {None}, "the card's own clock, as the policy wants"


def test_the_least_limit_that_is_accepted_runs_every_task():
    tasks = hs.task_set(6, seed=0)
    with pytest.raises(InputError, match="one A100 is busy at 210 MHz") as refused:
        hs.run(tasks, CLUSTER, "marginal", power_limit=150)
    needed_w = float(str(refused.value).split("may draw ")[1].split(" W")[0])
    budget = PowerBudget.constant(needed_w + 0.1)
    for name in ("marginal", "heshare:jct-opt", "fifo"):
        limited = hs.run(tasks, CLUSTER, name, power_limit=budget)
        assert np.isfinite(limited.jct_s).all()
        assert largest_excess(limited.record.segments, budget) is None


def test_limits_below_idle_power_are_refused_with_the_numbers():
    with pytest.raises(InputError, match=r"100 W for 2xT4,1xV100,1xA100, whose GPUs draw 143.0 W"):
        hs.run(4, CLUSTER, "fifo", power_limit=100)
    with pytest.raises(InputError, match="90 W"):
        hs.compare(4, CLUSTER, ["fifo"], seeds=1, power_limit=90)


@pytest.mark.parametrize("name", ["eaco", "power-flow", "fifo-packed", "gandiva", "fikit"])
def test_gangs_training_and_other_ways_of_sharing_keep_the_limit(name):
    train = Workload("eaco_resnet50", 32, phase="training")
    tasks = [
        Task(number, train, 300.0 + 50 * number, arrival_s=5.0 * number, gpus=1 + number % 2) for number in range(6)
    ]
    free = hs.run(tasks, "3xV100", name)
    budget = PowerBudget.constant(0.7 * peak_w(free))
    limited = hs.run(tasks, "3xV100", name, power_limit=budget)
    assert largest_excess(limited.record.segments, budget) is None


def test_the_contract_of_policies_holds_within_a_budget():
    assert check_policy(lambda: within_budget(make("marginal"), 900))
    assert check_policy(lambda: within_budget(make("heshare:trade-off"), 900))


def test_a_held_start_looks_like_a_task_that_loads():
    seen = []

    @policy("sees-all", title="Sees all", multi_task=True, frequency=True)
    def sees_all(event, view, predictions):
        gpu = view.gpus[0]
        held = {task: gpu.running[task].time_s for task in gpu.running}
        seen.append((len(view.waiting), held, gpu.requested_mhz, round(gpu.free_mib)))
        assert all(gpu.running.pace(task).time_s == time_s for task, time_s in held.items())
        if event.tasks and event.gpu is None:
            yield SetClock(0, 1590)
            for task in view.waiting:
                yield Start(task.id, 0, 100)

    tasks = [Task(number, Workload("resnet50", 8), 5000.0) for number in range(2)]
    tasks.append(Task(2, Workload("resnet50", 8), 10.0, arrival_s=1.0))
    try:
        done = hs.run(tasks, "1xT4", "sees-all", power_limit=52)
    finally:
        unregister("sees-all")
    assert largest_excess(done.record.segments, PowerBudget.constant(52.0)) is None
    waiting, held, requested_mhz, free_mib = seen[1]
    assert (waiting, len(held), requested_mhz) == (1, 2, 1590)
    assert math.inf in held.values() or len(held) == 2
    assert free_mib < seen[0][3]


class Scripted:
    """The policy that does at each time, s, what a script says."""

    name, tick_s, gangs = "scripted", 10.0, False
    traits = make("morak").traits

    def __init__(self, script):
        self.script = script

    def reset(self, cluster, predictor, rng):
        pass

    def decide(self, event, view):
        return self.script.get(event.time_s, [])


def test_pauses_and_moves_of_held_and_of_running_tasks():
    moves = {10.0: [Pause(1)], 20.0: [Start(1, 1, 50)], 30.0: [Migrate(0, 1, 50)], 40.0: [Migrate(1, 0, 100)]}
    script = {0.0: [Start(0, 0, 100), Start(1, 0, 100)], **moves}
    tasks = [Task(number, Workload("resnet50", 8), 3000.0) for number in range(2)]
    for limit_w in (80.0, 90.0, 200.0):
        done = hs.run(tasks, "2xT4", Scripted(script), power_limit=limit_w)
        assert largest_excess(done.record.segments, PowerBudget.constant(limit_w)) is None
        assert np.isfinite(done.jct_s).all()


def test_on_real_gpus_starts_and_raised_clocks_wait_for_lower_ones():
    steps = {0.0: [SetClock(1, 855), Start(0, 0, 100)], 10.0: [SetClock(0, 855), SetClock(1, 1590)]}
    settings = BudgetSettings(settle_s=2.0)  # a reading is exact at once in virtual time alone
    done = hs.run([Task(0, Workload("resnet50", 8), 5000.0)], "2xT4", within_budget(Scripted(steps), 300.0, settings))
    assert done.record.intervals[0].start_s == 2.0
    clocks = {}
    for segment in done.record.segments:
        clocks.setdefault((segment.gpu, segment.requested_mhz), segment.start_s)
    assert clocks == {(0, None): 0.0, (1, 855): 0.0, (0, 855): 10.0, (1, 1590): 12.0}


def test_a_start_that_waits_for_lower_clocks_can_be_that_of_a_task_that_makes_room_first():
    moves = [Migrate(1, 1, 100), Migrate(0, 1, 100), SetClock(1, 300)]
    script = {0.0: [Start(0, 0, 100), Start(1, 0, 100)], 10.0: moves}
    tasks = [Task(0, Workload("vgg19", 32), 5000.0), Task(1, Workload("resnet50", 1), 2000.0)]
    for settle_s in (1.0, 2.0):
        wrapped = within_budget(Scripted(script), 90.0, BudgetSettings(settle_s=settle_s))
        assert np.isfinite(hs.run(tasks, "2xT4", wrapped).jct_s).all()


def test_a_reading_of_a_gpu_counts_once_the_processes_of_its_tasks_have_begun():
    tasks = [Task(number, Workload("mobilenetv2", 1), 90_000.0) for number in range(2)]
    script = {0.0: [Start(0, 0, 100), Start(1, 1, 100)]}
    begins_s = []
    for began_s in (0.0, 60.0, math.inf):
        settings = BudgetSettings(settle_s=2.0, began_s=lambda task, at_s=began_s: at_s)
        first, second = hs.run(tasks, "2xT4", within_budget(Scripted(script), 100.0, settings)).record.intervals
        begins_s.append(second.start_s)
    assert begins_s == [6.0, 72.0, first.end_s], "not before the first one was read, or is over"


def test_a_task_that_never_fits_ends_the_run_with_the_numbers():
    settings = BudgetSettings(margin=50.0)
    tasks = [Task(0, Workload("resnet50", 8), 10.0, gpus=2)]
    with pytest.raises((PolicyError, InputError), match="W"):
        hs.run(tasks, "2xA100", within_budget(make("fifo"), 150.0, settings))


def test_nothing_starts_while_starts_are_not_allowed():
    settings = BudgetSettings(may_start=lambda: False)
    with pytest.raises(PolicyError, match="Never started"):
        hs.run(2, "1xT4", within_budget(make("fifo"), 60.0, settings))


def test_the_device_model_never_exceeds_the_saturated_power():
    rng = np.random.default_rng(0)
    names = sorted({task.workload.model for task in hs.task_set(100)})
    for gpu in hs.Cluster.parse("1xT4,1xV100,1xA100,1xH100").gpus:
        for _ in range(60):
            models = [Workload(str(rng.choice(names)), int(rng.choice([4, 8]))) for _ in range(rng.integers(1, 6))]
            residents = tuple(Resident(model, int(rng.choice([20, 50, 100]))) for model in models)
            mhz = int(rng.choice(gpu.clocks_mhz))
            assert co_run(gpu, residents, mhz).power_w <= saturated_w(gpu, residents, mhz) + 1e-9


def test_a_grid_takes_a_limit_from_its_file(tmp_path):
    limit, grid = tmp_path / "limit.csv", tmp_path / "grid.yaml"
    limit.write_text("time_s,limit_w\n0,160\n")
    lines = "policies: [fifo]\nclusters: 1xT4,1xA100\ntasks: 4\nseeds: 1\n"
    grid.write_text(lines)
    free = sweep(read_grid(grid))
    for value in ("160", str(limit)):
        grid.write_text(f"{lines}power_limit: {value}\n")
        limited = sweep(read_grid(grid))
        assert list(limited.columns) == list(free.columns)
        assert (limited["avg_jct_s"] > free["avg_jct_s"]).all()
    grid.write_text(f"{lines}power_limit: 50\n")
    with pytest.raises(InputError, match=r"grid.yaml.*draw 90.0 W when all of them idle"):
        read_grid(grid)


def test_a_limit_is_kept_where_a_clock_rises_far_above_the_ones_that_were_read():
    """Found by 520 random runs: two residents drew 5 % more at 855 MHz than a reading at 450 MHz had allowed."""
    tasks = hs.task_set(10, seed=514482, arrivals="miso")
    free = hs.run(tasks, "2xA100", "marginal", seed=514482)
    step_s, peak = float(free.jct_s.max() / 3), peak_w(free)
    budget = PowerBudget((0.0, step_s), (0.5085732185571837 * peak, 0.6998353323855292 * peak))
    limited = hs.run(tasks, "2xA100", "marginal", seed=514482, power_limit=budget)
    assert largest_excess(limited.record.segments, budget) is None


class Refusing(ToyDevice):
    def set_clock(self, sm_mhz):
        """Keep the clock."""


def on_toys(tasks, decide, budget, *, gpus=2, device=ToyDevice, clocks_mhz=(500, 1000), start_cost_s=0.0):
    """Run on toy GPUs, which draw 10 W idle, 60 W at 500 MHz and 110 W at 1,000 MHz, and are predicted exactly."""
    limited = within_budget(ScriptedPolicy(decide), budget, BudgetSettings(margin=0.0))
    cluster, rng = hs.Cluster((toy_gpu(clocks_mhz=clocks_mhz),) * gpus), np.random.default_rng(0)
    how = {"devices": [device(gpu) for gpu in cluster.gpus], "start_cost_s": start_cost_s}
    return run(tasks, cluster, limited, predictor=ToyPredictor(), rng=rng, **how)


def toy_tasks(*arrivals_s):
    return [Task(number, Workload("resnet18", 4), 20.0, arrival_s) for number, arrival_s in enumerate(arrivals_s)]


def spread(event, view):
    """Start each waiting task on the GPU with its number."""
    return [Start(task.id, task.id) for task in view.waiting]


def test_a_task_is_paused_where_a_gpu_refuses_a_lower_clock():
    budget = PowerBudget((0.0, 5.0), (220.0, 170.0))
    obeyed = on_toys(toy_tasks(0.0, 0.0), spread, budget)
    assert [row.outcome for row in obeyed.record.intervals] == ["completed"] * 2
    assert largest_excess(obeyed.record.segments, budget) is None
    refused = on_toys(toy_tasks(0.0, 0.0), spread, budget, device=Refusing)
    assert "paused" in [row.outcome for row in refused.record.intervals]
    assert largest_excess(refused.record.segments, PowerBudget((0.0, 8.0), (220.0, 170.0))) is None


def test_a_gang_that_never_fits_ends_the_run_with_what_it_needs():
    gang = Task(0, Workload("resnet18", 4), 20.0, gpus=3)
    message = "needs up to 180 W of all GPUs at their lowest clocks where 150 W are allowed from now on"
    with pytest.raises(PolicyError, match=message):
        on_toys([gang], lambda event, view: [Start(0, 0, also=(1, 2))], 150.0, gpus=3)


class Parked(ToyDevice):
    """Draws nothing while it idles and its clock was left to the card."""

    def power_w(self, mhz, residents):
        return super().power_w(mhz, residents) if residents or self._clock else 0.0


def test_an_idle_gpu_gets_its_clock_once_there_is_power_for_it():
    def decide(event, view):
        return [*spread(event, view), Wait(5.0)] if event.kind.name == "ARRIVAL" else [SetClock(2, 500)]

    done = on_toys(toy_tasks(0.0, 3.0), decide, 225.0, gpus=3, device=Parked)
    assert largest_excess(done.record.segments, PowerBudget.constant(225.0)) is None
    idle = [(row.start_s, row.requested_mhz) for row in done.record.segments if row.gpu == 2]
    assert idle[0] == (0.0, None)
    assert idle[1] == (20.0, 500)


class Frugal(ToyDevice):
    def power_w(self, mhz, residents):
        return 0.4 * super().power_w(mhz, residents)


def test_a_clock_lowered_for_a_bound_rises_once_power_is_read():
    done = on_toys(toy_tasks(0.0, 0.0), spread, 145.0, device=Frugal)
    busy = [(row.start_s, row.requested_mhz) for row in done.record.segments if row.residents]
    assert sorted(busy)[:2] == [(0.0, 500), (0.0, 500)]
    assert min(start_s for start_s, requested_mhz in busy if requested_mhz is None) == 1.0


def test_the_power_of_a_task_that_loads_is_not_taken_for_that_of_the_task():
    done = on_toys(toy_tasks(0.0, 1.0), spread, 170.0, start_cost_s=5.0)
    assert largest_excess(done.record.segments, PowerBudget.constant(170.0)) is None


def test_a_reading_bounds_the_power_at_lower_clocks_alone_on_a_card_without_a_power_model():
    class Unknowing(ToyPredictor):
        def co_run(self, sets, gpu, sm_mhz):
            raise InputError("resnet18", "a profiled workload", "Profile it.")

    residents = (Resident(Workload("resnet18", 4)),)
    for read_mhz, other_mhz, bound_w in ((1000, 500, 80.0), (500, 1000, 110.0)):
        bounds = PowerBounds(Unknowing())
        bounds.learn(toy_gpu(), residents, read_mhz, 80.0, read_mhz)
        assert bounds.bound_w(toy_gpu(), residents, read_mhz) == 80.0
        assert bounds.bound_w(toy_gpu(), residents, other_mhz) == bound_w


def test_the_tasks_that_started_last_are_paused_and_the_first_of_them_goes_on_first():
    budget = PowerBudget((0.0, 5.0, 10.0), (330.0, 140.0, 240.0))
    done = on_toys(toy_tasks(0.0, 0.0, 0.0), spread, budget, gpus=3, clocks_mhz=(1000,))
    assert largest_excess(done.record.segments, budget) is None
    starts_s = [sorted(row.start_s for row in done.record.intervals if row.task == task) for task in range(3)]
    assert starts_s == [[0.0], [0.0, 10.0], [0.0, 20.0]]


def test_a_task_that_was_moved_started_last():
    def decide(event, view):
        return {"ARRIVAL": [*spread(event, view), Wait(2.0)], "TICK": [Migrate(0, 2)]}.get(event.kind.name, [])

    budget = PowerBudget((0.0, 5.0), (330.0, 140.0))
    done = on_toys(toy_tasks(0.0, 0.0), decide, budget, gpus=3, clocks_mhz=(1000,))
    assert [(row.task, row.end_s) for row in done.record.intervals if row.outcome == "paused"] == [(0, 5.0)]
