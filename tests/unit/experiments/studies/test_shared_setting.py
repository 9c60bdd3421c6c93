"""Comparison of all systems in one shared setting: the sentence that states changes at each load."""

import numpy as np
import pandas as pd

from heshare.experiments.studies.shared_setting import changes_in_words


def test_changes_in_words_are_paired_by_repetition():
    rows = [
        {
            "load": load,
            "repetition": repetition,
            "title": title,
            "energy_active_j": energy * (1 + repetition),
            "avg_jct_s": jct,
        }
        for load in ("low", "high")
        for title, energy, jct in (("A", 110.0, 80.0), ("B", 100.0, 100.0))
        for repetition in ((0, 1) if title == "A" else (1, 0))
    ]
    assert changes_in_words(pd.DataFrame(rows), "A", "B", np.random.default_rng(0)) == (
        "A against B, energy and average JCT, paired by seed: low +10 [+10, +10] and -20 [-20, -20] %, "
        "high +10 [+10, +10] and -20 [-20, -20] %."
    )
