"""Plans for held jobs and their release: commands, continuation, refusals, the watch, and the command line."""

import json
import shlex

import pytest
from support.fake_slurm import NODE, FakeSlurm
from typer.testing import CliRunner

from heshare.cli import app
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.ops.slurm import release_plan
from heshare.ops.slurm.release_plan import (
    PlanSettings,
    ReleasePlan,
    ReleaseWatch,
    apply_release,
    plan_release,
    read_state,
)
from heshare.ops.slurm.slurm_queue import SlurmError
from heshare.shared.errors import InputError

WORK, LONG, SHORT = (f"heshare like=resnet50:8 iterations={count}" for count in (1000, 9000, 10))
TYPES = {"T4a": "T4", "V100a": "V100"}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path) -> FakeSlurm:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "types.yaml").write_text("T4a: T4\nV100a: V100\n")
    return FakeSlurm(monkeypatch)


def made(policy: str = "fifo", **changed: object) -> ReleasePlan:
    settings = PlanSettings(policy, load_predictor(), TYPES, **changed)  # type: ignore[arg-type]
    return plan_release(read_state(settings), settings)


def test_commands_give_places_first_and_release_afterwards(slurm: FakeSlurm) -> None:
    for _ in range(3):
        slurm.submit(WORK)
    slurm.submit("of somebody else")
    slurm.submit(WORK, state_reason="JobHeldAdmin")
    commands = made().commands
    assert [shlex.join(command) for command in commands] == [
        f"scontrol update JobId=1 Gres=shard:T4a:100 ReqNodeList=node1 'Comment={WORK} gpu=node1/T4a mps_pct=100'",
        f"scontrol update JobId=2 Gres=shard:V100a:100 ReqNodeList=node1 'Comment={WORK} gpu=node1/V100a mps_pct=100'",
        "scontrol update JobId=3 Gres=shard:V100a:100 ReqNodeList=node1 Dependency=afterany:2 "
        f"'Comment={WORK} gpu=node1/V100a mps_pct=100'",
        *[f"scontrol release {job}" for job in (1, 2, 3)],
    ]
    assert slurm.commands == []
    apply_release(made())
    assert slurm.commands == list(commands)
    assert made().commands == ()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tres_per_node": "gres:shard:T4a:10"}, "it asks for gres:shard:T4a:10 itself"),
        ({"array_job_id": 1}, "it is a job array"),
        ({"node_count": 2}, "it asks for 2 nodes"),
        ({"dependency": "afterok:17(unfulfilled)"}, "it depends on other jobs"),
        ({"comment": "heshare like=resnet50:8"}, "expected like, and either iterations or expected_time_s"),
    ],
)
def test_jobs_that_cannot_be_placed_are_left_alone_with_a_line(slurm: FakeSlurm, changed, why: str) -> None:
    slurm.submit(**{"comment": WORK, **changed})
    plan = made()
    assert plan.commands == ()
    assert [note for note in plan.notes if note.startswith("Job 1 is left alone: ") and why in note] == [*plan.notes]


def test_new_jobs_wait_for_the_last_ones_of_earlier_plans(slurm: FakeSlurm) -> None:
    for _ in range(3):
        slurm.submit(WORK)
    apply_release(made())
    slurm.submit(WORK)
    (update, release) = made().commands
    assert "Dependency=afterany:1" in update
    assert release == ("scontrol", "release", "4")
    slurm.end(1)
    assert not [word for word in made().commands[0] if word.startswith("Dependency")]


def test_new_jobs_do_not_wait_for_one_that_is_held_after_a_failed_prolog(slurm: FakeSlurm) -> None:
    slurm.submit(f"{WORK} gpu=node1/T4a mps_pct=100", state_reason="launch failed requeued held")
    slurm.submit(WORK)
    plan = made()
    held = "Job 1 has a place on node1/T4a and is held (launch failed requeued held): new jobs do not wait for it."
    assert plan.notes == (held,)
    assert not [word for word in plan.commands[0] if word.startswith("Dependency")]


@pytest.mark.parametrize(
    ("refused", "done"),
    [
        (("release", "2"), "3 of 3 jobs have their place, 2 are released"),
        (("update", "JobId=2"), "1 of 3 jobs have their place, 1 are released"),
    ],
)
def test_a_release_that_slurm_refuses_says_what_was_done_and_is_continued(
    slurm: FakeSlurm, refused: tuple[str, ...], done: str
) -> None:
    for _ in range(3):
        slurm.submit(WORK)
    slurm.refuse = refused
    with pytest.raises(SlurmError, match=f"was refused .*Done all the same: {done}"):
        apply_release(made())
    slurm.refuse = ()
    held = [note for note in made().notes if "have a place and are held: they are released as they are." in note]
    assert len(held) == (refused[0] == "release")
    apply_release(made())
    updates = [command for command in slurm.commands if command[1] == "update"]
    assert sorted(command[2] for command in updates) == ["JobId=1", "JobId=2", "JobId=3"]
    assert {job["state_reason"] for job in slurm.jobs.values()} == {"None"}


def test_partitions_are_planned_one_at_a_time(slurm: FakeSlurm) -> None:
    slurm.nodes = (NODE, "NodeName=node2 Gres=gpu:A100:1,shard:A100:100 State=IDLE Partitions=all")
    slurm.submit(WORK)
    slurm.submit(WORK, partition="all")
    plan = made()
    assert [place.job for place in plan.placements] == [2]
    assert any(note.startswith("Job 1 is left alone: ") and "--partition gpu" in note for note in plan.notes)
    assert [place.job for place in made(partition="gpu").placements] == [1]
    assert [place.job for place in made(partition="all").placements] == [2]
    with pytest.raises(InputError, match="no GPU of Slurm's nodes that jobs can share"):
        made(partition="cpu")


@pytest.mark.parametrize(
    "changed",
    [
        {"comment": "heshare like=gpt2:9000 iterations=5"},
        {"partition": "cpu"},
        {"comment": "heshare like=bert_large:512 iterations=1"},
        {"tres_per_node": "gres:gpu:T4a:1"},
    ],
)
def test_one_users_job_does_not_stop_the_others(slurm: FakeSlurm, changed) -> None:
    slurm.submit(**{"comment": WORK, "user_name": "mallory", **changed})
    honest = slurm.submit(WORK)
    plan = made()
    assert [place.job for place in plan.placements] == [honest]
    assert any(note.startswith("Job 1 is left alone: ") for note in plan.notes)
    told: list[str] = []
    assert opened(told).round() == 1
    assert released(slurm) == [honest]
    assert any(line.startswith("Job 1 is left alone: ") for line in told)


def test_a_job_that_slurm_refuses_to_place_keeps_back_its_followers_alone(slurm: FakeSlurm) -> None:
    for _ in range(5):
        slurm.submit(WORK)
    plan = made()
    first, second = (next(place for place in plan.placements if place.card.kind == kind) for kind in ("T4a", "V100a"))
    slurm.refuse = (f"JobId={first.job}",)
    with pytest.raises(SlurmError, match=f"JobId={first.job} .*was refused"):
        apply_release(plan)
    others = [place.job for place in plan.placements if place.card == second.card]
    assert released(slurm) == others
    watch = opened([])
    with pytest.raises(SlurmError, match="was refused"):
        watch.round()
    watch.round()
    assert len(released(slurm)) == len(others) + 1, "the next job has the card of the one that is refused"


def test_jobs_of_one_user_are_planned_alone(slurm: FakeSlurm) -> None:
    slurm.submit(WORK)
    slurm.submit(WORK, user_name="bob")
    assert "Jobs of ann and bob: MPS runs one user's jobs of a GPU at a time; plan them with --user." in made().notes
    assert [place.job for place in made(user="bob").placements] == [2]
    assert made(user="bob").notes == ()


def opened(told: list[str]) -> ReleaseWatch:
    return ReleaseWatch(PlanSettings("sjf", load_predictor(), TYPES), told.append, carry_out=True)


def released(slurm: FakeSlurm) -> list[int]:
    return [int(command[2]) for command in slurm.commands if command[1] == "release"]


def test_what_waits_stays_held_and_is_planned_again_with_new_jobs(slurm: FakeSlurm) -> None:
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
    assert opened([]).round() == 1, "another watch continues"
    assert released(slurm) == [1, 2, 4, 3]
    assert not [word for command in slurm.commands for word in command if word.startswith("Dependency")]


def test_a_placed_job_that_is_held_again_is_left_to_its_user(slurm: FakeSlurm) -> None:
    told: list[str] = []
    slurm.submit(f"{LONG} gpu=node1/T4a mps_pct=100", tres_per_node="gres:shard:T4a:100")
    watch = opened(told)
    assert watch.round() + watch.round() == 0
    assert slurm.commands == []
    assert [line.split(":")[0] for line in told] == ["Job 1 has a place and is held"]
    slurm.submit(LONG)
    assert watch.round() == 1
    assert "Gres=shard:T4a:100" in slurm.commands[0], "a job that is held does not keep its GPU busy"


def test_a_round_that_fails_is_told_and_tried_again(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    slurm.submit(LONG)
    slurm.refuse = ("release", "1")
    watch = opened(told)
    rounds = iter([None, KeyboardInterrupt])

    def sleep(seconds: float) -> None:
        assert seconds == 5
        slurm.refuse = ()
        stop = next(rounds)
        if stop:
            raise stop

    monkeypatch.setattr(release_plan.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch.run(5)
    assert released(slurm) == []
    assert any("has a place and is held" in line for line in told)


def cli(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["slurm", *words])
    return result.exit_code, result.output


def test_the_command_line_changes_nothing_without_yes(slurm: FakeSlurm, tmp_path) -> None:
    slurm.submit(WORK)
    options = ["--policy", "fifo", "--types", str(tmp_path / "types.yaml")]
    code, text = cli("plan", *options)
    assert code == 0
    assert "node1/T4a" in text
    assert "scontrol release 1" in text
    code, text = cli("apply", *options)
    assert (code, slurm.commands) == (0, [])
    assert "Nothing was changed: add --yes" in text
    code, text = cli("apply", *options, "--json")
    assert json.loads(text.partition("Nothing")[0])["rows"][0]["job"] == 1
    code, text = cli("watch", *options)
    assert (code, slurm.commands) == (0, [])
    assert "scontrol release 1" in text
    code, text = cli("apply", *options, "--yes")
    assert (code, len(slurm.commands)) == (0, 2)
    assert "Released 1 jobs." in text


def test_bad_options_are_refused(slurm: FakeSlurm) -> None:
    assert cli("plan", "--policy", "fifi")[0] == 2
    assert cli("watch", "--every", "soon")[0] == 2
    slurm.nodes = ("NodeName=node1 Gres=(null) State=IDLE",)
    code, text = cli("plan")
    assert code == 2
    assert "docs/slurm.md" in text
