"""A stand-in for squeue and scontrol: it keeps jobs and nodes, answers as Slurm 22.05 does, and may refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from heshare.ops.slurm import release_plan, slurm_cards, slurm_queue
from heshare.ops.slurm.slurm_queue import SlurmError

NODE = (
    "NodeName=node1 Gres=gpu:T4a:1,gpu:V100a:1,shard:T4a:100(S:0),shard:V100a:100 State=IDLE Partitions=gpu,all OS=L 6"
)


class FakeSlurm:
    """Jobs and nodes, changed by the commands of `call`.

    Args:
        monkeypatch: puts it in the place of Slurm's programs.
        nodes: lines of `scontrol show node --oneliner`.

    Attributes:
        jobs: rows of `squeue --json`, by job.
        commands: what was called, apart from questions.
        refuse: a command whose words contain all of these is refused.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nodes: str) -> None:
        self.nodes = nodes or (NODE,)
        self.jobs: dict[int, dict[str, Any]] = {}
        self.commands: list[tuple[str, ...]] = []
        self.refuse: tuple[str, ...] = ()
        for module in (release_plan, slurm_cards, slurm_queue):
            monkeypatch.setattr(module, "call", self.call)

    def submit(self, comment: str = "", **changed: Any) -> int:
        """Add a held job, and return its number."""
        number = len(self.jobs) + 1
        row = {
            "job_id": number,
            "user_name": "ann",
            "partition": "gpu",
            "job_state": "PENDING",
            "state_reason": "JobHeldUser",
            "comment": comment,
            "dependency": "",
            "node_count": 1,
            "array_job_id": 0,
            "tres_per_job": "",
            "tres_per_node": "",
        }
        self.jobs[number] = row | changed
        return number

    def end(self, *jobs: int) -> None:
        for job in jobs:
            self.jobs[job]["job_state"] = "COMPLETED"

    def call(self, command: Sequence[str]) -> str:
        """Answer one command, as `slurm_queue.call` does."""
        if command[0] == "squeue":
            return json.dumps({"jobs": list(self.jobs.values())})
        if command[:3] == ["scontrol", "show", "node"]:
            return "\n".join(self.nodes) + "\n"
        if self.refuse and set(self.refuse) <= set(command):
            raise SlurmError(f"{' '.join(command[:3])}: slurm_update error: Invalid job id specified")
        self.commands.append(tuple(command))
        if command[:2] == ("scontrol", "release"):
            self.jobs[int(command[2])]["state_reason"] = "None"
            return ""
        assert command[:2] == ("scontrol", "update")
        fields = dict(word.split("=", 1) for word in command[2:])
        row = self.jobs[int(fields.pop("JobId"))]
        assert fields.pop("ReqNodeList")
        row["tres_per_node"] = f"gres:{fields.pop('Gres')}"
        row |= {name.lower(): value for name, value in fields.items()}
        return ""
