"""Restarts of an MPS daemon that ends again and again: growing pauses, then time-slicing."""

from __future__ import annotations

import math
import os
import signal
import threading
from contextlib import suppress

import pytest
from support.run_entries import journal_lines

from heshare.ops.mps import CALM_S, MOST_RESTARTS, DaemonRestarts

# With a share an attempt does not end by itself.
JOBS = """jobs:
  - {name: a, like: medium, expected_time_s: 9, count: 2,
     command: [sh, -c, "while [ $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE ]; do sleep 0.1; done; echo"]}
"""


def test_pauses_grow_and_then_end_the_restarts():
    restarts = DaemonRestarts((1.0, 4.0))
    assert [restarts.pause_s(now_s) for now_s in (0.0, 2.0, 7.0, 8.0)] == [1.0, 4.0, math.inf, math.inf]


def test_a_calm_time_begins_the_pauses_again_until_the_limit_of_a_run():
    restarts = DaemonRestarts((1.0,))
    step_s = CALM_S + 1.0
    pauses = [restarts.pause_s(number * step_s) for number in range(MOST_RESTARTS + 1)]
    assert pauses == [1.0] * MOST_RESTARTS + [math.inf]


@pytest.mark.slow
def test_jobs_complete_by_time_slicing_where_the_daemon_is_killed_again_and_again(doubles):
    over = threading.Event()

    def kill_daemons():
        while not over.wait(0.1):
            if not any((doubles.folder / "run").glob("outputs/*.log")):
                continue  # a daemon that ends while the run begins is another case: the run has no MPS at all
            for note in (doubles.folder / "tmp").glob("hs-mps-*/pipe/*.pid"):
                with suppress(OSError, ValueError):
                    os.kill(int(note.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_daemons, daemon=True)
    killer.start()
    result = doubles.run(JOBS)
    over.set()
    killer.join()
    assert result.complete
    ends = [entry["end"] for entry in journal_lines(doubles.folder / "run") if "end" in entry]
    assert {end["outcome"] for end in ends} <= {"completed", "failed: mps"}
    assert sum(result.history.free.values()) == 0
    assert any("time-slicing" in note for note in result.notes)
    logs = sorted((doubles.folder / "run" / "outputs").glob("a-*.log"))
    assert logs[-1].read_text() == "\n"  # the last attempts had no share
    assert doubles.traces() == []
