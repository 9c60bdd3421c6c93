"""Texts from templates: on one line, with the numbers in their form; what is missing is named."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import texts
from heshare.shared.errors import InputError

FOLDER = Path(texts.__file__).parent
CHECKOUT = Path(__file__).parents[4]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of templates in place of the package's."""
    monkeypatch.setattr(texts, "_FOLDER", tmp_path)
    texts._environment.cache_clear()
    yield tmp_path
    texts._environment.cache_clear()


def test_a_text_is_one_line_with_numbers_in_their_forms(folder: Path) -> None:
    (folder / "a.j2").write_text(
        """{% macro b(x, size, more) %}
        Takes {{ x | change }}, {{ x | signed }} or {{ x | number(".2f") }} %;
          {{ size | interval }} & {{ size | interval(1) }}.

        {% if more %}
        Zero: {{ -0.01 | tenths }}, {{ percent(1, 2, 3) }}.
        {% endif %}
        The end.
        {% endmacro %}""",
        encoding="utf-8",
    )
    size = ConfidenceInterval(-26.04, -31.0, -20.0, 10)
    long, short = (texts.render("a", "b", x=-3.456, size=size, more=more) for more in (True, False))
    start = "Takes 3 % less, -3 or -3.46 %; -26 % [-31, -20] & -26.0 % [-31.0, -20.0]."
    assert long == f"{start} Zero: +0.0, +1 % [+2, +3]. The end."
    assert short == f"{start} The end."


@pytest.mark.parametrize(
    ("file", "name", "values", "message"),
    [
        ("z", "b", {}, "found 'z'; expected one of a"),
        ("a", "c", {"x": 1, "y": 2}, "a.j2, column macro: found 'c'; expected one of b"),
        ("a", "b", {"x": 1}, "a.j2, column b: found missing or unknown: y; expected the values x, y"),
        ("a", "b", {"x": 1, "y": 2, "z": 3}, "a.j2, column b: found missing or unknown: z"),
        ("a", "b", {"x": {}, "y": 2}, "a.j2, column b: found 'dict object' has no attribute 'size'"),
        ("broken", "b", {}, "broken.j2: found .*endmacro"),
    ],
)
def test_what_is_wrong_with_a_text_is_named(
    folder: Path, file: str, name: str, values: dict[str, object], message: str
) -> None:
    (folder / "a.j2").write_text("{% macro b(x, y) %}{{ x.size }} {{ y }}{% endmacro %}", encoding="utf-8")
    if file == "broken":
        (folder / "broken.j2").write_text("{% macro b(x) %}", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        texts.render(file, name, **values)


def calls_in(tree: ast.Module) -> Iterator[tuple[list[ast.expr], list[ast.keyword]]]:
    """The arguments of the calls of `render`, and of names such as `words = partial(render, "file")`."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    files = {
        ast.unparse(node.targets[0]): node.value.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value).startswith(("partial(render,", "partial(texts.render,"))
    }
    for call in found:
        name = ast.unparse(call.func)
        if name in files:
            yield [files[name], *call.args], call.keywords
        elif name in ("render", "texts.render") and len(call.args) == 2:
            yield call.args, call.keywords


def calls() -> Iterator[tuple[str, str | None, set[str] | None]]:
    """File, macro and names of values of each text of the package and the notebooks; None what is not literal."""
    sources = [path.read_text("utf-8") for path in (CHECKOUT / "heshare").rglob("*.py")]
    for path in (CHECKOUT / "notebooks").rglob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources.append("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    for source in sources:
        if "render" not in source:
            continue  # faster than to parse it
        for (file, name), keywords in calls_in(ast.parse(source)):
            assert isinstance(file, ast.Constant)
            given = [keyword.arg for keyword in keywords]
            values = None if None in given else {str(each) for each in given}
            yield str(file.value), str(name.value) if isinstance(name, ast.Constant) else None, values


def test_every_call_names_a_macro_and_its_values() -> None:
    found = list(calls())
    assert found
    for file, name, values in found:
        macros = vars(texts._environment().get_template(f"{file}.j2").module)
        if name is not None:
            assert values is None or values == set(macros[name].arguments), f"{file}: {name}"


def test_every_template_is_read_by_somebody() -> None:
    named = {file for file, _, _ in calls()}
    assert {path.stem for path in FOLDER.glob("*.j2")} <= named | {"words"}
