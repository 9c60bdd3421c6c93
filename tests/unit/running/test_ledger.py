"""The executor's journal: torn anywhere, it is read up to the tear; damaged before its end, it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.errors import InputError
from heshare.files import journal_line
from heshare.running.jobs import history
from heshare.running.ledger import NAME, Ledger, read

RUN = {"policy": "random"}


def decision(*keys):
    return {"decision": {"t": 1.0, "event": "arrival", "actions": [["start", key, 0, 50, None] for key in keys]}}


def end(key, outcome="completed", charged=True, again=False, iterations=5.0):
    said = {"job": key, "outcome": outcome, "charged": charged, "again": again, "iterations": iterations}
    return {"end": said}


ENTRIES = [
    {"session": {"at": 0.0}},
    decision("a", "b"),
    end("a"),
    decision("c"),
    end("b", "failed: crash", again=True),
    decision("b"),
    {"session": {"at": 9.0}},
    decision("b", "c"),
    end("b"),
    end("c", "failed: crash"),
]


def test_an_entry_is_there_when_add_returns(tmp_path):
    ledger = Ledger(tmp_path, RUN)
    for entry in ENTRIES:
        ledger.add(entry)
    assert read(tmp_path) == [{"run": RUN}, *ENTRIES]
    ledger.close()
    again = Ledger(tmp_path, None)
    assert again.entries == [{"run": RUN}, *ENTRIES]
    again.close()


def test_what_is_over_stays_over_and_what_was_cut_off_is_free():
    found = history([{"run": RUN}, *ENTRIES])
    assert found.over == {"a": "completed", "b": "completed", "c": "failed"}
    assert found.attempts == {"a": 1, "b": 3, "c": 2}
    assert (found.charged, found.lost) == ({"b": 1, "c": 1}, {"b": 1, "c": 1})
    assert found.open == {}


@given(st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_torn_anywhere_nothing_is_counted_twice(tmp_path_factory, cut):
    whole = b"".join(map(journal_line, [{"run": RUN}, *ENTRIES]))
    folder = tmp_path_factory.mktemp("torn")
    least = len(journal_line({"run": RUN}))
    content = whole[: least + cut % (len(whole) - least + 1)]
    (folder / NAME).write_bytes(content)
    ledger = Ledger(folder, None)
    count = len(ledger.entries)
    assert ledger.entries == [{"run": RUN}, *ENTRIES][:count]
    assert content.count(b"\n") == count
    ledger.add(end("z"))
    ledger.close()
    assert read(folder)[count:] == [end("z")]


def test_a_damaged_line_before_the_end_is_refused_with_its_number(tmp_path):
    lines = [journal_line(entry) for entry in [{"run": RUN}, *ENTRIES]]
    lines[3] = lines[3].replace(b"a", b"e", 1)
    (tmp_path / NAME).write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"row 4: found a damaged line"):
        Ledger(tmp_path, None)


def test_two_executors_never_share_a_folder(tmp_path):
    first = Ledger(tmp_path, RUN)
    with pytest.raises(InputError, match="a run that goes on"):
        Ledger(tmp_path, None)
    first.close()
    first.close()
    Ledger(tmp_path, None).close()
