"""FP16 by GPU, engine and kind of network, and which arithmetic an estimate means."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration.half_precision_fit import BERT_CARDS, bert_rows
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


def time_s(gpu: str, model: str, batch: int, precision: str, engine: str = "tensorrt") -> float:
    run = co_run(catalogue.gpu(gpu), [Resident(Workload(model, batch, precision, engine), 100)])
    return run.tasks[0].time_s


@pytest.mark.parametrize("gpu", BERT_CARDS)
def test_bert_in_half_precision_is_as_measured(gpu: str):
    rows = bert_rows(gpu)
    modelled = [time_s(gpu, "bert_large", int(batch), "fp16") for batch in rows.batch]
    assert np.abs(np.log(modelled / rows.time_s)).mean() < 0.1


@pytest.mark.parametrize("gpu", catalogue.gpus())
def test_half_precision_never_slows_bert_down(gpu: str):
    for batch in (1, 8, 64):
        assert time_s(gpu, "bert_large", batch, "fp16") < time_s(gpu, "bert_large", batch, "fp32")


def test_a_gpu_without_times_in_half_precision_takes_them_from_those_that_have_them():
    constants = default()
    for gpu in ("H100", "A10", "V100"):
        timing = constants.half_timing[gpu, "tensorrt", "bert_large"]
        assert not timing.anchored
        assert timing.transfer > 0.1
    faster = time_s("A100", "bert_large", 32, "fp16") / time_s("H100", "bert_large", 32, "fp16")
    assert 1.3 < faster < 3.5


@pytest.mark.parametrize("gpu", ["T4", "V100", "V100-SXM2"])
def test_tf32_is_refused_on_gpus_without_it(gpu: str):
    with pytest.raises(InputError, match=f"tf32 on {gpu}"):
        time_s(gpu, "resnet50", 8, "tf32")
