"""Parameters out of range, of every system: one message that names the parameter, and what it may be."""

import pytest

from heshare.policies.registry import make
from heshare.shared.errors import InputError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch-dvfs(cap=2)", "a share of the board power limit, above 0 and at most 1"),
        ("batch-dvfs(law=none)", "batch-dvfs or batch or dvfs or clipper"),
        ("batch-dvfs(sizes=0)", "an inference batch size of at least 1"),
        ("eaco(util_max=1.1)", "a share from 0 to 1"),
        ("eaco(memory_max=-0.1)", "a share from 0 to 1"),
        ("eaco(jobs_max=0)", "at least one job"),
        ("eaco(gpus_per_node=0)", "at least one GPU"),
        ("fifo-packed(threshold=-1)", "a sum of speeds of at least 0"),
        ("fikit(high=1.0)", "a share between 0 and 1"),
        ("fikit(each=0)", "at least one task of a class"),
        ("fikit(placement=best)", "random, heshare, earliest"),
        ("gandiva(least=-1)", "a sum of speeds of at least 0"),
        ("miso(probe_s=-1)", "a time of at least 0 s"),
        ("miso(overhead_s=0)", "a time above 0 s"),
        ("miso(objective=x)", "slowdown or throughput"),
        ("miso(partitions=x)", "published or all"),
        ("miso(gpus=slowest)", "first or fastest"),
        ("morak(k=0)", "argument k: found 0; expected 1 to 48"),
        ("morak(cap=0)", "a share of the TDP above 0"),
        ("morak(limit=0.5)", "at least 1"),
        ("morak(dt_s=0)", "a period above 0 s"),
        ("morak(sizes=0)", "an inference batch size of at least 1"),
        ("mu-serve(limit=0.9)", "at least 1"),
        ("mu-serve(mode=x)", "feedback or oracle"),
        ("mu-serve(scope=x)", "gpu or task"),
        ("mu-serve(order=lifo)", "ssjf or fifo"),
        ("mu-serve(step=0)", "at least one place"),
        ("mu-serve(latency=x)", "iteration or response"),
        ("mu-serve(latency=response,mode=oracle)", "unless mode=feedback"),
        ("power-flow(budget=0)", "a share above 0"),
        ("power-flow(clocks=0)", "at least one clock"),
        ("power-flow(floor=0)", "a share of the top clock, above 0"),
        ("power-flow(ceiling=1.1)", "a share of the top clock, above 0"),
        ("pwr(alpha=2)", "a weight from 0 to 1"),
        ("pwr(slower=-1)", "a share of at least 0"),
    ],
)
def test_systems_refuse_parameters_out_of_range(text: str, message: str):
    with pytest.raises(InputError, match=message):
        make(text)
