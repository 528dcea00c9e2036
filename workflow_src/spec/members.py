"""Declarations of families, searches, engines and plug-ins; filters are in `filters.py`."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import FilePath
from pydantic.dataclasses import dataclass

from workflow_src.spec.analyses import Analysis
from workflow_src.spec.fields import CHECKED, Code, Colour, EngineName, Identifier, Marker, Name, Title, TrainingRule
from workflow_src.spec.filters import Filter
from workflow_src.spec.generators import Generator
from workflow_src.spec.metrics import Metric
from workflow_src.spec.sections import Frozen
from workflow_src.spec.settings import SearchSettings
from workflow_src.spec.traits import AUTOREGRESSIVE, MODEL


@dataclass(frozen=True, config=CHECKED)
class Role:
    """Another system or network that a family or a search needs.

    `trait` is what its family must have (None: any family). `agree` names model settings that must be equal, or
    "subwords": ids are the same words to both. `program` is the function that a search calls of it, (network) ->
    `decoding.ranking.Function`, so that engines can compile that too. `training`: only the training of a family works
    with it, so that its bundles do without.
    """

    trait: str | None = None
    agree: tuple[str, ...] = ()
    optional: bool = False
    program: Code | None = None
    training: bool = False


@dataclass(frozen=True, config=CHECKED)
class Look:
    """How a member is drawn: a colour (hexadecimal) and a marker, None for the default.

    Markers are o (circle), s (square), D and d (diamonds), ^ v < > (triangles), P (plus), X (cross), * (star), p
    (pentagon) and h (hexagon).

    `light` and `dark` replace the colour where a page is light or dark; None: the colour itself.
    """

    colour: Colour | None = None
    marker: Marker | None = None
    light: Colour | None = None
    dark: Colour | None = None


# Candidates whose logits are held at once, at most, or those of one sentence, where a search is no series of positions.
# The number changes memory alone: candidates do not influence each other.
ROWS = 512


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes that memory depends on.

    vocabulary  subwords of it, symbols of the family counted
    length      subwords of the longest sentence, its end counted
    dim         width of the model
    sentences   that are computed together
    positions   that the model computes for the longest sentence, as `Family.positions` says
    """

    vocabulary: int
    length: int
    dim: int
    sentences: int
    positions: int


def single(_settings: SearchSettings) -> int:
    """One hypothesis for a sentence."""
    return 1


@dataclass(frozen=True, config=CHECKED)
class Search:
    """A way to decode: its settings, its code, its part in tables and curves.

    settings    a class of its own
    module      a class of `decoding.search.SearchModule`: (networks by role, settings, scored) -> the search
    needs       roles of networks; those of the system itself fill what their traits fit, its own before its base's, and
                settings with `Option(role=…)` name systems for others
    refines     whether it moves latents step by step: its module is a `decoding.refinement.Refinement`
    program     whether its `forward` is one fixed function of source ids, which engines can compile
    positions   whether it writes one position after another: its module is a `decoding.steps.StepSearch`, whose steps
                engines can capture
    blocks      whether it checks blocks of drafts: its module is a `decoding.drafts.DraftSearch`, whose passes engines
                can capture
    graph       (settings) -> those that the program's graph depends on, where not on all of them; code that
                reads its outputs may then work with other systems, such as a language model
    batches     whether a graph of the program computes batches faster than our own code, so that `auto` takes it
    logits      whether the program puts out scores of the whole vocabulary, which take long to copy from a GPU:
                `hypotheses` reads them where they are, and may work with other systems there
    varies      (settings) -> None, or why they have no program: "with stop_threshold"
    check       (settings, family and model settings of the systems that they name by role) -> None; raises ConfigError
                where these cannot be used together
    counts      what every sentence counts in `Hypotheses.steps`, such as "passes": labels in tables say the mean
    at_lengths  whether analyses of what wrong lengths cost ask it for outputs of given lengths, as they ask searches
                that refine latents of the target
    origins     whether its module has `origins`, the source positions that the subwords of outputs were read off
    even_steps  every step of its series takes the same time, so that reports say how long
    traceable   it can give the translation after every step of its series
    families    families that it decodes beside those which name it
    series      the setting that curves run over
    first_value its value without any refinement, where traces begin: 0 steps, or 1 pass
    width       (settings) -> hypotheses that are held for a sentence; with one, `Hypotheses.ranked` has all of them
    held        (settings, Sizes) -> bytes that are held at once, at least, beside the network; None: the scores of the
                vocabulary at every position of all hypotheses, and some states
    baseline    the search of the same model that its rows are compared with; None: the reference
    reference   (settings) -> a key: others are compared with the row whose key is the largest
    control     the search of the base that differs from this one only in how it refines
    label       (settings) -> the name of a row in tables; None: the title with its series
    details     (settings) -> words in brackets behind the label, before other settings that it does not show
    look        its marker; its colour, where it differs from that of the family
    """

    name: Name
    title: Title
    settings: type[SearchSettings]
    module: Code
    needs: Mapping[Identifier, Role] = dataclasses.field(default_factory=lambda: {MODEL: Role()})
    refines: bool = False
    program: bool = False
    positions: bool = False
    blocks: bool = False
    graph: Callable[[Any], Any] | None = None
    batches: bool = True
    logits: bool = False
    varies: Callable[[Any], str | None] = lambda _settings: None
    check: Callable[[Any, Mapping[str, tuple[Family, Any]]], None] = lambda _settings, _systems: None
    counts: str | None = None
    at_lengths: bool = False
    origins: bool = False
    even_steps: bool = False
    traceable: bool = False
    families: tuple[str, ...] = ()
    series: str | None = None
    first_value: int = 0
    width: Callable[[Any], int] = single
    held: Callable[[Any, Sizes], float] | None = None
    baseline: str | None = None
    reference: Callable[[Any], tuple] | None = None
    control: str | None = None
    label: Callable[[Any], str] | None = None
    details: Callable[[Any], list[str]] | None = None
    look: Look = Look()

    @property
    def several(self) -> bool:
        """Whether it can hold several hypotheses for a sentence."""
        return self.width is not single

    def bytes_held(self, settings: SearchSettings, sizes: Sizes) -> float:
        """Memory that is held at once, at least, beside the network."""
        if self.held:
            return self.held(settings, sizes)
        width = self.width(settings)
        rows = min(sizes.sentences * width, max(width, ROWS))
        return rows * sizes.positions * (8 * sizes.vocabulary + 40 * sizes.dim)

    def row_label(self, settings: SearchSettings) -> str:
        if self.label:
            return self.label(settings)
        return self.title if self.series is None else f"{self.title}, {self.series} {getattr(settings, self.series)}"

    def shown(self, settings: SearchSettings) -> tuple[str, ...]:
        """What its declaration shows of settings: the label of a row, and words in brackets."""
        return (self.row_label(settings), *(self.details(settings) if self.details else ()))


@dataclass(frozen=True, config=CHECKED)
class Family:
    """A kind of model: its configuration, construction, training, validation and searches.

    model           settings; they have `dim` (width) and `max_positions`
    presets         file of presets; None for models made elsewhere
    build           (model settings, source size, target size, joint) -> nn.Module
    loss            (model, batch, TrainingContext, objective settings) -> LossTerms
    validation      (objective settings, the base or None, other roles by name as keywords) -> DevFigures
    fit             for families that are counted at once, in place of loss and validation: (model, train and
                    dev corpora, subwords, a file of the user's or None) -> figures on dev
    files           for models made elsewhere, in place of presets, build, loss, validation and fit: (model settings) ->
                    the user's files by the names that they have in a bundle. The rule import_model makes the bundle
    engine          for these models: name of the engine that computes them, from the folder of the bundle
    searches        names of searches, the first is the default
    weights         (model settings) -> weights of the parts "encoder", "decoder" and "output", the projection onto the
                    vocabulary; for models made elsewhere
    layers          (model settings, objective settings) -> layers that a training update goes through, each as often as
                    a position is computed by it, which requests to clusters follow; called with None where there is
                    no objective, as for a search, it gives the layers of the network. By default, the sum of the
                    model's settings whose names end in "layers"
    positions       (model settings) -> positions for each subword of the source, such as slots and vertices, that the
                    decoder (as many layers as the setting `layers` says) and the output projection are computed at,
                    which requests to clusters and the memory of searches follow; None: one for each subword of the
                    target
    held            (model settings, Sizes) -> bytes that the loss of a batch holds beside the values of layers, which
                    requests to clusters follow too; None: few
    needs           roles of other systems; a configuration fills the role "base" by its setting `base`, others by
                    `roles`. They are frozen; objectives find the base in `context.frozen`, others in `context.roles`
    symbols         symbols that it adds to the vocabulary, such as "mask": the ids after those of the subwords of the
                    target (of both sides, where they share a vocabulary). `model.symbols` has their ids by name
    conflict        (model settings, objective settings) -> None, or why they cannot be used together, as the end of a
                    sentence that begins with the system's name
    lacks           (model settings) -> those of `traits` that a model of these settings has not
    refuses         (model settings, search, its settings) -> None, or why a model of these settings cannot be decoded
                    so; of the base of a system too
    start           (model, tensors or None, the family they come from or None, the base or None) -> names of the
                    parameters that were set, or None where the model starts at random; None: tensors that agree in name
                    and shape are copied
    continues       (objective settings) -> None, or why a system must start from a trained one, as the problem in a
                    message about `init_from`. That one has the same `build` and the same model settings, but for
                    dropout; its weights are validated before the first update, too
    rule            name of its training rule; None: train_NAME
    title           of a group of table rows
    order           place among families in tables
    loss_title      (objective settings) -> title of the panel of its training loss; systems that say the same share one
    blocks          whether its network is a `nn.models.BlockModel`, whose passes over drafts engines can compile
    static          whether its network reads no value while it computes, such as the lengths that a packed LSTM needs
                    on the CPU: a requirement of CUDA graphs, which capture steps of autoregressive networks that say
                    `can_start_fixed`
    """

    name: Name
    title: Title
    model: type[Frozen]
    objective: type[Frozen]
    presets: FilePath | None = None
    build: Code | None = None
    loss: Code | None = None
    validation: Code | None = None
    fit: Code | None = None
    files: Callable[[Any], Mapping[str, Path]] | None = None
    engine: str | None = None
    searches: tuple[str, ...] = ()
    weights: Callable[[Any], Mapping[str, int]] | None = None
    layers: Callable[[Any, Any], float] | None = None
    positions: Callable[[Any], float] | None = None
    held: Callable[[Any, Sizes], float] | None = None
    needs: Mapping[Identifier, Role] = dataclasses.field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    symbols: tuple[Identifier, ...] = ()
    conflict: Callable[[Any, Any], str | None] = lambda _model, _objective: None
    lacks: Callable[[Any], frozenset[str]] = lambda _model: frozenset()
    refuses: Callable[[Any, Search, SearchSettings], str | None] = lambda _model, _search, _settings: None
    start: Code | None = None
    continues: Callable[[Any], str | None] = lambda _objective: None
    rule: TrainingRule | None = None
    look: Look = Look()
    order: int = 100
    loss_title: Callable[[Any], str] = lambda _objective: "Training loss"
    blocks: bool = False
    static: bool = True

    @property
    def training_rule(self) -> str:
        return self.rule or f"train_{re.sub(r'[^a-z0-9]', '_', self.name)}"

    @property
    def imported(self) -> bool:
        """True for models made elsewhere, which nothing here trains."""
        return self.files is not None

    @property
    def updated(self) -> bool:
        """True for models that are trained by updates."""
        return self.fit is None and not self.imported

    @property
    def autoregressive(self) -> bool:
        return AUTOREGRESSIVE in self.traits


@dataclass(frozen=True, config=CHECKED)
class Engine:
    """A library, or our own code, that computes decodes.

    compute_types   precisions that a decode may name, the first is the default; none: that of the machine
    serves          (family, search, settings) -> None, or why not: the end of a sentence that begins with its name
    devices         kinds of devices that it serves on
    packages        those that it needs and that may not be installed
    modes           names for `Translator.load(engine=…)` by compute type, where that opens it
    exports         the folder beside a bundle that it reads; the rule export_EXPORTS makes it. None: it reads bundles
    export          (network, subwords, folder to write into) -> an `Export`; for engines that export
    open            (`engines.session.SessionConfig`) -> an `engines.session.Session`
    distil          the same for one network and much text; for engines that distil it. Sentences of which the length
                    limit cut a hypothesis are translated once more by our own code
    """

    name: EngineName
    title: Title
    serves: Callable[[Family, Search, SearchSettings], str | None]
    open: Code
    compute_types: tuple[str, ...] = ()
    devices: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")
    modes: Mapping[str | None, str] = dataclasses.field(default_factory=dict)
    packages: tuple[str, ...] = ()
    exports: Identifier | None = None
    export: Code | None = None
    distil: Code | None = None
    look: Look = Look()

    def word(self, compute_type: str | None) -> str:
        """What decodes call the engine with one of its precisions, such as `ctranslate2-int8`."""
        return f"{self.name}-{compute_type}" if compute_type else self.name

    @property
    def words(self) -> dict[str, str | None]:
        """Precisions by their words; the name alone stands for the first, or for that of the machine."""
        first = next(iter(self.compute_types), None)
        return {self.name: first} | {self.word(compute_type): compute_type for compute_type in self.compute_types}

    @property
    def export_rule(self) -> str | None:
        return f"export_{self.exports}" if self.exports else None

    def installed(self) -> bool:
        """True where its packages are installed; imports nothing."""
        return all(importlib.util.find_spec(package) is not None for package in self.packages)


@dataclasses.dataclass(frozen=True)
class Export:
    """Result of `Engine.export`: the file with the weights, by its name in the folder, and versions of libraries."""

    weights: str
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, config=CHECKED)
class Plugin:
    """Members that a package adds: a module named in `plugins`, or behind an entry point, has one as `PLUGIN`."""

    name: Title
    version: Title
    families: tuple[Family, ...] = ()
    searches: tuple[Search, ...] = ()
    engines: tuple[Engine, ...] = ()
    metrics: tuple[Metric, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    filters: tuple[Filter, ...] = ()
    generators: tuple[Generator, ...] = ()
