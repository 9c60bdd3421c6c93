"""The fold of a journal: jobs by state, attempts, energies of jobs and GPUs, and what a killed session leaves."""

from __future__ import annotations

import math

import pytest
from support.run_entries import ended, run_of, sampled, session, started, state_of

from heshare.ops.jobs.entries import Account, Note
from heshare.ops.jobs.run_state import MPS_ENDED


def begin(jobs=3, at=1000.0):
    return state_of(run_of(jobs), session(at))


def end(state, job, energy_j=1.0, outcome="completed", **more):
    state.add(ended(job, outcome, energy_j=energy_j, **more))


def test_counts():
    """Jobs are counted by state, also one that waits for its next attempt."""
    state = begin()
    state.add(started("a-0", "a-1", lasted_s=0.5))
    assert state.counts() == {"waiting": 1, "running": 2, "completed": 0, "failed": 0}
    end(state, "a-0")
    end(state, "a-1", outcome="failed: timeout", again=True)
    assert state.counts() == {"waiting": 2, "running": 0, "completed": 1, "failed": 0}
    state.add(started("a-1"))
    end(state, "a-1", outcome="failed: timeout")
    assert state.counts() == {"waiting": 1, "running": 0, "completed": 1, "failed": 1}
    assert state.decisions == 2


def test_job_energy():
    """The energy of a job is that of its attempts: failed ones are lost, the present one is in its GPU's account."""
    state = begin()
    state.add(started("a-0"))
    end(state, "a-0", 12.0, "failed: crash", again=True)
    state.add(started("a-0", t=3.0))
    state.add(sampled(4.0, Account(30.0, 10.0, {"a-0": 8.0})))
    gpu, job = state.gpus[0], state.jobs["a-0"]
    assert (job.energy_j, job.lost_j, gpu.running_j) == (0.0, 12.0, 8.0)
    assert (gpu.energy_j, gpu.idle_j, gpu.lost_j) == (30.0, 10.0, 12.0)


def test_killed_session():
    """What a killed session ran is lost and waits again; totals go on."""
    state = begin()
    state.add(started("a-0"))
    state.add(sampled(1.0, Account(50.0, 20.0, {"a-0": 30.0}, power_w=80.0, sm_mhz=900.0, counter_j=50.0)))
    state.add(session(2000.0, counters_j=[60.0]))
    gpu, job = state.gpus[0], state.jobs["a-0"]
    assert state.counts()["running"] == 0
    assert (gpu.account.power_w, gpu.account.sm_mhz) == (None, None)
    state.add(started("a-0"))
    state.add(sampled(1.0, Account(7.0, 3.0, {"a-0": 4.0})))
    assert (gpu.energy_j, gpu.idle_j, gpu.lost_j, gpu.running_j) == (57.0, 23.0, 30.0, 4.0)
    assert gpu.between_j == 10.0
    assert (job.attempts, job.lost_j, state.started_s, state.at) == (2, 30.0, 1000.0, 2000.0)

    # What ran at the end of the last session is lost once.
    for _ in range(2):
        state.end_session()
    assert (gpu.lost_j, job.lost_j) == (34.0, 34.0)


def test_charged():
    """Attempts are charged by what they failed of; the end of an MPS daemon is charged to nobody."""
    state = begin(1)
    for outcome, charged in (("failed: crash", True), ("failed: shared", False), (f"failed: {MPS_ENDED}", False)):
        state.add(started("a"))
        end(state, "a", outcome=outcome, charged=charged, again=True)
    job = state.jobs["a"]
    assert (job.attempts, job.charged, job.free, job.over) == (3, 1, 1, False)


def test_pause():
    """A pause that keeps iterations is no loss; one that keeps none is."""
    state = begin(1)
    end(state, "a", 5.0, "paused", iterations=4.0, start_s=0.0, end_s=2.0)
    end(state, "a", 7.0, "paused", iterations=0.0)
    job = state.jobs["a"]
    assert (job.iterations, job.energy_j, job.lost_j, job.execution_s) == (4.0, 5.0, 7.0, 2.0)


def test_first_action():
    """The first action has the accounts before it: energy until then is no job's work."""
    state = begin()
    state.add(started())
    state.add(sampled(2.0, Account(10.0, 10.0)))
    state.add(started("a-0", t=2.0))
    state.add(sampled(9.0, Account(90.0, 10.0, {"a-0": 80.0})))
    decision, accounts = state.sessions[0].first_action
    assert (decision.t, [account.energy_j for account in accounts]) == (2.0, [10.0])


def test_sessions():
    """Notes are kept by session, and a run that was refused has no time; a lost GPU has no power and no clock."""
    refused = state_of(run_of(2))
    assert math.isnan(refused.started_s)
    assert math.isnan(refused.at)
    assert refused.counts()["waiting"] == 2

    state = begin()
    state.add(Note("one"))
    state.add(session(2000.0))
    state.add(Note("two"))
    assert [[note.text for note in one.notes] for one in state.sessions] == [["one"], ["two"]]
    state.add(sampled(1.0, Account(10.0, 10.0, state="lost", requested_mhz=900)))
    account = state.gpus[0].account
    assert (account.state, account.power_w, account.sm_mhz) == ("lost", None, None)


@pytest.mark.parametrize("entry", [ended("a-9"), ended("a-0", gpu=9), started("a-9"), sampled(0.0)])
def test_misfit(entry):
    """An entry of a job, a GPU or a number of GPUs that the run does not have is an error."""
    state = begin()
    with pytest.raises((LookupError, ValueError)):
        state.add(entry)
