"""Parts of runs killed at random moments: the machine is restored, and every job counts once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.fakenvml import compiler


def run_drill(kind, kills, seed):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    done = subprocess.run(
        [sys.executable, "-m", "support.drills", "--one", kind, "--kills", str(kills), "--seed", str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd="/",
    )
    return json.loads(done.stdout)


def assert_all_restored(result, kills):
    assert result["faults"] == []
    assert result["kills"] == result["restored"] == kills
    assert (result["lost"], result["counted_twice"]) == (0, 0)
    assert result["runs"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kills"),
    [("executor", 2), ("both", 2), ("worker", 3), ("host", 2), ("clocks", 2), ("service", 2)],
)
def test_what_is_killed_is_restored_and_each_job_counts_once(kind, kills):
    assert_all_restored(run_drill(kind, kills, 3), kills)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HESHARE_SLOW"), reason="half an hour: set HESHARE_SLOW=1")
@pytest.mark.parametrize(
    ("kind", "kills"), [("executor", 200), ("both", 25), ("worker", 50), ("host", 50), ("clocks", 50)]
)
def test_what_is_killed_often_is_restored_and_each_job_counts_once(kind, kills):
    assert_all_restored(run_drill(kind, kills, 7), kills)
