"""Plan files: a plan read back is equal, bad files are refused, and `heshare run --plan` runs one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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


HALF = replace(CLUSTER.gpus[0], name="Half-T4", sm_count=20)
TRAINING = hs.Task(0, hs.Workload("miso_gnn", 64, phase="training"), 7.0, 1.0, gpus=2, widths=(2, 4), priority=1)
FP16 = hs.Task(1, hs.Workload("resnet18", 8, "fp16", "tensorrt"), 2.5, deadline_s=9.0, epochs=3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cluster": hs.Cluster((HALF, CLUSTER.gpus[1]))},
        {"tasks": (TRAINING, FP16), "queues": ((Batch((0,), (100,)),), (Batch((1,), (100,)),))},
    ],
    ids=["plan", "other GPU", "all fields of tasks"],
)
def test_read_back(changes: dict[str, Any], tmp_path: Path) -> None:
    """A plan that is read back is equal."""
    plan = replace(PLAN, **changes)
    assert hs.read_plan(hs.write_plan(tmp_path / "plan.json", plan)) == plan


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ("", r"plan\.json"),
        ("gpu,batch\n", r"plan\.json"),
        ("[]", r"plan\.json"),
        ('{"format": "heshare plan 9"}', r"plan\.json"),
        ({"cluster": ["T4"]}, "2 GPUs"),
        ({"cluster": ["T5", "A100"]}, "'T5'"),
        ({"queues": [[], []]}, "tasks missing"),
        ({"queues": 3}, "plan file"),
        ({"tasks": [{"id": 0}]}, "plan file"),
        ({"jct_s": -5.0}, "jct_s"),
        ({"energy_j": -5.0}, "energy_j"),
    ],
)
def test_bad_file(changes: str | dict[str, object], found: str, tmp_path: Path) -> None:
    """A file that is no plan, and a plan that cannot run, are refused."""
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    text = changes if isinstance(changes, str) else json.dumps({**json.loads(file.read_text()), **changes})
    file.write_text(text)
    with pytest.raises(InputError, match=found):
        hs.read_plan(file)


def test_run_of_file(tmp_path: Path) -> None:
    """`heshare run --plan` gives the run of the plan."""
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    done = CliRunner().invoke(app, ["run", "--plan", str(file), "--cluster", "1xT4,1xA100", "--json"])
    assert done.exit_code == 0, done.output
    printed, own = json.loads(done.stdout), hs.run(TASKS, CLUSTER, PLAN).summary()
    assert not [name for name in own if name != "planning_s" and printed[name] != own[name]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--tasks", "4"), "4 tasks"),
        (("--tasks", "3"), "task 0"),
        (("--cluster", "2xT4"), "2xT4"),
        (("--policy", "random"), "policy"),
    ],
)
def test_other_options(words: tuple[str, str], found: str, tmp_path: Path) -> None:
    """A plan with other tasks, another cluster or a policy is refused."""
    file = hs.write_plan(tmp_path / "plan.json", PLAN)
    done = CliRunner().invoke(app, ["run", "--plan", str(file), *words])
    assert done.exit_code == 2
    assert not done.stdout
    assert found in done.stderr
