"""Version of the code, data and libraries that a result depends on, from the import closure of what computes it.

The closure is read from the source of modules: imports at their top, in functions and under `TYPE_CHECKING`, and
modules and groups of entry points that are named in strings, since plug-ins are imported by name. A module is followed
if it belongs to this package, to the package of the module that was asked for, or to no installed distribution; all
others are libraries and count by their versions.
"""

import ast
import hashlib
import platform
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

from heshare.shared import files, plugins
from heshare.shared.errors import InputError

_PACKAGE = __name__.partition(".")[0]
LOADED_WHOLE = ("heshare.device_models", "heshare.workloads")
"""Groups of entry points whose modules are all imported where one of the group's objects is looked up."""


@cache
def code_version(*modules: str) -> str:
    """Return a SHA-256 over the import closure of modules, over `data/`, and over the versions of their libraries."""
    digest = hashlib.sha256()
    sources, libraries = import_closure(*modules)
    for module, file in sorted(sources.items()):
        digest.update(f"{module}\0{files_hash([file])}\n".encode())
    digest.update(_data_version(files.data()).encode())
    for name, version in library_versions(libraries):
        digest.update(f"{name} {version}\n".encode())
    digest.update("python {}.{}".format(*platform.python_version_tuple()).encode())
    return digest.hexdigest()


def import_closure(*modules: str) -> tuple[dict[str, Path], set[str]]:
    """Return the files of all modules that some modules import, by name, and the names of the libraries.

    Raises:
        InputError: one of the modules has no file, so that a change of it would go unnoticed.
    """
    own = frozenset({_PACKAGE, *(module.partition(".")[0] for module in modules)})
    found: dict[str, Path] = {}
    libraries: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        file = _file(module, own)
        if file is not None:
            found[module] = file
            waiting += _imported(module, file)
        elif module in modules:
            raise InputError(
                f"{module}, which has no file",
                "a module that is imported from a file",
                "Put what it defines into a .py file, so that kept results can notice when it changes.",
                column="module",
            )
        else:
            libraries.add(module.partition(".")[0])
    return found, libraries - own


def files_hash(paths: Iterable[str | Path]) -> str:
    """Return a SHA-256 over the bytes of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        content = Path(path).read_bytes()
        # With its length, so that bytes cannot move from one file to the next unseen.
        digest.update(b"%d\0" % len(content) + content)
    return digest.hexdigest()


def data_files() -> list[Path]:
    """Return the files of `data/` without hidden ones, sorted."""
    paths = files.data().rglob("*")
    return sorted(path for path in paths if path.is_file() and not path.name.startswith("."))


@cache
def _data_version(data: Path) -> str:
    # Results of live comparisons are in data/, but nothing is computed from them.
    tables = [path for path in data_files() if not path.is_relative_to(data / "live")]
    names = "\n".join(path.relative_to(data).as_posix() for path in tables)
    return hashlib.sha256(f"{names}\0{files_hash(tables)}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Source:
    """What a module's source has: a SHA-256 of it without comments and layout, its strings, and its imports."""

    sha256: str
    strings: frozenset[str]
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]


@cache
def read_source(file: Path) -> Source:
    return parse_source(file.read_bytes())


def parse_source(code: bytes | str) -> Source:
    """Return what Python code has; each import is its level, the module, and the names that are taken of it."""
    tree, strings = ast.parse(code), set()
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
    return Source(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), frozenset(strings), tuple(imports))


@cache
def _imported(module: str, file: Path) -> tuple[str, ...]:
    package, source = module if file.name == "__init__.py" else module.rpartition(".")[0], read_source(file)
    names = {package, module.rpartition(".")[0]}
    for level, stem, taken in source.imports:
        above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        whole = ".".join([*above, *([stem] if stem else [])])
        names |= {whole, *(f"{whole}.{name}" for name in taken)}
    # The top of a package lists its modules in strings, to import each when it is asked for.
    for text in source.strings if file.name != "__init__.py" else ():
        named = text.partition(":")[0]
        names |= {named} if named.startswith(f"{_PACKAGE}.") else set()
        names |= set(plugins.modules(text)) if text in LOADED_WHOLE else set()
    return tuple(names - {module, ""})


@cache
def _file(module: str, own: frozenset[str]) -> Path | None:
    # The file of a module that is followed; None for libraries, and for names that are no module.
    top = module.partition(".")[0]
    if top in own and module in sys.modules:
        loaded = getattr(sys.modules[module], "__file__", None)
        return None if loaded is None else Path(loaded).resolve()
    if top in sys.stdlib_module_names and top not in own:
        return None
    try:
        spec = util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    # A package without __init__.py has several folders and no origin; it is followed if it was asked for.
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    if not (top in own or (spec.origin is not None and _is_unpacked(Path(spec.origin)))):
        return None
    if not folders:
        return Path(spec.origin).resolve() if spec.origin is not None and module == top else None
    places = [folder.joinpath(*module.split(".")[1:]) for folder in folders]
    candidates = [path for place in places for path in (place / "__init__.py", place.with_suffix(".py"))]
    return next((path.resolve() for path in candidates if path.is_file()), None)


def _is_unpacked(origin: Path) -> bool:
    # Whether a file belongs to no installed distribution, such as a module beside a script.
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return origin.suffix == ".py" and not any(origin.is_relative_to(place) for place in places)


def library_versions(libraries: Iterable[str]) -> list[tuple[str, str]]:
    """Return the distributions of these top modules with their versions, sorted."""
    names = {name for library in libraries for name in _distributions().get(library, ())}
    return sorted((name, _version(name)) for name in names)


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _version(name: str) -> str:
    return metadata.version(name)
