"""Predictors by name, trained on the shipped profiles or on a user's."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from heshare.prediction.features import ReferenceFeatures, is_reference, profile_features
from heshare.prediction.modelled_references import ModelledReferences
from heshare.prediction.profile_predictor import ProfilePredictor, Trained
from heshare.prediction.samples import training_rows
from heshare.prediction.trees import RandomForest, SetModel, TreesOverRidge
from heshare.profiles import store
from heshare.profiles.missing_utilisation import without_fill_warning
from heshare.profiles.schema import residents_of
from heshare.shared import files
from heshare.shared.arrays import BoolArray
from heshare.shared.disk_cache import cached, key_of
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import check_whole

TREES, RANDOM_FOREST = "trees", "random-forest"
MODELS: dict[str, type[SetModel]] = {TREES: TreesOverRidge, RANDOM_FOREST: RandomForest}
"""Models by the kind of predictor; the first is the default."""
PREDICTOR_KINDS = tuple(MODELS)
LEAST_SAMPLES = 20
"""Samples below which no model is trained on a user's profiles."""


def load_predictor(seed: int = 0, kind: str = TREES) -> ProfilePredictor:
    """Return a predictor trained on the committed profiles of T4, V100 and A100.

    It is loaded when something is first predicted: trained once on a machine, 3 s, and then saved in the user's cache
    (`heshare.shared.disk_cache`). Predictors of one kind and seed share their predictions in a process, not their
    counts of calls. For GPUs and workloads without rows in these profiles, the model gets the device model's answers
    for each workload alone, with an `UnprofiledWarning`.

    Args:
        seed: of the split and of the model.
        kind: `trees`, extremely randomised trees over a quadratic function fitted by ridge regression
            (`TreesOverRidge`, a departure from the paper), or `random-forest`, the paper's technique (`RandomForest`).

    Raises:
        InputError: an unknown kind; later, when something is predicted: a profile is missing or damaged.

    Example:
        >>> from heshare import Workload, load_predictor
        >>> from heshare.world.catalogue import gpu
        >>> alone = load_predictor().solo([Workload("resnet50", 16)], gpu("V100"))
        >>> float(alone.time_s[0, 0].round(4)), float(alone.power_w[0].round())
        (0.0179, 249.0)
    """
    require("kind", repr(kind), kind in PREDICTOR_KINDS, " or ".join(PREDICTOR_KINDS), "Choose one predictor.")
    return ProfilePredictor(partial(_shipped, kind, check_whole("seed", seed, least=0)))


@cache
def _shipped(kind: str, seed: int) -> Trained:
    # Also the sources of the model, and what features take from the catalogue.
    sources = [*sorted((files.PACKAGE / "prediction").glob("*.py")), files.data("gpus.csv")]
    key = key_of([*store.shipped_files(), *sources], ("numpy", "pandas", "scikit-learn"))

    def make() -> Trained:
        profiles = store.read_shipped()
        return Trained(train(profiles, seed=seed, kind=kind).model, ModelledReferences(profiles))

    return cached(f"{kind}-{seed}", key, make)


def train(profiles: pd.DataFrame, *, seed: int, kind: str = TREES) -> Trained:
    """Return a model fitted to 75 % of a profile table's samples (Section III-A), with the table's task features.

    The table has its reference rows; `seed` is of the split and of the model.

    Raises:
        InputError: the reference row of a workload is missing.
    """
    references = ReferenceFeatures(profiles)
    rows = training_rows(profiles, seed=seed)
    features = profile_features(rows, references)
    model = MODELS[kind](seed=seed).fit(features, rows["time_s"].to_numpy(), rows["power_w"].to_numpy())
    return Trained(model, references)


def predictor_factory(profiles: pd.DataFrame, kind: str = TREES) -> Callable[[], ProfilePredictor]:
    """Return a function that makes predictors of one model of a user's profiles, trained when one first predicts.

    Rows that `covered_rows` excludes are left out. Utilisations that were not recorded are the device model's. What the
    profiles do not hold is refused, when something is predicted: so are fewer than `LEAST_SAMPLES` samples, which a
    policy that predicts nothing does not need.
    """

    @cache
    def trained() -> Trained:
        with without_fill_warning():
            covered = profiles[covered_rows(profiles)].reset_index(drop=True)
            samples = int((~is_reference(covered)).sum())
            found = f"{samples} samples whose tasks were all recorded alone too"
            action = "Record for longer, such as --budget 15m; the existing rows are kept."
            require("profiles", found, samples >= LEAST_SAMPLES, f"at least {LEAST_SAMPLES}", action)
            return train(covered, seed=0, kind=kind)

    return partial(ProfilePredictor, trained)


def covered_rows(profiles: pd.DataFrame) -> BoolArray:
    """Return which rows have reference rows for all of their tasks, shape (rows,); only those can train a predictor."""
    references = ReferenceFeatures(profiles)
    return np.array([_is_covered(references, row) for row in profiles.itertuples(index=False)], dtype=bool)


def _is_covered(references: ReferenceFeatures, row: Any) -> bool:
    try:
        for resident in residents_of(row):
            references.task(row.gpu, resident.workload)
    except InputError:
        return False
    return True
