"""Training samples of the predictor, and their split: 75 % train, 25 % validate (Section III-A)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heshare.prediction.features import ReferenceFeatures, is_reference, set_features
from heshare.profiles.schema import residents_of
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require
from heshare.world.workload import Resident

TRAIN_PART = 0.75
"""Part of the samples that trains (Section III-A: 75 % training, 25 % validation)."""
SPLITS = ("row", "workload", "gpu")
"""How test rows are held out: 25 % of the rows (the paper's way), whole workloads, or a whole type of GPU."""
ROW_SPLITS, WORKLOAD_FOLDS = 6, 5


@dataclass(frozen=True, slots=True)
class Samples:
    """m observations of a task on a GPU that it may share.

    Attributes:
        rows: one row an observation: gpu, workload (the observed task's model), sm_mhz (requested clock), time_s,
            power_w (NaN: not recorded).
        members: the residents of each, the observed task first, m of them.
        references: reference rows, which give the task features.
        provenance: emulated, measured or published.
    """

    rows: pd.DataFrame
    members: tuple[tuple[Resident, ...], ...]
    references: pd.DataFrame
    provenance: str

    @property
    def truth(self) -> FloatArray:
        """Times (s) and powers (W; NaN: not recorded), shape (m, 2)."""
        return self.rows[["time_s", "power_w"]].to_numpy(float)

    def every(self, step: int) -> "Samples":
        """Return every `step`-th observation, for a smoke run."""
        return Samples(self.rows[::step].reset_index(drop=True), self.members[::step], self.references, self.provenance)

    def features(self) -> FloatArray:
        """Return Table II's features, shape (m, 14)."""
        gpus, mhz = self.rows["gpu"].tolist(), self.rows["sm_mhz"].to_numpy(np.int64)
        return set_features(gpus, self.members, mhz, ReferenceFeatures(self.references))


def profile_samples(profiles: pd.DataFrame) -> Samples:
    """Return the samples of a profile table; its reference rows give the task features."""
    alone = is_reference(profiles)
    samples = profiles[~alone].reset_index(drop=True)
    members = tuple(map(residents_of, samples.itertuples(index=False)))
    kinds = sorted(profiles["provenance"].unique())
    return Samples(
        samples[["gpu", "workload", "sm_mhz", "time_s", "power_w"]], members, profiles[alone], "+".join(kinds)
    )


def training_rows(profiles: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Return the rows of a profile table that train: 75 % of those that are no reference rows (Section III-A)."""
    samples = profiles[~is_reference(profiles)].reset_index(drop=True)
    return samples.iloc[split_rows(len(samples), rng=np.random.default_rng(seed))[0]]


def split_rows(rows: int, *, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return the row numbers that train (75 %) and that validate (25 %), both ascending (Section III-A)."""
    order = rng.permutation(rows)
    cut = round(TRAIN_PART * rows)
    return np.sort(order[:cut]), np.sort(order[cut:])


def folds(kind: str, samples: pd.DataFrame, seed: int, quick: bool) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the training and test rows of each test set of a split.

    `seed` is of random splits by row; `quick` yields the first test set only.

    Raises:
        InputError: an unknown kind of split.
    """
    require("split", repr(kind), kind in SPLITS, " or ".join(SPLITS), "Choose known splits.")
    if kind == "row":
        for child in np.random.SeedSequence(seed).spawn(2)[0].spawn(1 if quick else ROW_SPLITS):
            yield split_rows(len(samples), rng=np.random.default_rng(child))
        return
    from sklearn.model_selection import GroupKFold, LeaveOneGroupOut  # slow to import

    count = min(WORKLOAD_FOLDS, samples["workload"].nunique())
    splitter = GroupKFold(count) if kind == "workload" else LeaveOneGroupOut()
    for number, fold in enumerate(splitter.split(samples, groups=samples[kind])):
        if number == 0 or not quick:
            yield fold
