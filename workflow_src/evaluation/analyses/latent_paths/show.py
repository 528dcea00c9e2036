"""Curves of distances, log-densities and directions of latents over refinement steps."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.evaluation.analyses.curves import CurvePanel, curve_blocks, start_title
from workflow_src.evaluation.analyses.latent_paths import LatentPaths, LatentPathsPoint
from workflow_src.evaluation.document import Block, Caption
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.markdown import signed


def show(content: LatentPaths, manifest: Manifest) -> list[Block]:
    """Distances of the latents after L steps, their log-densities, and the cosine of steps and delta steps."""

    def with_error(point: LatentPathsPoint, key: str, digits: int, write: Callable[[float, int], str]) -> str:
        value = getattr(point, key)
        return "" if value is None else f"{write(value, digits)} ± {getattr(point, f'{key}_error'):.{digits}f}"

    def plain(value: float, digits: int) -> str:
        return f"{value:.{digits}f}"

    def cells(point: LatentPathsPoint) -> list[str]:
        distances = [with_error(point, key, 3, plain) for key in ("from_start", "step", "from_reference")]
        densities = [with_error(point, key, 2, signed) for key in ("log_prior", "log_posterior")]
        cosine = with_error(point, "cosine", 2, signed)
        changed = "" if point.changed is None else f"{100 * point.changed:.0f}"
        return [*distances, *densities, cosine, str(point.moving) if point.steps else "", changed]

    caption = Caption(
        f"Where latents are after L steps, on {content.scope}, from the {start_title(manifest)}, z_0.",
        {
            "Distances": "Euclidean norms of a position's latent: from z_0, from the step before, and from the mean of "
            "q(z|x,y) with the reference as y.",
            "Log-densities": "In nats a position: of the prior p(z|x), and of q(z|x,y) with y as what z_L decodes to.",
            "Cosine": "Between a step and the delta step from the same point, over the sentences in which both move.",
            "Means": "Over positions, then over sentences; bars and ± are standard errors over sentences.",
            "Lengths": "Latents of target positions are followed at the reference's length.",
        },
    )
    panels = [
        CurvePanel(key, title, f"{key}_error", first=first)
        for key, title, first in (
            ("from_start", "distance from z_0", 0),
            ("step", "length of step L", 1),
            ("from_reference", "to the reference's mean", 0),
            ("log_prior", "log p(z|x), nats a position", 0),
            ("log_posterior", "log q(z|x,y), nats a position", 0),
            ("cosine", "cosine with the delta step", 1),
        )
    ]
    heads = ["|z − z_0|", "step", "from the reference's", "log p(z|x)", "log q(z|x,y)", "cosine"]
    heads += ["of sentences", "changed, %"]
    label = "Distances, log-densities and directions of latents against refinement steps"
    return curve_blocks(content, manifest, caption, heads, cells, panels, label)
