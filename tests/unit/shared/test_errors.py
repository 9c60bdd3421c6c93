"""Errors: the nearest known name, errors of the system as errors of the package, and errors between processes."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.shared.errors import SYSTEM_ERRORS, HeShareError, InputError, PlanError, from_system, suggestion, unknown


@settings(max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5), st.text(max_size=8))
def test_suggestion(known: list[str], name: str) -> None:
    """A suggestion is a known name, or else the other sentence."""
    assert suggestion(name, known, "No.") in {"No.", *(f"Did you mean {each!r}?" for each in known)}


def test_unknown_name() -> None:
    """An unknown name is answered with the nearest one, or with all of them; many names are not listed."""
    few = str(unknown("zzz", ["a", "b"], "Describe it.", column="gpu"))
    assert all(part in few for part in ("gpu", "'zzz'", "a, b", "Describe it."))

    known = [f"policy-{number}" for number in range(60)]
    near = str(unknown("polici-5", known))
    assert "'policy-5'" in near
    assert "policy-59" not in near
    assert "policy-59" in str(unknown("zzz", known))


def test_system_errors() -> None:
    """Errors of the system become errors of the package, which name the file."""
    assert all(isinstance(from_system(kind("why")), HeShareError) for kind in SYSTEM_ERRORS)
    assert "/x/y" in str(from_system(OSError(28, "No space left on device", "/x/y")))


@pytest.mark.parametrize("kind", [InputError, PlanError])
def test_pickled_error(kind: type[InputError]) -> None:
    """An error from another process keeps all its attributes."""
    error = kind(found="this", expected="that", action="Do it.", file="a.csv", row=3, column="b")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)
