"""The stand-in library and the stand-in MPS daemon, for the tests of live devices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from heshare.testing import fakemps
from heshare.testing.fakenvml import FakeNvml, build, compiler


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    return build(tmp_path_factory.mktemp("fakenvml"))


@pytest.fixture
def fake(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """The stand-in in the place of the driver's library, with its state as at first; notes go to a private folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one = FakeNvml(library, pynvml)
    one.reset()
    one.set("open", 0)  # a test before may have made the end of NVML fail
    yield one
    one.close()


@pytest.fixture
def mps_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that puts a stand-in MPS daemon of some mode on the PATH."""

    def use(mode: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return fakemps.install(folder, mode)

    return use
