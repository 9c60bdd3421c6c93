"""What is kept in the user's cache: read back for its key, and made again where it cannot be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from heshare.shared.disk_cache import NotCachedWarning, cached, key_of

VALUE = {"numbers": [0.1, float("inf")], "names": ("T4", "A100")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "heshare"


def refuse() -> None:
    raise AssertionError("made again")


def test_read_back(folder: Path) -> None:
    """A value is read back for its name and key alone."""
    assert cached("some", "key", lambda: VALUE) == VALUE
    assert cached("some", "key", refuse) == VALUE
    assert cached("some", "new", lambda: 3) == cached("some", "new", refuse) == 3
    assert cached("other", "key", lambda: 4) == 4
    assert cached("some", "key", refuse) == VALUE


def test_damaged_file(folder: Path) -> None:
    """A damaged file is made again."""
    cached("some", "key", lambda: VALUE)
    file = folder / "some-key.pickle"
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        assert cached("some", "key", lambda: 7) == 7
    assert cached("some", "key", refuse) == 7


def test_unwritable_folder(folder: Path) -> None:
    """Where nothing can be written, the value is computed and a warning names the path."""
    folder.parent.touch()
    for _ in range(2):
        with pytest.warns(NotCachedWarning, match=r"heshare/some-key\.pickle cannot be written \(Not a directory\)"):
            assert cached("some", "key", lambda: VALUE) == VALUE


def test_concurrent_writers(folder: Path) -> None:
    """Values are read whole while others write them."""

    def write_often(value: int) -> None:
        for _ in range(20):
            (folder / "some-key.pickle").unlink(missing_ok=True)
            cached("some", "key", lambda: np.full(10_000, value))

    cached("some", "key", lambda: np.full(10_000, 0))
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write_often, value) for value in range(3)]
        while not all(writer.done() for writer in writers):
            assert len(set(cached("some", "key", lambda: np.zeros(1)).tolist())) == 1


def test_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key changes with the bytes of files and with versions."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"ab")
    two.write_bytes(b"c")
    key = key_of([one, two], ["numpy"])
    assert key == key_of([one, two], ["numpy"])
    assert key != key_of([one, two], [])
    one.write_bytes(b"a")
    two.write_bytes(b"bc")
    assert key != key_of([one, two], ["numpy"])
