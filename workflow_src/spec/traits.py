"""Traits of families, roles that systems fill, and the first ids of every vocabulary."""

from __future__ import annotations

# Traits by which other members refer to families. A plug-in adds a trait by declaring it in a family of its own.
AUTOREGRESSIVE = "autoregressive"  # p(y_t | y_<t, x): may teach
SCORER = "scorer"  # log p(y|x) of any outputs: may rank what others put out
LATENT = "latent"  # prior, posterior and decoder of latents z
TARGET_LATENT = "target latent"  # latents of target positions, whose number a length decides first
SOURCE_LATENT = "source latent"  # latents of source positions: of outputs of any length
MASKED = "masked"  # some subwords given, it predicts the others, at a length that it predicts first
BOUND = "bound"  # latents with log p(y|z,x) of any output, so that its evidence lower bound can be computed
LATENT_LENGTHS = "latent lengths"  # p(l|z): latents say how long the output is
LENGTHS = "lengths"  # a head of target lengths, and as many positions as the length says
REFINER = "refiner"  # a direction for the latents of a base
VECTOR_FIELD = "vector field"  # the direction is the network's own output, not a slope
ALIGNED = "aligned"  # slots, blanks and alignments: outputs are read off by merging and dropping
REPETITIONS = "repetitions"  # equal neighbours in outputs are meant: by default, none are removed
GRAPH = "graph"  # vertices with symbols, and transitions between them: outputs are paths
ITERATIVE = "iterative"  # a first guess of all words at a length, and passes that refine a guess
PARALLEL = "parallel"  # all words of an output at once: may draft what others check
LANGUAGE_MODEL = "language model"  # p(y) word by word, by counting: ranks prefixes while they grow
# Traits in words, as the end of a sentence that begins with "a system that".
PHRASES = {
    AUTOREGRESSIVE: "writes one word after another",
    SCORER: "scores given outputs",
    LATENT: "has latents",
    TARGET_LATENT: "has latents of target positions",
    SOURCE_LATENT: "has latents of source positions",
    MASKED: "predicts masked words",
    BOUND: "has a bound of log p(y|x) by its latents",
    LATENT_LENGTHS: "reads lengths off its latents",
    LENGTHS: "predicts lengths",
    REFINER: "refines the latents of a base",
    VECTOR_FIELD: "predicts steps of latents",
    ALIGNED: "has alignments",
    REPETITIONS: "says what comes twice",
    GRAPH: "has a graph of vertices",
    ITERATIVE: "refines a first guess of all words",
    PARALLEL: "translates in one pass",
    LANGUAGE_MODEL: "is a language model",
}
# Traits that go with another: searches of masked and iterative systems begin with a predicted length.
GOES_WITH = {MASKED: LENGTHS, ITERATIVE: LENGTHS}
# The role that `base` in a configuration fills, and the role of a search that a system's own network fills.
BASE, MODEL = "base", "model"
# The first ids of every vocabulary; symbols that a family declares come after its subwords.
PAD, BOS, EOS, UNK = 0, 1, 2, 3


def phrase(trait: str | None) -> str:
    """A trait in words, after "a system that": `scores given outputs`. A plug-in's trait goes by its name."""
    return PHRASES.get(trait, f'has the trait "{trait}"') if trait else "is trained here"
