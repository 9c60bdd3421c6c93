"""`heshare live` without a GPU: one line of error, exit code 2, and no results."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from heshare.cli import app

RUN = CliRunner()


@pytest.fixture
def without_gpu(monkeypatch):
    import pynvml

    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)


def test_no_gpu(without_gpu, tmp_path):
    """Without a GPU `live` stops with one line and writes nothing."""
    result = RUN.invoke(app, ["live", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "NVIDIA's driver" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"), [(["--policy", "no-policy"], "no-policy"), (["--budget", "soon"], "90s")]
)
def test_wrong_options(tmp_path, words, message):
    """Unknown policies and times are refused before anything is done."""
    result = RUN.invoke(app, ["live", "--work", str(tmp_path / "work"), *words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
