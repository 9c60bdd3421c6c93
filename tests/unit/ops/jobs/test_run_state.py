"""The fold of a journal: jobs by state, attempts, energies of jobs and GPUs, and what a killed session leaves."""

from __future__ import annotations

import math

import pytest
from support.run_entries import RandomRun, ended, run_of, sampled, session, started, state_of

from heshare.ops.jobs.entries import Account, Note
from heshare.ops.jobs.run_state import MPS_ENDED


def begin(jobs=3, at=1000.0):
    return state_of(run_of(jobs), session(at))


def end(state, job, energy_j=1.0, outcome="completed", **more):
    state.add(ended(job, outcome, energy_j=energy_j, **more))


def test_jobs_are_counted_by_state():
    """Each is in one of them, also a job that waits for its next attempt."""
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


@pytest.mark.parametrize("seed", range(5))
def test_every_job_is_in_one_state(seed):
    """Whatever happened to it, at every moment of a run."""
    state = state_of()
    for entry in RandomRun(seed, jobs=25).entries:
        state.add(entry)
        assert sum(state.counts().values()) == 25
        assert len(state.running) == len({job.key for job in state.running})


def test_energy_of_a_job_is_that_of_its_attempts():
    """Those that failed are lost; the present one is in the account of its GPU."""
    state = begin()
    state.add(started("a-0"))
    end(state, "a-0", 12.0, "failed: crash", again=True)
    state.add(started("a-0", t=3.0))
    state.add(sampled(4.0, Account(30.0, 10.0, {"a-0": 8.0})))
    gpu, job = state.gpus[0], state.jobs["a-0"]
    assert (job.energy_j, job.lost_j, gpu.running_j) == (0.0, 12.0, 8.0)
    assert (gpu.energy_j, gpu.idle_j, gpu.lost_j) == (30.0, 10.0, 12.0)


def test_what_a_killed_session_ran_is_lost_and_totals_go_on():
    """And it waits again."""
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


def test_end_session_may_be_repeated():
    """What ran is lost once."""
    state = begin()
    state.add(started("a-0"))
    state.add(sampled(1.0, Account(50.0, 20.0, {"a-0": 30.0})))
    for _ in range(2):
        state.end_session()
    assert (state.gpus[0].lost_j, state.jobs["a-0"].lost_j) == (30.0, 30.0)


def test_attempts_are_charged_by_what_they_failed_of():
    """The end of an MPS daemon is charged to nobody and counts as no free attempt."""
    state = begin(1)
    for outcome, charged in (("failed: crash", True), ("failed: shared", False), (f"failed: {MPS_ENDED}", False)):
        state.add(started("a"))
        end(state, "a", outcome=outcome, charged=charged, again=True)
    job = state.jobs["a"]
    assert (job.attempts, job.charged, job.free, job.over) == (3, 1, 1, False)


def test_a_pause_that_keeps_iterations_is_no_loss():
    """One that keeps none was for nothing."""
    state = begin(1)
    end(state, "a", 5.0, "paused", iterations=4.0, start_s=0.0, end_s=2.0)
    end(state, "a", 7.0, "paused", iterations=0.0)
    job = state.jobs["a"]
    assert (job.iterations, job.energy_j, job.lost_j, job.execution_s) == (4.0, 5.0, 7.0, 2.0)


def test_a_lost_gpu_has_no_power_and_no_clock():
    """Its account stays as it was."""
    state = begin()
    state.add(sampled(1.0, Account(10.0, 10.0, state="lost", requested_mhz=900)))
    account = state.gpus[0].account
    assert (account.state, account.power_w, account.sm_mhz) == ("lost", None, None)


def test_the_first_action_has_the_accounts_before_it():
    """Energy before it, that of planning included, is no job's work."""
    state = begin()
    state.add(started())
    state.add(sampled(2.0, Account(10.0, 10.0)))
    state.add(started("a-0", t=2.0))
    state.add(sampled(9.0, Account(90.0, 10.0, {"a-0": 80.0})))
    decision, accounts = state.sessions[0].first_action
    assert (decision.t, [account.energy_j for account in accounts]) == (2.0, [10.0])


def test_notes_are_kept_by_session():
    """A note before any session is nobody's."""
    state = begin()
    state.add(Note("one"))
    state.add(session(2000.0))
    state.add(Note("two"))
    assert [[note.text for note in one.notes] for one in state.sessions] == [["one"], ["two"]]


@pytest.mark.parametrize("entry", [ended("a-9"), ended("a-0", gpu=9), started("a-9"), sampled(0.0)])
def test_an_entry_that_does_not_fit_is_an_error(entry):
    """A job, a GPU or a number of GPUs that the run does not have."""
    state = begin()
    with pytest.raises((LookupError, ValueError)):
        state.add(entry)


def test_a_state_without_a_session_has_no_time():
    """The journal of a run that was refused has only its description."""
    state = state_of(run_of(2))
    assert math.isnan(state.started_s)
    assert math.isnan(state.at)
    assert state.counts()["waiting"] == 2
