"""The table that numbers rows of integers, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.shared.caches.row_table import EMPTY, RowTable, sorted_sets, values_in_order

ENTRIES = st.lists(st.integers(0, 3), max_size=5)


@given(st.lists(st.lists(ENTRIES, min_size=1, max_size=9), max_size=6))
@pytest.mark.slow
def test_numbers_are_those_of_a_dictionary(calls: list[list[list[int]]]) -> None:
    table, expected = RowTable(), dict[tuple[int, ...], int]()
    for rows in calls:
        width = max(map(len, rows))
        padded = np.array([row + [EMPTY] * (width - len(row)) for row in rows]).reshape(len(rows), width)
        wanted = [expected.setdefault(tuple(row), len(expected)) for row in rows]
        assert table.numbers(padded).tolist() == wanted
    assert len(table) == len(expected)
    for row, number in expected.items():
        assert [entry for entry in table.since(number)[0].tolist() if entry != EMPTY] == list(row)


def test_sets_in_any_order_are_one_row_and_values_go_back_to_their_places() -> None:
    heads, members = np.array([[7], [7]]), np.array([[3, EMPTY, 5], [EMPTY, 5, 3]])
    rows, order = sorted_sets(heads, members)
    assert rows.tolist() == [[7, 5, 3, EMPTY]] * 2
    values = values_in_order(np.array([1, 1]), order, np.array([0.0, 50.0, 30.0]), -1.0)
    assert values.tolist() == [[30.0, -1.0, 50.0], [-1.0, 50.0, 30.0]]


def test_rows_of_a_table_that_grows_keep_their_numbers() -> None:
    table, rows = RowTable(), np.array([[i, i % 7, 1000 - i] for i in range(5_000)])
    first = table.numbers(rows[:700])
    assert table.numbers(rows).tolist() == list(range(5_000))
    assert table.numbers(rows[:700]).tolist() == first.tolist()
    assert table.numbers(np.c_[rows, np.full((5_000, 3), 1)]).tolist() == list(range(5_000, 10_000))
