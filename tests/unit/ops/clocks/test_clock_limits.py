"""Limits of the clock service: what the file may hold, and whose it must be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heshare.ops.clocks.clock_limits import ClockLimit, read_limits
from heshare.shared.errors import InputError

GOOD = '[GPU-1a]\nmin_mhz = 300\nmax_mhz = 900\n["*"]\nmin_mhz = 210\nmax_mhz = 1980\ngroup = "root"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clocks.toml"
    path.write_text(GOOD)
    path.chmod(0o644)
    return path


def test_read_limits_of_a_card_and_of_every_other(file: Path) -> None:
    limits = read_limits(file)
    assert limits.of_card("GPU-1a") == ClockLimit(300, 900, None)
    assert limits.of_card("GPU-2b") == ClockLimit(210, 1980, 0)
    assert limits.of_card("../../etc") is None
    assert list(limits.of_groups({5}, privileged=False)) == ["GPU-1a"]
    assert list(limits.of_groups({5}, privileged=True)) == ["GPU-1a", "*"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no card"),
        ("[GPU-1", "Expected"),
        ("[other]\nmin_mhz=1\nmax_mhz=2", "the table 'other'"),
        ("[GPU-1]\nmin_mhz=1", "missing required field `max_mhz`"),
        ("[GPU-1]\nmin_mhz=1\nmax_mhz=2\nmore=3", "unknown field `more`"),
        ("GPU-1 = 5", "GPU-1: .*got `int`"),
        ("[GPU-1]\nmin_mhz=3\nmax_mhz=2", "min_mhz 3, max_mhz 2"),
        ("[GPU-1]\nmin_mhz=1\nmax_mhz=99999", "10000"),
        ('[GPU-1]\nmin_mhz=1\nmax_mhz=2\ngroup="no such group"', "group 'no such group'"),
        ("a = " + "[" * 5000, r"clocks\.toml"),
        ("#" * 70000, "at most 65536 bytes"),
        ("a = '\xff'", "UTF-8"),
    ],
)
def test_read_limits_refuses_other_content(file: Path, text: str, found: str) -> None:
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=found):
        read_limits(file)


@pytest.mark.parametrize("how", ["mode", "folder", "link", "pipe", "missing", "owner"])
def test_read_limits_refuses_a_file_that_others_may_have_written(file: Path, how: str) -> None:
    if how == "mode":
        file.chmod(0o664)
    elif how == "folder":
        file.parent.chmod(0o777)
    elif how == "owner":
        if os.geteuid() != 0:
            pytest.skip("needs root to give a file away")
        os.chown(file, 65534, 65534)
    else:
        file.unlink()
        if how == "link":
            (file.parent / "target").write_text(GOOD)
            file.symlink_to(file.parent / "target")
        elif how == "pipe":
            os.mkfifo(file, 0o644)
    with pytest.raises(InputError, match=r"clocks\.toml.*expected (root's|a file)"):
        read_limits(file)
