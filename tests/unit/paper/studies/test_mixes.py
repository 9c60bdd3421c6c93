"""Numbers of Figs. 8 to 11: ratios and differences paired by seed, growth of a lead, where tasks ran."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import heshare as hs
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import harness
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.harness import JCT
from heshare.paper.studies import mixes


def runs(values: dict[tuple[str, str], float]) -> pd.DataFrame:
    """Six seeds of each load and system; seed i has 1 + i times the value."""
    rows = [
        {"load": load, "title": title, "repetition": seed, JCT: value * (1 + seed), "T4": value}
        for (load, title), value in values.items()
        for seed in range(6)
    ]
    return pd.DataFrame(rows)


SMALL = runs({("low", "Trade-off"): 1, ("low", "Morak"): 2, ("high", "Trade-off"): 1, ("high", "Morak"): 8})


def test_ratios() -> None:
    """Ratios are paired by seed and averaged over settings."""
    by_load = mixes.ratios(SMALL, "Trade-off", JCT, ["load"])
    found = by_load[by_load["title"] == "Morak"].groupby("load", sort=False)["ratio"].agg(["min", "max"])
    assert found.to_numpy() == pytest.approx(np.array([[2, 2], [8, 8]]))
    assert set(by_load.loc[by_load["title"] == "Trade-off", "ratio"]) == {1.0}

    together = mixes.ratios(SMALL, "Trade-off", JCT)
    assert together[together["title"] == "Morak"]["ratio"].tolist() == pytest.approx([4.0] * 6)


@pytest.mark.parametrize(("more", "change"), [(4.0, -50.0), (2.0, 0.0), (1.0, 100.0)])
def test_growth(more: float, change: float) -> None:
    """A lead grows where the ratio falls."""
    with_more = runs({("", "Trade-off"): 3.0, ("", "Morak"): 3.0 * more})
    with_less = runs({("", "Trade-off"): 1.0, ("", "Morak"): 2.0})
    size = mixes.growth(with_more, with_less, "Trade-off", "Morak", JCT)
    assert (size.value, size.low, size.high, size.n) == pytest.approx((change, change, change, 6))


def test_difference() -> None:
    """A difference leaves out settings without a value."""
    gone = SMALL.assign(T4=SMALL["T4"].where(SMALL["load"] == "high"))
    assert harness.difference(gone, "Morak", "Trade-off", "T4").value == 7.0


def test_share_on_gpu() -> None:
    """Shares of tasks by GPU type sum to 100 %; a missing type has none."""
    run = hs.run(6, "1xT4,1xA100", "heshare:en-opt", seed=1)
    shares = [mixes.share_on(gpu, run) for gpu in ("T4", "A100")]
    assert sum(shares) == pytest.approx(100.0)
    on_t4 = run.to_frame()["gpu"].str.startswith("T4").mean()
    assert shares[0] == pytest.approx(100 * on_t4)
    assert math.isnan(mixes.share_on("V100", run))


def test_values_of_claims() -> None:
    """The smallest gain is the smallest reduction; the ratio that a reduction implies gives the reduction again."""
    sizes = [ConfidenceInterval(value, value - 1, value + 1, 6) for value in (-30.0, -10.0, -20.0)]
    assert mixes.smallest_gain(*sizes) is sizes[1]
    reduction = paper_claims()["G1", "Morak"].value
    assert 100 * (1 / mixes.implied("G1", "Morak") - 1) == pytest.approx(reduction)
