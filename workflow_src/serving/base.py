"""The base class of translators of all engines: text to subwords, search, and back to text."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from workflow_src import registry
from workflow_src.config.experiment import REMOVALS, Removal, removal
from workflow_src.data.normalise import Normaliser
from workflow_src.data.placeholders import numbered
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import Watch
from workflow_src.engines.choose import EAGER
from workflow_src.errors import ConfigError, DeclarationError, InputError, short_repr
from workflow_src.runtime import forks
from workflow_src.runtime.bounded import Bounded
from workflow_src.runtime.device import Runtime
from workflow_src.serving import bundle
from workflow_src.serving.arguments import check_batch, check_lines, check_n_best, check_systems, refuse_origins
from workflow_src.serving.bundle import Description
from workflow_src.serving.room import check_room
from workflow_src.serving.sentences import MARKS, Part, cut_long, gaps, split_lines, whole_lines
from workflow_src.serving.translations import PLAIN, Extras, Translation, of_lines, of_sentences
from workflow_src.spec import AUTOREGRESSIVE, REPETITIONS, Search, SearchSettings, Sizes, check_beams, parse
from workflow_src.types import EOS, Hypotheses

log = logging.getLogger("continuum")
# Settings of searches whose look-ups are cached, for calls with one sentence.
CACHED_SETTINGS = 64


class _OfThread(threading.local):
    """What a translator keeps for each thread."""

    def __init__(self) -> None:
        self.timings = {"encode": 0.0, "decode": 0.0}


def check_roles(systems: Mapping[str, Any], settings: SearchSettings) -> None:
    """Raises InputError for a role that the settings of a search do not name, or a system that is no translator."""
    roles = settings.named("role")
    for role, system in systems.items():
        if role not in roles:
            raise ConfigError("systems", role, problem="no role of this search", allowed=roles)
        if not isinstance(system, BaseTranslator):
            raise ConfigError(f"systems.{role}", system, allowed="a translator, which Translator.load opens")


class BaseTranslator(ABC):
    """A trained system, ready to translate; a subclass searches.

    `searches` are names of its searches; `device`, `precision` and `engine` are those in use. `placeholders` counts the
    placeholders of all translated sources, and their outcomes in translations (`Placeholders.outcomes`).

    Threads may share a translator. A child that is forked after it was opened computes with one thread.
    """

    def __init__(self, description: Description, models: dict[str, nn.Module], subwords: Subwords, runtime: Runtime):
        self.description = description
        self.models = models
        self.subwords = subwords
        self.runtime = runtime
        self.searches = list(description.searches)
        self.placeholders: Counter[str] = Counter()
        self.engine = EAGER
        self._lock = threading.Lock()
        self._of_thread = _OfThread()
        self._traits_by_settings: Bounded[SearchSettings, frozenset[str]] = Bounded(CACHED_SETTINGS)
        self._forked = False
        forks.renew_in_children(self)
        # Names of networks with their families, the system's own first.
        self._families = bundle.networks(description)
        kinds = subwords.placeholders.kinds if subwords.placeholders else ()
        self._source = Normaliser(description.normalisation, description.languages.source, kinds)
        self._target = Normaliser(description.normalisation, description.languages.target, kinds)

    @property
    def last_timings(self) -> dict[str, float]:
        """Seconds that the last call of this thread spent on subwords: {"encode", "decode"}."""
        return self._of_thread.timings

    def after_fork(self) -> None:
        self._lock, self._forked = threading.Lock(), True

    def _check_process(self) -> None:
        """Raises InputError in a forked child of a process with a GPU; warns once in one of a process with threads."""
        if not self._forked:
            return
        if self.runtime.device.type == "cuda":
            problem = "was opened on a GPU before its process was forked"
            raise InputError(f"the translator of {self.description.system}", problem, "open it in each process")
        self._forked = False
        # Networks that another library computes have its threads.
        if self.models and (threads := forks.threads_before() or 1) > 1:
            log.warning(
                "warning: this process was forked from one that computes with %d threads, and computes with one; start "
                "processes with spawn for more",
                threads,
            )

    @property
    def network(self) -> nn.Module:
        """The system's own network, without those of its base and of other roles."""
        return self.models[self._families[0][0]]

    @property
    def device(self) -> str:
        return str(self.runtime.device)

    @property
    def precision(self) -> str:
        return str(self.runtime.dtype).removeprefix("torch.")

    def translate(
        self,
        lines: list[str],
        search: str | SearchSettings | None = None,
        batch: int = 64,
        normalised: bool = False,
        first_line: int = 1,
        systems: Mapping[str, BaseTranslator] | None = None,
        remove_repetitions: Removal | None = None,
        split: bool = True,
        n_best: int | None = None,
        return_scores: bool = False,
        return_origins: bool = False,
        **fields: Any,
    ) -> list[Any]:
        """Translations of `lines`, in order; an empty line stays empty.

        `search` is the name of a search, with its settings as `fields`, or a settings object. A field that names
        another system takes that system's translator. See the method `search` for the other arguments.

        Lines may have any length. Their sentences are translated one by one and joined with the white space between
        them; without `split`, and where lines are `normalised`, a line is one sentence. A sentence that is too long for
        the model is cut at clauses or words, with a warning.

        With `n_best` (number of hypotheses), `return_scores` or `return_origins` (the source subwords that outputs were
        read off), each line gives a `Translation` in place of text. Raises InputError where the search holds fewer
        hypotheses, or knows no origins.

        Repetitions are removed as in the tables of reports. `remove_repetitions` (see `text`) is by default the setting
        of the bundle's experiment, or else none for autoregressive searches and models with alignments, and subwords
        for all others.
        """
        check_systems(systems)
        settings, role_systems = self.settings(search, **fields)
        extras = Extras(n_best, return_scores, return_origins)
        translations = self.translations(
            lines,
            settings,
            {**(systems or {}), **role_systems},
            batch,
            extras,
            split=split,
            normalised=normalised,
            first_line=first_line,
            remove_repetitions=remove_repetitions,
        )
        return translations if extras.details else [translation.text for translation in translations]

    def translations(
        self,
        lines: list[str],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None = None,
        batch: int = 64,
        extras: Extras = PLAIN,
        *,
        split: bool = True,
        normalised: bool = False,
        file: str | Path | None = None,
        first_line: int = 1,
        remove_repetitions: Removal | None = None,
        watch: Watch | None = None,
    ) -> list[Translation]:
        """`translate` with a settings object of a search.

        Messages name the `file` of the lines, and count from `first_line`. `watch` is called after every batch.
        """
        self._check_process()
        settings = self._completed(settings)
        self._check_extras(extras, settings)
        parts, normalised_texts, sources = self._parts(lines, split and not normalised, normalised, file, first_line)
        several = (extras.n_best or 1) > 1
        hypotheses = self.search_ids(
            sources, settings, systems, batch, scored=extras.details, ranked=several, watch=watch
        )
        ranked = [[pair] for pair in zip(hypotheses.scores, hypotheses.tokens, strict=True)]
        if several:
            if hypotheses.ranked is None:
                name = registry.search_of(settings).name
                raise DeclarationError(f'search "{name}"', "holds several hypotheses and gives one", "leave n_best out")
            ranked = hypotheses.ranked()
        origins = None
        if extras.origins:
            outputs = [[tokens for _, tokens in entries] for entries in ranked]
            origins = self._origins(sources, settings, systems, outputs, batch)
        repetitions = remove_repetitions or self._removal(settings)
        placeholder_sources = None
        if self.subwords.placeholders is not None:
            outcomes = self.subwords.placeholder_outcomes(hypotheses.tokens, normalised_texts) or ()
            with self._lock:
                for outcome in outcomes:
                    self.placeholders.update(outcome)
            placeholder_sources = [
                text for text, entries in zip(normalised_texts, ranked, strict=True) for _ in entries
            ]
        texts = self.text([tokens for entries in ranked for _, tokens in entries], repetitions, placeholder_sources)
        source_pieces = map(self._source_pieces, sources) if extras.details else [[] for _ in sources]
        pieces = self._target_pieces if extras.details else None
        sentences = of_sentences(ranked, texts, origins, list(source_pieces), pieces)
        sentences = [self._with_unknown(*pair) for pair in zip(sentences, normalised_texts, strict=True)]
        languages = self.description.languages
        return of_lines(sentences, parts, gaps(parts, languages.source, languages.target), extras.n_best or 1)

    def _with_unknown(self, translation: Translation, text: str) -> Translation:
        """The translation of a sentence with the characters of its normalised `text` that the vocabulary lacks."""
        unknown = self._unknown(text)
        if not unknown:
            return translation
        lost = Counter(character for character in unknown if character not in MARKS) - Counter(translation.text)
        return dataclasses.replace(translation, unknown=tuple(unknown), lost=tuple(lost.elements()))

    def _unknown(self, text: str) -> list[str]:
        """The characters of a normalised source text that are outside of the vocabulary."""
        return self.subwords.unknown_source(text)

    def _source_pieces(self, source: Sequence[int]) -> list[str]:
        """The source subwords that the model reads, for display."""
        return self._numbered(self.subwords.pieces_source([*source, EOS]))

    def _target_pieces(self, tokens: list[int]) -> list[str]:
        """The subwords of an output, for display."""
        return self._numbered(self.subwords.pieces_target(tokens))

    def _numbered(self, pieces: list[str]) -> list[str]:
        """Subwords with numbers in place of symbols, which only recipes with placeholders have."""
        return pieces if self.subwords.placeholders is None else numbered(pieces)

    def _placeholder_sources(self, lines: list[str], normalised: bool) -> list[str] | None:
        """Normalised `lines`, the source of placeholders in translations; None where the recipe has no placeholders."""
        return None if self.subwords.placeholders is None else self._normalised(lines, normalised)

    def _check_extras(self, extras: Extras, settings: SearchSettings) -> None:
        """Raises InputError for extras that a search cannot return."""
        search, system_searches = registry.search_of(settings), [registry.searches()[name] for name in self.searches]
        check_n_best(extras.n_best, search, settings, system_searches)
        if extras.origins and not self.knows_origins(settings):
            refuse_origins(search, system_searches if self.models else [])

    def knows_origins(self, settings: SearchSettings) -> bool:
        """Whether the source subwords that outputs were read off are known with a search, and computed here."""
        return registry.search_of(settings).origins and bool(self.models)

    def _origins(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None,
        outputs: Sequence[Sequence[Sequence[int]]],
        batch: int,
    ) -> list[list[list[int]]]:
        """The source position of each subword of the outputs of each sentence, where `knows_origins`."""
        raise NotImplementedError

    def _removal(self, settings: SearchSettings) -> Removal:
        """The default removal of repetitions for a search."""
        traits = self._traits(settings)
        return removal(AUTOREGRESSIVE in traits, REPETITIONS in traits, self.description.remove_repetitions)

    # Cached for calls with one sentence.
    @functools.cached_property
    def _role_networks(self) -> frozenset[str]:
        """Names of the networks that fill roles of searches: neither the system's own nor its base's."""
        return frozenset(bundle.roles(self.description).values())

    def _traits(self, settings: SearchSettings) -> frozenset[str]:
        """Traits of the network that outputs the words of a search, without those that its settings take away."""
        traits = self._traits_by_settings.get(settings)
        if traits is None:
            traits = self._traits_by_settings[settings] = self._find_traits(settings)
        return traits

    def _find_traits(self, settings: SearchSettings) -> frozenset[str]:
        networks = [((name, family), family) for name, family in self._families if name not in self._role_networks]
        decoding = registry.decoded(settings, networks)
        if decoding is None:
            return frozenset()
        name, family = decoding
        return family.traits - (family.lacks(self.models[name].config) if name in self.models else frozenset())

    def trace(
        self,
        lines: list[str],
        search: str | SearchSettings | None = None,
        normalised: bool = False,
        systems: Mapping[str, BaseTranslator] | None = None,
        **fields: Any,
    ) -> list[list[str]]:
        """For each line its translation after 0, 1, … steps, repetitions kept. Raises ConfigError without any steps.

        `systems` are as those of `search`.
        """
        settings, role_systems = self.settings(search, **fields)
        role_systems = {**(systems or {}), **role_systems}
        declared = registry.search_of(settings)
        if not declared.traceable:
            raise ConfigError("search", declared.name, problem="it has no refinement steps to show")
        hypotheses = self.search(lines, settings, role_systems, trace=True, scored=False, normalised=normalised)
        if hypotheses.traces is None:
            assert declared.series is not None, "declarations of traceable searches have a series"
            return [[""] * (getattr(settings, declared.series) + 1 - declared.first_value) for _ in lines]
        sources = self._placeholder_sources(lines, normalised)
        steps = (self.text(tokens, sources=sources) for tokens in hypotheses.traces)
        return [list(texts) for texts in zip(*steps, strict=True)]

    def search(
        self,
        lines: list[str],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None = None,
        batch: int = 64,
        trace: bool = False,
        scored: bool = True,
        normalised: bool = False,
        first_line: int = 1,
    ) -> Hypotheses:
        """Subword hypotheses with scores for `lines`, each as a whole, `batch` of them at a time.

        `systems` are translators by the role for which settings name a system. Raises ConfigError for a search that the
        bundle lacks, and InputError with the number (counted from `first_line`) of a line that is longer than the
        model's positions.

        `normalised` lines, such as those of a corpus folder, are not normalised again: Moses tokenisation of tokenised
        text is not the same text. Without `scored`, scores that cost time to compute are 0, or those before ranking;
        with `trace`, hypotheses have the translations after every step.
        """
        self._check_process()
        check_lines(lines)
        began = time.perf_counter()
        with _half_characters_named(lines, first_line):
            sources = self._encoded(self._normalised(lines, normalised))
        self.last_timings.update(encode=time.perf_counter() - began, decode=0.0)
        self._check_lengths(sources, first_line)
        return self.search_ids(sources, settings, systems, batch, trace, scored)

    @abstractmethod
    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None = None,
        batch: int = 64,
        trace: bool = False,
        scored: bool = True,
        ranked: bool = False,
        watch: Watch | None = None,
    ) -> Hypotheses:
        """`search` for subword ids without end symbols; `ranked` adds all hypotheses that the search holds.

        `watch` is called after every batch, as `search_rows` does.
        """

    def _normalised(self, lines: list[str], normalised: bool) -> list[str]:
        """The lines, normalised unless they already are."""
        return lines if normalised else [self._source.line(line) for line in lines]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        """Ids of the source subwords of normalised texts."""
        return self.subwords.encode_source(texts)

    def _parts(
        self, lines: list[str], split: bool, normalised: bool, file: str | Path | None, first_line: int
    ) -> tuple[list[Part], list[str], list[list[int]]]:
        """Parts of lines that the model can take, their normalised texts, and the subwords of these."""
        check_lines(lines)
        began = time.perf_counter()
        with _half_characters_named(lines, first_line):
            parts = split_lines(lines, self.description.languages.source) if split else whole_lines(lines)
            texts = self._normalised([part.text for part in parts], normalised)
            sources = self._encoded(texts)
            limit = self._positions() - 1
            if any(len(source) > limit for source in sources):
                size = lambda text: len(self._encoded(self._normalised([text], normalised))[0])  # noqa: E731
                parts = cut_long(parts, list(map(len, sources)), limit, size, f"{file}, " if file else "", first_line)
                texts = self._normalised([part.text for part in parts], normalised)
                sources = self._encoded(texts)
        self.last_timings.update(encode=time.perf_counter() - began, decode=0.0)
        self._warn_of_unseen_lengths(parts, sources, f"{file}, " if file else "", first_line)
        return parts, texts, sources

    def _warn_of_unseen_lengths(
        self, parts: Sequence[Part], sources: Sequence[Sequence[int]], place: str, first_line: int
    ) -> None:
        """Log a warning for sentences that are longer than all that training saw."""
        if self.longest_trained is None:
            return
        longer = [number for number, source in enumerate(sources) if len(source) > self.longest_trained]
        if longer:
            log.warning(
                "warning: %sline %d has a sentence of %d subwords%s, and training saw at most %d; expect worse "
                "translations, or split it",
                *(place, first_line + parts[longer[0]].line, len(sources[longer[0]])),
                *(f", the first of {len(longer):,} such sentences" if len(longer) > 1 else "", self.longest_trained),
            )

    @functools.cached_property
    def longest_trained(self) -> int | None:
        """Subwords of the longest source that all networks, without those of other roles, were trained on."""
        networks = self.description.models.items()
        lengths = [network.longest_source for name, network in networks if name not in self._role_networks]
        return min((length for length in lengths if length is not None), default=None)

    def source_text(self, line: str) -> str:
        """A normalised source line, detokenised as outputs are, for display."""
        return self._source.detokenise(line)

    def text(
        self, tokens: list[list[int]], remove_repetitions: Removal = "none", sources: Sequence[str] | None = None
    ) -> list[str]:
        """Lines of text from subword ids. Recipes with placeholders take these from `sources`, normalised lines.

        `remove_repetitions`: with subwords, runs of the same subword are reduced to one before they are joined; with
        words, runs of the same word of the text. Raises InputError for anything else but none.
        """
        if remove_repetitions not in REMOVALS:
            raise ConfigError("remove_repetitions", remove_repetitions, allowed=REMOVALS)
        began = time.perf_counter()
        if remove_repetitions == "subwords":
            tokens = self.subwords.without_repetitions(tokens)
        # A model may spell a line break, character by character; a line must stay a line.
        texts = (" ".join(text.split()) for text in self.subwords.decode_target(tokens, sources))
        lines = [self._target.detokenise(text) for text in texts]
        if remove_repetitions == "words":
            lines = [collapse_repetitions(line) for line in lines]
        self.last_timings["decode"] += time.perf_counter() - began
        return lines

    def settings(
        self, search: str | SearchSettings | None = None, **fields: Any
    ) -> tuple[SearchSettings, dict[str, BaseTranslator]]:
        """Settings of a search (default: the bundle's), and the translators among `fields` by the role they fill.

        Missing fields get the bundle's defaults for the search, or else the search's own. The text "none" replaces a
        default of the bundle by None, where None is the search's default.

        Raises ConfigError for a search that the bundle lacks, for settings that the search lacks or that are out of
        range, and for `fields` without effect (settings objects may have such, because `search` takes `systems`);
        InputError for a system that translates nothing.
        """
        if isinstance(search, SearchSettings):
            if fields:
                hint = "change the settings instead"
                raise ConfigError(next(iter(fields)), problem="it is given together with a settings object", hint=hint)
            return self._completed(search), {}
        defaults = self.description.defaults
        if not self.searches:
            raise InputError(self.description.system, "is no system that translates", "give the bundle of one")
        declared = self._search(search or defaults["search"])
        kind, systems = declared.settings, {}
        for name in fields:
            if name not in kind.model_fields:
                raise ConfigError(name, problem=f"no setting of search {declared.name}", allowed=kind.model_fields)
        for name, role in kind.roles().items():
            if isinstance(fields.get(name), BaseTranslator):
                systems[role] = fields[name]
                fields = fields | {name: fields[name].description.system}
        bundle_defaults = bundle.defaults(self.description, declared)
        # None for a role that the bundle fills turns that system off, and with it the settings chosen for both.
        if any(name in fields and fields[name] is None for name in kind.named("role") if name in bundle_defaults):
            bundle_defaults = {name: value for name, value in bundle_defaults.items() if name in kind.named("role")}
        changed = {n: value for n, value in fields.items() if value is not None or n in kind.named("role")}
        reset = {n for n, v in changed.items() if v == "none" and n in bundle_defaults and kind.default(n) is None}
        settings = parse(kind, {n: value for n, value in {**bundle_defaults, **changed}.items() if n not in reset})
        # Dev may have chosen a default of the bundle beside a setting that turns it off.
        settings.check_used(names=changed)
        return self._completed(settings), systems

    def prepare(
        self,
        search: str | SearchSettings | None = None,
        batch: int = 1,
        scored: bool = False,
        systems: Mapping[str, BaseTranslator] | None = None,
        **fields: Any,
    ) -> bool:
        """Export the graph of a search for single sentences, or for batches (`batch` above 1), where it is missing.

        An export takes seconds, so a server does it before its first request; graphs are kept on disk. `scored` is for
        calls that ask for scores or several hypotheses. Returns whether an engine computes such calls from now on:
        False where none is open that does it faster, or where an export fails, with a warning.
        """
        settings, role_systems = self.settings(search, **fields)
        check_batch(batch)
        return self._prepare(settings, {**(systems or {}), **role_systems}, batch == 1, scored)

    def _prepare(
        self, _settings: SearchSettings, _systems: Mapping[str, BaseTranslator], _alone: bool, _scored: bool
    ) -> bool:
        return False

    def why_eager(self, _settings: SearchSettings) -> str | None:
        """Why the engine that was chosen by name does not compute a search, in a sentence; None where it does."""
        return None

    def _search(self, name: str) -> Search:
        if name not in self.searches:
            raise ConfigError("search", name, allowed=self.searches)
        return registry.searches()[name]

    def _completed(self, settings: SearchSettings) -> SearchSettings:
        """Settings that name the search whose steps are taken: by default the first of the system with steps."""
        self._search(registry.search_of(settings).name)
        if not settings.named("steps"):
            return settings
        families = [family for name, family in self._families if name not in self._role_networks]
        names = dict.fromkeys(name for family in families for name in registry.searches_of(family))
        stepping = [name for name in names if registry.searches()[name].refines]
        for name in settings.named("steps"):
            value = getattr(settings, name)
            if value is None and stepping:
                settings = settings.model_copy(update={name: stepping[0]})
            elif value is not None and value not in stepping:
                raise ConfigError(name, value, allowed=stepping)
        return settings

    def _check_room(self, settings: SearchSettings, sources: Sequence[Sequence[int]], batch: int) -> None:
        """Raises ConfigError for a beam beyond the vocabulary, and where hypotheses do not fit into memory."""
        vocabulary = self.subwords.target_size
        check_beams(settings, vocabulary)
        if longest := max(map(len, sources), default=0):
            dim = self.description.models[self._families[0][0]].model["dim"]
            sentences = min(batch, sum(map(bool, sources)))
            sizes = Sizes(vocabulary, longest + 1, dim, sentences, self._most_positions(longest + 1))
            check_room(settings, sizes, self.runtime.device)

    def _most_positions(self, subwords: int) -> int:
        """Positions that the system computes for a source of so many subwords, its end counted."""
        name, family = self._families[0]
        per_subword = family.positions(self.models[name].config) if family.positions and name in self.models else 1
        return min(math.ceil(subwords * per_subword), self._positions())

    @abstractmethod
    def _positions(self) -> int:
        """Longest sequence in subwords, end symbol counted."""

    def _check_lengths(self, sources: list[list[int]], first_line: int) -> None:
        limit = self._positions() - 1
        for number, source in enumerate(sources, first_line):
            if len(source) > limit:
                problem = f"has {len(source)} subwords, the model takes at most {limit}"
                raise InputError(f"line {number}", problem, "split it into sentences")


@contextlib.contextmanager
def _half_characters_named(lines: Sequence[str], first_line: int) -> Iterator[None]:
    """Replaces the error of a lone surrogate, which UTF-8 cannot encode, by one sentence with the line's number."""
    try:
        yield
    except UnicodeEncodeError as failure:
        broken = (number for number, line in enumerate(lines, first_line) if any(map(_is_half, line)))
        number = next(broken, first_line)
        problem = f"line {number} has half of a character, {short_repr(failure.object[failure.start])}"
        raise ConfigError("lines", problem=problem, hint="read them as UTF-8") from None


def _is_half(character: str) -> bool:
    """Whether it is a surrogate, which no text in UTF-8 has."""
    return "\ud800" <= character <= "\udfff"
