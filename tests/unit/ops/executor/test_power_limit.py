"""Power limits in the executor, over stand-ins for NVML and MPS: held starts, lowered clocks, notes, resumed runs."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from support.job_rows import job, jobs_of
from support.run_entries import journal_lines

from heshare.lab.limits.power_budget import PowerBudget
from heshare.lab.limits.run_terms import RunTerms
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
        predictor=predictor or ToyPredictor(), terms=RunTerms.parse(limit),
        options=execute.ExecutorOptions(timeouts=timeouts),
    )  # fmt: skip


def entries(doubles, kind):
    return [row[kind] for row in journal_lines(doubles.folder / "run") if kind in row]


def actions(doubles, kind):
    decided = [(row["t"], action) for row in entries(doubles, "decision") for action in row["actions"]]
    return [(t, *action[1:]) for t, action in decided if action[0] == kind]


@pytest.mark.slow
def test_a_start_waits_until_readings_show_that_there_is_power(doubles):
    result = run(doubles, (0.6, 0.6), PowerBudget.constant(850.0), predictor=GloomyPredictor())
    assert result.complete
    (first_s, first, *_), (second_s, second, *_) = actions(doubles, "start")
    assert (first, second) == ("j0", "j1")
    assert second_s - first_s >= TIMES.settle_s, "at once both might draw 1,400 W; the reading is 200 W"
    assert "power limit: 1 starts wait for power within 850 W" in result.notes
    assert doubles.traces() == []


@pytest.mark.slow
def test_resume_keeps_the_limit_and_counts_from_the_start_of_the_run(doubles):
    budget = PowerBudget((0.0, 3600.0), (850.0, 1000.0))
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(BaseException, match="SIGTERM"):
        run(doubles, (1.0,), budget)
    ended.join()
    assert entries(doubles, "run")[0]["power_limit"] == [[0.0, 850.0], [3600.0, 1000.0]]
    seen = []
    shifted = PowerBudget.shifted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PowerBudget, "shifted", lambda self, s: seen.append((self, s)) or shifted(self, s))
        assert doubles.resume().complete
    ((kept, elapsed_s),) = seen
    assert kept == budget
    assert elapsed_s > 0.0


def test_a_limit_that_the_gpus_cannot_keep_is_refused_before_anything_starts(doubles):
    with pytest.raises(InputError, match="when one H100 is busy at its own clock"):
        run(doubles, (0.1,), PowerBudget.constant(500.0))
    assert not (doubles.folder / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("clocks", [True, False])
def test_while_power_is_read_above_the_limit_nothing_starts_and_no_clock_rises(doubles, clocks):
    unsettled = Timeouts(poll_s=0.05, grace_s=0.5)  # the default: no reading settles within this run
    high = []

    def raise_power():
        doubles.fake.set("power_mw", 600_000)
        high.append(time.time())
        time.sleep(5.0)
        high.append(time.time())
        doubles.fake.set("power_mw", 100_000)

    raised = doubles.once_started(raise_power)
    result = run(doubles, [1.0] * 10, PowerBudget.constant(900.0), clocks=clocks, timeouts=unsettled)
    raised.join()
    assert result.complete
    (began_s, ended_s), at = high, entries(doubles, "session")[0]["at"]
    starts = [t for t, *_ in actions(doubles, "start")]
    assert any(at + t > ended_s for t in starts)
    # A reading may be a second old, and the GPUs are looked at every second.
    assert [t for t in starts if began_s + 1.5 < at + t < ended_s] == []
    moves = {gpu: [1980] for gpu in (0, 1)}
    for t, gpu, sm_mhz in actions(doubles, "clock"):
        if at + t < ended_s:
            moves[gpu].append(sm_mhz or 1980)
    late = [mhz for mhz in moves.values() if mhz != sorted(mhz, reverse=True)]
    assert late == [], "while it is above, clocks only fall"
    assert not clocks or min(min(mhz) for mhz in moves.values()) < 1100, "within seconds, not after each has settled"
    assert any("1200 W were read where 900 W are allowed" in note for note in result.notes)
    assert doubles.traces() == []
