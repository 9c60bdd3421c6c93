"""Predictors trained on a user's profiles, which may lack reference rows."""

from __future__ import annotations

import pandas as pd
import pytest

import heshare as hs
from heshare.prediction.features import is_reference
from heshare.prediction.load import LEAST_SAMPLES, covered_rows, predictor_factory
from heshare.profiles import store
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

MISSING = "vgg19"


@pytest.fixture(scope="module")
def record() -> pd.DataFrame:
    """The profiles of an A100 without the reference rows of one model."""
    table = store.read(files.data("profiles", "emulated", "A100"))
    return table[~(is_reference(table) & (table["workload"] == MISSING))].reset_index(drop=True)


def test_covered_rows(record: pd.DataFrame) -> None:
    """Covered rows exclude tasks without reference rows."""
    covered = covered_rows(record)
    named = (record["workload"] == MISSING) | record["co_runners"].str.contains(f"{MISSING}:")
    assert list(covered) == list(~named)
    assert named.any()


def test_factory(record: pd.DataFrame) -> None:
    """The predictor is trained on the covered rows, and refuses the rest."""
    make = predictor_factory(record)
    predictor, unused = make(), make()
    sets = [(Resident(Workload("resnet50", 8), 50), Resident(Workload("gpt2", 8), 40))]
    runs = predictor.co_run(sets, gpu("A100"), [None])
    assert (runs.time_s > 0).all()
    assert (predictor.calls, unused.calls) == (2, 0)
    with pytest.raises(InputError, match=MISSING):
        predictor.solo([Workload(MISSING, 8)], gpu("A100"))


def test_too_few_samples(record: pd.DataFrame) -> None:
    """Too few samples are refused where something is predicted; other policies run."""
    samples = record[~is_reference(record) & covered_rows(record)].head(LEAST_SAMPLES - 1)
    short = pd.concat([record[is_reference(record)], samples], ignore_index=True)
    with pytest.raises(InputError, match="Record for longer"):
        hs.run(2, "1xT4", "srtf", predictor=predictor_factory(short)())
    assert hs.run(2, "1xT4", "fifo", predictor=predictor_factory(short)()) == hs.run(2, "1xT4", "fifo")
