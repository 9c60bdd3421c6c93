"""What real GPUs cannot run, and states of cards in which jobs would fail: refused or noted before anything starts."""

from __future__ import annotations

import pytest
from support.job_rows import job, jobs_of

from heshare.ops.executor.dry_run import dry_run
from heshare.ops.executor.host import Host
from heshare.shared.errors import DeviceError, InputError
from heshare.testing.toy import ToyPredictor

TRUE = jobs_of(job("a", "true", count=2))
WORKLOAD = "jobs:\n  - {name: w, workload: 'resnet50:8', iterations: 3}\n"


class BareHost(Host):
    """A machine without PyTorch."""

    def models_lack(self):
        return "torch missing"


@pytest.mark.parametrize(
    ("text", "figure", "value", "error", "message"),
    [
        (WORKLOAD, "", 0, InputError, "torch missing"),
        (jobs_of(job("pair", "true", gpus=2)), "", 0, InputError, "2 GPUs for one job"),
        (TRUE, "compute_mode", 3, DeviceError, "without MPS"),
        (TRUE, "compute_mode", 2, DeviceError, "prohibited"),
        (TRUE, "remap_failed", 1, DeviceError, "remapped"),
    ],
)
def test_refused(doubles, text, figure, value, error, message):
    """Run and dry run refuse jobs, before a card is asked, and cards, on which jobs would fail: none is charged."""
    (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    if figure:
        doubles.fake.set(figure, value)

    def plan():
        return dry_run(
            doubles.write(text), doubles.folder / "run", policy="random:all-at-once", devices="nvml:0",
            predictor=ToyPredictor(), seed=0, allow_clocks=False, host=BareHost(),
        )  # fmt: skip

    for attempt in (plan, lambda: doubles.run(text, host=BareHost())):
        with pytest.raises(error, match=message):
            attempt()
        assert doubles.traces() == []
        assert list((doubles.folder / "run").rglob("*.log")) == []
    assert figure or (doubles.fake.get("calls"), (doubles.folder / "run").exists()) == (0, False)


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
