"""The fit of the device model to one GPU's record: its arrays, fits of exact settings and of own profiles."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration.record_fit import ObservedSetting, co_run_arrays, fit_record, setting_arrays, time_array
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
def test_co_run_arrays_equal_the_device_model(sm_mhz: int) -> None:
    constants = default()
    timing = {key: row for key, row in constants.timing.items() if key[0] == "A100"}
    sets = [tuple(map(resident, texts)) for texts in SETS]
    expected = [co_run(A100, residents, sm_mhz) for residents in sets]
    reached = np.array([estimate.sm_mhz for estimate in expected])
    power = constants.power["A100"]
    settings = setting_arrays(A100, sets, reached, timing, power, constants.loads)
    time_s, power_w = co_run_arrays(settings, time_array(timing), constants.contention["A100"], power)
    assert time_s == pytest.approx([estimate.tasks[0].time_s for estimate in expected], rel=1e-9)
    assert power_w == pytest.approx([estimate.power_w for estimate in expected], rel=1e-9)


def test_fit_record_recovers_times_and_power_from_exact_settings() -> None:
    rng = np.random.default_rng(4)
    names = ("resnet50", "vgg19", "densenet201", "mobilenetv2")
    truth, settings = default(), []
    texts = [[f"{name}:{size}@{pct}"] for name in names for size in (1, 4, 8, 32) for pct in (100, 40)]
    texts += [
        [f"{name}:{rng.choice((4, 8))}@{rng.choice((30, 60, 100))}" for name in rng.choice(names, 3)] for _ in texts
    ]
    for text in texts:
        residents = tuple(map(resident, text))
        estimate = co_run(A100, residents)
        settings.append(ObservedSetting(residents, estimate.sm_mhz, estimate.tasks[0].time_s, estimate.power_w))
    fitted = fit_record(A100, settings, truth.power["A100"].idle_w)
    for text in (["resnet50:16@70"], ["vgg19:2@100", "mobilenetv2:16@50"], ["densenet201:16@20", "resnet50:8@80"]):
        residents = tuple(map(resident, text))
        expected, modelled = co_run(A100, residents), co_run(A100, residents, constants=fitted)
        assert modelled.tasks[0].time_s == pytest.approx(expected.tasks[0].time_s, rel=0.06)
        assert modelled.power_w == pytest.approx(expected.power_w, rel=0.06)
