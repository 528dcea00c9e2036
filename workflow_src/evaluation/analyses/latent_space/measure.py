"""The latent space of one sentence, position by position (Lee et al. 2020, section 6.1), for latents of width 2.

At each position the plane of its own latent is shown, the other positions held at the prior mean: which subword the
decoder puts out where, and where the score network points. Paths of refinement move all positions at once, so a path
may end in a region of another subword than it decodes to; both are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.refinement import Refinement, open_refinement
from workflow_src.errors import ConfigError
from workflow_src.evaluation.analyses.inputs import Inputs
from workflow_src.evaluation.analyses.latent_space import LatentSpaceSettings
from workflow_src.evaluation.analyses.networks import entry_settings
from workflow_src.nn.layers import Memory
from workflow_src.nn.length import LengthChoice
from workflow_src.nn.models import LatentModel, Refiner
from workflow_src.registry import searches
from workflow_src.spec import MODEL, REFINER
from workflow_src.types import EOS, Networks

# Sequences decoded together: bounds memory, changes nothing.
CHUNK = 256


def measure(inputs: Inputs, settings: LatentSpaceSettings) -> dict[str, Any]:
    (entry,) = inputs.searches
    translator, number = inputs.translator(entry["system"]), settings.sentence
    networks: Networks = translator.networks(entry_settings(entry, settings.steps))
    model, refiner, device = networks[MODEL], networks[REFINER], translator.runtime.device
    sentences = inputs.sentences(settings.sentences if number is None else number + 1)
    sources = [[*ids, EOS] for ids in translator.subwords.encode_source(sentences.sources)]
    targets = translator.subwords.encode_target(sentences.targets, sentences.sources)
    if number is None:
        place = choose(model, refiner, sources, targets, settings.positions, settings.steps, device)
    elif number in sentences.numbers:
        place = sentences.numbers.index(number)
    else:
        raise ConfigError(
            "analyses.latent_space.sentence",
            number,
            problem=f"this line of {inputs.source}, counted from 0, is empty or not there",
            hint="name another",
        )
    refinements = _refinements(entry, settings.steps, networks)
    sizes = (settings.steps, settings.resolution, settings.arrows)
    drawn = map_sentence(model, refiner, refinements, sources[place], targets[place], *sizes, device)
    ids = sorted(
        {cell for panel in drawn["panels"] for row in panel["regions"] for cell in row}
        | {token for tokens in drawn["outputs"].values() for token in tokens}
        | ({EOS} if drawn["end_symbol"] is not None else set())
    )
    source = sentences.sources[place]
    texts = {
        name: translator.text([[token for token in tokens if token != EOS]], sources=[source])[0]
        for name, tokens in drawn["outputs"].items()
    }
    return drawn | {
        "sentence": sentences.numbers[place],
        "source": source,
        "reference": sentences.references[place],
        "system": entry["system"],
        "steps": settings.steps,
        "pieces": dict(zip(map(str, ids), translator.subwords.pieces_target(ids), strict=True)),
        "texts": texts,
    }


def _refinements(entry: dict[str, Any], steps: int, networks: Networks) -> dict[str, Refinement]:
    """The refinement of the control of a search and of the search itself, by name."""
    names = [name for name in (searches()[entry["search"]].control, entry["search"]) if name]
    settings_by_name = {name: entry_settings(entry | {"search": name}, steps) for name in names}
    refinements = {name: open_refinement(networks, settings) for name, settings in settings_by_name.items()}
    return {name: search for name, search in refinements.items() if search is not None}


def path(search: Refinement, memory: Memory, z: Tensor, mask: Tensor, steps: int) -> Tensor:
    """Latents before and after each step: (1, T, Z) -> (steps + 1, T, Z)."""
    points = [z]
    for _ in range(steps):
        points.append(search.moved(memory, points[-1], mask))
    return torch.cat(points)


def window(points: Tensor, deviation: Tensor) -> tuple[Tensor, float]:
    """Centre (2,) and half the side of a square around points (N, 2), and 2.5 of the prior's deviations (2,) wide.

    Nearly all draws from the prior lie within it.
    """
    low, high = points.amin(0), points.amax(0)
    return (low + high) / 2, max(0.65 * float((high - low).max()), 2.5 * float(deviation.max()))


def lattice(centre: Tensor, half: float, count: int) -> Tensor:
    """Points (count * count, 2) of a square, row by row from below, as centres of its cells."""
    offsets = half * (2 * torch.arange(count, dtype=centre.dtype) + 1 - count) / count
    y, x = torch.meshgrid(centre[1] + offsets, centre[0] + offsets, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], -1)


def _around(memory: Memory, mean: Tensor, position: int, points: Tensor) -> tuple[Memory, Tensor, Tensor]:
    """The memory of the one sentence N times, latents (N, T, 2) that are the mean (1, T, 2) but for one position, where
    they are the points (N, 2), and their mask."""
    z = mean.expand(len(points), -1, -1).clone()
    z[:, position] = points.to(z)
    rows = torch.zeros(len(z), dtype=torch.long, device=z.device)
    return memory.select(rows), z, torch.ones(z.shape[:2], dtype=torch.bool, device=z.device)


@torch.no_grad()
def regions(model: LatentModel, memory: Memory, mean: Tensor, position: int, points: Tensor) -> list[int]:
    """The subword put out at `position` for each point (N, 2), the other positions at `mean` (1, T, 2)."""
    tokens: list[int] = []
    for chunk in points.split(CHUNK):
        tokens += model.read(*_around(memory, mean, position, chunk))[0][:, position].tolist()
    return tokens


@torch.no_grad()
def field(refiner: Refiner, memory: Memory, mean: Tensor, position: int, points: Tensor) -> Tensor:
    """The refiner's direction (N, 2) at `position` for each point (N, 2), the other positions at `mean` (1, T, 2)."""
    return refiner.direction(*_around(memory, mean, position, points))[:, position].double().cpu()


@torch.no_grad()
def changes(model: LatentModel, refiner: Refiner, source: Sequence[int], length: int, steps: int, device: Any) -> int:
    """Positions at which refinement by the network changes the output, at this target length."""
    memory = model.encode(torch.tensor([list(source)], device=device))
    mask = model.latent_mask(memory, LengthChoice(lengths=torch.tensor([length], device=device)))
    z, _ = model.prior(memory, mask)
    before, _ = model.read(memory, z, mask)
    for _ in range(steps):
        z = z + refiner.direction(memory, z, mask)
    return int((before != model.read(memory, z, mask)[0]).sum())


@torch.no_grad()
def choose(
    model: LatentModel,
    refiner: Refiner,
    sources: Sequence[Sequence[int]],
    references: Sequence[Sequence[int]],
    longest: int,
    steps: int,
    device: Any,
) -> int:
    """Index of the sentence to show, among those whose reference has at most `longest` subwords.

    One that refinement changes comes first, then one whose reference has the predicted length, then the one changed at
    most positions, then the first. Raises ConfigError where all references are longer or empty.
    """
    short = [i for i, reference in enumerate(references) if sources[i][:-1] and 1 <= len(reference) <= longest]
    if not short:
        raise ConfigError(
            "analyses.latent_space.positions",
            longest,
            problem=f"none of {len(references)} sentences has a reference of at most so many subwords",
            hint="raise it, or analyses.latent_space.sentences",
        )

    def rank(i: int) -> tuple[bool, bool, int, int]:
        memory = model.encode(torch.tensor([list(sources[i])], device=device))
        predicted = int(model.latent_mask(memory).sum()) - model.extra_positions
        moved = changes(model, refiner, sources[i], len(references[i]), steps, device)
        return moved > 0, predicted == len(references[i]), moved, -i

    return max(short, key=rank)


@torch.no_grad()
def map_sentence(
    model: LatentModel,
    refiner: Refiner,
    refinements: Mapping[str, Refinement],
    source: Sequence[int],
    reference: Sequence[int],
    steps: int,
    resolution: int,
    arrows: int,
    device: Any,
) -> dict[str, Any]:
    """The content of the picture of one sentence, at the length of its reference; subwords as ids.

    Entries are those of `LatentSpace` and its panels; `refinements` are the searches whose paths are shown, by their
    names. Outputs keep their end symbols. Raises ConfigError for latents of another width.
    """
    memory = model.encode(torch.tensor([list(source)], device=device))
    target = model.whole_target(torch.tensor([list(reference)], device=device))
    mask = torch.ones_like(target, dtype=torch.bool)
    mean, deviation = model.prior(memory, mask)
    if mean.size(-1) != 2:
        raise ConfigError("model.latent_dim", mean.size(-1), problem="a picture has 2 dimensions", allowed=[2])
    posterior, _ = model.posterior(memory, target, mask)
    paths = {name: path(search, memory, mean, mask, steps) for name, search in refinements.items()}
    ends = {"prior": mean, "posterior": posterior} | {name: z[-1:] for name, z in paths.items()}
    panels = []
    for position in range(target.size(1)):
        points = {name: z[:, position].double().cpu() for name, z in {"posterior": posterior, **paths}.items()}
        centre, half = window(torch.cat(list(points.values())), deviation[0, position].double().cpu())
        cells = regions(model, memory, mean, position, lattice(centre, half, resolution))
        places = lattice(centre, half, arrows)
        panels.append(
            {
                "centre": centre.tolist(),
                "half": half,
                "regions": [cells[row * resolution : (row + 1) * resolution] for row in range(resolution)],
                "arrows": torch.cat([places, field(refiner, memory, mean, position, places)], -1).tolist(),
                "prior": mean[0, position].double().cpu().tolist(),
                "posterior": points["posterior"][0].tolist(),
                "paths": {name: points[name].tolist() for name in paths},
            }
        )
    outputs = {name: model.read(memory, z, mask)[0][0].tolist() for name, z in ends.items()}
    end = EOS if model.extra_positions else None
    return {"end_symbol": end, "searches": list(paths), "outputs": outputs, "panels": panels}
