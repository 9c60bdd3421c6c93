"""The worst test of each kind of question: which kind a test has, which test is shown, and its coverage."""

import pandas as pd
import pytest

ERRORS = pd.DataFrame(
    {"test": ["T4 clock", "A100 clock", "A100 power"], "n": [1, 1, 2], "mape_pct": [1.0, 3.0, 2.0], "p90_pct": 6.0}
)
COVERAGE = pd.DataFrame(
    {"grouping": ["all", "test", "gpu"], "group": [None, "A100 clock", "A100"], "n": [4, 1, 3], "within_90_pct": 91.0}
)


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("cnn fp32, a GPU left out, features only", "GPU or network never measured"),
        ("RTX-3080-Ti under MPS, power, a network left out", "power"),
        ("RTX-3080-Ti under MPS, time, a network left out", "MPS percentage"),
    ],
)
def test_kind_of_test(test: str, kind: str) -> None:
    """A test is of the first kind of question that has one of its words."""
    from heshare.paper.studies import platform_errors

    assert platform_errors.question(test) == kind


def test_committed_tests() -> None:
    """Every committed test has a kind."""
    from heshare.lab.calibration.measurements import table
    from heshare.paper.studies import platform_errors

    assert set(table("errors")["test"].map(platform_errors.question)) == set(platform_errors.QUESTIONS)


def test_worst_by_kind() -> None:
    """The largest error of each kind is shown below all points."""
    from heshare.paper.studies import platform_errors

    shown = platform_errors.worst_by_question(ERRORS, COVERAGE).set_index("test")
    assert list(shown.index) == [platform_errors.ALL, "A100 clock", "A100 power"]
    assert shown.loc[platform_errors.ALL, ["n", "mape_pct", "within_90_pct"]].tolist() == [4, 2.0, 91.0]
    assert shown.loc["A100 clock", "within_90_pct"] == 91.0
    assert pd.isna(shown.loc["A100 power", "within_90_pct"])
