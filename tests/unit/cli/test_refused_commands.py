"""Commands that are refused: exit code 2, one line on stderr, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app

DIGITS = "9" * 4400
JOBS = "jobs:\n  - {name: a, command: [sh, -c, 'true'], like: medium, expected_time_s: 5}\n"
QUITS = """\
import sys
from heshare.policies.random_placement import Random

class Mine(Random):
    def decide(self, event, view):
        sys.exit(0)
"""
REFUSED = [
    # Options that exclude or need each other
    ("compare --grid nowhere.yaml", "nowhere.yaml"),
    ("compare --grid nowhere.yaml --load low", "grid and load"),
    ("run --tasks 2 --policy random --policy morak", "random and morak"),
    ("plan --tasks 2 --bound", "--improved"),
    ("plan --tasks 2 --budget 1", "--improved"),
    ("plan --tasks 2 --improved --budget=soon", "90s"),
    ("plan --tasks 2 --arrivals miso", "heshare:trade-off"),
    ("notebook run --out out", "--group"),
    ("notebook run 99 --out out", "04_comparison"),
    ("notebook claims --out out", "claims/*.json"),
    ("profile --device T4 --out out", "emulated:"),
    ("profile --kernels only --device emulated:A100 --out out", "emulated:A100"),
    ("profile --kernels only --device nvml:0 --workload resnet999 --out out", "resnet999"),
    ("calibrate --noise-of H100", "without --profiles"),
    ("calibrate --out out", "without --profiles"),
    ("live --work out --policy no-policy", "no-policy"),
    ("live --work out --budget soon", "90s"),
    ("live --work out --time soon", "argument time"),
    ("jobs run --devices nvml", "--resume"),
    ("jobs run jobs.yaml --resume x", "--resume"),
    ("jobs run jobs.yaml --devices cuda", "cuda"),
    ("jobs run jobs.yaml --devices emulated", "heshare run --tasks"),
    ("jobs run none.yaml", "no such file"),
    ("jobs run --resume nowhere", "journal"),
    ("jobs run --resume nowhere --power-limit 500", "--power-limit"),
    # Modules of the user's own
    ("run --policy broken:Mine", "broken.py, line 1"),
    ("compare --policy ends:Mine --tasks 2 --cluster 1xT4", "__main__"),
    ("run --policy quits:Mine --tasks 2 --cluster 1xT4", "quits.py, line 6, in decide"),
    # Values
    ("run --tasks 2 --cluster 1xT4 --arrivals exponential@80", "at most 10"),
    ("run --tasks venus:5@80 --cluster 1xV100 --policy fifo", "at most 10"),
    ("compare --policy sjf --policy sjf --tasks 2", "sjf twice"),
    ("estimate V10 resnet50:16", "A100"),
    ("plan --trace nowhere.csv", "nowhere.csv"),
    ("run --policy fifo --cluster 16xV100 --tasks venus:", "venus"),
    ("run --policy fifo --cluster 16xV100 --tasks venus:3@half", "half"),
    ("run --policy fifo --cluster 1xT4,1xA100 --tasks 4 --power-limit 95", "when one A100 is busy"),
    ("compare --policy fifo --cluster 1xT4,1xA100 --tasks 4 --power-limit 50", "when all of them idle"),
    # Outputs that cannot be written
    ("run --tasks 2 --cluster 1xT4 --out file", "--out"),
    ("compare --tasks 2 --cluster 1xT4 --cells file", "--cells"),
    ("profile --device emulated:T4 --out file", "--out"),
    ("notebook run 01 --out file/x", "--out"),
    ("live --work file", "--work"),
    # Input that no user would type
    (f"run --tasks {DIGITS}", "found"),
    (f"run --cluster {DIGITS}xT4", "found"),
    (f"estimate A100 resnet50:{DIGITS}", "found"),
    ("run --tasks 10000000000", "found"),
    ("run --tasks \u00b2", "found"),
    ("run --tasks=--5", "found"),
    ("run --tasks /dev/zero", "/dev/zero"),
    ("run --tasks 3 --trace /dev/zero", "/dev/zero"),
    ("run --plan /dev/zero", "/dev/zero"),
    ("compare --grid /dev/zero", "/dev/zero"),
    ("run --cluster 100000000xT4", "found"),
    ("profile --device emulated:T4 --dry-run --budget 99999999999999999999", "720h"),
]


@pytest.mark.parametrize(("command", "found"), REFUSED, ids=[command[:60] for command, _ in REFUSED])
def test_refused(command: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong command ends with exit code 2 and one line that names what was found or expected."""
    (tmp_path / "file").touch()
    (tmp_path / "jobs.yaml").write_text(JOBS)
    (tmp_path / "broken.py").write_text("def\n")
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "quits.py").write_text(QUITS)
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(app, command.split(" "))

    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("heshare: ")
    assert done.stderr.count("\n") == 1
    assert found in done.stderr
    left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"file", "jobs.yaml", "broken.py", "ends.py", "quits.py"}


def test_live_without_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU `live` stops with one line and writes nothing."""
    import pynvml

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    words = ["live", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "make live STAND_IN=H100" in done.stderr
    assert not list(tmp_path.iterdir())
