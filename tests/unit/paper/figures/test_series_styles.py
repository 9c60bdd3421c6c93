"""The registry of styles: every policy and GPU has one, families share a hue, and an unknown name is an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heshare.policies import registry
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpus

GPUS = ("T4", "V100", "A100", "H100", "H200")
PAPER = ("Random", "Sched-only", "Trade-off", "En-opt", "JCT-opt", "Morak", "μ-Serve")


@pytest.mark.parametrize("name", ["", "T5", "Moraks"])
def test_unknown_name(name: str) -> None:
    """A name without a style is an error."""
    from heshare.paper.figures.series_styles import series_style

    with pytest.raises(InputError, match="styles"):
        series_style(name)


def test_distinct_colours() -> None:
    """No policy has a GPU's colour, no category a system's, and a policy of one's own gets a new one."""
    from heshare.paper.figures.series_styles import CATEGORIES, SERIES, series_style, style_own

    of_gpus = {series_style(name).colour for name in GPUS}
    others = {how.colour for name, how in SERIES.items() if name not in GPUS}
    assert not of_gpus & others
    assert not {each.colour for each in CATEGORIES} & (of_gpus | others)

    style_own("Quartet")
    assert series_style("Quartet").colour not in {series_style(name).colour for name in (*PAPER, "HeShare+", *GPUS)}


def test_variant_of_policy() -> None:
    """A variant of a policy has its colour and its mark, unfilled; settings do not change a style."""
    from heshare.paper.figures.series_styles import series_style

    for plain, variant in (("Morak", "Morak, HeShare's placement (k=3)"), ("Random", "Random, all at once")):
        assert series_style(variant) == replace(series_style(plain), filled=False)
    assert series_style("Morak (cap=1.0,k=3)") == series_style("Morak")
    assert series_style("NSGA-II at 0.1") == series_style("NSGA-II") != series_style("NSGA-II at 1/n")
    assert series_style("HeShare+ Trade-off, online").colour == series_style("HeShare+").colour


def test_every_name() -> None:
    """Every policy of the package and every GPU has a style."""
    from heshare.paper.figures.series_styles import series_style

    own = [entry for entry in registry.policies().values() if entry.factory.__module__.startswith("heshare.")]
    for entry in (entry for entry in own if not entry.factory.__module__.endswith("function_policy")):
        assert series_style(entry.title).colour
    for gpu in gpus():
        assert series_style(gpu).colour
