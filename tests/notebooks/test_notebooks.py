"""Every notebook: its source keeps the rules, and a smoke run makes every output with its provenance and columns."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from support.smoke_run import smoke

from heshare.paper.claims import claim_table
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.claims.verdicts import NOT_YET, UNTESTABLE, VERDICTS
from heshare.paper.notebooks import parameters
from heshare.paper.notebooks.execute_notebook import missing_files
from heshare.paper.reference import reference_results
from heshare.shared.files import root

EXACT = {".csv", ".png", ".pdf", ".md", ".html"}


def test_source() -> None:
    """A notebook's source begins with text, has parameters, no outputs and no paths."""
    for path in parameters.find():
        book = nbformat.read(path, as_version=4)
        nbformat.validate(book)
        assert book.metadata["kernelspec"]["name"] == "python3"
        assert book.cells[0].cell_type == "markdown"

        defaults = parameters.read(path).defaults
        assert defaults["profile"] == "paper"
        assert defaults["out_dir"] == ""
        assert "seed" in defaults

        for cell in book.cells:
            if cell.cell_type != "code":
                continue
            assert cell.outputs == []
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    assert not node.value.startswith(("./", "../", "/", "~")), path.name


def test_provenance(smoke_results: Path) -> None:
    """Every promised file is there, and says of which notebook, parameters, data and versions it was made."""
    for path in parameters.find():
        for name in parameters.read(path).outputs:
            assert missing_files(name, smoke_results) == []
            text = (smoke_results / f"{name}.json").read_text()
            said: dict[str, Any] = json.loads(text)
            assert said["notebook"] == f"notebooks/{path.name}"
            assert said["notebook_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            assert said["profile"] == "smoke"
            assert said["parameters"]["seed"] == 0
            assert "out_dir" not in said["parameters"]
            assert set(said["provenance"]) <= {"emulated", "measured", "published"}
            assert sum(said["provenance"].values()) > 0
            assert len(said["data_sha256"]) == 64
            assert {"python", "numpy", "pandas", "matplotlib", "heshare"} <= set(said["versions"])
            assert str(root()) not in text
    assert [path.name for path in smoke_results.iterdir() if path.name.startswith(".")] == [], "no staging folder"


def columns_of(frame: pd.DataFrame) -> list[str]:
    # A column named after a batch size (ratio_bs32) is there for each size of the profile.
    return [name for name in frame.columns if not re.search(r"_bs\d+$", name)]


def test_schema(smoke_results: Path) -> None:
    """Every CSV file has rows, the columns of the committed one, and no lower end of an interval above its upper."""
    found = {path.stem for path in smoke_results.glob("*.csv")}
    assert found == {name.removesuffix(".csv") for name in reference_results.names()}

    for name in sorted(found):
        frame = pd.read_csv(smoke_results / f"{name}.csv")
        committed = pd.read_csv(io.StringIO(reference_results.read(f"{name}.csv")))
        assert not frame.empty, name
        assert columns_of(frame) == columns_of(committed), name
        if name != "claims":
            assert not frame.isna().all().any(), f"{name}: an empty column"

        for low in (column for column in frame.columns if re.search(r"(^|_)low(_|$)", column)):
            high = low.replace("low", "high")
            if high in frame and pd.api.types.is_numeric_dtype(frame[low]):
                both = frame[[low, high]].dropna()
                assert (both[low] <= both[high] + 1e-9 * both[high].abs()).all(), f"{name}: {low}"


def test_claims(smoke_results: Path) -> None:
    """Every claim has a verdict, a value within its interval, and a source that its notebook makes."""
    frame = pd.read_csv(smoke_results / "claims.csv")
    assert list(frame.columns) == list(claim_table.COLUMNS)
    assert list(frame["id"]) == [id for id, _ in paper_claims()]
    assert set(frame["verdict"]) <= set(VERDICTS)
    waiting = frame[frame["verdict"] == NOT_YET]
    assert set(waiting["id"]) <= {"G3", "G6"}, "the smoke run has one load"
    assert set(frame.loc[frame["verdict"] == UNTESTABLE, "id"]) >= {"R4", "U5"}

    rivals = frame[frame["id"].isin(["H1", "H2", "G1", "G2", "O1", "O2", "O3", "O4"])]
    assert rivals[["placed", "placed_verdict", "best", "best_verdict"]].notna().all(axis=None)
    numbers = frame.dropna(subset="low")
    assert (numbers["low"] <= numbers["value"]).all()
    assert (numbers["value"] <= numbers["high"]).all()

    made = frame[frame["verdict"] != NOT_YET].dropna(subset="source")
    for row in made.to_dict("records"):
        assert row["source"] in parameters.read(parameters.find([row["notebook"]])[0]).outputs, row["id"]


def test_colours(smoke_results: Path) -> None:
    """A name has the same colour in every legend."""
    from heshare.paper.figures.series_styles import SERIES

    seen: dict[str, set[str]] = {}
    for path in sorted(smoke_results.glob("*.json")):
        for name, colours in json.loads(path.read_text()).get("legend", {}).items():
            seen.setdefault(name, set()).update(colours)
    known = {name: colours for name, colours in seen.items() if name in SERIES}
    assert {"T4", "A100"} <= set(known)
    assert known == {name: {SERIES[name].colour.upper()} for name in known}


def test_text_size(smoke_results: Path) -> None:
    """No text of a figure is below the least size in print."""
    from heshare.paper.figures.style import SMALLEST_PT

    drawn = {path.stem: json.loads(path.read_text()).get("smallest_text_pt") for path in smoke_results.glob("*.json")}
    sizes = {name: size for name, size in drawn.items() if (smoke_results / f"{name}.png").exists()}
    assert {f"fig{number:02d}" for number in range(1, 12)} <= {name[:5] for name in sizes}
    assert {name: size for name, size in sizes.items() if size is None or size < SMALLEST_PT} == {}


@pytest.mark.nightly
def test_same_bytes(smoke_results: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two runs with other hash seeds give the same bytes."""
    other = smoke(tmp_path_factory.mktemp("two") / "figures", "2")
    written = [path for path in smoke_results.rglob("*") if path.suffix in EXACT]
    # The notebooks' pages show how long planning took.
    names = sorted(path.relative_to(smoke_results) for path in written if path.parent.name != "notebooks")
    assert all((other / name).exists() for name in names)
    assert len(names) > 50
    changed = [str(name) for name in names if (smoke_results / name).read_bytes() != (other / name).read_bytes()]
    assert changed == []


@pytest.mark.slow
def test_missing_recording(tmp_path: Path) -> None:
    """A recording that is not there gets one message, which says how to make it."""
    words = ["notebook", "run", "01", "--profile", "smoke", "-p", "source=recorded:H9000", "--out", str(tmp_path / "x")]
    command = [sys.executable, "-m", "heshare", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "H9000" in done.stderr
    assert "heshare profile" in done.stderr
    assert not (tmp_path / "x").exists()
