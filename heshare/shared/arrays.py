"""Array types for annotations: the kind of the elements; docstrings state the shapes."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def distinct_rows(table: IntArray) -> tuple[IntArray, IntArray]:
    """Return the indices of the distinct rows of a table of numbers below 2**31, and which of them each row equals.

    Returns:
        Shapes (d,) and (rows,).
    """
    # Rows as opaque bytes sort much faster than `np.unique` with axis=0.
    rows = np.ascontiguousarray(table, dtype=np.int32)
    opaque = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    return first, inverse.ravel()
