"""Translation of text with an exported bundle.

from workflow_src import Translator
translator = Translator.load("results/tatoeba/bundles/score/seed-1")
print(translator.translate(["Das ist ein Satz."]))
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src import registry
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.data.batching import pad
from workflow_src.data.normalise import Normaliser
from workflow_src.data.placeholders import numbered
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import Watch, longest_first, search_rows
from workflow_src.engines.choose import AUTO, EAGER, choose, open_session, why_not
from workflow_src.engines.exports import EXPORTS
from workflow_src.engines.session import Request, Session, System
from workflow_src.errors import ArtifactError, ConfigError, DeclarationError, InputError, short_repr
from workflow_src.records.checked import checked
from workflow_src.runtime import forks
from workflow_src.runtime.device import Runtime, cores, set_threads
from workflow_src.runtime.device import choose as choose_runtime
from workflow_src.serving import bundle
from workflow_src.serving.arguments import (
    check_batch,
    check_folder,
    check_lines,
    check_n_best,
    check_systems,
    check_threads,
    refuse_origins,
)
from workflow_src.serving.bundle import AGAIN, DESCRIPTION, Description, read_bundle
from workflow_src.serving.models import load_models
from workflow_src.serving.opened import OpenBundle
from workflow_src.serving.room import check_room
from workflow_src.serving.sentences import MARKS, Part, cut_long, gaps, split_lines, whole_lines
from workflow_src.serving.translations import Translation, of_lines, of_sentences
from workflow_src.spec import SearchSettings, Sizes, check_beams
from workflow_src.types import EOS, Hypotheses

log = logging.getLogger("continuum")
# What a call may ask for beside the settings of its search.
OPTIONS = {field.name for field in dataclasses.fields(Request)} - {"settings", "networks"}


class _OfThread(threading.local):
    """What a translator keeps for each thread."""

    def __init__(self) -> None:
        self.timings = {"encode": 0.0, "decode": 0.0}


class Translator:
    """A trained system, ready to translate with the engine that `load` chose.

    `searches` are names of its searches; `device`, `precision` and `engine` are those in use.

    The methods `translate`, `trace`, `search`, `prepare` and `request` take the name of a search (by default the
    bundle's), an object of its settings, or a `Request`; as keywords the fields of a `Request`, settings of the search,
    and `systems`: translators by role for which settings name a system. A setting that names another system may be that
    system's translator itself.

    Threads may share a translator. A child that is forked after it was opened computes with one thread.
    """

    def __init__(
        self,
        description: Description,
        models: dict[str, nn.Module],
        subwords: Subwords,
        runtime: Runtime,
        session: Session | None = None,
    ):
        self.description, self.models = description, models
        self.subwords, self.runtime = subwords, runtime
        self._bundle = OpenBundle(description, models, subwords)
        self.searches = self._bundle.searches
        self._of_thread = _OfThread()
        self._forked = False
        forks.renew_in_children(self)
        self._source, self._target = _normalisers(description, subwords)
        self.engine, self._automatic, self._declared = EAGER, False, registry.default_engine()
        if description.engine is not None:
            self._declared = registry.engines()[description.engine]
        own = System(str(runtime.device), EAGER, torch.get_num_threads())
        # Without a session, our own code computes.
        self._eager = open_session(registry.default_engine(), own)
        self._session = session or self._eager
        # A model that was made elsewhere reads subwords of its own.
        self._reader: Any = self._session.network or subwords

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "auto",
        threads: int | None = None,
        engine: str = "auto",
    ) -> Translator:
        """Read a bundle folder, or the folder of another engine.

        `device`: auto, cpu, cuda or cuda:N. `precision`: auto, float32 or bfloat16 (int8 and float16 for folders of
        other engines). `threads`: CPU threads, unchanged by default. `engine`: see `use`.

        Raises ArtifactError when the folder is no bundle or a file of it is missing, damaged or of another model;
        ConfigError for a device that this machine lacks or an engine that cannot serve.
        """
        folder = check_folder(folder)
        check_threads(threads)
        description = read_bundle(folder)
        if description.engine is not None:
            imported = any(registry.families()[network.family].imported for network in description.models.values())
            # A model that was made elsewhere has no other engine.
            if engine != AUTO and not (imported and engine == EAGER):
                problem = f"it is for bundles, and {folder} is the folder of another engine"
                raise ConfigError("engine", engine, problem=problem, hint="remove it")
            return cls.open(folder, description, device, precision, threads)
        runtime = choose_runtime(device, precision, training=False)
        set_threads(threads)
        subwords = bundle.read_subwords(folder, description)
        models = load_models(folder, description, runtime)
        if not any(parameter.dtype == runtime.dtype for model in models.values() for parameter in model.parameters()):
            # No layer was narrowed: all compute in float32.
            runtime = dataclasses.replace(runtime, dtype=torch.float32)
        return cls(description, models, subwords, runtime).use(engine)

    @classmethod
    def open(
        cls, folder: Path, description: Description, device: str, precision: str, threads: int | None
    ) -> Translator:
        """The folder of an engine with files of its own. Raises ArtifactError when the model is missing or another one,
        InputError when the library is not installed or cannot compute in this precision here."""
        assert description.engine is not None, "the description names the engine of the folder"
        name, *further_networks = description.models
        if further_networks:
            raise ArtifactError(folder / DESCRIPTION, "has more than one network", AGAIN)
        network = description.models[name]
        kind = registry.families()[network.family].model
        settings: Any = checked(kind, network.model, f"{folder / DESCRIPTION}: models.{name}.model", AGAIN)
        bundle.check_weights(folder, description)
        threads = threads or cores()
        set_threads(threads)
        subwords = bundle.read_subwords(folder, description)
        source, target = _normalisers(description, subwords)
        system = System(device, precision, threads, {}, folder, settings, subwords, source, target)
        session = open_session(registry.engines()[description.engine], system)
        models = {name: session.network.eval()} if session.network else {}
        # The library chooses its device itself; the runtime has the kind of device.
        translator = cls(description, models, subwords, Runtime(torch.device(session.device), torch.float32), session)
        longest = session.network.longest_source if session.network else settings.max_positions - 1
        translator._bundle.longest_source = longest
        return translator

    def use(self, engine: str) -> Translator:
        """Select the engine: eager, fast, fast-int8, or auto (the faster one here, see docs/inference.md).

        fast and fast-int8 are modes of an engine of `engines/`, which depends on the device. Traces, and searches that
        it does not serve (`Engine.serves`), are eager. Raises InputError where `engine` cannot serve; auto always can.
        """
        chosen, declared = choose(engine, self.device, self.precision, self._bundle.family, self.searches)
        # Networks that only fill roles are arguments of a search, and may be of the same families.
        networks = {family.name: self.models[name] for name, family in self._bundle.own}
        system = System(self.device, chosen, torch.get_num_threads(), networks)
        self._session = self._eager if chosen == EAGER else open_session(declared, system)
        self.engine, self._automatic, self._declared = chosen, engine == AUTO, declared
        return self

    @property
    def last_timings(self) -> dict[str, float]:
        """Seconds that the last call of this thread spent on subwords: {"encode", "decode"}."""
        return self._of_thread.timings

    def after_fork(self) -> None:
        self._forked = True

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
        return self.models[self._bundle.name]

    @property
    def device(self) -> str:
        return str(self.runtime.device)

    @property
    def precision(self) -> str:
        if self.description.engine is not None:
            return self._session.precision
        return str(self.runtime.dtype).removeprefix("torch.")

    @property
    def longest_source(self) -> int:
        """Subwords of the longest source that the system reads, without its end symbol."""
        return self._bundle.longest_source

    def translate(
        self,
        lines: list[str],
        search: str | SearchSettings | Request | None = None,
        *,
        first_line: int = 1,
        **options: Any,
    ) -> list[Any]:
        """Translations of `lines`, in order; an empty line stays empty.

        Lines may have any length. Their sentences are translated one by one and joined with the white space between
        them. A sentence that is too long for the model is cut at clauses or words, with a warning.

        With `n_best` (number of hypotheses), `return_scores` or `return_origins` (the source subwords that outputs were
        read off), each line gives a `Translation` in place of text. Raises InputError where the search holds fewer
        hypotheses, or knows no origins. Messages count lines from `first_line`.
        """
        request = self.request(search, **options)
        translations = self.translations(lines, request, first_line=first_line)
        return translations if request.details else [translation.text for translation in translations]

    def request(
        self,
        search: str | SearchSettings | Request | None = None,
        systems: Mapping[str, Translator] | None = None,
        **options: Any,
    ) -> Request:
        """A request for many calls, checked once.

        Raises ConfigError for a search that the bundle or its engine lacks, for settings that the search lacks or that
        are out of range, and for what the search cannot return; InputError for a system that translates nothing.
        """
        if isinstance(search, Request):
            if systems or options:
                first = next(iter(options), "systems")
                hint = "give it when you make the request"
                raise ConfigError(first, problem="it is given together with a request", hint=hint)
            return search
        check_systems(systems)
        fields = {name: value for name, value in options.items() if name not in OPTIONS}
        settings, role_systems = self.settings(search, **fields)
        request = Request(settings, **{name: value for name, value in options.items() if name in OPTIONS})
        check_batch(request.batch)
        declared, own_searches = registry.search_of(settings), [registry.searches()[name] for name in self.searches]
        check_n_best(request.n_best, declared, settings, own_searches)
        if request.return_origins and not self.knows_origins(settings):
            refuse_origins(declared, own_searches if self.models else [])
        role_systems = {**(systems or {}), **role_systems}
        if self.description.engine is None:
            return dataclasses.replace(request, networks=self.networks(settings, role_systems))
        _check_roles(role_systems, settings)
        if reason := self._declared.serves(self._bundle.family, declared, settings):
            raise ConfigError("engine", self._declared.name, problem=f"it {reason}")
        if request.trace:
            raise ConfigError("engine", self._declared.name, problem="it keeps no traces", hint="use the bundle")
        return request

    def translations(
        self,
        lines: list[str],
        request: Request,
        *,
        file: str | Path | None = None,
        first_line: int = 1,
        watch: Watch | None = None,
    ) -> list[Translation]:
        """The translations of `lines` with their details.

        Messages name the `file` of the lines, and count from `first_line`. `watch` is called after every batch.
        """
        self._check_process()
        parts, normalised_texts, sources = self._parts(lines, request, file, first_line)
        hypotheses = self.search_ids(sources, request, watch)
        ranked = [[pair] for pair in zip(hypotheses.scores, hypotheses.tokens, strict=True)]
        if request.ranked:
            if hypotheses.ranked is None:
                name = registry.search_of(request.settings).name
                raise DeclarationError(f'search "{name}"', "holds several hypotheses and gives one", "leave n_best out")
            ranked = hypotheses.ranked()
        origins = None
        if request.return_origins:
            outputs = [[tokens for _, tokens in entries] for entries in ranked]
            origins = self._origins(sources, request, outputs)
        placeholder_sources = None
        if request.placeholders and self.subwords.placeholders is not None:
            placeholder_sources = [
                text for text, entries in zip(normalised_texts, ranked, strict=True) for _ in entries
            ]
        repetitions = request.remove_repetitions or self._bundle.removal(request.settings)
        texts = self.text([tokens for entries in ranked for _, tokens in entries], repetitions, placeholder_sources)
        source_pieces = map(self._source_pieces, sources) if request.details else [[] for _ in sources]
        pieces = self._target_pieces if request.details else None
        sentences = of_sentences(ranked, texts, origins, list(source_pieces), pieces)
        outcomes = self.subwords.placeholder_outcomes(hypotheses.tokens, normalised_texts) or [{}] * len(sentences)
        entries = zip(sentences, normalised_texts, outcomes, strict=True)
        sentences = [self._with_losses(*entry) for entry in entries]
        languages = self.description.languages
        return of_lines(sentences, parts, gaps(parts, languages.source, languages.target), request.n_best or 1)

    def _with_losses(self, translation: Translation, text: str, outcomes: Mapping[str, int]) -> Translation:
        """The translation of a sentence with the characters of its normalised `text` that the vocabulary lacks, and the
        outcomes of placeholders."""
        unknown = self._reader.unknown_source(text)
        if not unknown and not outcomes:
            return translation
        lost = Counter(character for character in unknown if character not in MARKS) - Counter(translation.text)
        losses: dict[str, Any] = {"unknown": tuple(unknown), "lost": tuple(lost.elements()), "placeholders": outcomes}
        return dataclasses.replace(translation, **losses)

    def _source_pieces(self, source: Sequence[int]) -> list[str]:
        """The source subwords that the model reads, for display."""
        return self._numbered(self._reader.pieces_source([*source, EOS]))

    def _target_pieces(self, tokens: list[int]) -> list[str]:
        """The subwords of an output, for display."""
        return self._numbered(self.subwords.pieces_target(tokens))

    def _numbered(self, pieces: list[str]) -> list[str]:
        """Subwords with numbers in place of symbols, which only recipes with placeholders have."""
        return pieces if self.subwords.placeholders is None else numbered(pieces)

    def knows_origins(self, settings: SearchSettings) -> bool:
        """Whether the source subwords that outputs were read off are known with a search, and computed here."""
        return registry.search_of(settings).origins and bool(self.models)

    @torch.no_grad()
    def _origins(
        self, sources: Sequence[Sequence[int]], request: Request, outputs: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[list[int]]]:
        """The source position of each subword of the outputs of each sentence, where `knows_origins`."""
        search = self._eager.opened(request)
        # Empty sources have one output, without subwords.
        positions: list[list[list[int]]] = [[[]] for _ in sources]
        with EXPORTS.computing():
            for rows in longest_first(sources, request.batch):
                source = pad([sources[row] for row in rows], eos=True).to(self.runtime.device, non_blocking=True)
                origins = search.origins(source, [outputs[row] for row in rows])
                for row, values in zip(rows, origins, strict=True):
                    positions[row] = values
        return positions

    def trace(
        self, lines: list[str], search: str | SearchSettings | Request | None = None, **options: Any
    ) -> list[list[str]]:
        """For each line its translation after 0, 1, … steps, repetitions kept. Raises ConfigError without any steps."""
        request = self.request(search, **options)
        declared = registry.search_of(request.settings)
        if not declared.traceable:
            raise ConfigError("search", declared.name, problem="it has no refinement steps to show")
        plain: dict[str, Any] = {"n_best": None, "return_scores": False, "return_origins": False}
        hypotheses = self.search(lines, dataclasses.replace(request, trace=True, **plain))
        if hypotheses.traces is None:
            assert declared.series is not None, "declarations of traceable searches have a series"
            steps = getattr(request.settings, declared.series) + 1 - declared.first_value
            return [[""] * steps for _ in lines]
        restores = request.placeholders and self.subwords.placeholders is not None
        sources = self._normalised(lines, request.normalised) if restores else None
        texts_of_steps = (self.text(tokens, sources=sources) for tokens in hypotheses.traces)
        return [list(texts) for texts in zip(*texts_of_steps, strict=True)]

    def search(
        self,
        lines: list[str],
        search: str | SearchSettings | Request | None = None,
        systems: Mapping[str, Translator] | None = None,
        *,
        first_line: int = 1,
        **options: Any,
    ) -> Hypotheses:
        """Subword hypotheses for `lines`, each as a whole; with scores, unless `return_scores` is False.

        Raises InputError with the number (counted from `first_line`) of a line that is longer than the model's
        positions.
        """
        self._check_process()
        scored = {} if isinstance(search, Request) else {"return_scores": True}
        request = self.request(search, systems, **{**scored, **options})
        check_lines(lines)
        began = time.perf_counter()
        with _half_characters_named(lines, first_line):
            sources = self.encoded(self._normalised(lines, request.normalised))
        self.last_timings.update(encode=time.perf_counter() - began, decode=0.0)
        for number, source in enumerate(sources, first_line):
            if len(source) > self.longest_source:
                problem = f"has {len(source)} subwords, the model takes at most {self.longest_source}"
                raise InputError(f"line {number}", problem, "split it into sentences")
        return self.search_ids(sources, request)

    def search_ids(self, sources: Sequence[Sequence[int]], request: Request, watch: Watch | None = None) -> Hypotheses:
        """`search` for subword ids without end symbols. `watch` is called after every batch, as by `search_rows`."""
        self._check_room(request, sources)
        sessions: dict[bool, Session] = {}

        def search_batch(rows: list[Sequence[int]]) -> Hypotheses:
            # A last batch may be a sentence by itself.
            alone = len(rows) == 1
            if alone not in sessions:
                sessions[alone] = self._session_for(request, alone)
            return sessions[alone].search(rows, request)

        return search_rows(search_batch, sources, request.batch, request.ranked, watch, self._session.threads)

    def _session_for(self, request: Request, alone: bool) -> Session:
        """What computes sentences one at a time (`alone`) or in batches."""
        if request.trace or not self._is_served(request.settings):
            return self._eager
        # With engine auto, calls do not wait for an export, which takes seconds: `prepare` does.
        waits = self._automatic and not self._session.ready(request, alone)
        return self._eager if waits or not self._gains(request, alone) else self._session

    def _is_served(self, settings: SearchSettings) -> bool:
        """Whether the engine computes a search; `request` refuses those that the engine of a folder does not."""
        return self.description.engine is not None or why_not(self._declared, self._bundle.family, settings) is None

    def _gains(self, request: Request, alone: bool) -> bool:
        return not self._automatic or self._session.gains(request, alone)

    def prepare(self, search: str | SearchSettings | Request | None = None, batch: int = 1, **options: Any) -> bool:
        """Export the graph of a search for single sentences, or for batches (`batch` above 1), where it is missing.

        An engine that was chosen by name computes last batches of one sentence too, and needs both for batches. An
        export takes seconds, so a server does it before its first request; graphs are kept on disk. Give
        `return_scores` for calls that ask for scores or several hypotheses. Returns whether an engine computes such
        calls from now on: False where none is open that does it faster, or where an export for `auto` fails, with a
        warning. Raises ConfigError where one fails for an engine that was chosen by name.
        """
        if isinstance(search, Request):
            request, batch = search, search.batch
        else:
            request = self.request(search, batch=batch, **options)
        if self._session is self._eager or self.description.engine is not None:
            return False
        if not self._is_served(request.settings) or not self._gains(request, batch == 1):
            return False
        try:
            for alone in {batch == 1, batch == 1 or not self._automatic}:
                self._session.prepare(request, alone)
        except ConfigError as failure:
            if not self._automatic:
                raise
            name = registry.search_of(request.settings).name
            log.warning("search %s stays eager: %s", name, failure)
            return False
        return True

    def why_eager(self, settings: SearchSettings) -> str | None:
        """Why the engine that was chosen by name does not compute a search, in a sentence; None where it does."""
        if self._automatic or self._is_served(settings):
            return None
        reason = why_not(self._declared, self._bundle.family, settings)
        return f"search {registry.search_of(settings).name} is computed eagerly: engine {self._declared.name} {reason}."

    def networks(
        self, settings: SearchSettings, systems: Mapping[str, Translator] | None = None
    ) -> dict[str, nn.Module]:
        """The networks of a search by role.

        Raises ConfigError for a role without a network, and for a search that the networks were not trained for.
        """
        _check_roles(systems or {}, settings)
        return self._bundle.networks(settings, {role: system._bundle for role, system in (systems or {}).items()})

    def _normalised(self, lines: list[str], normalised: bool) -> list[str]:
        """The lines, normalised unless they already are."""
        return lines if normalised else [self._source.line(line) for line in lines]

    def encoded(self, texts: list[str]) -> list[list[int]]:
        """Ids of the source subwords of normalised texts, as the model reads them, without end symbols."""
        return self._reader.encode_source(texts)

    def _parts(
        self, lines: list[str], request: Request, file: str | Path | None, first_line: int
    ) -> tuple[list[Part], list[str], list[list[int]]]:
        """Parts of lines that the model can take, their normalised texts, and the subwords of these."""
        check_lines(lines)
        place, normalised = f"{file}, " if file else "", request.normalised

        def read(texts: list[str]) -> tuple[list[str], list[list[int]]]:
            texts = self._normalised(texts, normalised)
            return texts, self.encoded(texts)

        began = time.perf_counter()
        with _half_characters_named(lines, first_line):
            splits = request.split and not normalised
            parts = split_lines(lines, self.description.languages.source) if splits else whole_lines(lines)
            texts, sources = read([part.text for part in parts])
            if any(len(source) > self.longest_source for source in sources):
                size = lambda text: len(read([text])[1][0])  # noqa: E731
                parts = cut_long(parts, list(map(len, sources)), self.longest_source, size, place, first_line)
                texts, sources = read([part.text for part in parts])
        self.last_timings.update(encode=time.perf_counter() - began, decode=0.0)
        self._warn_of_unseen_lengths(parts, sources, place, first_line)
        return parts, texts, sources

    def _warn_of_unseen_lengths(
        self, parts: Sequence[Part], sources: Sequence[Sequence[int]], place: str, first_line: int
    ) -> None:
        """Log a warning for sentences that are longer than all that training saw."""
        most = self._bundle.longest_trained
        longer = [] if most is None else [number for number, source in enumerate(sources) if len(source) > most]
        if longer:
            log.warning(
                "warning: %sline %d has a sentence of %d subwords%s, and training saw at most %d; expect worse "
                "translations, or split it",
                *(place, first_line + parts[longer[0]].line, len(sources[longer[0]])),
                *(f", the first of {len(longer):,} such sentences" if len(longer) > 1 else "", most),
            )

    def source_text(self, line: str) -> str:
        """A normalised source line, detokenised as outputs are, for display."""
        return self._source.detokenise(line)

    def text(
        self, tokens: list[list[int]], remove_repetitions: Removal = "none", sources: Sequence[str] | None = None
    ) -> list[str]:
        """Lines of text from subword ids. Placeholders become those of `sources`, normalised lines, or else <1>, <2> …

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
    ) -> tuple[SearchSettings, dict[str, Translator]]:
        """Settings of a search (default: the bundle's), and the translators among `fields` by the role they fill.

        Raises as `OpenBundle.settings` does; settings objects may have fields without effect, because `search` takes
        `systems`.
        """
        if isinstance(search, SearchSettings):
            if fields:
                hint = "change the settings instead"
                raise ConfigError(next(iter(fields)), problem="it is given together with a settings object", hint=hint)
            return self._bundle.completed(search), {}
        translators = {name: value for name, value in fields.items() if isinstance(value, Translator)}
        names = {name: translator.description.system for name, translator in translators.items()}
        settings = self._bundle.settings(search, fields | names)
        return settings, {settings.roles()[name]: translator for name, translator in translators.items()}

    def _check_room(self, request: Request, sources: Sequence[Sequence[int]]) -> None:
        """Raises ConfigError for a beam beyond the vocabulary, and where hypotheses do not fit into memory."""
        vocabulary = self._reader.target_size
        check_beams(request.settings, vocabulary)
        longest = max(map(len, sources), default=0)
        # The library of a model that was made elsewhere has its own memory.
        if not longest or self._reader is not self.subwords:
            return
        name, family = self._bundle.own[0]
        per_subword = family.positions(self.models[name].config) if family.positions and name in self.models else 1
        positions = min(math.ceil((longest + 1) * per_subword), self.longest_source + 1)
        sentences = min(request.batch, sum(map(bool, sources)))
        sizes = Sizes(vocabulary, longest + 1, self.description.models[name].model["dim"], sentences, positions)
        check_room(request.settings, sizes, self.runtime.device)


def _check_roles(systems: Mapping[str, Any], settings: SearchSettings) -> None:
    """Raises InputError for a role that the settings of a search do not name, or a system that is no translator."""
    named = settings.named("role")
    for role, system in systems.items():
        if role not in named:
            raise ConfigError("systems", role, problem="no role of this search", allowed=named)
        if not isinstance(system, Translator):
            raise ConfigError(f"systems.{role}", system, allowed="a translator, which Translator.load opens")


def _normalisers(description: Description, subwords: Subwords) -> tuple[Normaliser, Normaliser]:
    """Those of sources and of targets."""
    kinds = subwords.placeholders.kinds if subwords.placeholders else ()
    languages = description.languages
    source, target = (
        Normaliser(description.normalisation, language, kinds) for language in (languages.source, languages.target)
    )
    return source, target


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
