"""Version of the code of a result: every module that computes it counts, modules that only draw do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heshare.shared import code_version as module
from heshare.shared.code_version import code_version, import_closure
from heshare.shared.errors import InputError

SWEEP = "heshare.lab.sweeps.sweep"
GRID = """
from heshare.lab.limits import PowerLimit
from heshare.lab.sweeps.grid import Grid
from heshare.lab.sweeps.sweep import sweep
POLICIES = ("heshare:trade-off", "heshare+:trade-off", "marginal", "miso", "fikit", "mu-serve", "fifo-packed", "srtf")
sweep(Grid(POLICIES, ("1xT4,1xA100",), (3,), seeds=1, power_limit=PowerLimit.parse(400.0)))
"""


def run_python(program: str, folder: Path, checkout: Path) -> str:
    """Run a program over a package in `folder`, with this checkout's data, and return what it prints."""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "HESHARE_ROOT": str(checkout), "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_every_module_that_a_cell_loads_is_in_the_closure(checkout: Path) -> None:
    program = f"{GRID}\nimport sys\nprint(*[name for name in sys.modules if name.startswith('heshare')])"
    loaded = set(run_python(program, checkout, checkout).split())
    policies = {name for name in loaded if name.startswith(("heshare.lab.systems.", "heshare.lab.plus."))}
    sources, libraries = import_closure(SWEEP, *policies)
    assert loaded <= set(sources)
    assert {"numpy", "scipy", "pandas", "sklearn", "numba"} <= libraries


@pytest.mark.slow
def test_a_change_in_each_room_that_a_cell_reaches_changes_its_version(tmp_path: Path, checkout: Path) -> None:
    shutil.copytree(checkout / "heshare", tmp_path / "heshare", ignore=shutil.ignore_patterns("__pycache__"))
    program = f"""
from heshare.shared.code_version import code_version, import_closure
sources, _ = import_closure({SWEEP!r}, "heshare.lab.systems.miso.policy", "heshare.lab.systems.fikit.policy")
version = code_version({SWEEP!r}, "heshare.lab.systems.miso.policy", "heshare.lab.systems.fikit.policy")
rooms = {{}}
for name in sorted(sources):
    rooms.setdefault(name.rpartition(".")[0], sources[name])
for room, file in rooms.items():
    file.write_bytes(file.read_bytes() + b"# another line")
    code_version.cache_clear()
    after = code_version({SWEEP!r}, "heshare.lab.systems.miso.policy", "heshare.lab.systems.fikit.policy")
    print(room, after != version, file)
    version = after
"""
    rows = [line.split() for line in run_python(program, tmp_path, checkout).splitlines() if not line.startswith(" ")]
    rooms = {room for room, changed, _ in rows if changed == "True"}
    assert len(rooms) == len(rows)
    assert all(Path(file).is_relative_to(tmp_path) for _, _, file in rows)
    stages = {f"heshare.{name}" for name in ("world", "devices", "profiles", "prediction", "scheduling", "policies")}
    assert {*stages, "heshare.running", "heshare.lab", "heshare.lab.systems.fikit", "heshare.shared"} <= rooms


def test_modules_that_only_draw_are_not_in_the_closure() -> None:
    sources, _ = import_closure(SWEEP)
    assert not [name for name in sources if name.startswith(("heshare.paper", "heshare.cli", "heshare.api"))]


@pytest.mark.slow
def test_the_version_depends_on_data_and_libraries(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def current() -> str:
        code_version.cache_clear()
        module._data_version.cache_clear()
        return code_version("heshare.world.task")

    shutil.copytree(checkout / "data", tmp_path / "data")
    with monkeypatch.context() as patch:
        seen = [current()]
        patch.setenv("HESHARE_ROOT", str(tmp_path))
        assert current() == seen[-1], "the same data elsewhere"
        (tmp_path / "data/live/more.csv").write_text("")
        assert current() == seen[-1], "nothing is computed from results of live comparisons"
        (tmp_path / "data/gpus.csv").write_text("")
        seen.append(current())
        patch.setattr(module, "library_versions", lambda libraries: [("numpy", "0")])
        seen.append(current())
    assert len(set(seen)) == 3
    current()


def test_the_closure_of_a_module_outside_follows_its_own_package_and_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/__init__.py").write_text("")
    (tmp_path / "elsewhere/policy.py").write_text(
        "from . import rates\nimport beside_it\nimport yaml\nfrom heshare.world import task\n"
    )
    (tmp_path / "elsewhere/rates.py").write_text("")
    (tmp_path / "beside_it.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    sources, libraries = import_closure("elsewhere.policy")
    own = {"elsewhere", "elsewhere.policy", "elsewhere.rates", "beside_it"}
    assert {name for name in sources if not name.startswith("heshare")} == own
    assert "heshare.world.task" in sources
    assert "yaml" in libraries


def test_a_module_without_a_file_is_refused() -> None:
    with pytest.raises(InputError, match="imported from a file"):
        import_closure("no_such_module")
