"""PWR's home setting: the datacentre, the tasks, and what each placer must and must not do."""

import numpy as np
import pytest

from heshare.systems.pwr.study import DATACENTRE, PLACERS, TaskMix, datacentre, fill, fill_all, saved


def test_the_datacentre_is_the_published_one():
    nodes = datacentre(1.0)
    per_kind = {kind: total for kind, (total, *_) in DATACENTRE.items()}
    assert abs(int((nodes.capacity > 0).sum()) - sum(per_kind.values())) <= 8
    assert abs(len(nodes.free) - 1213) <= 25


def test_shares_of_classes_sum_to_one():
    requests, popularity = TaskMix().classes()
    assert len(requests) == len(popularity)
    assert popularity.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("placer", PLACERS)
def test_power_rises_and_no_gpu_is_given_twice(placer):
    filled = fill(placer, rng=np.random.default_rng(1), scale=0.01)
    assert (filled["power_w"].diff().dropna() >= 0).all()
    assert filled["granted"].between(0, 1).all()
    assert (filled["granted"] * filled["demand"]).max() <= 1.0 + 0.05
    assert filled["granted"].iloc[0] == 1.0


def test_the_same_tasks_for_every_placer():
    fills = fill_all({"a": ("random", 0.0), "b": ("random", 0.0)}, seed=3, seeds=2, scale=0.01)
    assert (saved(fills, "a", np.random.default_rng(0)).query("title == 'b'")["change_pct"] == 0).all()


def test_power_alone_takes_less_power_than_chance():
    fills = fill_all({"random": ("random", 0.0), "PWR": ("pwr", 1.0)}, seed=3, seeds=3, scale=0.02)
    free = saved(fills, "random", np.random.default_rng(0)).query("title == 'PWR' and demand < 0.8")
    assert (free["high"] < 0).all()
