"""The random forest as a predictor: exact where the record is, independent of order, history and process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.errors import InputError
from heshare.prediction.features import References, is_reference, of_profiles
from heshare.prediction.forest import Forest, ForestPredictor, kept_predictor, load_predictor, split_rows, train
from heshare.prediction.truth import DevicePredictor
from heshare.profiles import store
from heshare.world.catalogue import gpu, models
from heshare.world.workload import Resident, Workload, parse_resident

A100 = gpu("A100")
SETS = [
    tuple(map(parse_resident, texts))
    for texts in (
        ("resnet50:4@50", "vgg19:8@50"),
        ("gpt2:4@30", "bert_large:8@40", "mobilenet:4@20"),
        ("densenet121:4@100",),
        ("vgg16:8@60", "vgg16:8@60"),
    )
]
RESIDENTS = st.builds(
    Resident,
    st.builds(Workload, st.sampled_from(sorted(models())), st.sampled_from([1, 4, 6, 8, 32])),
    st.integers(1, 10).map(lambda tens: 10 * tens),
)


def test_a_workload_alone_at_the_top_is_the_record(checkout: Path) -> None:
    table = store.read(checkout / "data" / "profiles" / "emulated" / "A100")
    row = table[is_reference(table)].iloc[7]
    predictor = load_predictor()
    workload = Workload(row["workload"], int(row["batch_size"]))
    for clock in (None, 1410):
        answer = predictor.solo([workload], A100, clock)
        assert answer.time_s.tolist() == [[row["time_s"]]]
        assert answer.power_w.tolist() == [row["power_w"]]
    assert predictor.calls == 0


def test_the_shape_of_answers() -> None:
    answer = load_predictor().co_run(SETS, A100, [None, 1200, 900, 1410])
    assert answer.time_s.shape == (4, 3)
    assert np.isnan(answer.time_s).tolist() == [
        [False, False, True],
        [False] * 3,
        [False, True, True],
        [False] * 2 + [True],
    ]
    assert answer.time_s[3, 0] == answer.time_s[3, 1]
    assert (answer.power_w > A100.idle_w).all()


def test_no_sets_and_empty_sets() -> None:
    predictor = load_predictor()
    assert predictor.co_run([], A100, []).time_s.shape == (0, 0)
    nobody = predictor.co_run([()], A100, [900])
    assert nobody.time_s.shape == (1, 0)
    assert nobody.power_w[0] == pytest.approx(A100.idle_w, rel=0.05)


def test_rows_are_counted_once() -> None:
    predictor = load_predictor()
    predictor.co_run(SETS[:2], A100, [900, 900])
    assert predictor.calls == 5
    predictor.co_run([SETS[0][::-1], SETS[1]], A100, [900, 900])
    assert predictor.calls == 5
    predictor.co_run([SETS[0]], A100, [None])
    assert predictor.calls == 7
    assert load_predictor().calls == 0


@settings(max_examples=40)
@given(members=st.lists(RESIDENTS, min_size=2, max_size=6), data=st.data())
def test_permuting_a_set_permutes_its_times(members: list[Resident], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(members))))
    # Two predictors, so that neither answers from the memory of the other order.
    one = load_predictor().co_run([tuple(members)], A100, [900])
    two = load_predictor().co_run([SETS[1], tuple(members[at] for at in order)], A100, [None, 900])
    assert one.time_s[0, order].tolist() == two.time_s[1, : len(members)].tolist()
    assert one.power_w[0] == two.power_w[1]


def test_bulk_and_single_questions_agree_to_the_bit(rng: np.random.Generator) -> None:
    names = sorted(models())
    sets = [
        tuple(Resident(Workload(str(rng.choice(names)), 4), 10 * int(rng.integers(1, 11))) for _ in range(size))
        for size in rng.integers(1, 7, size=60)
    ]
    bulk, single = load_predictor().co_run(sets, A100, [None] * 60), load_predictor()
    for row, members in enumerate(sets):
        answer = single.co_run([members], A100, [None])
        assert answer.time_s[0].tolist() == bulk.time_s[row, : len(members)].tolist()
        assert answer.power_w[0] == bulk.power_w[row]


def test_trees_are_summed_as_scikit_learn_sums_them(rng: np.random.Generator) -> None:
    x = rng.uniform(1, 100, size=(200, 14))
    forest = Forest(seed=1, target="literal").fit(x, x[:, 0] + x[:, 4], x[:, 1] * x[:, 2])
    time_s, power_w = forest.predict(x)
    reference = forest._model.predict(x.astype(np.float32)) * forest._scale
    assert np.array_equal(np.column_stack([time_s, power_w]), reference)
    assert np.corrcoef(time_s, x[:, 0] + x[:, 4])[0, 1] > 0.97


def test_the_forest_knows_the_device(rng: np.random.Generator) -> None:
    """Generalisation to pairs and triples that were never recorded, as planners ask for them."""
    names = sorted(models())
    for name in ("T4", "V100", "A100"):
        card = gpu(name)
        sets = [
            tuple(Resident(Workload(str(rng.choice(names)), 8), 10 * int(rng.integers(2, 11))) for _ in range(size))
            for size in rng.integers(1, 4, size=60)
        ]
        believed, true = (
            load_predictor().co_run(sets, card, [None] * 60),
            DevicePredictor().co_run(sets, card, [None] * 60),
        )
        assert np.nanmean(np.abs(believed.time_s / true.time_s - 1)) < 0.15
        assert np.mean(np.abs(believed.power_w / true.power_w - 1)) < 0.10


def test_training_leaves_the_validation_rows_alone(checkout: Path) -> None:
    table = store.read(checkout / "data" / "profiles" / "emulated" / "T4")
    samples = table[~is_reference(table)].reset_index(drop=True)
    fitted, validation = split_rows(len(samples), rng=np.random.default_rng(0))
    changed = table.copy()
    where = np.flatnonzero(~is_reference(table))[validation]
    changed.loc[where, "time_s"] *= 7
    x = of_profiles(samples, References(table))
    assert np.array_equal(train(table, seed=0)[0].predict(x), train(changed, seed=0)[0].predict(x))
    assert len(fitted) == round(0.75 * len(samples))
    assert sorted([*fitted, *validation]) == list(range(len(samples)))


def test_bad_questions_are_refused(checkout: Path) -> None:
    predictor = load_predictor()
    with pytest.raises(InputError, match="a clock of its grid"):
        predictor.co_run([SETS[0]], A100, [1411])
    with pytest.raises(InputError, match="inference batch sizes 1 to 32"):
        predictor.solo([Workload("resnet50", 64)], A100)
    with pytest.raises(InputError, match="H100, which the profiles do not cover"):
        predictor.solo([Workload("resnet50", 4)], gpu("H100"))
    table = store.read(checkout / "data" / "profiles" / "emulated" / "T4")
    with pytest.raises(InputError, match="Record"):
        ForestPredictor.fit(table[~(is_reference(table) & (table["workload"] == "vgg19"))])


PROGRAM = """
import hashlib
from heshare.prediction.forest import load_predictor
from heshare.world.catalogue import gpu
from heshare.world.workload import parse_resident
sets = [tuple(map(parse_resident, text.split("+"))) for text in {texts!r}]
answer = load_predictor().co_run(sets, gpu("A100"), [None, 1200, 900, 1410])
print(hashlib.sha256(answer.time_s.tobytes() + answer.power_w.tobytes()).hexdigest())
"""


def test_another_process_gives_the_same_bytes(checkout: Path) -> None:
    answer = load_predictor().co_run(SETS, A100, [None, 1200, 900, 1410])
    here = hashlib.sha256(answer.time_s.tobytes() + answer.power_w.tobytes()).hexdigest()
    program = PROGRAM.format(texts=["+".join(map(str, members)) for members in SETS])
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(checkout)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == here


def test_kept_answers_change_neither_an_answer_nor_the_count() -> None:
    sets = [
        (Resident(Workload("vgg19", 8), 40), Resident(Workload("resnet50", 4), 60)),
        (Resident(Workload("gpt2", 4)),),
    ]
    card = gpu("V100")
    assert kept_predictor()._memories is kept_predictor()._memories
    for order in (sets, sets[::-1]):
        fresh, kept = load_predictor(), kept_predictor()
        for clocks in ([None, None], [card.clocks_mhz[3]] * 2, [None, None]):
            one, other = fresh.co_run(order, card, clocks), kept.co_run(order, card, clocks)
            assert np.array_equal(one.time_s, other.time_s, equal_nan=True)
            assert np.array_equal(one.power_w, other.power_w)
            assert fresh.calls == kept.calls > 0
