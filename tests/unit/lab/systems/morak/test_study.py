"""Morak's study: throughput within limits, the best fixed setting, the comparison and its claims."""

import pandas as pd
import pytest

from heshare.lab.systems.morak.policy import SIZES
from heshare.paper.claims.claim_table import evaluate_claim
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.studies.systems import morak_study as study
from heshare.world.catalogue import gpu

SHORT = study.StudySetting(seconds=10.0)
CAP = 150 / 400
"""The published cap of ResNet-50, as a share of the board power limit."""


def case(title: str, setting: study.StudySetting = SHORT) -> dict[str, float]:
    done = study.run_case(setting, "resnet50", CAP, 0.1, study.SYSTEMS[title])
    return study.measure(done, CAP * gpu("A100").tdp_w, 0.1)


def test_measure_without_control_gives_the_rate_of_the_capped_card() -> None:
    done = study.run_case(SHORT, "resnet50", CAP, 0.1, study.SYSTEMS[study.POWER_LIMIT])
    found = study.measure(done, CAP * gpu("A100").tdp_w, 0.1)
    (segment,) = done.record.segments
    assert found["images_per_s"] == pytest.approx(study.LARGE / segment.residents[0][2])
    assert (found["batch_size"], found["above_pct"], found["late_pct"]) == (study.LARGE, 0, 0)
    strict = study.measure(done, 0.5 * segment.power_w, 0.5 * segment.residents[0][2])
    assert (strict["above_pct"], strict["beyond_pct"], strict["late_pct"]) == (pytest.approx(100),) * 3


def test_morak_keeps_cap_and_limit_and_comes_near_the_best_fixed_setting() -> None:
    found, best = case(study.MORAK), study.best_fixed("A100", "resnet50", CAP, 0.1, 2)
    assert (found["beyond_pct"], found["late_pct"]) == (0, 0)
    assert 0.75 < found["images_per_s"] / best["images_per_s"] < 1.06
    from_one = case(study.MORAK, study.StudySetting(size=1, seconds=10.0))
    assert from_one["images_per_s"] < 0.95 * best["images_per_s"], "its law holds at a small batch size"


def test_best_fixed_is_within_both_limits_and_grows_with_them() -> None:
    best = study.best_fixed("A100", "resnet50", CAP, 0.1, 1)
    assert best["batch_size"] in SIZES
    assert best["batch_size"] / best["images_per_s"] <= 0.1
    assert study.best_fixed("A100", "resnet50", CAP, 0.005, 1)["images_per_s"] < best["images_per_s"]
    assert study.best_fixed("A100", "resnet50", 0.7 * CAP, 0.1, 1)["images_per_s"] < best["images_per_s"]
    assert study.best_fixed("A100", "resnet50", 0.1, 0.1, 1)["images_per_s"] == 0, "below the idle power"


def served(ours: float = 20.0, late: float = 0.0) -> pd.DataFrame:
    """Two repetitions of two networks: Morak serves 2 and 8 times what BatchDVFS serves in the first, 2 and 2 after."""
    rows = []
    for repetition, network, factor in ((0, "a", 2.0), (0, "b", 8.0), (1, "a", 2.0), (1, "b", 2.0)):
        rates = dict.fromkeys((study.MORAK, study.ALONE, study.FIXED_SIZE, *study.FIXED), ours)
        for title, rate in {**rates, study.BATCH_DVFS: ours / factor, study.POWER_LIMIT: ours / 1.1}.items():
            shares = {"above_pct": 10.0, "beyond_pct": 0.0, "late_pct": late if title == study.MORAK else 50.0}
            rows.append({"repetition": repetition, "network": network, "title": title, "images_per_s": rate, **shares})
    return pd.DataFrame(rows)


def test_gains_are_geometric_means_over_networks_and_medians_over_repetitions() -> None:
    found = study.gains(served()).set_index("title").loc[study.BATCH_DVFS]
    assert (found["ratio"], found["most"], found["n"]) == (pytest.approx((4 + 2) / 2), pytest.approx((8 + 2) / 2), 2)
    assert (found["above_pct"], found["late_pct"]) == (10, 50)


def test_claims_on_morak_follow_from_the_runs() -> None:
    runs = served()
    found = study.gains(runs)
    throughput = study.throughput_claim(found, study.BATCH_DVFS)
    assert throughput["measured"] == pytest.approx(5)
    kept = study.limits_claim(runs, found)
    assert kept["measured"] == 10
    assert list(kept["holds"].values()) == [True, True, False], "above the cap for 10 % of the time"
    late = study.limits_claim(served(late=1.0), found)
    assert list(late["holds"].values()) == [False, True, False]
    parts = study.parts_claim(found)
    assert list(parts["holds"].values()) == [False, True]
    for key, arguments in {("R1", "BatchDVFS"): throughput, ("R2", ""): kept, ("R3", ""): parts}.items():
        verdict = "not testable" if key[0] == "R1" else "not reproduced"
        assert evaluate_claim(paper_claims()[key], profile="paper", **arguments)["verdict"] == verdict
