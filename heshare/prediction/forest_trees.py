"""Compiled prediction of a fitted random forest: the nodes of all trees in one set of arrays.

scikit-learn checks its input once a tree, about 0.5 ms for 100 trees, which is most of the time of a small prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heshare.arrays import FloatArray
from heshare.compiling import compiled


class ForestTrees:
    """The trees of a fitted forest as arrays.

    Args:
        arrays: each tree's root, and of each node its children, feature, threshold and values, as `of` makes them.

    Attributes:
        arrays: the same.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = {name: arrays[name] for name in ("roots", "left", "right", "feature", "threshold", "value")}

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
        total: FloatArray = _total(rows, *self.arrays.values())
        return total


@compiled
def _total(rows: Any, roots: Any, left: Any, right: Any, feature: Any, threshold: Any, value: Any) -> Any:
    total = np.zeros((len(rows), value.shape[1]))
    for root in roots:
        for row in range(len(rows)):
            node = root
            while left[node] >= 0:
                node = left[node] if rows[row, feature[node]] <= threshold[node] else right[node]
            for output in range(value.shape[1]):
                total[row, output] += value[node, output]
    return total
