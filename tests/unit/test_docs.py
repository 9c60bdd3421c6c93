"""README, CONTRIBUTING and docs: examples run; commands, options, links, modules and map entries exist."""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

from heshare.cli import app
from heshare.lab.sweeps.sweep import sweep
from heshare.ops.executor.job_tasks import check_real_jobs
from heshare.ops.jobs.job_file import read_jobs
from heshare.policies import registry
from heshare.policies.registry import policies
from heshare.running.run import run
from heshare.shared import plugins
from heshare.shared.files import sha256

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "ARTIFACT.md")), *(CHECKOUT / "docs").glob("*.md")]
    + [
        CHECKOUT / folder / "README.md"
        for folder in ("data", "figures", "reference", "data/profiles", "data/profiles/measured")
    ]
)
_BLOCK = re.compile(r"```(\w*)( [\w./]+)?\n(.*?)```", re.DOTALL)
"""Language, a file that the block is added to (the recipes of docs), and the code."""
_ENTRY = re.compile(r"`([\w/]+\.py):(\w+(?:\.\w+)?)`|\b([\w/]+\.py):(\w+(?:\.\w+)?)")


def _name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


def _blocks(page: Path, language: str) -> list[str]:
    found = _BLOCK.findall(page.read_text("utf-8"))
    return [code for tag, file, code in found if tag == language and not file]


GROUPS = (plugins.POLICIES, plugins.DEVICE_MODELS, plugins.WORKLOADS, plugins.COMMANDS)
NOT_INSTALLED = ("dask_jobqueue",)
"""Packages that examples name and that the environment does not have: those examples are compiled, not run."""
EXAMPLES = (
    "README.md",
    "docs/adding.md",
    "docs/advise.md",
    "docs/limits.md",
    "docs/policies.md",
    "docs/sweeps.md",
    "docs/tasks.md",
)
"""Pages with examples in Python."""
SLOW = ("docs/policies.md", "docs/sweeps.md")
"""Pages whose examples take 2 s and more: they compare searches, and run a whole study."""


@cache
def _commands() -> dict[str, set[str]]:
    """The options of each command of `heshare`, by the command's words."""
    found: dict[str, set[str]] = {}

    def visit(words: str, command: object) -> None:
        found[words] = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name in getattr(command, "commands", {}):
            visit(f"{words} {name}".strip(), command.get_command(None, name))

    visit("", typer.main.get_command(app))
    return found


def _calls(page: Path) -> Iterator[list[str]]:
    """The words after `heshare` in each shell line and each inline code of a page."""
    text = page.read_text("utf-8")
    shell = "\n".join(_blocks(page, "sh") + _blocks(page, "bash")).replace("\\\n", " ")
    inline = " \n".join(re.findall(r"`(heshare [^`\n]+)`", _BLOCK.sub("", text)))
    for line in f"{shell}\n{inline}".splitlines():
        match = re.match(r"\s*(?:\$ )?heshare (.+)", line)
        if match:
            yield match[1].split("#")[0].split("|")[0].split()


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in EXAMPLES])
def test_examples(page: str, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_cells: None) -> None:
    """The python blocks of a page run one after the other, in one namespace."""
    monkeypatch.chdir(tmp_path)
    registered = set(policies(variants=True))
    namespace: dict[str, object] = {"__name__": "example"}
    try:
        for code in _blocks(CHECKOUT / page, "python"):
            compiled = compile(code, page, "exec")
            if not any(package in code for package in NOT_INSTALLED):
                exec(compiled, namespace)
                assert capsys.readouterr().out.strip(), code
    finally:
        for name in set(policies(variants=True)) - registered:
            registry.unregister(name)


def test_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_cells: None) -> None:
    """The study of the guide, with fewer tasks and seeds: at most 25 lines, resumed after a Ctrl-C, with provenance."""
    (code,) = [each for each in _blocks(CHECKOUT / "docs/sweeps.md", "python") if "study.yaml" in each]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    small = code.replace("tasks: 16", "tasks: 2").replace("seeds: 10", "seeds: 2")
    monkeypatch.chdir(tmp_path)
    left = count(30, -1)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if next(left) == 0:
            raise KeyboardInterrupt
        return run(*arguments, **named)

    monkeypatch.setattr("heshare.lab.sweeps.sweep.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exec(compile(small, "study", "exec"), {})
    kept = len(list(Path("build/cells").glob("??/*.json")))
    namespace: dict[str, Any] = {}
    exec(compile(small, "study", "exec"), namespace)

    # The counter goes on below zero: as many further runs as cells were missing.
    cells = 3 * 3 * 4 * 2
    assert (kept, -next(left)) == (30, cells - 30 + 1)
    pd.testing.assert_frame_equal(namespace["table"].iloc[:, :-1], sweep(namespace["grid"]).iloc[:, :-1])
    changes = pd.read_csv("study.csv")
    assert len(changes) == 3 * 3 * 3
    assert set(changes["level_pct"]) == {50.0}
    assert namespace["panels"][0].get_ylabel().endswith("range of 2")
    about = json.loads(Path("study.json").read_text())
    assert about["inputs"] == {"study.yaml": sha256("study.yaml")}
    assert about["parameters"] == {"seed": 0, "seeds": 2}
    assert Path("study.pdf").stat().st_size > 0


def test_job_file(tmp_path: Path) -> None:
    """The job file of the manual can be run in any folder without PyTorch."""
    found = _BLOCK.findall((CHECKOUT / "docs/operations.md").read_text("utf-8"))
    (text,) = [code for language, file, code in found if (language, file) == ("yaml", " jobs.yaml")]
    path = tmp_path / "jobs.yaml"
    path.write_text(text, encoding="utf-8")

    check_real_jobs(read_jobs(path), path, models_lack="PyTorch missing")


def test_pages_with_examples() -> None:
    """Every page with an example in Python is run below."""
    assert {_name(page) for page in PAGES if _blocks(page, "python")} == set(EXAMPLES)


def test_commands() -> None:
    """Commands of the pages and their options exist."""
    commands, calls, wrong = _commands(), 0, []
    for page in PAGES:
        for words in _calls(page):
            calls += 1
            depth = max(depth for depth in range(3) if " ".join(words[:depth]) in commands)
            command = " ".join(words[:depth])
            options = {word.split("=")[0] for word in words if word.startswith("-")}
            if (not command and not options) or options - commands[command] - {"--help", "-"}:
                wrong.append(f"{_name(page)}: {' '.join(words)}")

    assert calls > 20
    assert not wrong


def test_targets_and_links() -> None:
    """Targets of make, links, modules and paths that the pages name exist."""
    makefile = (CHECKOUT / "Makefile").read_text("utf-8")
    missing = []
    for page in PAGES:
        # The files that recipes add are not there yet.
        text = _BLOCK.sub(lambda block: "" if block[2] else block[0], page.read_text("utf-8"))

        targets = set(re.findall(r"(?m)(?:^\s*|`)make ([a-z-]+)", text))
        missing += [(page, name) for name in targets if not re.search(rf"(?m)^{name}:", makefile)]

        links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]
        missing += [(page, link) for link in links if not (page.parent / link).exists()]

        dotted = set(re.findall(r"\bheshare(?:\.[a-z_][a-z_0-9]*)+(?!\w)", text))
        dotted -= {"heshare.py", "heshare.json", *GROUPS}
        missing += [(page, name) for name in dotted if not _importable(name)]

        paths = set(re.findall(r"`((?:heshare|tests|docs|benchmarks|notebooks|data)/[\w./-]*\w)`", text))
        missing += [(page, path) for path in paths if not (CHECKOUT / path).exists()]
    assert not missing


def _importable(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parent, _, last = name.rpartition(".")
    try:
        return find_spec(name) is not None or hasattr(import_module(parent), last)
    except ModuleNotFoundError:
        return hasattr(import_module(parent), last) if find_spec(parent) else False


@pytest.mark.parametrize("page", ["docs/paper_map.md", "docs/architecture.md", "docs/adding.md"])
def test_map_entries(page: str) -> None:
    """The functions that the maps name exist."""
    found = [
        (quoted or plain, name or plain_name)
        for quoted, name, plain, plain_name in _ENTRY.findall((CHECKOUT / page).read_text("utf-8"))
    ]
    assert found
    assert not [f"{path}:{name}" for path, name in found if not _defined(path, name)]


def _defined(path: str, name: str) -> bool:
    """Whether a file of the package has a function, class, method or assignment of each part of a name."""
    file = CHECKOUT / "heshare" / path.removeprefix("heshare/")
    if not file.exists():
        return False
    source = file.read_text("utf-8")
    return all(re.search(rf"(?m)^\s*((def|class) )?{part}\b\s*[(:=]", source) for part in name.split("."))


def test_paper_map() -> None:
    """The map of the paper has every equation, table, figure and line of Algorithm 1."""
    text = (CHECKOUT / "docs/paper_map.md").read_text("utf-8")
    first = " ".join(re.findall(r"(?m)^\| ([^|]+) \|", text))
    wanted = [f"Eq. {number}" for number in range(1, 17)] + [f"Fig. {number}" for number in range(1, 12)]
    wanted += [f"Table {number}" for number in ("I", "II", "III", "IV", "V")]
    assert not [name for name in wanted if not re.search(rf"{re.escape(name)}\b", first)]
    algorithm = text.split("## Algorithm 1")[1].split("\n## ")[0]
    lines: set[int] = set()
    for low, high in re.findall(r"(?m)^\| (\d+)(?:-(\d+))? \|", algorithm):
        lines |= set(range(int(low), int(high or low) + 1))
    assert set(range(1, 20)) | {23} == lines


def test_readme_numbers() -> None:
    """The changes in the README are those of the reference results."""
    import pandas as pd

    text = (CHECKOUT / "README.md").read_text("utf-8")
    table = pd.read_csv(CHECKOUT / "reference/x04a_changes.csv.gz").query("ours == 'Trade-off'")
    sizes = table.set_index(["theirs", "metric"])[["change_pct", "low_pct", "high_pct"]]
    number = r"(-?\d+(?:\.\d)?)"
    rows = {"| Morak, as": "Morak", "| μ-Serve, as": "μ-Serve", "| μ-Serve at its best": "μ-Serve, own best"}

    for start, rival in rows.items():
        (line,) = [line for line in text.splitlines() if line.startswith(start)]
        printed = [one for size in re.findall(rf"{number} % \[{number}, {number}\]", line) for one in size]
        exact = sizes.loc[[(rival, "energy_active_j"), (rival, "avg_jct_s")]].to_numpy().ravel()
        digits = [len(one.partition(".")[2]) for one in printed]
        assert printed == [f"{value:.{n}f}" for value, n in zip(exact, digits, strict=True)]
