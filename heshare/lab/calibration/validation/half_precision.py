"""Errors of FP16 on inference batch sizes left out of its fit."""

from collections.abc import Iterator

import numpy as np

from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.scaling.half_precision_fit import BERT_CARDS, bert_rows, throttled_in_half
from heshare.lab.calibration.time_fit import fit_timing, times_s
from heshare.lab.calibration.timing_constants import LANGUAGE_PRIOR
from heshare.lab.calibration.validation.points import LeftOutPoint, cell_point
from heshare.world.workload import Resident, Workload

BATCHES, OTHER_BATCHES = (
    "BERT FP16 TensorRT, batch sizes left out, T4 and A100",
    "BERT FP16 TensorRT, batch sizes left out, A30, L4 and L40S",
)
_SEEN = (1.0, 8.0, 32.0, 128.0)
_MOST_USED = ("T4", "A100")


def bert_batches(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times of BERT Large in FP16 at four inference batch sizes from four others."""
    constants = calibration.constants
    for gpu in BERT_CARDS:
        rows, throttled = bert_rows(gpu), throttled_in_half(constants, gpu, "transformer")
        seen = np.isin(rows.batch, _SEEN)
        fitted, unseen = fit_timing(rows.where(seen), LANGUAGE_PRIOR, throttled), rows.where(~seen)
        test = BATCHES if gpu in _MOST_USED else OTHER_BATCHES
        modelled = times_s(fitted.timing, unseen, throttled)
        for batch, time_s, modelled_s in zip(unseen.batch, unseen.time_s, modelled, strict=True):
            resident = Resident(Workload("bert_large", int(batch), "fp16", "tensorrt"))
            yield cell_point(test, constants, gpu, [resident], float(time_s), float(modelled_s))
