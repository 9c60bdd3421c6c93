"""Folders of results of commands: their files, written all or none, and `run.json` with what made them."""

import json
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heshare.paper.provenance.sidecar import code_and_data
from heshare.shared import files
from heshare.shared.code_version import files_hash
from heshare.shared.errors import InputError, require
from heshare.shared.version import __version__

NAME = "run.json"


def provenance(*inputs: str | Path, **parameters: Any) -> dict[str, Any]:
    """Return what results depend on, as values for JSON: code, data, library versions, input files and parameters.

    Args:
        *inputs: files that were read, and folders: the SHA-256 over all of their files.
        **parameters: such as `seed=3`; values that JSON does not have are written as text.

    Returns:
        `parameters`, `inputs` (the SHA-256 of each), `data_sha256` (of the package's data), `version`, `versions` (of
        libraries), `platform`, `git_commit` (None outside a clone; with `+` if the clone differs from it) and
        `heshare_sha256` (of the package's sources, unless they are those of the commit).

    Raises:
        InputError: an input that does not exist.

    Example:
        >>> import heshare as hs
        >>> about = hs.provenance(seed=3)
        >>> about["parameters"], about["version"] == hs.__version__
        ({'seed': 3}, True)
    """
    hashes = {str(path): _sha256(Path(path)) for path in inputs}
    return {"parameters": _plain(parameters), "inputs": hashes, "version": __version__, **code_and_data()}


def _sha256(path: Path) -> str:
    require(None, "no such file", path.exists(), "a file or a folder that was read", "Correct the path.", file=path)
    if path.is_dir():
        return files_hash(sorted(each for each in path.rglob("*") if each.is_file()))
    return files.sha256(path) if path.is_file() else ""


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    def other(value: object) -> object:
        numbers: list[Any] | str = (
            np.asarray(value).tolist() if isinstance(value, np.generic | np.ndarray) else str(value)
        )
        return numbers

    plain: dict[str, Any] = json.loads(json.dumps(values, default=other))
    return plain


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """A folder of results of one command.

    Attributes:
        path: the folder.
        about: the content of its `run.json`: `command` and `seed`, then the fields of `provenance`; the SHA-256 of
            each file that is written is added as `outputs`.
        record: the name of `run.json`; for a single file `NAME.run.json`, beside it.
    """

    path: Path
    about: Mapping[str, Any]
    record: str = NAME

    @classmethod
    def of_command(
        cls,
        path: str | Path,
        command: str,
        names: Collection[str],
        *,
        inputs: Iterable[str | Path] = (),
        parameters: Mapping[str, Any],
        record: str = NAME,
    ) -> "ResultsFolder":
        """Return the folder in which a command will write files of these names; nothing is written yet.

        Args:
            path: the folder, which need not exist.
            command: the command that makes the results, without options on which they do not depend.
            names: of the files that it will write.
            inputs: files and folders that the command reads.
            parameters: its parameters and their values.
            record: the name of `run.json`.

        Raises:
            InputError: the folder has such files of another command, of other inputs, or without a `run.json`.
        """
        about = provenance(*inputs, **parameters)
        made = cls(Path(path), {"command": command, "seed": about["parameters"].get("seed"), **about}, record)
        made._check_replaced(names)
        return made

    def _check_replaced(self, names: Collection[str]) -> None:
        there = [name for name in (self.record, *names) if (self.path / name).exists()]
        if not there:
            return

        earlier: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            earlier = dict(json.loads(files.read_input(self.path / self.record)))
        same_command = earlier.get("command") == self.about["command"]
        if same_command and earlier.get("inputs") == self.about["inputs"]:
            before = earlier.get("git_commit") or earlier.get("version")
            now = self.about["git_commit"] or self.about["version"]
            if before != now:
                sys.stderr.write(f"heshare: the results in {self.path}, made by {before}, are replaced\n")
            return

        if same_command:
            found = f"the results of {earlier['command']!r} with other input files"
        else:
            command = earlier.get("command")
            found = f"the results of {command!r}" if command else f"{there[0]}, which this command did not write"
        expected = "a folder without results, or with those of the same command"
        raise InputError(found, expected, "Name another folder, or delete that one.", file=self.path)

    def write(self, writers: Mapping[str, Callable[[Path], object]]) -> None:
        """Write the files and `run.json`, all or none; each of `writers` writes the file of its name to a path.

        Raises:
            OSError: a file cannot be written; it is named.
        """
        made = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".heshare-", dir=self.path))
        try:
            for name, write in writers.items():
                write(staging / name)
            outputs = {name: files.sha256(staging / name) for name in writers}
            text = json.dumps({**self.about, "outputs": outputs}, indent=2, ensure_ascii=False)
            files.write_text(staging / self.record, f"{text}\n")
            for name in (*writers, self.record):
                _replace(staging / name, self.path / name)
        except OSError as error:
            named = Path(str(error.filename))
            if error.errno is not None and named.is_relative_to(staging):
                raise OSError(error.errno, error.strerror, str(self.path / named.relative_to(staging))) from None
            raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            if made:
                with suppress(OSError):  # it has the results
                    self.path.rmdir()


def _replace(source: Path, target: Path) -> None:
    if target.exists():
        source.chmod(stat.S_IMODE(target.stat().st_mode))
    source.replace(target)
