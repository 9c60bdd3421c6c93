"""The registry of styles: every policy and GPU has one, families share a hue, and an unknown name is an error."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from heshare.paper.figures import style
from heshare.paper.figures.series_styles import CATEGORIES, SERIES, series_style, style_own
from heshare.policies import registry
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpus

GPUS = ("T4", "V100", "A100", "H100", "H200")
PAPER = ("Random", "Sched-only", "Trade-off", "En-opt", "JCT-opt", "Morak", "μ-Serve")


@pytest.mark.parametrize("name", ["", "Somebody", "T5", "Moraks", "HeShare!"])
def test_an_unknown_name_is_an_error(name: str) -> None:
    with pytest.raises(InputError, match=r"registry of styles"):
        series_style(name)


def test_no_policy_has_a_gpus_colour_and_no_category_has_a_systems() -> None:
    of_gpus = {series_style(name).colour for name in GPUS}
    others = {how.colour for name, how in SERIES.items() if name not in GPUS}
    assert not of_gpus & others
    assert not {each.colour for each in CATEGORIES} & (of_gpus | others)


def test_the_papers_gpus_differ_in_grey() -> None:
    greys = [np.dot(to_rgb(series_style(name).colour), (0.3, 0.59, 0.11)) for name in ("A100", "V100", "T4")]
    assert np.diff(greys).min() > 0.15
    assert greys[-1] < 0.7, "it vanishes on white"


def test_a_rival_with_heshares_placement_has_its_own_hue_unfilled() -> None:
    for name in ("Morak", "μ-Serve"):
        plain, placed = series_style(name), series_style(f"{name}, HeShare's placement (k=3)")
        assert (placed.colour, placed.marker) == (plain.colour, plain.marker)
        assert plain.filled
        assert (placed.filled, placed.face) == (False, "white")


def test_a_baseline_that_starts_all_tasks_at_once_has_its_own_hue_unfilled() -> None:
    for name in ("Random", "Sched-only"):
        plain, together = series_style(name), series_style(f"{name}, all at once")
        assert (together.colour, together.marker, together.filled) == (plain.colour, plain.marker, False)
        assert plain.filled


def test_heshare_by_the_papers_words_has_its_own_hue_unfilled() -> None:
    for name in ("HeShare", "Trade-off", "JCT-opt"):
        plain, literal = series_style(name), series_style(f"{name}, literally")
        assert (literal.colour, literal.filled, literal.line) == (plain.colour, False, ":")


def test_settings_do_not_change_a_style() -> None:
    assert series_style("Morak (cap=1.0,k=3)") == series_style("Morak")
    assert series_style("NSGA-II at 0.1") == series_style("NSGA-II") != series_style("NSGA-II at 1/n")
    assert series_style("HeShare+ Trade-off, online").colour == series_style("HeShare+").colour


def test_every_registered_policy_and_catalogued_gpu_has_a_style() -> None:
    own = [entry for entry in registry.policies().values() if entry.factory.__module__.startswith("heshare.")]
    for entry in (entry for entry in own if not entry.factory.__module__.endswith("function_policy")):
        assert series_style(entry.title).colour
    for gpu in gpus():
        assert series_style(gpu).colour


def test_a_policy_of_ones_own_gets_a_style_that_nothing_else_has() -> None:
    style_own("Quartet")
    assert series_style("Quartet").colour not in {series_style(name).colour for name in (*PAPER, "HeShare+", *GPUS)}


def test_legend_colours_tells_lines_and_unfilled_patches() -> None:
    fig, ax = plt.subplots()
    ax.plot([0, 1], [0, 1], color="#0072B2", label="line")
    patch = Patch(facecolor="white", edgecolor="#E69F00", label="patch")
    fig.legend(handles=[*ax.lines, patch])
    assert style.legend_colours(fig) == {"line": ["#0072B2"], "patch": ["#E69F00"]}
    plt.close(fig)
