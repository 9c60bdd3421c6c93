"""Plans within a power budget: what cannot be built, what planning makes of a front, files, runs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import heshare as hs
from heshare.lab.limits.limited_plan import LimitedPlan
from heshare.lab.limits.limited_planning import plan_within
from heshare.lab.limits.power_budget import PowerBudget, largest_excess
from heshare.running.timeline import power_steps
from heshare.shared.errors import InputError, PlanError

CLUSTER = "2xT4,1xV100,1xA100"
STEPS = PowerBudget((0.0, 600.0, 1200.0), (420.0, 300.0, 600.0))


@pytest.fixture(scope="module")
def predictor():
    return hs.load_predictor()


@pytest.fixture(scope="module")
def front(predictor):
    return hs.plan(12, CLUSTER, predictor=predictor)


def test_a_plan_that_breaks_its_budget_cannot_be_built(front, predictor):
    free = LimitedPlan.of(front.jct_opt, PowerBudget.constant(5000.0), predictor)
    peak_w = float(power_steps(free.segments)[1].max())
    assert (free.energy_j, free.jct_s) == pytest.approx((front.jct_opt.energy_j, front.jct_opt.jct_s))
    assert free.queues == front.jct_opt.queues
    kept = LimitedPlan.of(front.jct_opt, PowerBudget.constant(peak_w), predictor)
    assert kept.budget.limits_w == (peak_w,)
    with pytest.raises(PlanError, match=rf"needs {peak_w:.1f} W at \d+ s, where {peak_w - 1:g} W are allowed") as error:
        LimitedPlan.of(front.jct_opt, PowerBudget.constant(peak_w - 1.0), predictor)
    assert isinstance(error.value, InputError)
    with pytest.raises(PlanError, match="are allowed"):
        replace(kept, budget=PowerBudget((0.0, 10.0), (peak_w, peak_w / 2)))
    with pytest.raises(PlanError, match="a begin for each batch"):
        replace(kept, begin_s=kept.begin_s[:-1])
    with pytest.raises(PlanError, match="not that of its batches"):
        replace(kept, begin_s=tuple(tuple(time_s + 50.0 for time_s in times) for times in kept.begin_s))


@pytest.mark.parametrize("budget", [PowerBudget.constant(450.0), PowerBudget.constant(320.0), STEPS], ids=str)
def test_plan_within_keeps_the_budget_by_lower_clocks_and_later_batches(front, predictor, budget):
    limited = plan_within(front, budget, predictor)
    for plan in limited:
        assert isinstance(plan, LimitedPlan)
        assert largest_excess(plan.segments, budget) is None
        for times_s, queue in zip(plan.begin_s, plan.queues, strict=True):
            assert list(times_s) == sorted(times_s)
            assert len(times_s) == len(queue)
    assert (np.diff(limited.objectives[:, 0]) > 0).all()
    assert (np.diff(limited.objectives[:, 1]) < 0).all()
    assert limited.jct_opt.jct_s >= front.jct_opt.jct_s
    waits = [
        not before.residents and after.residents
        for plan in limited
        for before, after in pairwise(sorted(plan.segments))
        if before.gpu == after.gpu
    ]
    assert any(waits), "batches that begin later than their GPU is free"


def test_a_budget_above_the_peak_keeps_the_front(front, predictor):
    kept = plan_within(front, PowerBudget.constant(5000.0), predictor)
    assert np.allclose(kept.objectives, front.objectives, rtol=1e-9)
    assert [plan.queues for plan in kept] == [plan.queues for plan in front]


def test_a_limit_that_no_batch_can_keep_is_refused(front, predictor):
    with pytest.raises(InputError, match="busy at 210 MHz"):
        plan_within(front, PowerBudget.constant(150.0), predictor)


def test_plans_within_a_limit_are_kept_in_files_and_run_within_it(tmp_path):
    plan = hs.plan(8, CLUSTER, power_limit=300).trade_off
    file = hs.write_plan(tmp_path / "plan.json", plan)
    assert hs.read_plan(file) == plan
    run = hs.run(8, CLUSTER, plan)
    assert largest_excess(run.record.segments, PowerBudget.constant(300.0)) is None
    other = hs.run(8, CLUSTER, plan, power_limit=280)
    assert largest_excess(other.record.segments, PowerBudget.constant(280.0)) is None
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"power_limit": [[0.0, 200.0]]}))
    with pytest.raises(InputError, match="where 200 W are allowed"):
        hs.read_plan(file)
    assert hs.optimise(4, CLUSTER, power_limit=300).trade_off.budget == PowerBudget.constant(300.0)
