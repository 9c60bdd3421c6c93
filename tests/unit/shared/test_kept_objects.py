"""The store of computed objects: what is read back, and what is computed again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from heshare.shared import files
from heshare.shared.caches.kept_objects import keep, key_of, load_kept

VALUE = {"numbers": [0.1, float("inf")], "names": ("T4", "A100")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the store, as that of an installed package."""
    monkeypatch.setattr(files, "in_clone", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "heshare" / "arrays"


def test_objects_are_read_back_for_their_key_alone_and_replaced(folder: Path) -> None:
    assert keep("some", "key", VALUE) == folder / "some.pickle"
    assert load_kept("some", "key") == VALUE
    assert load_kept("some", "another key") is None
    assert load_kept("other", "key") is None
    keep("some", "new", 3)
    assert (load_kept("some", "key"), load_kept("some", "new")) == (None, 3)
    assert [path.name for path in folder.iterdir()] == ["some.pickle"]


def test_damaged_objects_are_not_read(folder: Path) -> None:
    file = keep("some", "key", VALUE)
    assert file is not None
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at])
        assert load_kept("some", "key") is None
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert load_kept("some", "key") is None


def test_objects_are_kept_nowhere_if_no_folder_can_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.parent.touch()
    monkeypatch.setattr("tempfile.tempdir", str(folder.parent.parent))
    assert keep("some", "key", VALUE) is None
    assert load_kept("some", "key") is None


def test_objects_of_a_clone_that_cannot_be_written_are_kept_in_the_users_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "in_clone", lambda: True)
    monkeypatch.setattr(files, "PACKAGE", tmp_path)
    assert keep("some", "key", VALUE) == tmp_path / "__pycache__" / "some.pickle"
    monkeypatch.setattr("os.access", lambda path, mode: "__pycache__" not in str(path))
    assert load_kept("some", "key") == VALUE
    assert keep("some", "new", VALUE) == folder / "some.pickle"
    assert load_kept("some", "new") == VALUE


def test_objects_are_read_whole_while_other_processes_keep_them(folder: Path) -> None:
    def keep_often(value: int) -> None:
        for _ in range(20):
            keep("some", "key", np.full(10_000, value))

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(keep_often, value) for value in range(3)]
        found = []
        while not all(writer.done() for writer in writers):
            found.append(load_kept("some", "key"))
    assert all(len(set(read.tolist())) == 1 for read in found if read is not None)
    assert load_kept("some", "key") is not None


def test_key_changes_with_bytes_of_files_and_settings(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"ab")
    two.write_bytes(b"c")
    key = key_of([one, two], ["numpy"], 0)
    assert key == key_of([one, two], ["numpy"], 0)
    assert len({key, key_of([one, two], ["numpy"], 1), key_of([one, two], [], 0)}) == 3
    one.write_bytes(b"a")
    two.write_bytes(b"bc")
    assert key != key_of([one, two], ["numpy"], 0)
