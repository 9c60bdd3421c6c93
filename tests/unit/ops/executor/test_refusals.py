"""What real GPUs cannot run, and states of cards in which jobs would fail: refused or noted before anything starts."""

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
def test_jobs_refused(doubles, text, message):
    """Run and dry run refuse jobs that cannot run here, with their row, before a card is asked."""
    host = BareHost()
    for attempt in (lambda: doubles.run(text, host=host), lambda: plan(doubles, text, host)):
        with pytest.raises(InputError, match="row 2") as refused:
            attempt()
        assert message in str(refused.value)
    assert not (doubles.folder / "run").exists()
    assert doubles.fake.get("calls") == 0


@pytest.mark.parametrize(
    ("figure", "value", "message"),
    [
        ("compute_mode", 3, "without MPS"),
        ("remap_failed", 1, "remapped"),
        ("compute_mode", 2, "prohibited"),
    ],
)
def test_card_refused(doubles, figure, value, message):
    """Run and dry run refuse a card on which jobs would fail; no job is charged with it."""
    (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    doubles.fake.set(figure, value)
    for attempt in (lambda: doubles.run(TRUE), lambda: plan(doubles, TRUE)):
        with pytest.raises(DeviceError, match=message):
            attempt()
        assert nothing_started(doubles)


def test_exclusive_with_mps(doubles):
    """With MPS an exclusive card is used: all jobs are clients of one server; commands need no libraries."""
    doubles.fake.set("compute_mode", 3)
    assert doubles.run(TRUE, host=BareHost()).complete


@pytest.mark.parametrize(("reasons", "told"), [(0, 1), (1, 0), (4, 0)], ids=["held", "idle", "at its power limit"])
def test_held_clock(doubles, reasons, told):
    """A clock that is held low is noted once, unless the card has a reason for it."""
    doubles.fake.set("sm_mhz", 210)
    doubles.fake.set("reasons", reasons)
    notes = doubles.run(TRUE).notes
    assert sum("its clock is 210 of 1980 MHz" in note for note in notes) == told


@pytest.mark.slow
def test_held_under_load(doubles):
    """A clock that stays low under load is noted once."""
    doubles.fake.set("sm_mhz", 210)
    doubles.fake.set("reasons", 1)
    raised = doubles.once_started(lambda: doubles.fake.set("reasons", 0))
    notes = doubles.run(jobs_of(job("a", "sleep", "5"))).notes
    raised.join()
    assert sum("its clock is 210 of 1980 MHz" in note for note in notes) == 1
