"""The loss of the directed acyclic Transformer (Huang et al. 2022, sections 3.2 and 3.3): all paths, after glancing.

-log p(y|x) / M of a target with M symbols, its start and end among them; the mean over sentences, where targets without
a path add 0.
Or, from a trained system, the expected matches of n-grams over all paths (`losses/matches.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.families.dat import DatObjectiveConfig
from workflow_src.losses.aligned import Aligned, aligned_loss, own_emissions
from workflow_src.losses.common import glanced_share
from workflow_src.losses.draws import sentence_keys, subset
from workflow_src.losses.matches import path_match_score
from workflow_src.losses.paths import Paths, best_path, posterior
from workflow_src.nn.copying import NOT_SHOWN
from workflow_src.nn.layers import Memory
from workflow_src.nn.logarithms import exp
from workflow_src.types import PAD, Batch, Cells, LossTerms, TrainingContext

if TYPE_CHECKING:
    from workflow_src.families.dat.model import DirectedAcyclicTransformer

# Vertices that paths visit so often or less get no gradient of their symbols.
LEAST_VISITS = 1e-4


def path_loss(
    model: DirectedAcyclicTransformer, batch: Batch, context: TrainingContext, config: DatObjectiveConfig
) -> LossTerms:
    """The loss of `dat`. Targets with more symbols than vertices add nothing; `unreachable` is their share.

    Figures are means over sentences: `nll` of what each adds, `glanced` and `wrong` of shares of its symbols.
    """
    memory = model.encode(batch.source)
    real = batch.cells(model.vertices_of(batch.source_lengths))
    if config.ngrams:
        hidden, mask = model.hidden(memory)
        scores = match_scores(model, hidden, mask, batch.target, config.ngrams, real)
        return LossTerms((1 - scores).mean(), len(scores), {"matches": scores.detach().mean()})
    paths = paths_of(model, batch)
    share = glanced_share(config.glance_share, config.glance_end, context.progress) if config.glance_share else 0.0
    figures: dict[str, Tensor | float] = {}
    shown = None
    if share > 0:
        keys = sentence_keys(batch, context.seed)
        shown, wrong = shown_symbols(model, memory, paths, keys, share, real)
        glanced = (shown != NOT_SHOWN).sum(1)
        figures = {"glanced": (glanced / paths.counts).mean(), "wrong": (wrong / paths.counts).mean()}
    hidden, mask = model.hidden(memory, shown)
    losses, plain = sentence_losses(model, hidden, mask, paths, real)
    figures |= {"nll": plain.mean(), "unreachable": 1 - paths.reachable.float().mean()}
    return LossTerms(losses.mean(), len(losses), figures)


def paths_of(model: DirectedAcyclicTransformer, batch: Batch) -> Paths:
    return Paths.of(batch.target, model.vertices_of(batch.source_mask.sum(1)))


def sentence_losses(
    model: DirectedAcyclicTransformer,
    hidden: Tensor,
    mask: Tensor,
    paths: Paths,
    real: Cells | None = None,
) -> tuple[Tensor, Tensor]:
    """-log p(y|x) / M in nats a symbol, (B,), and the same without a gradient; 0 where no path puts out the target.

    hidden (B, L, D) at the vertices of mask (B, L), whose cells are `real`; without them, the CPU waits to read it.
    Vertices that paths visit `LEAST_VISITS` times or less get no gradient of their symbols.
    """
    counts, reachable = paths.counts, paths.reachable

    def align(emissions: Tensor, transitions: Tensor) -> Aligned:
        over_paths = posterior(emissions, transitions, paths)
        scale = 1 / counts.to(over_paths.total.dtype)
        losses = torch.where(reachable, -over_paths.total, 0.0) * scale
        visited = over_paths.visits.sum(-1, keepdim=True) > LEAST_VISITS
        shares = over_paths.visits * visited * scale[:, None, None]
        gradient = over_paths.transitions * -scale[:, None, None]
        return Aligned(losses, shares, reachable, normalised=False, gradients=(gradient,))

    weight, bias = model.target_embedding.weight, model.output_bias
    transitions = model.transitions(hidden, mask)
    return aligned_loss(hidden, weight, bias, mask, paths.symbols, align, real, further=(transitions,))


def match_scores(
    model: DirectedAcyclicTransformer, hidden: Tensor, mask: Tensor, target: Tensor, size: int, real: Cells
) -> Tensor:
    """F1 (B,) of the expected matches of n-grams of `size` of targets (B, T), over all paths.

    hidden (B, L, D) at the vertices of mask (B, L), whose cells are `real`.
    """
    vertices = mask.sum(1)

    def align(emissions: Tensor, transitions: Tensor) -> Aligned:
        with torch.enable_grad():
            emissions, transitions = (x.detach().requires_grad_() for x in (emissions, transitions))
            words = exp(emissions) * (mask[..., None] & (target != PAD)[:, None])
            scores = path_match_score(words, exp(transitions), vertices, target, size)
            shares, gradient = torch.autograd.grad(scores.sum(), (emissions, transitions))
        counted = torch.ones_like(vertices, dtype=torch.bool)
        return Aligned(1 - scores.detach(), shares, counted, normalised=False, gradients=(-gradient,))

    weight, bias = model.target_embedding.weight, model.symbol_bias()
    further = (model.transitions(hidden, mask),)
    losses, _ = aligned_loss(hidden, weight, bias, mask, target, align, real, further=further)
    return 1 - losses


@torch.no_grad()
def shown_symbols(
    model: DirectedAcyclicTransformer,
    memory: Memory,
    paths: Paths,
    keys: Tensor,
    share: float,
    real: Cells | None = None,
) -> tuple[Tensor, Tensor]:
    """Symbols (B, L) that are shown, NOT_SHOWN elsewhere, and the number of symbols that the model gets wrong (B,).

    A first pass with the dropout of the update's own pass gives the most probable path of the target. A `share` of the
    number of its symbols that are not the best of their vertices is shown, any of them as likely, with random `keys`
    (B,) of sentences. Targets without a path have none.
    """
    # The update's pass draws the same numbers again, so that both passes drop the same.
    with torch.random.fork_rng([memory.states.device] if memory.states.is_cuda else []):
        hidden, mask = model.hidden(memory)
    weight, bias, symbols = model.target_embedding.weight, model.output_bias, paths.symbols
    emissions, highest = own_emissions(hidden, weight, bias, mask, symbols, real)
    path = best_path(emissions, model.transitions(hidden, mask), paths)
    rows = torch.arange(len(path), device=path.device)[:, None]
    columns = torch.arange(symbols.size(1), device=path.device)
    worse = emissions[rows, path, columns] < highest.gather(1, path)
    wrong = worse & (symbols != PAD) & paths.reachable[:, None]
    # Halves are rounded up, also where a product such as 0.3 * 5 is a little below its half.
    count = (wrong.sum(1).double() * share + 0.5 + 1e-9).floor()
    chosen = subset(keys, paths.counts, count, symbols.size(1))
    # What is not chosen is written to an extra column.
    place = torch.where(chosen, path, mask.size(1))
    shown = symbols.new_full((mask.size(0), mask.size(1) + 1), NOT_SHOWN).scatter(1, place, symbols)[:, :-1]
    return shown, wrong.sum(1)
