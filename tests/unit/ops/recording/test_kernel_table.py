"""Kernel traces: the profiler's files, the table of kernels, and the tracer process."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.systems.fikit import kernel_table
from heshare.lab.systems.fikit.kernel_table import COLUMNS, KernelRow
from heshare.ops.recording import kernel_recorder
from heshare.ops.recording.kernel_recorder import KernelEvent, Tracer, parse_trace, summarise
from heshare.ops.worker_program.kernel_profiler import keep_last
from heshare.profiles import manifest
from heshare.shared.errors import DeviceError, InputError
from heshare.world.workload import Workload

LONG = (
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(" + "x, " * 60 + ")"
)
RESNET = Workload("resnet18", 4)

# In the format of PyTorch's profiler: events of the host and of the GPU, and a mark.
TRACE: dict[str, Any] = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 9, "tid": 9, "ts": 90.0, "dur": 40.0, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "sgemm_128x64", "ts": 112.5, "dur": 20.0,
         "args": {"grid": [16, 4, 1], "block": [128, 1, 1]}},
        {"ph": "X", "cat": "kernel", "name": LONG, "ts": 100.0, "dur": 10.25,
         "args": {"grid": [80, 1, 1], "block": [256, 1, 1]}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 135.0, "dur": 1.5, "args": {"bytes": 4096}},
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "ts": 80.0, "s": "g"},
    ],
}  # fmt: skip


@pytest.fixture
def events(tmp_path: Path) -> tuple[KernelEvent, ...]:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE), encoding="utf-8")
    return parse_trace(tmp_path / "trace.json")


@pytest.fixture
def rows(events: tuple[KernelEvent, ...]) -> tuple[KernelRow, ...]:
    return summarise([events, events], RESNET, "A100")


def test_parse(events: tuple[KernelEvent, ...]) -> None:
    """Kernels of a trace are in the order of their start."""
    first, second, copy = events
    assert first.kernel.startswith("void cudnn::ops::nchwToNhwcKernel<float")
    assert len(first.kernel) == kernel_table.NAME_LENGTH
    assert first.kernel[-9] == "#"
    assert second == KernelEvent("sgemm_128x64", "16x4x1", "128x1x1", 112.5, 20.0)
    assert (copy.kernel, copy.grid, copy.block) == ("Memcpy DtoD", "", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps({"traceEvents": TRACE["traceEvents"][:1]}), "no kernels"),
        ("[]", "no trace"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": -1.0}]}', "no trace"),
        ("{", r"trace\.json"),
        (None, "FileNotFoundError"),
    ],
)
def test_no_trace(text: str | None, message: str, tmp_path: Path) -> None:
    """A file without events of a GPU is refused."""
    if text is not None:
        (tmp_path / "trace.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        parse_trace(tmp_path / "trace.json")


def test_means(events: tuple[KernelEvent, ...]) -> None:
    """Times are means and deviations over the repeats."""
    slower = tuple(
        replace(event, start_us=event.start_us + 3.0 * n, duration_us=event.duration_us + 2.0)
        for n, event in enumerate(events)
    )
    first, second, last = summarise([events, slower], RESNET, "A100")
    assert (first.position, second.position, last.position) == (0, 1, 2)
    assert (first.duration_us, first.duration_std_us) == (11.25, 1.414)
    # The second kernel begins 2.25 us after the first ends, then 2.25 + 3 - 2.
    assert (first.gap_us, first.gap_std_us) == (2.75, 0.707)
    assert (second.gap_us, second.gap_std_us) == (3.0, 0.707)
    assert (last.gap_us, last.gap_std_us) == (0.0, 0.0)
    assert {row.repeats for row in (first, second, last)} == {2}
    assert first.provenance == "measured"


def test_other_kernels(events: tuple[KernelEvent, ...]) -> None:
    """An iteration with other kernels is left out; without a majority there is no table."""
    assert [row.repeats for row in summarise([events, events[:2], events], RESNET, "A100")] == [2, 2, 2]
    for keep in ((), (3, 2), (3, 2, 1)):  # no majority
        with pytest.raises(InputError, match="same kernels in the same order"):
            summarise([events[:count] for count in keep], RESNET, "A100")


def test_round_trip(rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    """A table is written sorted and read back equal; a bad row is not written."""
    other = tuple(replace(row, batch_size=1) for row in rows)
    path = kernel_table.write([*rows, *other], tmp_path / "kernels.csv")
    assert kernel_table.read(path) == (*other, *rows)
    again = kernel_table.write([*other[::-1], *rows], tmp_path / "again.csv")
    assert again.read_bytes() == path.read_bytes()
    for bad in (replace(rows[0], gpu="A101"), replace(rows[0], duration_us=-1.0), replace(rows[0], position=5)):
        with pytest.raises(InputError):
            kernel_table.write([bad, *rows[1:]], tmp_path / "bad.csv")
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["again.csv", "kernels.csv"]


BAD = {
    "gpu": "A101", "provenance": "measurd", "workload": "resnet51", "batch_size": "1.5", "precision": "fp8",
    "position": "7", "kernels": "2", "kernel": "", "grid": "80x1", "block": "256",
    "duration_us": "nan", "duration_std_us": "-1", "gap_us": "-inf", "gap_std_us": "-1", "repeats": "0",
}  # fmt: skip


@pytest.mark.parametrize(("column", "cell"), BAD.items())
def test_bad_cell(column: str, cell: str, rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    """A bad cell is refused with its row and column."""
    path = kernel_table.write(rows, tmp_path / "kernels.csv")
    lines = list(csv.reader(path.read_text("utf-8").splitlines()))
    lines[2][COLUMNS.index(column)] = cell
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(lines)
    with pytest.raises(InputError) as caught:
        kernel_table.read(path)
    assert (caught.value.row, caught.value.column) == (3, column)


def test_incomplete(rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    """A repeated or incomplete workload is refused."""
    path = kernel_table.write(rows, tmp_path / "kernels.csv")
    head, *lines = path.read_text("utf-8").splitlines(keepends=True)
    for wrong, column in (([*lines, *lines], "workload"), (lines[1:], "position"), (lines[::-1], "position")):
        path.write_text(head + "".join(wrong), encoding="utf-8")
        with pytest.raises(InputError) as caught:
            kernel_table.read(path)
        assert caught.value.column == column
    path.write_text(head.replace("gap_us,", "other,", 1) + "".join(lines), encoding="utf-8")
    with pytest.raises(InputError):
        kernel_table.read(path)


@given(st.lists(st.tuples(st.floats(0.001, 1e6), st.floats(0.0, 1e3)), min_size=1, max_size=30))
def test_adds_up(spans: list[tuple[float, float]]) -> None:
    """Durations and gaps of kernels sum to the time of the iteration."""
    events, now_us = [], 0.0
    for duration_us, gap_us in spans:
        events.append(KernelEvent("k", "1x1x1", "1x1x1", now_us, duration_us))
        now_us += duration_us + gap_us
    rows = summarise([events], RESNET, "T4")
    iteration_us = events[-1].start_us + events[-1].duration_us
    assert sum(row.duration_us + row.gap_us for row in rows) == pytest.approx(iteration_us, abs=0.001 * 2 * len(rows))


# A tracer that needs no GPU: for each request it writes as many traces as requested.
TRACER = """
import sys
from pathlib import Path
from heshare.ops.worker_program.kernel_profiler import main

def run(model, batch_size, precision, repeats, out):
    print("noise that is no reply")
    for number in range(repeats):
        (out / f"iteration-{number}.json").write_text(TRACE)
    with open(LOG, "a") as log:
        print(model, batch_size, precision, file=log)

main(sys.argv[1:], run, lambda: None)
"""


def _tracer(folder: Path) -> tuple[str, ...]:
    text = TRACER.replace("TRACE)", f"{json.dumps(TRACE)!r})").replace("LOG", repr(str(folder / "log")))
    return sys.executable, "-c", text


def test_continues(tmp_path: Path) -> None:
    """A recording continues where it stopped."""
    path = tmp_path / "A100" / "kernels.csv"
    workloads = [Workload("resnet18", 1), Workload("vgg19", 8)]
    options: dict[str, Any] = {"gpu_uuid": "GPU-0", "repeats": 2, "command": _tracer(tmp_path)}
    kernel_recorder.record(workloads[:1], "A100", path, **options)
    path.with_name(manifest.NAME).write_text('{"table": "profile.csv", "sha256": "0"}')
    kernel_recorder.record(workloads, "A100", path, **options)
    assert manifest.read(path.with_name(manifest.NAME))["kernels"]["workloads"] == 2
    kernel_recorder.record(workloads, "A100", path, **options)
    assert (tmp_path / "log").read_text("utf-8").splitlines() == ["resnet18 1 mixed", "vgg19 8 mixed"]
    manifest.verify(path)
    rows = [(row.workload, row.batch_size, row.position, row.repeats) for row in kernel_table.read(path)]
    assert rows == [(workload.model, workload.batch_size, n, 2) for workload in workloads for n in range(3)]


def test_failed_trace(tmp_path: Path) -> None:
    """A trace that fails, lasts too long or has no PyTorch or GPU raises its reason; earlier ones are kept."""
    path = tmp_path / "kernels.csv"
    kernel_recorder.record([RESNET], "A100", path, gpu_uuid="GPU-0", command=_tracer(tmp_path))
    before = path.read_bytes()
    broken = (sys.executable, "-c", "import sys; print('noise', file=sys.stderr); sys.exit('no such card')")
    with pytest.raises(DeviceError, match=r"vgg19:1 failed: no such card"):
        kernel_recorder.record([RESNET, Workload("vgg19", 1)], "A100", path, gpu_uuid="GPU-0", command=broken)
    assert path.read_bytes() == before
    slow = (sys.executable, "-c", "import time; time.sleep(600)")
    with (
        closing(Tracer("A100", gpu_uuid="GPU-0", command=slow, timeout_s=0.2)) as trace,
        pytest.raises(DeviceError, match=r"more than 0\.2 s"),
    ):
        trace(RESNET)
    with (
        closing(Tracer("A100", gpu_uuid="GPU-none")) as trace,
        pytest.raises(DeviceError, match=r"heshare\[live\]|CUDA"),
    ):
        trace(RESNET)


def test_keep_last(tmp_path: Path) -> None:
    """Of two iterations the second is kept: the first may have lost its beginning."""

    def kernel(ts: float) -> dict[str, Any]:
        return {"cat": "kernel", "ph": "X", "name": "k", "ts": ts, "dur": 5.0}

    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel(10.0), kernel(60_000.0), kernel(60_010.0), {"cat": "x"}]}))
    keep_last(path)
    assert [event.start_us for event in parse_trace(path)] == [60_000.0, 60_010.0]
    for lost in ([], [kernel(60_000.0), kernel(60_010.0)]):
        path.write_text(json.dumps({"traceEvents": lost}))
        with pytest.raises(RuntimeError, match="the profiler lost"):
            keep_last(path)
