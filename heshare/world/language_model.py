"""Shape of a language model: the bytes that a decode step or a prefill moves, its operations, and its memory.

A decode step reads the weights once, whatever the inference batch size, and the cache of keys and values of every
sequence; a prefill reads the weights once for all prompts. Of a mixture of experts those weights are read which some
token of the step takes, if every expert is as likely as another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heshare.shared.errors import require

CONTEXT_MIB = 540.0
"""Device memory of a CUDA context and its libraries, MiB; assumed, as in `data/workloads.csv`."""
LARGEST_DECODE_M = 1000.0
"""Parameters, millions, up to which a workload of the kind `decode` needs no shape."""
SHAPE_KINDS = DECODE, PREFILL = "decode", "prefill"
"""Kinds of workloads of a language model: one token of every sequence, and prompts."""
_MIB, _BYTES = 2.0**20, {"fp16": 2.0, "tf32": 4.0, "mixed": 4.0, "fp32": 4.0}


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """Shape of a language model, and the context of its workload.

    Attributes:
        layers: transformer blocks.
        params_m: parameters, millions.
        active_params_m: parameters that one token uses, millions; all of them unless it is a mixture of experts.
        heads: attention heads.
        kv_heads: heads of keys and values.
        head_dim: elements of a head.
        context: tokens of a prompt (prefill), or of a sequence when its next token is decoded.
        prefill: whether an iteration processes whole prompts; else it decodes one token of every sequence.
        full_layers: layers that attend to the whole context.
        window_layers: layers that attend to the last `window` tokens.
        window: tokens to which these attend.
        embedding_m: parameters of an input table of which a token reads one row, millions.
        experts: experts of a layer; 0 for a dense model.
        experts_used: experts that a token takes.
        state_mib: recurrent state of a sequence, read and written at each step, MiB.
        weight_bytes: bytes of a stored parameter; 0: those of the precision.
    """

    layers: int
    params_m: float
    active_params_m: float
    heads: int
    kv_heads: int
    head_dim: int
    context: float
    prefill: bool = False
    full_layers: int = 0
    window_layers: int = 0
    window: int = 0
    embedding_m: float = 0.0
    experts: int = 0
    experts_used: int = 0
    state_mib: float = 0.0
    weight_bytes: float = 0.0

    @classmethod
    def of(cls, facts: Mapping[str, Any], shape: Mapping[str, Any]) -> "LanguageModel":
        """Return the shape of a workload: its kind, layers and parameters in `facts`, and its own fields in `shape`.

        Raises:
            InputError: more active than all parameters, more experts used than there are, more layers with attention
                than layers, a window without layers or the reverse, or neither attention nor a state.
        """
        own = {name: value for name, value in shape.items() if name in cls.__dataclass_fields__}
        own.setdefault("active_params_m", facts["params_m"])
        own.setdefault("full_layers", facts["layers"] - own.get("window_layers", 0))
        model = cls(facts["layers"], facts["params_m"], prefill=facts["kind"] == PREFILL, **own)
        active = 0 <= model.embedding_m < model.active_params_m <= model.params_m
        found = f"{model.active_params_m:g} of {model.params_m:g} million parameters, {model.embedding_m:g} of a table"
        require("active_params_m", found, active, "at most all, and more than the table", "Correct the parameters.")
        found = f"{model.experts_used} of {model.experts} experts"
        good = 0 < model.experts_used < model.experts or not model.experts
        require("experts_used", found, good, "fewer than there are", "Correct the experts.")
        model._check_layers()
        return model

    def _check_layers(self) -> None:
        found = f"{self.full_layers} full_layers and {self.window_layers} window_layers of {self.layers} layers"
        good = 0 <= self.full_layers <= self.layers - self.window_layers
        require("full_layers", found, good, "at most all layers", "Correct the layers.")
        good = self.full_layers + self.window_layers > 0 or self.state_mib > 0.0
        expected = "layers with attention, or the state_mib of a model without them"
        require("full_layers", f"{found} without a state", good, expected, "Correct full_layers, or add state_mib.")
        found = f"{self.window_layers} window_layers with a window of {self.window} tokens"
        good = bool(self.window_layers) == bool(self.window)
        require("window", found, good, "both or neither", "Add the missing row, or remove the other.")

    def tokens(self, batch_size: float) -> float:
        """Return the tokens of an iteration: one a sequence in a decode step, all of the prompts in a prefill."""
        return batch_size * self.context if self.prefill else batch_size

    def read_params(self, tokens: float) -> float:
        """Return the parameters that a step on so many tokens reads."""
        read_m = self.params_m - self.embedding_m
        if self.experts:
            used = self.experts_used / self.experts
            in_experts_m = (self.params_m - self.active_params_m) / (1.0 - used)
            read_m -= in_experts_m * (1.0 - used) ** tokens
        return 1e6 * read_m

    def cache_bytes(self, precision: str) -> float:
        """Return the keys and values of a sequence at its context, bytes."""
        return 2.0 * self.kv_heads * self.head_dim * self._attended * _BYTES[precision]

    @property
    def _attended(self) -> float:
        # Tokens that a decoded token attends to, summed over the layers.
        return self.full_layers * self.context + self.window_layers * min(self.context, self.window)

    def moved_bytes(self, batch_size: float, precision: str, *, prompt_tokens: float = 0.0) -> float:
        """Return the bytes that an iteration moves; `prompt_tokens` of other sequences are processed with it."""
        weights = (self.weight_bytes or _BYTES[precision]) * self.read_params(self.tokens(batch_size) + prompt_tokens)
        states = 2.0 * self.state_mib * _MIB
        return weights + batch_size * (self.cache_bytes(precision) + states)

    def operations(self, batch_size: float, *, prompt_tokens: float = 0.0) -> float:
        """Return the operations of an iteration: two a parameter and token, and those of attention."""
        dense = 2e6 * (self.active_params_m - self.embedding_m) * (self.tokens(batch_size) + prompt_tokens)
        # A token of a prompt attends to half of it in the mean.
        attended = 0.5 * self.context * self._attended if self.prefill else self._attended
        return dense + 4.0 * self.heads * self.head_dim * attended * batch_size

    def memory_mib(self, batch_size: float, precision: str) -> float:
        """Return the device memory of a process, MiB: CUDA context, all weights, keys, values and recurrent states."""
        weights_mib = 1e6 * self.params_m * (self.weight_bytes or _BYTES[precision]) / _MIB
        return CONTEXT_MIB + weights_mib + batch_size * (self.cache_bytes(precision) / _MIB + self.state_mib)
