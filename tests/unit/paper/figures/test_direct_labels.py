"""Names beside points: they cover no point, no other name, and stay inside the axes."""

from __future__ import annotations

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.transforms import Bbox

from heshare.paper.figures import style
from heshare.paper.figures.direct_labels import PointLabel, label_points


def test_names_of_close_points_cover_neither_each_other_nor_points() -> None:
    rng = np.random.default_rng(0)
    points = np.vstack([rng.normal(1.0, 0.05, (6, 2)), [[0.2, 0.2], [2.0, 2.0]]])
    with style.using():
        figure, ax = plt.subplots(figsize=(3.33, 2.3), layout="constrained")
        ax.plot(*points.T, "o")
        labels = [PointLabel(x, y, f"system {index}") for index, (x, y) in enumerate(points)]
        avoid = np.array([[1.5, 1.5]])
        label_points(ax, labels, avoid=avoid)
        names = [text for text in ax.texts if text.get_text()]
        boxes = [text.get_window_extent() for text in names]
    assert sorted(text.get_text() for text in names) == sorted(label.text for label in labels)
    assert [Bbox.intersection(*pair) for pair in combinations(boxes, 2)] == [None] * 28
    marks = ax.transData.transform(np.vstack([points, avoid]))
    assert not any(box.contains(*mark) for box in boxes for mark in marks)
    frame = ax.get_window_extent()
    assert all(frame.containsx(box.x0) and frame.containsx(box.x1) for box in boxes)
    plt.close(figure)
