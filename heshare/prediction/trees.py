"""Models of time under sharing and of the GPU's power, made of regression trees (Section III-A).

`TreesOverRidge` is the default of all schedulers, a departure from the paper; `RandomForest` is the paper's technique.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from heshare.prediction.features import TABLE_II
from heshare.prediction.quadratic import Quadratic
from heshare.prediction.targets import Targets
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit

TREE_SETTINGS: dict[str, object] = {"n_estimators": 100, "max_features": 1.0, "min_samples_leaf": 1}
"""Settings of the trees, chosen by cross-validation inside the training part (`heshare.prediction.table5`)."""
FOLDS = 10
"""Parts of the training rows, each of which the quadratic part predicts when fitted to the others."""


class SetModel(ABC):
    """A model of both outputs of the predictor, from rows of features (`heshare.prediction.features`).

    Args:
        seed: of the bootstrap, of the features tried at each split, and of the folds.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed = seed

    @abstractmethod
    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> Self:
        """Learn from features (rows, 15), times (s) and powers (W), each (rows,); returns itself."""

    @abstractmethod
    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 15), which may not be NaN."""


class TreesOverRidge(SetModel):
    """Extremely randomised trees over a quadratic function that is fitted by ridge regression.

    The paper has a random forest. Extremely randomised trees (Geurts et al. 2006, DOI 10.1007/s10994-006-6226-1) draw
    the thresholds of their splits, which averages better: plans are chosen where a prediction is too good, and keep
    more of what they promise with the smoother predictor (docs/trust.md; both are rows of Table V).

    A tree is a step function, so the trees correct a smooth part, `Quadratic` over the load (`Targets.columns`).
    """

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> Self:
        """Learn from features (rows, 15), times (s) and powers (W), each (rows,); returns itself."""
        from sklearn.ensemble import ExtraTreesRegressor  # slow to import, and a kept model needs none

        self._targets = Targets()
        learned = self._targets.fit(features, time_s, power_w)
        self._scale = learned.std(axis=0) + 1e-12
        learned = learned / self._scale
        columns = self._targets.columns(features)

        # The trees learn what the quadratic part leaves on rows that it was not fitted to.
        fold = np.random.default_rng(self._seed).permutation(len(learned)) % FOLDS
        left = learned.copy()
        for number in range(FOLDS):
            held = fold == number
            left[held] -= Quadratic().fit(columns[~held], learned[~held]).predict(columns[held])
        self._smooth = Quadratic().fit(columns, learned)

        # Ten digits, since a tree can turn a last bit that another processor computes into another split.
        model = ExtraTreesRegressor(random_state=self._seed, n_jobs=1, **TREE_SETTINGS)
        model.fit(columns.astype(np.float32), left.round(10))
        self._trees = Trees.of(model.estimators_)
        return self

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 15), which may not be NaN."""
        columns = self._targets.columns(features)
        learned = self._smooth.predict(columns) + self._trees.mean(columns)
        return self._targets.decode(features, learned * self._scale)


class RandomForest(SetModel):
    """The paper's technique: a random forest of Table II's features, with scikit-learn's defaults, as in Table V.

    Outputs are learned over first guesses from the load (`Targets`), since learned as they are they have several times
    the error (Table V).
    """

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> Self:
        """Learn from features (rows, 15), times (s) and powers (W), each (rows,); returns itself."""
        from sklearn.ensemble import RandomForestRegressor  # slow to import, and a kept model needs none

        self._targets = Targets()
        learned = self._targets.fit(features, time_s, power_w)
        self._scale = learned.std(axis=0) + 1e-12
        model = RandomForestRegressor(random_state=self._seed, n_jobs=1)
        model.fit(features[:, TABLE_II].astype(np.float32), learned / self._scale)
        self._trees = Trees.of(model.estimators_)
        return self

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 15), which may not be NaN."""
        return self._targets.decode(features, self._trees.mean(features[:, TABLE_II]) * self._scale)


@dataclass(frozen=True, slots=True)
class Trees:
    """The nodes of t regression trees with the same outputs, one behind the other, n in all.

    scikit-learn checks its input once a tree, about 0.5 ms for 100 trees, which is most of the time of a small
    prediction. So compiled code steps through the nodes.

    Attributes:
        roots: the node of each tree at which a row begins, shape (t,).
        depths: the longest path of each tree, shape (t,).
        children: the next node of a row at node i: children[2 i] with a feature of at most the threshold, else to
            children[2 i + 1]; a leaf is its own child. Shape (2 n,).
        feature: the column that each node compares, shape (n,).
        threshold: what it compares the column with, in single precision as scikit-learn does, shape (n,).
        value: the outputs of each node, shape (n, outputs).
    """

    roots: NDArray[np.uint32]
    depths: IntArray
    children: NDArray[np.uint32]
    feature: NDArray[np.uint32]
    threshold: NDArray[np.float32]
    value: FloatArray

    @classmethod
    def of(cls, estimators: Sequence[Any]) -> "Trees":
        """Return the nodes of fitted `sklearn.tree.DecisionTreeRegressor`."""
        nodes = [tree.tree_ for tree in estimators]
        counts = [tree.node_count for tree in nodes]
        roots = np.cumsum([0, *counts[:-1]])

        # Children are counted from the root of their tree; -1 in a leaf.
        shift = np.repeat(roots, counts)
        left = np.concatenate([tree.children_left for tree in nodes])
        right = np.concatenate([tree.children_right for tree in nodes])
        leaf = left < 0
        own = np.arange(len(left))
        children = np.column_stack([np.where(leaf, own, left + shift), np.where(leaf, own, right + shift)])

        # Rounded down, which changes no comparison with a number in single precision.
        exact = np.concatenate([tree.threshold for tree in nodes])
        threshold = exact.astype(np.float32)
        above = threshold > exact
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        threshold[leaf] = np.inf

        # Numbers without a sign are indexed faster.
        feature = np.where(leaf, 0, np.concatenate([tree.feature for tree in nodes])).astype(np.uint32)
        depths = np.array([tree.max_depth for tree in nodes])
        value = np.ascontiguousarray(np.concatenate([tree.value[:, :, 0] for tree in nodes]))
        return cls(roots.astype(np.uint32), depths, children.ravel().astype(np.uint32), feature, threshold, value)

    def mean(self, columns: FloatArray) -> FloatArray:
        """Return the mean over the trees for rows of columns, shape (rows, c) -> (rows, outputs)."""
        rows = np.ascontiguousarray(columns, dtype=np.float32)
        total: FloatArray = _total(
            rows, self.roots, self.depths, self.children, self.feature, self.threshold, self.value
        )
        return total / len(self.roots)


@njit(cache=True)
def _total(rows: Any, roots: Any, depths: Any, children: Any, feature: Any, threshold: Any, value: Any) -> Any:
    # The sum over the trees, shape (rows, outputs). All rows take a step in turn, so that none waits for memory.
    total = np.zeros((len(rows), value.shape[1]))
    at = np.empty(len(rows), dtype=np.uint32)

    for tree in range(len(roots)):
        at[:] = roots[tree]

        # A row that has reached its leaf stays there until the longest path has ended.
        for _ in range(depths[tree]):
            for row in range(len(rows)):
                node = np.uint64(at[row])
                is_above = rows[row, np.uint64(feature[node])] > threshold[node]
                at[row] = children[np.uint64(2) * node + np.uint64(is_above)]

        for row in range(len(rows)):
            for output in range(value.shape[1]):
                total[row, output] += value[np.uint64(at[row]), output]
    return total
