"""Outputs that are kept: those of a notebook are made again only if something that they depend on has changed.

That is the notebook's file, its parameters, the modules that its code imports (without comments and layout), those of
the policies that it or they name, the package's templates, the files of `data/` that it reads, the versions of
libraries, and the outputs themselves. The page of results is kept in the same way.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heshare import _MODULES
from heshare.paper.notebooks.execute_notebook import ExecutedNotebook
from heshare.paper.provenance import sidecar
from heshare.paper.provenance.commit import code_cells, git_commit, package_sha256
from heshare.shared import files, plugins
from heshare.shared.code_version import import_closure, library_versions, parse_source, read_source

if TYPE_CHECKING:
    from heshare.paper.notebooks.run_notebooks import NotebookRun

NAME = "kept.json"
"""Beside the executed copies: what each notebook's outputs depended on, and their SHA-256."""
_PAGE = "heshare.paper.report.results_page"
_NAMING = ("heshare.api", "heshare.policies.", "heshare.lab.", "heshare.paper.")
"""Where a string may name a policy; elsewhere it is something else, such as the arrivals `miso`."""
_ALL_POLICIES = ("registry.policies", "registry.table_1", "declared_traits", "policy_names")
"""What a notebook that goes through all policies uses."""
_POLICY = re.compile(r"[\w+-]+")


def key_of(run: "NotebookRun") -> str:
    """Return a SHA-256 over everything that a notebook's outputs depend on."""
    code = "\n".join(code_cells(run.notebook.path.read_text(encoding="utf-8")))
    reader = "" if run.record.edited else run.notebook.name
    return _digest(
        [
            files.sha256(run.notebook.path),
            {name: value for name, value in run.values.items() if name != "out_dir"},
            asdict(run.record),
            code_key(code, strings_of(run.values)),
            sidecar.input_hashes(reader),
        ]
    )


def code_key(code: str, strings: Iterable[str] = ()) -> str:
    """Return a SHA-256 over the modules, templates and libraries that Python code and strings lead to."""
    modules, libraries = closure(code, strings)
    sources = {module: read_source(file).sha256 for module, file in modules.items()}
    return _digest([sources, _templates(modules.values()), library_versions(libraries), _platform()])


def closure(code: str, strings: Iterable[str] = ()) -> tuple[dict[str, Path], set[str]]:
    """Return the modules of this package that Python code and these strings lead to, by name, and the libraries.

    A string that begins with the name of a policy leads to its module, as in `"heshare:en-opt"` or `"morak(k=3)"`.
    """
    source = parse_source(code)
    names = {name for _, module, taken in source.imports for name in (module, *(f"{module}.{one}" for one in taken))}
    # What is taken of `heshare` itself is looked up in the module that has it.
    names |= {module for offered, module in _MODULES.items() if f".{offered}" in code}
    waiting = {name for name in names if name.startswith("heshare.") and _is_module(name)}
    everything = plugins.names(plugins.POLICIES) if any(name in code for name in _ALL_POLICIES) else []
    waiting |= _policies([*source.strings, *strings, *everything])
    found: dict[str, Path] = {}
    libraries: set[str] = set()
    while waiting - found.keys():
        found, libraries = import_closure(*waiting)
        naming = [file for module, file in found.items() if module.startswith(_NAMING)]
        waiting |= _policies(text for file in naming for text in read_source(file).strings)
    return found, libraries | {name.partition(".")[0] for name in names}


def _is_module(name: str) -> bool:
    place = files.PACKAGE.parent.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _policies(strings: Iterable[str]) -> set[str]:
    known = dict(zip(plugins.names(plugins.POLICIES), plugins.modules(plugins.POLICIES), strict=True))
    starts = {found[0] for text in strings if (found := _POLICY.match(text.strip()))}
    return {known[name] for name in starts & known.keys() if known[name].startswith("heshare.")}


def _templates(modules: Iterable[Path]) -> list[str]:
    # Files beside the modules that are no modules, with those in folders that have no modules at all. Without what
    # Python and numba compile.
    folders = {path.parent for path in modules}
    inner = {path for each in folders for path in each.iterdir() if path.is_dir() and not any(path.glob("*.py"))}
    inner = {path for path in inner if path.name != "__pycache__"}
    beside = {path for each in folders | inner for path in each.iterdir() if path.is_file() and path.suffix != ".py"}
    return [f"{path.relative_to(files.PACKAGE)} {files.sha256(path)}" for path in sorted(beside)]


@cache
def _platform() -> list[Any]:
    return [sidecar.versions(), platform.system(), platform.machine()]


def strings_of(value: object) -> list[str]:
    """Return the strings in a notebook's parameters."""
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in strings_of(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in strings_of(part)]
    return [value] if isinstance(value, str) else []


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def look_up(run: "NotebookRun", key: str) -> ExecutedNotebook | None:
    """Return the kept outputs of a notebook, or None if it has to run; their sidecars get the commit of today."""
    known = _read(run.copies / NAME).get(_place(run), {})
    outputs, executed = known.get("files", {}), run.copies / run.notebook.path.name
    own = _unchanged(run.copies, known.get("copy", {})) and _unchanged(run.out, outputs)
    if known.get("key") != key or not own:
        return None
    paths = tuple(run.out / name for name in sorted(outputs))
    renewed = [_renew(path) for path in paths if path.suffix == ".json"]
    if any(renewed):
        keep(run, key, paths)
    return ExecutedNotebook(run.notebook.name, 0.0, paths, executed, run.out, run.record.profile)


def keep(run: "NotebookRun", key: str, outputs: Sequence[Path]) -> None:
    """Write down what the outputs of a notebook depend on."""
    copy = run.notebook.path.name
    found = {path.relative_to(run.out).as_posix(): path for path in outputs}
    _write(run.copies / NAME, _place(run), key, files=found, copy={copy: run.copies / copy})


def _place(run: "NotebookRun") -> str:
    return f"{run.notebook.name} {run.out}"


def _renew(path: Path) -> bool:
    # Code that is the same gives the same outputs, whatever else was committed.
    content = json.loads(path.read_text(encoding="utf-8"))
    today = {"git_commit": git_commit(), "heshare_sha256": package_sha256()}
    if not isinstance(content, dict) or today.items() <= content.items() or not today.keys() <= content.keys():
        return False
    times = path.stat()
    files.write_text(path, json.dumps({**content, **today}, indent=2, ensure_ascii=False) + "\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # what was made from the output is not older than it
    return True


def page_key(out: Path, copies: Path) -> str:
    """Return a SHA-256 over what the table of claims and the pages of an output folder depend on."""
    written = _pages(out)
    inputs = [
        path for path in sorted(out.rglob("*")) if path.is_file() and path.relative_to(out).as_posix() not in written
    ]
    books = sorted(copies.glob("*.ipynb"))
    hashes = [f"{path.name} {files.sha256(path)}" for path in [*inputs, *books]]
    return _digest([hashes, code_key(f"import {_PAGE}"), sidecar.input_hashes(""), git_commit(), package_sha256()])


def page_is_kept(out: Path, copies: Path, key: str) -> bool:
    """Return whether the claims and pages of an output folder are those of the key."""
    known = _read(copies / NAME).get(f"page {out}", {})
    return known.get("key") == key and _unchanged(out, known["files"])


def keep_page(out: Path, copies: Path, key: str) -> None:
    """Write down what the claims and pages of an output folder depend on."""
    _write(copies / NAME, f"page {out}", key, files=_pages(out))


def _pages(out: Path) -> dict[str, Path]:
    found = [*out.rglob("*.html"), *out.glob("claims*.*")]
    return {path.relative_to(out).as_posix(): path for path in sorted(found) if path.is_file()}


def _unchanged(out: Path, outputs: Mapping[str, str]) -> bool:
    return bool(outputs) and all(
        (out / name).is_file() and files.sha256(out / name) == sha256 for name, sha256 in outputs.items()
    )


def _read(path: Path) -> dict[str, Any]:
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        known = json.loads(path.read_text(encoding="utf-8"))
    return known


def _write(path: Path, place: str, key: str, **groups: Mapping[str, Path]) -> None:
    hashes = {group: {name: files.sha256(file) for name, file in found.items()} for group, found in groups.items()}
    known = {**_read(path), place: {"key": key, **hashes}}
    files.write_text(path, json.dumps(known, indent=1, sort_keys=True) + "\n")
