"""The 15 models of Table IV in PyTorch with random weights and fixed inputs; nothing is downloaded.

The cost of a forward pass does not depend on the weights. PyTorch (extra `live`) is imported when a network is built.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from heshare.shared.errors import DeviceError, unknown
from heshare.shared.extras import install_command

TOKENS = 128
"""Tokens of a sample of BERT Large and GPT-2."""

IMAGE = 224
"""Height and width of an image, pixels; it has three channels."""

CLASSES = 1000
"""Classes of an image network."""

BEAM = 4
"""Hypotheses of the Transformer for each sample."""

SOURCE_TOKENS = 4
"""The Transformer's encoder share of one output position, tokens; an iteration has about 0.6 GFLOP, as catalogued."""

VOCABULARY = 37_000
"""Entries of the Transformer's vocabulary, shared by both languages (English-German of the base model)."""

ARITHMETIC = {
    "fp32": ("ieee", "ieee"),
    "tf32": ("tf32", "tf32"),
    "mixed": ("ieee", "tf32"),
    "fp16": ("ieee", "ieee"),
}
"""PyTorch's names of the arithmetic in which FP32 numbers are multiplied, by precision: in matrix products, and in
convolutions and recurrent layers. `mixed` is its default since version 1.12. GPUs without TF32 use FP32 for both."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network that is ready to run, with its input.

    Attributes:
        module: the `torch.nn.Module`, in evaluation mode, on its device.
        inputs: the tensors of one iteration.
        output: selects the result from the module's output, a tensor with one entry a sample in its first dimension
            (for the Transformer one a hypothesis, `BEAM` a sample).
    """

    module: Any
    inputs: tuple[Any, ...]
    output: Callable[[Any], Any]

    def __call__(self) -> Any:
        """Run one iteration, a forward pass over the whole inference batch; return the result's tensor."""
        return self.output(self.module(*self.inputs))


def library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DeviceError(
            f"The models of Table IV need {name.partition('.')[0]}, which cannot be imported here ({reason}). "
            f"Run: {install_command('live')}"
        ) from error


def build(name: str, batch_size: int, *, precision: str = "fp32", device: str = "cuda", seed: int = 0) -> Network:
    """Build a network of Table IV with weights and inputs drawn from `seed`.

    `precision` is what the network runs in: `fp32`, `tf32` and `mixed` as in `ARITHMETIC`; `fp16` has weights and
    inputs in FP16. `device` is `cuda` or `cpu`. The same seed gives the same numbers on the same kind of device.
    """
    if name not in RECIPES:
        action = "Choose one, or add its constructor to heshare/ops/worker_program/networks.py."
        raise unknown(name, RECIPES, action, column="workload")
    recipe = RECIPES[name]
    torch = library("torch")
    torch.manual_seed(seed)
    set_arithmetic(torch, precision)

    with torch.device(device):
        module = recipe.make().requires_grad_(False)
        inputs = recipe.inputs(torch, batch_size)
    with torch.no_grad():
        _settle_norms(torch, module, inputs)
    module.eval()
    if device == "cuda":
        torch.cuda.empty_cache()  # the memory is shared with other tasks

    if precision == "fp16":
        module = module.half()
        inputs = tuple(one.half() if one.is_floating_point() else one for one in inputs)
    return Network(module, inputs, recipe.output)


def set_arithmetic(torch: Any, precision: str) -> None:
    """Set the arithmetic in which this process multiplies FP32 numbers, for all networks from now on.

    PyTorch uses the setting of the operator first (matrix products, convolutions, recurrent layers), then that of the
    library, then the general one. The default of convolutions and recurrent layers is TF32, so each is set.
    """
    products, convolutions = ARITHMETIC[precision]
    cudnn = torch.backends.cudnn
    for backend in (torch.backends, torch.backends.cuda.matmul):
        backend.fp32_precision = products
    for backend in (cudnn, cudnn.conv, cudnn.rnn):
        backend.fp32_precision = convolutions


def preload() -> None:
    """Import the libraries of all networks, without a CUDA context; a missing one is an error only in `build`."""
    for name in ("torch", "torchvision.models", "transformers.models.bert", "transformers.models.gpt2"):
        with suppress(DeviceError):
            library(name)
    transformers = sys.modules.get("transformers")
    for name in ("BertModel", "GPT2LMHeadModel") if transformers else ():
        getattr(transformers, name, None)


def _settle_norms(torch: Any, module: Any, inputs: tuple[Any, ...]) -> None:
    """Compute batch-norm statistics from the input.

    With those of a new network (mean 0, variance 1) activations grow from block to block and overflow in FP16, and
    arithmetic on infinities draws less power.
    """
    norms = [one for one in module.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    if not norms:
        return
    for one in norms:
        one.momentum = 1.0
    module.train()
    module(*inputs)


def _tokens(torch: Any, batch_size: int, vocabulary: int) -> tuple[Any, ...]:
    return (torch.randint(0, vocabulary, (batch_size, TOKENS)),)


def _vision(name: str) -> Callable[[], Any]:
    return lambda: getattr(library("torchvision.models"), name)(weights=None)


def _mobilenet() -> Any:
    """MobileNet v1 of width 1: a convolution, 13 depthwise separable blocks, a classifier."""
    nn = library("torch").nn

    def block(inside: int, outside: int, stride: int, kernel: int = 3, groups: int = 1) -> list[Any]:
        layer = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]

    layers = block(3, 32, 2)
    width = 32
    strided = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for wider, stride in strided:
        layers += block(width, width, stride, groups=width) + block(width, wider, 1, kernel=1)
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def _bert_large() -> Any:
    transformers = library("transformers")
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    return transformers.BertModel(config)


def _gpt2() -> Any:
    transformers = library("transformers")
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def _transformer() -> Any:
    """The base model with one embedding for both languages and the output: an output position of each hypothesis."""
    torch = library("torch")

    class Translator(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, 512)
            self.layers = torch.nn.Transformer(batch_first=True, dropout=0.0)

        def forward(self, source: Any, last: Any) -> Any:
            memory = self.layers.encoder(self.embedding(source)).repeat_interleave(BEAM, dim=0)
            hidden = self.layers.decoder(self.embedding(last), memory)
            return hidden[:, -1] @ self.embedding.weight.T

    return Translator()


def _translation(torch: Any, batch_size: int) -> tuple[Any, ...]:
    source = torch.randint(0, VOCABULARY, (batch_size, SOURCE_TOKENS))
    return source, torch.randint(0, VOCABULARY, (batch_size * BEAM, 1))


@dataclass(frozen=True, slots=True)
class _Recipe:
    make: Callable[[], Any]
    inputs: Callable[[Any, int], tuple[Any, ...]] = lambda torch, size: (torch.randn(size, 3, IMAGE, IMAGE),)
    output: Callable[[Any], Any] = lambda answer: answer


RECIPES: dict[str, _Recipe] = {
    **{name: _Recipe(_vision(name)) for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")},
    **{name: _Recipe(_vision(name)) for name in ("densenet121", "densenet161", "densenet201", "vgg16", "vgg19")},
    "mobilenet": _Recipe(_mobilenet),
    "mobilenetv2": _Recipe(_vision("mobilenet_v2")),
    "bert_large": _Recipe(
        _bert_large, lambda torch, size: _tokens(torch, size, 30522), lambda answer: answer.last_hidden_state
    ),
    "transformer": _Recipe(_transformer, _translation),
    "gpt2": _Recipe(_gpt2, lambda torch, size: _tokens(torch, size, 50257), lambda answer: answer.logits),
}
