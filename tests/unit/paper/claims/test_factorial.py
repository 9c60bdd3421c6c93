"""The rule of "not determined by the text", and the committed factorial that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from heshare.paper.claims import factorial
from heshare.paper.claims.factorial import DURATIONS, QUEUEING, RATIO, SHIPPED, SIZES, THROTTLE, cells_of
from heshare.paper.claims.paper_claims import paper_claims
from heshare.shared import files

H1, H3, EN_OPT = ("H1", "energy"), ("H3", "Random"), ("H4", "En-opt")
FAR = 2.0
"""Times the paper's value: a value that does not hold."""
EQUAL, OTHER_T4, LIGHT = {DURATIONS: "equal"}, {RATIO: "T4 as in Fig. 2"}, {THROTTLE: "cap 1.0, limit 1.2"}
AT_ONCE, SMALL = {QUEUEING: "all at once"}, {SIZES: "2"}


def verdict(
    key: tuple[str, str], *near: Mapping[str, str], shipped: float = FAR, n: int = 10, width: float = 0.0
) -> bool:
    """Return the rule's answer where these cells have the paper's value, and the shipped one `shipped` times it."""
    claim = paper_claims()[key]
    rows = [{**SHIPPED, "value": shipped * claim.value}]
    rows += [{**SHIPPED, **changed, "value": claim.value} for changed in near]
    table = pd.DataFrame(rows).assign(id=claim.id, part=claim.part, n=n)
    table = table.assign(low=table["value"] - width, high=table["value"] + width)
    return factorial.is_undetermined(claim, shipped * claim.value, cells_of(table, claim))


@pytest.mark.parametrize(
    ("key", "near"),
    [
        (H1, [EQUAL, EQUAL | LIGHT]),
        (H3, [EQUAL, EQUAL | AT_ONCE]),
        (EN_OPT, [OTHER_T4, OTHER_T4 | EQUAL]),
        (H1, [SMALL, {SIZES: "4"}]),
    ],
)
def test_undetermined(key: tuple[str, str], near: list[Mapping[str, str]]) -> None:
    """Two near cells that differ in one axis leave a number undetermined."""
    assert verdict(key, *near)
    assert verdict(key, *near, width=1000.0)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        (H1, []),
        (H1, [EQUAL, OTHER_T4, LIGHT, SMALL]),
        (H1, [EQUAL, OTHER_T4 | LIGHT]),
        (H1, [EQUAL, EQUAL | AT_ONCE]),
        (H3, [EQUAL, EQUAL | LIGHT]),
        (EN_OPT, [EQUAL, EQUAL | AT_ONCE, EQUAL | LIGHT]),
    ],
)
def test_determined(key: tuple[str, str], near: list[Mapping[str, str]]) -> None:
    """Near cells that are alone, differ in more than one axis, or are equal runs leave the verdict as it is."""
    assert not verdict(key, *near)
    assert not verdict(key, *near, width=1000.0)


def test_shipped_value_holds() -> None:
    """A shipped value that holds is determined."""
    near = [EQUAL, EQUAL | LIGHT]
    assert not verdict(H1, *near, shipped=1.25)
    assert not verdict(H1, *near, shipped=0.75)
    assert verdict(H1, *near, shipped=1.26)
    assert verdict(H1, *near, shipped=0.0)


def test_few_seeds() -> None:
    """Cells of fewer than ten seeds do not count."""
    assert not verdict(H1, EQUAL, EQUAL | LIGHT, n=9)


@pytest.mark.slow
def test_current_factorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factorial is current until code or data change."""
    monkeypatch.setattr(files, "root", lambda: tmp_path)
    monkeypatch.setattr(files, "reference", lambda: tmp_path / "reference")
    assert factorial.read() is None

    cells = pd.DataFrame(
        [{**SHIPPED, "id": "H1", "part": "energy", "value": -45.0, "low": -50.0, "high": -40.0, "n": 10}]
    )
    factorial.write(cells)
    found = factorial.read()
    assert found is not None
    assert found.is_current
    pd.testing.assert_frame_equal(found.cells, cells)

    (tmp_path / "reference" / "factorial.json").write_text(json.dumps({"made_by": "other code"}))
    found = factorial.read()
    assert found is not None
    assert not found.is_current


def test_committed_factorial() -> None:
    """The committed factorial has every cell, and equal runs have equal values."""
    found = factorial.read()
    assert found is not None
    table = found.cells
    axes = list(factorial.AXES)
    assert len(table[axes].drop_duplicates()) == 48
    assert (table.groupby(axes).size() == 8).all()
    assert (table["n"] == factorial.LEAST_SEEDS).all()
    assert (table[axes] == pd.Series(SHIPPED)).all(axis=1).sum() == 8

    for (id, part), rows in table.groupby(["id", "part"]):
        entering = list(factorial.axes_of(paper_claims()[str(id), str(part)]))
        equal = rows.groupby(entering)["value"].agg(["min", "max"])
        assert (equal["min"] == equal["max"]).all()


def test_code_hash() -> None:
    """Comments and docstrings do not change the hash of the code."""
    source = 'def double(x):\n    """Return it twice."""\n    return 2 * x  # twice\n'
    other_words = 'def double(x):\n    """Return twice\n    the value.\n    """\n\n    # A comment.\n    return 2 * x\n'
    assert factorial.code_hash(source) == factorial.code_hash(other_words)
    assert factorial.code_hash(source) != factorial.code_hash(source.replace("2 * x", "3 * x"))
