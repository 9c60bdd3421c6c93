"""The numbers of figures and tables are unique."""

from __future__ import annotations

import re
from pathlib import Path

WRITTEN = re.compile(r"\b((?:fig|table)[A-Z]?\d+)_([a-z][a-z0-9_]*)")


def test_figure_and_table_numbers_are_used_once(checkout: Path) -> None:
    sources = [*(checkout / "notebooks").rglob("*.ipynb"), *(checkout / "heshare/experiments").rglob("*.py")]
    names: dict[str, set[str]] = {}
    for path in sources:
        for number, name in WRITTEN.findall(path.read_text("utf-8")):
            names.setdefault(number, set()).add(name)
    assert len(names) > 40
    assert {number: found for number, found in names.items() if len(found) > 1} == {}
