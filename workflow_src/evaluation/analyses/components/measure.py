"""Principal components of the latents of a posterior (Gu & Kong 2021, Figure 5): how many dimensions they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workflow_src.evaluation.analyses.components import ComponentsSettings
from workflow_src.evaluation.analyses.inputs import BATCH, Inputs
from workflow_src.evaluation.analyses.networks import posterior_latents


def measure(inputs: Inputs, settings: ComponentsSettings) -> dict[str, Any]:
    sentences = inputs.sentences(settings.sentences)
    rows = []
    for entry in inputs.searches:
        translator = inputs.translator(entry["system"])
        network: Any = translator.network
        latents = posterior_latents(
            network,
            translator.subwords.encode_source(sentences.sources),
            translator.subwords.encode_target(sentences.targets, sentences.sources),
            BATCH,
            translator.runtime.device,
        )
        rows.append(entry | summary(latents, settings.share))
    return {"sentences": len(sentences.sources), "share": settings.share, "rows": rows}


def component_shares(points: np.ndarray) -> np.ndarray:
    """Shares (Z,) of the variance of points (N, Z) that their principal components hold, the largest first.

    They are the eigenvalues of the covariance over their sum; all 0 where the points do not differ.
    """
    centred = points - points.mean(axis=0)
    values = np.linalg.eigvalsh(centred.T @ centred / len(points))[::-1].clip(min=0.0)
    total = values.sum()
    return values / total if total > 0 else np.zeros_like(values)


def enough(shares: np.ndarray, least_share: float) -> int:
    """The fewest components that together hold at least `least_share` of the variance; 0 where there is none."""
    if not shares.any():
        return 0
    # A share that is reached exactly counts, whatever the sum rounds to.
    return int(np.argmax(shares.cumsum() >= least_share - 1e-9)) + 1


def summary(latents: Sequence[tuple[np.ndarray, np.ndarray]], least_share: float) -> dict[str, Any]:
    """How the variance of posterior means spreads, from the means and variances of `posterior_latents`.

    `shares` are those of the principal components, `together` those of the first of them, and `components` is how many
    hold at least `least_share`. `participation` is (sum of the eigenvalues)² / sum of their squares. Variances are sums
    over dimensions: `variance` of the means, `noise` the mean one of q.
    """
    means = np.concatenate([mean for mean, _ in latents])
    shares = component_shares(means)
    squares = float((shares**2).sum())
    return {
        "latents": len(means),
        "width": means.shape[1],
        "shares": shares.tolist(),
        "together": shares.cumsum().tolist(),
        "components": enough(shares, least_share),
        "participation": 1 / squares if squares else 0.0,
        "variance": float(means.var(axis=0).sum()),
        "noise": float(np.concatenate([variance for _, variance in latents]).sum(axis=1).mean()),
    }
