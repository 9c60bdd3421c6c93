"""Table I as the paper prints it, apart from what the policies here declare and are held to."""

from __future__ import annotations

from types import MappingProxyType

import pandas as pd

from heshare.policies.policy import Traits
from heshare.policies.registry import declared

# Jiang et al., Table I. PWR also lets tasks share a GPU (its published code does), which the table leaves out.
PUBLISHED = MappingProxyType(
    {
        "BatchDVFS": Traits(frequency=True, multi_task=False, heterogeneous=False),
        "PWR": Traits(frequency=False, multi_task=False, heterogeneous=True),
        "μ-Serve": Traits(frequency=True, multi_task=False, heterogeneous=False),
        "Morak": Traits(frequency=True, multi_task=True, heterogeneous=False),
        "HeShare": Traits(frequency=True, multi_task=True, heterogeneous=True),
    }
)


def table_1() -> pd.DataFrame:
    """Table I: columns solution, frequency, multi_task, heterogeneous (bool) and provenance.

    Provenance is `published` for the paper's rows and `declared` for the policies of this package, whose declarations
    a test holds against what they do in runs. A solution is multi-task if it has several tasks under way on one GPU at
    once: side by side under MPS or in MIG instances (MISO), in turns of time slices (EaCO), or one in the gaps of
    another (FIKIT).
    """
    rows = [
        {"solution": name, **_columns(traits), "provenance": provenance}
        for provenance, table in (("published", PUBLISHED), ("declared", declared()))
        for name, traits in table.items()
    ]
    return pd.DataFrame(rows)


def _columns(traits: Traits) -> dict[str, bool]:
    return {
        "frequency": traits.frequency,
        "multi_task": traits.multi_task,
        "heterogeneous": traits.heterogeneous,
    }
