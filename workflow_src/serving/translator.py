"""Translation of text with an exported bundle.

from workflow_src import Translator
translator = Translator.load("results/tatoeba/bundles/score/seed-1")
print(translator.translate(["Das ist ein Satz."]))
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src import registry
from workflow_src.config.experiment import Removal
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import Watch
from workflow_src.engines.choose import AUTO, EAGER, choose, open_session, why_not
from workflow_src.engines.session import Request, Session, SessionConfig
from workflow_src.errors import ConfigError, DeclarationError, InputError
from workflow_src.runtime import forks
from workflow_src.runtime.device import Runtime, set_threads
from workflow_src.runtime.device import choose as choose_runtime
from workflow_src.serving import bundle
from workflow_src.serving.arguments import (
    check_engine,
    check_folder,
    check_lines,
    check_n_best,
    check_request,
    check_room,
    check_systems,
    check_threads,
    refuse_origins,
)
from workflow_src.serving.bundle import Description, read_bundle
from workflow_src.serving.opened import OpenBundle, load_models, open_engine_folder
from workflow_src.serving.selected import SelectedEngine
from workflow_src.serving.text import TextProcessor
from workflow_src.serving.translations import Translation
from workflow_src.spec import SearchSettings, check_beams
from workflow_src.types import Hypotheses

log = logging.getLogger("continuum")
# What a call may ask for beside the settings of its search.
OPTIONS = {field.name for field in dataclasses.fields(Request)} - {"settings", "networks"}


class Translator:
    """A trained system, ready to translate with the engine that `load` chose.

    `searches` are names of its searches; `device`, `precision` and `engine` are those in use.

    `translate` takes keywords, which `request` makes a `Request` of. For many calls, make the request once, and give it
    to `translate`, `translations`, `search`, `trace` and `prepare`.

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
        self._forked = False
        forks.renew_in_children(self)
        self.engine, declared = EAGER, registry.default_engine()
        if description.engine is not None:
            declared = registry.engines()[description.engine]
        own = SessionConfig(str(runtime.device), EAGER, torch.get_num_threads())
        # Without a session, our own code computes.
        eager = open_session(registry.default_engine(), own)
        self._selected = SelectedEngine(declared, self._bundle.family, session or eager, eager)
        # A model that was made elsewhere reads subwords of its own.
        network = session.network if session else None
        self._text = TextProcessor(description, subwords, network or subwords)

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

        Warns of plug-ins in another version than that of the bundle.

        Raises ArtifactError when the folder is no bundle or a file of it is missing, damaged or of another model;
        ConfigError for a device that this machine lacks or an engine that cannot serve.
        """
        folder = check_folder(folder)
        check_threads(threads)
        description = read_bundle(folder)
        bundle.warn_of_other_plugins(folder, description)
        if description.engine is not None:
            check_engine(description, engine)
            subwords, session = open_engine_folder(folder, description, device, precision, threads)
            models = {name: session.network.eval() for name in description.models if session.network}
            # The library chooses its device itself; the runtime has the kind of device.
            return cls(description, models, subwords, Runtime(torch.device(session.device), torch.float32), session)
        runtime = choose_runtime(device, precision, training=False)
        set_threads(threads)
        subwords = bundle.read_subwords(folder, description)
        models = load_models(folder, description, runtime)
        if not any(parameter.dtype == runtime.dtype for model in models.values() for parameter in model.parameters()):
            # No layer was narrowed: all compute in float32.
            runtime = dataclasses.replace(runtime, dtype=torch.float32)
        return cls(description, models, subwords, runtime).use(engine)

    def use(self, engine: str) -> Translator:
        """Select the engine: eager, fast, fast-int8, or auto (the faster one here, see docs/inference.md).

        fast and fast-int8 are modes of an engine of `engines/`, which depends on the device. Traces, and searches that
        it does not serve (`Engine.serves`), are eager. Raises InputError where `engine` cannot serve; auto always can.
        """
        if self.description.engine is not None:
            check_engine(self.description, engine)
            return self
        family, eager = self._bundle.family, self._selected.eager
        self.engine, declared = choose(engine, self.device, self.precision, family, self.searches)
        session = eager
        if self.engine != EAGER:
            # Networks that only fill roles are arguments of a search, and may be of the same families.
            networks = {own_family.name: self.models[name] for name, own_family in self._bundle.own}
            session = open_session(declared, SessionConfig(self.device, self.engine, torch.get_num_threads(), networks))
        self._selected = SelectedEngine(declared, family, session, eager, automatic=engine == AUTO)
        return self

    @property
    def last_timings(self) -> dict[str, float]:
        """Seconds that the last call of this thread spent on subwords: {"encode", "decode"}."""
        return self._text.timings

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
            return self._selected.session.precision
        return str(self.runtime.dtype).removeprefix("torch.")

    @property
    def longest_source(self) -> int:
        """Subwords of the longest source that the system reads, without its end symbol."""
        return self._bundle.longest_source

    def longest_part(self, request: Request) -> int:
        """Subwords of the longest part of a line that is translated at once.

        Where a request splits lines, parts are no longer than the sources that training saw: beyond them, a system
        translates little of a sentence.
        """
        seen = self._bundle.longest_trained
        return min(self.longest_source, seen) if request.splits and seen is not None else self.longest_source

    def request(
        self,
        search: str | SearchSettings | Request | None = None,
        systems: Mapping[str, Translator] | None = None,
        **options: Any,
    ) -> Request:
        """A request for many calls, checked once.

        `search` is the name of a search (by default the bundle's), or its settings. `options` are fields of a `Request`
        and settings of the search; one that names another system may be that system's translator itself. `systems` are
        translators by role, for the settings that name a system.

        Raises ConfigError for a search that the bundle or its engine lacks, for settings that the search lacks or that
        are out of range, and for what the search cannot return; InputError for a system that translates nothing.
        """
        if isinstance(search, Request):
            if systems or options:
                first = next(iter(options), "systems")
                hint = "give it when you make the request"
                raise ConfigError(first, problem="it is given together with a request", hint=hint)
            return search
        fields = {name: value for name, value in options.items() if name not in OPTIONS}
        settings, bundles = self._settings(search, systems, fields)
        request = Request(settings, **{name: value for name, value in options.items() if name in OPTIONS})
        check_request(request)
        declared, own_searches = registry.search_of(settings), [registry.searches()[name] for name in self.searches]
        check_n_best(request.n_best, declared, settings, own_searches)
        if request.return_origins and not self.knows_origins(settings):
            refuse_origins(declared, own_searches if self.models else [])
        if self.description.engine is None:
            return dataclasses.replace(request, networks=self._bundle.networks(settings, bundles))
        engine = self._selected.declared
        if reason := why_not(engine, self._bundle.family, settings):
            raise ConfigError("engine", engine.name, problem=f"it {reason}", hint="use the bundle")
        if request.trace:
            raise ConfigError("engine", engine.name, problem="it keeps no traces", hint="use the bundle")
        return request

    def _settings(
        self, search: str | SearchSettings | None, systems: Mapping[str, Translator] | None, fields: Mapping[str, Any]
    ) -> tuple[SearchSettings, dict[str, OpenBundle]]:
        """Settings of a search, and the bundles of `systems` and of translators among `fields` by the role they fill.

        Raises as `OpenBundle.settings` does; settings objects may have fields without effect.
        """
        translators: dict[str, Translator] = {}
        if not isinstance(search, SearchSettings):
            roles = self._bundle.search(search).settings.roles()
            by_role: Mapping[str, Any] = systems if isinstance(systems, Mapping) else {}
            named_values = {name: by_role[role] for name, role in roles.items() if role in by_role} | dict(fields)
            translators = {name: value for name, value in named_values.items() if isinstance(value, Translator)}
            names = {name: translator.description.system for name, translator in translators.items()}
            settings = self._bundle.settings(search, {**fields, **names})
        elif fields:
            hint = "change the settings instead"
            raise ConfigError(next(iter(fields)), problem="it is given together with a settings object", hint=hint)
        else:
            settings = self._bundle.completed(search)
        systems = {} if systems is None else systems
        check_systems(systems, settings, Translator)
        bundles = {role: translator._bundle for role, translator in systems.items()}
        return settings, bundles | {settings.roles()[name]: value._bundle for name, value in translators.items()}

    def networks(self, settings: SearchSettings) -> dict[str, nn.Module]:
        """The networks of a search by role.

        Raises ConfigError for a role without a network, and for a search that the networks were not trained for.
        """
        return self._bundle.networks(settings, {})

    def translate(
        self,
        lines: list[str],
        search: str | SearchSettings | Request | None = None,
        *,
        first_line: int = 1,
        **options: Any,
    ) -> list[Any]:
        """Translations of `lines`, in order; an empty line stays empty. `search` and `options`: see `request`.

        Lines may have any length. Their sentences are translated one by one and joined with the white space between
        them. A sentence that is longer than all that training saw is cut at clauses or words, with a warning.

        With `n_best` (number of hypotheses), `return_scores` or `return_origins` (the source subwords that outputs were
        read off), each line gives a `Translation` in place of text. Raises InputError where the search holds fewer
        hypotheses, or knows no origins. Messages count lines from `first_line`.
        """
        request = self.request(search, **options)
        translations = self.translations(lines, request, first_line=first_line)
        return translations if request.details else [translation.text for translation in translations]

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
        check_lines(lines)
        place = f"{file}, " if file else ""
        seen = self._bundle.longest_trained
        sources = self._text.split(lines, request, self.longest_part(request), seen, place, first_line)
        hypotheses = self.search_ids(sources.ids, request, watch)
        ranked = [[pair] for pair in zip(hypotheses.scores, hypotheses.tokens, strict=True)]
        if request.ranked:
            if hypotheses.ranked is None:
                name = registry.search_of(request.settings).name
                raise DeclarationError(f'search "{name}"', "holds several hypotheses and gives one", "leave n_best out")
            ranked = hypotheses.ranked()
        origins = None
        if request.return_origins:
            outputs = [[tokens for _, tokens in entries] for entries in ranked]
            origins = self._selected.origins(sources.ids, request, outputs)
        repetitions = request.remove_repetitions or self.removal(request.settings)
        return self._text.translations(sources, hypotheses.tokens, ranked, origins, request, repetitions)

    def removal(self, settings: SearchSettings) -> Removal:
        """The repetitions that are removed from translations by a search where a request does not say it."""
        return self._bundle.removal(settings)

    def knows_origins(self, settings: SearchSettings) -> bool:
        """Whether the source subwords that outputs were read off are known with a search, and computed here."""
        return registry.search_of(settings).origins and bool(self.models)

    def trace(self, lines: list[str], request: Request) -> list[list[str]]:
        """For each line its translation after 0, 1, … steps, without the repetitions that `remove_repetitions` of the
        request names; by default none are removed. Raises ConfigError without any steps."""
        declared = registry.search_of(request.settings)
        if not declared.traceable:
            raise ConfigError("search", declared.name, problem="it has no refinement steps to show")
        plain = dataclasses.replace(request, trace=True, n_best=None, return_scores=False, return_origins=False)
        hypotheses = self.search(lines, plain)
        if hypotheses.traces is None:
            assert declared.series is not None, "declarations of traceable searches have a series"
            steps = getattr(request.settings, declared.series) + 1 - declared.first_value
            return [[""] * steps for _ in lines]
        sources = self._text.normalised(lines, request) if self._text.restores(request) else None
        removal = request.remove_repetitions or "none"
        texts_of_steps = (self.text(tokens, removal, sources) for tokens in hypotheses.traces)
        return [list(texts) for texts in zip(*texts_of_steps, strict=True)]

    def search(self, lines: list[str], request: Request, *, first_line: int = 1) -> Hypotheses:
        """Subword hypotheses for `lines`, each as a whole.

        Raises InputError with the number (counted from `first_line`) of a line that is longer than the model's
        positions.
        """
        self._check_process()
        check_lines(lines)
        sources = self._text.whole(lines, request, first_line).ids
        for number, source in enumerate(sources, first_line):
            if len(source) > self.longest_source:
                problem = f"has {len(source)} subwords, the model takes at most {self.longest_source}"
                raise InputError(f"line {number}", problem, "split it into sentences")
        return self.search_ids(sources, request)

    def search_ids(self, sources: Sequence[Sequence[int]], request: Request, watch: Watch | None = None) -> Hypotheses:
        """`search` for subword ids without end symbols. `watch` is called after every batch, as by `search_rows`."""
        self._bundle.check_owner(request)
        reader = self._text.reader
        check_beams(request.settings, reader.target_size)
        # The library of a model that was made elsewhere has its own memory.
        if any(map(len, sources)) and reader is self.subwords:
            sentences = min(request.batch, sum(map(bool, sources)))
            check_room(request.settings, self._bundle.sizes(max(map(len, sources)), sentences), self.runtime.device)
        return self._selected.search(sources, request, watch)

    def prepare(self, request: Request | None = None) -> bool:
        """Export the graphs of a search where they are missing: of single sentences for a request with `batch` 1, else
        of batches. Without a request, it is that of single sentences for the bundle's search.

        An engine that was chosen by name computes last batches of one sentence too, and needs both for batches. An
        export takes seconds, so a server does it before its first request; graphs are kept on disk. Give
        `return_scores` for calls that ask for scores or several hypotheses. Returns whether an engine computes such
        calls from now on: False where none is open that does it faster, or where an export for `auto` fails, with a
        warning. Raises ConfigError where one fails for an engine that was chosen by name.
        """
        return self._selected.prepare(request or self.request(batch=1))

    def why_eager(self, settings: SearchSettings) -> str | None:
        """Why the engine that was chosen by name does not compute a search, in a sentence; None where it does."""
        return self._selected.why_eager(settings)

    def encoded(self, texts: list[str]) -> list[list[int]]:
        """Ids of the source subwords of normalised texts, as the model reads them, without end symbols."""
        return self._text.encoded(texts)

    def lengths(self, lines: list[str], request: Request) -> list[int]:
        """Source subwords of each line as a whole, as the model reads them, without end symbols."""
        return list(map(len, self._text.whole(lines, request, 1).ids))

    def source_text(self, line: str) -> str:
        """A normalised source line, detokenised as outputs are, for display."""
        return self._text.source_text(line)

    def text(
        self, tokens: list[list[int]], remove_repetitions: Removal = "none", sources: Sequence[str] | None = None
    ) -> list[str]:
        """Lines of text from subword ids. Placeholders become those of `sources`, normalised lines, or else <1>, <2> …

        `remove_repetitions`: with subwords, runs of the same subword are reduced to one before they are joined; with
        words, runs of the same word of the text. Raises InputError for anything else but none.
        """
        return self._text.text(tokens, remove_repetitions, sources)
