"""Study of power limits: its rows, the limits of its runs, and the costs that are paired with runs without a limit."""

from __future__ import annotations

import numpy as np

from heshare.paper.studies.limits import limit_study


def test_limited_runs_are_below_their_limits_and_paired_with_free_ones():
    runs = limit_study.limited_runs(["marginal", "fifo"], [0.8, 0.65], cluster="1xT4,1xA100", tasks=5, seed=0, seeds=2)
    assert len(runs) == 2 * 2 * 3
    limited = runs[runs["share"] < limit_study.UNLIMITED]
    free = runs[runs["share"] == limit_study.UNLIMITED].set_index(["repetition", "title"])
    assert (limited["excess_w"] == 0).all()
    assert (limited["peak_w"] <= limited["limit_w"]).all()
    peaks = free.loc[list(zip(limited["repetition"], limited["title"], strict=True)), "peak_w"]
    assert np.allclose(limited["limit_w"], limited["share"] * peaks.to_numpy())
    costs = limit_study.limit_costs(runs)
    assert costs["share"].tolist() == [0.8] * 3 + [0.65] * 3 + [0.8] * 3 + [0.65] * 3
    assert (costs["low"] <= costs["change_pct"]).all()
    assert (costs["n"] == 2).all()
