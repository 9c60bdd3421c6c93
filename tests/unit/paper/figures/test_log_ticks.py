"""Logarithmic axes have at least three labels, at round numbers."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from heshare.paper.figures import plots


@pytest.mark.parametrize("which", ["x", "y"])
@pytest.mark.parametrize("ends", [(1.0, 1000.0), (0.6, 6.0), (1.2, 2.6), (0.97, 1.04), (3e-4, 7e5), (4.1, 4.4)])
def test_at_least_three_labels_within_the_axis(ends: tuple[float, float], which: str) -> None:
    fig, ax = plt.subplots()
    ax.plot(ends, ends)
    plots.log_axis(ax, which)  # type: ignore[arg-type]
    (ax.set_xlim if which == "x" else ax.set_ylim)(*ends)
    fig.canvas.draw()
    axis = ax.xaxis if which == "x" else ax.yaxis
    ticks = axis.get_majorticklocs()
    assert len(ticks) >= 3
    assert ends[0] <= min(ticks) <= max(ticks) <= ends[1]
    assert all(label.get_text() for label in axis.get_ticklabels())
    plt.close(fig)


def test_decades_alone_where_there_are_enough() -> None:
    assert plots.LogTicks().tick_values(0.5, 2000.0) == [1.0, 10.0, 100.0, 1000.0]
    assert plots.LogTicks().tick_values(0.5, 6.0) == [0.5, 1.0, 2.0, 5.0]
