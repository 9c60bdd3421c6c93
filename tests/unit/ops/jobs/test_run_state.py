"""State of a run from the entries of its journal: energies, restarts, what is lost, and how much is kept."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from support.run_entries import ended, run_of, sampled, session, started, state_of

from heshare.ops.jobs.entries import Account
from heshare.ops.jobs.run_state import LEFT_S, MOST_LEFT


def begin(jobs=3, gpus=1, at=1000.0):
    return state_of(run_of(jobs), session(at, gpus))


def start(state, job, gpu=0, mps_pct=50, t=0.0):
    state.add(started(job, gpu=gpu, mps_pct=mps_pct, t=t, lasted_s=0.5))


def end(state, job, energy_j, gpu=0, t=1.0, outcome="completed", **more):
    state.add(ended(job, outcome, gpu=gpu, end_s=t, energy_j=energy_j, charged=True, **more))


def sample(into, energy_j, shares_j, idle_j=0.0, t=1.0, power_w=80.0, **more):
    into.add(sampled(t, Account(energy_j, idle_j, shares_j, power_w=power_w, **{"sm_mhz": 900.0, **more})))


def total_j(state):
    """The energies of all jobs that are shown, in equal shares."""
    return sum(energy.energy_j.get("equal", 0.0) for energy in state.shown_jobs(state.updated_s).values())


def test_jobs_are_counted_by_state():
    state = begin()
    start(state, "a")
    start(state, "b")
    assert state.counts() == {"waiting": 1, "running": 2, "completed": 0, "failed": 0}
    end(state, "a", 1.0)
    end(state, "b", 1.0, outcome="failed: timeout")
    assert state.counts() == {"waiting": 1, "running": 0, "completed": 1, "failed": 1}
    assert state.faults == {"job-timeout": 1}
    assert (state.decisions, state.decision_s) == (2, 1.0)


def test_energy_of_a_job_is_that_of_its_attempts_and_of_the_present_one():
    state = begin()
    start(state, "a")
    sample(state, 10.0, {"a": 10.0})
    end(state, "a", 12.0, outcome="failed: crash", again=True)
    assert state.shown_jobs(1001.0)["a", 0].energy_j == {"equal": 12.0}
    start(state, "a", t=3.0)
    sample(state, 30.0, {"a": 8.0}, idle_j=10.0, t=4.0)
    assert state.shown_jobs(1004.0)["a", 0].energy_j == {"equal": 20.0}
    assert (state.gpus[0].energy_j, state.gpus[0].idle_j, state.gpus[0].lost_j) == (30.0, 10.0, 12.0)


def test_what_a_killed_session_ran_is_lost_and_totals_go_on():
    state = begin()
    start(state, "a")
    sample(state, 50.0, {"a": 30.0}, idle_j=20.0, model_shares_j={"a": 30.0})
    state.add(session(2000.0))
    assert state.counts()["running"] == 0
    assert math.isnan(state.gpus[0].power_w)
    start(state, "a")
    sample(state, 7.0, {"a": 4.0}, idle_j=3.0, model_shares_j={"a": 4.0})
    gpu = state.gpus[0]
    assert (gpu.energy_j, gpu.idle_j, gpu.lost_j) == (57.0, 23.0, 30.0)
    assert state.shown_jobs(2001.0)["a", 0].energy_j == {"equal": 34.0, "model": 34.0}
    assert state.started_s == 1000.0


def test_power_of_jobs_follows_the_last_growth_of_their_energy():
    state = begin()
    start(state, "a")
    start(state, "b")
    sample(state, 10.0, {"a": 5.0, "b": 5.0}, model_shares_j={"a": 8.0, "b": 2.0})
    sample(state, 20.0, {"a": 10.0, "b": 10.0}, model_shares_j={"a": 15.0, "b": 5.0}, t=2.0)
    shown = state.shown_jobs(1002.0)
    assert shown["a", 0].power_w == pytest.approx({"equal": 40.0, "model": 56.0})
    assert shown["b", 0].power_w == pytest.approx({"equal": 40.0, "model": 24.0})
    sample(state, 20.0, {"a": 10.0, "b": 10.0}, t=3.0, power_w=0.0)  # the power is unknown
    assert state.shown_jobs(1003.0)["a", 0].power_w == {}


def test_a_lost_gpu_has_no_power_and_no_clock():
    state = begin()
    sample(state, 10.0, {}, state="lost", requested_mhz=900)
    gpu = state.gpus[0]
    assert gpu.state == "lost"
    assert math.isnan(gpu.power_w)
    assert math.isnan(gpu.sm_mhz)


def test_jobs_that_have_left_are_shown_for_a_while_and_are_limited():
    state = begin(jobs=1000)
    for number in range(3 * MOST_LEFT):
        start(state, f"j{number}", t=float(number))
        end(state, f"j{number}", 1.0, t=float(number))
    start(state, "runs")
    shown = state.shown_jobs(1000.0 + 3 * MOST_LEFT)
    assert 0 < len(shown) <= MOST_LEFT + 1
    assert len(state._ended_j) <= MOST_LEFT
    late = state.shown_jobs(1000.0 + 3 * MOST_LEFT + LEFT_S)
    assert [job for job, _ in late] == ["runs"]


@pytest.mark.parametrize("seed", range(5))
def test_energies_never_fall_and_sum_to_the_counter_whatever_happens(seed):
    """Random starts, failures, accounts and killed sessions of one GPU, with its energy divided equally."""
    rng = np.random.default_rng(seed)
    state, t, spent_j, idle_j, shares_j = begin(jobs=30), 0.0, 0.0, 0.0, {}
    seen = []
    for step in range(400):
        t += 1.0
        grown_j = float(rng.uniform(0.0, 100.0))
        spent_j += grown_j
        idle_j += 0.0 if shares_j else grown_j
        shares_j = {job: share_j + grown_j / len(shares_j) for job, share_j in shares_j.items()}
        kind = rng.integers(5)
        if kind == 0 and len(shares_j) < 4:
            job = f"j{step}"
            start(state, job, t=t)
            shares_j[job] = 0.0
        elif kind == 1 and shares_j:
            job = str(rng.choice(list(shares_j)))
            outcome = "completed" if rng.random() < 0.6 else "failed: crash"
            end(state, job, shares_j.pop(job), t=t, outcome=outcome, again=False)
        elif kind == 2 and rng.random() < 0.1:
            sample(state, spent_j, shares_j, idle_j, t)
            state.add(session(1000.0 + 10.0 * step))
            t, spent_j, idle_j, shares_j = 0.0, 0.0, 0.0, {}
        else:
            sample(state, spent_j, shares_j, idle_j, t)
            gpu = state.gpus[0]
            jobs_j = sum(energies[0].get("equal", 0.0) for energies in state._ended_j.values())
            jobs_j += sum(gpu.shares_j["equal"].values())
            assert jobs_j + gpu.idle_j == pytest.approx(gpu.energy_j, rel=1e-9)
            seen.append((gpu.energy_j, gpu.idle_j, gpu.lost_j))
    assert all(np.all(np.array(after) >= before) for before, after in pairwise(seen))
