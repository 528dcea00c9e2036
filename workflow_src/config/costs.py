"""Weights and operations of systems and decodes, as their families and searches count them. No torch here.

A position costs two floating-point operations for each weight of a matrix product that it meets. Attention's own
products (a few per cent at sentence lengths), embeddings and norms are left out; source and target are taken as equally
long.
"""

from __future__ import annotations

import dataclasses

from workflow_src.config.datasets import TEST
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import Decode, System
from workflow_src.config.sizes import AUTO
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.errors import ConfigError
from workflow_src.registry import fill, named_systems, needs, of_the_family, search_of, searches
from workflow_src.spec import MODEL, SearchSettings, Weights, check_beams

# From this width on, a GPU's products are large enough for its higher rates.
WIDE = 512
# The GPU that hours are of, its operations a second at most, and the shares of them that are reached: in training by
# width of the model, and in decoding, whose products are small.
GPU, PEAK = "NVIDIA A100 in bfloat16", 312e12
WIDE_TRAINING, NARROW_TRAINING, DECODING = (0.10, 0.40), (0.03, 0.15), (0.003, 0.05)
# Defaults; the numbers of an experiment or of its encoded corpus win.
HELD_OUT = 2000
LENGTH = {"generated": 12.0, "files": 28.0, "folder": 28.0}
# The part of `Family.weights` that projects onto the vocabulary, and layers guessed from weights: 12 D² each.
OUTPUT, LAYER = "output", 12


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a corpus that work depends on.

    `pairs` for training, None where unknown; `length`, mean subwords of a sentence; `monolingual`, lines of text of the
    source language, None where unknown.
    """

    pairs: int | None
    length: float
    monolingual: int | None = None

    def sentences(self, split: str) -> int | None:
        """Number of sentences; an unknown monolingual count is taken as that of pairs."""
        return self.monolingual or self.pairs if split.startswith(MONOLINGUAL) else self.pairs


def gpu_rates(system: System, training: bool) -> tuple[float, float]:
    """Operations a second of one GPU with a system, at least and at most."""
    wide = getattr(system.model, "dim", 0) >= WIDE
    low, high = (WIDE_TRAINING if wide else NARROW_TRAINING) if training else DECODING
    return PEAK * low, PEAK * high


def held_out(plan: Plan, split: str) -> int:
    """Sentences of dev or of a test set: as configured, else assumed."""
    dataset, split = plan.loaded.dataset, split if split == "dev" else TEST
    cut = getattr(dataset.split, split, None) if dataset.split else None
    limits = {str(name): number for name, number in plan.recipe.limits.items()}
    return limits.get(split) or getattr(dataset.generated, split, None) or cut or HELD_OUT


def products(system: System, vocabulary: int) -> dict[str, float]:
    """Multiplications of a system for one position by part: its weights, as often as each part is computed."""
    times = system.family.repeats(system.model) if system.family.repeats else {}
    return {part: count * times.get(part, 1) for part, count in parts(system, vocabulary).items()}


def parts(system: System, vocabulary: int) -> dict[str, int]:
    """Weights of a system's matrix products by part; `output` is the projection onto the vocabulary."""
    return system.family.weights(system.model, vocabulary + len(system.family.symbols))


def parameters(system: System, vocabulary: int, joint: bool) -> int:
    """Trained parameters, roughly: the weights of `parts`, and a source embedding of its own where not joint."""
    weights = parts(system, vocabulary)
    separate = 0 if joint or OUTPUT not in weights or system.family.imported else vocabulary * system.model.dim
    return sum(weights.values()) + separate


def layers(system: System) -> float:
    """Layers that an update goes through."""
    if system.family.layers:
        return system.family.layers(system.model)
    weights = sum(count for part, count in parts(system, 0).items() if part != OUTPUT)
    return max(1.0, weights / (LAYER * system.model.dim**2))


def vocabulary_size(plan: Plan) -> int:
    """Subwords of the vocabulary in a plan without auto (`sized`)."""
    size = plan.recipe.subwords.vocabulary_size
    assert isinstance(size, int), "the plan is sized"
    return size


def updates(system: System) -> int:
    """Updates of a training in a plan without auto (`sized`)."""
    steps = system.training.max_steps
    assert isinstance(steps, int), "the plan is sized"
    return steps


def operations_a_position(system: System, plan: Plan) -> float:
    """Floating-point operations of training on one position of a batch, source and target taken as equally long.

    Raises ConfigError for a training that counts a part which the `weights` of a family lack.
    """
    vocabulary = vocabulary_size(plan)
    weights = {MODEL: products(system, vocabulary)}
    weights |= {role: products(plan.system(name), vocabulary) for role, name in system.filled.items()}
    if system.family.training_cost is None:
        return 6.0 * sum(weights[MODEL].values())
    try:
        return system.family.training_cost(system.objective, weights)
    except KeyError as missing:
        raise ConfigError(
            f"systems.{system.name}",
            problem=f"`training_cost` reads weights of {missing}, which its families do not declare",
            hint="add them to their `weights`",
        ) from None


def weights_of(plan: Plan, system: System, settings: SearchSettings) -> Weights:
    """Weights of the systems that a search works with: by role, then by part."""
    vocabulary = vocabulary_size(plan)
    members = [system, *map(plan.system, system.served_with.values())]
    # A role of the search that has the name of one of the family's is filled by the same system.
    names = of_the_family(settings, system.served_with) | named_systems(settings)
    by_role = {role: plan.system(name) for role, name in names.items()}
    filled = fill(needs(settings), [(member, member.family) for member in members], by_role)
    return {role: products(member, vocabulary) for role, member in filled.items()}


def decoding_operations(plan: Plan, system: System, settings: SearchSettings, sentences: float, length: float) -> float:
    """Floating-point operations of decoding `sentences` of `length` subwords.

    Raises ConfigError for a search that counts a part which the family's `weights` lack.
    """
    search = search_of(settings)
    try:
        return sentences * search.cost(settings, weights_of(plan, system, settings), length)
    except KeyError as missing:
        raise ConfigError(
            f"systems.{system.name}",
            problem=f"search {search.name} reads weights of {missing}, which its family does not declare",
            hint="add them to its `weights`, or name another search",
        ) from None


def scoring_operations(plan: Plan, system: System, pairs: float, length: float) -> float:
    """Floating-point operations of scoring `pairs` whose targets have `length` subwords, in one parallel pass each."""
    return 2.0 * sum(products(system, vocabulary_size(plan)).values()) * pairs * (length + 1)


def decode_operations(plan: Plan, decode: Decode, sentences: float, length: float, tried: bool = False) -> float:
    """Operations of a decode: those of the costliest settings that it chooses from; `tried`: their sum over all."""
    operations = [
        decoding_operations(plan, plan.system(decode.system), settings, sentences, length)
        for settings in decode.combinations
    ]
    return sum(operations) if tried else max(operations)


def check(plan: Plan) -> None:
    """Count a position of every training and a sentence of every decode, as requests and estimates do later.

    Raises ConfigError where a family or a search cannot count them.
    """
    plan = sized(plan, Sizes(pairs=1, length=1))
    for system in plan.loaded.systems.values():
        if system.family.updated:
            operations_a_position(system, plan)
    vocabulary = vocabulary_size(plan)
    for decode in plan.loaded.decodes:
        decode_operations(plan, decode, sentences=1, length=1)
        for settings in decode.combinations:
            check_beams(settings, vocabulary, f"decode {decode.system}/{decode.name}")
    for teacher in plan.teachers:
        check_beams(plan.distillation(teacher).search_settings(), vocabulary, f"distillation.{teacher}")


def widest(decode: Decode) -> int:
    """Hypotheses that are held for a sentence, at most."""
    search = searches()[decode.search]
    return max(search.width(settings) for settings in decode.combinations)


def sized(plan: Plan, sizes: Sizes) -> Plan:
    """The plan with numbers in place of auto, for a corpus of these sizes."""
    pairs = sizes.pairs or 1
    tokens, monolingual_tokens = (round(count * (sizes.length + 1)) for count in (pairs, sizes.monolingual or pairs))
    return Plan(plan.loaded.sized(pairs, tokens, monolingual_tokens))


def sentence_length(plan: Plan, length: float | None = None) -> float:
    """Mean subwords of a sentence: `length`, or the default for such a dataset."""
    length, limit = length or LENGTH[plan.loaded.dataset.kind], plan.recipe.max_length
    return length if limit == AUTO else min(length, limit)


def raw_pairs(plan: Plan, pairs: int | None = None) -> int | None:
    """Training pairs before the recipe's limit: `pairs`, or those of the dataset; None where neither is known."""
    dataset = plan.loaded.dataset
    return pairs or getattr(dataset.generated, "train", None) or dataset.pairs


def training_pairs(plan: Plan, pairs: int | None = None) -> int | None:
    """Training pairs: `raw_pairs`, cut to the recipe's limit."""
    count = raw_pairs(plan, pairs)
    limit = plan.recipe.limits.get("train")
    return min(count, limit) if count and limit else count
