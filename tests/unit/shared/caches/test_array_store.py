"""The store of computed arrays: what is read back, and what is computed again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from heshare.shared import files
from heshare.shared.caches.array_store import key_of, load_arrays, save_arrays

ARRAYS = {"numbers": np.array([[0.1, np.inf], [-0.0, 2.0]]), "names": np.array(["T4", "A100"]), "none": np.empty(0)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the store, as that of an installed package."""
    monkeypatch.setattr(files, "in_clone", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "cache" / "heshare" / "arrays"


def test_stored_arrays_are_read_back_for_their_key_alone(folder: Path) -> None:
    assert save_arrays("some", "key", ARRAYS) == folder / "some.npz"
    read = load_arrays("some", "key")
    assert read is not None
    for name, array in ARRAYS.items():
        assert (read[name].dtype, read[name].tobytes()) == (array.dtype, array.tobytes())
    assert load_arrays("some", "another key") is None
    assert load_arrays("other", "key") is None


def test_arrays_of_another_key_are_replaced(folder: Path) -> None:
    save_arrays("some", "old", ARRAYS)
    save_arrays("some", "new", ARRAYS)
    assert load_arrays("some", "old") is None
    assert load_arrays("some", "new") is not None
    assert [path.name for path in folder.iterdir()] == ["some.npz"]


def test_damaged_arrays_are_not_read(folder: Path) -> None:
    file = save_arrays("some", "key", ARRAYS)
    assert file is not None
    whole = file.read_bytes()
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at])
        assert load_arrays("some", "key") is None
    value = whole.index(np.float64(0.1).tobytes())
    file.write_bytes(whole[:value] + b"\0" + whole[value + 1 :])
    assert load_arrays("some", "key") is None
    np.savez(file, key=np.array("key"), pickled=np.array([object()]))
    assert load_arrays("some", "key") is None


def test_arrays_are_stored_nowhere_if_no_folder_can_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.parent.touch()
    monkeypatch.setattr("tempfile.tempdir", str(folder.parent.parent))
    assert save_arrays("some", "key", ARRAYS) is None
    assert load_arrays("some", "key") is None


def test_arrays_of_a_clone_that_cannot_be_written_are_stored_in_the_users_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "in_clone", lambda: True)
    monkeypatch.setattr(files, "PACKAGE", tmp_path)
    beside = save_arrays("some", "key", ARRAYS)
    assert beside == tmp_path / "__pycache__" / "some.npz"
    monkeypatch.setattr("os.access", lambda path, mode: "__pycache__" not in str(path))
    assert load_arrays("some", "key") is not None
    assert save_arrays("some", "new", ARRAYS) == folder / "some.npz"
    assert load_arrays("some", "new") is not None


def test_arrays_are_read_whole_while_other_processes_store_them(folder: Path) -> None:
    def store_often(value: int) -> None:
        for _ in range(20):
            save_arrays("some", "key", {"numbers": np.full(10_000, value)})

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(store_often, value) for value in range(3)]
        found = []
        while not all(writer.done() for writer in writers):
            found.append(load_arrays("some", "key"))
    assert all(len(set(read["numbers"].tolist())) == 1 for read in found if read is not None)
    assert any(read is not None for read in found)
    assert [path.name for path in folder.iterdir()] == ["some.npz"]


def test_key_changes_with_bytes_of_files_and_settings(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"ab")
    two.write_bytes(b"c")
    key = key_of([one, two], ["numpy"], 0)
    assert key == key_of([one, two], ["numpy"], 0)
    assert key != key_of([one, two], ["numpy"], 1)
    assert key != key_of([one, two], [], 0)
    one.write_bytes(b"a")
    two.write_bytes(b"bc")
    assert key != key_of([one, two], ["numpy"], 0)
