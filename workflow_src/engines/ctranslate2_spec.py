"""An autoregressive Transformer as a CTranslate2 model folder, built with that library's own `specs` from our weights.

CTranslate2 then computes our Transformer: embeddings times sqrt(D) plus our table of positions (its own sines and
cosines are arranged otherwise), pre-norm with a last norm or post-norm without, ReLU, one embedding for everything
where the vocabulary is joint, and our bias of the output. Padding and the start symbol, which our search never outputs,
get a bias so low that their probability is 0. In our search their probability, which is close to 0 in a trained model,
stays in the normaliser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workflow_src.errors import ConfigError, InputError
from workflow_src.families.transformer.model import Transformer
from workflow_src.spec import Export
from workflow_src.types import BOS, EOS, PAD, UNK

# In float16 too, exp of it is 0.
NEVER = -1e4
# PyTorch's LayerNorm adds it to the variance.
EPSILON = 1e-5
FIX = 'install the extra "fast": pip install ctranslate2==4.8.5'


def library() -> Any:
    """The module ctranslate2. Raises ConfigError where it is not installed."""
    try:
        import ctranslate2
    except ImportError as failure:
        problem = f"it needs a package that is not there ({failure})"
        raise ConfigError("engine", "ctranslate2", problem=problem, hint=FIX) from None
    return ctranslate2


def export(model: Any, subwords: Any, folder: Path) -> Export:
    """Write a bundle's network to `folder`. Raises ConfigError where the library is missing; see `write_model`."""
    version = library().__version__
    write_model(model, subwords.names(), folder)
    return Export("model.bin", {"ctranslate2": version})


def write_model(model: Any, pieces: dict[str, list[str]], folder: str | Path) -> None:
    """Write `model` (a Transformer) in float32 to `folder`, which must exist: model.bin, config.json, vocabularies.

    `pieces` are the names of all ids, in their order: {"source": …, "target": …}. Quantisation happens when the folder
    is loaded. Raises InputError for other models than a `transformer`, and for pieces with duplicates or of another
    number than the model's.
    """
    ct2 = library()
    if not isinstance(model, Transformer):
        raise InputError(type(model).__name__, "is no model of family transformer", "CTranslate2 can hold no other")
    sizes = {side: getattr(model, f"{side}_embedding").weight.size(0) for side in ("source", "target")}
    for side, size in sizes.items():
        if len(pieces[side]) != size or len(set(pieces[side])) != size:
            raise InputError(
                f"the {side} vocabulary",
                f"names {len(set(pieces[side]))} different subwords, the model has {size}",
                "use the subwords that the system was trained with",
            )
    spec = _spec(ct2, model)
    # The same tokens on both sides make one shared vocabulary file.
    spec.register_source_vocabulary(pieces["source"])
    spec.register_target_vocabulary(pieces["target"])
    specials = pieces["target"]
    spec.config.bos_token = specials[BOS]
    spec.config.eos_token = specials[EOS]
    spec.config.unk_token = specials[UNK]
    spec.config.decoder_start_token = specials[BOS]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = EPSILON
    spec.validate()
    # Equal arrays, such as a shared embedding, are stored once.
    spec.optimize()
    spec.save(str(folder))


def _spec(ct2: Any, model: Any) -> Any:
    config = model.config
    spec = ct2.specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers), config.heads, pre_norm=config.norm == "pre"
    )
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    sides = (
        (spec.encoder, model.source_embedding, model.encoder),
        (spec.decoder, model.target_embedding, model.decoder),
    )
    for side, embedding, stack in sides:
        side.scale_embeddings = True
        side.position_encodings.encodings = _array(embedding.positions)
        if config.norm == "pre":
            _norm(side.layer_norm, stack.norm)
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            _layer(layer_spec, layer)
    spec.decoder.projection.weight = _array(model.target_embedding.weight)
    bias = _array(model.output_bias)
    bias[[PAD, BOS]] = NEVER
    spec.decoder.projection.bias = bias
    return spec


def _layer(spec: Any, layer: Any) -> None:
    attention = layer.self_attention
    _norm(spec.self_attention.layer_norm, layer.self_norm)
    _linear(spec.self_attention.linear[0], attention.query_key_value)
    _linear(spec.self_attention.linear[1], attention.output)
    if layer.cross_attention is not None:
        cross = layer.cross_attention
        _norm(spec.attention.layer_norm, layer.cross_norm)
        for linear_spec, linear in zip(
            spec.attention.linear, (cross.query, cross.key_value, cross.output), strict=True
        ):
            _linear(linear_spec, linear)
    _norm(spec.ffn.layer_norm, layer.feed_norm)
    _linear(spec.ffn.linear_0, layer.feed_forward.inner)
    _linear(spec.ffn.linear_1, layer.feed_forward.outer)


def _linear(spec: Any, linear: Any) -> None:
    spec.weight, spec.bias = _array(linear.weight), _array(linear.bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Any) -> np.ndarray:
    """A float32 copy of a tensor: changes of the array must not change the model."""
    return np.array(tensor.detach().float().cpu().numpy())
