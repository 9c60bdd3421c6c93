"""Claims about trends: the parts hold by whole intervals, and the least effect is the measured one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.paper.claims import trend_claims
from heshare.paper.studies.front_indicators import extent, spacing, unit_square


@pytest.mark.parametrize(("morak", "holds"), [(1.5, True), (1.0, False)])
def test_a_lead_grows_if_the_ratio_falls_in_every_seed(morak: float, holds: bool) -> None:
    jct = {("few", "Trade-off"): 1.0, ("few", "Morak"): 2.0, ("many", "Trade-off"): 1.0, ("many", "Morak"): 2.0 * morak}
    rows = [
        {"world": world, "repetition": seed, "title": title, "avg_jct_s": value * (1 + seed)}
        for (world, title), value in jct.items()
        for seed in range(6)
    ]
    runs = pd.DataFrame(rows)
    table = trend_claims.growth(runs, "G4", [("Trade-off", "Morak", "avg_jct_s", "")], runs["world"] == "many")
    found = trend_claims.growth_claim(table, "note")
    assert found["holds"] == {"Trade-off over Morak": holds}
    assert found["measured"] == pytest.approx(100 * (1 / morak - 1))
    assert found["at"] == {"rival": "Morak", "gpu": "all"}


def test_extent_and_spacing_of_fronts() -> None:
    even = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    uneven = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0]])
    assert extent(even) == pytest.approx(2**0.5)
    assert spacing(even) == pytest.approx(0.0)
    assert spacing(uneven) == pytest.approx(0.8)
    assert spacing(even[:2]) == 0.0
    scaled = unit_square({"a": 10 * even + 3, "b": 10 * even + 8})
    np.testing.assert_allclose(scaled["a"], even)
