"""The reference results: differences of a run are named, other versions have a tolerance, the committed files whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.paper.reference import artefact_page, reference_results
from heshare.paper.reference.reference_results import Difference
from heshare.shared.errors import InputError

VERSIONS = {"python": "3.11.7", "heshare": "0.3.0", "numpy": "2.4.6"}
TEXT = "name,value,note\na,1.5,1.50 here\nb,2.5,\n"
MOST_BYTES = 2_000_000


def write(folder: Path, name: str, text: str, *, numpy: str = "2.4.6", profile: str = "paper") -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_bytes(text.encode())
    sidecar = {
        "files": [f"{name}.csv", f"{name}.json"],
        "notebook": "notebooks/05_comparison.ipynb",
        "profile": profile,
        "versions": {**VERSIONS, "numpy": numpy},
        "platform": "Linux x86_64",
    }
    (folder / f"{name}.json").write_text(json.dumps(sidecar), "utf-8")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run of two files, which are the reference."""
    monkeypatch.setattr(reference_results, "folder", lambda: tmp_path / "reference")
    monkeypatch.setattr(reference_results, "declared_outputs", lambda: ["fig01_one"])
    monkeypatch.setattr(reference_results, "_seconds", lambda: {"05_comparison": 90.0})
    write(tmp_path / "run", "fig01_one", TEXT)
    write(tmp_path / "run", "x05a_two", TEXT)
    assert reference_results.update(tmp_path / "run") == ["fig01_one.csv", "x05a_two.csv"]
    return tmp_path / "run"


def test_same_run(run: Path) -> None:
    """The run that is the reference has no difference."""
    compared = reference_results.compare(run)
    assert compared.same
    assert (compared.compared, compared.versions) == (2, ())


def test_difference_named(run: Path) -> None:
    """A difference has its file, row, column, values and relative size."""
    write(run, "fig01_one", TEXT.replace("2.5", "2.0"))
    (found,) = reference_results.compare(run).differences
    assert found == Difference("fig01_one.csv", 3, "value", "2.5", "2.0", 0.2)


@pytest.mark.parametrize("text", [TEXT + "c,3.5,\n", TEXT.replace("value", "value_j"), TEXT.replace("b,2.5,\n", "")])
def test_other_shape(run: Path, text: str) -> None:
    """Of tables of different shape the first row that differs is named."""
    write(run, "fig01_one", text)
    (found,) = reference_results.compare(run).differences
    assert (found.file, found.column) == ("fig01_one.csv", "")
    assert found.row == (1 if "value_j" in text else 4 if "c,3.5" in text else 3)


def test_new_and_missing_files(run: Path) -> None:
    """A new file is a difference and one that was not made is counted."""
    (run / "x05a_two.csv").rename(run / "x05b_three.csv")
    (run / "x05a_two.json").rename(run / "x05b_three.json")
    compared = reference_results.compare(run)
    assert not compared.same
    assert (compared.not_made, compared.new) == (("x05a_two.csv",), ("x05b_three.csv",))


def test_claims_not_made(run: Path) -> None:
    """Claims that were not made are no difference."""
    head = "id,part,value,low,high,verdict\n"
    write(run, "claims", f"{head}M1,,1.5,1.0,2.0,direction\nE1,,4.0,3.0,5.0,direction\n")
    reference_results.update(run)
    write(run, "claims", f"{head}M1,,1.5,1.0,2.0,direction\nE1,,,,,not made yet\n")
    assert reference_results.compare(run).same
    write(run, "claims", f"{head}M1,,1.6,1.0,2.0,direction\nE1,,,,,not made yet\n")
    assert [one.column for one in reference_results.compare(run).differences] == ["value"]


def test_other_versions(run: Path) -> None:
    """Under other versions of packages values may move, columns may not."""
    write(run, "fig01_one", TEXT.replace("2.5", "3.5").replace("1.5,", "1.5000000001,"), numpy="2.5.0")
    compared = reference_results.compare(run)
    assert compared.same
    assert compared.moved == {"fig01_one.csv": 1}
    assert compared.versions == ("numpy 2.4.6 -> 2.5.0",)
    write(run, "fig01_one", TEXT.replace("value", "value_j"), numpy="2.5.0")
    assert [one.row for one in reference_results.compare(run).differences] == [1]


@pytest.mark.parametrize(
    ("now", "columns"),
    [
        ("M1,,1.5,1.0,2.0,direction", []),
        ("M1,,1.99,1.0,9.0,direction", []),
        ("M1,,2.01,2.0,2.1,direction", ["value"]),
        ("M1,,,,,direction", ["value"]),
        ("M1,,1.5,1.0,2.0,reproduced", ["verdict"]),
        ("M2,,1.5,1.0,2.0,direction", ["verdict", "value"]),
    ],
)
def test_claims_of_other_versions(run: Path, tmp_path: Path, now: str, columns: list[str]) -> None:
    """Under other versions a claim's value stays in its interval and keeps its verdict."""
    head = "id,part,value,low,high,verdict\n"
    write(run, "claims", f"{head}M1,,1.5,1.0,2.0,direction\n")
    reference_results.update(run)
    write(run, "claims", f"{head}{now}\n", numpy="2.5.0")
    assert [one.column for one in reference_results.compare(run).differences] == columns


def test_update(run: Path, tmp_path: Path) -> None:
    """An update writes only files that differ, and keeps the run times."""
    kept = tmp_path / "reference" / "x05a_two.csv.gz"
    before = kept.read_bytes()
    write(run, "fig01_one", TEXT.replace("2.5", "2.0"))
    assert reference_results.update(run) == ["fig01_one.csv"]
    assert reference_results.read("fig01_one.csv") == TEXT.replace("2.5", "2.0")
    assert kept.read_bytes() == before
    assert reference_results.origin()["notebooks"]["05_comparison"]["seconds"] == 90.0
    (run / "x05a_two.csv").unlink()
    assert reference_results.update(run) == ["x05a_two.csv"]
    assert reference_results.names() == ["fig01_one.csv"]


def test_refused_update(run: Path) -> None:
    """An update is refused for a missing output, another profile and mixed versions."""
    (run / "fig01_one.csv").unlink()
    with pytest.raises(InputError, match="make all"):
        reference_results.update(run)
    write(run, "fig01_one", "value\n7\n", profile="smoke")
    with pytest.raises(InputError, match="found smoke"):
        reference_results.update(run)
    write(run, "fig01_one", "value\n7\n", numpy="2.5.0")
    with pytest.raises(InputError, match="column versions"):
        reference_results.update(run)
    assert reference_results.read("fig01_one.csv") == TEXT


def test_verify_command(run: Path) -> None:
    """`heshare notebook verify` prints differences and exits with 1."""
    command = ["notebook", "verify", "--out", str(run)]
    good = CliRunner().invoke(app, command)
    assert (good.exit_code, good.stdout.count("\n")) == (0, 1)
    write(run, "fig01_one", TEXT.replace("5,", "7,"))
    bad = CliRunner().invoke(app, [*command, "--most", "1"])
    assert bad.exit_code == 1
    assert bad.stdout.startswith("fig01_one.csv, row 2, column value: expected 1.5, found 1.7")
    assert "2 differences" in bad.stdout
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert [row["row"] for row in document["rows"]] == [2, 3]
    shutil.rmtree(run)
    run.mkdir()
    empty = CliRunner().invoke(app, command)
    assert empty.exit_code == 2
    assert "make figures" in empty.output


def test_committed_reference(checkout: Path) -> None:
    """The committed reference is small and has every output of the notebooks."""
    files = list((checkout / "reference").iterdir())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    kept = {name.removesuffix(".csv") for name in reference_results.names()}
    assert kept == {*reference_results.declared_outputs(), "claims"}


def test_artefact_page(checkout: Path) -> None:
    """The artefact page is up to date."""
    assert (checkout / artefact_page.NAME).read_text("utf-8") == artefact_page.page(), "run `make reference`"
