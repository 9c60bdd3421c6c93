"""Tables as text, and rows of the paper's tables."""

from __future__ import annotations

import pandas as pd

from heshare.paper import paper_tables, tables


def test_to_markdown() -> None:
    """A table in Markdown aligns numbers, escapes bars and shows noise as zero."""
    frame = pd.DataFrame({"name": ["a|b", "c"], "size": [1.23456, 12345.6], "fits": [True, False], "gap": [1.0, None]})
    lines = tables.to_markdown(frame).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "a\\|b" in lines[2]
    assert "1.235" in lines[2]
    assert "12346" in lines[3]
    assert "| yes" in lines[2]
    assert lines[1].count(":") == 2

    noise = tables.to_markdown(pd.DataFrame({"gap_pct": [-8.9e-16, 0.5, -1e-6]})).splitlines()
    assert [line.strip("| ") for line in noise] == ["Gap (%)", noise[1].strip("| "), "0", "0.5", "-1e-06"]


def test_table_1() -> None:
    """Table I has the paper's rows first, and names the one difference."""
    frame, notes = paper_tables.table_1()
    assert frame["Solution"].tolist()[:5] == ["BatchDVFS", "PWR", "μ-Serve", "Morak", "HeShare"]
    assert frame["Solution"].is_unique
    assert notes.startswith("PWR, Multi-Task Parallelism")
    assert notes.count("in the paper") == 1


def test_table_4() -> None:
    """Table IV has 15 workloads, and memory that grows with the batch size."""
    frame = paper_tables.table_4(8)
    assert len(frame) == 15
    assert frame["A sample here"].str.len().gt(0).all()
    name = "Memory of a process, {} samples (MiB)"
    assert (frame[name.format(8)] > paper_tables.table_4(4)[name.format(4)]).all()
