"""Compiled selection returns the same bytes as the plain forms, also for ties and duplicates."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support import plain_selection

from heshare.scheduling import selection
from heshare.scheduling.genetic import Archive
from heshare.scheduling.pareto import non_dominated_indices, round_significant, thin
from heshare.shared.arrays import FloatArray

SEEDS = st.integers(0, 2**32 - 1)


def points(rng: np.random.Generator, size: int, *, values: int) -> tuple[FloatArray, FloatArray]:
    """Return points with many ties, of which some differ only behind the tenth digit, and the same rounded."""
    exact = rng.integers(1, values + 1, (size, 2)).astype(float)
    near = exact * (1 + 1e-13 * rng.integers(-2, 3, exact.shape))
    return near, round_significant(near)


@given(SEEDS, st.integers(1, 90), st.sampled_from([3, 12, 400]))
def test_environmental_selection(seed: int, size: int, values: int) -> None:
    """Environmental selection equals its plain form."""
    rng = np.random.default_rng(seed)
    objectives, rounded = points(rng, size, values=values)
    count = int(rng.integers(1, size + 1))
    expected = plain_selection.environmental_selection(objectives, rounded, count)
    for found, wanted in zip(selection.environmental_selection(objectives, rounded, count), expected, strict=True):
        assert found.tobytes() == wanted.tobytes()


@given(SEEDS, st.sampled_from([4, 30, 900]), st.sampled_from([3, 200]))
def test_archive(seed: int, values: int, limit: int) -> None:
    """Archive holds what a filter of all points keeps."""
    rng = np.random.default_rng(seed)
    archive = Archive.empty(1)
    for _ in range(6):
        objectives, _ = points(rng, int(rng.integers(1, 40)), values=values)
        every = np.concatenate((archive.objectives, objectives))
        all_rounded = round_significant(every)
        gpus = np.concatenate((archive.gpus, rng.integers(0, 9, (len(objectives), 1))))
        kept = np.sort(non_dominated_indices(all_rounded[:, 0], all_rounded[:, 1]))
        if kept[-1] >= len(archive.gpus):
            kept = kept[thin(every[kept], limit)]
        archive = archive.with_new(gpus[len(archive.gpus) :], objectives, limit=limit)
        assert archive.gpus.tobytes() == gpus[kept].tobytes()
        assert archive.objectives.tobytes() == every[kept].tobytes()
