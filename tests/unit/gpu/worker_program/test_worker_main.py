"""The worker process from inside: its messages, its loop, its orders."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.spin_worker import OutOfMemoryError, Spin

from heshare.errors import DeviceError
from heshare.gpu.worker_program.inference_program import Inference, StopFlag, run, warm_up
from heshare.gpu.worker_program.worker_main import describe
from heshare.gpu.worker_program.worker_messages import GO, KINDS, LONGEST, Channel, Message, Order, parse


class Queue:
    """A program whose last iteration is always under way when `step` returns, as on a GPU."""

    lag = 1
    title = "queue"

    def __init__(self) -> None:
        self.begun = self.complete = 0

    def step(self) -> None:
        self.begun += 1
        self.complete = self.begun - 1

    def settle(self) -> None:
        self.complete = self.begun

    def close(self) -> None:
        self.begun = self.complete = 0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


@given(
    st.builds(
        Message,
        kind=st.sampled_from(KINDS),
        done=st.integers(0, 10**12),
        at_s=st.floats(0, 1e9),
        time_s=st.floats(1e-9, 1e3),
        finished=st.booleans(),
        text=st.text(),
    )
)
def test_a_message_is_one_short_line_that_reads_back(message: Message) -> None:
    line = message.line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line) <= LONGEST
    read = parse(line)
    assert read.text == " ".join(message.text.split())[: len(read.text)]
    assert (read.kind, read.done, read.at_s, read.time_s, read.finished) == (
        message.kind,
        message.done,
        message.at_s,
        message.time_s,
        message.finished,
    )


def test_the_longest_text_fits() -> None:
    """A character beyond the 16-bit plane takes 12 bytes in JSON."""
    for one in ("x", "é", "\U0001f525"):
        assert len(Message("failure", text=one * 10_000).line()) <= LONGEST


def test_no_time_is_not_zero() -> None:
    assert math.isnan(parse(Message("end").line()).time_s)


@pytest.mark.parametrize("line", [b"", b"hello", b"[]", b"{}", b'{"kind": "end"}', b'{"kind": "other"}', b"\xff"])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (JSON's own errors are ValueErrors)
        parse(line)


def test_progress_never_waits_and_the_last_word_does_not_wait_for_ever(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    channel = Channel(writing, patience_s=0.1)
    told = 0
    while channel.send(Message("progress", told)):
        told += 1
    assert told > 100
    begun = monotonic()
    assert not channel.send(Message("progress", told))
    assert monotonic() - begun < 0.05
    assert not channel.send(Message("end", told))
    os.read(reading, 65536)
    assert channel.send(Message("end", told))
    os.close(reading)
    assert not channel.send(Message("end", told))


def test_the_loop_counts_what_is_complete() -> None:
    program, said = Queue(), []
    last = run(program, said.append, iterations=500, stop=StopFlag(), period_s=0.0)
    assert (last.done, last.finished, program.complete) == (500, True, 500)
    assert [one.done for one in said] == list(range(1, 500))
    assert all(one.time_s > 0 for one in said)


def test_reports_come_at_their_period() -> None:
    said: list[Message] = []
    begun = monotonic()
    last = run(Spin(0.001), said.append, iterations=200, stop=StopFlag(), period_s=0.05)
    took_s = monotonic() - begun
    assert 1 <= len(said) <= took_s / 0.05
    counts = [one.done for one in said]
    assert counts == sorted(set(counts))
    assert last.time_s == pytest.approx(took_s / 200, rel=0.2)


def test_a_stop_between_iterations_keeps_the_count() -> None:
    stop = StopFlag()
    program = Queue()

    def say(message: Message) -> None:
        stop.requested = message.done >= 10

    last = run(program, say, iterations=None, stop=stop, period_s=0.0)
    assert (last.done, last.finished) == (program.begun, False)
    assert last.done == 11
    assert run(Queue(), say, iterations=None, stop=stop).done == 0


def test_an_orphan_stops() -> None:
    last = run(Queue(), lambda message: None, iterations=None, stop=StopFlag(parent=-1), period_s=0.0)
    assert last.done == 2


def test_warm_up_is_long_enough_and_times_the_last_iterations() -> None:
    program = Queue()
    assert warm_up(program, iterations=4, least_s=0.0) > 0
    assert program.complete == 7
    begun = monotonic()
    time_s = warm_up(Spin(0.01), iterations=1, least_s=0.1)
    assert monotonic() - begun >= 0.13
    assert 0.01 <= time_s < 0.05


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DeviceError("no card"), "no card"),
        (
            OutOfMemoryError("CUDA out of memory.\nTried"),
            "out of GPU memory: OutOfMemoryError: CUDA out of memory. Tried",
        ),
        (ValueError(), "ValueError: no message"),
    ],
)
def test_a_failure_is_one_line(error: BaseException, said: str) -> None:
    assert describe(error) == said


def _runner(module: str, order: Order) -> tuple[list[Message], subprocess.CompletedProcess[bytes]]:
    """Run a worker with an order, let it begin at once, and read its messages."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", module, "--report-fd", str(writing)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(writing,)) as process:
        os.close(writing)
        assert process.stdin is not None
        process.stdin.write(order.line() + GO)
        process.stdin.flush()
        with open(reading, "rb") as stream:  # noqa: PTH123 (a descriptor)
            said = [parse(line) for line in stream]
        assert process.stderr is not None
        errors = process.stderr.read()
        code = process.wait(timeout=10)
    return said, subprocess.CompletedProcess(command, code, stderr=errors)


def test_a_worker_says_ready_then_how_far_then_the_end() -> None:
    said, process = _runner("support.spin_worker", Order("spin:5", 1, iterations=60, warmup=1, warmup_s=0.0))
    assert process.returncode == 0
    kinds = [one.kind for one in said]
    assert kinds == ["ready", *["progress"] * (len(said) - 2), "end"]
    assert len(kinds) >= 3
    assert (said[-1].done, said[-1].finished) == (60, True)
    assert said[-1].time_s == pytest.approx(0.005, rel=0.5)


def test_without_pytorch_or_a_gpu_the_worker_says_what_to_do() -> None:
    """A CPU is never used in the place of a GPU that was asked for."""
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
    said, process = _runner("heshare.gpu.worker_program", Order("resnet18", 1))
    assert process.returncode == 1
    assert [one.kind for one in said] == ["failure"]
    assert "pip install 'heshare[live]'" in said[0].text or "CUDA" in said[0].text
    assert b"Traceback" in process.stderr


def test_a_model_of_table_iv_runs_on_a_cpu_when_asked() -> None:
    pytest.importorskip("torch", reason="needs the extra `live`")
    program = Inference("mobilenet", 1, "fp32", "cpu")
    last = run(program, lambda message: None, iterations=3, stop=StopFlag())
    assert last.done == 3
    assert "mobilenet:1 fp32 on CPU" in program.title


def test_the_spin_fails_when_it_should() -> None:
    program = Spin(0.0, fail_after=2)
    program.step()
    program.step()
    with pytest.raises(RuntimeError, match="a kernel failed"):
        program.step()
