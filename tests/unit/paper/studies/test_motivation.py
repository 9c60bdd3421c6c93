"""Figs. 1 to 4: order of the rows, ratios between GPUs, effect of the clock, slowdown of pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.paper.studies import motivation


@pytest.fixture(scope="module")
def alone() -> pd.DataFrame:
    return motivation.solo(batch_sizes=[1, 8])


def test_ratios_between_gpus(alone: pd.DataFrame) -> None:
    """Ratios follow from the rows of their workload and size."""
    ratios = motivation.ratios_between_gpus(alone).set_index(["workload", "batch_size"])
    assert len(ratios) == 15 * 2
    rows = alone.set_index(["workload", "batch_size", "gpu"]).sort_index()
    for key in (("bert_large", 1), ("gpt2", 8)):
        own = rows.loc[key]
        found = ratios.loc[key]
        assert found["energy_ratio"] == own["energy_j"].max() / own["energy_j"].min()
        assert found["time_ratio"] == own["time_s"].max() / own["time_s"].min()
        assert found["t4_over_a100"] == own.loc["T4", "time_s"] / own.loc["A100", "time_s"]
        assert found["unmeasured"] == ", ".join(gpu for gpu in motivation.PAPER_GPUS if not own.loc[gpu, "anchored"])


def test_over_sizes() -> None:
    """The value over sizes is at one size in the range of all."""
    size = motivation.over_sizes(pd.Series({1: 4.0, 8: 2.0, 16: 3.0}), 8)
    assert (size.value, size.low, size.high, size.n) == (2.0, 2.0, 4.0, 3)


def test_clock_elasticity() -> None:
    """The elasticity is the exponent of the clock in its upper half."""
    mhz = np.array([300.0, 600.0, 800.0, 1000.0])
    parts = [
        pd.DataFrame({"batch_size": 16, "gpu": gpu, "requested_mhz": mhz, "time_s": mhz**power})
        for gpu, power in (("T4", 0.0), ("V100", -1.0), ("A100", -0.5))
    ]
    parts[0].loc[0, "time_s"] = 99.0  # below half of the top clock
    found = motivation.clock_elasticities(pd.concat(parts))
    assert found.loc[16].to_dict() == pytest.approx({"T4": 0.0, "V100": -1.0, "A100": -0.5})


def test_slowdown_of_pair() -> None:
    """The slowdown of a pair is that of the drawn times."""
    row = motivation.pair_row("T4", ("resnet50", "gpt2"), np.array([1.0, 4.0]), np.array([2.0, 32.0]))
    assert (row["alone_s"], row["together_s"], row["degradation_pct"]) == pytest.approx((2.0, 8.0, 300.0))
