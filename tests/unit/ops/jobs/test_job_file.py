"""`read_jobs`: a good file is read, a bad one raises an `InputError` with row and field."""

from __future__ import annotations

import pytest

from heshare.ops.jobs.job_file import OUTPUT_MIB, read_jobs
from heshare.shared.errors import InputError
from heshare.world.catalogue import memory_mib
from heshare.world.workload import Workload

GOOD = """\
jobs:
  - name: train
    command: [python, train.py, --epochs, 3, "a b; $(rm -rf /)"]
    like: resnet50:8
    iterations: 2e4
    count: 3
    timeout_s: 60
    retries: 2
    environment: {SEED: 7, EMPTY: ""}
    arrival_s: 5
    output_mib: 12
  - name: serve
    workload: bert_large:4
    expected_time_s: 120.5
"""


def write(folder, text):
    path = folder / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def test_every_field(tmp_path):
    """A good file is read field by field, with defaults."""
    train, serve = read_jobs(write(tmp_path, GOOD))
    assert train.command == ("python", "train.py", "--epochs", "3", "a b; $(rm -rf /)")
    assert train.workload == Workload("resnet50", 8)
    assert (train.iterations, train.count, train.timeout_s, train.retries, train.arrival_s) == (20_000, 3, 60, 2, 5)
    assert train.environment == (("SEED", "7"), ("EMPTY", ""))
    assert (train.output_mib, serve.output_mib) == (12, OUTPUT_MIB)
    assert train.directory == tmp_path
    assert train.memory_mib == memory_mib(train.workload)
    assert (serve.command, serve.workload, serve.expected_time_s) == ((), Workload("bert_large", 4), 120.5)
    assert (serve.count, serve.timeout_s, serve.retries, serve.row) == (1, None, 0, 12)


def test_load_class(tmp_path):
    """`like` may name a load class instead of a workload."""
    text = "jobs: [{name: a, command: [true], like: medium, iterations: 5}]"
    assert read_jobs(write(tmp_path, text))[0].workload.model in ("resnet101", "densenet161", "vgg16", "resnet152")


ENTRY = "jobs:\n  - name: a\n    command: [x]\n    like: resnet50:8\n    iterations: 5\n"
BAD = [
    ("", None, "an empty file"),
    ("just text", 1, "'just text'"),
    ("jobs: []", 1, "an empty list"),
    ("tasks: []", 1, "the key 'tasks'"),
    ("jobs: [{}]", 1, "without a name"),
    ("jobs:\n  - name: a/../b", 2, "'a/../b'"),
    ("jobs:\n  - name: a", 2, "neither"),
    ("jobs:\n  - name: a\n    command: [x]\n    workload: resnet50:8", 2, "both"),
    ("jobs:\n  - name: a\n    command: [x]", 2, "a command without `like`"),
    (ENTRY.replace("[x]", "x --flag"), 3, "'x --flag'"),
    (ENTRY.replace("[x]", "['']"), 3, "without a program"),
    (ENTRY.replace("[x]", "[x, [y]]"), 3, "a list"),
    (ENTRY.replace("[x]", '[x, "\\0"]'), 3, "a zero byte"),
    (ENTRY.replace("[x]", "[x, !!python/object/apply:os.system [ls]]"), 3, "a list"),
    (ENTRY.replace("resnet50:8", "resnet5:8"), 4, "'resnet5:8'"),
    (ENTRY.replace("resnet50:8", "resnet50:8@50"), 4, "'resnet50:8@50'"),
    (ENTRY.replace("iterations: 5", "retries: 1"), 2, "no amount of work"),
    (ENTRY + "    expected_time_s: 5", 2, "iterations and expected_time_s"),
    *[(ENTRY.replace(": 5", f": {bad}"), 5, "found") for bad in ("0", "nan", ".inf", "x", "")],
    *[(ENTRY + f"    count: {bad}", 6, "count") for bad in ("0", "1.5", "1e9", "two")],
    *[(ENTRY + f"    retries: {bad}", 6, "retries") for bad in ("-1", "0.5", "yes")],
    *[(ENTRY + f"    timeout_s: {bad}", 6, "timeout_s") for bad in ("0", "10m")],
    (ENTRY + "    memory_mib: 70000", 6, "70000"),
    (ENTRY + "    directory: nowhere", 6, "nowhere"),
    (ENTRY + "    environment: [A]", 6, "a list"),
    (ENTRY + "    environment: {1A: x}", 6, "'1A'"),
    (ENTRY + "    environment: {CUDA_VISIBLE_DEVICES: 0}", 6, "CUDA_VISIBLE_DEVICES"),
    (ENTRY + "    environment: {A: [1]}", 6, "a list"),
    (ENTRY + "    iterations: 6", 6, "twice"),
    (ENTRY + "    retry: 6", 6, "'retry'"),
    (ENTRY + ENTRY.removeprefix("jobs:\n"), 6, "the name 'a' again"),
    (ENTRY + "    arrival_s: -1", 6, "arrival_s"),
    (ENTRY + "    output_mib: 0", 6, "output_mib"),
    (ENTRY + "    precision: fp64", 6, "'fp64'"),
    (
        "jobs:\n" + "".join(f"  - {{name: {n}, workload: gpt2:4, iterations: 5, count: 6e4}}\n" for n in "ab"),
        2,
        "120000",
    ),
    ("jobs: [{name: a, workload: resnet50:8, like: low, iterations: 5}]", 1, "with a workload"),
    ("jobs: [{name: a, workload: resnet50:8, environment: {A: 1}, iterations: 5}]", 1, "`environment` with"),
    ("jobs: [{name: a, workload: medium, iterations: 5}]", 1, "'medium'"),
    ("jobs: [", 1, "no YAML"),
    ("a: 1\n---\nb: 2", 2, "no YAML"),
    ("[" * 1000, None, "without end"),
    (b"jobs: \xff\xfe", None, "not UTF-8"),
    (b"jobs: \x00", None, "characters"),
    ("a" * (5 << 20), None, "more than 4 MiB"),
    ("x: &a [z, z]\n" + "".join(f"x{i}: &b{i} [*a, *a]\n" for i in range(50)) + "jobs: *a", 1, "the key 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "row", "part"), BAD)
def test_bad_file(tmp_path, text, row, part):
    """A bad file is refused with its row and what was found."""
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_jobs(path)
    error = caught.value
    assert part in str(error)
    assert error.file == str(path)
    assert row is None or error.row == row


def test_missing_file(tmp_path):
    """A missing file and a folder are refused."""
    with pytest.raises(InputError, match="no such file"):
        read_jobs(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_jobs(tmp_path)
