"""Energy and JCT of each policy by the paper's percentages of Fig. 6, relative to HeShare's plans here."""

import pandas as pd

from heshare.paper.claims.fig6_numbers import NUMBERS
from heshare.paper.claims.paper_claims import paper_claims


def implied_values(medians: pd.DataFrame) -> pd.DataFrame:
    """Return the value of each policy if the paper's reductions held; the paper has no absolute values.

    `medians` is as from `harness.medians`.

    Returns:
        One row each: title, metric, value (J or s).
    """
    found = medians.set_index(["title", "metric"])["median"]
    rows = []
    for key, (plan, title, metric) in NUMBERS.items():
        left = 1.0 + paper_claims()[key].value / 100.0
        rows.append({"title": title, "metric": metric, "value": found[plan, metric] / left})
    return pd.DataFrame(rows)
