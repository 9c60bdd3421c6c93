"""The study of PWR: the datacentre, the classes of tasks, and bounds that every placer keeps."""

import numpy as np
import pytest

from heshare.paper.studies.systems.pwr_study import DATACENTRE, PLACERS, datacentre, fill, fill_all, saved


def test_datacentre_has_the_published_gpus_and_nodes():
    nodes = datacentre(1.0)
    per_kind = {kind: total for kind, (total, *_) in DATACENTRE.items()}
    assert abs(int((nodes.capacity > 0).sum()) - sum(per_kind.values())) <= 8
    assert abs(len(nodes.free) - 1213) <= 25


@pytest.mark.parametrize("placer", PLACERS)
def test_fill_raises_power_and_grants_no_gpu_twice(placer):
    filled = fill(placer, rng=np.random.default_rng(1), scale=0.01)
    assert (filled["power_w"].diff().dropna() >= 0).all()
    assert filled["granted"].between(0, 1).all()
    assert (filled["granted"] * filled["demand"]).max() <= 1.0 + 0.05
    assert filled["granted"].iloc[0] == 1.0


def test_fill_all_gives_every_placer_the_same_tasks():
    fills = fill_all({"a": ("random", 0.0), "b": ("random", 0.0)}, seed=3, seeds=2, scale=0.01)
    assert (saved(fills, "a").query("title == 'b'")["change_pct"] == 0).all()


def test_pwr_alone_takes_less_power_than_random_placement():
    fills = fill_all({"random": ("random", 0.0), "PWR": ("pwr", 1.0)}, seed=3, seeds=3, scale=0.01)
    free = saved(fills, "random").query("title == 'PWR' and demand < 0.8")
    assert (free["high"] < 0).all()
