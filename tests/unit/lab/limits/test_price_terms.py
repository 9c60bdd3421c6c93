"""Terms of a price, and where they are given: the API, the command line, sweeps, plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.lab.limits.power_budget import PowerBudget
from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.lab.limits.prices.signal_cost import plan_costs, run_cost
from heshare.lab.limits.run_terms import RunTerms
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.prediction.oracle import DevicePredictor
from heshare.shared import files
from heshare.shared.errors import InputError

DAY = files.data("signals", "synthetic_day_price.csv")
FALLS = EnergySignal((0.0, 3_600.0), (0.4, 0.1))
SMALL = ["--cluster", "1xT4,1xA100", "--tasks", "4"]


def _command(*arguments: str) -> dict[str, object]:
    """The JSON that a command prints."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def _message(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    return result.output


def test_terms_survive_a_journal_and_a_later_session() -> None:
    terms = PriceTerms(FALLS, 7_200.0, 0.05)
    both = RunTerms(PowerBudget((0.0, 60.0), (900.0, 800.0)), terms)
    assert RunTerms.of_json(json.loads(json.dumps(both.to_json()))) == both
    assert both.later(70.0).power_limit == PowerBudget.constant(800.0)
    assert PriceTerms.parse(terms) is terms
    assert PriceTerms.parse(str(DAY), 60.0).hold_s == 60.0


def test_bad_terms_are_refused() -> None:
    for bad in ({"hold_s": -1.0}, {"saving_per_hour": 2.0}, {"saving_per_hour": float("nan")}):
        with pytest.raises(InputError):
            PriceTerms(FALLS, **bad)
    with pytest.raises(InputError, match="price: found 0\\.3; expected an EnergySignal"):
        hs.run(2, "1xT4", "sjf", price=0.3)  # type: ignore[arg-type]


def test_run_of_the_api_and_of_the_command_line_agree() -> None:
    price = hs.read_signal(DAY, start="7:00")
    run = hs.run(4, "1xT4,1xA100", "sjf", price=price, hold_s=3 * 3_600.0)
    at_once = hs.run(4, "1xT4,1xA100", "sjf")
    assert run.avg_jct_s > at_once.avg_jct_s
    assert run.cost(price).per_kwh < at_once.cost(price).per_kwh
    options = ["--policy", "sjf", "--price", str(DAY), "--price-start", "7:00", "--hold", "3h"]
    shown = _command("run", *SMALL, *options)
    assert shown["cost_active"] == run_cost(run, price).active
    assert shown["avg_jct_s"] == run.avg_jct_s
    counted = _command("run", *SMALL, *options[:-1], "0")
    assert counted["avg_jct_s"] == at_once.avg_jct_s
    assert counted["cost_cluster"] == at_once.cost(price).cluster
    eager = _command("run", *SMALL, *options, "--saving", "90")
    assert eager["avg_jct_s"] == at_once.avg_jct_s


def test_a_price_and_a_power_limit_hold_together() -> None:
    price = hs.read_signal(DAY, start="7:00")
    run = hs.run(4, "1xT4,1xA100", "sjf", price=price, power_limit=250, hold_s=3 * 3_600.0)
    assert run.power_over_time()["power_w"].max() <= 250
    assert run.cost(price).per_kwh < hs.run(4, "1xT4,1xA100", "sjf", power_limit=250).cost(price).per_kwh


@pytest.mark.slow
def test_comparisons_have_columns_of_the_cost(tmp_path: Path) -> None:
    options = ["--policy", "sjf", "--policy", "random", "--seeds", "2", "--price", str(DAY), "--price-start", "7:00"]
    rows = _command("compare", *SMALL, *options, "--cells", str(tmp_path))["rows"]
    price = hs.read_signal(DAY, start="7:00")
    frame = hs.compare(4, "1xT4,1xA100", ["sjf", "random"], seeds=2, price=price)
    assert [row["cost_active"] for row in rows] == frame["cost_active"].tolist()  # type: ignore[attr-defined]
    assert frame.columns[-1] == "planning_s"
    run = hs.run(4, "1xT4,1xA100", "sjf", repetition=1, price=price)
    assert run.cost(price).cluster == frame[frame["policy"] == "sjf"]["cost_cluster"].iloc[1]


def test_plans_have_a_predicted_cost_and_a_wait() -> None:
    tasks, cluster = hs.task_set(4), "1xT4,1xA100"
    predictor = DevicePredictor()
    plan = hs.plan(tasks, cluster, predictor=predictor).jct_opt
    costs = plan_costs([plan], predictor, PriceTerms(FALLS)).iloc[0]
    done = hs.run(tasks, cluster, FixedPlanPolicy(plan), predictor=predictor)
    assert costs["cost"] == pytest.approx(done.cost(FALLS).active, rel=0.05)
    assert costs["wait_h"] == 1.0
    assert costs["cost_waited"] < costs["cost"]
    never = plan_costs([plan], predictor, PriceTerms(FALLS, hold_s=0.0)).iloc[0]
    assert never["wait_h"] == 0.0
    assert never["cost_waited"] == never["cost"]
    shown = CliRunner().invoke(app, ["plan", *SMALL, "--price", str(DAY), "--price-start", "9:00"]).output
    assert "cost_waited" in shown


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    assert "--hold without --price" in _message("run", "--hold", "3h")
    assert "--saving without --price" in _message("compare", "--saving", "3")
    assert "--price-start without --price" in _message("plan", "--price-start", "3:00")
    assert "a time of day such as 18:00" in _message("run", "--price", str(DAY), "--price-start", "noon")
    assert "a time such as 90s, 15m or 2h" in _message("run", "--price", str(DAY), "--hold", "long")
    assert "no such file" in _message("run", "--price", str(tmp_path / "none.csv")).lower()
