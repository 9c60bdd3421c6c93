"""What is read of Slurm: GPUs of its nodes, types and shares, and its queue."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_slurm import NODE, FakeSlurm

from heshare.ops.slurm import slurm_queue
from heshare.ops.slurm.slurm_cards import read_cards, read_types
from heshare.ops.slurm.slurm_queue import SlurmError, call, parse_json, read_queue
from heshare.shared.errors import InputError

TYPES = {"T4a": "T4", "V100a": "V100"}


def test_each_type_of_a_node_is_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSlurm(monkeypatch, NODE, "NodeName=node2 Gres=gpu:a100:1,mps:a100:200 State=MIXED+PLANNED Partitions=all")
    cards, notes = read_cards(TYPES)
    found = [(card.key, card.gpu.name, card.gres, card.shares, card.partitions) for card in cards]
    assert found == [
        ("node2/a100", "A100", "mps", 200, ("all",)),
        ("node1/T4a", "T4", "shard", 100, ("gpu", "all")),
        ("node1/V100a", "V100", "shard", 100, ("gpu", "all")),
    ]
    assert not notes


@pytest.mark.parametrize(
    ("gres", "state", "note"),
    [
        ("gpu:T4:2,shard:T4:200", "IDLE", "2 cards have it"),
        ("gpu:T4:1", "IDLE", "it is not shared; add Name=shard Type=T4 Count=100"),
        ("gpu:T9:1,shard:T9:100", "IDLE", "no GPU of data/gpus.csv is called T9"),
        ("gpu:1,shard:100", "IDLE", "give each one a Type="),
        ("gpu:T4:1,shard:T4:100", "IDLE+DRAIN", "is IDLE+DRAIN: its GPUs are left out"),
        ("gpu:T4:1,gpu:V100:1,mps:T4:100,mps:V100:100", "IDLE", "one GPU of node n at a time by gres mps"),
    ],
)
def test_what_cannot_be_shared_is_left_out_with_a_line(
    gres: str, state: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSlurm(monkeypatch, f"NodeName=n Gres={gres} State={state} Partitions=gpu", "NodeName=m Gres=(null) State=IDLE")
    cards, notes = read_cards({})
    assert len(cards) == (2 if "mps" in gres else 0)
    assert len(notes) == 1
    assert note in notes[0]


def test_types_are_read_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "types.yaml"
    file.write_text("T4a: t4\nV100a: V100\n")
    assert read_types(file) == TYPES
    file.write_text("T4a: T44\n")
    with pytest.raises(InputError, match=r"row 1, column T4a: found 'T44'"):
        read_types(file)


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
    one, none = ({"set": True, "infinite": False, "number": number} for number in (1, 0))
    row: dict[str, Any] = {
        "job_id": 5, "user_name": "ann", "partition": "gpu", "job_state": ["PENDING"], "state_reason": "JobHeldUser",
        "comment": {"administrator": "a", "job": "heshare like=low iterations=1", "system": ""}, "dependency": "",
        "node_count": one, "array_job_id": none, "tres_per_job": "gres/gpu:1", "tres_per_node": "",
    }  # fmt: skip
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
