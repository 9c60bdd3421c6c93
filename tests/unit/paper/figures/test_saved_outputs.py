"""Figures, tables and data as a notebook saves them: complete, with their provenance, the same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from heshare.shared.errors import InputError
from heshare.shared.files import root

if TYPE_CHECKING:
    from heshare.paper.notebooks.notebook import Context

FRAME = pd.DataFrame(
    {"group": ["a", "a", "b"], "gpu": ["T4", "A100", "T4"], "value": [1.0, 2.0, 3.0], "low": 0.5, "high": 4.0}
)
ABOUT = {"caption": "Rows.", "rows": "emulated"}


def context(out: Path) -> Context:
    from heshare.paper.notebooks import notebook, parameters
    from heshare.paper.provenance.run_record import RunRecord

    source = parameters.Notebook(
        root() / "notebooks/01_motivation.ipynb",
        {"profile": "paper", "seed": 0},
        ("fig01_toy", "table1_toy", "x01a_toy"),
    )
    run = RunRecord("01_motivation", "smoke", by_hand=False)
    return notebook.Context(source, {"profile": "smoke", "seed": 3, "out_dir": str(out)}, out, run)


def test_saved_figure(tmp_path: Path) -> None:
    """A saved figure is four files, the same bytes each time; text sizes are those in print."""
    from heshare.paper.figures import style

    for name in ("one", "two"):
        ctx = context(tmp_path / name)
        with style.using():
            fig, ax = ctx.figure()
            ax.text(0, 0, "small", fontsize=4)
            ax.text(0, 0, "hidden", fontsize=2, visible=False)
            preview = ctx.save(fig, "fig01_toy", data=FRAME, caption="a caption " * 20, rows="emulated")
        assert preview.path.is_file()
        assert preview._repr_png_()[0]

    for suffix in (".pdf", ".png", ".csv", ".json"):
        one, two = ((tmp_path / name / f"fig01_toy{suffix}").read_bytes() for name in ("one", "two"))
        assert one
        assert one == two

    metadata = json.loads((tmp_path / "one/fig01_toy.json").read_text())
    assert metadata["provenance"] == {"emulated": 3}
    assert metadata["parameters"] == {"profile": "smoke", "seed": 3}
    assert metadata["smallest_text_pt"] == 4
    assert "Emulated" in metadata["caption"]
    assert pd.read_csv(tmp_path / "one/fig01_toy.csv").equals(FRAME)


@pytest.mark.parametrize("kind", ["data", "table", "figure"])
def test_files_of_each_kind(tmp_path: Path, kind: str) -> None:
    """Each kind of output names its files, and one that is empty or gone is found."""
    from heshare.paper.figures import style
    from heshare.paper.notebooks.execute_notebook import missing_files

    ctx = context(tmp_path)
    suffixes = {".csv", ".json"}
    if kind == "data":
        ctx.data(FRAME, "x01a_toy", **ABOUT)
    elif kind == "table":
        ctx.table(FRAME, "x01a_toy", shown=["gpu"], **ABOUT)
        assert "value" not in (tmp_path / "x01a_toy.md").read_text()
        suffixes |= {".md"}
    else:
        with style.using():
            ctx.save(ctx.figure(wide=True)[0], "x01a_toy", data=FRAME, table=FRAME[:1], **ABOUT)
        suffixes |= {".md", ".pdf", ".png"}
    assert {path.suffix for path in tmp_path.iterdir()} == suffixes
    assert missing_files("x01a_toy", tmp_path) == []

    for path in tmp_path.iterdir():
        content = path.read_bytes()
        path.write_bytes(b"")
        assert path.suffix == ".json" or missing_files("x01a_toy", tmp_path) == [path.name]
        path.write_bytes(content)
    for path in tmp_path.iterdir():
        path.unlink()
    assert missing_files("x01a_toy", tmp_path) == ["x01a_toy.json"]


@pytest.mark.parametrize(
    ("name", "data", "caption", "rows"),
    [
        ("fig09_other", FRAME, "x", "emulated"),
        ("fig01_toy", FRAME[:0], "x", "emulated"),
        ("fig01_toy", FRAME, "x", "invented"),
        ("fig01_toy", FRAME, "word " * 61, "emulated"),
    ],
    ids=["undeclared", "empty", "unknown provenance", "long caption"],
)
def test_refused_output(tmp_path: Path, name: str, data: pd.DataFrame, caption: str, rows: str) -> None:
    """Nothing is written of an output that is refused."""
    ctx = context(tmp_path / "out")
    with pytest.raises(InputError):
        ctx.data(data, name, caption=caption, rows=rows)
    assert not (tmp_path / "out").exists()


def test_no_wall_times(tmp_path: Path) -> None:
    """Times that depend on the machine are not written."""
    context(tmp_path).data(FRAME.assign(planning_s=1.0), "x01a_toy", **ABOUT)
    assert pd.read_csv(tmp_path / "x01a_toy.csv").equals(FRAME)
