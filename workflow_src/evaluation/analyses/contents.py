"""What the files of the analyses hold, one class for each: stages check what they write by it, reports what they read.

Log-probabilities and energies are in nats, shares in [0, 1], BLEU in [0, 100], lengths and distances of outputs in
subwords. Errors are standard errors over sentences where nothing else is said. No torch here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

from pydantic import Field, model_validator

from workflow_src.config.experiment import Removal
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.analyses.curves import (
    Content,
    Convergence,
    Entry,
    FirstSentences,
    LatentPaths,
    Marginal,
    Tokens,
)
from workflow_src.records.checked import Lenient, check_format, checked

# Of the files of all analyses.
FORMAT = 1

Pair = tuple[float, float]


class Accuracy(Lenient):
    """Shares of sentences whose most probable length is right, or off by at most 1 or 2 subwords.

    `within_top` are the shares whose true length is among the first 1, 2, … candidates; `bias` is predicted minus true,
    in subwords.
    """

    exact: float
    within_1: float
    within_2: float
    bias: float
    within_top: tuple[float, ...] = Field(min_length=1)


class LengthsBleu(Lenient):
    """BLEU at predicted lengths, at the references', and of the best of several by the reference."""

    predicted: float
    reference: float
    oracle: float


class LengthsRow(Entry):
    """`label` is what a search calls itself, where it has no steps to tell."""

    steps: int
    bleu: LengthsBleu
    label: str | None = None


class Lengths(FirstSentences):
    """How well lengths are predicted, by model, and what it costs, by search."""

    candidates: int
    models: dict[str, Accuracy]
    rows: tuple[LengthsRow, ...]
    remove_repetitions: Removal


class Energy(Lenient):
    """-log p(y|x) in nats, means over the `sentences` that could be scored; None where none could."""

    sentences: int
    unscored: int
    per_sentence: float | None
    error: float | None
    per_token: float | None


class ScoredOutputs(Energy):
    """Energy under the first scorer, and in `others` under each other one."""

    others: dict[str, Energy] = {}


class EnergiesRow(ScoredOutputs):
    """Of what a row of the main table put out."""

    system: str
    name: str
    seed: int
    repetitions_removed: Removal


class Bleu(Lenient):
    """BLEU as `quality.metrics.CONVENTIONS` count it."""

    bleu: float
    bleu_tokenised: float | None
    bleu_intl_lowercase: float | None


class AtReferenceLengths(ScoredOutputs):
    """Of what a decode puts out at the lengths of the references, with its BLEU."""

    system: str
    name: str
    repetitions_removed: Removal
    bleu: Bleu


class Energies(Content):
    """Energies of the references and of every row; `scorer` is the first system that scores."""

    scorer: str
    reference: ScoredOutputs
    rows: tuple[EnergiesRow, ...]
    at_reference_lengths: tuple[AtReferenceLengths, ...] = ()

    def by_scorer(self, outputs: ScoredOutputs) -> dict[str, Energy]:
        """Energies of these outputs by the names of the scorers, the first one first."""
        return {self.scorer: outputs, **outputs.others}


class Panel(Lenient):
    """The plane of one position's latent: a square around `centre`, 2 `half` wide.

    `regions` are the subwords (ids) that are decoded there, rows from below; `arrows` are (x, y, dx, dy). `paths` begin
    at the prior mean; a file has each as a key of its own, the name of its search.
    """

    centre: Pair
    half: float
    regions: tuple[tuple[int, ...], ...]
    arrows: tuple[tuple[float, float, float, float], ...]
    prior: Pair
    posterior: Pair
    paths: dict[str, tuple[Pair, ...]] = {}

    @model_validator(mode="before")
    @classmethod
    def _paths(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        return {"paths": {name: value for name, value in content.items() if name not in cls.model_fields}} | content


class LatentSpace(Content):
    """The latent space of a sentence (its line's number, from 0), a panel for each target position.

    `outputs` are subwords (ids) decoded from the points and from the ends of paths, `texts` the same in words, and
    `pieces` what ids stand for. `end_symbol` is the id that targets end with, if any: the last panel is of its latent.
    """

    sentence: int
    system: str
    source: str
    reference: str
    steps: int
    pieces: dict[int, str]
    texts: dict[str, str]
    outputs: dict[str, tuple[int, ...]]
    panels: tuple[Panel, ...]
    end_symbol: int | None = None
    searches: tuple[str, ...]

    @model_validator(mode="after")
    def _complete(self) -> LatentSpace:
        for name in ("prior", "posterior", *self.searches):
            if name not in self.texts or len(self.outputs.get(name, ())) < len(self.panels):
                raise ValueError(f"texts or outputs lack {name} or some of its subwords")
        if any(name not in panel.paths for name in self.searches for panel in self.panels):
            raise ValueError("a panel lacks a path that others have")
        shown = {cell for panel in self.panels for row in panel.regions for cell in row}
        shown = shown.union(*self.outputs.values(), () if self.end_symbol is None else (self.end_symbol,))
        if missing := sorted(shown - set(self.pieces)):
            raise ValueError(f"pieces lack the id {missing[0]}")
        return self


class SystemComponents(Lenient):
    """How the variance of posterior means spreads: shares of principal components, and how many hold most of it.

    `latents` are counted, `width` is that of each. Variances are sums over its dimensions: `variance` of the means,
    `noise` the mean one of q.
    """

    system: str
    latents: int
    width: int
    shares: tuple[float, ...]
    components: int
    participation: float
    variance: float
    noise: float


class Components(FirstSentences):
    """Principal components of posterior means; `share` of the variance is what counted components hold."""

    share: float
    systems: tuple[SystemComponents, ...]


class OrderGroup(Lenient):
    """Means over sentences: the share of latents that move, by how many positions, and distances of means.

    `change` is the distance at the same position, `spread` that between positions.
    """

    sentences: int
    moved: float
    displacement: float
    change: float
    spread: float


class SystemOrder(Lenient):
    """Sentences whose translations have the same order, and others; None for a group that is empty.

    `correlation` is that of displacement and disagreement in order, None where either does not vary.
    """

    system: str
    same: OrderGroup | None
    other: OrderGroup | None
    correlation: float | None


class Alignment(Lenient):
    """The slots that hold each subword, of so many; None where the slots do not suffice."""

    slots: int
    places: tuple[tuple[int, ...], ...] | None


class OrderPanel(Lenient):
    """Distances of the means of two translations, and the position that each of the first is assigned to.

    `alignments` are those of the two translations, where the system has any.
    """

    system: str
    distances: tuple[tuple[float, ...], ...]
    assigned: tuple[int, ...]
    alignments: tuple[Alignment, Alignment] | None = None


class OrderExample(Lenient):
    """Two translations of a sentence (its line's number, from 0); `order` is the share of pairs of words that differ.

    `pieces` are the source's subwords, `target_pieces` those of the two texts.
    """

    sentence: int
    order: float
    pieces: tuple[str, ...]
    texts: tuple[str, str]
    target_pieces: tuple[tuple[str, ...], tuple[str, ...]]
    panels: tuple[OrderPanel, ...]


class Translations(Lenient):
    """The decode whose translations stand beside the references."""

    system: str
    name: str


class Reordering(FirstSentences):
    """Latents and word order; `compared` are the sentences whose two translations differ."""

    compared: int
    translations: Translations
    systems: tuple[SystemOrder, ...]
    example: OrderExample | None


class SampledSearch(Entry):
    """The search that refines samples, and its steps."""

    steps: int


class Sample(Lenient):
    """Translations of line `index`, from 0, of a sample from the prior and after refinement."""

    index: int
    source: str
    reference: str
    sampled: str
    refined: str


class Samples(FirstSentences):
    """Those of the sentences that refinement changes most."""

    search: SampledSearch
    examples: tuple[Sample, ...]


@dataclasses.dataclass(frozen=True)
class Analyses:
    """The analyses of an experiment by their names, in the order of the report; None for what was not made."""

    marginal: Marginal | None = None
    tokens: Tokens | None = None
    lengths: Lengths | None = None
    energies: Energies | None = None
    latent_space: LatentSpace | None = None
    convergence: Convergence | None = None
    latent_paths: LatentPaths | None = None
    components: Components | None = None
    reordering: Reordering | None = None
    samples: Samples | None = None

    def made(self) -> dict[str, Content]:
        """Those that were made, by name."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: content for name, content in found.items() if content is not None}


# The class of each analysis is said above, and nowhere else.
CLASSES: dict[str, type[Content]] = {name: get_args(hint)[0] for name, hint in get_type_hints(Analyses).items()}


def check(content: Any, where: str, advice: str) -> Content:
    """The content of an analysis by the class of its name.

    Raises ArtifactError for what is no analysis, and else for the first key that is wrong; it says `where`, and
    `advice` at its end.
    """
    name = content.get("analysis") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in CLASSES:
        raise ArtifactError(where, f"is no analysis ({', '.join(CLASSES)})", advice)
    check_format(content, FORMAT, where, advice)
    return checked(CLASSES[name], content, where, advice)
