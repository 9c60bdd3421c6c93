"""The tree keeps its shape: imports go left, files and functions stay short, what is public is documented."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "heshare"
STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running", "reporting", "cli")
BASE = ("compiling", "errors", "files")
FILES = sorted(PACKAGE.rglob("*.py"))
TOP = len(STAGES)


def _name(file: Path) -> str:
    return ".".join(("heshare", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {_name(file): file for file in FILES}


def _rank(module: str) -> int:
    """-1 for what every stage may import, then the stages from left to right; the package itself is on top."""
    part = [*module.split("."), ""][1]
    if part in BASE:
        return -1
    return STAGES.index(part) if part in STAGES else TOP


def _imports(nodes: list[ast.AST], module: str) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            full = {f"{node.module}.{alias.name}" for alias in node.names} - {"heshare.__version__"}
            found |= {name if name in MODULES else str(node.module) for name in full}
    return {name for name in found if name.split(".")[0] == "heshare"}


def _public(body: list[ast.stmt]) -> list[ast.FunctionDef | ast.ClassDef]:
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            found.append(node)
            if isinstance(node, ast.ClassDef):
                found += _public(node.body)
    return found


def _length(function: ast.FunctionDef) -> int:
    """Lines of the body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_there_is_a_package_to_look_at() -> None:
    assert len(FILES) > 10
    assert _rank("heshare.world.task") < _rank("heshare.devices.device") < _rank("heshare.cli") < _rank("heshare")


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_a_stage_imports_only_stages_to_its_left(file: Path) -> None:
    module = _name(file)
    wrong = [
        name
        for name in sorted(_imports(list(ast.walk(ast.parse(file.read_text("utf-8")))), module))
        if _rank(name) > _rank(module)
    ]
    assert not wrong, f"{module} imports from its right: {', '.join(wrong)}"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {
        module: _imports(list(ast.iter_child_nodes(ast.parse(file.read_text("utf-8")))), module) - {module}
        for module, file in MODULES.items()
    }
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) >= set(MODULES)


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_files_and_functions_are_short(file: Path) -> None:
    text = file.read_text("utf-8")
    assert len(text.splitlines()) <= 300
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    long = [node.name for node in functions if _length(node) > 50]
    assert not long, f"functions of more than 50 lines: {long}"


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_what_is_public_has_a_docstring(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    assert ast.get_docstring(tree), "the module has none"
    bare = [node.name for node in _public(tree.body) if not ast.get_docstring(node)]
    assert not bare, f"without a docstring: {bare}"
