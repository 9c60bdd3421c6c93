"""What real GPUs cannot run, and states of cards in which jobs would fail: refused or told before anything starts."""

from __future__ import annotations

import pytest
from support.job_rows import job, jobs_of

from heshare.ops.executor.dry_run import dry_run
from heshare.ops.executor.host import Host
from heshare.shared.errors import DeviceError, InputError
from heshare.testing.toy import ToyPredictor

TRUE = jobs_of(job("a", "true", count=2))
LACK = "torch missing: pip install 'heshare[live]'"
WORKLOAD = "jobs:\n  - {name: w, workload: 'resnet50:8', iterations: 3}\n"


class BareHost(Host):
    """A machine without PyTorch."""

    def models_lack(self):
        return LACK


def plan(doubles, text, host=None, devices="nvml:0"):
    return dry_run(
        doubles.write(text), doubles.folder / "run", policy="random:all-at-once", devices=devices,
        predictor=ToyPredictor(), seed=0, allow_clocks=False, host=host,
    )  # fmt: skip


def nothing_started(doubles):
    outputs = doubles.folder / "run" / "outputs"
    return doubles.traces() == [] and not (outputs.exists() and list(outputs.iterdir()))


@pytest.mark.parametrize(
    ("text", "message"),
    [(WORKLOAD, LACK), (jobs_of(job("pair", "true", gpus=2)), "2 GPUs for one job")],
    ids=["a workload without its libraries", "a job on several GPUs"],
)
def test_jobs_that_cannot_run_here_are_refused_by_the_run_and_the_dry_run(doubles, text, message):
    """With the row of the file, before a card is asked."""
    host = BareHost()
    for attempt in (lambda: doubles.run(text, host=host), lambda: plan(doubles, text, host)):
        with pytest.raises(InputError, match="row 2") as refused:
            attempt()
        assert message in str(refused.value)
    assert not (doubles.folder / "run").exists()
    assert doubles.fake.get("calls") == 0


def test_commands_need_no_libraries(doubles):
    """They may be anything."""
    assert doubles.run(TRUE, host=BareHost()).complete


@pytest.mark.parametrize(
    ("figure", "value", "message"),
    [
        ("compute_mode", 3, "exclusive process, and without MPS"),
        ("remap_failed", 1, "row could not be remapped"),
        ("compute_mode", 2, "prohibited"),
    ],
)
def test_a_card_on_which_jobs_would_fail_is_refused(doubles, figure, value, message):
    """No job is charged with it; the dry run says the same."""
    (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    doubles.fake.set(figure, value)
    for attempt in (lambda: doubles.run(TRUE), lambda: plan(doubles, TRUE)):
        with pytest.raises(DeviceError, match=message):
            attempt()
        assert nothing_started(doubles)


def test_exclusive_mode_is_no_obstacle_with_mps(doubles):
    """All jobs are then clients of one server."""
    doubles.fake.set("compute_mode", 3)
    assert doubles.run(TRUE).complete


@pytest.mark.parametrize(("reasons", "told"), [(0, 1), (1, 0), (4, 0)], ids=["held", "idle", "at its power limit"])
def test_a_clock_that_somebody_holds_low_is_told_at_the_start(doubles, reasons, told):
    """Once, though not where the card itself has a reason for it."""
    doubles.fake.set("sm_mhz", 210)
    doubles.fake.set("reasons", reasons)
    notes = doubles.run(TRUE).notes
    assert sum("its clock is 210 of 1980 MHz" in note for note in notes) == told


@pytest.mark.slow
def test_a_clock_that_stays_low_under_load_is_told_once(doubles):
    """It may have been idle at the start."""
    doubles.fake.set("sm_mhz", 210)
    doubles.fake.set("reasons", 1)
    raised = doubles.once_started(lambda: doubles.fake.set("reasons", 0))
    notes = doubles.run(jobs_of(job("a", "sleep", "5"))).notes
    raised.join()
    assert sum("its clock is 210 of 1980 MHz" in note for note in notes) == 1
