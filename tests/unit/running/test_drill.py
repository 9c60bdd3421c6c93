"""Executors killed at random moments, in processes of their own: the machine is as it was, every job counts once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from heshare.files import PACKAGE
from heshare.testing.fakenvml import compiler


def drill(kills, seed):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    done = subprocess.run(
        [sys.executable, "-m", "heshare.testing.drill", "--kills", str(kills), "--seed", str(seed)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    return json.loads(done.stdout)


def check(told, kills):
    assert told["faults"] == []
    assert told["kills"] == told["restored"] == kills
    assert (told["lost"], told["twice"]) == (0, 0)
    assert told["runs"] >= 1


def test_a_few_kills():
    check(drill(3, 3), 3)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HESHARE_SLOW"), reason="ten minutes: set HESHARE_SLOW=1")
def test_two_hundred_kills():
    check(drill(200, 7), 200)
