"""The schedulers' predictor: equal to reference rows, independent of order, history and process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heshare.prediction.features import TABLE_II, ReferenceFeatures, is_reference, profile_features
from heshare.prediction.load import load_predictor, predictor_factory, train
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import CodedSets
from heshare.prediction.samples import split_rows
from heshare.prediction.targets import Targets
from heshare.prediction.trees import TREE_SETTINGS, RandomForest, Trees
from heshare.profiles import store
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, paper_models
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


def test_reference_row(checkout: Path) -> None:
    """A workload alone at the top clock is its reference row."""
    table = store.read(checkout / "data" / "profiles" / "emulated" / "A100")
    row = table[is_reference(table)].iloc[7]
    predictor = load_predictor()
    workload = Workload(row["workload"], int(row["batch_size"]))
    for clock in (None, 1410):
        answer = predictor.solo([workload], A100, clock)
        assert answer.time_s.tolist() == [[row["time_s"]]]
        assert answer.power_w.tolist() == [row["power_w"]]
    assert predictor.calls == 0


def test_coded_sets() -> None:
    """Sets as an array are predicted and counted as tuples are; no sets and empty sets are predicted, too."""
    residents = sorted({resident for residents in SETS for resident in residents})
    members = np.full((len(SETS), 4), -1)
    for row, each in enumerate(SETS):
        members[row, : len(each)] = [residents.index(resident) for resident in each]
    coded, clocks = CodedSets(residents, members), [None, 1200, 900, 1410]
    assert list(coded) == SETS == [coded[row] for row in range(len(coded))]
    by_tuples, by_array = load_predictor(), load_predictor()
    first, second = by_tuples.co_run(SETS, A100, clocks), by_array.co_run(coded, A100, clocks)
    assert first.time_s.shape == (4, 3)
    assert np.isfinite(first.time_s).sum(axis=1).tolist() == [len(members) for members in SETS]
    assert np.array_equal(first.time_s, second.time_s[:, :3], equal_nan=True)
    assert first.power_w.tolist() == second.power_w.tolist()
    assert by_tuples.calls == by_array.calls == sum(map(len, SETS))

    assert by_tuples.co_run([], A100, []).time_s.shape == (0, 0)
    empty = by_tuples.co_run([()], A100, [900])
    assert empty.time_s.shape == (1, 0)
    assert empty.power_w[0] == pytest.approx(A100.idle_w, rel=0.05)


def test_calls() -> None:
    """Each set counts once."""
    predictor = load_predictor()
    predictor.co_run(SETS[:2], A100, [900, 900])
    assert predictor.calls == 5
    predictor.co_run([SETS[0][::-1], SETS[1]], A100, [900, 900])
    assert predictor.calls == 5
    predictor.co_run([SETS[0]], A100, [None])
    assert predictor.calls == 7
    assert load_predictor().calls == 0


def test_bulk(rng: np.random.Generator) -> None:
    """One call with many sets equals many calls in another order to the bit."""
    names = sorted(paper_models())
    sets = [
        tuple(Resident(Workload(str(rng.choice(names)), 4), 10 * int(rng.integers(1, 11))) for _ in range(size))
        for size in rng.integers(1, 7, size=60)
    ]
    bulk, single = load_predictor().co_run(sets, A100, [None] * 60), load_predictor()
    for row, members in enumerate(sets):
        answer = single.co_run([members[::-1]], A100, [None])
        assert answer.time_s[0, ::-1].tolist() == bulk.time_s[row, : len(members)].tolist()
        assert answer.power_w[0] == bulk.power_w[row]


@pytest.mark.parametrize("rows", [0, 1, 400])
def test_trees(rows: int) -> None:
    """Trees have the bits of the trees one by one."""
    from sklearn.ensemble import ExtraTreesRegressor

    rng = np.random.default_rng(3)
    learned = rng.random((300, 14)).astype(np.float32)
    asked = np.vstack([learned, rng.random((100, 14)).astype(np.float32)])[:rows]
    outputs = np.column_stack([learned.sum(axis=1), learned[:, 0] * learned[:, 1]])
    model = ExtraTreesRegressor(random_state=0, n_jobs=1, **TREE_SETTINGS).fit(learned, outputs)
    expected = np.zeros((rows, 2))
    for tree in model.estimators_ if rows else ():
        expected += tree.tree_.predict(asked).reshape(rows, 2)
    assert np.array_equal(Trees.of(model.estimators_).mean(asked), expected / len(model.estimators_))


def test_errors(rng: np.random.Generator) -> None:
    """Pairs and triples that no profile holds, as planners need them."""
    names = sorted(paper_models())
    for name in ("T4", "V100", "A100"):
        device = gpu(name)
        sets = [
            tuple(Resident(Workload(str(rng.choice(names)), 8), 10 * int(rng.integers(2, 11))) for _ in range(size))
            for size in rng.integers(1, 4, size=60)
        ]
        predicted, true = (
            load_predictor().co_run(sets, device, [None] * 60),
            DevicePredictor().co_run(sets, device, [None] * 60),
        )
        assert np.nanmean(np.abs(predicted.time_s / true.time_s - 1)) < 0.15
        assert np.mean(np.abs(predicted.power_w / true.power_w - 1)) < 0.10


def test_validation_rows(checkout: Path) -> None:
    """Training ignores the validation rows."""
    table = store.read(checkout / "data" / "profiles" / "emulated" / "T4")
    samples = table[~is_reference(table)].reset_index(drop=True)
    fitted, validation = split_rows(len(samples), rng=np.random.default_rng(0))
    changed = table.copy()
    where = np.flatnonzero(~is_reference(table))[validation]
    changed.loc[where, "time_s"] *= 7
    x = profile_features(samples, ReferenceFeatures(table))
    assert np.array_equal(train(table, seed=0).model.predict(x), train(changed, seed=0).model.predict(x))
    assert len(fitted) == round(0.75 * len(samples))
    assert sorted([*fitted, *validation]) == list(range(len(samples)))


def test_outside_profiles(checkout: Path) -> None:
    """Clocks, batch sizes and GPUs outside the profiles are refused."""
    table = store.read(checkout / "data" / "profiles" / "emulated" / "T4")
    predictor, t4 = predictor_factory(table)(), gpu("T4")
    with pytest.raises(InputError, match="a clock of its grid"):
        predictor.co_run([SETS[0]], t4, [1411])
    with pytest.raises(InputError, match="inference batch sizes 1 to 32"):
        predictor.solo([Workload("resnet50", 64)], t4)
    with pytest.raises(InputError, match="A100"):
        predictor.solo([Workload("resnet50", 4)], A100)
    with pytest.raises(InputError, match="Record"):
        train(table[~(is_reference(table) & (table["workload"] == "vgg19"))], seed=0)


def test_random_forest() -> None:
    """The random forest has the predictions of scikit-learn."""
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(3)
    table = store.read_shipped()
    rows = table[~is_reference(table)].sample(100, random_state=0)
    features = profile_features(rows, ReferenceFeatures(table))
    time_s, power_w = rows["time_s"].to_numpy(), rows["power_w"].to_numpy()
    model = RandomForest(seed=4).fit(features, time_s, power_w)
    targets = Targets()
    learned = targets.fit(features, time_s, power_w)
    scale = learned.std(axis=0) + 1e-12
    reference = RandomForestRegressor(random_state=4).fit(features[:, TABLE_II], learned / scale)
    asked = features[rng.permutation(100)[:50]]
    expected = targets.decode(asked, reference.predict(asked[:, TABLE_II]) * scale)
    np.testing.assert_allclose(model.predict(asked), expected, rtol=1e-6)
    with pytest.raises(InputError, match="trees or random-forest"):
        load_predictor(kind="oracle")
