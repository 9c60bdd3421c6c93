"""Parts of runs killed at random moments: the machine is restored, and every job counts once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.fakenvml import compiler


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kills"), [("executor", 2), ("both", 2), ("cleanup", 2), ("reader", 2), ("supervisor", 2), ("worker", 3)]
)
def test_kill_drill(kind, kills):
    """Whatever is killed, the machine is restored, and each job and each joule counts once."""
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    command = [sys.executable, "-m", "support.drills", kind, "--kills", str(kills), "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
