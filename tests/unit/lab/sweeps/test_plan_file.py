"""Plan files: a plan read back is equal, bad files are refused, and `heshare run --plan` runs one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.errors import InputError

CLUSTER = hs.Cluster.parse("1xT4,1xA100")
TASKS = (
    hs.Task(0, hs.Workload("resnet50", 8), 1000 / 3),
    hs.Task(1, hs.Workload("vgg19", 4), 20.0, gpus=1, priority=2, deadline_s=1e6),
    hs.Task(2, hs.Workload("gpt2", 4), 7.0),
)
PLAN = Plan(CLUSTER, TASKS, ((Batch((0, 1), (40, 60), 1005),), (Batch((2,), (100,)),)), 1 / 7, 2 / 7)


def refusal(*words: object) -> str:
    """The message of `heshare run --plan` with these words, which must be refused."""
    done = CliRunner().invoke(app, ["run", *map(str, words)])
    assert done.exit_code == 2
    assert not done.stdout
    return done.stderr


def test_plan_read_back_is_equal(tmp_path: Path) -> None:
    assert hs.read_plan(hs.write_plan(tmp_path / "plan.json", PLAN)) == PLAN


def test_plan_on_a_gpu_outside_the_catalogue_is_read_back(tmp_path: Path) -> None:
    half = replace(CLUSTER.gpus[0], name="Half-T4", sm_count=20)
    own = replace(PLAN, cluster=hs.Cluster((half, CLUSTER.gpus[1])))
    assert hs.read_plan(hs.write_plan(tmp_path / "plan.json", own)) == own


@pytest.mark.parametrize("text", ["", "gpu,batch\n", "[]", "{}", '{"format": "heshare plan 9"}', '{"format": 1}'])
def test_read_plan_refuses_other_files(text: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"plan\.json: found .*expected a plan file"):
        hs.read_plan(file)
    with pytest.raises(InputError, match="expected a plan file"):
        hs.read_plan(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cluster", ["T4"], "queues for 2 GPUs"),
        ("cluster", ["T5", "A100"], "found 'T5'"),
        ("queues", [[], []], "tasks missing"),
        ("queues", 3, "expected a plan file"),
        ("tasks", [{"id": 0}], "expected a plan file"),
    ],
)
def test_read_plan_refuses_a_plan_that_cannot_run(field: str, value: object, message: str, tmp_path: Path) -> None:
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
    with pytest.raises(InputError, match=message):
        hs.read_plan(file)


def test_run_of_a_plan_file_is_that_of_the_plan(tmp_path: Path) -> None:
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    done = CliRunner().invoke(app, ["run", "--plan", str(file), "--cluster", "1xT4,1xA100", "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    own = hs.run(TASKS, CLUSTER, PLAN).summary()
    assert {name: printed[name] for name in own if name != "planning_s"} == {
        name: value for name, value in own.items() if name != "planning_s"
    }


def test_run_refuses_a_plan_with_other_tasks_cluster_or_options(tmp_path: Path) -> None:
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    assert "found 4 tasks" in refusal("--plan", file, "--tasks", 4)
    assert "a task 0 that is not the plan's" in refusal("--plan", file, "--tasks", 3)
    assert "the cluster 2xT4" in refusal("--plan", file, "--cluster", "2xT4")
    assert "--plan and policy" in refusal("--plan", file, "--policy", "random")
    assert "no-such.json" in refusal("--plan", tmp_path / "no-such.json")


@pytest.mark.parametrize("name", ["jct_s", "energy_j"])
def test_negative_predictions_are_refused(tmp_path: Path, name: str) -> None:
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    content = json.loads(file.read_text()) | {name: -5.0}
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=name):
        hs.read_plan(file)


def test_tasks_of_a_plan_file_keep_all_their_attributes(tmp_path: Path) -> None:
    training = hs.Task(0, hs.Workload("miso_gnn", 64, phase="training"), 7.0, 1.0, gpus=2, widths=(2, 4), priority=1)
    half = hs.Task(1, hs.Workload("resnet18", 8, "fp16", "tensorrt"), 2.5, deadline_s=9.0, epochs=3)
    own = replace(PLAN, tasks=(training, half), queues=((Batch((0,), (100,)),), (Batch((1,), (100,)),)))
    assert hs.read_plan(hs.write_plan(tmp_path / "plan.json", own)) == own
