"""`heshare live` without a GPU: one line of error, exit code 2, and no results."""

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


def test_live_without_a_gpu_stops_with_an_error(without_gpu, tmp_path):
    result = RUN.invoke(app, ["live", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "NVIDIA's driver" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"), [(["--policy", "no-policy"], "no-policy"), (["--budget", "soon"], "such as 90s, 15m or 2h")]
)
def test_live_refuses_unknown_policies_and_times_before_anything_is_done(tmp_path, words, message):
    result = RUN.invoke(app, ["live", "--work", str(tmp_path / "work"), *words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
