"""The joint fit speaks of settings as the device model does, and finds the constants that made them."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.calibration.forms import Setting, fit
from heshare.devices.calibration.joint import answers, scenes
from heshare.devices.constants import default
from heshare.devices.model import co_run
from heshare.world.catalogue import gpu, resident

A100 = gpu("A100")
SETS = [
    ["resnet50:8@100"],
    ["vgg19:32@30"],
    ["bert_large:1@70"],
    ["resnet50:8@100", "vgg19:4@50"],
    ["mobilenet:1@10", "gpt2:16@90", "densenet201:8@40"],
    ["transformer:8@100", *["resnet18:2@20"] * 9],
]


@pytest.mark.parametrize("sm_mhz", [1410, 1005, 600])
def test_arrays_say_what_the_device_model_says(sm_mhz: int) -> None:
    known = default()
    timing = {(engine, name): one for (card, engine, name), one in known.timing.items() if card == "A100"}
    names = ("latency_s", "memory_s", "work_s", "work_per_sample_s", "fill_s", "host_s")
    times = np.array([[getattr(one, name) for name in names] for one in timing.values()])
    sets = [tuple(map(resident, one)) for one in SETS]
    expected = [co_run(A100, one, sm_mhz) for one in sets]
    reached = np.array([one.sm_mhz for one in expected])
    power = known.power["A100"]
    found = scenes(sets, reached, timing, power, A100.max_mhz)
    time_s, power_w = answers(found, times, known.contention["A100"], power)
    assert time_s == pytest.approx([one.tasks[0].time_s for one in expected], rel=1e-9)
    assert power_w == pytest.approx([one.power_w for one in expected], rel=1e-9)


def test_constants_come_back_from_exact_settings() -> None:
    rng = np.random.default_rng(4)
    names = ("resnet50", "vgg19", "densenet201", "mobilenetv2")
    truth, settings = default(), []
    texts = [[f"{name}:{size}@{pct}"] for name in names for size in (1, 4, 8, 32) for pct in (100, 40)]
    texts += [
        [f"{name}:{rng.choice((4, 8))}@{rng.choice((30, 60, 100))}" for name in rng.choice(names, 3)] for _ in texts
    ]
    for text in texts:
        residents = tuple(map(resident, text))
        found = co_run(A100, residents)
        settings.append(Setting(residents, found.sm_mhz, found.tasks[0].time_s, found.power_w))
    fitted = fit(A100, settings, truth.power["A100"].idle_w)
    for text in (["resnet50:16@70"], ["vgg19:2@100", "mobilenetv2:16@50"], ["densenet201:16@20", "resnet50:8@80"]):
        residents = tuple(map(resident, text))
        expected, answer = co_run(A100, residents), co_run(A100, residents, constants=fitted)
        assert answer.tasks[0].time_s == pytest.approx(expected.tasks[0].time_s, rel=0.06)
        assert answer.power_w == pytest.approx(expected.power_w, rel=0.06)
