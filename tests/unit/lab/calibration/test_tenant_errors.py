"""Errors of the two ways of dividing energy against the public record of power alone."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare.lab.calibration.measurements import MPS_MODELS
from heshare.lab.calibration.validation import tenant_errors as tenant_errors
from heshare.lab.calibration.validation.tenant_errors import (
    ADDITIVE,
    EQUAL,
    MODEL,
    PERCENTAGE,
    copies,
    errors_by_way,
    pair_errors,
)
from heshare.shared import files


def test_tenant_errors_csv_is_the_committed_file():
    committed = pd.read_csv(files.data("calibration", "tenant_errors.csv"))
    pd.testing.assert_frame_equal(committed, errors_by_way(pair_errors()), check_dtype=False, atol=0.1)


def test_the_device_model_divides_far_better_than_equal_shares_where_shares_differ():
    table = errors_by_way(pair_errors()).set_index(["reference", "way", "shares"])
    assert table.loc[(ADDITIVE, MODEL, "all"), "mape_pct"] < 5.0
    assert table.loc[(ADDITIVE, MODEL, "all"), "p90_pct"] < 10.0
    assert table.loc[(ADDITIVE, EQUAL, "all"), "mape_pct"] > 30.0
    # At 10 % each all of them draw about the same, and equal shares are the better way.
    assert table.loc[(ADDITIVE, EQUAL, "10+10"), "mape_pct"] < table.loc[(ADDITIVE, MODEL, "10+10"), "mape_pct"] < 5.0
    assert table.loc[(ADDITIVE, PERCENTAGE, "50+50"), "mape_pct"] > 15.0


def test_pairs_are_of_different_networks_within_the_power_limit_and_sum_to_the_reference():
    errors = pair_errors()
    assert errors["pair"].nunique() == 184
    assert errors["tenant"].str.split(":").str[0].nunique() == len(MPS_MODELS)
    assert all(pair.split(" ")[0].split(":")[0] != pair.split(" ")[1].split(":")[0] for pair in errors["pair"])
    sums = errors.groupby(["reference", "way", "pair"])[["reference_w", "divided_w"]].sum()
    assert sums["divided_w"].tolist() == pytest.approx(sums["reference_w"].tolist(), rel=1e-9)
    assert sums["reference_w"][ADDITIVE].max() <= 300.0


def test_copies_of_one_network_draw_more_than_the_sum_of_their_power_alone():
    table = copies()
    assert table["power_w"].tolist() == [117.56, 184.89, 258.89]
    assert table["over_alone_pct"].tolist() == pytest.approx([0.0, 2.55, 6.87], abs=0.01)
