"""Slurm's queue from JSON of two generations."""

import json
from typing import Any

import pytest
from support.fake_slurm import FakeSlurm

from heshare.ops.slurm import slurm_queue
from heshare.ops.slurm.slurm_queue import SlurmError, call, parse_json, read_queue


def test_jobs_that_are_over_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(monkeypatch)
    slurm.submit("heshare like=resnet50:8 iterations=3 gpu=node1/T4a", tres_per_node="gres:shard:T4a:30")
    slurm.submit("two words", dependency="afterany:1(unfulfilled),afterok:17(unfulfilled)", node_count=2)
    slurm.submit(job_state="RUNNING", state_reason="None")
    slurm.end(slurm.submit())
    jobs = read_queue()
    assert [job.id for job in jobs] == [1, 2, 3]
    assert (jobs[0].held, jobs[0].ours, jobs[0].gpu, jobs[0].gres) == (True, True, "node1/T4a", "gres:shard:T4a:30")
    assert (jobs[1].ours, jobs[1].waits_for, jobs[1].nodes) == (False, {1, 17}, 2)
    assert not jobs[2].held


def test_json_of_later_versions_is_read() -> None:
    row: dict[str, Any] = {
        "job_id": 5,
        "user_name": "ann",
        "partition": "gpu",
        "job_state": ["PENDING"],
        "state_reason": "JobHeldUser",
        "comment": {"administrator": "a", "job": "heshare like=low iterations=1", "system": ""},
        "dependency": "",
        "node_count": {"set": True, "infinite": False, "number": 1},
        "array_job_id": {"set": True, "infinite": False, "number": 0},
        "tres_per_job": "gres/gpu:1",
        "tres_per_node": "",
    }
    (job,) = parse_json(json.dumps({"jobs": [row]}))
    assert job.held
    assert job.ours
    assert (job.nodes, job.array, job.gres) == (1, False, "gres/gpu:1")


@pytest.mark.parametrize("text", ["", "[]", '{"jobs": [{}]}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(SlurmError, match="cannot be read"):
        parse_json(text)


def test_slurm_that_is_missing_or_refuses_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="squeue is not on the PATH"):
        slurm_queue.read_queue()
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\necho "slurm_load_node error:" "$SQUEUE_FORMAT" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    with pytest.raises(SlurmError, match=r"scontrol show node: slurm_load_node error:$"):
        call(["scontrol", "show", "node"])
