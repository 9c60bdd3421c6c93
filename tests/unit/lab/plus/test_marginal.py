"""Marginal cost: the cheapest clock and the cheapest place of a task, computed by hand on toy GPUs."""

import numpy as np
import pytest
from support.policy_runs import run_emulated, run_on_toys

from heshare.lab.plus.online import SetPredictions
from heshare.prediction.predictor import CoRuns
from heshare.shared.errors import PolicyError
from heshare.testing.toy import ToyPredictor, toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
SMALL, OTHER = Workload("mobilenet", 4), Workload("resnet18", 4)


class CubicPredictor(ToyPredictor):
    """Predicts a power above idle by the third power of the clock: 12.5 W at 500 MHz, 100 W at 1000 MHz."""

    def co_run(self, sets, gpu, sm_mhz):
        runs = super().co_run(sets, gpu, sm_mhz)
        share = np.array([mhz / gpu.max_mhz for mhz in sm_mhz])
        return CoRuns(runs.time_s, gpu.idle_w + 100.0 * share**3)


def simulate(tasks, gpus=(GPU,), name="marginal", predictor=None):
    return run_on_toys(tasks, name, gpus, predictor=predictor)


@pytest.mark.parametrize(
    ("price_w", "queued", "mhz"),
    # Half the clock takes twice as long: (12.5 + n p) x 2 against 100 + n p, so that 500 MHz is cheaper if n p < 75 W.
    [(74.0, 0, 500), (76.0, 0, 1000), (37.0, 1, 500), (38.0, 1, 1000)],
)
def test_clock_and_price(price_w, queued, mhz):
    """The clock rises with the price and the queued tasks."""
    sets = SetPredictions(CubicPredictor(), 2, price_w)
    sets.predict(GPU, [(SMALL,)])
    assert sets.mhz(GPU, (SMALL,), queued) == mhz


def test_drain():
    """The cost of two tasks that take turns is as computed by hand."""
    # Two tasks take turns: the one with 2 iterations ends after 4 s, the other, with 5, after 7 s. Power above idle
    # is 100 W throughout: 7 x 100 J, and a price of 10 W for 4 + 7 s.
    sets = SetPredictions(ToyPredictor(), 2, 10.0)
    sets.predict(GPU, [(SMALL, OTHER)])
    assert sets.drain(GPU, [(OTHER, 5.0), (SMALL, 2.0)]) == pytest.approx((810.0, 7.0))
    assert sets.drain(GPU, []) == (0.0, 0.0)


def test_short_beside_long():
    """Marginal starts a short task beside a long one."""
    # Beside: done at 1 + 2 s, the long one a second later. Behind: done at 11 s. Energy is the same.
    result = simulate([Task(0, SMALL, 11.0), Task(1, OTHER, 1.0, 1.0)])
    assert result.jct_s.tolist() == pytest.approx([12.0, 2.0])


def test_equal_tasks():
    """Marginal delays a task as long as the running one."""
    # At 1 s both have 10 s to go. Beside: both end after 20 s. Behind: after 10 and 20 s.
    result = simulate([Task(0, SMALL, 11.0), Task(1, OTHER, 10.0, 1.0)])
    assert result.jct_s.tolist() == pytest.approx([11.0, 20.0])


def test_idle_gpu():
    """Marginal prefers an idle GPU."""
    result = simulate([Task(0, SMALL, 10.0), Task(1, SMALL, 10.0)], (GPU, GPU))
    assert sorted(interval.gpu for interval in result.record.intervals) == [0, 1]


def test_shortest_first():
    """Marginal runs the shortest task first when all arrive at once."""
    result = simulate([Task(0, SMALL, 9.0), Task(1, SMALL, 3.0), Task(2, SMALL, 6.0)], name="marginal(most=1)")
    assert result.jct_s.tolist() == pytest.approx([18.0, 3.0, 9.0])


def test_no_gpu():
    """A task that fits no GPU is an error."""
    with pytest.raises(PolicyError, match="tasks 0 waits"):
        run_emulated([Task(0, Workload("bert_large", 4096), 1.0)], "marginal", "T4")
