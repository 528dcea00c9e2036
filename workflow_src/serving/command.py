"""`continuum translate`: lines of standard input or of files, translated with an exported bundle."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from workflow_src import registry
from workflow_src.data.lines import count_lines, read_lines_and_pauses
from workflow_src.data.placeholders import outcome_words
from workflow_src.engines.choose import AUTO
from workflow_src.engines.session import Request
from workflow_src.errors import ConfigError, InputError
from workflow_src.records.atomic import atomic
from workflow_src.runtime import console
from workflow_src.serving.files import inputs_and_outputs
from workflow_src.serving.interactive import answer, typed_lines
from workflow_src.serving.options import INTERACTIVE_BEST, Options, option
from workflow_src.serving.translations import json_line, text_lines
from workflow_src.serving.translator import Translator

log = logging.getLogger("continuum")
# Lines after which an export pays: it takes 5 to 9 seconds, and saves 0.5 to 2 milliseconds a sentence.
EXPORT_PAYS = 10_000
# Characters of a line, on average, from which fewer lines are held at once.
LONG = 200
# Lost characters that a warning shows.
SHOWN = 10
# Seconds of which the progress bar shows the mean speed: batches of long sentences take longer than others.
SPEED_OVER = 600


def _chunks(lines: Iterable[str | None], size: int) -> Iterator[list[str]]:
    """At most `size` lines at a time, fewer where they are long, so that memory does not grow with their length.

    None, a pause of the input, ends a chunk.
    """
    chunk: list[str] = []
    characters = 0
    for line in lines:
        if line is not None:
            chunk.append(line)
            characters += len(line)
        if chunk and (line is None or len(chunk) == size or characters >= size * LONG):
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _fields(options: Options, translator: Translator) -> dict[str, Any]:
    """Settings of the search, bundles as translators. Raises InputError for a setting that the search does not take."""
    fields = dict(options.settings)
    search = registry.searches().get(options.search or translator.description.defaults.get("search", ""))
    if search is None:
        return {}
    for name in fields:
        if name not in search.settings.model_fields:
            owners = ", ".join(
                candidate.name for candidate in registry.searches().values() if name in candidate.settings.model_fields
            )
            problem = f"no setting of search {search.name} but of {owners}"
            raise ConfigError(option(name), fields[name], problem=problem, hint="remove one of the two")
    for name in search.settings.named("role"):
        if fields.get(name) == "none":
            fields[name] = None
        # The name that `--help` shows as the default is the system that the bundle carries.
        elif name in fields and fields[name] != translator.description.defaults.get(name):
            fields[name] = _partner(name, fields[name], options)
    return fields


def _partner(name: str, folder: str, options: Options) -> Translator:
    """The translator of the bundle that an option names. Raises ConfigError, which names the option."""
    try:
        return Translator.load(folder, options.device, options.precision, options.threads)
    except InputError as failure:
        raise ConfigError(option(name), folder, problem=str(failure).removesuffix(".")) from None


class _Command:
    """The translator and the search of the options, opened when the first line is translated."""

    def __init__(self, options: Options):
        self.options = options
        # Lines that are translated, of all files.
        self.done = 0
        self._prepared = False
        # Outcomes of placeholders.
        self.placeholders: Counter[str] = Counter()
        # Characters outside of the vocabulary that translations lack, and the lines that have such.
        self.lost: Counter[str] = Counter()
        self.lines_with_lost = 0

    @functools.cached_property
    def opened(self) -> tuple[Translator, Request]:
        """The translator, and the request. Wrong settings are refused even when there is nothing to translate."""
        options = self.options
        translator = Translator.load(options.bundle, options.device, options.precision, options.threads, options.engine)
        as_json = options.output_format == "jsonl"
        request = translator.request(
            options.search,
            batch=options.batch,
            n_best=options.n_best,
            return_scores=options.scores or as_json,
            split=options.split,
            normalised=options.normalised,
            remove_repetitions=options.remove_repetitions,
            **_fields(options, translator),
        )
        if options.interactive and options.n_best is None:
            width = registry.search_of(request.settings).width(request.settings)
            request = dataclasses.replace(request, n_best=min(INTERACTIVE_BEST, width))
        if as_json:
            origins = translator.knows_origins(request.settings)
            request = dataclasses.replace(request, return_origins=origins)
        if note := translator.why_eager(request.settings):
            log.warning("warning: %s", note)
        translator.translations([], request)
        return translator, request

    def chunks(self, path: Path, named: bool, progress: Callable[[float], None]) -> Iterator[list[str]]:
        """The lines to write for a file; `progress` is called with the number of lines done, of all files.

        What has arrived is translated before more is waited for. Warnings name the file if `named`.
        """
        options, (translator, request) = self.options, self.opened
        first_line = 1
        # Sorting by length works within a chunk, so chunks are much larger than batches.
        for chunk in _chunks(read_lines_and_pauses(path), 64 * options.batch):
            # Calls with an engine that was chosen by name export what they need.
            if self.done >= EXPORT_PAYS and options.engine == AUTO and not self._prepared:
                translator.prepare(request)
                self._prepared = True

            def watch(sentences: int, total: int, lines_before: int = self.done, lines: int = len(chunk)) -> None:
                progress(lines_before + lines * sentences / total)

            file = path if named else None
            translations = translator.translations(chunk, request, file=file, first_line=first_line, watch=watch)
            written: list[str] = []
            for number, translation in enumerate(translations, first_line):
                self.placeholders.update(translation.placeholders)
                self.lost.update(translation.lost)
                self.lines_with_lost += bool(translation.lost)
                if options.output_format == "jsonl":
                    written.append(json_line(translation))
                else:
                    written += text_lines(number, translation, options.n_best is not None, options.scores)
            yield written
            first_line += len(chunk)
            self.done += len(chunk)
            progress(self.done)

    def warn_of_losses(self) -> None:
        """Log the numbers of placeholders that translations lack or have too often, and of lost characters, if any."""
        if self.lost:
            first = ", ".join(f"{character} ({count:,})" for character, count in self.lost.most_common(SHOWN))
            log.warning(
                "warning: characters outside of the model's vocabulary were lost in %d line%s: %s%s",
                self.lines_with_lost,
                "s" * (self.lines_with_lost != 1),
                first,
                ", …" if len(self.lost) > SHOWN else "",
            )
        if any(self.placeholders[name] for name in ("missing", "surplus", "dropped")):
            log.warning("warning: %s", outcome_words(self.placeholders))


@contextlib.contextmanager
def shown_progress(count: Callable[[], int | None], to_terminal: bool) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, where that is a terminal: lines done, their total, and the time left.

    `count` returns the total, or None. The context's value is a function of the number of lines done. Nothing is shown
    where translations go to a terminal (`to_terminal`): the bar would be between them.
    """
    if to_terminal or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _done: None
        return
    columns = (TextColumn("translating"), BarColumn(), MofNCompleteColumn(), TextColumn("lines"), TimeRemainingColumn())
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, speed_estimate_period=SPEED_OVER) as progress:
        task = progress.add_task("", total=count())
        yield lambda done: progress.update(task, completed=done)


def converse(options: Options) -> None:
    """Translate line after line of standard input, each with its alternatives. An error of a line does not end it."""
    translator, request = _Command(options).opened
    if options.engine != AUTO:
        # Most lines that are typed have one sentence.
        translator.prepare(dataclasses.replace(request, batch=1))
    output = console.standard_output()
    for line in typed_lines():
        try:
            shown = list(answer(translator, line, request))
        except InputError as failure:
            print(f"error: {failure}", file=sys.stderr)
        else:
            console.write(output, shown)


def translate(options: Options) -> None:
    """Translate the files of the options, each into its output."""
    if options.interactive:
        converse(options)
        return
    pairs = inputs_and_outputs(options.input, options.output)
    command = _Command(options)
    terminals = [stream for stream in (sys.stdin, sys.stdout) if stream is not None and stream.isatty()]
    to_terminal = (sys.stdout in terminals and options.output is None) or (sys.stdin in terminals and not options.input)

    def count() -> int | None:
        paths = [path for path, _ in pairs]
        return sum(map(count_lines, paths)) if all(path.is_file() for path in paths) else None

    with shown_progress(count, to_terminal) as progress:
        for path, target in pairs:
            if target is not None:
                with atomic(target) as file:
                    for lines in command.chunks(path, len(pairs) > 1, progress):
                        file.writelines(f"{line}\n" for line in lines)
                continue
            output = console.standard_output(", or use --output")
            for lines in command.chunks(path, len(pairs) > 1, progress):
                # Flushed, because a program may wait for it.
                console.write(output, lines)
    command.warn_of_losses()
