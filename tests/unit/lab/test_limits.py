"""Power limits: which ones are taken, what is lowered, held and paused below one, and what real GPUs need."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.power_excess import excess_w
from support.scripted_policy import ScriptedPolicy

import heshare as hs
from heshare.devices.device_model import co_run
from heshare.lab.limits import MARGIN, LimitSettings, PowerLimit, _PowerBounds, check_cluster, within_limit
from heshare.lab.sweeps.grid import read_grid
from heshare.lab.sweeps.sweep import sweep
from heshare.policies.policy import Migrate, Pause, SetClock, Start, Wait
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.running.timeline import power_steps
from heshare.shared.errors import InputError, PolicyError
from heshare.testing.policy_contract import check_policy
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world import catalogue
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

CLUSTER = "2xT4,1xV100,1xA100"


# Limits


def test_parse(tmp_path):
    """A limit is read from watts, text, files, steps and limits."""
    file = tmp_path / "limit.csv"
    file.write_text("time_s,limit_w\n0,900\n60.5,1200\n")
    stepped = PowerLimit((0.0, 60.5), (900.0, 1200.0))
    for source in (file, str(file), [[0, 900], [60.5, 1200]], stepped, stepped.to_json()):
        assert PowerLimit.parse(source) == stepped
    assert PowerLimit.parse("900") == PowerLimit.parse(900) == PowerLimit((0.0,), (900.0,))
    assert PowerLimit.of_json(stepped.to_json()) == stepped


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (0, "above 0"), (-5, "above 0"), (math.nan, "above 0"), (math.inf, "above 0"), ("nan", "above 0"),
        (True, "watts, or a CSV file"), (None, "watts, or a CSV file"), ("no-such.csv", "no number and no file"),
        ("9_00", "no number and no file"), ([900], "limit_w] of each step"), ([], "a limit for each time"),
        ([[1, 900]], "a first step at 0 s"), ([[0, 900], [0, 800]], "times that ascend"), ([[0, "9"]], "above 0"),
    ],
)  # fmt: skip
def test_bad_source(source, words):
    """What is no limit is refused."""
    with pytest.raises(InputError, match=words):
        PowerLimit.parse(source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time_s,limit_w\n", "no row"),
        ("time_s,limit_w\n5,900\n", "row 2, column time_s: .*0 in the first row"),
        ("time_s,limit_w\n0,900\n0,800\n", "row 3, column time_s: .*above 0"),
        ("time_s,limit_w\n0,-1\n", "row 2, column limit_w: .*above 0"),
        ("time_s,limit_w\n0,\n", "row 2, column limit_w: found an empty cell"),
        ("time_s,watts\n0,900\n", "limit_w: found a header without it"),
    ],
)
def test_bad_file(tmp_path, text, words):
    """A bad file is refused with its row and column."""
    file = tmp_path / "limit.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        PowerLimit.parse(file)


def test_steps():
    """The limit at a time, the next step and later limits follow the steps."""
    limit = PowerLimit((0.0, 60.0, 120.0), (900.0, 1200.0, 600.0))
    assert [limit.at(time_s) for time_s in (0, 59.9, 60.0 - 1e-12, 60, 500)] == [900, 900, 1200, 1200, 600]
    assert [limit.next_step_s(time_s) for time_s in (0, 60, 120)] == [60, 120, math.inf]
    for elapsed_s in (0.0, 59.0, 70.0, 500.0):
        later = limit.later(elapsed_s)
        assert [later.at(time_s) for time_s in range(200)] == [limit.at(elapsed_s + time_s) for time_s in range(200)]
    assert limit.later(0.5).times_s == (0.0, 59.5, 119.5)


def test_text():
    """As text a limit has its watts, or their range and the number of steps."""
    assert str(PowerLimit((0.0,), (900.0,))) == "900 W"
    assert str(PowerLimit((0.0, 60.0, 120.0), (900.0, 1200.0, 600.0))) == "600 to 1200 W in 3 steps"


def test_least_limit():
    """A limit that can never be kept is refused; under the least one that is accepted every task runs."""
    with pytest.raises(InputError, match=r"100 W for 2xT4,1xV100,1xA100, whose GPUs draw 143.0 W"):
        hs.run(4, CLUSTER, "fifo", power_limit=100)
    with pytest.raises(InputError, match="one A100 is busy at 210 MHz") as refused:
        check_cluster(hs.Cluster.parse(CLUSTER), PowerLimit.parse(150))
    needed_w = float(str(refused.value).split("may draw ")[1].split(" W")[0]) + 0.1
    tasks = hs.task_set(6, seed=0)
    for name in ("marginal", "fifo"):
        done = hs.run(tasks, CLUSTER, name, power_limit=needed_w)
        assert np.isfinite(done.jct_s).all()
        assert excess_w(done, needed_w) <= 1e-6


def test_default_clock():
    """A GPU with one clock is busy at its default clock, which cannot be lowered."""
    with pytest.raises(InputError, match="busy at its default clock"):
        check_cluster(hs.Cluster((toy_gpu(clocks_mhz=(1000,)),)), PowerLimit.parse(50))


def test_grid(tmp_path):
    """A grid takes a limit from its file."""
    limit, grid = tmp_path / "limit.csv", tmp_path / "grid.yaml"
    limit.write_text("time_s,limit_w\n0,170\n")
    lines = "policies: [fifo]\nclusters: 1xT4,1xA100\ntasks: 4\nseeds: 1\n"
    grid.write_text(lines)
    free = sweep(read_grid(grid))
    for value in ("170", str(limit), "[[0, 170]]"):
        grid.write_text(f"{lines}power_limit: {value}\n")
        limited = sweep(read_grid(grid))
        assert list(limited.columns) == list(free.columns)
        assert (limited["avg_jct_s"] > free["avg_jct_s"]).all()
    grid.write_text(f"{lines}power_limit: 50\n")
    with pytest.raises(InputError, match=r"grid.yaml.*draw 90.0 W when all of them idle"):
        read_grid(grid)


# Policies within a limit


@pytest.mark.parametrize("name", ["heshare:trade-off(generations=20)", "marginal", "morak", "fifo"])
def test_high_limit(name):
    """A limit above the peak changes nothing."""
    tasks = hs.task_set(10, seed=3, arrivals="miso")
    free = hs.run(tasks, CLUSTER, name, seed=3)
    limited = hs.run(tasks, CLUSTER, name, seed=3, power_limit=2000)
    assert limited.record == free.record
    assert limited.events == free.events


@pytest.mark.parametrize("name", ["marginal", "heshare:trade-off(generations=20)"])
def test_contract(name):
    """The contract of policies holds within a limit."""
    assert check_policy(lambda: within_limit(make(name), 900))


def test_risen_limit():
    """Clocks rise to the wanted ones once the limit has risen."""
    tasks = hs.task_set(10, seed=0)
    free = hs.run(tasks, CLUSTER, "sched-only:all-at-once", seed=0)
    step_s, peak_w = free.makespan_s / 4, float(power_steps(free.record.segments)[1].max())
    limit = PowerLimit((0.0, step_s, 3 * step_s), (0.9 * peak_w, 160.0, 2000.0))
    done = hs.run(tasks, CLUSTER, "sched-only:all-at-once", seed=0, power_limit=limit)
    assert excess_w(done, limit) <= 1e-6
    assert "paused" in {interval.outcome for interval in done.record.intervals}
    after = [segment for segment in done.record.segments if segment.start_s >= 3 * step_s and segment.residents]
    assert after
    assert {segment.requested_mhz for segment in after} == {None}, "the card's own clock, as the policy wants"


@pytest.mark.parametrize("name", ["eaco", "power-flow", "fifo-packed", "gandiva", "fikit"])
def test_other_systems(name):
    """Gangs, trainings and other ways of sharing keep the limit."""
    train = Workload("eaco_resnet50", 32, phase="training")
    tasks = [
        Task(number, train, 300.0 + 50 * number, arrival_s=5.0 * number, gpus=1 + number % 2) for number in range(6)
    ]
    free = hs.run(tasks, "3xV100", name)
    limit_w = 0.7 * float(power_steps(free.record.segments)[1].max())
    assert excess_w(hs.run(tasks, "3xV100", name, power_limit=limit_w), limit_w) <= 1e-6


def scripted(steps, tick_s=10.0):
    """Return a policy that does at each time, s, what `steps` say."""
    return ScriptedPolicy(lambda event, view: steps.get(event.time_s, []), tick_s=tick_s)


def test_view_of_held_start():
    """A policy sees a held start as a task that loads, and the clocks that it asked for."""
    views = []

    def decide(event, view):
        gpu = view.gpus[0]
        views.append((len(view.waiting), [running.time_s for running in gpu.running.values()], gpu.free_mib))
        assert gpu.requested_mhz == (1590 if len(views) > 1 else None)
        return [SetClock(0, 1590), *[Start(task.id, 0, 100) for task in view.waiting]]

    arrivals_s = (0.0, 0.0, 1.0)
    tasks = [Task(number, Workload("resnet50", 8), 3000.0, time_s) for number, time_s in enumerate(arrivals_s)]
    done = hs.run(tasks, "1xT4", within_limit(ScriptedPolicy(decide), 45))
    assert excess_w(done, 45) <= 1e-6
    (_, _, whole_mib), (waiting, times_s, free_mib) = views[:2]
    assert waiting == 1, "the new one alone"
    assert len(times_s) == 2
    assert math.inf in times_s
    assert free_mib < whole_mib


@pytest.mark.parametrize("limit_w", [80.0, 90.0, 200.0])
@pytest.mark.parametrize(
    "moves",
    [
        {10.0: [Pause(1)], 20.0: [Start(1, 1, 50)], 30.0: [Migrate(0, 1, 50)], 40.0: [Migrate(1, 0, 100)]},
        {
            10.0: [Pause(0), Start(0, 1, 50), Pause(1)],
            20.0: [Start(1, 0, 100)],
            30.0: [Migrate(1, 1, 50), Migrate(1, 0, 50)],
        },
    ],
    ids=["one by one", "in one decision"],
)
def test_pauses_and_moves(moves, limit_w):
    """Held and running tasks may be paused, started anew and moved, also in one decision."""
    steps = {0.0: [Start(0, 0, 100), Start(1, 0, 100)], **moves}
    tasks = [Task(number, Workload("resnet50", 8), 3000.0) for number in range(2)]
    done = hs.run(tasks, "2xT4", within_limit(scripted(steps), limit_w))
    assert excess_w(done, limit_w) <= 1e-6
    assert np.isfinite(done.jct_s).all()


# On toy GPUs, which draw 10 W idle, 60 W at 500 MHz and 110 W at 1,000 MHz, and are predicted exactly


def on_toys(tasks, decide, limit, *, gpus=2, device=ToyDevice, clocks_mhz=(500, 1000), start_cost_s=0.0, settle_s=0.0):
    limited = within_limit(ScriptedPolicy(decide), limit, LimitSettings(margin=0.0, settle_s=settle_s))
    cluster, rng = hs.Cluster((toy_gpu(clocks_mhz=clocks_mhz),) * gpus), np.random.default_rng(0)
    how = {"devices": [device(gpu) for gpu in cluster.gpus], "start_cost_s": start_cost_s}
    return run(tasks, cluster, limited, predictor=ToyPredictor(), rng=rng, **how)


def toy_tasks(*arrivals_s):
    return [Task(number, Workload("resnet18", 4), 20.0, arrival_s) for number, arrival_s in enumerate(arrivals_s)]


def spread(event, view):
    """Start each waiting task on the GPU with its number."""
    return [Start(task.id, task.id) for task in view.waiting]


def starts_s(done, tasks):
    return [sorted(row.start_s for row in done.record.intervals if row.task == task) for task in range(tasks)]


def test_remaining_of_held_start():
    """A start that is held at twice the inference batch size has half of the iterations left."""
    left = []

    def decide(event, view):
        left.extend(gpu.running[1].remaining for gpu in view.gpus if 1 in gpu.running)
        starts = [Start(task.id, task.id, batch_size=8) for task in view.waiting]
        return [*starts, Wait(1.0)] if starts else []

    on_toys(toy_tasks(0.0, 0.0), decide, 150.0, clocks_mhz=(1000,))
    assert left[0] == 10.0


def test_reset_clock():
    """A clock that the policy leaves to the card again is not set back."""
    actions = {0.0: [SetClock(0, 500), Start(0, 0), Wait(5.0)], 5.0: [SetClock(0, None), Wait(10.0)]}
    done = on_toys(toy_tasks(0.0), lambda event, view: actions.get(event.time_s, []), 500.0, gpus=1)
    assert list(
        dict.fromkeys((row.requested_mhz, row.start_s >= 5.0) for row in done.record.segments if row.residents)
    ) == [(500, False), (None, True)]


def test_bound_of_reading():
    """A reading at a lower clock allows several residents more at a higher clock than one."""
    bounds, gpu = _PowerBounds(ToyPredictor()), toy_gpu()
    one = (Resident(Workload("resnet18", 4), 100),)
    for residents in (one, one * 2):
        bounds.learn(0, residents, 500, 15.0, 500.0)
    alone_w, shared_w = (bounds.bound_w(0, gpu, residents, 1000, margin=1.0) for residents in (one, one * 2))
    assert 15.0 < alone_w < shared_w


@pytest.mark.filterwarnings("ignore:no profile of")
@pytest.mark.parametrize("name", ["H100", "H200", "A100-40GB", "A100"])
def test_bound_on_any_card(name):
    """Before anything is read, the bound of VGG-16 is above its power, also on cards without a profile."""
    bounds, gpu = _PowerBounds(hs.load_predictor()), catalogue.gpu(name)
    for size in (8, 32, 128):
        residents = (Resident(Workload("vgg16", size)),)
        for clock in gpu.clocks_mhz[::20]:
            power_w = co_run(gpu, residents, clock).power_w
            assert bounds.bound_w(0, gpu, residents, clock, MARGIN) >= power_w


@pytest.mark.parametrize("limit_w", [140.0, 150.0, 200.0])
def test_order_of_held_starts(limit_w):
    """Held starts begin in the order of the policy."""
    order = [3, 0, 2, 1]
    steps = {0.0: [Start(task, task) for task in order]}
    done = on_toys(toy_tasks(*[0.0] * 4), lambda event, view: steps.pop(event.time_s, []), limit_w, gpus=4)
    assert excess_w(done, limit_w) <= 1e-6
    began_s = [starts_s(done, 4)[task][0] for task in order]
    assert began_s == sorted(began_s)
    assert began_s[-1] > 0.0


def test_clocks_before_starts():
    """Clocks are lowered before a start is held."""
    done = on_toys(toy_tasks(0.0, 0.0, 0.0), spread, 180.0, gpus=3)
    assert starts_s(done, 3) == [[0.0]] * 3
    assert {row.requested_mhz for row in done.record.segments if row.residents} == {500}
    held = on_toys(toy_tasks(0.0, 0.0, 0.0), spread, 179.0, gpus=3)
    assert starts_s(held, 3)[:2] == [[0.0]] * 2
    assert starts_s(held, 3)[2] > [0.0]


def test_last_started_paused():
    """The tasks that started last are paused, and the first of them goes on first."""
    limit = PowerLimit((0.0, 5.0, 10.0), (330.0, 140.0, 240.0))
    done = on_toys(toy_tasks(0.0, 0.0, 0.0), spread, limit, gpus=3, clocks_mhz=(1000,))
    assert excess_w(done, limit) <= 1e-6
    assert starts_s(done, 3) == [[0.0], [0.0, 10.0], [0.0, 20.0]]


def test_moved_task_paused():
    """A task that was moved counts as started last."""

    def decide(event, view):
        return {"ARRIVAL": [*spread(event, view), Wait(2.0)], "TICK": [Migrate(0, 2)]}.get(event.kind.name, [])

    limit = PowerLimit((0.0, 5.0), (330.0, 140.0))
    done = on_toys(toy_tasks(0.0, 0.0), decide, limit, gpus=3, clocks_mhz=(1000,))
    assert [(row.task, row.end_s) for row in done.record.intervals if row.outcome == "paused"] == [(0, 5.0)]


class Frugal(ToyDevice):
    def power_w(self, mhz, residents):
        return 0.4 * super().power_w(mhz, residents)


def test_read_power():
    """A clock that was lowered for a prediction rises once power is read."""
    done = on_toys(toy_tasks(0.0, 0.0), spread, 145.0, device=Frugal, clocks_mhz=tuple(range(500, 1001, 50)))
    clocks = [row.requested_mhz or 1000 for row in done.record.segments if row.gpu == 0 and row.residents]
    assert clocks == sorted(clocks)
    assert clocks[0] < clocks[-1] == 1000
    assert excess_w(done, 145.0) <= 1e-6


def test_loading_power():
    """The power of a task that loads is not taken for that of the task."""
    done = on_toys(toy_tasks(0.0, 1.0), spread, 170.0, start_cost_s=5.0)
    assert excess_w(done, 170.0) <= 1e-6


def test_impossible_gang():
    """A gang that never fits ends the run."""
    gang = Task(0, Workload("resnet18", 4), 20.0, gpus=3)
    message = "needs up to 180 W of all GPUs at their lowest clocks where 150 W are allowed from now on"
    with pytest.raises(PolicyError, match=message):
        on_toys([gang], lambda event, view: [Start(0, 0, also=(1, 2))], 150.0, gpus=3)


# As on real GPUs


class Refusing(ToyDevice):
    asked = 0

    def set_clock(self, sm_mhz):
        """Keep the clock."""
        Refusing.asked += 1


def test_refused_clock():
    """Where a GPU refuses a lower clock, a task is paused; the clock is not set again."""
    limit = PowerLimit((0.0, 5.0), (220.0, 170.0))
    obeyed = on_toys(toy_tasks(0.0, 0.0), spread, limit)
    assert [row.outcome for row in obeyed.record.intervals] == ["completed"] * 2
    assert excess_w(obeyed, limit) <= 1e-6

    Refusing.asked = 0
    refused = on_toys(toy_tasks(0.0, 0.0), spread, limit, device=Refusing)
    assert Refusing.asked == 2, "once of each GPU"
    assert "paused" in [row.outcome for row in refused.record.intervals]
    # Only at the next look it is known that the clock was refused.
    assert excess_w(refused, PowerLimit((0.0, 8.0), (220.0, 170.0))) <= 1e-6


def test_settle_time():
    """Starts and raised clocks wait for lower ones."""
    steps = {0.0: [SetClock(1, 855), Start(0, 0, 100)], 10.0: [SetClock(0, 855), SetClock(1, 1590)]}
    limited = within_limit(scripted(steps), 300.0, LimitSettings(settle_s=2.0))
    done = hs.run([Task(0, Workload("resnet50", 8), 5000.0)], "2xT4", limited)
    assert done.record.intervals[0].start_s == 2.0
    clocks = {}
    for segment in done.record.segments:
        clocks.setdefault((segment.gpu, segment.requested_mhz), segment.start_s)
    assert clocks == {(0, None): 0.0, (1, 855): 0.0, (0, 855): 10.0, (1, 1590): 12.0}


@pytest.mark.parametrize("settle_s", [1.0, 2.0])
def test_exchanged_tasks(settle_s):
    """Tasks that exchange GPUs while clocks are lowered complete."""
    moves = [Migrate(1, 1, 100), Migrate(0, 1, 100), SetClock(1, 300)]
    steps = {0.0: [Start(0, 0, 100), Start(1, 0, 100)], 10.0: moves}
    tasks = [Task(0, Workload("vgg19", 32), 5000.0), Task(1, Workload("resnet50", 1), 2000.0)]
    limited = within_limit(scripted(steps), 90.0, LimitSettings(settle_s=settle_s))
    assert np.isfinite(hs.run(tasks, "2xT4", limited).jct_s).all()


def test_began_processes():
    """A reading counts once the processes of the tasks have begun and settled."""
    tasks = [Task(number, Workload("mobilenetv2", 1), 90_000.0) for number in range(2)]
    steps = {0.0: [Start(0, 0, 100), Start(1, 1, 100)]}
    begins_s = []
    for began_s in (0.0, 60.0, math.inf):
        settings = LimitSettings(settle_s=2.0, began_s=lambda task, at_s=began_s: at_s)
        first, second = hs.run(tasks, "2xT4", within_limit(scripted(steps), 75.0, settings)).record.intervals
        begins_s.append(second.start_s)
    assert 2.0 <= begins_s[0] < 60.0
    assert 62.0 <= begins_s[1] < first.end_s
    assert first.end_s <= begins_s[2] <= first.end_s + 2.0, "once the other GPU has settled"


class Lingering(ToyDevice):
    """Reads 60 W at least for a second after its last task."""

    ended_s = -math.inf

    def _remove(self, task_ids):
        super()._remove(task_ids)
        self.ended_s = self._now_s

    def read(self):
        reading = super().read()
        return replace(reading, power_w=max(reading.power_w, 60.0)) if self.lingers() else reading

    def next_event_s(self):
        return min(super().next_event_s(), self.ended_s + 1.0 if self.lingers() else math.inf)

    def lingers(self):
        return self._now_s < self.ended_s + 1.0


def test_late_reading_after_end():
    """A start that a late reading of another GPU delays is not refused as one that never fits."""
    how = {"device": Lingering, "clocks_mhz": (1000,), "settle_s": 2.0}
    done = on_toys(toy_tasks(0.0, 0.0), spread, 150.0, **how)
    assert starts_s(done, 2) == [[0.0], [22.0]]


class Heavy(ToyDevice):
    def power_w(self, mhz, residents):
        return 3.0 * super().power_w(mhz, residents)


def test_readings_above_limit():
    """While readings are above the limit, clocks fall, nothing starts, and one line is printed."""
    lines = []
    settings = LimitSettings(margin=0.0, settle_s=10.0, watch_s=1.0, tell=lines.append)
    limited = within_limit(ScriptedPolicy(spread), 250.0, settings)
    cluster = hs.Cluster((toy_gpu(clocks_mhz=(250, 500, 1000)),) * 2)
    how = {"devices": [Heavy(gpu) for gpu in cluster.gpus], "predictor": ToyPredictor()}
    done = run(toy_tasks(0.0, 0.5), cluster, limited, rng=np.random.default_rng(0), **how)
    assert np.isfinite(done.jct_s).all()
    times_s, power_w = power_steps(done.record.segments)
    above = [(start_s, end_s) for start_s, end_s, w in zip(times_s, times_s[1:], power_w, strict=False) if w > 250.0]
    assert above[0][0] == 0.0, "more than was predicted"
    assert max(end_s - start_s for start_s, end_s in above) <= 1.0, "clocks fall at the next look"
    assert not any(start_s < began_s <= end_s for start_s, end_s in above for (began_s,) in starts_s(done, 2))
    assert len([line for line in lines if "W were read where 250 W are allowed" in line]) == len(above)
