"""Builds the site of a checkout with a few cards and workloads on the page of estimates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CARDS = ("T4", "A100")
WORKLOADS = ("resnet50", "bert_large", "llama3_8b", "eaco_vgg16-train")


def build_site(checkout: Path, out: Path, **environment: str) -> None:
    """Build the site; a warning of Sphinx fails it."""
    command = [sys.executable, "docs/site/build.py", str(out), *CARDS, *WORKLOADS]
    variables = {**os.environ, **environment}
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
