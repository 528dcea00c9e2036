"""Weights that matrix products multiply with, counted from sizes alone: what operations a pass costs. No torch here.

A position costs two floating-point operations for each weight it meets. Attention's own products (a few per cent at
sentence lengths), embeddings and norms are left out; source and target are taken as equally long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workflow_src.config.plan import Plan
    from workflow_src.config.resolved import System

# From this width on, a GPU's products are large enough for its higher rates.
WIDE = 512
# Assumed where nothing better is known; an experiment's own numbers win.
HELD_OUT = 2000
LENGTH = {"generated": 12.0, "files": 28.0, "folder": 28.0}


def encoder_layer(dim: int, width: int) -> int:
    """Weights of one encoder layer: query, key, value and output of attention; two linear layers."""
    return 4 * dim * dim + 2 * dim * width


def decoder_layer(dim: int, width: int) -> int:
    """Weights of one decoder layer: those of an encoder layer, and attention to the source."""
    return encoder_layer(dim, width) + 4 * dim * dim


def step_operations(
    search: str, lvm: dict[str, Any], vocabulary: int, network: dict[str, Any] | None = None
) -> float | None:
    """Operations of one refinement step at one position; None for a search without steps.

    `lvm` and `network` are model settings (dim D, feed_forward F, layers n, latent_dim Z). With c = 8 D² + 2 D F for a
    decoder layer:

        delta     2 (n c + Z D + V D + n c + 2 Z D)     decoder, output projection, posterior and its two heads
        score     2 (n c + 2 Z D)                       one network from Z to Z
        energy    4 (n c + Z D + D)                     forward, and backward to the latents

    For F = 4 D and equal layers, delta / score is about 2 + V / (16 n D).
    """

    def stack(model: dict[str, Any]) -> int:
        return model["layers"] * decoder_layer(model["dim"], model["feed_forward"])

    if search == "delta":
        dim, latent = lvm["dim"], lvm["latent_dim"]
        return 2.0 * (2 * stack(lvm) + 3 * latent * dim + vocabulary * dim)
    if search in ("score", "energy") and network is not None:
        dim, latent = network["dim"], network["latent_dim"]
        if search == "score":
            return 2.0 * (stack(network) + 2 * latent * dim)
        return 4.0 * (stack(network) + latent * dim + dim)
    return None


def parts(system: System, vocabulary: int) -> dict[str, int]:
    """Weights of a system's matrix products by part; `output` is the projection onto the vocabulary."""
    model = system.model
    dim, width = model.dim, model.feed_forward
    if system.family_name == "transformer":
        return {
            "encoder": model.encoder_layers * encoder_layer(dim, width),
            "decoder": model.decoder_layers * decoder_layer(dim, width),
            "output": vocabulary * dim,
        }
    stack = model.layers * decoder_layer(dim, width)
    if system.family_name == "lvm":
        return {
            "encoder": model.encoder_layers * encoder_layer(dim, width),
            "prior": stack + 2 * dim * model.latent_dim,
            "posterior": stack + 2 * dim * model.latent_dim,
            "decoder": stack + model.latent_dim * dim,
            "output": vocabulary * dim,
        }
    head = model.latent_dim if system.family_name == "score" else 1
    return {"network": stack + model.latent_dim * dim + head * dim}


def parameters(system: System, vocabulary: int, joint: bool) -> int:
    """Trained parameters, roughly: the weights of `parts`, and a source embedding of its own where not joint."""
    separate = 0 if joint or system.base else vocabulary * system.model.dim
    return sum(parts(system, vocabulary).values()) + separate


def operations_a_position(system: System, plan: Plan) -> float:
    """Floating-point operations of training on one position of a batch, source and target taken as equally long."""
    vocabulary = plan.recipe.subwords.vocabulary_size
    own = parts(system, vocabulary)
    if system.base is None:
        return 6.0 * sum(own.values())
    base = parts(plan.system(system.base), vocabulary)
    objective = system.objective
    delta = base["decoder"] + base["output"] + base["posterior"]
    goal = 2.0 * (base["encoder"] + base["prior"] + objective.delta_steps * delta)
    network = own["network"]
    learning, moving = (12.0, 4.0) if system.family_name == "energy" else (6.0, 2.0)
    own_steps = objective.pre_update_probability * (1 - objective.pre_update_after)
    return goal + (learning + moving * own_steps) * network


def decoding_operations(plan: Plan, system: System, search: dict[str, Any], sentences: float, length: float) -> float:
    """Floating-point operations of decoding `sentences` of `length` subwords; `search` has beam or steps."""
    vocabulary = plan.recipe.subwords.vocabulary_size
    own = parts(system, vocabulary)
    positions = sentences * length
    if system.family_name == "transformer":
        return 2.0 * positions * (own["encoder"] + search.get("beam", 1) * (own["decoder"] + own["output"]))
    base = parts(plan.system(system.base), vocabulary) if system.base else own
    kind = search["search"]
    step = {
        "delta": base["decoder"] + base["output"] + base["posterior"],
        "score": own.get("network", 0),
        "energy": 2 * own.get("network", 0),
    }.get(kind, 0)
    once = base["encoder"] + base["prior"] + base["decoder"] + base["output"]
    return 2.0 * positions * (once + search.get("steps", 0) * step)


def sentence_length(plan: Plan, length: float | None = None) -> float:
    """Mean subwords of a sentence: `length`, or what is assumed of such a dataset."""
    return min(length or LENGTH[plan.loaded.dataset.kind], plan.recipe.max_length)


def training_pairs(plan: Plan, pairs: int | None = None) -> int | None:
    """Training pairs: `pairs`, or what the dataset says, cut to the recipe's limit; None where nobody knows."""
    dataset = plan.loaded.dataset
    known = pairs or dataset.generator.get("train") or dataset.pairs
    limit = plan.recipe.limits.get("train")
    return min(known, limit) if known and limit else known
