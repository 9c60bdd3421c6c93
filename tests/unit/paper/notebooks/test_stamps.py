"""A notebook runs again only if its stamp has changed or an output is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.paper.notebooks import stamps


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    path = tmp_path / "01_toy.ipynb"
    path.write_text("{}")
    return path


def test_stamp_changes_with_notebook_parameters_package_and_data(
    notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stamps.stamp(notebook, {"seed": 0, "out_dir": "one"})
    assert stamps.stamp(notebook, {"seed": 0, "out_dir": "other"}) == first, "where outputs go changes nothing"

    found = {first, stamps.stamp(notebook, {"seed": 1})}
    monkeypatch.setattr(stamps, "_package_and_data", lambda: "other code")
    found.add(stamps.stamp(notebook, {"seed": 0}))
    monkeypatch.undo()
    notebook.write_text("{ }")
    found.add(stamps.stamp(notebook, {"seed": 0}))
    assert len(found) == 4


def test_outputs_are_up_to_date_until_the_stamp_changes_or_one_is_gone(tmp_path: Path) -> None:
    output = tmp_path / "a.csv"
    output.write_text("x")
    assert stamps.outputs_as_stamped(tmp_path, "01 in a", "s") is None
    stamps.write(tmp_path, "01 in a", "s", [output])
    stamps.write(tmp_path, "02 in a", "s", [output])

    assert stamps.outputs_as_stamped(tmp_path, "01 in a", "s") == [output]
    assert stamps.outputs_as_stamped(tmp_path, "01 in a", "another") is None
    assert stamps.outputs_as_stamped(tmp_path, "01 in b", "s") is None
    output.unlink()
    assert stamps.outputs_as_stamped(tmp_path, "01 in a", "s") is None
