"""What can be learned from a record that does not hold everything."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare import files
from heshare.errors import InputError
from heshare.prediction.covering import LEAST_SAMPLES, covered, learn
from heshare.prediction.features import is_reference
from heshare.profiles import store
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

MISSING = "vgg19"


@pytest.fixture(scope="module")
def record() -> pd.DataFrame:
    """A100's record without one model alone."""
    table = store.read(files.data("profiles", "emulated", "A100"))
    return table[~(is_reference(table) & (table["workload"] == MISSING))].reset_index(drop=True)


def test_rows_with_a_task_that_was_not_seen_alone_are_not_covered(record: pd.DataFrame) -> None:
    known = covered(record)
    named = (record["workload"] == MISSING) | record["co_runners"].str.contains(f"{MISSING}:")
    assert list(known) == list(~named)
    assert named.any()


def test_the_rest_teaches_and_the_missing_one_is_refused(record: pd.DataFrame) -> None:
    make = learn(record)
    one, other = make(), make()
    sets = [(Resident(Workload("resnet50", 8), 50), Resident(Workload("gpt2", 8), 40))]
    answer = one.co_run(sets, gpu("A100"), [None])
    assert (answer.time_s > 0).all()
    assert (one.calls, other.calls) == (2, 0)
    with pytest.raises(InputError, match=MISSING):
        one.solo([Workload(MISSING, 8)], gpu("A100"))


def test_too_little_is_refused(record: pd.DataFrame) -> None:
    samples = record[~is_reference(record) & covered(record)].head(LEAST_SAMPLES - 1)
    short = pd.concat([record[is_reference(record)], samples], ignore_index=True)
    with pytest.raises(InputError, match="Record for longer"):
        learn(short)
