"""A stand-in for `libnvidia-ml.so.1`, so that the real binding can be tested where there is no GPU.

The library is one C file, built on demand. It stands for one card, or up to 16 by the figure `count`. The functions
below set figures of a card, make functions of NVML fail or block, and let a card have events such as Xids. Processes
with the same `FAKENVML_STATE`, a file, see the same cards, faults and events, as processes of one machine do;
`FAKENVML_FAIL` in the environment (such as `nvmlDeviceGetPowerUsage=3`) is for a process and its children.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fakenvml.c")
SONAME = "libnvidia-ml.so.1"
FOREVER = -1
XID, DOUBLE_BIT = 8, 2
_UUID = "GPU-00000000-1111-2222-3333-444444444444"
_BLOCK, _EVERY_CARD = -1000, -1


def uuid_of(card: int) -> str:
    """Return the UUID of a card by its index; they differ in the last character."""
    return _UUID[:-1] + chr(ord(_UUID[-1]) + card)


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """Build the library into `folder`, from where `LD_LIBRARY_PATH=folder` finds it; return its path."""
    path = folder / SONAME
    path.write_bytes(_compiled())
    return path


@cache
def _compiled() -> bytes:
    program = compiler()
    if program is None:
        raise FileNotFoundError("no C compiler (cc, gcc or clang) on the PATH")
    command = [program, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SONAME
        subprocess.run([*command, "-o", str(path), str(SOURCE)], check=True, capture_output=True, text=True)
        return path.read_bytes()


def functions() -> tuple[str, ...]:
    """The NVML functions that the stand-in has, in the order of its source."""
    return tuple(re.findall(r"^EXPORT int (nvml\w+)\(", SOURCE.read_text(encoding="utf-8"), re.MULTILINE))


class FakeNvml:
    """The stand-in, loaded into this process in the place of the driver's library where `binding` is `pynvml`."""

    def __init__(self, path: Path, binding: Any = None) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.fakenvml_set.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_int]
        self._library.fakenvml_get.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self._library.fakenvml_get.restype = ctypes.c_double
        self._binding = binding
        self._before: tuple[Any, dict[str, Any]] | None = None
        if binding is not None:
            self._before = (binding.nvmlLib, dict(binding._nvmlGetFunctionPointer_cache))
            binding.nvmlLib = self._library
            binding._nvmlGetFunctionPointer_cache.clear()

    def reset(self) -> None:
        self._library.fakenvml_reset()

    def fail(self, function: str, code: int, times: int = FOREVER, card: int | None = None) -> None:
        """Make a function return a code, so many times or forever; `field` and `metric` name inner return codes.

        With `card`, an index, it fails for that card alone. A function has one fault: the latest.
        """
        if self._library.fakenvml_fail(function.encode(), code, times, _EVERY_CARD if card is None else card) != 0:
            raise KeyError(function)

    def block(self, function: str, card: int | None = None) -> None:
        """Make a function block, for one card or for all, until `fail(function, 0)`."""
        self.fail(function, _BLOCK, card=card)

    def event(self, data: int, card: int = 0, kind: int = XID) -> None:
        """Let a card have an event: an Xid, `data` its number, or an ECC error."""
        self._library.fakenvml_event(card, ctypes.c_ulonglong(kind), ctypes.c_ulonglong(data))

    def set(self, name: str, value: float, card: int | None = None) -> None:
        """Set a figure of one card, by its index, or of all."""
        if self._library.fakenvml_set(name.encode(), value, _EVERY_CARD if card is None else card) != 0:
            raise KeyError(name)

    def get(self, name: str, card: int = 0) -> float:
        """A figure of a card, such as `locked_mhz`, or `calls`, `samples` (GPM samples not freed), `open`."""
        return float(self._library.fakenvml_get(name.encode(), card))

    def rename(self, card: int, name: str) -> None:
        if self._library.fakenvml_rename(card, name.encode()) != 0:
            raise KeyError(card)

    def locked(self) -> bool:
        """Return whether the clock of a card is locked."""
        return any(self.get("locked_mhz", card) for card in range(int(self.get("count"))))

    def called(self, function: str) -> int:
        return int(self._library.fakenvml_called(function.encode()))

    def close(self) -> None:
        if self._before is not None:
            self._binding.nvmlLib, cache = self._before
            self._binding._nvmlGetFunctionPointer_cache.clear()
            self._binding._nvmlGetFunctionPointer_cache.update(cache)
