"""The page of the plans of Fig. 6."""

from __future__ import annotations

import json
import os
from pathlib import Path

from heshare.paper.page import fig6_plans


def test_page_of_plans(tmp_path: Path) -> None:
    """The page is made for the figure's parameters, and again only when the figure is newer."""
    assert fig6_plans.write(tmp_path) == "", "no figure, no page"

    figure = tmp_path / "fig06_comparison.json"
    parameters = {"cluster": "1xT4,1xA100", "tasks": 3, "batch_sizes": [4, 8], "seed": 0}
    figure.write_text(json.dumps({"parameters": parameters}), encoding="utf-8")
    page = tmp_path / fig6_plans.write(tmp_path)
    html = page.read_text("utf-8")
    assert "1xT4,1xA100" in html
    assert all(title in html for title in ("Trade-off", "Random", "Morak", "μ-Serve"))

    page.write_text("kept", encoding="utf-8")
    fig6_plans.write(tmp_path)
    assert page.read_text("utf-8") == "kept"

    newer_s = page.stat().st_mtime + 10
    os.utime(figure, (newer_s, newer_s))
    fig6_plans.write(tmp_path)
    assert page.read_text("utf-8") == html
