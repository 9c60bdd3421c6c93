"""Outputs are kept while nothing that they depend on has changed, and are then those of a run from nothing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from heshare.paper.notebooks import kept_outputs
from heshare.paper.notebooks.notebook_parameters import find, read
from heshare.paper.notebooks.run_notebooks import NotebookRun
from heshare.paper.provenance.run_record import RunRecord
from heshare.shared.code_version import parse_source

SIDECAR = {"name": "fig05_system", "git_commit": "old", "heshare_sha256": None}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NotebookRun:
    """A run of notebook 17 whose outputs lie in a folder, and its executed copy in another."""
    monkeypatch.setattr(NotebookRun, "copies", property(lambda self: tmp_path / "copies"))
    monkeypatch.setattr(kept_outputs, "git_commit", lambda: "old")
    monkeypatch.setattr(kept_outputs, "package_sha256", lambda: None)
    notebook = read(find(["17"])[0])
    made = NotebookRun(notebook, dict(notebook.defaults), RunRecord(notebook.name, "paper"), tmp_path / "out")
    for path, text in (
        (made.out / "a.csv", "x\n1\n"),
        (made.out / "a.json", json.dumps(SIDECAR, indent=2) + "\n"),
        (made.out / "claims" / "17.json", "[]\n"),
        (made.copies / notebook.path.name, "{}"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return made


def outputs(run: NotebookRun) -> list[Path]:
    return [run.out / name for name in ("a.csv", "a.json", "claims/17.json")]


def test_outputs_are_kept_until_one_or_the_key_changes(run: NotebookRun) -> None:
    assert kept_outputs.look_up(run, "k") is None
    kept_outputs.keep(run, "k", outputs(run))
    found = kept_outputs.look_up(run, "k")
    assert found is not None
    assert [*found.outputs] == outputs(run)
    assert kept_outputs.look_up(run, "another") is None
    assert kept_outputs.look_up(replace(run, out=run.out.parent), "k") is None
    copy = run.copies / run.notebook.path.name
    for path, text in ((run.out / "a.csv", "x\n2\n"), (copy, "of another folder"), (copy, "")):
        before = path.read_text()
        path.write_text(text) if text else path.unlink()
        assert kept_outputs.look_up(run, "k") is None
        path.write_text(before)
    assert kept_outputs.look_up(run, "k") is not None


def test_sidecars_of_kept_outputs_name_the_commit_of_today(run: NotebookRun, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_outputs.keep(run, "k", outputs(run))
    sidecar = run.out / "a.json"
    os.utime(sidecar, (1.0, 1.0))
    monkeypatch.setattr(kept_outputs, "git_commit", lambda: "new+")
    monkeypatch.setattr(kept_outputs, "package_sha256", lambda: "0" * 64)
    assert kept_outputs.look_up(run, "k") is not None
    new = {**SIDECAR, "git_commit": "new+", "heshare_sha256": "0" * 64}
    assert sidecar.read_text() == json.dumps(new, indent=2) + "\n"
    assert sidecar.stat().st_mtime == 1.0
    assert (run.out / "claims" / "17.json").read_text() == "[]\n"
    assert kept_outputs.look_up(run, "k") is not None


@pytest.mark.slow
def test_the_key_has_notebook_parameters_data_and_code(
    run: NotebookRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = [kept_outputs.key_of(run), kept_outputs.key_of(replace(run, values={**run.values, "seed": 7}))]
    assert kept_outputs.key_of(replace(run, values={**run.values, "out_dir": "x"})) == keys[0]
    book = tmp_path / run.notebook.path.name
    book.write_text(run.notebook.path.read_text().replace("\n", "\r\n", 1))
    keys.append(kept_outputs.key_of(replace(run, notebook=replace(run.notebook, path=book))))
    with monkeypatch.context() as patch:
        patch.setattr(kept_outputs.sidecar, "input_hashes", lambda name: {"data/gpus.csv": name})
        keys.append(kept_outputs.key_of(run))
    with monkeypatch.context() as patch:
        patch.setattr(kept_outputs, "read_source", lambda file: parse_source("x = 1"))
        keys.append(kept_outputs.key_of(run))
    assert len(set(keys)) == len(keys)


def test_files_beside_modules_count_but_not_what_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    modules = [tmp_path / "a.py"]
    for name in ("a.py", "a.j2", "texts/b.j2", "__pycache__/a.pyc", "inner/c.py", "inner/c.j2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(kept_outputs.files, "PACKAGE", tmp_path)
    assert [text.split()[0] for text in kept_outputs._templates(modules)] == ["a.j2", "texts/b.j2"]


def test_comments_and_layout_of_a_module_do_not_count() -> None:
    one = parse_source("x = 1\ny = [1, 2]\n")
    assert parse_source("# more\nx = 1\n\n\ny = [\n    1,\n    2,\n]  # words\n") == one
    assert parse_source("x = 2\ny = [1, 2]\n").sha256 != one.sha256


@pytest.mark.parametrize(
    ("code", "strings", "there"),
    [
        ("import heshare as hs\nhs.compare(3)", [], {"heshare.api", "heshare.running.loop"}),
        ("from heshare.world import gpu", [], {"heshare.world.gpu"}),
        ("", ["morak(k=3)"], {"heshare.lab.systems.morak.policy"}),
        ("x = 'eaco'", [], {"heshare.lab.systems.eaco.policy"}),
        ("registry.table_1()", [], {"heshare.lab.systems.pwr.policy", "heshare.lab.systems.gavel.policy"}),
    ],
)
def test_modules_that_code_leads_to(code: str, strings: list[str], there: set[str]) -> None:
    assert there <= kept_outputs.closure(code, strings)[0].keys()


def test_a_policy_that_is_not_named_does_not_count() -> None:
    found, libraries = kept_outputs.closure("import pandas\nfrom heshare.world import arrivals")
    assert "heshare.lab.systems.miso.policy" not in found
    assert "pandas" in libraries


def test_pages_are_kept_until_an_output_changes(run: NotebookRun) -> None:
    (run.out / "index.html").write_text("page")
    key = kept_outputs.page_key(run.out, run.copies)
    assert not kept_outputs.page_is_kept(run.out, run.copies, key)
    kept_outputs.keep_page(run.out, run.copies, key)
    assert kept_outputs.page_is_kept(run.out, run.copies, kept_outputs.page_key(run.out, run.copies))
    (run.out / "a.csv").write_text("x\n3\n")
    assert kept_outputs.page_key(run.out, run.copies) != key
    (run.out / "index.html").unlink()
    assert not kept_outputs.page_is_kept(run.out, run.copies, key)
