"""Dependencies, which pyproject.toml, environment.yml and requirements.lock name alike; and the Makefile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BUILD_BACKEND = ("hatchling", "editables", "pathspec", "pluggy", "trove-classifiers", "packaging")


@pytest.fixture(scope="module")
def project(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def requirements(project: dict[str, Any]) -> dict[str, Requirement]:
    extras = project["project"]["optional-dependencies"]
    lines = project["project"]["dependencies"] + extras["notebooks"] + extras["dev"]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


@pytest.fixture(scope="module")
def conda_dependencies(checkout: Path) -> list[str]:
    """Every dependency of environment.yml, those that pip installs included."""
    environment = yaml.safe_load((checkout / "environment.yml").read_text("utf-8"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    flat: list[str] = []
    for dependency in environment["dependencies"]:
        flat += dependency["pip"] if isinstance(dependency, dict) else [dependency]
    return flat


@pytest.fixture(scope="module")
def lock(checkout: Path) -> str:
    return (checkout / "requirements.lock").read_text("utf-8")


@pytest.fixture(scope="module")
def pins(lock: str) -> list[tuple[Requirement, int]]:
    """Each pinned requirement of the lock with the number of its hashes."""
    entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n", "", lock).strip())
    return [(Requirement(entry.partition("\\")[0]), entry.count("--hash=sha256:")) for entry in entries]


def test_environment_yml_and_pyproject_name_the_same_packages_with_the_same_bounds(
    project: dict[str, Any], requirements: dict[str, Requirement], conda_dependencies: list[str]
) -> None:
    assert "-e ." in conda_dependencies
    parsed = [Requirement(line) for line in conda_dependencies if line != "-e ."]
    listed = {canonicalize_name(requirement.name): requirement for requirement in parsed}
    assert str(listed.pop("python").specifier) == project["project"]["requires-python"]
    assert str(listed.pop("pip").specifier) == ""
    assert {name: str(requirement.specifier) for name, requirement in listed.items()} == {
        name: str(requirement.specifier) for name, requirement in requirements.items()
    }


def unbounded(requirements: dict[str, Requirement]) -> list[str]:
    """Return the names of requirements without a lower bound."""
    return [
        name
        for name, requirement in requirements.items()
        if not any(bound.operator == ">=" for bound in requirement.specifier)
    ]


def test_dependencies_have_lower_bounds(requirements: dict[str, Requirement]) -> None:
    assert not unbounded(requirements)


def test_lock_file_satisfies_every_bound(
    requirements: dict[str, Requirement], pins: list[tuple[Requirement, int]]
) -> None:
    pinned: dict[str, list[str]] = {}
    for pin, _ in pins:
        (exact,) = pin.specifier
        assert exact.operator == "=="
        pinned.setdefault(canonicalize_name(pin.name), []).append(exact.version)
    for name, requirement in requirements.items():
        assert pinned.get(name), f"{name} is not in the lock: run make lock"
        assert all(requirement.specifier.contains(version) for version in pinned[name])
    assert set(BUILD_BACKEND) <= set(pinned), "the build backend must come from the lock as well"


def test_pytorch_is_an_extra_that_nothing_else_pulls_in(
    project: dict[str, Any],
    requirements: dict[str, Requirement],
    conda_dependencies: list[str],
    pins: list[tuple[Requirement, int]],
) -> None:
    extra = map(Requirement, project["project"]["optional-dependencies"]["live"])
    live = {requirement.name: requirement for requirement in extra}
    assert set(live) == {"torch", "torchvision", "transformers"}
    assert not unbounded(live)
    assert not set(live) & (
        set(requirements) | {Requirement(line).name for line in conda_dependencies if line != "-e ."}
    )
    assert not set(live) & {canonicalize_name(pin.name) for pin, _ in pins}


def test_lock_file_has_hashes_for_every_pin_and_no_addresses(lock: str, pins: list[tuple[Requirement, int]]) -> None:
    assert len(pins) > 50
    assert not [pin.name for pin, hashes in pins if not hashes]
    assert not re.findall(r"(?i)https?:|://|--index|--extra-index|--find-links|--trusted-host| @ |/\w+/", lock)


def test_environment_has_not_the_package_pynvml(pins: list[tuple[Requirement, int]]) -> None:
    """`pynvml` on PyPI only redirects to nvidia-ml-py, and warns at every start of Python."""
    assert "pynvml" not in {canonicalize_name(pin.name) for pin, _ in pins}
    with pytest.raises(PackageNotFoundError):
        version("pynvml")


@pytest.fixture(scope="module")
def makefile(checkout: Path) -> str:
    return (checkout / "Makefile").read_text("utf-8")


def make(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    if program is None:
        pytest.skip("no make on this machine")
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [program, "--no-print-directory", *arguments],
        cwd=checkout,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_make_lists_every_target(checkout: Path, makefile: str) -> None:
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)$", makefile)
    done = make(checkout)
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"(?m)^  make ([a-z-]+) +\S", done.stdout)
    assert sorted(listed) == sorted(set(phony.split()) - {"FORCE"})
    assert {"help", "figures", "test", "smoke", "bench", "live", "calibrate", "lint", "lock", "clean"} <= set(listed)


def test_makefile_uses_nothing_newer_than_make_381(makefile: str) -> None:
    assert not re.search(r"&:|\$\(file |!=|::=|\.ONESHELL|\$\(let ", re.sub(r"(?m)^\t.*$", "", makefile))


def test_make_does_not_use_a_conda_environment_without_heshare(checkout: Path, tmp_path: Path) -> None:
    """Its Python cannot import heshare, so make falls back to .venv."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    done = make(checkout, "--dry-run", "--assume-old=.venv/.ready", "test", CONDA_PREFIX=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ".venv/bin/python -m pytest" in done.stdout
    assert str(tmp_path) not in done.stdout


def test_make_uses_an_active_environment_with_heshare(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    python.chmod(0o755)
    done = make(checkout, "--dry-run", "test", VIRTUAL_ENV=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f'"{python}" -m pytest' in done.stdout
    assert "-m venv" not in done.stdout


def test_make_without_a_python_reports_it(makefile: str, tmp_path: Path) -> None:
    """In a folder without .venv and with no Python on the path, make reports what is missing and builds nothing."""
    (tmp_path / "Makefile").write_text(makefile, encoding="utf-8")
    (tmp_path / "requirements.lock").write_text("", encoding="utf-8")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "rm"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = make(tmp_path, "test", PATH=f"{tools}") if shutil.which("make") else pytest.skip("no make")
    assert done.returncode == 2
    assert "found no Python 3.11 or later" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_citation_has_the_version_of_the_package(checkout: Path) -> None:
    import heshare

    cited = yaml.safe_load((checkout / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == heshare.__version__
    assert cited["license"] == "Apache-2.0"


def test_pages_are_a_dozen_and_short(checkout: Path) -> None:
    pages = sorted((checkout / "docs").glob("*.md"))
    assert len(pages) <= 12
    assert sum(len(page.read_text("utf-8").splitlines()) for page in pages) <= 1_780
