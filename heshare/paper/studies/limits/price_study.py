"""Study: money saved by waiting for cheap energy against the JCT that waiting costs."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.constants import default
from heshare.lab.limits.prices.energy_signal import DAY_S, EnergySignal, read_signal
from heshare.lab.limits.prices.price_aware import CheapestHourRule, HoldRule, SavingRule, price_aware
from heshare.lab.limits.prices.signal_cost import period_cost, run_cost
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.lab.sweeps.statistics import median_interval
from heshare.lab.sweeps.study_runs import REPETITION, repeat
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import EFFECT, FAINT, GUIDE, series_style
from heshare.policies import registry
from heshare.policies.cached_planner import Searches, share_planners
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared import files
from heshare.world.cluster import Cluster

POLICIES = ("heshare:trade-off", "heshare+:trade-off", "marginal")
CLUSTER = "1xT4,1xV100,1xA100"
START_HOURS = (1.0, 5.0, 9.0, 13.0, 17.0, 21.0)
AT_ONCE, SAVING, CHEAPEST = "at once", "saving rule", "cheapest hour"
SAVINGS_PCT = (20.0, 10.0, 0.0)
"""Settings of the saving rule: what each hour of waiting must save, in percent of the cost."""
HOLDS_H = (2.0, 4.0, 8.0)
"""Settings of the cheapest hour: the bound, h. That of the saving rule is the longest."""


def day_price() -> EnergySignal:
    """Return the day's price that is shipped, which is made up; see `data/README.md`."""
    return read_signal(files.data("signals", "synthetic_day_price.csv"), daily=True)


def price_runs(
    *,
    tasks: int = 8,
    cluster: str = CLUSTER,
    policies: Sequence[str] = POLICIES,
    savings_pct: Sequence[float] = SAVINGS_PCT,
    holds_h: Sequence[float] = HOLDS_H,
    start_hours: Sequence[float] = START_HOURS,
    seeds: int = 8,
    seed: int = 0,
    signal: EnergySignal | None = None,
) -> pd.DataFrame:
    """Return the cost and JCT of policies without waiting, with the saving rule, and with the trivial baseline.

    Each repetition draws a task set, all tasks there at once, and runs it from each of the hours. The first policy
    is also run with the cheapest hour; the longest of `holds_h` is also the saving rule's bound.

    Returns:
        One row a repetition, hour, policy, rule and setting: start_h, title, rule, setting, cost_active, cost_cluster,
        cost_per_kwh, cost_period (all GPUs until the last run from this hour ends), energy_active_j, energy_cluster_j,
        avg_jct_s, makespan_s, provenance.
    """
    gpus, price = Cluster.parse(cluster), signal or day_price()
    cases = [(name, SAVING, each) for name in policies for each in savings_pct]
    cases += [(policies[0], CHEAPEST, each) for each in holds_h]

    def run_one(streams: Repetition) -> Iterator[Mapping[str, object]]:
        drawn, searches = streams.task_set(tasks), _Shared()

        def run_under(policy: Policy) -> Run:
            return run(drawn, gpus, policy, predictor=searches.predictor, rng=streams.rng(POLICY))

        # The hour at which it begins changes the cost of a run that does not wait, not the run.
        at_once = {name: run_under(searches.policy(name)) for name in policies}
        for start_h in start_hours:
            begun = price.starting(3_600.0 * start_h)
            done = [(_labels(name, AT_ONCE, 0.0), each) for name, each in at_once.items()]
            for name, rule, setting in cases:
                held: HoldRule = CheapestHourRule(begun) if rule == CHEAPEST else SavingRule(begun, setting / 100.0)
                longest_s = 3_600.0 * (setting if rule == CHEAPEST else max(holds_h))
                policy = price_aware(searches.policy(name), begun, longest_s, held)
                done.append((_labels(name, rule, setting), run_under(policy)))
            yield from _rows(done, gpus, begun, start_h)

    return repeat(run_one, seed=seed, seeds=seeds)


class _Shared:
    def __init__(self) -> None:
        self.predictor: Predictor = load_predictor(shared_cache=True)
        self._searches: Searches = {}
        self._first: dict[str, Policy] = {}

    def policy(self, name: str) -> Policy:
        """Return a policy of this name; all of one name plan a task set once."""
        made = registry.make(name)
        share_planners([self._first.setdefault(name, made), made], self._searches)
        return made


def _labels(name: str, rule: str, setting: float) -> dict[str, object]:
    return {"title": registry.title(name), "rule": rule, "setting": setting}


def _rows(
    done: Sequence[tuple[dict[str, object], Run]], cluster: Cluster, price: EnergySignal, start_h: float
) -> Iterator[Mapping[str, object]]:
    until_s, power = max(each.makespan_s for _, each in done), default().power
    rest_w = np.array([power[gpu.name].parked_w for gpu in cluster.gpus])
    measures = ("energy_active_j", "energy_cluster_j", "avg_jct_s", "makespan_s", "provenance")
    for labels, each in done:
        period = {f"{price.counts}_period": period_cost(each, price, until_s, rest_w)}
        values = {name: getattr(each, name) for name in measures}
        yield {"start_h": start_h, **labels, **run_cost(each, price).columns(), **period, **values}


def savings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what waiting saves and costs against starting at once: medians over repetitions with 95 % intervals.

    Returns:
        One row a title, rule and setting: saved_pct with low and high (money saved over one period by all GPUs, in
        percent of the active account's cost at once; of all hours together), n, added_jct_h with low_h and high_h (mean
        of the hours), energy_pct (change of the active energy, which has idle power while GPUs wait).
    """
    measures = ["cost_period", "cost_active", "avg_jct_s", "energy_active_j"]
    summed = runs.groupby(["title", REPETITION, "rule", "setting"], sort=False)[measures].mean().reset_index()
    at_once = summed[summed["rule"] == AT_ONCE].set_index(["title", REPETITION])
    rows = []
    for (title, rule, setting), part in summed.groupby(["title", "rule", "setting"], sort=False):
        own, base = part.set_index(["title", REPETITION]), at_once.loc[[title]]
        saved_pct = 100.0 * (base["cost_period"] - own["cost_period"]) / base["cost_active"]
        added_h = (own["avg_jct_s"] - base["avg_jct_s"]) / 3_600.0
        energy_pct = 100.0 * (own["energy_active_j"] / base["energy_active_j"] - 1.0)
        rows.append(
            {
                **{"title": title, "rule": rule, "setting": setting},
                **median_interval(saved_pct).columns("saved_pct"),
                **median_interval(added_h).columns("added_jct_h", "low_h", "high_h"),
                "energy_pct": float(energy_pct.median()),
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def price_steps(ax: Axes, price: EnergySignal, start_hours: list[float]) -> None:
    hours = [time_s / 3_600.0 for time_s in (*price.time_s, DAY_S)]
    ax.step(hours, [*price.value, price.value[-1]], where="post", color=EFFECT, linewidth=1.2)
    for number, hour in enumerate(start_hours):
        label = "a run begins" if number == 0 else None
        ax.axvline(hour, color=FAINT, linestyle=":", linewidth=0.8, zorder=0, label=label)
    ax.set(xlabel="Hour of the day", ylabel="Price of a kWh")
    ax.set_xlim(0, 24)
    ax.set_xticks(range(0, 25, 6))
    ax.set_ylim(bottom=min(0.0, *price.value))
    ax.legend(loc="upper left")


def saving_lines(ax: Axes, found: pd.DataFrame) -> None:
    """Draw money saved over the JCT added: a line with 95 % intervals for each policy, the baseline dashed in grey."""
    first = str(found["title"].iloc[0])
    for name, part in found.groupby("title", sort=False):
        shown = part[part["rule"].isin([AT_ONCE, SAVING])].sort_values("added_jct_h")
        how = series_style(str(name)).line_arguments()
        lengths = plots.interval_lengths(shown, "saved_pct", "low", "high")
        ax.errorbar(shown["added_jct_h"], shown["saved_pct"], yerr=lengths, elinewidth=0.7, label=str(name), **how)
    base = found[(found["title"] == first) & found["rule"].isin([AT_ONCE, CHEAPEST])].sort_values("added_jct_h")
    label = f"{first}, cheapest hour"
    ax.plot(base["added_jct_h"], base["saved_pct"], "--", color=GUIDE, marker=".", label=label, zorder=1)
    ax.axhline(0.0, color=FAINT, linewidth=0.7, zorder=0)
    ax.set(xlabel="Average JCT added (h)", ylabel="Money saved (% of the cost at once)")
    ax.legend(loc="lower right")
