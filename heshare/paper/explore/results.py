"""The fronts and runs of `import heshare as hs`: those of the stages, with plots and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from heshare.prediction.load import load_predictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.scheduling import front as stage
from heshare.scheduling import pareto
from heshare.scheduling.plan import Plan
from heshare.shared.errors import require
from heshare.shared.extras import require_extra
from heshare.shared.progress import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heshare.paper.explore.front_page import FrontPage


@dataclass(frozen=True, eq=False, repr=False)
class Front(stage.Front):
    """Pareto front that can be drawn and explored; `Front.of` makes one of plans of your own.

    `predictor` predicted the plans (None: the trained forest), `series` is the search, a name of the registry of
    styles, and `piecewise` says whether the plans' values count that tasks speed up when others of their batch end.

    Example:
        >>> import heshare as hs
        >>> front = hs.plan(4, "1xT4,1xA100")
        >>> hs.Front.of([front.jct_opt, front.en_opt])
        Front(2 plans, 382 to 441 kJ, average JCT 1,515 to 1,760 s)
    """

    predictor: Predictor | None = field(default=None, compare=False)
    series: str = field(default="HeShare", compare=False)
    piecewise: bool = field(default=True, compare=False)

    @classmethod
    def of(
        cls,
        plans: stage.Front | Iterable[Plan],
        predictor: Predictor | None = None,
        *,
        series: str = "HeShare",
        piecewise: bool = True,
    ) -> Self:
        """Return the front of a stage, or of plans by their own energy and average JCT, as one that can be explored.

        Of plans, those that another one dominates are left out; `hs.evaluate` gives plans predicted values.

        Raises:
            InputError: no plan, plans of different tasks or clusters, or values that are not finite and above zero.
        """
        if isinstance(plans, stage.Front):
            return cls(plans.plans, plans.objectives, plans.predictor_rows, predictor, series, piecewise)
        given = tuple(plans)
        good = bool(given) and all(isinstance(plan, Plan) for plan in given)
        require("plans", f"{len(given)} of which not all are plans", good, "at least one Plan", "Pass plans.")
        same = len({(plan.tasks, plan.cluster) for plan in given}) == 1
        require("plans", "plans of different tasks or clusters", same, "one task set on one cluster", "Compare others.")
        objectives = np.array([(plan.energy_j, plan.jct_s) for plan in given], dtype=np.float64)
        good = bool((np.isfinite(objectives) & (objectives > 0)).all())
        require(
            "plans", "an energy_j or jct_s of none", good, "finite values above zero", "Take hs.evaluate(...).plan."
        )
        kept = pareto.non_dominated_indices(*pareto.round_significant(objectives).T)
        return cls(tuple([given[place] for place in kept]), objectives[kept], 0, predictor, series, piecewise)

    def plot(self) -> Figure:
        """Return a figure of the front: average JCT against energy, with the three named plans."""
        require_extra("figures", "a plot")
        import matplotlib.pyplot as plt

        from heshare.paper.figures import plots, style

        with style.using():
            fig, ax = plt.subplots(figsize=(style.COLUMN_IN, 0.8 * style.COLUMN_IN), layout="constrained")
            plots.front(ax, self.to_frame())
            ax.legend()
        plt.close(fig)  # Jupyter shows the figure that is returned, and only that
        return fig

    def explore(
        self,
        path: str | Path | None = None,
        *,
        runs: Mapping[str, Run] | None = None,
        home: str = "",
    ) -> FrontPage:
        """Return a page to explore the plans, which Jupyter shows and a browser opens without network or kernel.

        A plan that is pointed at or clicked shows its predicted timeline, its energy and average JCT, and the tasks for
        which it differs from Trade-off.

        Args:
            path: an HTML file to write the page to; the same front gives the same bytes.
            runs: runs of policies on the same tasks and GPUs by title, whose timelines can be chosen below; the others
                are compared with the first one.
            home: where a link at the top of the page leads, such as `index.html`; empty for no link.

        Raises:
            InputError: the path is a folder, or a run has other tasks or GPUs.
        """
        require_extra("figures", "a page to explore")
        from heshare.paper.explore.front_page import front_page

        predictor = self.predictor or load_predictor()
        with drawn(None, desc="explore", bar_format="{desc}"):
            return front_page(self, predictor, path, series=self.series, piecewise=self.piecewise, runs=runs, home=home)


@dataclass(frozen=True, eq=False, repr=False)
class DrawableRun(Run):
    """Run whose timeline can be drawn, and opened in Perfetto."""

    @classmethod
    def of(cls, done: Run) -> Self:
        return cls(**{each.name: getattr(done, each.name) for each in fields(Run)})

    def plot(self) -> Figure:
        """Return a figure of the timeline: for each GPU its tasks, in the colour of their load, its clock and power."""
        require_extra("figures", "a plot")
        import matplotlib.pyplot as plt

        from heshare.paper.figures import style, timelines
        from heshare.paper.figures.series_styles import LOAD_CLASSES

        shown = timelines.frame(self)
        classes = [name for name in LOAD_CLASSES if (shown["kind"] == name).any()]
        with style.using():
            size_in = (style.PAGE_IN, 0.5 * len(self.cluster) + 0.7)
            fig, ax = plt.subplots(figsize=size_in, layout="constrained")
            timelines.timeline_rows(ax, shown, gpus=self.cluster.labels, classes=classes)
            timelines.timeline_legend(ax, classes)
        plt.close(fig)
        return fig

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the run as Chrome trace events (JSON), which https://ui.perfetto.dev opens; return the path."""
        from heshare.paper.figures.trace_events import write_trace

        return write_trace(self, path)
