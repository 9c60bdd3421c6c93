"""Tables as text, and the paper's five: its rows, order and words."""

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
    """Table I has the paper's rows, and each difference is named."""
    frame, notes = paper_tables.table_1()
    paper = list(paper_tables.TRAITS.values())
    assert frame["Solution"].tolist()[:5] == ["BatchDVFS", "PWR", "μ-Serve", "Morak", "HeShare"]
    assert frame[paper].head(5).to_numpy().tolist()[1] == [False, False, True]
    assert frame[paper].iloc[5:].isna().all(axis=None)
    assert frame["Solution"].is_unique
    assert notes.startswith("PWR, Multi-Task Parallelism: no in the paper, yes here, because ")
    assert notes.count("in the paper") == 1


def test_table_2() -> None:
    """Table II has the paper's words with the features."""
    frame = paper_tables.table_2()
    assert frame["Name"].ne("").sum() == 5
    rows = dict(zip(frame["Description"], frame["Meaning here"], strict=True))
    assert rows["occupied L2 cache utilization"].startswith("L2 cache")
    assert rows["SM count"].startswith("Streaming multiprocessors")


def test_table_4() -> None:
    """Table IV has 15 workloads, and memory that grows with the batch size."""
    frame = paper_tables.table_4(8)
    assert len(frame) == 15
    assert frame["A sample here"].str.len().gt(0).all()
    name = "Memory of a process, {} samples (MiB)"
    assert (frame[name.format(8)] > paper_tables.table_4(4)[name.format(4)]).all()


def test_table_5() -> None:
    """Table V has the paper's two columns and two of this package."""
    errors = paper_tables.paper_errors()
    shown = paper_tables.table_5(errors.assign(mean_pct=errors["paper_pct"] + 1)).set_index("Model")
    assert shown.index.tolist() == ["SVR", "DT", "LR", "MLP", "RF"]
    assert shown.loc["MLP"].tolist() == [12.12, 5.13, 13.12, 6.13]
