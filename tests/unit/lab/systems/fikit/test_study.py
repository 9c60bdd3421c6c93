"""The study of FIKIT: complete frames, and gains that are ratios of its runs."""

import pytest

from heshare.lab.systems.fikit.kernel_table import KernelRow, write
from heshare.lab.systems.fikit.kernel_trace import traces
from heshare.paper.studies.systems import fikit_study as study
from heshare.shared.errors import InputError

MODELS = study.traced(["mobilenetv2", "resnet50"])
ONE = study.traced(["mobilenetv2"])


@pytest.fixture(scope="module")
def runs():
    settings = [study.PairSetting(0.0), study.PairSetting(0.3), study.PairSetting(0.3, waits=study.EACH)]
    return study.study(settings, ways=["FIKIT", "time slices"], models=MODELS, requests=5, seeds=2, seed=1)


def test_study_has_every_case_once(runs):
    keys = ["high", "low", "load", "waits", "slice_ms", "sharing", "repetition"]
    assert len(runs) == 4 * 3 * 2 * 2
    assert not runs.duplicated(keys).any()
    plain = runs[runs["waits"] == 1]
    assert plain["alone_s"].to_numpy() == pytest.approx([traces()[name].alone()[1] for name in plain["high"]])
    assert (runs["low_speed"] <= 1.02).all()


def test_summary_shows_more_gain_with_a_host_that_waits(runs):
    rows = study.summary(study.gains(runs), ["load", "waits"]).set_index(["load", "waits"])
    assert rows.loc[(0.3, study.EACH), "median"] > 1.5 * rows.loc[(0.3, 1), "median"]
    assert rows.loc[(0.0, 1), "low_most"] < 1e-6, "gaps between kernels are too short to be filled"
    assert (rows["least"] <= rows["median"]).all()
    assert (rows["median"] <= rows["most"]).all()


def test_overhead_pct_of_a_host_bound_model_and_its_limit_at_5_percent():
    rows = study.overhead_pct(MODELS).set_index("model")
    assert rows.loc["mobilenetv2", "overhead_pct"] == pytest.approx(
        100 * 152 * 1e-3 / rows.loc["mobilenetv2", "alone_ms"]
    )
    assert rows.loc["resnet50", "overhead_pct"] < 0.1
    limit_us = rows.loc["mobilenetv2", "limit_us"]
    assert study.overhead_pct(ONE, 1e-6 * limit_us)["overhead_pct"].item() == pytest.approx(5, abs=0.4)


def test_by_class_shows_that_urgent_tasks_gain_from_fikit():
    rows = study.by_class(["fikit", "random:all-at-once"], "1xV100", 8, seeds=2, seed=0).set_index("policy")
    assert rows.loc["fikit", "urgent_jct_s"] < rows.loc["random:all-at-once", "urgent_jct_s"]
    assert rows.loc["fikit", "other_jct_s"] > rows.loc["random:all-at-once", "other_jct_s"]


def test_traced_reads_recorded_kernels(tmp_path, monkeypatch):
    place = ("fp32", 0, 1, "gemm", "108x1x1", "128x1x1", 50.0, 0.0, 0.0, 0.0, 5)
    table = tmp_path / "profiles" / "measured" / "A100" / "kernels.csv"
    table.parent.mkdir(parents=True)
    write([KernelRow("A100", "measured", "resnet18", 4, *place)], table)
    monkeypatch.setattr(study.files, "data", lambda *parts: tmp_path.joinpath(*parts))
    assert list(study.traced([], recorded="A100")) == ["resnet18:4"]
    with pytest.raises(InputError, match="T4"):
        study.traced([], recorded="T4")
