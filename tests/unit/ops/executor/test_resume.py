"""Resumed runs: after damage to the journal, and after the wall clock was set."""

from __future__ import annotations

import time

import pytest
from support.run_entries import journal_lines

from heshare.ops.jobs.run_journal import NAME
from heshare.shared.journal import journal_line

JOBS = """\
jobs:
  - {name: a, command: [sh, -c, "echo $HESHARE_JOB >> done.txt"], like: resnet50:8, iterations: 10, count: 3}
  - {name: later, command: [sh, -c, "echo later >> done.txt"], like: resnet50:8, iterations: 10, arrival_s: 0.4}
"""


def write(doubles, entries):
    (doubles.folder / "run" / NAME).write_bytes(b"".join(map(journal_line, entries)))


def done(doubles):
    return sorted((doubles.folder / "done.txt").read_text().split())


def unfinished(doubles, *, ended):
    """The journal of a run that was killed when some jobs had ended."""
    assert doubles.run(JOBS).complete
    (doubles.folder / "done.txt").unlink()
    entries = journal_lines(doubles.folder / "run")
    return [entry for entry in entries if "end" not in entry or entry["end"]["job"] in ended]


@pytest.mark.parametrize(("moved_s", "note"), [(3600, "set back"), (-86400, "began 8640")])
def test_time_between_sessions(doubles, moved_s, note):
    """A resumed run counts the time between sessions, and never backwards; completed jobs do not run again."""
    entries = unfinished(doubles, ended=("a-0", "a-1", "a-2"))
    began_s = next(entry["session"] for entry in entries if "session" in entry)["at"]
    for entry in entries:
        if "session" in entry:
            entry["session"]["at"] += moved_s
    write(doubles, entries)
    result = doubles.resume()  # the job that had arrived does not arrive again, an hour later
    assert result.complete
    assert done(doubles) == ["later"]
    jcts_s = result.jobs.set_index("job")["jct_s"]
    assert (jcts_s > 0).all()
    assert jcts_s["later"] < 600 + max(0, -moved_s)
    assert result.totals["makespan_s"] > (time.time() - began_s if moved_s < 0 else 0)
    (pause,) = [text for text in result.notes if text.startswith("session 2 began")]
    assert note in pause
