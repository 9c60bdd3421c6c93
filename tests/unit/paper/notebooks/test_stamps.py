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


def test_stamp(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamp changes with notebook, parameters, package and data, not with the folder."""
    first = stamps.stamp(notebook, {"seed": 0, "out_dir": "one"})
    assert stamps.stamp(notebook, {"seed": 0, "out_dir": "other"}) == first, "where outputs go changes nothing"

    found = {first, stamps.stamp(notebook, {"seed": 1})}
    monkeypatch.setattr(stamps, "_package_and_data", lambda: "other code")
    found.add(stamps.stamp(notebook, {"seed": 0}))
    monkeypatch.undo()
    notebook.write_text("{ }")
    found.add(stamps.stamp(notebook, {"seed": 0}))
    assert len(found) == 4


def test_up_to_date(tmp_path: Path) -> None:
    """Outputs are up to date until the stamp changes or one is gone."""
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
