"""Power limits in the executor, over stand-ins for NVML and MPS: held starts, lowered clocks, notes, resumed runs."""

from __future__ import annotations

import os
import signal

import pytest
from support.job_rows import job, jobs_of
from support.run_entries import journal_lines
from support.waiting import until

from heshare.lab.limits import PowerLimit
from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor

TIMES = Timeouts(poll_s=0.05, grace_s=0.5, settle_s=0.2)


def run(doubles, commands, limit, *, clocks=False, timeouts=TIMES):
    file = doubles.write(jobs_of(*[job(f"j{number}", "sh", "-c", text) for number, text in enumerate(commands)]))
    return execute.execute(
        file, doubles.folder / "run", policy="fifo", devices="nvml", allow_clocks=clocks,
        predictor=ToyPredictor(), power_limit=limit,
        options=execute.ExecutorOptions(timeouts=timeouts),
    )  # fmt: skip


def entries(doubles, kind):
    return [row[kind] for row in journal_lines(doubles.folder / "run") if kind in row]


def actions(doubles, kind):
    decided = [(row["t"], action) for row in entries(doubles, "decision") for action in row["actions"]]
    return [(t, *action[1:]) for t, action in decided if action[0] == kind]


@pytest.mark.nightly
def test_resume_keeps_limit(doubles):
    """A resumed run keeps the limit, whose times count from the start of the run."""
    limit = PowerLimit((0.0, 3600.0), (850.0, 1000.0))
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(BaseException, match="SIGTERM"):
        run(doubles, ("sleep 1",), limit)
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


def test_limit_refused(doubles):
    """A limit that the GPUs cannot keep is refused before anything starts."""
    with pytest.raises(InputError, match="H100"):
        run(doubles, ("true",), PowerLimit.parse(500.0))
    assert not (doubles.folder / "run").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("clocks", [True, False])
def test_above_limit(doubles, clocks):
    """While power is read above the limit nothing starts, no clock rises; clocks fall, or the newest job is paused."""
    never_settled = Timeouts(poll_s=0.05, grace_s=0.5, settle_s=600.0)  # no reading counts below the limit here
    while_high = []

    def decided():
        """The actions since the excess was noted."""
        rows = journal_lines(doubles.folder / "run")
        noted = [place for place, row in enumerate(rows) if "1200 W" in row.get("note", {}).get("text", "")]
        later = rows[noted[0] :] if noted else []
        return [action for row in later for action in row.get("decision", {}).get("actions", ())]

    def completed():
        """The jobs after whose end there was a decision."""
        return {one for row in entries(doubles, "decision") if row["event"] == "completion" for one in row["jobs"]}

    def paused():
        return [row for row in entries(doubles, "end") if row["outcome"] == "paused"]

    def raise_power():
        doubles.fake.set("power_mw", 600_000)
        try:
            assert until(lambda: any("1200 W" in note["text"] for note in entries(doubles, "note")))
            # The jobs run on until a clock has fallen; then GPUs become free, on which nothing may start.
            assert until(lambda: not clocks or any(action[0] == "clock" for action in decided()))
            (doubles.folder / "go").touch()
            assert until(lambda: len(actions(doubles, "start")) == len(completed()) + len(paused()))
            while_high.extend(decided())
        finally:
            (doubles.folder / "go").touch()
            doubles.fake.set("power_mw", 100_000)

    raised = doubles.once_started(raise_power)
    command = f"until [ -e {doubles.folder / 'go'} ]; do sleep 0.05; done"
    result = run(doubles, [command] * 4, PowerLimit.parse(900.0), clocks=clocks, timeouts=never_settled)
    raised.join()
    assert result.complete
    assert [action for action in while_high if action[0] == "start"] == []
    for gpu in (0, 1):
        clocks_mhz = [action[2] or 1980 for action in while_high if action[:2] == ["clock", gpu]]
        assert clocks_mhz == sorted(clocks_mhz, reverse=True)
    lowest_mhz = min((action[2] or 1980 for action in while_high if action[0] == "clock"), default=1980)
    assert (lowest_mhz < 1980) is clocks
    assert len(paused()) == (0 if clocks else 1)
    assert doubles.traces() == []
