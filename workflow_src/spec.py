"""What may be declared: model families, searches, engines, and the roles between systems.

A declaration says everything that the rest of the project needs to know of a member: configuration, names of files,
command-line options, choices on dev, costs, labels and looks follow from it. Code is named as "module:object" and is
imported inside of jobs only, so that planning needs no torch. Standard library and pydantic only.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import pydantic

# What families may be to others. A plug-in adds a trait by declaring it in a family of its own.
AUTOREGRESSIVE = "autoregressive"  # p(y_t | y_<t, x): may teach
SCORER = "scorer"  # log p(y|x) of any outputs: may rank what others put out
LATENT = "latent"  # prior, posterior and decoder of latents z
TARGET_LATENT = "target latent"  # latents of target positions, whose number a length decides first
SOURCE_LATENT = "source latent"  # latents of source positions: of outputs of any length
MASKED = "masked"  # some subwords given, it predicts the others: outputs are predicted again in part
BOUND = "bound"  # latents with log p(y|z,x) of any output, so that its evidence lower bound can be computed
LATENT_LENGTHS = "latent lengths"  # p(l|z): latents say how long the output is
LENGTHS = "lengths"  # a head of target lengths, and as many positions as the length says
REFINER = "refiner"  # a direction for the latents of a base
VECTOR_FIELD = "vector field"  # the direction is the network's own output, not a slope
ALIGNED = "aligned"  # slots, blanks and alignments: outputs are read off by merging and dropping
ITERATIVE = "iterative"  # a first guess of all words at a length, and passes that refine a guess
LANGUAGE_MODEL = "language model"  # p(y) word by word, by counting: ranks prefixes while they grow
# What a system with a trait does, as the end of a sentence that begins with "a system that".
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
    ITERATIVE: "refines a first guess of all words",
    LANGUAGE_MODEL: "is a language model",
}
# The role that `base` in a configuration fills, and the role of a search that a system's own network fills.
BASE, MODEL = "base", "model"
# The first ids of every vocabulary; symbols that a family declares come after its subwords.
PAD, BOS, EOS, UNK = 0, 1, 2, 3


def phrase(trait: str | None) -> str:
    """What a system with a trait does: `scores given outputs`. A plug-in's trait is told by its name."""
    return PHRASES.get(trait, f'has the trait "{trait}"') if trait else "is trained here"


class Frozen(pydantic.BaseModel):
    """A configuration section: immutable, unknown keys refused."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def canonical(self) -> str:
        """JSON with sorted keys: equal sections give equal text, so that Snakemake can compare them."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)


class Grown(Frozen):
    """A section that got settings after runs were made with it.

    The settings of `later` are left out of what is written while they have their default, so that rules are handed
    what they were handed before.
    """

    later: ClassVar[frozenset[str]] = frozenset()

    @pydantic.model_serializer(mode="wrap")
    def _without_later(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        unset = {name for name in self.later if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in handler(self).items() if name not in unset}


@dataclasses.dataclass(frozen=True)
class Role:
    """Another system or network that a family or a search needs.

    `trait` is what its family must have (None: any family). `agree` names model settings that must be equal, or
    "subwords": ids are the same words to both. `program` is what a search asks of it, (network) ->
    `decoding.passes.Function`, so that engines can compile that too. `training`: only the training of a family works
    with it, so that its bundles do without.
    """

    trait: str | None = None
    agree: tuple[str, ...] = ()
    optional: bool = False
    program: str | None = None
    training: bool = False


@dataclasses.dataclass(frozen=True)
class Look:
    """How a member is drawn: a colour (hexadecimal) and a marker of matplotlib, None for the default.

    `light` and `dark` replace the colour where a page is light or dark; None: the colour itself.
    """

    colour: str | None = None
    marker: str | None = None
    light: str | None = None
    dark: str | None = None


@dataclasses.dataclass(frozen=True)
class Option:
    """What a field of a search's settings means outside of the search; goes into the field's `Annotated`.

    required  every decode of a configuration says it
    tune      dev may choose it
    part      its part of a decode's name: a format such as "-size{:g}", or a function of the value
    always    the part also stands there when the value is the field's default
    omit      rules are not handed the setting while it has its default (settings that came later: old files stay valid)
    role      the value names a system that fills this role of the search
    carried   bundles may carry the system that it names: `carries` of a system in a configuration
    steps     the value names the search whose steps are taken; None: the first search of the family that has steps
    length    it decides target lengths: rows that differ in it are not compared as if lengths were equal
    follow    analyses that follow a search step by step keep the setting; rows with any other are left out
    stop      it decides after how many steps a sentence stops: tables say the mean
    only_with  the setting that must name a system, or be above 0, or this one does nothing
    """

    required: bool = False
    tune: bool = False
    part: str | Callable[[Any], str] | None = None
    always: bool = False
    omit: bool = False
    role: str | None = None
    carried: bool = False
    steps: bool = False
    length: bool = False
    follow: bool = False
    stop: bool = False
    only_with: str | None = None


# Pydantic's kinds of errors of numbers out of range.
RANGES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")


@functools.cache
def _options(settings: type[SearchSettings]) -> dict[str, Option]:
    """The `Option` of every field. Cached: a plan asks for them many times for each decode."""
    return {
        name: next((item for item in field.metadata if isinstance(item, Option)), Option())
        for name, field in settings.model_fields.items()
    }


@functools.cache
def _named(settings: type[SearchSettings], what: str) -> tuple[str, ...]:
    return tuple(name for name, option in _options(settings).items() if getattr(option, what))


class SearchSettings(Frozen):
    """Base of every search's settings: one class is the only place that knows its settings."""

    # What rules are handed beside the settings, for the sake of files that were made with it.
    constants: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def option(cls, name: str) -> Option:
        """The `Option` of a field; an empty one where none was given."""
        return _options(cls)[name]

    @classmethod
    def named(cls, what: str) -> tuple[str, ...]:
        """Fields whose `Option` says `what`: `named("tune")` are those that dev may choose."""
        return _named(cls, what)

    @classmethod
    def default(cls, name: str) -> Any:
        return cls.model_fields[name].get_default(call_default_factory=True)

    @classmethod
    def limits(cls, name: str) -> str:
        """The range of a number, in words: `above 0 and below 1`."""
        said = {type(item).__name__: item for item in cls.model_fields[name].metadata}
        words = [f"{said['Ge'].ge:g} or more"] if "Ge" in said else []
        words += [f"above {said['Gt'].gt:g}"] if "Gt" in said else []
        words += [f"below {said['Lt'].lt:.0f}"] if "Lt" in said else []
        words += [f"{said['Le'].le:g} or less"] if "Le" in said else []
        return " and ".join(words)

    @classmethod
    def checked(cls, fields: Mapping[str, Any], where: str = "") -> Self:
        """Settings from `fields`. Raises ValueError with one sentence for the first that is wrong.

        `where` comes before the name of the setting, such as `decodes[0].`.
        """
        try:
            return cls.model_validate(dict(fields))
        except pydantic.ValidationError as failure:
            error = failure.errors()[0]
        problem = error["msg"].removeprefix("Value error, ")
        problem = problem[0].lower() + problem[1:]
        if not error["loc"]:
            # Of several settings together.
            place = where.removesuffix(".")
            raise ValueError(f"{place}{': ' * bool(place)}{problem}.") from None
        name = str(error["loc"][0])
        if error["type"] == "extra_forbidden":
            raise ValueError(f"{where}{name} is no setting here; allowed: {', '.join(cls.model_fields)}.") from None
        if error["type"] in RANGES:
            raise ValueError(f"{where}{name} is {error['input']}; it must be {cls.limits(name)}.") from None
        raise ValueError(f"{where}{name} is {error['input']!r}: {problem}.") from None

    def check_used(self, tune: Mapping[str, Any] = MappingProxyType({}), where: str = "") -> None:
        """Raises ValueError for a setting that does nothing, because the one that it is `only_with` is off: None or 0.

        Such a setting may have its default, and dev may not choose it (`tune`).
        """
        for name in self.named("only_with"):
            other, value, default = self.option(name).only_with, getattr(self, name), self.default(name)
            if not getattr(self, other) and (name in tune or value != default):
                place = f"{where}tune.{name} is {list(tune[name])}" if name in tune else f"{where}{name} is {value}"
                without = f"a {other}" if other in self.named("role") else other
                raise ValueError(
                    f"{place}, and without {without} nothing but the default, {default}, is allowed: add {other}, or "
                    f"remove {name}."
                )

    def name_part(self, name: str) -> str:
        """What one setting adds to a decode's name."""
        part, value = self.option(name).part, getattr(self, name)
        if part is None:
            return f"-{name.replace('_', '-')}{value}"
        return part(value) if callable(part) else part.format(value)

    def name_parts(self) -> str:
        """What the settings add to a search's name in names of files: `-4-quantile0.6`."""
        shown = (
            name
            for name in type(self).model_fields
            if self.option(name).part is not None
            and (self.option(name).always or getattr(self, name) != self.default(name))
        )
        return "".join(self.name_part(name) for name in shown)

    def handed(self) -> dict[str, Any]:
        """Settings as rules are handed them: exactly what changes translations."""
        content = self.model_dump(mode="json")
        kept = (n for n in content if not (self.option(n).omit and getattr(self, n) == self.default(n)))
        return {**self.constants, **{name: content[name] for name in kept}}


# Weights of matrix products by part, of every network that a search or a training works with, by role.
Weights = Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class Family:
    """A kind of model: how it is configured, built, trained and validated, and what can decode it.

    model           settings; they have `dim` (width) and `max_positions`
    presets         file of presets
    build           (model settings, source size, target size, joint) -> nn.Module
    loss            (objective settings) -> Objective
    validation      (Dev, objective settings, the base or None, other roles by name as keywords) -> Validation
    fit             for what is counted and not trained by updates, in place of loss and validation: (model, train and
                    dev corpora, subwords, a file of the user's or None) -> figures on dev
    searches        names of searches, the first is the default
    weights         (model settings, vocabulary) -> weights of matrix products by part; "output" is the projection onto
                    the vocabulary
    repeats         (model settings) -> times that parts are computed for a source position, 1 for those left out
    layers          (model settings) -> layers that a training update goes through; None: guessed from the weights
    training_cost   (objective settings, Weights with "model" and roles) -> operations for a position of an update;
                    None: 6 for each weight
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
                    parameters that were set, or None where the model starts at random; None: what agrees in name
                    and shape is copied
    continues       model settings that must be those of the system that it starts from, which has the same `build`:
                    `init_from` names it, or `initial_weights` is its file. None: a system may start at random
    rule            name of its training rule; None: train_NAME
    title           of a group of table rows
    order           place among families in tables
    loss_title      of the panel of its training loss; families that say the same share one
    static          whether its network reads no value while it computes, such as the lengths that a packed LSTM needs
                    on the CPU: what CUDA graphs ask for
    """

    name: str
    title: str
    model: type[Frozen]
    objective: type[Frozen]
    presets: Path
    build: str
    weights: Callable[[Any, int], dict[str, int]]
    loss: str | None = None
    validation: str | None = None
    fit: str | None = None
    searches: tuple[str, ...] = ()
    repeats: Callable[[Any], Mapping[str, float]] | None = None
    layers: Callable[[Any], int] | None = None
    training_cost: Callable[[Any, Weights], float] | None = None
    needs: Mapping[str, Role] = dataclasses.field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    symbols: tuple[str, ...] = ()
    conflict: Callable[[Any, Any], str | None] = lambda model, objective: None
    lacks: Callable[[Any], frozenset[str]] = lambda model: frozenset()
    refuses: Callable[[Any, Search, SearchSettings], str | None] = lambda model, search, settings: None
    start: str | None = None
    continues: tuple[str, ...] | None = None
    rule: str | None = None
    look: Look = Look()
    order: int = 100
    loss_title: str = "Training loss"
    static: bool = True

    @property
    def training_rule(self) -> str:
        return self.rule or f"train_{self.name.replace('-', '_')}"

    @property
    def autoregressive(self) -> bool:
        return AUTOREGRESSIVE in self.traits


def single(settings: SearchSettings) -> int:
    """One hypothesis for a sentence."""
    return 1


@dataclasses.dataclass(frozen=True)
class Search:
    """A way to decode: its settings, its code, its part in tables and curves.

    settings    a class of its own
    run         (networks by role, source (B, S), settings, scored, trace) -> Hypotheses
    cost        (settings, Weights by role, length) -> operations for a sentence
    needs       roles of networks; those of the system itself fill what their traits fit, its own before its base's, and
                settings with `Option(role=…)` name systems for others
    step        (networks by role, settings) -> function of (memory, mask) -> step of latents; for searches that refine
    program     (networks by role, settings, scored) -> `decoding.passes.Pass`: the whole search as one function of
                source ids, which engines can compile; None: it has none
    graph       (settings) -> those that the program's graph depends on, where not on all of them; what reads its
                outputs then may work with other systems, such as a language model
    batches     whether a graph of the program computes batches faster than our own code, so that `auto` takes it
    logits      whether the program puts out scores of the whole vocabulary, which take long to copy from a GPU: its
                `Pass` has `read_tensors`, which may work with other systems there
    varies      (settings) -> None, or why they have no program: "with stop_threshold"
    at_lengths  (networks by role, source (B, S), settings, lengths (B,)) -> Hypotheses: outputs of given lengths, for
                analyses of what wrong lengths cost; None: it has none, or refines latents of given lengths
    step_cost   (Weights by role) -> operations of such a step for one position
    traceable   it can tell the translation after every step of its series
    families    families that it decodes beside those which name it
    series      the setting that curves run over
    first_value its value without any refinement, where traces begin: 0 steps, or 1 pass
    width       (settings) -> hypotheses that are held for a sentence
    baseline    the search of the same model that its rows are compared with; None: the reference
    reference   (settings) -> a key: of all rows with a key the largest is what others are compared with
    control     the search of the base that differs from this one in nothing but what refines
    label       (settings) -> what a row is called in tables; None: the title with its series
    details     (settings) -> what stands in brackets behind the label; None: the decode's name where it says more than
                the label
    look        its marker; its colour, where it differs from that of the family
    """

    name: str
    title: str
    settings: type[SearchSettings]
    run: str
    cost: Callable[[Any, Weights, float], float]
    needs: Mapping[str, Role] = dataclasses.field(default_factory=lambda: {MODEL: Role()})
    step: str | None = None
    program: str | None = None
    graph: Callable[[Any], Any] | None = None
    batches: bool = True
    logits: bool = False
    varies: Callable[[Any], str | None] = lambda settings: None
    at_lengths: str | None = None
    step_cost: Callable[[Weights], float] | None = None
    traceable: bool = False
    families: tuple[str, ...] = ()
    series: str | None = None
    first_value: int = 0
    width: Callable[[Any], int] = single
    baseline: str | None = None
    reference: Callable[[Any], tuple] | None = None
    control: str | None = None
    label: Callable[[Any], str] | None = None
    details: Callable[[Any], list[str]] | None = None
    look: Look = Look()

    def row_label(self, settings: SearchSettings) -> str:
        """What a row is called in tables."""
        if self.label:
            return self.label(settings)
        return self.title if self.series is None else f"{self.title}, {self.series} {getattr(settings, self.series)}"


@dataclasses.dataclass(frozen=True)
class Engine:
    """What computes a decode.

    compute_types   precisions that a decode may ask for, the first is the default; none: that of the machine
    serves          (family, search, settings) -> None, or why not: the end of a sentence that begins with its name
    devices         kinds of devices that it serves on
    packages        those that it needs and that may not be installed
    modes           names for `Translator.load(engine=…)` by compute type, where that opens it
    exports         the folder beside a bundle that it reads; the rule export_EXPORTS makes it. None: it reads bundles
    export          (network, subwords, folder to write into) -> an `Export`; for engines that export
    distil          (network, subwords, Runtime, threads) -> function of (source ids, settings, batch) -> Hypotheses and
                    the places of sentences that it leaves to our own code; for engines that distil text
    selectable      decodes of a configuration may name it
    """

    name: str
    title: str
    serves: Callable[[Family, Search, SearchSettings], str | None]
    open: str
    compute_types: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    modes: Mapping[str | None, str] = dataclasses.field(default_factory=dict)
    packages: tuple[str, ...] = ()
    exports: str | None = None
    export: str | None = None
    distil: str | None = None
    selectable: bool = True
    look: Look = Look()

    @property
    def export_rule(self) -> str | None:
        return f"export_{self.exports}" if self.exports else None

    def installed(self) -> bool:
        """Whether its packages are there; imports nothing."""
        return all(importlib.util.find_spec(package) is not None for package in self.packages)


@dataclasses.dataclass(frozen=True)
class Export:
    """What `Engine.export` wrote: the file with the weights, by its name in the folder, and versions of libraries."""

    weights: str
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Plugin:
    """What a package adds: a module named in `plugins`, or behind an entry point, has one as `PLUGIN`."""

    name: str
    version: str
    families: tuple[Family, ...] = ()
    searches: tuple[Search, ...] = ()
    engines: tuple[Engine, ...] = ()
