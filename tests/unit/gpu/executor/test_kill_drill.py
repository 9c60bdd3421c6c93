"""Executors killed at random moments: the machine is restored, and every job counts once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.fakenvml import compiler


def run_drill(kills, seed):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    done = subprocess.run(
        [sys.executable, "-m", "support.kill_drill", "--kills", str(kills), "--seed", str(seed)],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    return json.loads(done.stdout)


def assert_all_restored(result, kills):
    assert result["faults"] == []
    assert result["kills"] == result["restored"] == kills
    assert (result["lost"], result["twice"]) == (0, 0)
    assert result["runs"] >= 1


@pytest.mark.slow
def test_an_executor_killed_3_times_is_restored_and_counts_each_job_once():
    assert_all_restored(run_drill(3, 3), 3)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HESHARE_SLOW"), reason="ten minutes: set HESHARE_SLOW=1")
def test_an_executor_killed_200_times_is_restored_and_counts_each_job_once():
    assert_all_restored(run_drill(200, 7), 200)
