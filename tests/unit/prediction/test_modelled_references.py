"""Predictions for GPUs and workloads without profiles: what they rest on, and that they are said to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from heshare.devices.device_model import co_run
from heshare.prediction import load
from heshare.prediction.load import load_predictor
from heshare.prediction.modelled_references import UnprofiledWarning
from heshare.profiles import design
from heshare.world.catalogue import gpu, resident

T4, H100 = gpu("T4"), gpu("H100")
PAIR = (resident("resnet50:8@50"), resident("bert_large:4@40"))


@pytest.fixture(autouse=True)
def said_again() -> Iterator[None]:
    """The warning is given once in a process."""
    load._shipped.cache_clear()
    yield
    load._shipped.cache_clear()


@pytest.mark.parametrize("kind", load.PREDICTOR_KINDS)
def test_warning(kind: str) -> None:
    """A GPU without a profile is predicted with a warning."""
    predictor = load_predictor(kind=kind)
    with pytest.warns(UnprofiledWarning, match="no profile of H100"):
        predicted = predictor.co_run([PAIR, (), PAIR[:1]], H100, [1200, None, 1410])
    assert np.isnan(predicted.time_s).tolist() == [[False, False], [True, True], [False, True]]
    assert predicted.power_w[1] == pytest.approx(H100.idle_w, rel=0.05)
    assert predictor.calls == 3
    predictor.co_run([PAIR], H100, [1200])
    assert predictor.calls == 3


@pytest.mark.parametrize(("name", "most"), [("H100", 0.16), ("L4", 0.6)])
@pytest.mark.filterwarnings("ignore::heshare.prediction.modelled_references.UnprofiledWarning")
def test_errors(name: str, most: float) -> None:
    """Predictions for a GPU without a profile are near the device model's, although no shared run of it was seen.

    The emulated L4 rarely reaches its limit, as the profiled T4 nearly always does: its power is predicted too high.
    """
    card = gpu(name)
    points = design.samples(card, 60, rng=np.random.default_rng(99))
    sets, mhz = [(point.target, *point.co_runners) for point in points], [point.sm_mhz for point in points]
    true = [co_run(card, members, clock) for members, clock in zip(sets, mhz, strict=True)]
    predicted = load_predictor().co_run(sets, card, mhz)
    time_errors = np.abs(predicted.time_s[:, 0] / [one.tasks[0].time_s for one in true] - 1)
    power_errors = np.abs(predicted.power_w / [one.power_w for one in true] - 1)
    assert time_errors.mean() < 0.31
    assert power_errors.mean() < most


def test_unprofiled_workload() -> None:
    """Only sets with an unprofiled workload rest on the device model, and alone it has the time of the model."""
    large = resident("resnet50:64@50")
    predictor = load_predictor()
    with pytest.warns(UnprofiledWarning, match="no profile of resnet50 on T4"):
        predicted = predictor.co_run([PAIR, (large, PAIR[1])], T4, [900, 900])
    assert predicted.time_s[0].tolist() == load_predictor().co_run([PAIR], T4, [900]).time_s[0].tolist()
    true = [task.time_s for task in co_run(T4, (large, PAIR[1]), 900).tasks]
    assert predicted.time_s[1] == pytest.approx(true, rel=0.25)
    with pytest.warns(UnprofiledWarning, match="resnet50 on T4"):
        alone = predictor.solo([large.workload], T4)
    assert alone.time_s[0, 0] == co_run(T4, (replace(large, mps_pct=100),)).tasks[0].time_s
