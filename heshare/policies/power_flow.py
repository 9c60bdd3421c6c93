"""PowerFlow (Gu et al., 2023): the least average JCT under an energy budget, by GPUs and clocks of elastic training.

Its text was not at hand: the abstract, the terms of its models and the greedy algorithm as others ported it are known
(Algorithm 1; `heshare.policies.allocation.moves`). What is assumed is a parameter here.

Each job begins with its fewest GPUs at its clock of least energy; jobs are admitted shortest remaining time first; then
the moves of the best gain in JCT for their energy are made while GPUs and the budget last. Blocks of GPUs come from a
buddy allocator and move only to make room. GPUs are never shared. A task with one width has no GPUs to gain: for the
inference tasks of Table IV PowerFlow is shortest remaining time first with a marginal choice of clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from heshare.policies.allocation import pools
from heshare.policies.allocation.models import Models
from heshare.policies.allocation.moves import Menu, Setting, admit, grow
from heshare.policies.allocation.packing import in_turn, place
from heshare.policies.allocation.pools import Job, Pool
from heshare.policies.description import check
from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task

# A job with less than this left is left alone: it completes at this very moment.
_OVER_S = 1e-6


@register("power-flow", title="PowerFlow")
@register("srtf", title="SRTF", preset={"clocks": 1, "elastic": False})
class PowerFlow:
    """Marginal moves over GPUs and clocks under an energy budget, placed in buddy blocks.

    On a cluster of several types (an extension of ours: PowerFlow knows one) each type is planned by itself; a task
    that waits counts where it is believed to complete first, by the work that is there already.

    Args:
        budget: the energy that admitted jobs may take, over that on their fewest GPUs at the top clock; assumed.
        clocks: clocks to choose among, spread evenly; assumed. One is the highest alone.
        floor: the lowest clock, over the card's top one; assumed. Below, hardly any work takes less energy.
        ceiling: the highest clock, over the card's top one.
        elastic: whether tasks may run on their other numbers of GPUs.
        pre_run_clocks: clocks of the pre-run that the models are fitted to; assumed. It takes no time here.
        gpus_per_node: consecutive GPUs of a type that make a node; assumed.
        dt_s: the period of planning anew apart from arrivals and completions, s; 0 for none, assumed.

    Raises:
        InputError: a parameter is out of its range.

    Attributes:
        models: what is believed of every workload, since the last reset.
    """

    name = "power-flow"
    models: Models

    def __init__(
        self,
        budget: float = 0.9,
        clocks: int = 8,
        floor: float = 0.4,
        ceiling: float = 1.0,
        elastic: bool = True,
        pre_run_clocks: int = 5,
        gpus_per_node: int = 8,
        dt_s: float = 0.0,
    ) -> None:
        check("budget", budget, budget > 0, "a share above 0")
        check("clocks", clocks, clocks >= 1, "at least one clock")
        check("floor", floor, 0 < floor <= ceiling, "a share of the top clock, above 0, at most the ceiling")
        check("ceiling", ceiling, 0 < ceiling <= 1, "a share of the top clock, above 0, at most 1")
        check("pre_run_clocks", pre_run_clocks, pre_run_clocks >= 1, "at least one clock")
        check("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        check("dt_s", dt_s, dt_s >= 0, "a period, or 0 for none")
        self.tick_s = dt_s or None
        self.traits = Traits(frequency=clocks > 1 or ceiling < 1, multi_task=False, heterogeneous=True)
        self._budget, self._elastic, self._per_node = budget, elastic, gpus_per_node
        self._model = pre_run_clocks, clocks, floor, ceiling

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything: every GPU is free, nothing is known of any workload."""
        self.models = Models(predictor, *self._model)
        self._pools = pools.pools(cluster, self._per_node)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Plan every type of GPU anew."""
        running = [pools.running(pool, view) for pool in self._pools]
        waiting = [Job(task, view.remaining[task.id]) for task in view.waiting]
        load = [list(there.values()) for there in running]
        dealt = pools.deal(waiting, load, self._pools, self._alone_s, lambda task: self._widths(task)[0])
        for pool, there, newcomers in zip(self._pools, running, dealt, strict=True):
            yield from self._plan(pool, there, newcomers, view)

    def _plan(
        self, pool: Pool, running: Mapping[int, Job], newcomers: Mapping[int, Job], view: View
    ) -> Iterator[Action]:
        jobs = {**running, **newcomers}
        menus = {job: self._menu(each, pool) for job, each in jobs.items()}
        order = sorted(jobs, key=lambda job: (float(menus[job].time_s[0, -1]), job))
        over = [job for job in order if job in running and menus[job].time_s[0, -1] <= _OVER_S]
        had = pool.buddy.taken()
        free = len(pool.gpus) - sum(pool.buddy.held(len(had[job])) for job in over)
        started = admit(menus, [job for job in order if job not in over], free)
        budget_j = self._budget * sum(menus[job].plain_j for job in started)
        settings = grow(menus, started, free - sum(menus[job].widths[0] for job in started), budget_j)
        gpus = {job: self._widths(jobs[job].task, pool)[at.width] for job, at in settings.items()}
        yield from self._carry_out(pool, had, {job: len(had[job]) for job in over} | gpus, settings, view)

    def _carry_out(
        self,
        pool: Pool,
        had: Mapping[int, tuple[int, ...]],
        gpus: Mapping[int, int],
        settings: Mapping[int, Setting],
        view: View,
    ) -> Iterator[Action]:
        placing = place(pool.buddy, gpus)
        moved, circle = in_turn(placing.moved, had)
        taken = pool.buddy.taken()
        for job in [*placing.stopped, *circle]:
            yield Pause(job)
        for job, at in settings.items():
            mhz = self.models.clocks_mhz(pool.gpu)[at.clock]
            for gpu in taken.get(job, ()):
                if self.traits.frequency and view.gpus[gpu].requested_mhz != mhz:
                    yield SetClock(gpu, mhz)
        for job in moved:
            yield Migrate(job, taken[job][0], also=taken[job][1:])
        for job in [*circle, *placing.started]:
            yield Start(job, taken[job][0], also=taken[job][1:])

    def _menu(self, job: Job, pool: Pool) -> Menu:
        widths = self._widths(job.task, pool)
        held = [pool.buddy.held(width) for width in widths]
        return self.models.menu(job.task, job.left, pool.gpu, widths, held)

    def _widths(self, task: Task, pool: Pool | None = None) -> tuple[int, ...]:
        """The numbers of GPUs that a task may have, ascending; in a pool, those that it can give."""
        every = tuple(sorted({task.gpus, *task.widths})) if self._elastic else (task.gpus,)
        return every if pool is None else tuple(width for width in every if pool.fits(task, width))

    def _alone_s(self, job: Job, pool: Pool) -> float:
        return job.left * self.models.alone_s(job.task, pool.gpu)
