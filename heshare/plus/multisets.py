"""Numbers of multisets: the combinatorial number system, with which tables of sets of workloads are indexed.

The predictor distinguishes workloads, not tasks, so a set of tasks is looked up as the multiset of their workloads. All
multisets of 1 to w of k workloads are numbered without gaps, sorted by size. There are C(k + s - 1, s) of size s, so
the multisets of size s begin at

    begin(s) = sum over r = 1 .. s - 1 of C(k + r - 1, r)

Adding i to the i-th of the ascending indices u_0 <= u_1 <= ... makes them distinct, and a set of distinct numbers has
the rank sum_i C(u_i + i, i + 1) among all sets of its size (combinatorial number system). Hence

    number(u_0 .. u_{s-1}) = begin(s) + sum over i of C(u_i + i, i + 1)

Example: of two workloads there are the multisets {0}, {1}, {0, 0}, {0, 1}, {1, 1}, with the numbers 0 to 4.

>>> begins, coefficients = multiset_begins(2, 2), binomials(2, 2)
>>> begins.tolist()
[0, 0, 2, 5]
>>> multiset_numbers(np.array([[0, 0], [0, 1], [1, 1]]), begins, coefficients).tolist()
[2, 3, 4]
>>> multiset_number(np.array([0, 1]), 2, begins, coefficients)
3

Source: Buckles and Lybanon 1977, Generation of a vector from the lexicographical index, doi:10.1145/355732.355739.
"""

from math import comb

import numpy as np

from heshare.arrays import IntArray
from heshare.compiling import allocation_free


def binomials(workloads: int, width: int) -> IntArray:
    """Return the binomial coefficients C(a, b) that the numbers need, shape (workloads + width, width + 1)."""
    return np.array([[comb(a, b) for b in range(width + 1)] for a in range(workloads + width)], dtype=np.int64)


def multiset_begins(workloads: int, width: int) -> IntArray:
    """Return the first number of the multisets of each size 0 to `width`, then their count, shape (width + 2,)."""
    counts = [0, 0, *(comb(workloads + size - 1, size) for size in range(1, width + 1))]
    return np.cumsum(np.array(counts, dtype=np.int64))


def multiset_numbers(multisets: IntArray, begins: IntArray, coefficients: IntArray) -> IntArray:
    """Return the number of each multiset of one size, each row ascending, shape (m, s) -> (m,)."""
    size = multisets.shape[1]
    ranks = coefficients[multisets + np.arange(size), np.arange(1, size + 1)].sum(axis=1)
    return np.asarray(begins[size] + ranks, dtype=np.int64)


@allocation_free
def multiset_number(multiset: IntArray, size: int, begins: IntArray, coefficients: IntArray) -> int:
    """Return the number of the multiset in the first `size` places: the compiled form of `multiset_numbers`."""
    number = int(begins[size])
    for i in range(size):
        number += int(coefficients[multiset[i] + i, i + 1])
    return number
