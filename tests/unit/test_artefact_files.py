"""The files around the artefact: citation, archive and container name what the project has, in the lock's versions."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

import heshare
from heshare.paper.reference import reference_results


@pytest.fixture(scope="module")
def project(checkout: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    return found


@pytest.fixture(scope="module")
def cited(checkout: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((checkout / "CITATION.cff").read_text("utf-8"))
    return found


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _locked(checkout: Path, package: str) -> str:
    (version,) = set(re.findall(rf"(?m)^{package}==(\S+)", (checkout / "requirements.lock").read_text("utf-8")))
    return version


def test_citation_zenodo_and_codemeta_agree_with_the_project(
    checkout: Path, project: dict[str, Any], cited: dict[str, Any]
) -> None:
    zenodo, codemeta = _json(checkout / ".zenodo.json"), _json(checkout / "codemeta.json")
    assert cited["version"] == zenodo["version"] == codemeta["version"] == heshare.__version__
    assert cited["license"] == zenodo["license"] == project["license"] == codemeta["license"].rpartition("/")[2]
    assert cited["keywords"] == zenodo["keywords"] == codemeta["keywords"] == project["keywords"]
    assert cited["title"] == zenodo["title"]
    assert codemeta["name"] == project["name"]
    assert cited["abstract"] == zenodo["description"] == codemeta["description"]
    assert cited["abstract"].startswith(project["description"])
    authors = [author["name"] for author in cited["authors"]]
    assert [one["name"] for one in zenodo["creators"]] == [one["name"] for one in codemeta["author"]] == authors
    assert codemeta["softwareRequirements"] == project["dependencies"]
    assert codemeta["runtimePlatform"].endswith(project["requires-python"])


def test_citation_zenodo_and_codemeta_name_the_same_publications(checkout: Path, cited: dict[str, Any]) -> None:
    paper, *others = cited["references"]
    (publication,) = _json(checkout / "codemeta.json")["referencePublication"]
    assert publication["name"] == paper["title"]
    people = [(one["givenName"], one["familyName"]) for one in publication["author"]]
    assert people == [(one["given-names"], one["family-names"]) for one in paper["authors"]]
    related = {one["identifier"] for one in _json(checkout / ".zenodo.json")["related_identifiers"]}
    assert related == {reference["doi"] for reference in others}


def test_citation_file_has_what_the_format_requires(cited: dict[str, Any]) -> None:
    assert {"cff-version", "message", "title", "authors", "type", "abstract", "keywords", "license"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    for reference in cited["references"]:
        assert {"type", "title", "authors"} <= set(reference)


def test_pre_commit_runs_ruff_and_nbstripout_of_the_lock(checkout: Path) -> None:
    (repository,) = yaml.safe_load((checkout / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "nbstripout"}
    for hook in hooks.values():
        program = hook["entry"].split()[0]
        assert hook["additional_dependencies"] == [f"{program}=={_locked(checkout, program)}"]
        assert version(program), f"{program} is in the lock, so the environment has it"


def test_dockerfile_installs_the_lock_with_hashes_on_the_python_of_the_reference(checkout: Path) -> None:
    text = (checkout / "Dockerfile").read_text("utf-8")
    (image, version) = re.findall(r"(?m)^FROM (\w+):(\d+\.\d+)-[\w-]+$", text)[0]
    assert image == "python"
    assert reference_results.origin()["versions"]["python"].startswith(f"{version}.")
    assert re.search(r"pip install .*--require-hashes -r requirements\.lock", text)
    copied = [word for line in re.findall(r"(?m)^COPY (.+)$", text) for word in line.split()[:-1]]
    assert copied
    assert all((checkout / name).exists() for name in copied)
    program = shutil.which("make")
    targets = re.findall(r"(?m)heshare make ([a-z ]+)$", text)[0].split()
    if program is not None:
        done = subprocess.run([program, "-n", *targets], cwd=checkout, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_editable_installation_is_the_same_everywhere(checkout: Path) -> None:
    """The Makefile, the Dockerfile and the development container install the package in the same way."""
    container = _json(checkout / ".devcontainer" / "devcontainer.json")
    assert (checkout / ".devcontainer" / container["build"]["dockerfile"]).resolve() == checkout / "Dockerfile"
    flags = {"--no-index", "--no-deps", "--no-build-isolation", "-e", "."}
    assert flags <= set(shlex.split(container["postCreateCommand"]))
    for name in ("Makefile", "Dockerfile"):
        text = (checkout / name).read_text("utf-8")
        assert re.search(r"--no-index --no-deps --no-build-isolation -e \.", text), name
    python = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    (venv,) = re.findall(r"VIRTUAL_ENV=(\S+)", (checkout / "Dockerfile").read_text("utf-8"))
    assert python == f"{venv}/bin/python"


def test_workflow_calls_the_script_of_continuous_integration(checkout: Path) -> None:
    workflow = yaml.safe_load((checkout / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    steps = workflow["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert (checkout / ".ci" / "run").stat().st_mode & 0o111
    assert all("@v" in step["uses"] for step in steps if "uses" in step)
    assert workflow["permissions"] == {"contents": "read"}
    wanted = next(step["with"]["python-version"] for step in steps if "with" in step)
    assert workflow["jobs"]["test"]["env"]["PYTHON"] == f"python{wanted}"
