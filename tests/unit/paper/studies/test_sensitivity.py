"""Worlds that differ in one assumption for all policies, the verdicts over them, and the plots of verdicts."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.devices.task_sizes import draw, time_alone_s
from heshare.paper.claims import verdict_plots
from heshare.paper.figures import series_styles
from heshare.paper.studies import sensitivity
from heshare.paper.studies import sensitivity_worlds as worlds
from heshare.paper.studies.sensitivity import BASE, BETTER, MEASURES, ClaimSetting, Condition
from heshare.paper.studies.variants import ENERGY, JCT, PAPER, PLACED
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.task_set import helios_durations_s
from heshare.world.workload import Resident, Workload

REFERENCE = Condition("", BASE)
CAPS = {"Morak's cap": {"0.6": {"cap": 0.6}, "1.0": {"cap": 1.0}}}
V100 = ClaimSetting("V100", "1xV100", 3, ("mixed",), ("Trade-off",), (PAPER,))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_range_of_a_claim_is_given_with_its_seeds_tasks_and_gpus() -> None:
    settings = sensitivity.claim_settings("1xT4,1xA100", 8, ["low", "high"], 6)
    sizes = sensitivity.sizes_in_words(settings, 2)
    assert set(sizes) == {(measure.id, measure.part) for measure in MEASURES}
    assert sizes["H1", "jct"] == "2 seeds, 8 tasks on 1xT4,1xA100"
    assert sizes["O4", ""] == "2 seeds, 6 tasks on two GPUs of each kind"
    row = {"id": "O3", "part": "T4", "form": PAPER, "axis": "idle power"}
    frame = pd.DataFrame([{**row, "level": "low", "change_pct": -3.0}, {**row, "level": "high", "change_pct": 4.0}])
    assert verdict_plots.condition_ranges(frame, sizes)["O3", "T4"] == (
        "Over the 2 conditions of Fig. x12a (2 seeds, 6 tasks on 2xT4) it goes from -3 % (idle power low) to +4 % "
        "(idle power high)."
    )


@pytest.mark.parametrize("world", sorted(worlds.WORLDS))
def test_constants_of_a_world_differ_only_for_the_gpus_that_it_names(world: str) -> None:
    changed, known, other = worlds.WORLDS[world][0], default(), worlds.constants(world)
    # Together they ask for more than all SMs, so that taking turns matters, too.
    pair = tuple(Resident(Workload(model, 8), 90) for model in ("gpt2", "resnet50"))
    for name in ("T4", "V100", "A100"):
        card = catalogue.gpu(name)
        low_mhz = card.clocks_mhz[len(card.clocks_mhz) // 2]
        usual, here = (co_run(card, pair, low_mhz, constants=each) for each in (known, other))
        assert (usual != here) == (name in changed)
    if not world.startswith(("host", "t4-published")):
        assert all(other.timing[key] == known.timing[key] for key in known.timing if key[2] != "gpt2")


@pytest.mark.parametrize("name", ["idle_w", "dynamic_w", "v_min"])
def test_ends_of_power_constants_enclose_the_calibrated_value(name: str) -> None:
    for gpu in worlds.GPUS:
        low, high = worlds.ends(gpu, name)
        assert low < getattr(default().power[gpu], name) < high


def test_worlds_at_an_end_have_the_constants_of_the_calibrations_range() -> None:
    for world, end in (("dynamic-low", 0), ("dynamic-high", 1)):
        power = worlds.constants(world).power
        assert [power[gpu].dynamic_w for gpu in worlds.GPUS] == [
            worlds.ends(gpu, "dynamic_w")[end] for gpu in worlds.GPUS
        ]
        assert power["H100"] == default().power["H100"]
        loads, known = worlds.constants(world).loads, default().loads
        assert loads["V100", "cnn", "fp32"] == known["V100", "cnn", "fp32"], "the class that the others relate to"
        assert loads != known
    for world, end in (("idle-low", 0), ("voltage-high", 1), ("t4-low", 0)):
        name = "v_min" if world == "voltage-high" else "idle_w"
        power, usual = worlds.constants(world).power["T4"], default().power["T4"]
        assert getattr(power, name) == worlds.ends("T4", name)[end]
        # The T4's assumptions move together with its dynamic power, and with nothing else.
        assert power.dynamic_w != usual.dynamic_w
        assert (power.sharing, power.knee_mhz, power.memory) == (usual.sharing, usual.knee_mhz, usual.memory)


def test_contention_and_co_run_power_are_scaled_on_every_gpu() -> None:
    usual, crowded, hungry = default(), worlds.constants("contention-x5"), worlds.constants("co-run-x2")
    for gpu, contention in usual.contention.items():
        assert crowded.contention[gpu].strength == pytest.approx(5 * contention.strength)
        assert crowded.contention[gpu].wait_s == pytest.approx(5 * contention.wait_s)
        assert hungry.power[gpu].sharing == pytest.approx(2 * usual.power[gpu].sharing)


def test_constants_of_gpt2_apart_and_gpt2_close_differ_by_its_uncertainty() -> None:
    known, apart, close = default(), worlds.constants("gpt2-apart"), worlds.constants("gpt2-close")
    for name, sign in (("T4", 1), ("V100", 1), ("A100", -1)):
        key = (name, "eager", "gpt2")
        size = (1 + known.timing[key].total_uncertainty) ** sign
        assert apart.timing[key].work_s == pytest.approx(size * known.timing[key].work_s)
        assert close.timing[key].latency_s == pytest.approx(known.timing[key].latency_s / size)
        assert apart.timing[key].kernels == known.timing[key].kernels


@pytest.mark.slow
def test_devices_and_predictor_use_the_constants_of_the_same_world() -> None:
    world = "idle-high"
    (device,) = worlds.devices(world, Cluster.parse("1xA100"))
    assert device.read().power_w == worlds.constants(world).power["A100"].parked_w == worlds.ends("A100", "parked_w")[1]
    card, light = catalogue.gpu("A100"), Workload("mobilenet", 1)
    true_w, usual_w = (
        co_run(card, (Resident(light),), constants=each).power_w for each in (worlds.constants(world), default())
    )
    assert worlds.predictor(world).solo([light], card).power_w[0] == pytest.approx(true_w, rel=0.02)
    assert true_w > 1.08 * usual_w


@pytest.mark.parametrize(("kind", "least", "most"), [("alike", 0, 1e-9), ("heavy", 1.8, 2.5)])
def test_durations_s_have_the_mean_of_the_recipe_and_another_spread(kind: str, least: float, most: float) -> None:
    durations_s = worlds.durations_s(kind)
    assert durations_s.mean() == pytest.approx(helios_durations_s().mean())
    assert least <= durations_s.std() / durations_s.mean() <= most


def test_draw_differs_from_the_recipe_in_one_property() -> None:
    usual = draw(40, rng=rng(1))
    how = {"load": "mixed", "arrivals": "at_once", "interval_s": 60.0, "batch_sizes": (4, 8), "trace": None}
    found = {kind: worlds.draw(kind, 40, rng=rng(1), **how) for kind in ("without-gpt2", "alike", "heavy", "bursts")}
    for kind in ("alike", "heavy", "bursts"):
        assert [one.workload for one in found[kind]] == [one.workload for one in usual]
    assert [one.iterations for one in found["bursts"]] == [one.iterations for one in usual]
    times = [one.arrival_s for one in found["bursts"]]
    assert len(set(times)) == 10
    assert all(times[4 * at : 4 * at + 4] == [times[4 * at]] * 4 for at in range(10))
    assert any(one.workload.model == "gpt2" for one in usual)
    for one, other in zip(found["without-gpt2"], usual, strict=True):
        assert one.workload.model != "gpt2"
        alone_s = [task.iterations * time_alone_s(task.workload) for task in (one, other)]
        assert alone_s[0] == pytest.approx(alone_s[1])
    alone_s = [task.iterations * time_alone_s(task.workload) for task in found["alike"]]
    assert alone_s == pytest.approx([helios_durations_s().mean()] * 40)


def test_unknown_worlds_conditions_and_draws_are_refused() -> None:
    for bad in (lambda: worlds.constants("t4"), lambda: sensitivity.conditions(CAPS, ["cap"])):
        with pytest.raises(InputError, match="Choose"):
            bad()
    with pytest.raises(InputError, match="draws"):
        worlds.draw("small", 2, rng=rng())


def test_rivals_get_the_cap_of_morak_and_the_limit_of_both() -> None:
    found = sensitivity.rivals(Condition("", "", cap=0.6, limit=2.0))
    assert found[PAPER, "Morak"] == "morak(cap=0.6,limit=2.0)"
    assert found[PLACED, "mu-Serve"] == "mu-serve:heshare-placement(limit=2.0)"
    assert sensitivity.rivals(REFERENCE, [PAPER]) == {(PAPER, "Morak"): "morak", (PAPER, "mu-Serve"): "mu-serve"}


@pytest.mark.slow
def test_runs_of_a_world_that_changes_no_gpu_of_the_place_equal_the_reference() -> None:
    how = {"seed": 0, "seeds": 1, "interval_s": 60.0}
    usual, other, idle = (
        sensitivity.runs(V100, condition, **how)  # type: ignore[arg-type]
        for condition in (REFERENCE, Condition("x", "y", world="t4-low"), Condition("x", "y", world="idle-high"))
    )
    pd.testing.assert_frame_equal(usual, other)
    merged = usual.merge(idle, on=["world", "repetition", "form", "title"], suffixes=("", "_idle"))
    assert len(merged) == len(usual) == 4
    assert (merged[f"{ENERGY}_idle"] > merged[ENERGY]).all()
    theirs = usual[usual["title"].isin(["Morak", "mu-Serve"])]
    best = usual[usual["title"] == BETTER]
    assert best[[ENERGY, JCT]].to_numpy().tolist() == [theirs[[ENERGY, JCT]].min().tolist()]


def made_up(ours: float, morak: float, mu_serve: float) -> pd.DataFrame:
    values = {"Trade-off": ours, "En-opt": ours, "JCT-opt": ours, "HeShare+": ours, "Sched-only": 90.0, "Random": 100.0}
    theirs = {"Morak": morak, "mu-Serve": mu_serve, BETTER: min(morak, mu_serve)}
    rows = [("", title, value) for title, value in values.items()]
    rows += [(form, title, value) for form in (PAPER, PLACED) for title, value in theirs.items()]
    frame = pd.DataFrame(rows, columns=["form", "title", ENERGY]).assign(world="w")
    frame[JCT] = frame[ENERGY]
    return pd.concat([frame.assign(repetition=number) for number in (0, 1)], ignore_index=True)


def test_verdicts_compare_the_median_with_the_paper_and_use_the_nearer_rival() -> None:
    found = dict.fromkeys(["mix", "loads", "T4", "V100", "A100"], made_up(75.0, 100.0, 90.0))
    table = sensitivity.verdicts(found, REFERENCE)
    paper_only = [measure for measure in MEASURES if measure.id in ("H3", "H4", "H5")]
    assert len(table) == 2 * len(MEASURES) - len(paper_only)
    rows = table[table["form"] == PAPER].set_index(["id", "part"])
    assert rows.loc[("H1", "energy"), "change_pct"] == pytest.approx(-25)
    sizes = rows["size"].to_dict()
    large = {("G2", "Morak"), ("O3", "V100"), ("O3", "A100"), ("O4", "")}
    plain = {("H5", "energy"), ("H5", "jct"), ("+", "energy"), ("+", "jct")}
    none = {("H3", "JCT-opt"), ("H4", "En-opt")}
    assert {key for key, size in sizes.items() if size == "as large"} == large
    assert {key for key, size in sizes.items() if size == verdict_plots.BELOW} == plain, "the paper has no number"
    assert {key for key, size in sizes.items() if size == "not below zero"} == none
    assert {sizes[key] for key in sizes.keys() - large - plain - none} == {"smaller"}
    assert rows["rival"].to_dict()["O2", "V100"] == "mu-Serve"
    assert rows["change_pct"].to_dict()["O2", "V100"] == pytest.approx(100 * (75 / 90 - 1))


def test_level_table_names_what_is_set_and_the_constants_that_move() -> None:
    levels = {**CAPS, "T4's power": {"low": {"world": "t4-low"}}, "contention": {"x5": {"world": "contention-x5"}}}
    table = sensitivity.level_table(sensitivity.conditions(levels, list(levels)))
    rows = {(row["axis"], row["level"]): row for row in table.to_dict("records")}
    assert [rows["Morak's cap", "0.6"][name] for name in ("set", "T4", "V100", "A100")] == ["cap 0.6", "", "", ""]
    assert list(rows["", BASE].values()) == ["", BASE, "", "", "", ""]
    low, other = default().power["T4"], worlds.constants("t4-low").power["T4"]
    assert f"idle_w {low.idle_w:.3g} to {other.idle_w:.3g}" in str(rows["T4's power", "low"]["T4"])
    assert rows["T4's power", "low"]["A100"] == ""
    strength = default().contention["V100"].strength
    assert str(rows["contention", "x5"]["V100"]).startswith(f"strength {strength:.3g} to {5 * strength:.3g}, wait_s")


def test_claims_over_conditions_counts_conditions_and_names_the_worst() -> None:
    frames = []
    for condition, ours in zip(sensitivity.conditions(CAPS, list(CAPS)), (60.0, 90.0, 120.0), strict=True):
        found = dict.fromkeys(["mix", "loads", "T4", "V100", "A100"], made_up(ours, 100.0, 100.0))
        frames.append(sensitivity.verdicts(found, condition))
    table = verdict_plots.claims_over_conditions(pd.concat(frames, ignore_index=True))
    row: pd.DataFrame = table[
        (table["form"] == PAPER) & table["claim"].str.startswith("H1") & table["claim"].str.endswith("JCT")
    ]
    assert row["least_pct"].tolist() == [pytest.approx(-40)]
    fig, ax = plt.subplots()
    verdict_plots.range_rows(ax, table)
    assert len(ax.get_yticks()) == table["claim"].nunique()
    bars = {(round(x[0]), round(x[1])) for line in ax.lines if len(x := line.get_xdata()) == 2}
    assert bars == {(-40, 20), (-10, -10), (0, 0)}, "every range, that of two policies of ours, and the line at zero"
    colours = {line.get_color() for line in ax.lines if line.get_alpha() and line.get_xdata()[1] > 0}
    assert colours == {series_styles.FAILS}
    plt.close(fig)
    kept = ["change_pct", "conditions", "as large", "smaller", "not below zero", "worst_pct", "worst", "fails"]
    (found_row,) = row[kept].to_numpy().tolist()
    assert found_row == [pytest.approx(-40), 3, 1, 1, 1, pytest.approx(20), "Morak's cap 1.0", "Morak's cap 1.0"]
