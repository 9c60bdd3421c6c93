"""BatchDVFS's control law: each branch by a table, traces on a card whose power can be worked out by hand."""

import pytest
from support.policy_runs import run_on_toys

from heshare.lab.systems.batch_dvfs.policy import SearchState, clipper_state, next_state
from heshare.testing.toy import ToyDevice, toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu(clocks_mhz=tuple(range(100, 1001, 100)))
LAST, TOP, CAP_W = 254, 9, 100.0


class BatchPowerDevice(ToyDevice):
    """Takes 10 W idle, and 0.6 W for each sample of the inference batch at the top clock; less as the clock falls."""

    def power_w(self, mhz, residents):
        return 10.0 + 0.6 * sum(each.workload.batch_size for each in residents) * mhz / self.gpu.max_mhz


def simulate(name, iterations=100_000.0):
    task = Task(0, Workload("mobilenet", 8), iterations)
    return run_on_toys([task], name, (GPU,), devices=[BatchPowerDevice(GPU, base_s=0.01)])


def sizes(result, count):
    return [(round(each.start_s, 6), each.batch_size) for each in result.record.intervals[:count]]


@pytest.mark.parametrize(
    ("at", "power_w", "after"),
    [
        # Between 80 and 100 % of the cap: hold, at both ends.
        (SearchState(127, 5, 0, 254), 80.0, SearchState(127, 5, 0, 254)),
        (SearchState(127, 5, 0, 254), 100.0, SearchState(127, 5, 0, 254)),
        # Below: halfway to the upper end, rounded up.
        (SearchState(0, 5, 0, 254), 79.9, SearchState(127, 5, 0, 254)),
        (SearchState(127, 5, 0, 254), 50.0, SearchState(191, 5, 127, 254)),
        (SearchState(253, 5, 252, 254), 50.0, SearchState(254, 5, 253, 254)),
        # Below, at the upper end of a search that had come down: up again to the very end.
        (SearchState(100, 5, 90, 100), 50.0, SearchState(177, 5, 100, 254)),
        # Below, with the largest size: the clock rises, at most to the top.
        (SearchState(254, 5, 253, 254), 50.0, SearchState(254, 6, 253, 254)),
        (SearchState(254, 9, 253, 254), 50.0, SearchState(254, 9, 253, 254)),
        # Above: halfway to the lower end, rounded down.
        (SearchState(191, 5, 127, 254), 100.1, SearchState(159, 5, 127, 191)),
        (SearchState(128, 5, 127, 191), 100.1, SearchState(127, 5, 127, 128)),
        # Above, at the lower end of a search that had gone up: down again to the very beginning.
        (SearchState(127, 5, 127, 128), 100.1, SearchState(63, 5, 0, 127)),
        # Above, with the smallest size: the clock falls, at most to the bottom.
        (SearchState(0, 5, 0, 1), 100.1, SearchState(0, 4, 0, 1)),
        (SearchState(0, 0, 0, 1), 100.1, SearchState(0, 0, 0, 1)),
    ],
)
def test_next_state(at, power_w, after):
    """The control law is as published, in every branch."""
    assert next_state(at, power_w, CAP_W, LAST, TOP) == after


@pytest.mark.parametrize(("size", "power_w", "after"), [(0, 50, 4), (252, 50, 254), (10, 101, 8), (0, 101, 0)])
def test_clipper_state(size, power_w, after):
    """Clipper's size rises by four samples and falls by a tenth, within its ends."""
    assert clipper_state(SearchState(size, 5, 0, LAST), power_w, CAP_W, LAST).size == after


def test_search():
    """The search is as computed by hand."""
    # The cap is 88 W, the band begins at 70.4 W; level 5 is 600 MHz, so that b samples take 10 + 0.36 b W:
    # 1 -> 128 (56 W) -> 192 (79 W), which is in the band, and stays.
    result = simulate("batch-dvfs")
    assert sizes(result, 3) == [(0.0, 1), (3.0, 128), (6.0, 192)]
    assert {row.requested_mhz for row in result.timeline.itertuples()} == {600}
    assert result.record.intervals[-1].batch_size == 192


def test_largest_size():
    """BatchDVFS moves the clock at the largest size only."""
    # Four samples at most: 1 -> 3 -> 4 (11.4 W of a cap of 110 W), then a level each period up to 1000 MHz.
    result = simulate("batch-dvfs(cap=1.0,sizes=4)", 10_000.0)
    assert sizes(result, 3) == [(0.0, 1), (3.0, 3), (6.0, 4)]
    clocks = list(dict.fromkeys(row.requested_mhz for row in result.timeline.itertuples()))
    assert clocks == [600, 700, 800, 900, 1000]


def test_dvfs_only():
    """DVFS alone changes the clock and not the batch size."""
    # 8 samples take 12.9 W at 600 MHz, of a cap of 11 W: down to 200 MHz, which takes 10.96 W.
    result = simulate("batch-dvfs:dvfs-only(cap=0.1)", 10_000.0)
    clocks = list(dict.fromkeys(row.requested_mhz for row in result.timeline.itertuples()))
    assert clocks == [600, 500, 400, 300, 200]
    assert {each.batch_size for each in result.record.intervals} == {8}


def test_clipper():
    """Clipper steps up and falls back."""
    # 10 + 0.6 b W at the top clock, a cap of 16.5 W: 1, 5, 9 (15.4 W), 13 (17.8 W), 11 (16.6 W), 9, 13, ...
    result = simulate("batch-dvfs:clipper(cap=0.15)")
    assert [size for _, size in sizes(result, 7)] == [1, 5, 9, 13, 11, 9, 13]
    assert result.timeline["requested_mhz"].isna().all()
