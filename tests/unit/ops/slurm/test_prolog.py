"""The prolog of docs/slurm, as slurmd calls it: what a user writes into a comment drains no node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash")


def prolog(checkout: Path, folder: Path, **variables: str) -> tuple[int, str]:
    """The exit code and what it says; its folder and programs are private ones, without nvidia-smi and MPS."""
    script = folder / "prolog.sh"
    text = (checkout / "docs/slurm/prolog.sh").read_text("utf-8")
    script.write_text(text.replace("STATE=/run/", f"STATE={folder}/run/").replace("logger", ":"), encoding="utf-8")
    words = {"SLURM_JOB_ID": "7", **variables}
    done = subprocess.run([str(BASH), str(script)], env=words, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stderr


@pytest.mark.parametrize("gpus", ["", "0,1", "0"])
@pytest.mark.parametrize("comment", ["heshare mps_pct=50", "heshare like=a:1 iterations=1 gpu=n/b mps_pct=50 sm_mhz=9"])
def test_a_comment_drains_no_node_whatever_it_asks_for(checkout: Path, tmp_path: Path, gpus: str, comment: str) -> None:
    code, said = prolog(checkout, tmp_path, SLURM_JOB_COMMENT=comment, **({"SLURM_JOB_GPUS": gpus} if gpus else {}))
    assert (code, "heshare prolog, job 7: " in said) == (0, True), said


def test_a_share_of_slurms_own_that_nothing_would_enforce_drains_the_node(checkout: Path, tmp_path: Path) -> None:
    code, said = prolog(checkout, tmp_path, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25", SLURM_JOB_GPUS="0")
    assert (code, "GPU 0 does not answer" in said) == (1, True)
    assert prolog(checkout, tmp_path, SLURM_JOB_GPUS="0,1") == (0, "")
