"""Findings for claims, from made-up results with known medians and changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.paper.claims import claim_table, findings
from heshare.paper.claims.verdicts import paper_claims


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def runs(**energy: list[float]) -> pd.DataFrame:
    """One row a repetition and policy; JCT is a tenth of the energy, the cluster account twice the active one."""
    rows = [
        {
            "repetition": number,
            "title": title,
            "energy_active_j": value,
            "energy_cluster_j": 2 * value,
            "avg_jct_s": value / 10,
            "avg_waiting_s": 0.0,
            "avg_execution_s": value / 10,
            "makespan_s": value,
        }
        for title, values in energy.items()
        for number, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


H3 = paper_claims()["H3", "Random"]


def test_change_is_the_median_of_the_paired_changes_and_names_that_by_the_papers_words() -> None:
    table = runs(**{"En-opt": [70, 80, 900], "Random": [100, 100, 1000], "En-opt, literally": [90, 90, 900]})
    found = findings.change(table, H3, "En-opt", "Random", "energy_active_j")
    assert found["measured"] == pytest.approx(-20)
    assert (found["low"], found["high"]) == (pytest.approx(-30), pytest.approx(-10))
    assert "energy (cluster) -20 %" in found["note"]
    assert "By the paper's words literally it is -10 % [-10, -10], which would be: direction." in found["note"]
    assert found["why"] == "20 % less here, 10 % less by the paper's words literally; the paper has -30 %."


def test_by_words_compares_plans_of_the_papers_words_with_each_other() -> None:
    table = runs(**{"JCT-opt": [100.0], "En-opt, literally": [60.0], "JCT-opt, literally": [80.0]})
    claim = paper_claims()["H3", "JCT-opt"]
    found, _ = findings.by_words(table, claim, "En-opt", "JCT-opt", "energy_active_j")
    assert found.value == pytest.approx(-25)


def test_beside_paper_puts_a_rival_where_the_papers_reduction_would() -> None:
    found = findings.beside_paper(findings.medians(runs(**{"Trade-off": [74.0], "Morak": [200.0]})))
    values = found.set_index(["title", "metric"])["paper"]
    assert values["Morak", "energy_active_j"] == pytest.approx(100), "-26 %"
    assert values["Morak", "avg_jct_s"] == pytest.approx(7.4 / 0.69), "-31 %"
    assert values.drop([("Morak", "energy_active_j"), ("Morak", "avg_jct_s")]).isna().all()


@pytest.mark.parametrize(("morak", "word"), [(120.0, "above"), (90.0, "below")])
def test_comparison_seen_has_the_changes_of_the_table(morak: float, word: str) -> None:
    energy = {"Trade-off": 60.0, "Morak": morak, "μ-Serve": 80.0, "Random": 100.0}
    table = runs(**{title: [value] for title, value in energy.items()})
    changes = pd.concat([findings.paired(table, metric) for metric in ("energy_active_j", "avg_jct_s")])
    text = findings.comparison_seen(changes)
    assert "25 % less energy and 25 % less JCT than μ-Serve" in text
    assert f"Morak's JCT is {abs(morak - 100):.0f} % {word} Random's." in text


@pytest.mark.parametrize(("sched_only", "word"), [(10.0, "reproduced"), (95.0, "not reproduced")])
def test_h5_is_about_random_alone(sched_only: float, word: str) -> None:
    table = runs(Random=[90.0] * 6, **{"Sched-only": [sched_only] * 6, "En-opt": [30.0] * 6})
    row = claim_table.evaluate_claim(paper_claims()["H5", ""], profile="smoke", **findings.poorest_and_best(table))
    assert row["verdict"] == word
    assert "Sched-only not best" not in str(row["details"])


def made_up_errors() -> pd.DataFrame:
    errors = {"RF": 5.0, "MLP": 4.0, "LR": 30.0, "DT": 20.0, "SVR": 10.0, "Physics": 2.0}
    rows = [
        {"split": split, "technique": name, "quantity": quantity, "error": "relative", "mean_pct": value}
        for split in ("row", "workload", "gpu")
        for quantity in ("time", "power", "both")
        for name, value in errors.items()
    ]
    frame = pd.DataFrame(rows).assign(low_pct=lambda f: f["mean_pct"] - 1, high_pct=lambda f: f["mean_pct"] + 1)
    return frame.assign(test_sets=5, data="emulated")


def test_prediction_error_compares_with_the_right_rival() -> None:
    frame = made_up_errors()
    forest = findings.prediction_error(frame, "RF", "relative")
    assert (forest["measured"], forest["n"]) == (5.0, 5)
    assert "Best rival: 4.00 %." in forest["note"]
    linear = findings.prediction_error(frame, "LR", "relative")
    assert linear["measured"] == 30.0
    assert "The forest: 5.00 %." in linear["note"]
    assert "published" not in linear["note"]
    times = frame[(frame["quantity"] == "time") & (frame["split"] != "gpu")].assign(data="published", mean_pct=1.5)
    both = findings.prediction_error(pd.concat([frame, times]), "RF", "relative")
    assert "published V100 MPS times (not priced, time only): by row 1.50 %, by workload 1.50 %." in both["note"]
    assert both["measured"] == 5.0


def test_the_forest_is_compared_with_every_technique_of_the_paper() -> None:
    frame = made_up_errors()
    both = pd.concat([frame, frame.assign(error="absolute")], ignore_index=True)
    best = findings.forest_is_best(both, both)
    assert "RF 5.0 %, SVR 10.0 %" in best["note"]
    failing = {part for part, good in best["holds"].items() if not good}
    assert failing == {"below MLP, absolute", "below MLP, relative"}
    assert len(best["holds"]) == 8, "our own technique is none of the paper's"
    table = findings.mlp_over_forest(both)
    assert table[["mlp_pct", "forest_pct"]].to_numpy().tolist() == [[4.0, 5.0]] * 2
    over = findings.mlp_claim(table, "absolute")
    assert (over["measured"], over["low"], over["high"]) == pytest.approx((4 / 5, 3 / 6, 5 / 4))


def test_jct_opt_costs_energy() -> None:
    table = runs(**{"JCT-opt": [60.0, 66.0], "En-opt": [50.0, 55.0], "Trade-off": [60.0, 60.0]})
    found = findings.cost_of_jct(table)
    assert found["measured"] == pytest.approx(20)
    assert found["holds"] == {"more energy than En-opt": True, "more energy than Trade-off": False}
