"""The summary of JCTs."""

import pytest

from heshare.running.result import jct_summary
from heshare.shared.errors import InputError


def test_jct_summary_is_average_median_and_99th_percentile():
    assert jct_summary([1.0, 2.0, 3.0, 6.0]) == {
        "avg_jct_s": 3.0,
        "median_jct_s": 2.5,
        "p99_jct_s": pytest.approx(3.0 + 0.97 * 3.0),
    }
    with pytest.raises(InputError, match="at least one"):
        jct_summary([])
