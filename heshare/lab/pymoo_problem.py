"""Stage 1, the GPU of each task, as a problem for the algorithms of pymoo."""

from collections.abc import Callable
from typing import Any

import numpy as np

from heshare.scheduling.objectives import Instance
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require

NEVER = 1e30
"""Objectives of a scheme that breaks a constraint; infinite ones have no crowding distance."""


def scheduling_problem(
    instance: Instance, evaluate: Callable[[IntArray], FloatArray], configured: Callable[[IntArray], Any] | None = None
) -> Any:
    """Return stage 1 as a `pymoo.core.problem.Problem`: the GPU of each task, with objectives by `evaluate`.

    Args:
        instance: the tasks and GPUs.
        evaluate: returns the objectives of p schemes, shape (p, n) -> (p, 2).
        configured: converts schemes to plans. With it `problem.front(x)` returns them, and a task on a GPU that it
            does not fit violates a constraint.
    """
    from pymoo.core.problem import Problem

    class Scheduling(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            limits = int(configured is not None and not instance.fits.all())
            super().__init__(n_var=instance.n, n_obj=2, n_ieq_constr=limits, xl=0, xu=instance.k - 1, vtype=int)

        def _evaluate(self, x: FloatArray, out: dict[str, FloatArray], *args: Any, **kwargs: Any) -> None:
            schemes = self.schemes(x)
            out["F"] = evaluate(schemes)
            if self.n_ieq_constr:
                too_large = (~instance.fits[np.arange(instance.n), schemes]).sum(axis=1)
                out["F"] = np.where(too_large[:, None] > 0, NEVER, out["F"])
                out["G"] = too_large[:, None].astype(np.float64)

        def schemes(self, x: FloatArray) -> IntArray:
            """Return schemes, GPU indices of shape (p, n); numbers that are not whole are rounded."""
            try:
                found = np.rint(np.atleast_2d(np.asarray(x, dtype=np.float64)))
            except (TypeError, ValueError):
                found = np.empty((0, 0))
            good = found.ndim == 2 and found.shape[1] == self.n_var and bool(((found >= 0) & (found <= self.xu)).all())
            good = good and len(found) > 0
            expected = f"GPU indices from 0 to {int(self.xu[0])}, shape (p, {self.n_var}), at least one row"
            require("x", f"{type(x).__name__} of shape {np.shape(x)}", good, expected, "Pass the result's X, if any.")
            return found.astype(np.int64)

        def front(self, x: FloatArray) -> Any:
            return None if configured is None else configured(self.schemes(x))

    return Scheduling()
