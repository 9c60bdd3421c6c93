"""Smoke run of the notebooks, whose outputs many tests read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from heshare.shared.files import root

READS = "reads.txt"
"""The log of `support/audit/sitecustomize.py`, beside the outputs of a smoke run."""


def smoke(out: Path, seed: str) -> Path:
    """Run all notebooks and the claims, in processes of their own with that hash seed."""
    audit = os.pathsep.join(filter(None, [str(root() / "tests/support/audit"), os.environ.get("PYTHONPATH")]))
    reads = {"PYTHONPATH": audit, "READS_LOG": str(out.parent / READS), "READS_ROOT": str(root())}
    environment = {**os.environ, **reads, "PYTHONHASHSEED": seed}
    words = ["notebook", "run", "--all", "--profile", "smoke", "--jobs", "2", "--page"]
    done = subprocess.run(
        [sys.executable, "-m", "heshare", *words, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=out.parent,
    )
    assert done.returncode == 0, done.stderr
    return out
