"""The baselines of the device model: the columns of their table, and their errors against those of a constant."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heshare.devices.timing_effects import Network
from heshare.lab.calibration.observations import ALONE, EQUAL, Observation, Task
from heshare.world import catalogue

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NETWORKS = [Network(f"n{size}", "cnn", "cnn", float(size), 2.0 + size, 50, 80) for size in (1, 4, 12)]


def rows(laboratory: str) -> list[Observation]:
    """Rows of one laboratory, whose program is slower than the roofline by a factor."""
    rng = np.random.default_rng(len(laboratory))
    found = []
    for name in ("T4", "V100", "A100"):
        gpu = catalogue.gpu(name)
        for network in NETWORKS:
            for size in (1.0, 4.0, 16.0):
                for count in (1, 2):
                    load = network.gflops * size * count / gpu.fp32_tflops
                    time_s = 1e-3 * (2.0 + load) * (1.0 + 0.1 * len(laboratory)) * np.exp(rng.normal(0.0, 0.05))
                    power_w = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * load / (2.0 + load)
                    tasks = (Task(network, size, 1.0),) * count
                    kind = ALONE if count == 1 else EQUAL
                    program = f"{laboratory}|eager"
                    found.append(Observation(program, gpu, "eager", "fp16", tasks, kind, time_s, power_w))
    return found


@pytest.fixture(scope="module")
def bench() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("device_model_baselines")


def test_baselines(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the columns of each method, and both baselines beat the mean on a laboratory left out."""
    monkeypatch.setattr(bench, "TREES", ({"max_leaf_nodes": 4, "max_iter": 12}, {"max_leaf_nodes": 8, "max_iter": 12}))
    both = bench.Baselines(rows("a") + rows("bb") + rows("ccc"))
    test = both.laboratories == "ccc"

    def constant(split: Any, quantity: int, tested: Any) -> Any:
        measured = both.measured[quantity]
        return bench.summary(measured[split.train].mean() - measured[tested])

    table = bench.compare(both, [bench.Split("laboratory ccc", ~test, test, "ccc")], constant)
    methods = [f"{name}_{which}_pct" for name in ("model", "roofline", "boosting") for which in ("mean", "p90")]
    assert list(table.columns) == ["split", "quantity", "n", *methods]
    assert list(table["quantity"]) == ["time", "power"]
    assert (table["n"] == test.sum()).all()
    for name in ("roofline", "boosting"):
        assert (table[f"{name}_mean_pct"] < 0.5 * table["model_mean_pct"]).all()


def test_weights(bench: Any) -> None:
    """A record counts as n / (1 + 0.02 (n - 1)) rows, and rows that are not used as none."""
    both = bench.Baselines(rows("a"))
    used = both.table["gpu"].to_numpy() == "T4"
    weights = both.weights(0, used)
    assert weights.sum() == pytest.approx(18 / (1.0 + 0.02 * 17))
    assert not weights[~used].any()
