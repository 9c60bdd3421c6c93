"""`OutputLimiter`: outputs are bounded while jobs write them, their beginning and end are kept, and no job waits."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time

import pytest

from heshare.ops.private_files import open_private
from heshare.ops.workers.output_limit import MIB, OutputLimiter


@pytest.fixture
def limiter():
    one = OutputLimiter()
    yield one
    one.close()
    one.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "output-limiter"]


def run_until_cut(command, path, limiter, limit_mib=1, most_s=20.0):
    """Start a command that writes to a file, and end its watch once the command has ended."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_APPEND), "ab") as output:
        process = subprocess.Popen(["sh", "-c", command], stdout=output)
    end = limiter.add(path, limit_mib)
    largest, until = 0, time.monotonic() + most_s
    while process.poll() is None and time.monotonic() < until:
        largest = max(largest, path.stat().st_size)
        time.sleep(0.01)
    process.kill()
    code = process.wait()
    end()
    return largest, code


def test_output_beyond_the_limit_keeps_beginning_and_end_and_says_how_much_is_missing(tmp_path, limiter):
    path = tmp_path / "a.log"
    command = "echo begin; seq 1000000; sleep 0.5; seq 1000001 1300000; echo end; exit 3"
    _, code = run_until_cut(command, path, limiter)
    assert code == 3
    text = path.read_text()
    assert len(text) <= MIB
    assert text.startswith("begin\n1\n2\n")
    assert text.endswith("1299999\n1300000\nend\n")
    (missing,) = re.findall(r"\n\[heshare: ([\d.]+) MiB of the output left out here: .* output_mib, 1 MiB\]\n", text)
    written = len("begin\nend\n") + sum(len(str(number)) + 1 for number in range(1, 1_300_001))
    assert float(missing) * MIB == pytest.approx(written - len(text), abs=0.1 * MIB)


def test_output_within_the_limit_stays_as_it_is(tmp_path, limiter):
    run_until_cut("seq 1000; sleep 0.3", tmp_path / "a.log", limiter)
    assert (tmp_path / "a.log").read_text().split() == [str(number) for number in range(1, 1001)]


@pytest.mark.slow
def test_a_job_that_writes_without_end_is_bounded_and_runs_on(tmp_path, limiter):
    path = tmp_path / "a.log"
    # 20 MiB a second, so that the test does not fill the disk of this machine where the limit fails.
    largest, _ = run_until_cut(
        "while :; do head -c 1048576 /dev/zero; sleep 0.05; done", path, limiter, limit_mib=2, most_s=2.5
    )
    assert largest < 16 * MIB
    assert path.stat().st_size <= 2 * MIB


def test_files_that_are_removed_or_replaced_by_a_link_end_no_watch(tmp_path, limiter):
    gone, linked, other = tmp_path / "gone.log", tmp_path / "linked.log", tmp_path / "other"
    other.write_bytes(b"x" * 2 * MIB)
    linked.symlink_to(other)
    ends = [limiter.add(path, 1) for path in (gone, linked)]
    assert run_until_cut("head -c 3000000 /dev/zero; sleep 0.6", tmp_path / "a.log", limiter)[1] == 0
    assert (tmp_path / "a.log").stat().st_size <= MIB
    for end in ends:
        end()
        end()
    assert other.stat().st_size == 2 * MIB
