"""The places where the paper's percentages of Fig. 6 put each policy, given HeShare's plans as found here."""

import pandas as pd

from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.harness import ENERGY, JCT

_FROM = {
    ("Morak", ENERGY): ("Trade-off", "H1", "energy"),
    ("Morak", JCT): ("Trade-off", "H1", "jct"),
    ("μ-Serve", ENERGY): ("Trade-off", "H2", "energy"),
    ("μ-Serve", JCT): ("Trade-off", "H2", "jct"),
    ("Random", ENERGY): ("En-opt", "H3", "Random"),
    ("JCT-opt", ENERGY): ("En-opt", "H3", "JCT-opt"),
    ("Random", JCT): ("JCT-opt", "H4", "Random"),
    ("En-opt", JCT): ("JCT-opt", "H4", "En-opt"),
}
"""For a policy and metric: the plan that the paper compares with it, and the claim that has the reduction."""


def implied_values(medians: pd.DataFrame) -> pd.DataFrame:
    """Return the value of each policy if the paper's reductions held; the paper has no absolute values.

    `medians` is as from `harness.medians`.

    Returns:
        One row each: title, metric, value (J or s).
    """
    found = medians.set_index(["title", "metric"])["median"]
    rows = []
    for (title, metric), (plan, id, part) in _FROM.items():
        left = 1.0 + paper_claims()[id, part].value / 100.0
        rows.append({"title": title, "metric": metric, "value": found[plan, metric] / left})
    return pd.DataFrame(rows)
