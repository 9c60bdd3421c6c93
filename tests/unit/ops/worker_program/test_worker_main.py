"""The worker program: its messages, its loop of iterations, its orders."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.spin_worker import OutOfMemoryError, Spin

from heshare.ops.worker_program.inference_program import Inference, StopFlag, run, warm_up
from heshare.ops.worker_program.worker_main import describe
from heshare.ops.worker_program.worker_messages import GO, KINDS, LONGEST, Channel, Message, Order, parse
from heshare.shared.errors import DeviceError


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


MESSAGES = st.builds(
    Message, st.sampled_from(KINDS), done=st.integers(0, 10**12), at_s=st.floats(0, 1e9),
    time_s=st.floats(1e-9, 1e3), finished=st.booleans(),
    text=st.text('ab \n"\\é\U0001f525', max_size=400),
)  # fmt: skip


@given(MESSAGES)
@example(Message("failure", time_s=1.0, text="x" * 10_000))
@example(Message("failure", time_s=1.0, text="\U0001f525" * 10_000))  # a character that takes 12 bytes
def test_message_line(message: Message) -> None:
    """A message is one short line that `parse` reads; a long text is cut."""
    line = message.line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line) <= LONGEST
    read = parse(line)
    assert read.text == " ".join(message.text.split())[: len(read.text)]
    assert replace(read, text="") == replace(message, text="")


@pytest.mark.parametrize("line", [b"", b"hello", b"[]", b"{}", b'{"kind": "end"}', b'{"kind": "other"}', b"\xff"])
def test_no_message(line: bytes) -> None:
    """A line that is no message is refused."""
    with pytest.raises(ValueError):  # noqa: PT011 (JSON's own errors are ValueErrors)
        parse(line)


def test_full_pipe(pipe: tuple[int, int]) -> None:
    """On a full pipe progress is dropped, and the end waits a limited time."""
    reading, writing = pipe
    channel = Channel(writing, patience_s=0.1)
    sent = 0
    while channel.send(Message("progress", sent)):
        sent += 1
    assert sent > 100
    assert not channel.send(Message("progress", sent))
    assert not channel.send(Message("end", sent))
    os.read(reading, 65536)
    assert channel.send(Message("end", sent))
    os.close(reading)
    assert not channel.send(Message("end", sent))


def test_completed_iterations() -> None:
    """Only completed iterations count."""
    program, messages = Queue(), []
    last = run(program, messages.append, iterations=500, stop=StopFlag(), period_s=0.0)
    assert (last.done, last.finished, program.complete) == (500, True, 500)
    assert [one.done for one in messages] == list(range(1, 500))
    assert all(one.time_s > 0 for one in messages)


def test_period() -> None:
    """Progress is reported at most once a period."""
    messages: list[Message] = []
    begun = monotonic()
    run(Spin(0.001), messages.append, iterations=200, stop=StopFlag(), period_s=0.05)
    took_s = monotonic() - begun
    assert 1 <= len(messages) <= took_s / 0.05
    counts = [one.done for one in messages]
    assert counts == sorted(set(counts))


def test_stopped() -> None:
    """A run that is stopped, or whose parent process has changed, returns its count."""
    stop = StopFlag()
    program = Queue()

    def report(message: Message) -> None:
        stop.requested = message.done >= 10

    last = run(program, report, iterations=None, stop=stop, period_s=0.0)
    assert (last.done, last.finished) == (program.begun, False)
    assert last.done == 11
    assert run(Queue(), report, iterations=None, stop=stop).done == 0
    assert run(Queue(), report, iterations=None, stop=StopFlag(parent=-1), period_s=0.0).done == 2


def test_warm_up() -> None:
    """Warm-up lasts long enough and times the last iterations."""
    program = Queue()
    assert warm_up(program, iterations=4, least_s=0.0) > 0
    assert program.complete == 7
    begun = monotonic()
    time_s = warm_up(Spin(0.01), iterations=1, least_s=0.1)
    assert monotonic() - begun >= 0.13
    assert time_s >= 0.01


def test_describe() -> None:
    """An error is described in one line."""
    assert describe(DeviceError("no card")) == "no card"
    assert describe(OutOfMemoryError("it is\nfull")) == "out of GPU memory: OutOfMemoryError: it is full"
    assert describe(ValueError()) == "ValueError: no message"


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
            messages = [parse(line) for line in stream]
        assert process.stderr is not None
        errors = process.stderr.read()
        code = process.wait(timeout=10)
    return messages, subprocess.CompletedProcess(command, code, stderr=errors)


def test_no_gpu() -> None:
    """A worker without PyTorch or a GPU says what to install; a CPU is never used instead."""
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
    messages, process = _runner("heshare.ops.worker_program", Order("resnet18", 1))
    assert process.returncode == 1
    assert [one.kind for one in messages] == ["failure"]
    assert "pip install 'heshare[live]'" in messages[0].text or "CUDA" in messages[0].text
    assert b"Traceback" in process.stderr


def test_cpu() -> None:
    """Inference runs on a CPU on request."""
    pytest.importorskip("torch", reason="needs the extra `live`")
    program = Inference("mobilenet", 1, "fp32", "cpu")
    last = run(program, lambda message: None, iterations=3, stop=StopFlag())
    assert last.done == 3
    assert "mobilenet:1 fp32 on CPU" in program.title
