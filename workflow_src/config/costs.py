"""Weights that matrix products multiply with, counted from sizes alone: what operations a pass costs. No torch here.

A position costs two floating-point operations for each weight it meets. Attention's own products (a few per cent at
sentence lengths), embeddings and norms are left out; source and target are taken as equally long.
"""

from __future__ import annotations

from typing import Any


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
