"""The schedulers' predictor (Section III-A): one forest of trees for time under sharing and for the GPU's power."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.prediction.features import FeatureEncoder, ReferenceFeatures, is_reference, profile_features
from heshare.prediction.predictor import Predictor
from heshare.prediction.quadratic import Quadratic
from heshare.prediction.record_predictor import PredictionCache, RecordPredictor
from heshare.prediction.samples import training_rows
from heshare.prediction.targets import Targets
from heshare.profiles import store
from heshare.profiles.missing_utilisation import untold
from heshare.profiles.schema import residents_of
from heshare.shared import files
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.caches.kept_objects import keep, key_of, load_kept
from heshare.shared.compiling import compiler
from heshare.shared.errors import InputError, require

FOREST_SETTINGS: dict[str, object] = {"n_estimators": 100, "max_features": 1.0, "min_samples_leaf": 1}
"""The forest's settings, chosen by cross-validation inside the training part (`heshare.prediction.table5`)."""
FOLDS = 10
"""Parts of the training rows, each of which the quadratic part predicts when fitted to the others."""
KEPT_SEED = 0
"""The seed whose forest is kept on disk, so that a start need not train it: that of everybody who names none."""
_NAME = "forest"
_PARTS = ("shared/inputs", "world", "devices", "profiles", "prediction")
_TABLES = ("calibration", "profiles", "training")
_LIBRARIES = ("numpy", "pandas", "scikit-learn", "scipy")
LEAST_SAMPLES = 20
"""Samples below which a forest is not trained on a user's profiles."""
Trees = tuple[Any, ...]
"""The nodes of all trees as `_total` steps through them: roots, depths, children, features, thresholds, values."""


class Forest:
    """A forest of extremely randomised trees with two outputs, time and power.

    The paper has a random forest. Extremely randomised trees (Geurts et al. 2006, DOI 10.1007/s10994-006-6226-1) draw
    the thresholds of their splits, which averages better: plans are chosen where a prediction is too good, and keep
    more of what they promise with the smoother predictor (docs/trust.md; both are rows of Table V).

    A tree is a step function, so the trees correct a smooth part, `Quadratic` over the load (`Targets.columns`).

    scikit-learn checks its input once a tree, about 0.5 ms for 100 trees, which is most of the time of a small
    prediction. So the nodes of all trees are one set of arrays, which compiled code steps through. `seed` is of the
    bootstrap and of the features tried at each split.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._targets = Targets()
        self._scale = np.ones(2)

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> "Forest":
        """Learn from features (rows, 15), times (s) and powers (W), each (rows,); returns itself."""
        from sklearn.ensemble import ExtraTreesRegressor  # slow to import, and a kept forest needs none

        learned = self._targets.fit(features, time_s, power_w)
        self._scale = learned.std(axis=0) + 1e-12
        columns, learned = self._targets.columns(features), learned / self._scale
        # The trees learn what the quadratic part leaves on rows that it was not fitted to.
        fold = np.random.default_rng(self._seed).permutation(len(learned)) % FOLDS
        left = learned.copy()
        for number in range(FOLDS):
            held = fold == number
            left[held] -= Quadratic().fit(columns[~held], learned[~held]).predict(columns[held])
        self._smooth = Quadratic().fit(columns, learned)
        # Ten digits are kept, since a tree can turn a last bit that another processor computes into another split.
        model = ExtraTreesRegressor(random_state=self._seed, n_jobs=1, **FOREST_SETTINGS)
        model.fit(columns.astype(np.float32), left.round(10))
        self._trees = trees_of(model.estimators_)
        return self

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 15), which may not be NaN.

        Features are compared in single precision, as scikit-learn does.
        """
        columns = self._targets.columns(features)
        mean = _total(np.ascontiguousarray(columns, dtype=np.float32), *self._trees) / len(self._trees[0])
        return self._targets.decode(features, (self._smooth.predict(columns) + mean) * self._scale)


def trees_of(estimators: Sequence[Any]) -> Trees:
    """Return the nodes of fitted `sklearn.tree.DecisionTreeRegressor` of the same outputs.

    The children of node i are the places 2 i (at most the threshold) and 2 i + 1. A leaf is its own child, so that rows
    may go on stepping until the longest path of the tree has ended. Single-precision thresholds are rounded down, which
    changes no comparison with a number in single precision. Numbers without a sign are indexed faster.
    """
    nodes = [tree.tree_ for tree in estimators]
    counts = [one.node_count for one in nodes]
    roots = np.cumsum([0, *counts[:-1]])
    shift = np.repeat(roots, counts)
    left, right = (np.concatenate([getattr(one, f"children_{side}") for one in nodes]) for side in ("left", "right"))
    leaf, places = left < 0, np.arange(len(left))
    children = np.column_stack([np.where(leaf, places, left + shift), np.where(leaf, places, right + shift)])
    threshold = np.concatenate([one.threshold for one in nodes])
    below = threshold.astype(np.float32)
    above = below > threshold
    below[above] = np.nextafter(below[above], np.float32(-np.inf))
    below[leaf] = np.inf
    feature = np.where(leaf, 0, np.concatenate([one.feature for one in nodes])).astype(np.uint32)
    depths = np.array([one.max_depth for one in nodes])
    value = np.ascontiguousarray(np.concatenate([one.value[:, :, 0] for one in nodes]))
    return roots.astype(np.uint32), depths, children.ravel().astype(np.uint32), feature, below, value


def _total_by_numpy(rows: Any, roots: Any, depths: Any, children: Any, feature: Any, threshold: Any, value: Any) -> Any:
    total, each = np.zeros((len(rows), value.shape[1])), np.arange(len(rows))
    for root, depth in zip(roots, depths, strict=True):
        at = np.full(len(rows), root, dtype=np.int64)
        for _ in range(depth):
            at = children[2 * at + (rows[each, feature[at]] > threshold[at])].astype(np.int64)
        total += value[at]
    return total


@compiler(plain=_total_by_numpy)
def _total(rows: Any, roots: Any, depths: Any, children: Any, feature: Any, threshold: Any, value: Any) -> Any:
    # The sum over the trees in their order, shape (rows, outputs), which gives the same bits in every process. All rows
    # take a step in turn, so that none waits for memory.
    total = np.zeros((len(rows), value.shape[1]))
    at = np.empty(len(rows), dtype=np.uint32)
    for tree in range(len(roots)):
        at[:] = roots[tree]
        for _ in range(depths[tree]):
            for row in range(len(rows)):
                node = np.uint64(at[row])
                is_above = rows[row, np.uint64(feature[node])] > threshold[node]
                at[row] = children[np.uint64(2) * node + np.uint64(is_above)]
        for row in range(len(rows)):
            for output in range(value.shape[1]):
                total[row, output] += value[np.uint64(at[row]), output]
    return total


class ForestPredictor(RecordPredictor):
    """Predictor of time and power by Table II's features and a forest of trees (Section III-A, Eq. 5).

    The power of a set is the mean over its members of the power that the forest predicts with that member as the task
    and the others as its co-runners. Reference rows and cached sets are as in `RecordPredictor`. The forest may be a
    function that returns it when a set is first predicted.
    """

    def __init__(
        self,
        forest: Forest | Callable[[], Forest],
        references: ReferenceFeatures,
        cache: PredictionCache | None = None,
        fallback: Predictor | None = None,
    ) -> None:
        super().__init__(references, cache, fallback)
        self._forest = forest

    def _predict_sets(self, encoder: FeatureEncoder, ids: IntArray, sm_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        forest = self._forest() if callable(self._forest) else self._forest
        present = ids >= 0
        time_s = np.full(ids.shape, np.nan)
        time_s[present], powers = forest.predict(encoder.rows(ids, sm_mhz)[present])
        ends, listed = np.cumsum(present.sum(axis=1)).tolist(), powers.tolist()
        # fsum is exact, so the order in which a process first met the tasks cannot change a bit.
        power_w = [fsum(listed[start:end]) / (end - start) for start, end in zip([0, *ends], ends, strict=False)]
        return time_s, np.array(power_w)


def train_forest(profiles: pd.DataFrame, *, seed: int) -> tuple[Forest, ReferenceFeatures]:
    """Return a forest fitted to 75 % of a profile table's samples (Section III-A), and the profiles' task features.

    The table has its reference rows; `seed` is of the split and of the forest.

    Raises:
        InputError: the reference row of a workload is missing.
    """
    references = ReferenceFeatures(profiles)
    rows = training_rows(profiles, seed=seed)
    forest = Forest(seed=seed).fit(
        profile_features(rows, references), rows["time_s"].to_numpy(), rows["power_w"].to_numpy()
    )
    return forest, references


@cache
def _kept() -> tuple[Forest, ReferenceFeatures] | None:
    kept: tuple[Forest, ReferenceFeatures] | None = load_kept(_NAME, _key())
    return kept


@cache
def _key() -> str:
    return key_of(training_files(), _LIBRARIES, KEPT_SEED)


def training_files() -> list[Path]:
    """Return the sources and tables that the forest of the shipped profiles depends on, in one order."""
    package, data = files.PACKAGE, files.data()
    code = [*package.glob("*.py"), *(path for part in _PARTS for path in (package / part).rglob("*.py"))]
    below = [path for part in _TABLES for path in (data / part).rglob("*") if path.is_file() and path.name[0] != "."]
    return [*sorted(code), *sorted([*data.glob("*.csv"), *below])]


@cache
def shipped_references() -> ReferenceFeatures:
    """Return the task features of the shipped profiles, an `InputError` where one is missing or damaged."""
    kept = _kept()
    return ReferenceFeatures(store.read_shipped()) if kept is None else kept[1]


@cache
def _shipped_forest(seed: int) -> Forest:
    kept = _kept() if seed == KEPT_SEED else None
    if kept is not None:
        return kept[0]
    trained = train_forest(store.read_shipped(), seed=seed)
    if seed == KEPT_SEED:
        keep(_NAME, _key(), trained)
    return trained[0]


_SHARED_CACHES: dict[int, PredictionCache] = defaultdict(dict)
"""By the seed of the forest."""


def load_forest_predictor(
    seed: int = 0, *, shared_cache: bool = False, fallback: Predictor | None = None
) -> ForestPredictor:
    """Return the paper's predictor, trained on the committed profiles of T4, V100 and A100.

    The forest is loaded when a set is first predicted, not for workloads alone. It is trained once on a machine and
    then kept (`heshare.shared.caches.kept_objects`), that of another seed once in a process.

    Args:
        seed: of the split and of the forest.
        shared_cache: whether predictions are cached for all predictors of this process that share the cache.
            Predictions and counts of calls are the same; only time differs, as for a scheduler that has met its
            workloads before.
        fallback: predicts for GPUs and workloads without profiles; None refuses them.

    Raises:
        InputError: a profile is missing or damaged.
    """
    cached = _SHARED_CACHES[seed] if shared_cache else None
    return ForestPredictor(partial(_shipped_forest, seed), shipped_references(), cached, fallback)


def forest_factory(profiles: pd.DataFrame) -> Callable[[], ForestPredictor]:
    """Return a function that makes predictors with one forest, trained now on a user's profiles.

    Rows that `covered_rows` excludes are left out. Utilisations that were not recorded are the device model's. Each
    predictor has a cache of its own.

    Raises:
        InputError: fewer than `LEAST_SAMPLES` samples are left.
    """
    with untold():
        kept = profiles[covered_rows(profiles)].reset_index(drop=True)
        samples = int((~is_reference(kept)).sum())
        found = f"{samples} samples whose tasks were all recorded alone too"
        action = "Record for longer, such as --budget 15m; the existing rows are kept."
        require("profiles", found, samples >= LEAST_SAMPLES, f"at least {LEAST_SAMPLES}", action)
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
