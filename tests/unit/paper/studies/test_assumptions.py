"""Choices that the paper leaves open: which numbers hold, what mechanisms are worth, and the worlds of Section II."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.studies import motivation
from heshare.paper.studies.assumptions import choices, mechanism_worth
from heshare.paper.studies.assumptions.choices import OVER, PROMISED, SIZE, WORTH, Choice
from heshare.policies.heshare import HeShare
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

CLUSTER = "1xT4,1xA100"


@pytest.mark.parametrize(
    ("id", "part", "value", "low", "high", "held"),
    [
        ("H1", "energy", -30.0, -35.0, -20.0, True),
        ("H1", "energy", -30.0, -35.0, -28.0, False),
        ("H1", "energy", -5.0, -60.0, 50.0, False),
        ("M2", "", 2.3, 1.3, 4.0, True),
        ("M2", "", 1.1, 0.5, 4.0, False),
        ("M3", "", 8.0, 4.0, 16.0, True),
        ("M3", "", 4.0, 2.0, 8.0, False),
    ],
)
def test_a_number_holds_near_the_papers_and_a_wide_interval_is_not_enough(
    id: str, part: str, value: float, low: float, high: float, held: bool
) -> None:
    assert choices._row((id, part), ConfidenceInterval(value, low, high, 6))["holds"] == held


def test_without_a_mechanism_a_plan_lacks_it_and_states_what_a_predictor_never_wrong_sees() -> None:
    streams, gpus, device = Repetition(0, 0), Cluster.parse(CLUSTER), DevicePredictor()
    tasks = streams.task_set(6)
    made = mechanism_worth.plans(Settings(generations=10), mechanism_worth.REMOVED)
    found = {}
    for title, policy in made.items():
        assert isinstance(policy, HeShare)
        front, _ = policy.planner.front(tasks, gpus, device, streams.rng(POLICY))
        found[title] = front.choose(policy.choice)
        stated = mechanism_worth.promised(policy, tasks, gpus, device, streams.rng(POLICY))
        assert stated == (found[title].energy_j, found[title].jct_s)
    batches = {title: [batch for queue in plan.queues for batch in queue] for title, plan in found.items()}
    without = mechanism_worth.without
    assert all(len(batch.tasks) == 1 for batch in batches[without("sharing")])
    assert all(set(batch.mps_pct) == {100} for batch in batches[without("MPS percentages")])
    assert all(batch.sm_mhz is None for batch in batches[without("clocks")])
    for queue in found[without("order")].queues:
        order = [task for batch in queue for task in batch.tasks]
        assert order == sorted(order)
    assert found[without("order")].scheme != found[without("placement")].scheme


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    parts = mechanism_worth.REMOVED
    options = [
        Choice(SIZE, "4", "4", parts=parts),
        Choice("predictor", "never wrong", "4", is_true=True),
        Choice("T4 over A100", "the paper's", "8", world="t4-published-ratio"),
        Choice("precision", "FP16", "8", precision="fp16", is_true=True),
    ]
    runs = choices.runs(options, tasks=3, cluster=CLUSTER, seed=0, seeds=2, generations=5)
    return choices.values(options, runs).set_index(["axis", "id", "part"]).sort_index()


@pytest.mark.slow
def test_a_plan_delivers_what_it_promises_if_the_predictor_is_never_wrong(table: pd.DataFrame) -> None:
    here = table.loc["predictor"]["value"]
    assert here[OVER].to_numpy() == pytest.approx(0.0, abs=1e-6)
    assert here[WORTH].to_numpy() == pytest.approx(here[PROMISED].to_numpy(), abs=1e-6)
    assert abs(table.loc[(SIZE, OVER), "value"]).max() > 0.1


@pytest.mark.slow
def test_worlds_change_section_2_and_admissions_change_numbers_against_morak_alone(table: pd.DataFrame) -> None:
    ratio = table.xs("M2", level="id")["value"].droplevel("part")
    assert ratio["T4 over A100"] == pytest.approx(paper_claims()["M2", ""].value)
    in_fp32, _, _ = motivation.ratio(motivation.solo(batch_sizes=[8]), "resnet50")
    assert ratio["precision"] < in_fp32 / 1.5
    admissions = table.loc[choices.ADMISSION]
    counts = admissions.groupby(["id", "part"])["value"].nunique()
    assert (counts.drop("H1", level="id") == 1).all()
    assert counts["H1"].max() > 1
