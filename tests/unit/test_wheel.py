"""The built wheel and the source archive: in a fresh environment, without the checkout, every command works."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

COMMANDS = (
    "--version",
    "estimate V100 resnet50:16@50 vgg19:8@50",
    "compare --tasks 2 --cluster 1xT4 --seeds 1 --policy random --policy sjf",
    "plan --tasks 2 --cluster 1xT4",
    "run --tasks 2 --cluster 1xT4 --policy morak",
    "doctor",
)
LIMIT_BYTES = 2_000_000
EXTRAS = ("notebooks", "figures")

Heshare = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def archives(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=checkout, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(archives: Path) -> Path:
    (path,) = archives.glob("*.whl")
    return path


def required(name: str) -> set[str]:
    """The installed distributions that one needs, itself among them; an error where one of them is not installed."""
    found, waiting = set(), [name]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            needed = map(Requirement, metadata.requires(name) or ())
            waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def link(names: Iterable[str], packages: Path) -> None:
    """Link what distributions have installed here into another environment."""
    for name in names:
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an environment with the wheel, the dependencies that it declares, and nothing else.

    These are the ones of this environment, by links.
    """
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--disable-pip-version-check", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (own,) = metadata.distributions(path=[str(packages)])
    needed = [each for each in map(Requirement, own.requires or ()) if each.marker is None]
    assert len(needed) > 10
    link(set().union(*(required(each.name) for each in needed)), packages)
    return packages


@pytest.fixture(scope="module")
def python(packages: Path) -> Path:
    return packages.parents[2] / "bin" / "python"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def program(python: Path, home: Path, tmp_path: Path) -> Heshare:
    """Run a program of the environment, as a user without a checkout would, in an empty folder."""
    (tmp_path / "elsewhere").mkdir()

    def start(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}
        return subprocess.run(
            [str(python.parent / words[0]), *words[1:]],
            cwd=tmp_path / "elsewhere",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return start


def test_wheel(wheel: Path) -> None:
    """The wheel has types and data, and is small."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"heshare/py.typed", "heshare/data/gpus.csv", "heshare/data/profiles/emulated/T4/profile.csv"} <= names
    assert {f"heshare/paper/page/templates/{name}" for name in ("index.html.j2", "paper_sentences.yaml")} <= names
    assert not [
        name for name in names if name.startswith(("data/", "tests/", "heshare/data/live", "heshare/data/gavel"))
    ]
    assert wheel.stat().st_size < LIMIT_BYTES


def test_source_archive(archives: Path) -> None:
    """The source archive has everything that make needs."""
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"Makefile", "requirements.lock", "data", "heshare", "notebooks", "tests"} <= tops


def test_commands(program: Heshare, home: Path, tmp_path: Path) -> None:
    """Commands run from the wheel alone."""
    for command in COMMANDS:
        done = program("heshare", *command.split())
        allowed = (0, 1) if command == "doctor" else (0,)  # 1 where there is no GPU
        assert done.returncode in allowed, (command, done.stderr)
        assert done.stdout, command
    assert len(list((home / ".cache" / "heshare").glob("trees-0-*.pickle"))) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == [], "nothing was written to the current folder"


def test_library(program: Heshare) -> None:
    """The library runs from the wheel without Jupyter."""
    code = (
        "import json, sys, heshare as hs\n"
        "done = hs.run(hs.task_set(4, seed=0), '1xT4,1xA100', 'morak', seed=0)\n"
        "estimate = hs.estimate('V100', ['resnet50:16@50'])\n"
        "print(json.dumps([len(done.tasks), estimate.power_w, hs.__file__, sorted(sys.modules)]))"
    )
    done = program("python", "-c", code)
    assert done.returncode == 0, done.stderr
    tasks, power_w, file, modules = json.loads(done.stdout)
    assert tasks == 4
    assert power_w > 0
    assert "site-packages" in file
    assert not {"IPython", "ipykernel", "jupyterlab", "nbformat", "papermill", "distributed"} & set(modules)


def test_missing_parts(program: Heshare, checkout: Path) -> None:
    """Commands that need a checkout or an extra name it."""
    done = program("heshare", "calibrate")
    assert done.returncode == 2
    assert "a clone of its repository" in done.stderr
    assert "Traceback" not in done.stderr

    done = program("heshare", "notebook", "run", "01", HESHARE_ROOT=str(checkout))
    assert done.returncode == 2
    assert "pip install 'heshare[notebooks]'" in done.stderr


def test_own_record(program: Heshare, packages: Path, tmp_path: Path) -> None:
    """From the wheel a card is recorded in any folder, and the paper's figures are drawn from that record."""
    (own,) = (each for each in metadata.distributions(path=[str(packages)]) if each.name == "heshare")
    extras = [each for each in map(Requirement, own.requires or ()) if each.marker is not None]
    needed = [each.name for each in extras if any(each.marker.evaluate({"extra": name}) for name in EXTRAS)]
    (tmp_path / "extras").mkdir()
    link(set().union(*map(required, {name for name in needed if name != "heshare"})), tmp_path / "extras")

    done = program("heshare", "profile", "--device", "emulated:L4", "--out", "records")
    assert done.returncode == 0, done.stderr
    words = ("notebook", "run", "01", "06", "--profile", "smoke", "-p", "source=recorded:records/L4", "--page")
    done = program("heshare", *words, PYTHONPATH=str(tmp_path / "extras"))
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "elsewhere" / "build" / "smoke" / "recorded-L4").iterdir()}
    assert {"fig01_energy.png", "fig03_clock.png", "fig10_single_jct.csv", "claims.csv", "index.html"} <= written
