"""Places of jobs: order, shares that Slurm can give, and policies that it cannot follow."""

import itertools

import pytest

from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.ops.slurm.job_comment import read_comment
from heshare.ops.slurm.job_placement import JobPlacement, place_jobs
from heshare.ops.slurm.slurm_cards import SlurmCard
from heshare.policies.function_policy import policy
from heshare.policies.policy import Event, Pause, SetClock, Start, View
from heshare.policies.registry import unregister
from heshare.shared.errors import InputError
from heshare.world import catalogue

CARDS = [SlurmCard("node1", f"T4{name}", catalogue.gpu("T4"), "shard", 100, ("gpu",)) for name in "ab"]


def placed(works: list[str], name: str, cards: list[SlurmCard] = CARDS) -> dict[int, JobPlacement]:
    jobs = {10 + number: read_comment(f"heshare like={work}", number) for number, work in enumerate(works)}
    places, totals, _ = place_jobs(jobs, cards, name, predictor=load_predictor(), seed=0)
    assert totals["makespan_s"] == pytest.approx(max(place.end_s for place in places))
    assert [place.start_s for place in places] == sorted(place.start_s for place in places)
    return {place.job: place for place in places}


def test_jobs_of_a_queue_wait_for_the_one_before() -> None:
    places = placed(["resnet50:8 iterations=1000"] * 5, "fifo", CARDS[:1])
    assert [place.after for place in places.values()] == [(), (10,), (11,), (12,), (13,)]
    assert {(place.mps_pct, place.count, place.sm_mhz) for place in places.values()} == {(100, 100, None)}


def test_a_batch_waits_for_all_of_the_one_before_and_shares_what_there_is() -> None:
    works = ["bert_large:8 iterations=4000"] * 8 + ["mobilenet:1 iterations=20000"] * 4
    places = placed(works, "heshare:trade-off").values()
    for card in CARDS:
        before: set[int] = set()
        there = sorted((place for place in places if place.card == card), key=lambda place: place.start_s)
        for _, batch in itertools.groupby(there, lambda place: (place.start_s, place.sm_mhz)):
            together = list(batch)
            assert {frozenset(place.after) for place in together} == {frozenset(before)}
            before = {place.job for place in together}
    assert any(len(place.after) > 1 for place in places)
    crowded = placed(works, "sched-only:all-at-once").values()
    assert any(place.count < place.mps_pct for place in crowded), "everyone at 100 %"


def test_a_policy_that_pauses_jobs_is_refused() -> None:
    @policy("pauser")
    def pauser(event: Event, view: View, times: object):
        for task in view.waiting:
            yield Start(task.id, 0)
            yield SetClock(0, None)
            yield Pause(task.id)

    try:
        with pytest.raises(InputError, match="pauser, which pauses or moves a job that runs"):
            placed(["resnet50:8 iterations=1000"], "pauser")
    finally:
        unregister("pauser")


def test_a_job_that_no_gpu_holds_is_refused() -> None:
    with pytest.raises(InputError, match="MiB"):
        placed(["vgg19:4000 iterations=10"], "fifo")


@pytest.mark.parametrize("name", ["heshare:trade-off", "random:all-at-once", "pwr", "srtf"])
def test_slurm_has_the_shares_of_all_that_run_together_and_the_order_is_that_of_the_run(name: str) -> None:
    works = [
        *("resnet50:1 iterations=20000", "bert_large:2 iterations=5000", "transformer:8 iterations=5000"),
        *("transformer:4 iterations=20000", "vgg19:2 iterations=10000", "resnet18:4 iterations=5000"),
        *("resnet101:2 iterations=5000", "mobilenet:1 iterations=4000", "resnet18:1 iterations=9000"),
    ]
    places = placed(works, name)
    for place in places.values():
        there = [other for other in places.values() if other.card == place.card]
        beside = [other for other in there if other.start_s <= place.start_s < other.end_s]
        assert sum(other.count for other in beside) <= place.card.shares
        assert all(places[before].end_s <= place.start_s for before in place.after)
        ended = {other.job for other in there if other.end_s < place.start_s}
        reached, new = set[int](), set(place.after)
        while new:
            reached |= new
            new = {before for job in new for before in places[job].after} - reached
        assert ended <= reached, "what had ended before it is before it in Slurm, too"
