"""Smoke run of the notebooks, whose outputs many tests read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def smoke(out: Path, seed: str, *, group: str = "all", source: str | None = None) -> Path:
    """Run a group of notebooks, the claims and the page, in processes of their own with that hash seed."""
    words = ["notebook", "run", "--group", group, "--profile", "smoke", "--jobs", "2", "--page"]
    words += [] if source is None else ["-p", f"source={source}"]
    done = subprocess.run(
        [sys.executable, "-m", "heshare", *words, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=out.parent,
    )
    assert done.returncode == 0, done.stderr
    return out
