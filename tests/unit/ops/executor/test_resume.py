"""Resumed runs: after damage to the journal, and after the wall clock was set."""

from __future__ import annotations

import json
import time

import pytest
from support.run_entries import journal_lines
from typer.testing import CliRunner

from heshare.cli import app
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


@pytest.mark.parametrize(("moved_s", "note"), [(3600, "the clock had been set back, by 3"), (-86400, "began 8640")])
def test_resume_counts_time_between_sessions_and_never_backwards(doubles, moved_s, note):
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


def test_salvaged_run_repeats_a_job_whose_end_was_damaged_and_counts_the_lines(doubles):
    assert doubles.run(JOBS).complete
    (doubles.folder / "done.txt").unlink()
    path = doubles.folder / "run" / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    (hit,) = [place for place, line in enumerate(lines) if line.startswith(b'{"end":{"job":"a-1"')]
    lines[hit] = lines[hit].replace(b"a-1", b"a-3")
    path.write_bytes(b"".join(lines))
    refused = CliRunner().invoke(app, ["jobs", "run", "--resume", str(path.parent)])
    assert refused.exit_code == 2
    assert f"heshare jobs run --resume {path.parent} --salvage" in refused.stderr
    run = CliRunner().invoke(app, ["jobs", "run", "--resume", str(path.parent), "--salvage", "--json"])
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["completed"] == 4
    assert done(doubles) == ["a-1"]
    assert any(f"left out: 1 ({NAME}.damaged has them)" in note for note in result["notes"])
    assert path.with_name(f"{NAME}.damaged").read_bytes() == b"".join(lines)
    assert doubles.traces() == []
    assert doubles.resume().notes == result["notes"]
