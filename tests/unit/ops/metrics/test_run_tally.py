"""Totals of a run from the entries of its journal: energies, restarts, what is lost, and how much is kept."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.lab.limits.prices.signal_cost import journal_cost
from heshare.ops.metrics.run_tally import LEFT_S, MOST_LEFT, RunTally

GPU = {"uuid": "GPU-0", "name": "T4", "sharing": "mps"}


def begin(tally, *, jobs=3, gpus=1, at=1000.0):
    tally.add({"run": {"policy": "random", "version": "1", "jobs": [{"count": jobs}]}})
    tally.add({"session": {"at": at, "gpus": [GPU | {"uuid": f"GPU-{index}"} for index in range(gpus)]}})
    return tally


def start(tally, job, gpu=0, mps_pct=50, t=0.0):
    actions = [["start", job, gpu, mps_pct, None]]
    tally.add({"decision": {"t": t, "decided_s": t + 0.5, "event": "arrival", "actions": actions}})


def end(tally, job, energy_j, gpu=0, t=1.0, outcome="completed", **more):
    iterations, again = 5.0 if outcome == "completed" else 0.0, more.pop("again", False)
    row = {"job": job, "gpu": gpu, "end_s": t, "outcome": outcome, "iterations": iterations, "energy_j": energy_j}
    tally.add({"end": {**row, "charged": True, "again": again, **more}})


def sample(tally, energy_j, shares_j, idle_j=0.0, t=1.0, power_w=80.0, **more):
    row = {"energy_j": energy_j, "idle_j": idle_j, "shares_j": shares_j, "power_w": power_w, "sm_mhz": 900.0, **more}
    tally.add({"sample": {"t": t, "gpus": [row]}})


def total_j(tally):
    """The energies of all jobs that are shown, in equal shares."""
    return sum(energy.energy_j.get("equal", 0.0) for energy in tally.shown_jobs(tally.updated_s).values())


def test_jobs_are_counted_by_state():
    tally = begin(RunTally())
    start(tally, "a")
    start(tally, "b")
    assert tally.counts() == {"waiting": 1, "running": 2, "completed": 0, "failed": 0}
    end(tally, "a", 1.0)
    end(tally, "b", 1.0, outcome="failed: timeout")
    assert tally.counts() == {"waiting": 1, "running": 0, "completed": 1, "failed": 1}
    assert tally.faults == {"job-timeout": 1}
    assert (tally.decisions, tally.decision_s) == (2, 1.0)


def test_energy_of_a_job_is_that_of_its_attempts_and_of_the_present_one():
    tally = begin(RunTally())
    start(tally, "a")
    sample(tally, 10.0, {"a": 10.0})
    end(tally, "a", 12.0, outcome="failed: crash", again=True)
    assert tally.shown_jobs(1001.0)["a", 0].energy_j == {"equal": 12.0}
    start(tally, "a", t=3.0)
    sample(tally, 30.0, {"a": 8.0}, idle_j=10.0, t=4.0)
    assert tally.shown_jobs(1004.0)["a", 0].energy_j == {"equal": 20.0}
    assert (tally.gpus[0].energy_j, tally.gpus[0].idle_j, tally.gpus[0].lost_j) == (30.0, 10.0, 12.0)


def test_idle_energy_is_up_to_date_while_nothing_runs():
    tally = begin(RunTally())
    start(tally, "a")
    end(tally, "a", 40.0)
    sample(tally, 100.0, {}, idle_j=5.0)
    assert tally.gpus[0].idle_j == 60.0
    assert total_j(tally) + tally.gpus[0].idle_j == tally.gpus[0].energy_j


def test_what_a_killed_session_ran_is_lost_and_totals_go_on():
    tally = begin(RunTally())
    start(tally, "a")
    sample(tally, 50.0, {"a": 30.0}, idle_j=20.0, model_shares_j={"a": 30.0})
    tally.add({"session": {"at": 2000.0, "gpus": [GPU]}})
    assert tally.counts()["running"] == 0
    assert math.isnan(tally.gpus[0].power_w)
    start(tally, "a")
    sample(tally, 7.0, {"a": 4.0}, idle_j=3.0, model_shares_j={"a": 4.0})
    gpu = tally.gpus[0]
    assert (gpu.energy_j, gpu.idle_j, gpu.lost_j) == (57.0, 23.0, 30.0)
    assert tally.shown_jobs(2001.0)["a", 0].energy_j == {"equal": 34.0, "model": 34.0}
    assert tally.started_s == 1000.0


def test_power_of_jobs_follows_the_last_growth_of_their_energy():
    tally = begin(RunTally())
    start(tally, "a")
    start(tally, "b")
    sample(tally, 10.0, {"a": 5.0, "b": 5.0}, model_shares_j={"a": 8.0, "b": 2.0})
    sample(tally, 20.0, {"a": 10.0, "b": 10.0}, model_shares_j={"a": 15.0, "b": 5.0}, t=2.0)
    shown = tally.shown_jobs(1002.0)
    assert shown["a", 0].power_w == pytest.approx({"equal": 40.0, "model": 56.0})
    assert shown["b", 0].power_w == pytest.approx({"equal": 40.0, "model": 24.0})
    sample(tally, 20.0, {"a": 10.0, "b": 10.0}, t=3.0, power_w=0.0)  # the power is unknown
    assert tally.shown_jobs(1003.0)["a", 0].power_w == {}


def test_a_lost_gpu_has_no_power_and_no_clock():
    tally = begin(RunTally())
    sample(tally, 10.0, {}, state="lost", requested_mhz=900)
    gpu = tally.gpus[0]
    assert gpu.state == "lost"
    assert math.isnan(gpu.power_w)
    assert math.isnan(gpu.sm_mhz)


def test_cost_and_limit_are_those_of_the_report_over_sessions():
    signal = EnergySignal((0.0, 30.0, 90.0), (0.1, 0.5, -0.2))
    terms = {"price": PriceTerms(signal).to_json(), "power_limit": [[0.0, 500.0], [60.0, 300.0]]}
    account = {"idle_j": 0.0, "power_w": 80.0, "sm_mhz": 900.0, "shares_j": {}}
    entries = [{"run": {"policy": "random", "jobs": [{"count": 1}], **terms}}]
    for at, end_s in ((1000.0, 45.0), (1050.0, 70.0)):
        entries.append({"session": {"at": at, "gpus": [GPU, GPU]}})
        for t in range(0, int(end_s) + 1, 5):
            gpus = [{**account, "energy_j": 60.0 * t}, {**account, "energy_j": 90.0 * t + t % 7}]
            entries.append({"sample": {"t": float(t), "gpus": gpus}})
    tally = RunTally()
    for entry in entries:
        tally.add(entry)
    assert tally.cost == pytest.approx(journal_cost(entries, signal), rel=1e-12)
    assert (tally.limit_w, tally.price) == (300.0, -0.2)


def test_jobs_that_have_left_are_shown_for_a_while_and_are_limited():
    tally = begin(RunTally(), jobs=1000)
    for number in range(3 * MOST_LEFT):
        start(tally, f"j{number}", t=float(number))
        end(tally, f"j{number}", 1.0, t=float(number))
    start(tally, "runs")
    shown = tally.shown_jobs(1000.0 + 3 * MOST_LEFT)
    assert 0 < len(shown) <= MOST_LEFT + 1
    assert len(tally._ended_j) <= MOST_LEFT
    late = tally.shown_jobs(1000.0 + 3 * MOST_LEFT + LEFT_S)
    assert [job for job, _ in late] == ["runs"]


@pytest.mark.parametrize("seed", range(5))
def test_energies_never_fall_and_sum_to_the_counter_whatever_happens(seed):
    """Random starts, failures, accounts and killed sessions of one GPU, with its energy divided equally."""
    rng = np.random.default_rng(seed)
    tally, t, spent_j, idle_j, shares_j = begin(RunTally(), jobs=30), 0.0, 0.0, 0.0, {}
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
            start(tally, job, t=t)
            shares_j[job] = 0.0
        elif kind == 1 and shares_j:
            job = str(rng.choice(list(shares_j)))
            outcome = "completed" if rng.random() < 0.6 else "failed: crash"
            end(tally, job, shares_j.pop(job), t=t, outcome=outcome, again=False)
        elif kind == 2 and rng.random() < 0.1:
            sample(tally, spent_j, shares_j, idle_j, t)
            tally.add({"session": {"at": 1000.0 + 10.0 * step, "gpus": [GPU]}})
            t, spent_j, idle_j, shares_j = 0.0, 0.0, 0.0, {}
        else:
            sample(tally, spent_j, shares_j, idle_j, t)
            gpu = tally.gpus[0]
            jobs_j = sum(energies[0].get("equal", 0.0) for energies in tally._ended_j.values())
            jobs_j += sum(gpu.shares_j["equal"].values())
            assert jobs_j + gpu.idle_j == pytest.approx(gpu.energy_j, rel=1e-9)
            seen.append((gpu.energy_j, gpu.idle_j, gpu.lost_j))
    assert all(np.all(np.array(after) >= before) for before, after in pairwise(seen))
