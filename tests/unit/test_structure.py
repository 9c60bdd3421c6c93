"""The structure of the package: imports between stages and systems, sizes of files, docstrings.

Imports under TYPE_CHECKING, inside functions, and by name in strings count as imports.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "heshare"
STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running")
SHARED = (
    *("arrays", "compiling", "display", "errors", "extras", "files", "file_lock", "journal", "processes", "signals"),
    *("caches", "inputs", "streams"),
)
"""Pieces at the top of the package that every module may import."""
ALIKE = {"policy", "study", "StudySetting"}
"""Names that stand for the same concept in several systems."""
MOST_MODULES, MOST_LINES, MOST_FUNCTION_LINES = 15, 600, 50
MOST_STAGE_FILES, MOST_STAGE_LINES = 72, 12_620
_NAME_IN_TEXT = re.compile(r"heshare(?:\.[a-z_0-9]+)+")


@cache
def _modules() -> dict[str, Path]:
    """Every module's file by its dotted name without `heshare.`; a package is named as its folder."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_modules()[module].read_text("utf-8"))


def _docstrings(tree: ast.Module) -> set[str]:
    """The docstrings of modules, classes, functions and attributes."""
    expressions = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return {node.value for node in expressions if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules of this package that a module imports, at its top, under TYPE_CHECKING or in functions."""
    targets: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            targets |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return _own(targets, module)


@cache
def _named(module: str) -> frozenset[str]:
    """The modules of this package that a module names in strings other than docstrings, to import or run them."""
    tree = _tree(module)
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    docstrings = _docstrings(tree)
    return _own({name for text in texts if text not in docstrings for name in _NAME_IN_TEXT.findall(text)}, module)


def _own(names: set[str], module: str) -> frozenset[str]:
    own = {name.removeprefix("heshare.") for name in names if name.startswith("heshare.")}
    return frozenset(own & set(_modules()) - {module, ""})


def _rank(module: str) -> int:
    """-1 for the shared pieces, the position of a stage, and one more than the last stage for everything else."""
    top = module.split(".")[0]
    if top in SHARED:
        return -1
    return STAGES.index(top) if top in STAGES else len(STAGES)


def _system(module: str) -> str | None:
    """The system that a module of `systems` belongs to; None for the modules that all systems share."""
    parts = module.split(".")
    return parts[1] if parts[0] == "systems" and len(parts) > 2 and parts[1] != "shared" else None


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _length(function: ast.FunctionDef) -> int:
    """Lines of the body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def _undocumented(body: list[ast.stmt]) -> list[str]:
    names = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names += [] if ast.get_docstring(node) else [node.name]
            if isinstance(node, ast.ClassDef):
                names += _undocumented(node.body)
    return names


def test_imports_are_found_in_functions_and_type_checking_blocks() -> None:
    """The rules below would pass without imports: those in functions and in strings must be found."""
    assert "world.task" in _imports("scheduling.plan")
    assert "gpu.worker_program" in _named("gpu.workers.worker_pool")
    assert any("plugins" in _imports(module) for module in _modules() if module.startswith("cli."))


def test_stages_import_only_stages_to_their_left_and_shared_pieces() -> None:
    wrong = [
        f"{module} imports {target}"
        for module in _modules()
        for target in sorted(_imports(module) | _named(module))
        if _rank(module) < len(STAGES) and _rank(target) > _rank(module)
    ]
    assert not wrong


def test_systems_import_no_other_system() -> None:
    wrong = [
        f"{module} imports {target}"
        for module in _modules()
        for target in sorted(_imports(module) | _named(module))
        if _system(module) and _system(target) and _system(module) != _system(target)
    ]
    assert not wrong


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    order = list(TopologicalSorter({module: _imports(module) for module in _modules() if module}).static_order())
    assert set(order) == set(_modules()) - {""}


def test_stages_stay_small() -> None:
    files = [file for module, file in _modules().items() if 0 <= _rank(module) < len(STAGES)]
    assert len(files) <= MOST_STAGE_FILES
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= MOST_STAGE_LINES


def test_folders_files_and_functions_stay_readable() -> None:
    folders = Counter(file.parent for file in _modules().values() if file.name != "__init__.py")
    assert not [str(folder) for folder, count in folders.items() if count > MOST_MODULES]
    long = [module for module, file in _modules().items() if len(file.read_text("utf-8").splitlines()) > MOST_LINES]
    assert not long
    assert not [
        f"{module}.{function.name}"
        for module in _modules()
        for function in _functions(_tree(module))
        if _length(function) > MOST_FUNCTION_LINES
    ]


def test_modules_and_public_classes_have_unique_names() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, file in _modules().items():
        if file.name not in ("__init__.py", "__main__.py"):
            places[file.stem].append(module)
        for node in _tree(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1 and name not in ALIKE}


def test_modules_and_what_is_public_have_a_docstring() -> None:
    bare = [module for module in _modules() if not ast.get_docstring(_tree(module))]
    bare += [f"{module}.{name}" for module in _modules() for name in _undocumented(_tree(module).body)]
    assert not bare
