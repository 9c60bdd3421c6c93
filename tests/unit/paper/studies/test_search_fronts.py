"""Searches side by side, on a toy world."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.paper.claims import claim_table
from heshare.paper.claims.claim_table import LONGEST
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.studies import search_fronts
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster

SETTINGS = Settings(generations=20, solutions=20)
CLUSTER = Cluster.parse("1xT4,1xV100,1xA100")
OURS = {"HeShare": SETTINGS, "HeShare, literally": Settings.literal(generations=20, solutions=20)}
SEARCHES = search_fronts.systems(OURS, {0.1: ["nsga2"], "1/n": ["spea2"]}, [500, 25_000])
DEVICE = Toy(demand={name: 2 * each for name, each in DEMANDS.items()})
"""What plans are run on: sharing costs more than the predictor of `compare` says."""
SETS = {seed: mixed_tasks(12, seed) for seed in (3, 4)}


@pytest.fixture(scope="module")
def study() -> search_fronts.Study:
    return search_fronts.compare(SETS, CLUSTER, Toy(demand=DEMANDS), device=DEVICE, searches=SEARCHES, planners={})


def test_compare_runs_every_system_with_every_seed(study: search_fronts.Study) -> None:
    titles = ["HeShare", "HeShare, literally", "NSGA-II at 0.1", "SPEA2 at 1/n"]
    titles += ["NSGA-II at 0.1, HeShare's start", "SPEA2 at 1/n, HeShare's start"]
    assert list(dict.fromkeys(study.final["system"])) == titles
    assert study.final.groupby("system")["seed"].apply(sorted).tolist() == [[3, 4]] * 6
    assert study.final["hypervolume"].between(0, 1 + 1e-12).all()
    assert set(study.curves["evaluations"]) == {500, 1000}
    described = study.final.drop_duplicates("system")[["rate", "start"]].to_records(index=False).tolist()
    assert described[:3] == [("0.1", "rank"), ("1.0", "rank"), ("0.1", "random")]
    assert described[3:] == [("1/n", "random"), ("0.1", "rank"), ("1/n", "rank")]
    for _, one in study.curves.groupby(["system", "seed"]):
        assert one["hypervolume"].is_monotonic_increasing


def test_rivals_with_heshares_start_begin_with_its_initial_population() -> None:
    world = make_instance(SETS[3], CLUSTER, Toy(demand=DEMANDS))
    once = replace(SETTINGS, generations=1)
    searches = search_fronts.systems({"HeShare": once}, {0.1: ["nsga2"]}, [])
    first = {
        title: each.run(world, rng=np.random.default_rng(7))[-1].schemes.objectives for title, each in searches.items()
    }

    def covers(title: str) -> bool:
        """Whether a rival's first front has, for each point of HeShare's, one that is no worse."""
        return all((first[title] <= point).all(axis=1).any() for point in first["HeShare"])

    assert covers("NSGA-II at 0.1, HeShare's start")
    assert not covers("NSGA-II at 0.1")


def table(**hypervolumes: list[float]) -> pd.DataFrame:
    """A table of searches; a name such as `rank_SPEA2` is SPEA2 with HeShare's start."""
    rows = []
    for name, values in {"HeShare": [1.0] * 4, "literally": [0.8] * 4, **hypervolumes}.items():
        start, _, short = name.rpartition("_")
        own = {"HeShare": "HeShare", "literally": "HeShare, literally"}
        title = own.get(name) or f"{short} at 0.1{', HeShare' + chr(39) + 's start' if start else ''}"
        known = {"system": title, "rate": "0.1", "start": start or ("rank" if name in own else "random")}
        rows += [
            {**known, "seed": at, "hypervolume": value, "igd_plus": 0.1, "predicted_hypervolume": 1.0}
            for at, value in enumerate(values)
        ]
    return search_fronts.search_table(pd.DataFrame(rows))


def test_covers_more_holds_only_if_the_whole_interval_does() -> None:
    better = search_fronts.covers_more(table(SPEA2=[0.9] * 4, rank_SPEA2=[0.99] * 4))
    assert better["holds"] == {"SPEA2 at 0.1": True}
    assert better["measured"] == pytest.approx(100 * (1 / 0.9 - 1))
    unsure = search_fronts.covers_more(table(SPEA2=[0.9, 1.2, 0.9, 1.2], rank_SPEA2=[0.99] * 4))
    assert unsure["holds"] == {"SPEA2 at 0.1": False}


def test_covers_more_names_the_leads_with_either_start_and_by_the_papers_words() -> None:
    found = table(SPEA2=[0.9] * 4, MOEAD=[0.5] * 4, rank_SPEA2=[0.8] * 4, rank_MOEAD=[0.99] * 4)
    claim = search_fronts.covers_more(found)
    assert claim["why"] == (
        "Over the nearest rival +11.1 % if it starts at random, +1.0 % from HeShare's start; literally -11.1 %."
    )
    assert "certainly ahead of 1 of 2" in claim["note"], "0.8 by the paper's words is above MOEAD's 0.5 only"
    assert claim["at"] == {"system": "SPEA2 at 0.1"}
    assert len(claim_table.evaluate_claim(paper_claims()["S1", ""], profile="paper", **claim)["why"]) <= LONGEST


def test_a_system_without_hypervolume_is_in_the_summary_without_changes() -> None:
    found = table(SPEA2=[0.9] * 4, MOEAD=[0.5, 0.0, 0.5, 0.5], rank_SPEA2=[0.99] * 4).set_index("system")
    assert found.loc["MOEAD at 0.1", "hypervolume"] == 0.5
    assert found.loc["MOEAD at 0.1", ["change_pct", "change_low_pct", "literal_high_pct"]].isna().all()
    assert found.loc["MOEAD at 0.1", "predicted_pct"] == 0
    assert found.loc["SPEA2 at 0.1", "change_pct"] == pytest.approx(100 * (1 / 0.9 - 1))
    assert found["n"].tolist() == [4] * len(found)


def test_plans_are_judged_as_run_and_as_predicted(study: search_fronts.Study) -> None:
    assert study.final["predicted_hypervolume"].between(0, 1 + 1e-12).all()
    assert (study.final["predicted_hypervolume"] - study.final["hypervolume"]).abs().max() > 0.01
    once = {3: SETS[3]}
    same = search_fronts.compare(
        once, CLUSTER, Toy(demand=DEMANDS), device=Toy(demand=DEMANDS), searches=SEARCHES, planners={}
    ).final
    assert same["hypervolume"].tolist() == pytest.approx(same["predicted_hypervolume"].tolist())


def test_change_dots_draw_each_rival_once_as_run_and_as_predicted(study: search_fronts.Study) -> None:
    with pytest.raises(InputError, match="argument against: found 'change'; expected one of HeShare"):
        search_fronts.summary(study.final, {"HeShare": "change"})
    found = search_fronts.search_table(study.final)
    fig, axes = plt.subplots(1, 2)
    search_fronts.change_dots(axes, found)
    assert [len(ax.get_yticks()) for ax in axes] == [2, 2]
    run, predicted = (each.lines[0].get_xdata()[0] for each in axes[0].containers)
    row = found[found["system"] == "NSGA-II at 0.1"].iloc[0]
    assert (run, predicted) == (row["change_pct"], row["predicted_pct"])
    plt.close(fig)


def test_convergence_returns_the_medians_of_both_rates(study: search_fronts.Study) -> None:
    fig, axes = plt.subplots(1, 2)
    medians = search_fronts.convergence(axes, study.curves)
    assert set(medians["rate"]) == {"0.1", "1.0", "1/n"}
    assert [len(ax.lines) for ax in axes] == [3, 3]
    ours = medians[(medians["system"] == "HeShare") & (medians["evaluations"] == 500)]["hypervolume"].item()
    assert search_fronts.convergence_stages(medians)[500][0] == ours
    plt.close(fig)


def test_ablation_replaces_one_part_at_a_time_and_a_whole_group_at_once() -> None:
    base = Settings(generations=5, solutions=10)
    for group, names in search_fronts.ABLATIONS.items():
        for name, changes in names.items():
            changed = [field for field, value in changes.items() if getattr(base, field) != value]
            expected = {search_fronts.WHOLE: 0, search_fronts.NO_OPERATOR: 4, search_fronts.ALL_WORDS: 7}
            assert len(changed) == expected.get(name, 1), (group, name)
    words = search_fronts.ABLATIONS[search_fronts.BY_WORDS]
    assert replace(base, **words[search_fronts.ALL_WORDS]) == Settings.literal(generations=5, solutions=10)
    found = search_fronts.ablation({3: SETS[3]}, CLUSTER, Toy(demand=DEMANDS), device=DEVICE, base=base)
    assert len(found) == sum(map(len, search_fronts.ABLATIONS.values()))
    predicted, run = (found.set_index("system")[name] for name in ("predicted_hypervolume", "hypervolume"))
    assert predicted["as it is"] > predicted["no sharing"]
    assert run["as it is"] < run["no sharing"], "sharing costs more on the device than the predictor says"


def test_plan_objectives_are_those_that_plans_were_chosen_by() -> None:
    toy = Toy(demand=DEMANDS)
    world = make_instance(SETS[3], CLUSTER, toy)
    for settings in (SETTINGS, replace(SETTINGS, clock_scope="plan")):
        plans, own = configure(search(world, settings, np.random.default_rng(0)), world, toy, settings)
        assert search_fronts.plan_objectives(plans, world, toy) == pytest.approx(own)
    literal = Settings.literal(generations=20, solutions=20)
    plans, own = configure(search(world, literal, np.random.default_rng(0)), world, toy, literal)
    judged = search_fronts.plan_objectives(plans, world, toy)
    assert (judged <= own * (1 + 1e-9)).all(), "tasks that speed up when others end are no slower than by Eq. 13"
    assert (judged < own * (1 - 1e-3)).any()


def test_a_planner_of_whole_plans_is_judged_and_drawn_beside_the_searches() -> None:
    def everything_alone(tasks, cluster, predictor, *, rng):
        world = make_instance(tasks, cluster, predictor)
        return configure(search(world, SETTINGS, rng), world, predictor, replace(SETTINGS, batching="single"))[0]

    study = search_fronts.compare(
        SETS, CLUSTER, Toy(demand=DEMANDS), device=DEVICE, searches=SEARCHES, planners={"Alone": everything_alone}
    )
    table = search_fronts.search_table(study.final)
    (row,) = table[table["system"] == "Alone"].to_dict("records")
    assert (row["rate"], row["start"]) == ("", "")
    assert row["predicted_pct"] > 0, "sharing is what the planner leaves out"
    fig, axes = plt.subplots(1, 2)
    search_fronts.change_dots(axes, table)
    labels = [[each.get_text() for each in ax.get_yticklabels()] for ax in axes]
    assert [each[-1] for each in labels] == ["Alone", "Alone"]
    plt.close(fig)
