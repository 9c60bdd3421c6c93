"""Folders of the package's data, with a checkout and without one; and the libraries of its extras."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from heshare.shared import extras, files
from heshare.shared.errors import InputError


def test_root(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The data is that of the clone around the package, or of `HESHARE_ROOT`, which comes first."""
    monkeypatch.delenv("HESHARE_ROOT", raising=False)
    assert files.in_clone()
    assert files.data("gpus.csv") == files.root() / "data" / "gpus.csv" == checkout / "data" / "gpus.csv"

    (tmp_path / "data").mkdir()
    monkeypatch.setenv("HESHARE_ROOT", str(tmp_path))
    assert files.data() == tmp_path / "data"
    with pytest.raises(InputError, match=r"gpus.csv: found no such file"):
        files.data("gpus.csv")


def test_no_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Among installed packages, without a clone around, the root is an error that names `HESHARE_ROOT`."""
    monkeypatch.delenv("HESHARE_ROOT", raising=False)
    monkeypatch.setattr(files, "PACKAGE", tmp_path / "site-packages" / "heshare")
    assert files.checkout() is None
    with pytest.raises(InputError, match="HESHARE_ROOT"):
        files.root()


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named with the command that installs it."""
    monkeypatch.setitem(extras.__dict__, "find_spec", lambda name: None if name == "papermill" else name)
    extras.require_extra("gym", "heshare.gym")
    with pytest.raises(InputError, match=r"heshare notebook: found no papermill .* pip install 'heshare\[notebooks\]'"):
        extras.require_extra("notebooks", "heshare notebook")


def test_extras(checkout: Path) -> None:
    """Extras install the libraries that are asked for."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    for extra, libraries in extras.LIBRARIES.items():
        installs = {Requirement(line).name.replace("-", "_") for line in project["optional-dependencies"][extra]}
        assert set(libraries) <= installs


def test_write_to_link(tmp_path: Path) -> None:
    """`write_atomic` replaces the file of a link and keeps the link; a private file replaces the link."""
    (tmp_path / "disk").mkdir()
    link, file = tmp_path / "link", tmp_path / "disk" / "file"
    link.symlink_to("disk/file")
    for text in ("first", "second"):
        assert files.write_text(link, text) == link
        assert link.is_symlink()
        assert file.read_text() == text
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["file"]

    files.write_text(link, "third", private=True)
    assert (link.read_text(), file.read_text()) == ("third", "second")
    assert link.lstat().st_mode & 0o777 == 0o600


def test_write_to_devices(tmp_path: Path) -> None:
    """`write_atomic` writes to devices and pipes, and leaves them."""
    (tmp_path / "null").symlink_to("/dev/null")
    files.write_text(tmp_path / "null", "text")
    assert (tmp_path / "null").is_char_device()
    with pytest.raises(OSError, match="No space left"):
        files.write_text("/dev/full", "text")
    assert Path("/dev/full").is_char_device()

    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        files.write_text(tmp_path / "pipe", "text")
        assert reader.communicate()[0] == "text"
    assert (tmp_path / "pipe").is_fifo()


def test_write_to_standard_output(tmp_path: Path) -> None:
    """`write_atomic` writes to standard output between what is printed."""
    program = "from heshare.shared import files; print(1); files.write_text('/dev/stdout', '2\\n'); print(3)"
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "1\n2\n3\n"


def test_unwritable_file(tmp_path: Path) -> None:
    """A file that cannot be written is named as it was asked for."""
    (tmp_path / "file").write_text("")
    for target in (tmp_path, Path("/proc/x.json"), tmp_path / "file" / "x.json", Path("/dev/full")):
        with pytest.raises(OSError, match=f"'{target}'"):
            files.write_text(target, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_full_disk(tmp_path: Path) -> None:
    """An error without a name, or with that of the temporary file, names the file; an earlier file stays whole."""
    (target := tmp_path / "a.csv").write_text("whole")

    def write(path: Path, name: bool) -> None:
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", *([str(path)] if name else []))

    for name in (False, True):
        with pytest.raises(OSError, match=f"'{target}'"):
            files.write_atomic(target, partial(write, name=name))
        assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
        assert target.read_text() == "whole"


@pytest.mark.parametrize("mask", [0o077, 0o002, 0o022])
def test_modes(mask: int, tmp_path: Path) -> None:
    """A new file has the mode of the user's umask, one that exists keeps its own, a private one is the user's."""
    before = os.umask(mask)
    try:
        (kept := tmp_path / "kept").touch()
        kept.chmod(0o640)
        for _ in range(2):
            files.write_text(tmp_path / "new", "text")
            files.write_text(kept, "text")
            files.write_text(tmp_path / "private", "text", private=True)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"new": 0o666 & ~mask, "kept": 0o640, "private": 0o600}
