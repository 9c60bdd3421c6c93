"""One choice at a time: each is compared with the setting that differs from it in that choice alone."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from heshare.paper.harness import NEVER_WRONG, Setting
from heshare.paper.studies import platforms, single_choices
from heshare.paper.studies.single_choices import Choice

SYSTEMS = {
    "Random": "random",
    "Morak": "morak",
    "μ-Serve": "mu-serve",
    "Trade-off": "heshare:trade-off(generations=3)",
    "En-opt": "heshare:en-opt(generations=3)",
    "JCT-opt": "heshare:jct-opt(generations=3)",
}
SETTING = Setting(cluster="1xT4,1xA100", tasks=4)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    in_setting = {"predictor": {NEVER_WRONG: {"predictor": NEVER_WRONG}}}
    in_policies = {"Morak's cap": {"0.4": {"Morak": "morak(cap=0.4)"}}}
    choices = single_choices.choices(SETTING, in_setting, in_policies)
    in_fp16 = replace(SETTING, precision="fp16", predictor=NEVER_WRONG)
    choices.append(Choice("precision", "fp16", in_fp16, base=("predictor", NEVER_WRONG)))
    return single_choices.numbers_of(choices, SYSTEMS, seeds=2, seed=0)


def test_choice_of_morak(table: pd.DataFrame) -> None:
    """A choice of morak moves numbers against morak alone."""
    own = table[table["axis"] == "Morak's cap"]
    assert set(own.loc[own["moved"] != 0, "id"]) == {"H1"}


def test_fp16(table: pd.DataFrame) -> None:
    """fp16 is compared with the predictor that it has."""
    values = table.set_index(["axis", "id", "part"])
    fp16, never_wrong = values.loc["precision"], values.loc["predictor"]
    of_fig_6 = fp16[fp16.index.get_level_values("id").str.startswith("H")]
    assert of_fig_6["base_value"].to_dict() == never_wrong["value"].to_dict()


def test_section_2() -> None:
    """Section II depends on the platform and on the largest inference batch size."""
    usual = single_choices.section_2(SETTING).set_index("id")["value"]
    other = single_choices.section_2(replace(SETTING, platform=platforms.T4_OF_FIG_2)).set_index("id")["value"]
    assert other["M2"] == pytest.approx(2.5)
    assert other["M7"] == usual["M7"]
    assert single_choices.section_2(replace(SETTING, batch_sizes=(8,))).set_index("id")["value"].equals(usual)
