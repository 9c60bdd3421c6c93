"""Parameters out of range, of every system: one message that names the parameter, and what it may be."""

import pytest

from heshare.policies.registry import make
from heshare.shared.errors import InputError


@pytest.mark.parametrize(
    "text",
    [
        "batch-dvfs(cap=2)",
        "batch-dvfs(law=none)",
        "batch-dvfs(sizes=0)",
        "eaco(util_max=1.1)",
        "heshare+:en-opt(rounds=0)",
        "heshare+-online:trade-off(interval_s=-1)",
        "heshare+-online:trade-off(charge=-0.5)",
        "heshare+-online:trade-off(rounds=0)",
        "marginal(price_w=0)",
        "marginal(most=0)",
        "marginal(clocks=0)",
        "marginal(overlap=2)",
        "marginal(look=0)",
        "eaco(memory_max=-0.1)",
        "eaco(jobs_max=0)",
        "eaco(gpus_per_node=0)",
        "fifo-packed(threshold=-1)",
        "fikit(high=1.0)",
        "fikit(each=0)",
        "fikit(placement=best)",
        "gandiva(least=-1)",
        "miso(probe_s=-1)",
        "miso(overhead_s=0)",
        "miso(objective=x)",
        "miso(partitions=x)",
        "miso(gpus=slowest)",
        "morak(k=0)",
        "morak(cap=0)",
        "morak(limit=0.5)",
        "morak(dt_s=0)",
        "morak(sizes=0)",
        "mu-serve(limit=0.9)",
        "mu-serve(mode=x)",
        "mu-serve(scope=x)",
        "mu-serve(order=lifo)",
        "mu-serve(step=0)",
        "mu-serve(latency=x)",
        "mu-serve(latency=response,mode=oracle)",
        "power-flow(budget=0)",
        "power-flow(clocks=0)",
        "power-flow(floor=0)",
        "power-flow(ceiling=1.1)",
        "pwr(alpha=2)",
        "pwr(slower=-1)",
    ],
)
def test_out_of_range(text: str):
    """The error of a parameter out of its range names the parameter."""
    name = text.partition("(")[2].partition("=")[0]
    with pytest.raises(InputError, match=name):
        make(text)
