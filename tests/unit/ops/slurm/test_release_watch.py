"""Watch of a queue: what is released in each round."""

import pytest
from support.fake_slurm import FakeSlurm

from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.ops.slurm.release_plan import PlanSettings
from heshare.ops.slurm.release_watch import ReleaseWatch
from heshare.shared.errors import HeShareError

LONG, SHORT = ("heshare like=resnet50:8 iterations=9000", "heshare like=resnet50:8 iterations=10")


def opened(told: list[str], policy: str = "sjf", *, carry_out: bool = True) -> ReleaseWatch:
    settings = PlanSettings(policy, load_predictor(), {"T4a": "T4", "V100a": "V100"})
    return ReleaseWatch(settings, told.append, carry_out=carry_out)


def released(slurm: FakeSlurm) -> list[int]:
    return [int(command[2]) for command in slurm.commands if command[1] == "release"]


def test_what_waits_stays_held_and_is_planned_again_with_new_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(monkeypatch)
    told: list[str] = []
    watch = opened(told)
    assert watch.round() == 0
    for _ in range(3):
        slurm.submit(LONG)
    assert watch.round() == 2
    assert watch.round() == 0
    assert released(slurm) == [1, 2]
    slurm.submit(SHORT)
    assert watch.round() == 0
    slurm.end(1)
    assert watch.round() == 1
    assert released(slurm) == [1, 2, 4]
    slurm.end(2, 4)
    assert watch.round() == 1
    assert released(slurm) == [1, 2, 4, 3]
    assert not [word for command in slurm.commands for word in command if word.startswith("Dependency")]


def test_another_watch_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(monkeypatch)
    for _ in range(3):
        slurm.submit(LONG)
    opened([]).round()
    watch = opened([])
    assert watch.round() == 0
    slurm.end(2)
    assert watch.round() == 1
    assert released(slurm) == [1, 2, 3]


def test_a_placed_job_that_is_held_again_is_left_to_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(monkeypatch)
    told: list[str] = []
    slurm.submit(f"{LONG} gpu=node1/T4a mps_pct=100", tres_per_node="gres:shard:T4a:100")
    watch = opened(told)
    assert watch.round() + watch.round() == 0
    assert slurm.commands == []
    assert [line.split(":")[0] for line in told] == ["Job 1 has a place and is held"]
    slurm.submit(LONG)
    assert watch.round() == 1
    assert "Gres=shard:T4a:100" in slurm.commands[0], "a job that is held does not keep its GPU busy"


def test_a_round_that_fails_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(monkeypatch)
    told: list[str] = []
    slurm.submit(LONG)
    slurm.refuse = ("release", "1")
    watch = opened(told)
    with pytest.raises(HeShareError):
        watch.round()
    rounds = iter([None, KeyboardInterrupt])

    def sleep(seconds: float) -> None:
        assert seconds == 5
        slurm.refuse = ()
        stop = next(rounds)
        if stop:
            raise stop

    monkeypatch.setattr("heshare.ops.slurm.release_watch.time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch.run(5)
    assert released(slurm) == []
    assert any("has a place and is held" in line for line in told)


def test_a_watch_without_yes_only_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(monkeypatch)
    told: list[str] = []
    slurm.submit(LONG)
    assert opened(told, carry_out=False).round() == 1
    assert slurm.commands == []
    assert [line.split()[:2] for line in told] == [["scontrol", "update"], ["scontrol", "release"]]
