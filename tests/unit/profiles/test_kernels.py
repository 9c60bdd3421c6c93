"""Kernel traces: from the profiler's files to a table that is refused whole when a cell is bad."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.devices.runner.trace import keep_last
from heshare.errors import DeviceError, InputError
from heshare.profiles import kernel_trace, kernels
from heshare.profiles.kernels import COLUMNS, Event, KernelRow, parse_trace, summarise
from heshare.world.workload import Workload

LONG = (
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(" + "x, " * 60 + ")"
)
RESNET = Workload("resnet18", 4)

# Written by hand in the form of PyTorch's profiler: what the GPU did, what the host did, and marks.
TRACE: dict[str, Any] = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 9, "tid": 9, "ts": 90.0, "dur": 40.0, "args": {}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 95.0, "dur": 5.0, "args": {}},
        {
            **{"ph": "X", "cat": "kernel", "name": "sgemm_128x64", "ts": 112.5, "dur": 20.0},
            "args": {"device": 0, "stream": 7, "grid": [16, 4, 1], "block": [128, 1, 1], "correlation": 12},
        },
        {
            **{"ph": "X", "cat": "kernel", "name": LONG, "ts": 100.0, "dur": 10.25},
            "args": {"device": 0, "stream": 7, "grid": [80, 1, 1], "block": [256, 1, 1], "correlation": 11},
        },
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 135.0, "dur": 1.5, "args": {"bytes": 4096}},
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "ts": 80.0, "s": "g"},
    ],
}


def _file(path: Path, trace: object) -> Path:
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


@pytest.fixture
def events(tmp_path: Path) -> tuple[Event, ...]:
    return parse_trace(_file(tmp_path / "trace.json", TRACE))


@pytest.fixture
def rows(events: tuple[Event, ...]) -> tuple[KernelRow, ...]:
    return summarise([events, events], RESNET, "A100")


def test_a_trace_gives_the_kernels_in_order_of_their_start(events: tuple[Event, ...]) -> None:
    first, second, copy = events
    assert first.kernel.startswith("void cudnn::ops::nchwToNhwcKernel<float")
    assert len(first.kernel) == kernels.NAME_LENGTH
    assert first.kernel[-9] == "#"
    assert second == Event("sgemm_128x64", "16x4x1", "128x1x1", 112.5, 20.0)
    assert (copy.kernel, copy.grid, copy.block) == ("Memcpy DtoD", "", "")


def test_long_names_stay_apart() -> None:
    trace = {"traceEvents": [{**TRACE["traceEvents"][4], "name": "k" * 200 + end} for end in "ab"]}
    one, other = (kernels._event(event).kernel for event in trace["traceEvents"])
    assert one != other


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ({"traceEvents": TRACE["traceEvents"][:3]}, "no kernels"),
        ({"traceEvents": []}, "no kernels"),
        ({}, "no trace"),
        ([], "no trace"),
        ({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "dur": 1.0}]}, "no trace"),
        ({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": -1.0}]}, "no trace"),
        ({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": "x", "dur": 1.0}]}, "no trace"),
        ({"traceEvents": [7]}, "no trace"),
    ],
)
def test_what_is_no_trace_of_a_gpu_is_refused(trace: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        parse_trace(_file(tmp_path / "trace.json", trace))


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"trace\.json"):
        parse_trace(path)
    with pytest.raises(InputError, match="FileNotFoundError"):
        parse_trace(tmp_path / "none.json")


def test_means_and_deviations_are_over_the_repeats(events: tuple[Event, ...]) -> None:
    slower = tuple(
        replace(one, start_us=one.start_us + 3.0 * n, duration_us=one.duration_us + 2.0) for n, one in enumerate(events)
    )
    first, second, last = summarise([events, slower], RESNET, "A100")
    assert (first.position, second.position, last.position) == (0, 1, 2)
    assert (first.duration_us, first.duration_std_us) == (11.25, 1.414)
    # The second kernel begins 2.25 us after the first ends, then 2.25 + 3 - 2.
    assert (first.gap_us, first.gap_std_us) == (2.75, 0.707)
    assert (second.gap_us, second.gap_std_us) == (3.0, 0.707)
    assert (last.gap_us, last.gap_std_us) == (0.0, 0.0)
    assert {one.repeats for one in (first, second, last)} == {2}
    assert first.provenance == "measured"


def test_an_iteration_with_other_kernels_is_left_out(events: tuple[Event, ...]) -> None:
    rows = summarise([events, events[:2], events], RESNET, "A100")
    assert len(rows) == 3
    assert {one.repeats for one in rows} == {2}


@pytest.mark.parametrize("keep", [(), (3, 2), (3, 2, 1)])
def test_iterations_that_do_not_agree_are_refused(keep: tuple[int, ...], events: tuple[Event, ...]) -> None:
    with pytest.raises(InputError, match="same kernels in the same order"):
        summarise([events[:count] for count in keep], RESNET, "A100")


def test_a_table_reads_back_as_written_and_always_the_same(rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    other = tuple(replace(one, batch_size=1) for one in rows)
    path = kernels.write([*rows, *other], tmp_path / "kernels.csv")
    assert kernels.read(path) == (*other, *rows)
    again = kernels.write([*other[::-1], *rows], tmp_path / "again.csv")
    assert again.read_bytes() == path.read_bytes()


def test_a_bad_row_is_not_written(rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    for bad in (replace(rows[0], gpu="A101"), replace(rows[0], duration_us=-1.0), replace(rows[0], position=5)):
        with pytest.raises(InputError):
            kernels.write([bad, *rows[1:]], path)
        assert list(tmp_path.glob("*kernels*")) == []


BAD = {
    "gpu": ["", "A101", "a100"],
    "provenance": ["", "measurd"],
    "workload": ["", "resnet51"],
    "batch_size": ["", "0", "-1", "1.5", "x", "nan", "1e3"],
    "precision": ["", "fp8"],
    "position": ["", "7", "-1", "0.5", "x"],
    "kernels": ["", "0", "2", "4", "1.5", "x"],
    "kernel": [""],
    "grid": ["80", "80x1", "0x1x1", "80x1x1x1", "-1x1x1", "ax1x1", "80,1,1"],
    "block": ["256", "256x1", "256x0x1", "x"],
    "duration_us": ["", "-1", "nan", "inf", "x", "1_0", "10 us"],
    "duration_std_us": ["", "-1", "nan", "x"],
    "gap_us": ["", "nan", "-inf", "x"],
    "gap_std_us": ["", "-1", "nan", "x"],
    "repeats": ["", "0", "-1", "2.5", "x"],
}


@pytest.mark.parametrize(("column", "cell"), [(column, cell) for column, cells in BAD.items() for cell in cells])
def test_a_bad_cell_is_refused_with_its_row_and_column(
    column: str, cell: str, rows: tuple[KernelRow, ...], tmp_path: Path
) -> None:
    path = kernels.write(rows, tmp_path / "kernels.csv")
    lines = list(csv.reader(path.read_text("utf-8").splitlines()))
    lines[2][COLUMNS.index(column)] = cell
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(lines)
    with pytest.raises(InputError) as caught:
        kernels.read(path)
    assert (caught.value.row, caught.value.column) == (3, column)


def test_every_column_is_corrupted_above() -> None:
    assert set(BAD) == set(COLUMNS)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_named(column: str, rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    path = kernels.write(rows, tmp_path / "kernels.csv")
    text = path.read_text("utf-8").replace(f"{column},", "other,", 1).replace(f",{column}\n", ",other\n", 1)
    path.write_text(text.replace("duration_other", "other"), encoding="utf-8")
    with pytest.raises(InputError):
        kernels.read(path)


def test_a_workload_twice_or_without_its_beginning_is_refused(rows: tuple[KernelRow, ...], tmp_path: Path) -> None:
    other = tuple(replace(one, batch_size=8) for one in rows)
    path = kernels.write([*rows, *other], tmp_path / "kernels.csv")
    head, *lines = path.read_text("utf-8").splitlines(keepends=True)
    for wrong, column in (
        ([*lines, *lines[:3]], "workload"),
        (lines[1:], "position"),
        (lines[:2] + lines[3:], "position"),
        (lines[:-1], "position"),
        (lines[::-1], "position"),
    ):
        path.write_text(head + "".join(wrong), encoding="utf-8")
        with pytest.raises(InputError) as caught:
            kernels.read(path)
        assert caught.value.column == column


@given(st.lists(st.tuples(st.floats(0.001, 1e6), st.floats(0.0, 1e3)), min_size=1, max_size=30))
def test_durations_and_gaps_add_up_to_the_whole(spans: list[tuple[float, float]]) -> None:
    events, now_us = [], 0.0
    for duration_us, gap_us in spans:
        events.append(Event("k", "1x1x1", "1x1x1", now_us, duration_us))
        now_us += duration_us + gap_us
    rows = summarise([events], RESNET, "T4")
    whole_us = events[-1].start_us + events[-1].duration_us
    assert sum(one.duration_us + one.gap_us for one in rows) == pytest.approx(whole_us, abs=0.001 * 2 * len(rows))


# A tracer that needs no GPU: it writes as many traces as it is asked for.
TRACER = (
    "import pathlib, sys\n"
    "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
    "for n in range(int(given['--repeats'])):\n"
    "    (pathlib.Path(given['--out']) / f'iteration-{n}.json').write_text(TRACE)\n"
    "with open(LOG, 'a') as log:\n"
    "    print(given['--model'], given['--batch-size'], given['--precision'], file=log)\n"
)


def _tracer(folder: Path) -> tuple[str, ...]:
    text = TRACER.replace("TRACE)", f"{json.dumps(TRACE)!r})").replace("LOG", repr(str(folder / "log")))
    return sys.executable, "-c", text


def test_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "A100" / "kernels.csv"
    wanted = [Workload("resnet18", 1), Workload("vgg19", 8)]
    how: dict[str, Any] = {"gpu_uuid": "GPU-0", "repeats": 2, "command": _tracer(tmp_path)}
    kernel_trace.record(wanted[:1], "A100", path, **how)
    kernel_trace.record(wanted, "A100", path, **how)
    assert (tmp_path / "log").read_text("utf-8").splitlines() == ["resnet18 1 fp32", "vgg19 8 fp32"]
    rows = kernels.read(path)
    assert [(one.workload, one.batch_size, one.position) for one in rows] == [
        (one.model, one.batch_size, n) for one in wanted for n in range(3)
    ]
    assert {one.repeats for one in rows} == {2}


def test_a_trace_that_fails_says_why_and_keeps_what_was_traced(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    kernel_trace.record([RESNET], "A100", path, gpu_uuid="GPU-0", command=_tracer(tmp_path))
    before = path.read_bytes()
    broken = (sys.executable, "-c", "import sys; print('noise', file=sys.stderr); sys.exit('no such card')")
    with pytest.raises(DeviceError, match=r"vgg19:1 failed: no such card"):
        kernel_trace.record([RESNET, Workload("vgg19", 1)], "A100", path, gpu_uuid="GPU-0", command=broken)
    assert path.read_bytes() == before
    slow = (sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(DeviceError, match=r"more than 0\.2 s"):
        kernel_trace.kernel_trace(RESNET, "A100", gpu_uuid="GPU-0", command=slow, timeout_s=0.2)


def test_the_real_tracer_says_what_is_missing() -> None:
    """No PyTorch, or no GPU of this name: a message, no empty table."""
    with pytest.raises(DeviceError, match=r"heshare\[live\]|CUDA"):
        kernel_trace.kernel_trace(RESNET, "A100", gpu_uuid="GPU-none")


def test_only_a_live_gpu_has_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kernel_trace.main(["--device", "emulated:A100", "--out", str(tmp_path)]) == 2
    assert "Name a live GPU" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_of_two_iterations_the_last_is_kept_whole(tmp_path: Path) -> None:
    """The first may have lost its beginning, as it has here."""

    def kernel(ts: float) -> dict[str, Any]:
        return {"cat": "kernel", "ph": "X", "name": "k", "ts": ts, "dur": 5.0}

    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel(10.0), kernel(60_000.0), kernel(60_010.0), {"cat": "x"}]}))
    keep_last(path)
    assert [one.start_us for one in parse_trace(path)] == [60_000.0, 60_010.0]
    for lost in ([], [kernel(60_000.0), kernel(60_010.0)]):
        path.write_text(json.dumps({"traceEvents": lost}))
        with pytest.raises(RuntimeError, match="the profiler lost"):
            keep_last(path)
