"""What MPS percentages are worth to pairs of tasks on the device model."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.paper.studies import mps_shares
from heshare.paper.studies.mps_shares import AS_CALIBRATED, INSENSITIVE, LENGTHS, MEASURES, TERMS
from heshare.scheduling.plan import Batch
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

CHOSEN = (AS_CALIBRATED, "no idle power", INSENSITIVE)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return mps_shares.gains(["T4"], 8, CHOSEN)


def test_no_gain_is_below_equal_shares(table: pd.DataFrame) -> None:
    assert len(table) == len(CHOSEN) * len(MEASURES)
    assert (table["least_pct"] >= 0).all()
    assert (table["least_pct"] <= table["gain_pct"]).all()
    assert (table["gain_pct"] <= table["most_pct"]).all()
    count = table.set_index("term")["n"].to_dict()
    assert count[AS_CALIBRATED] == 105
    assert count[INSENSITIVE] == 56


def test_measures_of_a_pair_are_those_worked_out_by_hand() -> None:
    card, models, pcts = catalogue.gpu("V100"), ("resnet50", "vgg19"), (70, 30)
    tasks = tuple(Resident(Workload(model, 8), pct) for model, pct in zip(models, pcts, strict=True))
    both, (first, second) = co_run(card, tasks), (co_run(card, (task,)) for task in tasks)
    full_s = [co_run(card, (Resident(Workload(model, 8)),)).tasks[0].time_s for model in models]
    speeds = [whole / task.time_s for whole, task in zip(full_s, both.tasks, strict=True)]
    device = mps_shares._Shares(card, 8, default())
    found = device.measures(models, pcts)
    assert found[0].tolist() == [pytest.approx(sum(speeds) / both.power_w)] * 2
    ends_s = [length / speed for length, speed in zip(LENGTHS, speeds, strict=True)]
    assert ends_s[0] < ends_s[1]
    rest_s = (LENGTHS[1] - ends_s[0] * speeds[1]) * second.tasks[0].time_s / full_s[1]
    assert 1 / found[1, 0] == pytest.approx(ends_s[0] * both.power_w + rest_s * second.power_w)
    assert 1 / found[2, 0] == pytest.approx(ends_s[0] + ends_s[0] + rest_s)
    assert first.tasks[0].time_s > full_s[0]


def test_every_term_changes_the_constants_or_the_shares() -> None:
    known = default()
    for name, term in TERMS.items():
        other = term.change(known)
        same = (other.timing, other.power, other.contention) == (known.timing, known.power, known.contention)
        assert same == (name == AS_CALIBRATED)


def test_at_full_counts_the_tasks_that_share_in_the_trade_off_plans() -> None:
    queues = ((Batch((0, 1), (100, 40), None),), (Batch((2,), (100,), None),))
    front = SimpleNamespace(trade_off=SimpleNamespace(queues=queues))
    assert mps_shares.at_full([front, front]) == (2, 4, 6)  # type: ignore[list-item]
