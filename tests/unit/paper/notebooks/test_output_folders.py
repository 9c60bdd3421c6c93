"""Where outputs go: to `figures/` only what the runner makes of the commit's notebooks with the paper's parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.paper.notebooks import output_folders, parameters
from heshare.paper.provenance import commit
from heshare.paper.provenance.run_record import RunRecord
from heshare.paper.studies import sources
from heshare.shared.errors import InputError
from heshare.shared.files import root

MINE = root() / "build/mine/04_comparison"


def record(profile: str = "paper", *, edited: bool = False, **changed: object) -> RunRecord:
    return RunRecord("04_comparison", profile, changed, edited)


@pytest.fixture(params=[None, "0" * 64], ids=["the commit's package", "a changed package"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    changed: str | None = request.param
    monkeypatch.setattr(commit, "git_commit", lambda: "c0ffee")
    monkeypatch.setattr(commit, "package_sha256", lambda: changed)
    return changed


def test_chosen_folder(package: str | None) -> None:
    """Without a folder, what is not the paper's goes to `build/mine`."""
    assert output_folders.choose(record(), None) == (root() / "figures" if package is None else MINE)
    assert output_folders.choose(record(tasks=8), None) == MINE
    assert output_folders.choose(record(edited=True), None) == MINE
    assert output_folders.choose(record("smoke", tasks=3), None) == MINE
    assert output_folders.choose(record("smoke", edited=True), None) == root() / "build/smoke"


@pytest.mark.parametrize("folder", [root() / "figures", root() / "build/../figures", root() / "figures/mine"])
def test_refused_folder(package: str | None, folder: Path) -> None:
    """`figures/` is refused for what is not the paper's."""
    assert output_folders.choose(record(), folder) == folder, "a changed package is the author at work"
    for one, words in ((record(tasks=8), "tasks = 8"), (record(edited=True), "code"), (record("smoke"), "smoke")):
        with pytest.raises(InputError, match=words):
            output_folders.choose(one, folder)
    assert output_folders.choose(record(tasks=8), root() / "build/x") == root() / "build/x"


def test_folder_of_source(package: str | None) -> None:
    """Another source has a folder of its own in every folder of outputs, also in `figures/`."""
    h100 = sources.read("recorded:H100")
    assert output_folders.choose(record(), root() / "figures", h100) == root() / "figures/recorded-H100"
    assert output_folders.choose(record(), root() / "figures", sources.read("emulated")) == root() / "figures"


@pytest.mark.slow
def test_setup_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """Set up by hand, a notebook writes to `build/mine`."""
    from heshare.paper.figures import style
    from heshare.paper.notebooks import notebook

    name = "02_system"
    values = dict(parameters.read(parameters.find([name])[0]).defaults)
    with style.using():
        ctx = notebook.setup(name, values, outputs=["x02z_own"])
    assert ctx.out == root() / "build/mine" / name
    assert (ctx.profile, ctx.run.by_hand, ctx.notebook.outputs) == ("custom", True, ("x02z_own",))
    assert f"build/mine/{name}/" in capsys.readouterr().out
    with pytest.raises(InputError, match="figures/"):
        notebook.setup(name, {**values, "out_dir": str(root() / "figures")}, outputs=[])
    with pytest.raises(InputError, match="seed"):
        notebook.setup(name, {key: value for key, value in values.items() if key != "seed"}, outputs=[])
