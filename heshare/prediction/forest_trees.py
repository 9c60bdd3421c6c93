"""Compiled prediction of a fitted random forest: the nodes of all trees in one set of arrays.

scikit-learn checks its input once a tree, about 0.5 ms for 100 trees, which is most of the time of a small prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heshare.shared.arrays import FloatArray
from heshare.shared.compiling import compiled


class ForestTrees:
    """The trees of a fitted forest as arrays.

    Args:
        arrays: each tree's root, and of each node its children, feature, threshold and values, as `of` makes them.

    Attributes:
        arrays: the same.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = {name: arrays[name] for name in ("roots", "left", "right", "feature", "threshold", "value")}
        self._steps = _steps(**{name: each for name, each in self.arrays.items() if name != "value"})

    @classmethod
    def of(cls, trees: Sequence[Any]) -> ForestTrees:
        """Return the arrays of fitted `sklearn.tree.DecisionTreeRegressor` of the same outputs."""
        nodes = [tree.tree_ for tree in trees]
        roots = np.cumsum([0, *(one.node_count for one in nodes[:-1])])
        # A leaf has the children -1, also after the shift to the place of its tree.
        shift = np.repeat(roots, [one.node_count for one in nodes])
        left = np.concatenate([one.children_left for one in nodes])
        right = np.concatenate([one.children_right for one in nodes])
        left, right = np.where(left < 0, -1, left + shift), np.where(right < 0, -1, right + shift)
        return cls(
            {
                "roots": roots,
                "left": left,
                "right": right,
                "feature": np.concatenate([one.feature for one in nodes]),
                "threshold": np.concatenate([one.threshold for one in nodes]),
                "value": np.ascontiguousarray(np.concatenate([one.value[:, :, 0] for one in nodes])),
            }
        )

    def __len__(self) -> int:
        return len(self.arrays["roots"])

    def total(self, features: FloatArray) -> FloatArray:
        """Return the sum over the trees, one after the other in their order, shape (rows, outputs).

        The fixed order gives the same bits in every process. Features (rows, features) are compared in single
        precision, as scikit-learn does; they may not be NaN.
        """
        rows = np.ascontiguousarray(features, dtype=np.float32)
        roots, depths, children, feature, threshold = self._steps
        total: FloatArray = _total(rows, roots, depths, children, feature, threshold, self.arrays["value"])
        return total


def _steps(roots: Any, left: Any, right: Any, feature: Any, threshold: Any) -> tuple[Any, ...]:
    """Return the nodes as `_total` steps through them: roots, depths, children, features, thresholds.

    The children of node i are the places 2 i (at most the threshold) and 2 i + 1. A leaf is its own child, so that rows
    may go on stepping until the longest path of the tree has ended. Single-precision thresholds are rounded down, which
    changes no comparison with a number in single precision. Numbers without a sign are indexed faster.
    """
    leaf = left < 0
    places = np.arange(len(left))
    children = np.column_stack([np.where(leaf, places, left), np.where(leaf, places, right)])
    below = threshold.astype(np.float32)
    above = below > threshold
    below[above] = np.nextafter(below[above], np.float32(-np.inf))
    below[leaf] = np.inf
    places_of, compared = children.ravel().astype(np.uint32), np.where(leaf, 0, feature).astype(np.uint32)
    return roots.astype(np.uint32), _depths(roots, left, right), places_of, compared, below


@compiled
def _depths(roots: Any, left: Any, right: Any) -> Any:
    """Return the steps from each root to its deepest leaf, shape (trees,); a parent stands before its children."""
    level = np.zeros(len(left), dtype=np.int64)
    for node in range(len(left)):
        if left[node] >= 0:
            level[left[node]] = level[right[node]] = level[node] + 1
    depths = np.zeros(len(roots), dtype=np.int64)
    for tree in range(len(roots)):
        end = roots[tree + 1] if tree + 1 < len(roots) else len(left)
        depths[tree] = level[roots[tree] : end].max()
    return depths


@compiled
def _total(rows: Any, roots: Any, depths: Any, children: Any, feature: Any, threshold: Any, value: Any) -> Any:
    """Sum the values of the leaves of all rows; all rows take a step in turn, so that none waits for memory."""
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
