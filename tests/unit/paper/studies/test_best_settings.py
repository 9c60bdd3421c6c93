"""Best settings: what is tried, what is chosen, and that every notebook reads the committed table."""

import json
from pathlib import Path

import pandas as pd
import pytest

from heshare.paper.notebooks import parameters
from heshare.paper.studies import best_settings
from heshare.policies import registry
from heshare.shared import files
from heshare.shared.errors import InputError


@pytest.mark.parametrize("study", list(best_settings.STUDIES))
def test_settings_table_has_what_the_script_tries_and_chooses_the_least(study: str) -> None:
    table = best_settings.read()
    rows = table[table["study"] == study]
    for system, policies in best_settings.candidates(study).items():
        own = rows[rows["system"] == system]
        assert own["policy"].tolist() == policies, "run `python benchmarks/settings.py`"
        assert own["chosen"].sum() == 1
        assert own.loc[own["chosen"], "over_best"].item() == 1 == own["over_best"].min()
    assert set(rows["system"]) == set(best_settings.candidates(study))
    assert {registry.canonical(policy) for policy in rows["policy"]} == set(rows["policy"])


def test_settings_are_chosen_on_a_seed_that_no_notebook_uses() -> None:
    assert set(best_settings.read()["seed"]) == {best_settings.SEED}
    for path in parameters.find():
        assert f"seed = {best_settings.SEED}" not in path.read_text("utf-8")


@pytest.mark.parametrize("name", ["04_comparison", "06_mixes", "10_together"])
def test_notebooks_read_the_settings_table(name: str) -> None:
    cells = json.loads((files.root() / "notebooks" / f"{name}.ipynb").read_text("utf-8"))["cells"]
    code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "best_settings.chosen(" in code
    assert "morak(" not in code
    assert "mu-serve(" not in code


def test_tried_chooses_the_least_energy_times_jct(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(study: object, policies: list[str], seeds: int, folder: Path | None) -> pd.DataFrame:
        # One of SRTF's clocks takes less energy, another less time; the first world is four times as large.
        product = dict.fromkeys(policies, (4.0, 1.0))
        product |= {"srtf(ceiling=0.7)": (2.0, 1.0), "srtf(ceiling=0.8)": (3.0, 0.5)}
        rows = [
            (policy, number, world, scale * 1e6 * one, two)
            for policy, (one, two) in product.items()
            for number in range(seeds)
            for world, scale in (("a", 4.0), ("b", 1.0))
        ]
        return pd.DataFrame(rows, columns=["policy", "repetition", "world", "energy_active_j", "avg_jct_s"])

    monkeypatch.setattr(best_settings.ComparisonWorlds, "run", run)
    found = best_settings.tried("comparison", seeds=2)
    own = found[found["system"] == "SRTF, fixed clock"].set_index("policy")
    assert own.index[own["chosen"]].tolist() == ["srtf(ceiling=0.8)"]
    assert own.loc["srtf(ceiling=0.7)", "over_best"] == pytest.approx(2.0 / 1.5, rel=1e-3)
    assert own.loc["srtf(ceiling=0.8)", ["energy_mj", "avg_jct_s"]].tolist() == pytest.approx([6.0, 0.5])
    assert set(best_settings.RIVALS) <= set(found["system"])
    with pytest.raises(InputError, match="benchmarks/settings"):
        best_settings.chosen("none")
