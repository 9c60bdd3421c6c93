"""Sources of figures: recorded settings as measured, others by a fitted model, and what a record cannot answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.devices.constants import default
from heshare.paper import harness
from heshare.paper.claims import card_claims
from heshare.paper.studies import sources
from heshare.paper.studies.sources import CLOCKS, FRONTS, KINDS, PAPER, Source
from heshare.prediction.features import is_reference
from heshare.profiles.schema import residents_of
from heshare.shared.errors import InputError


@pytest.fixture(scope="module")
def h100() -> Source:
    # The shipped constants in place of the fit, which takes half a minute.
    found = Source("recorded:H100", sources.read("recorded:H100").records, ())
    found.__dict__["constants"] = default()
    return found


def test_read(made_up_h100: Path) -> None:
    """Several cards are joined, a path counts by its last folder; another form, or a card twice, is refused."""
    both = sources.read(f"recorded:{made_up_h100},emulated:T4")
    assert (both.gpus, both.folder) == (("H100", "T4"), "recorded-H100+emulated-T4")
    assert sources.read("emulated").is_default
    for text in ("measured", "recorded:", "recorded:H100,", "H100"):
        with pytest.raises(InputError, match="source"):
            sources.read(text)
    with pytest.raises(InputError, match="each card once"):
        sources.read("recorded:H100,emulated:H100")
    with pytest.raises(InputError, match="recorded GPU"):
        sources.read("recorded:NoSuchGpu")


def test_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in a source does not depend on the current folder; names stay."""
    monkeypatch.chdir(tmp_path)
    found = sources.absolute("recorded:./L4,recorded:H100,emulated:T4")
    assert found == f"recorded:{tmp_path}/L4,recorded:H100,emulated:T4"


def test_default_source() -> None:
    """The default source leaves every parameter as it is, and answers everything."""
    emulated = sources.read("emulated")
    assert emulated.cluster("4xT4,2xL4") == "4xT4,2xL4"
    assert emulated.mixes(["2xT4,2xL4"]) == ["2xT4,2xL4"]
    assert emulated.kinds(["L4"]) == ["L4"]
    assert emulated.batch_sizes([3]) == [3]
    assert emulated.lacks() == []
    assert emulated.oracle() is None


def test_clusters(h100: Source) -> None:
    """Clusters are of the source's cards: as given where it has them, else four; sizes are recorded ones."""
    assert h100.cluster("4xT4,2xV100,2xA100") == "4xH100"
    assert h100.cluster("2xH100") == "2xH100"
    assert (h100.kinds(["T4", "V100"]), h100.mixes(["2xT4,2xV100"])) == (["H100"], [])
    assert (h100.batch_sizes([4, 8]), h100.precision) == ([8], "tf32")

    three = sources.read("recorded:H100,emulated:T4,emulated:A100")
    assert three.cluster("4xT4,2xV100") == "2xH100,1xT4,1xA100"
    assert three.mixes(["2xT4,2xV100"])[0] == "2xH100,2xT4"
    assert len(three.mixes(["2xT4,2xV100"])) == 4


def test_given(h100: Source) -> None:
    """Cards and inference batch sizes that a user has named must be of the source."""
    h100.check({"cluster": "8xH100", "kinds": ["H100"], "batch_sizes": [8], "tasks": 3})
    for wrong in ({"cluster": "8xA100"}, {"clusters": ["2xH100", "2xH100,2xT4"]}, {"batch_sizes": [4, 8]}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            h100.check(wrong)
    sources.read("emulated").check({"cluster": "8xL4", "batch_sizes": [3]})


def test_unusable_record(made_up_h100: Path, tmp_path: Path) -> None:
    """A record with errors is refused before anything runs, with the first of them."""
    lines = (made_up_h100 / "profile.csv").read_text().splitlines(keepends=True)
    (tmp_path / "profile.csv").write_text("".join(lines[:10]))
    with pytest.raises(InputError, match="errors, first"):
        sources.read(f"recorded:{tmp_path}").check({})


def test_local_record(made_up_h100: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder here needs no slash, and a table is a record; a name of this package comes first."""
    monkeypatch.chdir(made_up_h100.parent.parent)
    found = sources.absolute(f"recorded:{made_up_h100.parent.name}")
    assert found == f"recorded:{made_up_h100.parent}"
    (record,) = sources.read(f"recorded:{made_up_h100 / 'profile.csv'}").records
    assert record.path.parent == made_up_h100
    monkeypatch.chdir(made_up_h100.parent)
    assert sources.absolute("recorded:H100") == "recorded:H100"


def test_recorded_answers(h100: Source) -> None:
    """A recorded setting has its measured time and power; the only clock is the recorded one."""
    (gpu,) = h100.gpus_of("1xH100").kinds
    assert gpu.clocks_mhz == (1980,)
    card = h100._card(gpu)
    row = next(h100.tables[is_reference(h100.tables)].itertuples())
    found = card.estimate(residents_of(row))
    assert (found.tasks[0].time_s, found.power_w) == (row.time_s, row.power_w)
    assert card.is_recorded(residents_of(row))
    assert not card.is_recorded(residents_of(row) * 5)
    assert card.estimate(residents_of(row) * 5).power_w > found.power_w


def test_lacks(h100: Source) -> None:
    """A record of one card at one clock lacks clocks, kinds and the paper's GPUs; each has a command."""
    lacks = h100.lacks()
    assert [lack.need for lack in lacks] == [CLOCKS, KINDS, FRONTS, PAPER]
    assert all(lack.command for lack in lacks)
    assert sources.without("recorded:H100", ["needs-clocks"]) == lacks[0]
    assert sources.without("recorded:H100", ["parameters"]) is None
    assert sources.without("emulated", ["needs-clocks"]) is None
    assert sources.read("recorded:H100,emulated:T4").lack(KINDS) is None


@pytest.mark.slow
def test_run(h100: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on recorded cards are marked as fitted; one task at a time runs at recorded settings only."""
    monkeypatch.setattr(sources, "read", lambda text: h100)
    setting = harness.setting_on(h100, cluster="2xH100", tasks=6, batch_sizes=(8,))
    systems = {"Random": "random", "Trade-off": "heshare:trade-off"}
    runs = harness.run(setting, systems, seeds=1, measures={"recorded": h100.recorded_pct})
    assert set(runs["provenance"]) == {"fitted"}
    assert runs["recorded"].tolist()[0] == pytest.approx(100.0)
    assert 0 <= runs["recorded"].tolist()[1] <= 100


def test_answers(h100: Source) -> None:
    """A comparison with rivals that set clocks cannot be asked at one clock; another one by its whole interval."""
    asked = {"source": h100, "profile": "paper", "provenance": "fitted"}
    less, unsure = (harness.ConfidenceInterval(-5.0, low, high, 10) for low, high in ((-9.0, -1.0), (-9.0, 1.0)))
    assert card_claims.evaluate("H3", "Random", less, **asked)["answer"] == card_claims.HOLDS
    assert card_claims.evaluate("H3", "Random", unsure, **asked)["answer"] == card_claims.FAILS

    own = card_claims.evaluate("H3", "JCT-opt", less, **asked)
    assert own["answer"] == card_claims.NOT_ASKED
    assert "same energy" in own["why"]

    rival = card_claims.evaluate("H1", "jct", less, **asked)
    assert rival["answer"] == card_claims.NOT_ASKED
    assert "one clock" in rival["why"]
    assert rival["value"] == -5.0


def test_written_answers(h100: Source, tmp_path: Path) -> None:
    """The table of a source has a row for each statement that cannot be asked, whether or not a notebook ran."""
    table = card_claims.write(tmp_path, h100)
    assert set(table["answer"]) == {card_claims.NOT_ASKED}
    assert {"M1", "H1", "G5", "S1"} <= set(table["id"])
    assert ("H3", "Random") not in set(zip(table["id"], table["part"], strict=True))
    assert card_claims.count_text(table) == f"{len(table)} cannot be asked"
    answers = table[:3].assign(answer=[card_claims.HOLDS, card_claims.FAILS, card_claims.FAILS])
    assert card_claims.count_text(answers) == "1 holds, 2 do not hold"
