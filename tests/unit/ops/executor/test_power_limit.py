"""Power limits in the executor, over stand-ins for NVML and MPS: held starts, lowered clocks, notes, resumed runs."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from support.job_rows import job, jobs_of
from support.run_entries import journal_lines
from support.waiting import until

from heshare.lab.limits import PowerLimit
from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.prediction.predictor import CoRuns
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor

TIMES = Timeouts(poll_s=0.05, grace_s=0.5, settle_s=0.2)


class GloomyPredictor(ToyPredictor):
    """A predictor that takes every GPU for one at its TDP."""

    def co_run(self, sets, gpu, sm_mhz):
        found = super().co_run(sets, gpu, sm_mhz)
        return CoRuns(found.time_s, np.full(len(sets), gpu.tdp_w))


def run(doubles, sleeps_s, limit, *, clocks=False, predictor=None, timeouts=TIMES):
    file = doubles.write(jobs_of(*[job(f"j{number}", "sleep", f"{s}") for number, s in enumerate(sleeps_s)]))
    return execute.execute(
        file, doubles.folder / "run", policy="fifo", devices="nvml", allow_clocks=clocks,
        predictor=predictor or ToyPredictor(), power_limit=limit,
        options=execute.ExecutorOptions(timeouts=timeouts),
    )  # fmt: skip


def entries(doubles, kind):
    return [row[kind] for row in journal_lines(doubles.folder / "run") if kind in row]


def actions(doubles, kind):
    decided = [(row["t"], action) for row in entries(doubles, "decision") for action in row["actions"]]
    return [(t, *action[1:]) for t, action in decided if action[0] == kind]


@pytest.mark.slow
def test_a_start_waits_until_readings_show_that_there_is_power(doubles):
    result = run(doubles, (0.6, 0.6), PowerLimit.parse(850.0), predictor=GloomyPredictor())
    assert result.complete
    (first_s, first, *_), (second_s, second, *_) = actions(doubles, "start")
    assert (first, second) == ("j0", "j1")
    assert second_s - first_s >= TIMES.settle_s, "at once both might draw 1,400 W; the reading is 200 W"
    assert "power limit: 1 starts wait for power within 850 W" in result.notes
    assert doubles.traces() == []


@pytest.mark.slow
def test_resume_keeps_the_limit_and_counts_from_the_start_of_the_run(doubles):
    limit = PowerLimit((0.0, 3600.0), (850.0, 1000.0))
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(BaseException, match="SIGTERM"):
        run(doubles, (1.0,), limit)
    ended.join()
    assert entries(doubles, "run")[0]["power_limit"] == [[0.0, 850.0], [3600.0, 1000.0]]
    seen = []
    later = PowerLimit.later
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PowerLimit, "later", lambda self, s: seen.append((self, s)) or later(self, s))
        assert doubles.resume().complete
    ((kept, elapsed_s),) = seen
    assert kept == limit
    assert elapsed_s > 0.0


def test_a_limit_that_the_gpus_cannot_keep_is_refused_before_anything_starts(doubles):
    with pytest.raises(InputError, match="when one H100 is busy at its default clock"):
        run(doubles, (0.1,), PowerLimit.parse(500.0))
    assert not (doubles.folder / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("clocks", [True, False])
def test_while_power_is_read_above_the_limit_nothing_starts_and_no_clock_rises(doubles, clocks):
    """The clocks of busy GPUs fall within seconds, not after each change has settled."""
    unsettled = Timeouts(poll_s=0.05, grace_s=0.5, settle_s=5.0)  # no reading settles while the power is high
    while_high = []

    def raise_power():
        doubles.fake.set("power_mw", 600_000)
        assert until(lambda: any("1200 W were read" in note["text"] for note in entries(doubles, "note")))
        time.sleep(3.0)
        while_high.extend(journal_lines(doubles.folder / "run"))
        doubles.fake.set("power_mw", 100_000)

    raised = doubles.once_started(raise_power)
    result = run(doubles, [1.0] * 10, PowerLimit.parse(900.0), clocks=clocks, timeouts=unsettled)
    raised.join()
    assert result.complete
    told = next(place for place, row in enumerate(while_high) if "were read" in row.get("note", {}).get("text", ""))
    decided = [action for row in while_high[told:] for action in row.get("decision", {}).get("actions", ())]
    assert [action for action in decided if action[0] == "start"] == []
    for gpu in (0, 1):
        clocks_mhz = [action[2] or 1980 for action in decided if action[:2] == ["clock", gpu]]
        assert clocks_mhz == sorted(clocks_mhz, reverse=True)
    lowest_mhz = min((action[2] or 1980 for action in decided if action[0] == "clock"), default=1980)
    assert (lowest_mhz < 1980) is clocks
    assert doubles.traces() == []
