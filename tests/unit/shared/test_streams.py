"""Standard streams that drop what cannot be written: no reader, a reader that stands still, a full disk."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from heshare.shared import standard_streams
from heshare.shared.standard_streams import dropping


def writer(descriptor: int) -> io.TextIOWrapper:
    return os.fdopen(descriptor, "w", encoding="utf-8", closefd=False)


def test_reader() -> None:
    """What a reader takes is written; without a reader it is dropped."""
    reading, writing = os.pipe()
    stream = dropping(writer(writing))
    assert stream is not None
    stream.write("energy in µJ\n")
    assert os.read(reading, 100).decode() == "energy in µJ\n"
    assert not stream.isatty()
    os.close(reading)
    stream.write("nobody reads this\n")
    stream.flush()
    os.close(writing)
    stream.write("nor this\n")


def test_blocked_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing waits once for a reader that does not read."""
    monkeypatch.setattr(standard_streams, "PATIENCE_S", 0.2)
    reading, writing = os.pipe()
    stream = dropping(writer(writing))
    assert stream is not None
    for _ in range(50):
        stream.write("x" * 10_000 + "\n")
    while len(os.read(reading, 1 << 20)) == 1 << 16:
        pass
    stream.write("back\n")
    assert os.read(reading, 1 << 20).endswith(b"back\n")
    os.close(reading)
    os.close(writing)


def test_other_streams() -> None:
    """A full disk is no error; streams without a descriptor stay as they are."""
    with Path("/dev/full").open("w") as full:
        stream = dropping(full)
        assert stream is not None
        print("lost", file=stream, flush=True)

    text = io.StringIO()
    assert dropping(text) is text
    assert dropping(None) is None
