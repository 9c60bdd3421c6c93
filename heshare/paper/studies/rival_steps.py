"""Morak and μ-Serve in HeShare's comparison, in steps from one task at a time without control to their settings."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from heshare.lab.sweeps.study_runs import paired_change
from heshare.policies import registry

FIRST, IN_ORDER = "one at a time, shortest first, top clock", "one at a time, in order of arrival"
TWO, MORAK = "Morak, two at a time, no cap", "Morak"
TIGHT, MU_SERVE = "μ-Serve, limit 1.1", "μ-Serve"
STEPS: Mapping[str, str] = {
    FIRST: "mu-serve:no-control",
    IN_ORDER: "mu-serve:no-control(order=fifo)",
    TWO: "morak(cap=9.0,limit=1.0)",
    MORAK: "morak",
    TIGHT: "mu-serve(limit=1.1)",
    MU_SERVE: "mu-serve",
}
"""The steps, as policies by title. Under a cap that no card reaches and a limit of 1 Morak's clock rises to the top."""
METRICS: Mapping[str, str] = {"energy_active_j": "energy", "energy_cluster_j": "cluster", "avg_jct_s": "jct"}
"""Names of columns by metric: energy in the active and in the cluster account, average JCT."""


def changes(runs: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for title, policy in STEPS.items():
        row: dict[str, Any] = {"title": title, "policy": policy}
        names = [registry.canonical(each) for each in (policy, STEPS[FIRST])]
        for metric, short in METRICS.items():
            change = paired_change(runs, names[0], names[1], metric, by="policy")
            row |= change.columns(f"{short}_pct", f"{short}_low", f"{short}_high")
        rows.append({**row, "n": row.pop("n")})
    return pd.DataFrame(rows).assign(provenance="emulated")
