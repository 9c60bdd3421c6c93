"""FP16 by GPU, engine and kind of network, and which arithmetic an estimate means."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.device_model import co_run
from heshare.lab.calibration.half_precision_fit import BERT_CARDS, bert_rows
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


def time_s(gpu: str, model: str, batch: int, precision: str, engine: str = "tensorrt") -> float:
    run = co_run(catalogue.gpu(gpu), [Resident(Workload(model, batch, precision, engine), 100)])
    return run.tasks[0].time_s


@pytest.mark.parametrize("gpu", BERT_CARDS)
def test_bert_rows(gpu: str):
    """BERT in FP16 reproduces the rows that it was fitted to."""
    rows = bert_rows(gpu)
    modelled = [time_s(gpu, "bert_large", int(batch), "fp16") for batch in rows.batch]
    assert np.abs(np.log(modelled / rows.time_s)).mean() < 0.1


def test_never_slower():
    """FP16 never slows BERT down, on any GPU."""
    for gpu in catalogue.gpus():
        for batch in (1, 8, 64):
            assert time_s(gpu, "bert_large", batch, "fp16") < time_s(gpu, "bert_large", batch, "fp32")
