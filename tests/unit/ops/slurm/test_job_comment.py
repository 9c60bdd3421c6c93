"""Comments of Slurm jobs: what they state, and which are refused."""

import pytest

from heshare.devices.task_sizes import time_alone_s
from heshare.ops.slurm.job_comment import is_ours, placed_gpu, read_comment
from heshare.shared.errors import InputError
from heshare.world.workload import Workload


def test_a_comment_states_a_workload_and_its_size() -> None:
    read = read_comment("heshare like=resnet50:8  iterations=2e4 precision=fp16", 7)
    assert (read.workload, read.iterations) == (Workload("resnet50", 8, "fp16"), 20000.0)
    assert read.work == "heshare like=resnet50:8 iterations=2e4 precision=fp16"
    timed = read_comment("heshare expected_time_s=600 like=medium", 7)
    assert timed.iterations == pytest.approx(600 / time_alone_s(timed.workload))


def test_a_place_is_added_once_and_read_again() -> None:
    read = read_comment("heshare like=resnet50:8 iterations=10", 7)
    text = read.placed("node1/T4a", 30, 1200)
    assert text == "heshare like=resnet50:8 iterations=10 gpu=node1/T4a mps_pct=30 sm_mhz=1200"
    assert placed_gpu(text) == "node1/T4a"
    assert read_comment(text, 7).placed("node1/T4b", 40, None) == f"{read.work} gpu=node1/T4b mps_pct=40"


def test_comments_of_others_are_not_ours() -> None:
    assert is_ours("heshare like=x")
    assert not any(map(is_ours, ("", "heshared", "for heshare like=resnet50:8")))
    assert placed_gpu("gpu=node1/T4a") == placed_gpu("heshare gpu=\x1b[2J/x gpu=") == ""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", "no words after heshare"),
        ("like=resnet50:8", "like"),
        ("like=resnet50:8 iterations=3 expected_time_s=3", "like, iterations, expected_time_s"),
        ("like=resnet50:8 iterations=3 iterations=4", "'iterations=4'"),
        ("like=resnet50:8 iteration=3", "'iteration'"),
        ("like=resnet50:8 iterations=-3", "-3"),
        ("like=resnet50:8 iterations=1e99", "1e99"),
        ("like=resnet50:8@50 iterations=3", "resnet50:8@50"),
        ("like=resnet51:8 iterations=3", "'resnet51'"),
        ("like=resnet50:8 iterations=3 precision=fp7", "fp7"),
        ("like=\x1b[2J iterations=3", "'heshare like=\\x1b[2J iterations=3'"),
    ],
)
def test_a_bad_comment_is_refused_with_the_job_and_what_to_do(words: str, found: str) -> None:
    with pytest.raises(InputError) as raised:
        read_comment(f"heshare {words}", 12)
    assert raised.value.found == found
    assert "job 12" in str(raised.value)
    assert "scontrol update JobId=12" in str(raised.value) or "Did you mean" in str(raised.value)
