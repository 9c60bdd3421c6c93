"""Random streams of repetitions, and the tidy frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat


def test_streams() -> None:
    """The streams are the children that the seed spawns."""
    spawned = np.random.SeedSequence(5).spawn(3)
    streams = spawned[2].spawn(2)
    assert Repetition(2, 5).rng().random() == np.random.default_rng(np.random.SeedSequence(5).spawn(3)[2]).random()
    assert Repetition(2, 5).rng(1).random() == np.random.default_rng(streams[1]).random()


def test_repeat() -> None:
    """The rows of all repetitions are in order."""

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for title in ("ours", "theirs"):
            yield {"title": title, "drawn": repetition.rng().random()}

    frame = repeat(run_one, seed=3, seeds=2)
    assert list(frame.columns) == ["repetition", "title", "drawn"]
    assert frame["repetition"].tolist() == [0, 0, 1, 1]
    assert frame["drawn"].tolist() == [Repetition(number, 3).rng().random() for number in (0, 0, 1, 1)]
