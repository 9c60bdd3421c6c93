"""The page to explore Fig. 6: made from the figure's parameters, once."""

from __future__ import annotations

import json
import os
from pathlib import Path

from heshare.paper.page import fig6_plans


def test_page_is_made_for_the_parameters_of_the_figure_and_only_when_it_is_older(tmp_path: Path) -> None:
    assert fig6_plans.write(tmp_path) == "", "no figure, no page"
    figure = tmp_path / "fig06_comparison.json"
    parameters = {"cluster": "1xT4,1xA100", "tasks": 4, "batch_sizes": [4, 8], "seed": 0}
    figure.write_text(json.dumps({"parameters": parameters}), encoding="utf-8")

    page = tmp_path / fig6_plans.write(tmp_path)
    html = page.read_text("utf-8")
    assert "plans of 4 tasks on 1xT4,1xA100" in html
    assert '<a href="index.html">' in html
    assert all(f"{title}, as run" in html for title in ("Trade-off", "Random", "Morak", "μ-Serve"))

    page.write_text("kept", encoding="utf-8")
    fig6_plans.write(tmp_path)
    assert page.read_text("utf-8") == "kept"
    newer_s = page.stat().st_mtime + 10
    os.utime(figure, (newer_s, newer_s))
    fig6_plans.write(tmp_path)
    assert page.read_text("utf-8") == html
