"""The studies of the other systems: what is measured, by hand in small examples, and laws that every run keeps."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from heshare.lab.systems.fikit.kernel_rules import FikitRule, TimeSliceRule
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, traces
from heshare.lab.systems.shared.training import step
from heshare.paper.harness import ratios
from heshare.paper.studies.systems import batch_dvfs, eaco, fikit, miso, morak, mu_serve, power_flow, pwr


def frame(columns: list[str], *rows: tuple[object, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns)


class TestEaco:
    def test_deadlines_and_load(self) -> None:
        """Drawn tasks have their deadlines and offer the load."""
        tasks = eaco.EacoSetting(nodes=2, jobs=60, load=0.5, deadline=1.5).draw(rng=np.random.default_rng(0))
        alone_s = np.array([task.iterations * step(task.workload).step_s for task in tasks])
        wide = np.array([task.gpus for task in tasks])
        arrival_s = np.array([task.arrival_s for task in tasks])
        deadline_s = np.array([task.deadline_s for task in tasks])
        assert deadline_s - arrival_s == pytest.approx(1.5 * alone_s)
        assert (wide * alone_s).sum() / (arrival_s.max() * 16) == pytest.approx(0.5, rel=1e-6)

    def test_energy_of_set(self) -> None:
        """Energy of a set follows from its power and slowdown."""
        systems = {"FIFO": "fifo-packed(threshold=inf)", "EaCO": "eaco"}
        runs = eaco.set_runs(systems, seed=0, seeds=1)
        equal = runs[(runs["set"] == "alexnet+resnet50") & (runs["repetition"] == eaco.EQUAL)]
        change = ratios(equal, "EaCO", "FIFO", eaco.NODES).item() - 1
        # Alone 712 and 1330 W for 34.76 and 36.01 h; together 8 x 133.8 + 260.5 W, 3.5 % longer.
        apart_kwh = 0.712 * 34.76 + 1.330 * 36.01
        together_kwh = 1e-3 * (8 * 133.8 + 260.5) * 1.035 * 36.01
        assert change == pytest.approx(together_kwh / apart_kwh - 1, abs=0.01)
        assert equal["published_pct"].iloc[0] == pytest.approx(100 * (50.93 / (24.73 + 47.87) - 1))


class TestPowerFlow:
    def test_gain_at_equal_energy(self) -> None:
        """The gain at equal energy is of the fastest budget within it, and 1 where there is none."""
        runs = frame(
            ["repetition", "title", "energy_running_j", "avg_jct_s"],
            (0, "FIFO", 10.0, 100.0),
            (0, "PowerFlow, 0.8", 8.0, 90.0),
            (0, "PowerFlow, 1", 9.9, 50.0),
            (0, "PowerFlow, 1.2", 10.1, 10.0),
            (1, "FIFO", 7.0, 100.0),
            (1, "PowerFlow, 0.8", 8.0, 90.0),
        )
        found = power_flow.gain_at_equal_energy(runs, "FIFO")
        assert (found.low, found.value, found.high, found.n) == (1.0, 1.5, 2.0, 2)


class TestMiso:
    def test_best_static(self) -> None:
        """The best static partition has the least mean JCT of those in MISO's code."""
        runs = frame(
            ["repetition", "title", "avg_jct_s"],
            (0, "Static 3/3", 10.0),
            (1, "Static 3/3", 30.0),
            (0, "Static 3/2/2", 12.0),
            (1, "Static 3/2/2", 20.0),
            (0, "Static 4/3", 1.0),
            (1, "Static 4/3", 1.0),
        )
        assert miso.best_static(runs) == "Static 3/2/2", "4/3 is not in MISO's code"


class TestFikit:
    @pytest.fixture
    def models(self) -> dict[str, KernelTrace]:
        return {name: traces()[name] for name in ("mobilenetv2", "resnet50")}

    @pytest.mark.slow
    def test_no_faster_than_alone(self, models: dict[str, KernelTrace]) -> None:
        """Runs have every case once and no task is faster than alone."""
        ways = {"FIKIT": FikitRule(), "time slices": TimeSliceRule()}
        runs = fikit.runs(ways, models, [0.0, 0.3], requests=5, seed=1, seeds=2)
        assert len(runs) == 2 * 4 * 2 * 2
        assert not runs.duplicated(["repetition", *fikit.CASE, "title"]).any()
        assert (runs["low_speed"] <= 1.02).all()
        never_idle = runs[(runs["title"] == "FIKIT") & (runs["load"] == 0)]
        assert never_idle["low_speed"].max() < 1e-6, "gaps between kernels are too short to be filled"

    def test_overhead(self, models: dict[str, KernelTrace]) -> None:
        """Overhead is one interception a launch where the host bounds a model."""
        found = fikit.overhead_pct(models, FikitRule(launch_s=1e-6))
        alone_s = models["mobilenetv2"].alone()[1]
        assert found["mobilenetv2"] == pytest.approx(100 * 152e-6 / alone_s)
        assert found["resnet50"] < 0.1


class TestMorak:
    def test_limits(self) -> None:
        """The card keeps its power limit, and Morak its caps and latency."""
        servers = {
            "Morak": morak.Server("morak(elastic=yes,sizes=256,k=2,cap={cap},limit={limit})", 2, 96),
            "uncontrolled": morak.Server("mu-serve:no-control", 1, morak.LARGE, limited=True),
        }
        runs = morak.runs(servers, seconds=10.0, seed=0, seeds=1).set_index(["title", "network"])
        plain = runs.loc["uncontrolled"]
        assert (plain[["above_pct", "beyond_pct"]] == 0).all(axis=None), "the card itself keeps its power limit"
        assert (runs.loc["Morak", "beyond_pct"] <= runs.loc["Morak", "above_pct"]).all()
        assert (runs.loc["Morak", "late_pct"] == 0).all()
        assert (runs.loc["Morak", "cap_w"] == plain["cap_w"]).all(), "the same caps for all"


class TestMuServe:
    setting = mu_serve.MuServeSetting(window_s=60.0, warm_up_s=20.0)

    def test_load_in_window(self) -> None:
        """Requests offer the load in the window."""
        long = replace(self.setting, window_s=4000.0, spread=0.5)
        tasks = long.draw_requests(rng=np.random.default_rng(0))
        busy_s = sum(task.iterations * mu_serve.alone_s("V100", task.workload) for task in tasks)
        assert busy_s / (long.cards * long.window_s) == pytest.approx(long.load, rel=0.05)
        assert [task.id for task in tasks] == list(range(len(tasks)))

    def test_lower_clock(self) -> None:
        """A lower clock takes less power and longer for the same requests."""
        systems = {
            "top": mu_serve.ServingSystem("mu-serve:no-control", clock=1.0),
            "slower": mu_serve.ServingSystem("mu-serve:no-control", clock=0.8),
        }
        runs = mu_serve.runs([self.setting], systems, seed=0, seeds=1).set_index("title")
        assert runs.loc["slower", "requests"] == runs.loc["top", "requests"]
        assert runs.loc["slower", "power_w"] < 0.97 * runs.loc["top", "power_w"]
        assert runs.loc["slower", "slowdown"] > runs.loc["top", "slowdown"]


def test_batch_dvfs() -> None:
    """All systems run the same jobs, and a batch of 1 has less throughput."""
    systems = {"BatchDVFS": "batch-dvfs(cap={cap})", "batch of 1": "batch-dvfs:dvfs-only(cap={cap},fixed=1)"}
    runs = batch_dvfs.runs(systems, "V100", jobs=3, seed=0, seeds=1)
    assert runs.groupby("job")["network"].nunique().eq(1).all()
    assert runs["above_pct"].between(0, 100).all()
    assert (ratios(runs, "batch of 1", "BatchDVFS", "images_per_s", ["job"]) < 1).all()


class TestPwr:
    def test_data_centre(self) -> None:
        """The data centre has the published numbers of GPUs and nodes."""
        nodes = pwr.data_centre(1.0)
        published = sum(total for total, *_ in pwr.GPUS.values())
        assert abs(int((nodes.capacity > 0).sum()) - published) <= 8
        assert abs(len(nodes.free) - 1213) <= 25

    def test_filling(self) -> None:
        """Filling raises power, grants no GPU twice, and is the same for equal placers."""
        placers = {"FGD": 0.0, "FGD again": 0.0, "PWR": 1.0}
        fills = pwr.runs(placers, scale=0.01, seed=3, seeds=2)
        for _, own in fills.groupby(["repetition", "title"]):
            assert (own["power_w"].diff().dropna() >= 0).all()
            assert (own["granted_pct"] * own["demand"]).max() <= 105
            assert own["granted_pct"].iloc[0] == 100
        assert (ratios(fills, "FGD again", "FGD", "power_w", ["demand"]) == 1).all()
        free = ratios(fills, "PWR", "FGD", "power_w", ["demand"])
        assert free[free.index.get_level_values("demand") < 0.8].mean() < 1
