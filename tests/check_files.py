"""Checks files against each other: citation, environment, lock, container, hooks; colours typed in the code; conflicts.

`make lint` and the pre-commit hook run it; it prints a line for each fault and then exits with 1.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[1]
BUILD_BACKEND = ("hatchling", "editables", "pathspec", "pluggy", "trove-classifiers", "packaging")
HOOKS = ("ruff-check", "ruff-format", "nbstripout", "check-files")
EDITABLE = ("--no-index", "--no-deps", "--no-build-isolation", "-e", ".")
NAMED = re.compile(r"""["']?(?:color|colou?r|ecolor|facecolor|edgecolor|mfc|mec)["']?\s*[=:]\s*["']([a-z]\w+)["']""")
HEX = re.compile(r"#[0-9A-Fa-f]{3}(?:[0-9A-Fa-f]{3})?\b")


def text(name: str) -> str:
    return (CHECKOUT / name).read_text("utf-8")


def by_name(lines: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


def pins() -> list[tuple[Requirement, int]]:
    """Each pinned requirement of the lock with the number of its hashes."""
    entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n", "", text("requirements.lock")).strip())
    return [(Requirement(entry.partition("\\")[0]), entry.count("--hash=sha256:")) for entry in entries]


def citation(project: dict[str, Any]) -> Iterator[str]:
    """The citation, the archive's metadata and the package name the same things."""
    cited, zenodo, codemeta = (
        yaml.safe_load(text("CITATION.cff")),
        *map(json.loads, map(text, (".zenodo.json", "codemeta.json"))),
    )
    version = re.findall(r'__version__ = "(.+)"', text("heshare/shared/version.py"))
    license_of_codemeta = codemeta["license"].rpartition("/")[2]
    (publication,) = codemeta["referencePublication"]
    paper, *others = cited["references"]
    alike = {
        "version": (*version, cited["version"], zenodo["version"], codemeta["version"]),
        "license": (project["license"], cited["license"], zenodo["license"], license_of_codemeta),
        "keywords": (project["keywords"], cited["keywords"], zenodo["keywords"], codemeta["keywords"]),
        "title": (cited["title"], zenodo["title"]),
        "name": (project["name"], codemeta["name"]),
        "description": (cited["abstract"], zenodo["description"], codemeta["description"]),
        "authors": tuple(
            [one["name"] for one in each] for each in (cited["authors"], zenodo["creators"], codemeta["author"])
        ),
        "dependencies": (project["dependencies"], codemeta["softwareRequirements"]),
        "title of the paper": (paper["title"], publication["name"]),
        "authors of the paper": (
            [(one["given-names"], one["family-names"]) for one in paper["authors"]],
            [(one["givenName"], one["familyName"]) for one in publication["author"]],
        ),
        "DOIs": (
            sorted(reference["doi"] for reference in others),
            sorted({one["identifier"] for one in zenodo["related_identifiers"]}),
        ),
    }
    for what, values in alike.items():
        if any(value != values[0] for value in values):
            yield f"CITATION.cff, .zenodo.json, codemeta.json and pyproject.toml: {what} differ: {values}"
    if not cited["abstract"].startswith(project["description"]):
        yield "CITATION.cff: the abstract does not begin with the description of pyproject.toml"
    if not codemeta["runtimePlatform"].endswith(project["requires-python"]):
        yield "codemeta.json: another Python than in pyproject.toml"


def environment(project: dict[str, Any]) -> Iterator[str]:
    """`environment.yml`, `requirements.lock` and `pyproject.toml` name the same packages with bounds that agree."""
    extras = project["optional-dependencies"]
    named = [line for extra in ("figures", "notebooks", "dev") for line in extras[extra]]
    wanted = by_name([*project["dependencies"], *named])
    if wanted.pop("heshare").extras != {"figures"}:
        yield "pyproject.toml: notebooks do not come with the extra figures"
    live, locked = by_name(extras["live"]), pins()
    conda = yaml.safe_load(text("environment.yml"))["dependencies"]
    lines = [line for each in conda for line in (each["pip"] if isinstance(each, dict) else [each]) if line != "-e ."]
    listed = by_name(lines)
    if str(listed.pop("python").specifier) != project["requires-python"] or not listed.pop("pip"):
        yield "environment.yml: another Python than in pyproject.toml"
    for name in sorted({*listed, *wanted}):
        bounds = [str(each[name].specifier) if name in each else "nothing" for each in (listed, wanted)]
        if bounds[0] != bounds[1]:
            yield f"environment.yml: {name} has {bounds[0]}, in pyproject.toml {bounds[1]}"
    for name, requirement in {**wanted, **live}.items():
        if not any(bound.operator == ">=" for bound in requirement.specifier):
            yield f"pyproject.toml: {name} has no lower bound"
    versions: dict[str, list[str]] = {}
    for pin, hashes in locked:
        versions.setdefault(canonicalize_name(pin.name), []).extend(bound.version for bound in pin.specifier)
        if not hashes:
            yield f"requirements.lock: {pin.name} has no hash"
    for name in (*wanted, *BUILD_BACKEND):
        if name not in versions or not all(
            wanted[name].specifier.contains(v) for v in versions[name] if name in wanted
        ):
            yield f"requirements.lock: {name} is missing, or out of its bounds; run make lock"
    for name in sorted({*live, "pynvml"} & {*versions, *wanted, *listed}):
        yield f"{name} belongs to the extra `live` alone (pynvml: use nvidia-ml-py)"
    if re.search(
        r"(?i)https?:|://|--index|--extra-index|--find-links|--trusted-host| @ |/\w+/", text("requirements.lock")
    ):
        yield "requirements.lock: an address"


def programs() -> Iterator[str]:
    """Hooks, container and continuous integration use the versions of the lock, and install in one way."""
    (repository,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    if [hook["id"] for hook in repository["hooks"]] != list(HOOKS):
        yield f".pre-commit-config.yaml: other hooks than {', '.join(HOOKS)}"
    exact = {canonicalize_name(pin.name): str(pin.specifier) for pin, _ in pins()}
    for hook in repository["hooks"]:
        for line in hook["additional_dependencies"]:
            name, _, version = line.partition("==")
            if exact.get(canonicalize_name(name)) != f"=={version}":
                yield f".pre-commit-config.yaml: {line}, in the lock {exact.get(canonicalize_name(name))}"
    docker, container = text("Dockerfile"), json.loads(text(".devcontainer/devcontainer.json"))
    python = ".".join(json.loads(text("reference/run.json"))["versions"]["python"].split(".")[:2])
    if not re.search(rf"(?m)^FROM python:{re.escape(python)}-", docker):
        yield f"Dockerfile: another Python than {python} of reference/run.json"
    if "--require-hashes -r requirements.lock" not in docker:
        yield "Dockerfile: does not install requirements.lock with hashes"
    for name in [word for line in re.findall(r"(?m)^COPY (.+)$", docker) for word in line.split()[:-1]]:
        if not (CHECKOUT / name).exists():
            yield f"Dockerfile: no {name}"
    if not {*EDITABLE} <= {*shlex.split(container["postCreateCommand"])}:
        yield ".devcontainer/devcontainer.json: the package is not installed as in the Makefile"
    for name in ("Makefile", "Dockerfile"):
        if " ".join(EDITABLE) not in text(name):
            yield f"{name}: the package is not installed with {' '.join(EDITABLE)}"
    steps = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]["test"]["steps"]
    if [step["run"] for step in steps if "run" in step] != [".ci/run"]:
        yield ".github/workflows/ci.yml: other steps than .ci/run"


def colours() -> Iterator[str]:
    """Colours are typed in the registry of styles only."""
    for path in sorted([*(CHECKOUT / "heshare").rglob("*.py"), *(CHECKOUT / "notebooks").glob("**/*.ipynb")]):
        if path.name == "series_styles.py" or ".ipynb_checkpoints" in path.parts:
            continue
        code = path.read_text("utf-8")
        if path.suffix == ".ipynb":
            cells = json.loads(code)["cells"]
            code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        found = {*HEX.findall(code), *NAMED.findall(code)} - {"white", "black", "none", "#ffffff", "#000000"}
        if found:
            yield f"{path.relative_to(CHECKOUT)}: colours {', '.join(sorted(found))}; type them in series_styles.py"


def conflicts() -> Iterator[str]:
    """No file has the markers of a merge that was not finished."""
    for path in sorted(CHECKOUT.glob("*.md")) + sorted((CHECKOUT / "docs").rglob("*.md")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if line.startswith(("<<<<<<< ", ">>>>>>> ")):
                yield f"{path.relative_to(CHECKOUT)}, line {number}: a conflict of a merge"


def main() -> int:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    faults = [*citation(project), *environment(project), *programs(), *colours(), *conflicts()]
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
