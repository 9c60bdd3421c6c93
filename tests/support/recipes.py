"""Recipes of the pages of docs, run as they stand there in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^( *)```(\w+)(?: ([\w./]+))?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, the file that it is added to ('' for none) and its text, without indentation."""

    language: str
    file: str
    text: str


def blocks(page: str, heading: str = "") -> list[Block]:
    """Return the fenced blocks of a page, or of the section with that heading."""
    text = (CHECKOUT / page).read_text("utf-8")
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for indent, language, file, code in _FENCE.findall(text):
        found.append(Block(language, file, re.sub(rf"(?m)^{indent}", "", code)))
    return found


def copy_checkout(folder: Path) -> Path:
    """Copy the files that git knows, or would add, and what is compiled of them, to a folder; return it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    for path in (CHECKOUT / "heshare").rglob("__pycache__/*"):
        (folder / path.relative_to(CHECKOUT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, folder / path.relative_to(CHECKOUT))
    return folder


def add(root: Path, block: Block) -> None:
    path = root / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text("utf-8") if path.exists() else ""
    path.write_text(before + block.text, "utf-8")


def run(root: Path, command: str, *, tests: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of a recipe in the copy; `make test` runs these of its tests.

    The programs are those of this Python, and the package is the copy's. `make calibrate` is `heshare calibrate`.
    """
    words = shlex.split(command)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not gpu and not slow"]
    if words[0] == "make":
        program = [*pytest, *shlex.split(tests)] if words[1] == "test" else [sys.executable, "-m", "heshare", words[1]]
    else:
        program = [sys.executable, *(["-m", "heshare"] if words[0] == "heshare" else []), *words[1:]]
    environment = {
        **os.environ,
        "HESHARE_ROOT": str(root),
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")]),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    ran = subprocess.run(program, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=600)
    # `heshare doctor` exits with 1 where there is no GPU.
    allowed = (0, 1) if words == ["heshare", "doctor"] else (0,)
    assert ran.returncode in allowed, f"{command}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
    return ran


def follow(root: Path, page: str, heading: str, *, tests: str = "") -> dict[str, subprocess.CompletedProcess[str]]:
    """Add and run the blocks of a recipe in their order; return what each command printed."""
    done = {}
    for block in blocks(page, heading):
        if block.file:
            add(root, block)
        elif block.language == "sh":
            for command in block.text.replace("\\\n", " ").splitlines():
                line = command.split("  #")[0].strip()
                if line:
                    done[line] = run(root, line, tests=tests)
    return done
