"""`heshare live` where there is no GPU: one sentence, exit code 2, and nothing made up."""

from __future__ import annotations

import pynvml
import pytest
from typer.testing import CliRunner

from heshare.cli import app

RUN = CliRunner()


@pytest.fixture
def without_gpu(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)


def test_without_a_gpu_it_stops_and_says_so(without_gpu, tmp_path):
    done = RUN.invoke(app, ["live", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "NVIDIA's driver" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"), [(["--policy", "nobody"], "nobody"), (["--budget", "soon"], "such as 90s, 15m or 2h")]
)
def test_what_it_does_not_know_is_said_before_anything_is_done(tmp_path, words, told):
    done = RUN.invoke(app, ["live", "--work", str(tmp_path / "work"), *words])
    assert done.exit_code == 2
    assert told in done.stderr
    assert not list(tmp_path.iterdir())
