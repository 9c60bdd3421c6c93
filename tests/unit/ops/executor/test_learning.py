"""What is learned of commands: `like` is for the first attempt; a time beside others is not the time alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from support.job_rows import job, jobs_of
from support.run_entries import ended

from heshare.devices.device_model import co_run
from heshare.lab.tenants.measured_work import MeasuredWork, nearest_workload
from heshare.ops.executor.job_tasks import assigned_jobs, remaining_tasks
from heshare.ops.executor.learning import Learning
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.jobs.learned_commands import MOST, command_key, keep_learned, read_learned
from heshare.ops.jobs.run_state import JobHistory
from heshare.ops.views.dry_run import dry_run
from heshare.testing.toy import ToyPredictor
from heshare.world.catalogue import gpu, memory_mib
from heshare.world.cluster import Cluster
from heshare.world.workload import Resident, Workload

A100 = gpu("A100")
LIKE = Workload("resnet50", 8)
TOP = A100.max_mhz


def spec_of(name="train", command=("train",), count=3, memory=None, like=LIKE):
    need_mib = memory_mib(like) if memory is None else memory
    return JobSpec(name, command, like, None, 100.0, count, None, 0, need_mib, Path("/"), (), 0.0, 2)


def learning_of(*specs, known=None, cluster="2xA100"):
    tasks, jobs = remaining_tasks(assigned_jobs(specs), JobHistory())
    return Learning(tasks, jobs, Cluster.parse(cluster), known or {})


def shown(residents, took_s, *, power=1.0, place=0, sm_mhz=TOP):
    """What an attempt shows that ran for a time beside others, on a GPU that draws so much of the model's power."""
    works = [MeasuredWork() for _ in residents]
    idle_w = co_run(A100, ()).power_w
    above_w = co_run(A100, residents, sm_mhz).power_w - idle_w
    MeasuredWork.add_to(works, A100, residents, sm_mhz, (idle_w + power * above_w) * took_s, took_s)
    return works[place]


def added(learning, task, measured, *, took_s, mps_pct=100, outcome="completed"):
    end = ended("train-0", outcome, start_s=0.0, end_s=took_s, mps_pct=mps_pct, sm_mhz=TOP)
    return learning.add(learning.tasks[task], end, measured, A100)


def alone_s(task, mps_pct=100):
    return task.iterations * co_run(A100, (Resident(task.workload, mps_pct),), TOP).tasks[0].time_s


def test_copies_of_a_command_are_predicted_as_it_was_measured():
    learning = learning_of(spec_of(), spec_of("other", ("other",), 1))
    assert alone_s(learning.tasks[1]) == pytest.approx(100.0)
    assert learning.source(1) == "like resnet50:8"
    learned = added(learning, 0, shown((Resident(LIKE),), 4.0), took_s=4.0)
    assert learned is not None
    assert [alone_s(task) for task in learning.tasks] == pytest.approx([4.0, 4.0, 4.0, 100.0])
    assert learning.source(1) == "measured: train-0, 4 s at 100 % on A100"
    assert learning.source(3) == "like resnet50:8"
    assert [task.id for task in learning.take_revised()] == [0, 1, 2]
    assert learning.take_news(learning.tasks[3:]) is False
    assert learning.take_revised() == []


def test_only_waiting_tasks_are_news_and_once():
    learning = learning_of(spec_of())
    added(learning, 0, shown((Resident(LIKE),), 4.0), took_s=4.0)
    learning.take_revised()
    assert [learning.take_news(learning.tasks[1:]) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("mps_pct", [30, 60])
def test_a_time_beside_others_at_a_share_is_not_taken_for_the_time_alone(mps_pct):
    crowd = (Resident(LIKE, mps_pct), Resident(Workload("bert_large", 4), 50), Resident(Workload("vgg16", 16), 50))
    slowed = co_run(A100, crowd, TOP).tasks[0].time_s / co_run(A100, crowd[:1], TOP).tasks[0].time_s
    assert slowed > 1.2
    learning = learning_of(spec_of())
    added(learning, 0, shown(crowd, 40.0), took_s=40.0, mps_pct=mps_pct)
    assert alone_s(learning.tasks[1], mps_pct) == pytest.approx(40.0 / slowed)


def test_power_that_was_measured_chooses_the_workload():
    learning = learning_of(spec_of(memory=600.0))
    before_w = co_run(A100, (Resident(LIKE),), TOP).power_w
    added(learning, 0, shown((Resident(LIKE),), 40.0, power=1.5), took_s=40.0)
    task = learning.tasks[1]
    after_w = co_run(A100, (Resident(task.workload),), TOP).power_w
    idle_w = co_run(A100, ()).power_w
    assert task.workload != LIKE
    assert after_w - idle_w == pytest.approx(1.5 * (before_w - idle_w), rel=0.1)
    assert 600.0 <= memory_mib(task.workload) <= 1.1 * memory_mib(LIKE)
    # Another workload with the same time.
    assert alone_s(task) == pytest.approx(40.0)
    short = learning_of(spec_of())
    added(short, 0, shown((Resident(LIKE),), 0.5, power=3.0), took_s=0.5)
    assert short.tasks[1].workload == LIKE, "the power of a short attempt is not known"


def test_times_of_copies_are_averaged_and_small_differences_are_no_news():
    learning = learning_of(spec_of())
    added(learning, 0, shown((Resident(LIKE),), 4.0), took_s=4.0)
    assert added(learning, 1, shown((Resident(LIKE),), 4.2), took_s=4.2) is None
    assert added(learning, 2, shown((Resident(LIKE),), 8.0), took_s=8.0) is not None
    assert alone_s(learning.tasks[0]) == pytest.approx((4.0 + 4.2 + 8.0) / 3)


def test_a_failed_attempt_shows_the_least_that_the_command_takes():
    learning = learning_of(spec_of())
    assert added(learning, 0, shown((Resident(LIKE),), 5.0), took_s=5.0, outcome="failed: crash") is None
    assert alone_s(learning.tasks[0]) == pytest.approx(100.0)
    added(learning, 0, shown((Resident(LIKE),), 300.0), took_s=300.0, outcome="failed: timeout")
    assert alone_s(learning.tasks[0]) == pytest.approx(300.0)
    added(learning, 0, shown((Resident(LIKE),), 200.0), took_s=200.0)
    assert alone_s(learning.tasks[0]) == pytest.approx(200.0)


def test_what_the_model_does_not_know_teaches_nothing():
    learning = learning_of(spec_of())
    unknown = MeasuredWork(iterations=math.nan, ran_s=4.0)
    assert added(learning, 0, unknown, took_s=4.0) is None
    assert added(learning, 0, MeasuredWork(), took_s=4.0) is None
    assert math.isnan(MeasuredWork(1.0, 4.0, 10.0, math.nan).power_ratio)


def test_a_workload_of_table_iv_is_not_learned():
    spec = JobSpec("serve", (), LIKE, 100.0, None, 1, None, 0, memory_mib(LIKE), Path("/"), (), 0.0, 2)
    learning = learning_of(spec)
    assert added(learning, 0, shown((Resident(LIKE),), 4.0), took_s=4.0) is None
    assert learning.source(0) == "its workload"


def test_nearest_workload_keeps_what_it_has_within_a_tenth():
    arguments = {"kept": LIKE, "need_mib": 600.0, "most_mib": 1000.0}
    assert nearest_workload(A100, Resident(LIKE), TOP, 1.05, **arguments) == LIKE
    assert nearest_workload(A100, Resident(LIKE), TOP, math.nan, **arguments) == LIKE
    assert nearest_workload(A100, Resident(LIKE), TOP, 0.5, **arguments) != LIKE


def test_a_learned_workload_that_fits_no_gpu_of_this_run_gives_way_to_like(tmp_path):
    learning = learning_of(spec_of(memory=600.0))
    learned = added(learning, 0, shown((Resident(LIKE),), 40.0, power=1.5), took_s=40.0)
    known = {learned.command: learned}
    assert learning_of(spec_of(memory=600.0), known=known).tasks[0].workload != LIKE
    small = Cluster((replace(A100, memory_mib=620.0),))
    tasks, jobs = remaining_tasks(assigned_jobs([spec_of(memory=600.0)]), JobHistory())
    found = Learning(tasks, jobs, small, known)
    assert (found.tasks[0].workload, found.source(0)) == (LIKE, "like resnet50:8")


def test_later_runs_know_the_newest_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert read_learned() == {}
    learning = learning_of(spec_of())
    learned = added(learning, 0, shown((Resident(LIKE),), 4.0), took_s=4.0)
    (tmp_path / "heshare").mkdir()
    keep_learned([learned])
    again = learning_of(spec_of("night"), known=read_learned())
    assert alone_s(again.tasks[0]) == pytest.approx(4.0)
    assert again.source(0).startswith("measured: train-0")
    keep_learned([changed(learned, command=f"c{index}") for index in range(MOST)])
    assert len(read_learned()) == MOST
    assert learned.command not in read_learned()
    (tmp_path / "heshare" / "learned.json").write_text("{")
    assert read_learned() == {}


def test_a_command_is_its_arguments_folder_environment_and_gpus():
    spec = spec_of()
    assert command_key(spec) == command_key(replace(spec, name="b", workload=Workload("vgg16", 1), expected_time_s=1.0))
    others = [{"command": ("train", "x")}, {"directory": Path("/x")}, {"environment": (("A", "b"),)}, {"gpus": 2}]
    assert len({command_key(spec), *[command_key(replace(spec, **change)) for change in others]}) == 5


@pytest.mark.slow
def test_a_run_learns_from_its_first_copy_and_the_next_run_and_dry_run_from_it(doubles):
    first = job("long", "sleep", "0.4", like="low", expected_time_s=100, count=4)
    late = job("late", "sleep", "0.4", like="low", expected_time_s=100, arrival_s=2)
    result = doubles.run(jobs_of(first, late))
    rows = result.jobs.set_index("job")
    assert rows["predicted_s"]["long-0"] > 10.0
    assert rows["predicted_by"]["long-0"].startswith("like ")
    assert rows["predicted_by"]["late"].startswith("measured: long-")
    assert rows["predicted_s"]["late"] == pytest.approx(rows["execution_s"]["late"], rel=0.6)
    given = {
        "policy": "random:all-at-once",
        "devices": "nvml:0",
        "predictor": ToyPredictor(),
        "seed": 0,
        "allow_clocks": False,
    }
    found = dry_run(doubles.write(jobs_of(first)), doubles.folder / "dry", **given)
    assert all(by.startswith("measured: long-") for by in found.jobs["predicted_by"])
    again = doubles.run(jobs_of(first), into="again").jobs
    assert all(by.startswith("measured: long-") for by in again["predicted_by"])
    state = run_journal.read_state(doubles.folder / "again")
    assert len(state.learned) == 1  # the journal has what the run was planned by
    assert doubles.traces() == []
