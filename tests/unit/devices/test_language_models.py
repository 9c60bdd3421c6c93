"""Language models: shapes of the catalogue, the law on every GPU, what is refused, and tasks in every policy."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

import heshare as hs
from heshare import Workload
from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.devices.language_models import default_law
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import PRECISIONS, Model, Resident

LLAMA = "llama3_8b"
ROWS = {
    "title": ("Mine", ""),
    "description": ("mine", ""),
    "load": ("none", ""),
    "kind": ("decode", ""),
    "layers": ("32", ""),
    "params_m": ("8030", "1e6"),
}
SHAPE = {"heads": ("32", ""), "kv_heads": ("8", ""), "head_dim": ("128", ""), "context": ("1024", "tokens")}
SIZES = {
    "gflops": ("15", "GFLOP/sample"),
    "activations_m": ("1", "1e6/sample"),
    "memory_fixed_mib": ("16000", "MiB"),
    "memory_per_sample_mib": ("128", "MiB/sample"),
}


def time_ms(gpu: str, resident: str, **options) -> float:
    return 1e3 * hs.estimate(gpu, resident, precision="fp16", **options).tasks[0].time_s


def described(tmp_path: Path, rows: dict[str, tuple[str, str]]):
    path = tmp_path / "mine.csv"
    lines = [f"mine,{field},{value},{unit}" for field, (value, unit) in rows.items()]
    path.write_text("\n".join(("workload,field,value,unit", *lines)), encoding="utf-8")
    return catalogue._read_models(path)["mine"]


def test_llama():
    """Llama 3 8B on an A100 moves its weights once, and the cache of every sequence."""
    shape = catalogue.model(LLAMA).language
    assert shape.cache_bytes("fp16") == 2 * 32 * 8 * 128 * 2 * 1024
    assert shape.moved_bytes(32, "fp16") == pytest.approx(2 * (8030e6 - 525.3e6) + 32 * 134.2e6, rel=1e-3)
    assert shape.operations(1) == pytest.approx(2 * (8030e6 - 525.3e6), rel=0.05)
    times = [time_ms("A100", f"{LLAMA}:{size}") for size in (1, 8, 32, 128)]
    assert times == sorted(times)
    assert times[-1] < 3 * times[0]


def test_decode_step():
    """A decode step takes the time of the server, of weights beside operations, and of keys and values."""
    law, gpu, shape = default_law(), catalogue.gpu("H100"), catalogue.model(LLAMA).language
    streamed_s = 1.0 / (1e9 * gpu.mem_bw_gbs * law.bandwidth)
    weights_s, cache_s = 2 * (8030e6 - 525.3e6) * streamed_s, 16 * shape.cache_bytes("fp16") * streamed_s
    launches_s = (32 + 32) * law.launch_cycles / (1e6 * gpu.max_mhz)
    compute_s = shape.operations(16) / (1e12 * gpu.fp16_tflops * law.rate)
    expected_s = law.step_s + 16 * law.sequence_s + math.hypot(weights_s + launches_s, compute_s) + cache_s
    assert time_ms("H100", f"{LLAMA}:16") == pytest.approx(1e3 * expected_s, rel=1e-9)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precisions(precision: str):
    """A language model is estimated in every precision; those of FP32 numbers move twice the bytes of FP16."""
    found = hs.estimate("H100", f"{LLAMA}:1", precision=precision).tasks[0]
    assert found.arithmetic == catalogue.gpu("H100").arithmetic(precision, "decode")
    assert (found.time_s > 1.5 * hs.estimate("H100", f"{LLAMA}:1", precision="fp16").tasks[0].time_s) == (
        precision != "fp16"
    )


def test_power():
    """A decode step draws the energy of its bytes and tiles, beside idle power and busy clocks."""
    law, gpu, shape = default_law(), catalogue.gpu("H100"), catalogue.model(LLAMA).language
    estimate, power = hs.estimate("H100", f"{LLAMA}:16", precision="fp16"), default().power["H100"]
    weights, tiles = 2 * (8030e6 - 525.3e6), 2 * 32 * (8030e6 - 525.3e6)
    attention = shape.operations(16) - 2 * 16 * (8030e6 - 525.3e6)
    traffic = law.weight_energy * weights + law.cache_energy * 16 * shape.cache_bytes("fp16")
    operations = law.tile_energy * (tiles + attention) / (1e12 * gpu.fp16_tflops)
    energy_j = (gpu.tdp_w - gpu.idle_w) * (traffic / (1e9 * gpu.mem_bw_gbs) + operations)

    time_s = estimate.tasks[0].time_s
    busy = 1.0 - law.server_s(16) / time_s
    clocks_w = power.idle_w + power.idle_clock_w + power.clock_w * busy
    assert estimate.power_w == pytest.approx(clocks_w + energy_j / time_s, rel=1e-6)


def test_experts_draw_more():
    """A mixture of experts draws more as more of its experts are read."""
    drawn_w = [hs.estimate("H100", f"qwen3_30b_a3b:{size}", precision="fp16").power_w for size in (1, 4, 16, 64)]
    assert drawn_w == sorted(drawn_w)
    assert drawn_w[-1] > 1.2 * drawn_w[0]


@pytest.mark.parametrize(("gpu", "half"), [("A100", (1.05, 1.25)), ("H100", (1.0, 1.05))])
def test_shares(gpu: str, half: tuple[float, float]):
    """A smaller share of the SMs is never faster; half of them cost an A100 more than an H100."""
    one_sequence = [time_ms(gpu, f"{LLAMA}:1@{pct}") for pct in (100, 90, 70, 50, 40, 30, 20, 10)]
    assert one_sequence == sorted(one_sequence)
    assert half[0] <= one_sequence[3] / one_sequence[0] <= half[1]
    assert one_sequence[-1] < 10 * one_sequence[0]


@pytest.mark.parametrize("gpu", catalogue.gpus())
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_lowest_clock(gpu: str, precision: str):
    """The power limit of no card leaves a language model a clock below the lowest that can be set."""
    card, names = catalogue.gpu(gpu), [name for name, model in catalogue.models().items() if model.language]
    for name, batch, pct in product(names, (1, 8, 64, 512), (20, 100)):
        reached_mhz = co_run(card, [Resident(Workload(name, batch, precision), pct)]).sm_mhz
        assert reached_mhz >= card.clocks_mhz[0], (name, batch, pct)


def test_memory():
    """Memory is weights by precision and cache by context."""
    fp16, fp32 = (catalogue.memory_mib(Workload(LLAMA, 32, precision)) for precision in ("fp16", "fp32"))
    assert fp16 == pytest.approx(540 + 2 * 8030e6 / 2**20 + 32 * 128)
    assert fp32 - 540 == pytest.approx(2 * (fp16 - 540))
    with pytest.raises(InputError, match="on T4, which needs"):
        hs.estimate("T4", f"{LLAMA}:32", precision="fp16")


def test_experts():
    """A step reads the experts that its tokens take."""
    shape = catalogue.model("qwen3_30b_a3b").language
    one, all_params = 1e6 * (shape.active_params_m - shape.embedding_m), 1e6 * (shape.params_m - shape.embedding_m)
    assert shape.read_params(1) == pytest.approx(one)
    assert shape.read_params(1e4) == pytest.approx(all_params)
    read = [shape.read_params(tokens) for tokens in (1, 8, 64)]
    assert read == sorted(read)
    dense = catalogue.model(LLAMA).language
    assert dense.read_params(1) == dense.read_params(1e4)


def test_prefill():
    """A prefill computes its prompts."""
    one, eight = time_ms("H100", f"{LLAMA}_prefill:1"), time_ms("H100", f"{LLAMA}_prefill:8")
    assert 7.0 < eight / one < 8.0
    assert one > 2 * time_ms("H100", f"{LLAMA}:1")


@pytest.mark.parametrize("name", [LLAMA, "qwen3_30b_a3b", f"{LLAMA}_prefill"])
@pytest.mark.parametrize("batch", [1, 8])
def test_limit(name: str, batch: int):
    """Under a limit a T4 moves less, down to one that the traffic at full bandwidth exceeds at every clock."""
    gpu, own = catalogue.gpu("T4"), [Resident(Workload(name, batch, "fp16"))]
    free = co_run(gpu, own, power_cap_w=1e4)
    parts = (0.1, 0.2, 0.5, 0.8, 1.0, 1.5)
    answers = [co_run(gpu, own, power_cap_w=gpu.idle_w + part * (free.power_w - gpu.idle_w)) for part in parts]
    times_s = [answer.tasks[0].time_s for answer in answers]
    assert times_s == sorted(times_s, reverse=True)
    assert times_s[0] > times_s[-1] == free.tasks[0].time_s
    # What a step takes above idle power does not grow as the card slows.
    above_j = [(answer.power_w - gpu.idle_w) * answer.tasks[0].time_s for answer in answers]
    assert above_j == pytest.approx(sorted(above_j), rel=0.01)


def test_no_shape(tmp_path: Path, monkeypatch):
    """A large decoder without a shape is refused."""
    known = {**catalogue.models(), "mine": hs_model(tmp_path, {**ROWS, **SIZES})}
    monkeypatch.setattr(catalogue, "models", lambda: known)
    with pytest.raises(InputError, match="without heads"):
        hs.estimate("A100", "mine:32", precision="fp16")


def hs_model(tmp_path: Path, rows):
    return Model(name="mine", **described(tmp_path, rows))


def test_shape(tmp_path: Path):
    """A shape gives the other fields of a description."""
    model = hs_model(tmp_path, {**ROWS, **SHAPE})
    assert model.gflops == pytest.approx(16.06 + 0.54, abs=0.1)
    assert model.memory_per_sample_mib == pytest.approx(128)
    assert model.language.active_params_m == 8030


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": None}, "without heads"),
        (
            {"kind": ("prefill", ""), "heads": None, "kv_heads": None, "head_dim": None, "context": None},
            "without heads",
        ),
        ({"kind": ("cnn", "")}, "kind cnn without tokens"),
        ({"kind": ("encode", "")}, "for kind of mine"),
        ({"active_params_m": ("9000", "1e6")}, "9000 of 8030 million"),
        ({"experts": ("8", ""), "experts_used": ("9", "")}, "9 of 8 experts"),
        ({"context": ("0", "tokens")}, "for context of mine"),
        ({"context": ("1024", "words")}, "expected tokens"),
    ],
)
def test_refusals(tmp_path: Path, changes, message: str):
    """A wrong description is refused with what is missing."""
    rows = {field: row for field, row in {**ROWS, **SHAPE, **changes}.items() if row is not None}
    with pytest.raises(InputError, match=message):
        described(tmp_path, rows)
