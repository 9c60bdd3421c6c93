"""The paper's predictor (Section III-A): one random forest for time under sharing and for the GPU's power."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from math import fsum
from typing import Any

import numpy as np
import pandas as pd

from heshare.prediction.features import (
    FeatureEncoder,
    ReferenceFeatures,
    is_reference,
    profile_features,
)
from heshare.prediction.forest_trees import ForestTrees
from heshare.prediction.predictor import Predictor
from heshare.prediction.record_predictor import PredictionCache, RecordPredictor
from heshare.prediction.samples import training_rows
from heshare.prediction.targets import LEARNED, Targets
from heshare.profiles import store
from heshare.profiles.missing_utilisation import ModelledUtilisationWarning
from heshare.profiles.schema import residents_of
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.caches.array_store import Arrays, key_of, load_arrays, package_files, save_arrays
from heshare.shared.errors import InputError

FOREST_SETTINGS: dict[str, object] = {"n_estimators": 100, "max_features": 1.0, "min_samples_leaf": 1}
"""The forest's settings, chosen by cross-validation inside the training part (`heshare.prediction.table5`)."""
STORED_SEED = 0
"""The seed whose forest is stored, so that a start need not train it: that of everybody who names none."""
_STORED = "forest"
_PARTS = ("caches", "inputs", "world", "devices", "profiles", "prediction")
_TABLES = ("calibration", "profiles", "training")
_LIBRARIES = ("numpy", "pandas", "scikit-learn", "scipy")
LEAST_SAMPLES = 20
"""Samples below which a forest is not trained on a user's profiles."""


class Forest:
    """A random forest with two outputs, time and power.

    Args:
        seed: of the bootstrap and of the features tried at each split.
        target: the form in which the outputs are learned, see `Targets`.
    """

    def __init__(self, *, seed: int, target: str = "load") -> None:
        self._seed = seed
        self._targets = Targets(target)
        self._scale = np.ones(2)

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> Forest:
        """Learn from features (rows, 14), times (s) and powers (W), each (rows,); returns itself."""
        from sklearn.ensemble import RandomForestRegressor  # slow to import, and a stored forest needs none

        learned = self._targets.fit(features, time_s, power_w)
        self._scale = learned.std(axis=0) + 1e-12
        # Ten digits are kept, since a tree can turn a last bit that another processor computes into another split.
        self._model = RandomForestRegressor(random_state=self._seed, n_jobs=1, **FOREST_SETTINGS)
        self._model.fit(features.astype(np.float32), (learned / self._scale).round(10))
        self._trees = ForestTrees.of(self._model.estimators_)
        return self

    def to_arrays(self) -> dict[str, Any]:
        """Return what a fitted forest predicts with, from which `of_arrays` makes it again."""
        learned = {name: getattr(self._targets, name) for name in LEARNED}
        return {"scale": self._scale, **learned, **self._trees.arrays}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], *, seed: int, target: str = "load") -> Forest:
        """Return the fitted forest whose `to_arrays` returned these."""
        made = cls(seed=seed, target=target)
        for name in LEARNED:
            setattr(made._targets, name, arrays[name])
        made._scale, made._trees = arrays["scale"], ForestTrees(arrays)
        return made

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 14)."""
        mean = self._trees.total(features) / len(self._trees)
        return self._targets.decode(features, mean * self._scale)


class ForestPredictor(RecordPredictor):
    """Predictor of time and power by Table II's features and a random forest (Section III-A, Eq. 5).

    The power of a set is the mean over its members of the power that the forest predicts with that member as the task
    and the others as its co-runners. Reference rows and cached sets are as in `RecordPredictor`.

    Args:
        forest: a fitted forest, or that of the shipped profiles.
        references: task features of the profiles.
        cache: see `RecordPredictor`.
        fallback: see `RecordPredictor`.
    """

    def __init__(
        self,
        forest: Forest | ShippedForest,
        references: ReferenceFeatures,
        cache: PredictionCache | None = None,
        fallback: Predictor | None = None,
    ) -> None:
        super().__init__(references, cache, fallback)
        self._forest = forest

    def _predict_sets(self, encoder: FeatureEncoder, ids: IntArray, sm_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        present = ids >= 0
        time_s = np.full(ids.shape, np.nan)
        time_s[present], powers = self._forest.predict(encoder.rows(ids, sm_mhz)[present])
        ends, listed = np.cumsum(present.sum(axis=1)).tolist(), powers.tolist()
        # fsum is exact, so the order in which a process first met the tasks cannot change a bit.
        power_w = [fsum(listed[start:end]) / (end - start) for start, end in zip([0, *ends], ends, strict=False)]
        return time_s, np.array(power_w)


def train_forest(profiles: pd.DataFrame, *, seed: int, target: str = "load") -> tuple[Forest, ReferenceFeatures]:
    """Return a forest fitted to 75 % of a profile table's samples (Section III-A), and the profiles' task features.

    Args:
        profiles: a table of the profile schema, with its reference rows.
        seed: of the split and of the forest.
        target: the form in which the outputs are learned, see `Targets`.

    Raises:
        InputError: the reference row of a workload is missing.
    """
    references = ReferenceFeatures(profiles)
    rows = training_rows(profiles, seed=seed)
    forest = Forest(seed=seed, target=target).fit(
        profile_features(rows, references), rows["time_s"].to_numpy(), rows["power_w"].to_numpy()
    )
    return forest, references


@cache
def _stored() -> Arrays | None:
    """Return the stored forest and task features of the shipped profiles, if they are there and not stale."""
    return load_arrays(_STORED, _stored_key())


@cache
def _stored_key() -> str:
    return key_of(package_files(_PARTS, _TABLES), _LIBRARIES, STORED_SEED)


@cache
def shipped_references() -> ReferenceFeatures:
    """Return the task features of the shipped profiles, an `InputError` where one is missing or damaged."""
    stored = _stored()
    return ReferenceFeatures(store.read_shipped()) if stored is None else ReferenceFeatures.of_arrays(stored)


@cache
def _shipped_forest(seed: int) -> Forest:
    stored = _stored() if seed == STORED_SEED else None
    if stored is not None:
        return Forest.of_arrays(stored, seed=seed)
    forest, references = train_forest(store.read_shipped(), seed=seed)
    if seed == STORED_SEED:
        save_arrays(_STORED, _stored_key(), {**forest.to_arrays(), **references.to_arrays()})
    return forest


class ShippedForest:
    """The forest of the shipped profiles, loaded or trained when it first predicts, once in a process.

    Args:
        seed: of the split and of the forest.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 14)."""
        return _shipped_forest(self._seed).predict(features)


@cache
def _shared_cache(seed: int) -> PredictionCache:
    return {}


def load_forest_predictor(
    seed: int = 0, *, shared_cache: bool = False, fallback: Predictor | None = None
) -> ForestPredictor:
    """Return the paper's predictor, trained on the committed profiles of T4, V100 and A100.

    The forest is loaded when a set is first predicted, not for workloads alone. It is trained once on a machine and
    then stored (`heshare.shared.caches.array_store`), that of another seed once in a process.

    Args:
        seed: of the split and of the forest.
        shared_cache: whether predictions are cached for all predictors of this process that share the cache.
            Predictions and counts of calls are the same; only time differs, as for a scheduler that has met its
            workloads before.
        fallback: predicts for GPUs and workloads without profiles; None refuses them.

    Raises:
        InputError: a profile is missing or damaged.
    """
    cached = _shared_cache(seed) if shared_cache else None
    return ForestPredictor(ShippedForest(seed), shipped_references(), cached, fallback)


def forest_factory(profiles: pd.DataFrame) -> Callable[[], ForestPredictor]:
    """Return a function that makes predictors with one forest, trained now on a user's profiles.

    Rows that `covered_rows` excludes are left out. Utilisations that were not recorded are the device model's. Each
    predictor has a cache of its own.

    Raises:
        InputError: fewer than `LEAST_SAMPLES` samples are left.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelledUtilisationWarning)
        kept = profiles[covered_rows(profiles)].reset_index(drop=True)
        samples = int((~is_reference(kept)).sum())
        if samples < LEAST_SAMPLES:
            raise InputError(
                f"{samples} samples whose tasks were all recorded alone too",
                f"at least {LEAST_SAMPLES}",
                "Record for longer, such as --budget 15m; the existing rows are kept.",
                column="profiles",
            )
        return partial(ForestPredictor, *train_forest(kept, seed=0))


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
