"""The eight numbers of Fig. 6 (H1 to H4): which plan of HeShare is compared with which policy, and in which metric."""

from collections.abc import Mapping

import pandas as pd

from heshare.paper.harness import ENERGY, JCT, change

NUMBERS: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("H1", "energy"): ("Trade-off", "Morak", ENERGY),
    ("H1", "jct"): ("Trade-off", "Morak", JCT),
    ("H2", "energy"): ("Trade-off", "μ-Serve", ENERGY),
    ("H2", "jct"): ("Trade-off", "μ-Serve", JCT),
    ("H3", "Random"): ("En-opt", "Random", ENERGY),
    ("H3", "JCT-opt"): ("En-opt", "JCT-opt", ENERGY),
    ("H4", "Random"): ("JCT-opt", "Random", JCT),
    ("H4", "En-opt"): ("JCT-opt", "En-opt", JCT),
}
"""By id and part of the claim: the plan, the policy that it is compared with, and the metric."""


def numbers(runs: pd.DataFrame, titles: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the eight numbers of one setting.

    Args:
        runs: as from `harness.run`, of one setting.
        titles: the title in `runs` of a policy of `NUMBERS`, where it has another one, such as
            `{"Random": "Random, all at once"}`.

    Returns:
        One row a number: id, part, value (the change in %), low, high, n.
    """
    found = dict(titles or {})
    rows = []
    for (id, part), (ours, theirs, metric) in NUMBERS.items():
        size = change(runs, found.get(ours, ours), found.get(theirs, theirs), metric)
        rows.append({"id": id, "part": part, **size.columns("value")})
    return pd.DataFrame(rows)
