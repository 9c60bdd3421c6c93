"""The oracle predicts what the device model does."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.device_model import Rates, co_run
from heshare.prediction.oracle import DevicePredictor
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Workload, parse_resident

V100 = gpu("V100")
PAIR = (parse_resident("vgg19:8@50"), parse_resident("resnet50:4@30"))


def test_co_run() -> None:
    """The oracle returns the times and power of the device model, and of workloads alone those at 100 %."""
    answer = DevicePredictor().co_run([PAIR, PAIR[:1]], V100, [900, None])
    truth, alone = co_run(V100, PAIR, 900), co_run(V100, PAIR[:1], None)
    assert answer.time_s[0] == pytest.approx([task.time_s for task in truth.tasks])
    assert answer.time_s[1, 0] == alone.tasks[0].time_s
    assert np.isnan(answer.time_s[1, 1])
    assert answer.power_w == pytest.approx([truth.power_w, alone.power_w])

    solo = DevicePredictor().solo([Workload("gpt2", 4), Workload("vgg19", 8)], V100, 1380)
    assert solo.time_s.shape == (2, 1)
    assert solo.time_s[1, 0] == co_run(V100, [parse_resident("vgg19:8@100")], 1380).tasks[0].time_s


def test_order() -> None:
    """The order of a set changes no bit, and a set is computed once."""
    predictor = DevicePredictor()
    first = predictor.co_run([PAIR], V100, [None])
    second = predictor.co_run([PAIR[::-1]], V100, [None])
    assert second.time_s[0, ::-1].tolist() == first.time_s[0].tolist()
    assert second.power_w.tolist() == first.power_w.tolist()
    assert predictor.calls == 2


def test_off_grid() -> None:
    """A clock off the grid is refused."""
    with pytest.raises(InputError, match="a clock of its grid"):
        DevicePredictor().co_run([PAIR], V100, [901])


def test_other_model() -> None:
    """Another device model can be given."""
    answer = DevicePredictor(lambda gpu, residents, clock: Rates(900.0, 42.0, [0.5, 0.5])).co_run([PAIR], V100, [None])
    assert (answer.time_s.tolist(), answer.power_w.tolist()) == ([[0.5, 0.5]], [42.0])
