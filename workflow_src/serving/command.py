"""`continuum translate`: lines of standard input or of files, translated with an exported bundle."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import io
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from workflow_src import registry
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.data.lines import count_lines, read_lines_and_pauses
from workflow_src.data.placeholders import outcome_words
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.atomic import atomic
from workflow_src.runtime import console
from workflow_src.serving import bundle
from workflow_src.serving.arguments import check_batch
from workflow_src.serving.base import BaseTranslator
from workflow_src.serving.choice import choice_words
from workflow_src.serving.files import inputs_and_outputs
from workflow_src.serving.progress import shown_progress
from workflow_src.serving.translations import Extras, json_line, text_lines
from workflow_src.serving.translator import Translator
from workflow_src.spec import Search, SearchSettings

log = logging.getLogger("continuum")
# Lines after which an export pays: it takes 5 to 9 seconds, and saves 0.5 to 2 milliseconds a sentence.
EXPORT_PAYS = 10_000
PLUGGED = "{} of a plug-in needs --plugins PACKAGE"
# Characters of a line, on average, from which fewer lines are held at once.
LONG = 200
# Lost characters that a warning shows.
SHOWN = 10


def _number(text: str) -> int | str:
    """The text as an integer, or unchanged: the check of the value then refuses it."""
    try:
        return int(text)
    except ValueError:
        return text


def _parser(search: Search | None, description: bundle.Description | None) -> argparse.ArgumentParser:
    """The options of the command and of all searches; the help has those of `search`, with the defaults of the bundle
    of `description`."""
    defaults = bundle.defaults(description, search) if description and search else {}
    default = "the bundle's, which is the best on dev: --bundle FOLDER --help shows it"
    if description and description.searches:
        default = choice_words(description)
    configured = description.remove_repetitions if description else None
    removal, exempt = (
        configured or "subwords",
        "autoregressive searches" + " and models with alignments" * (configured is None),
    )
    parser = argparse.ArgumentParser(
        prog="continuum translate",
        description="Translate lines of standard input with an exported system. A search has options of its own: "
        "--bundle FOLDER --search NAME --help shows them.",
        allow_abbrev=False,
    )
    parser.add_argument("--bundle", required=True, help="folder of an exported system")
    parser.add_argument("--search", help=f"default: {default.replace('%', '%%')}")
    parser.add_argument(
        "--plugins", nargs="+", default=[], metavar="PACKAGE", help="plug-ins that the bundle or the search needs"
    )
    parser.add_argument(
        "--remove-repetitions", choices=REMOVALS, help=f"default: none for {exempt}, {removal} for all others"
    )
    parser.add_argument(
        "--normalised",
        action="store_true",
        help="lines are normalised sentences, as in results/RECIPE/corpus: take them as they are",
    )
    parser.add_argument(
        "--no-split", dest="split", action="store_false", help="translate each line as a whole, not its sentences"
    )
    parser.add_argument(
        "--n-best",
        type=_number,
        metavar="N",
        help="the N best hypotheses of a search that holds several, each on a line after the number of its source line",
    )
    parser.add_argument("--scores", action="store_true", help="put the score and a tab before each text")
    parser.add_argument(
        "--output-format",
        choices=("text", "jsonl"),
        default="text",
        help="jsonl: a line of JSON for each line, with score, hypotheses, and where subwords come from",
    )
    parser.add_argument("--batch", type=_number, default=64, help="sentences translated together")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16", "int8", "float16"),
        help="int8 and float16 are for folders of other engines; default: auto",
    )
    parser.add_argument("--threads", type=_number, help="CPU threads")
    parser.add_argument("--engine", default="auto", help="auto, eager, fast or fast-int8; see docs/inference.md")
    parser.add_argument(
        "--input",
        type=console.user_path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files or folders instead of standard input",
    )
    parser.add_argument(
        "--output",
        help="a file instead of standard output; of several files, and where it exists, a folder for files of the same "
        "names; each is written as a whole",
    )
    group = parser.add_argument_group(f"options of search {search.name}" if search else "options of searches")
    search_settings = search.settings.model_fields if search else {}
    for name in dict.fromkeys([*search_settings, *_settings()]):
        _add_setting(group, name, search if name in search_settings else None, defaults)
    return parser


def _settings() -> list[str]:
    """Names of the settings of all searches."""
    return list(dict.fromkeys(name for search in registry.searches().values() for name in search.settings.model_fields))


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_setting(group: Any, name: str, search: Search | None, defaults: Mapping[str, Any]) -> None:
    """Add the option of a setting, which the settings class checks. The help shows it if there is a `search`."""
    kinds = [
        candidate.settings for candidate in registry.searches().values() if name in candidate.settings.model_fields
    ]
    kind = search.settings if search else kinds[0]
    help_text = argparse.SUPPRESS
    if search:
        default = defaults.get(name, kind.default(name))
        words = kind.model_fields[name].description or ""
        words += "" if default is None else f"; default {default}"
        help_text = ("bundle of a system: " if kind.option(name).role else "") + words.replace("%", "%%")
    if kind.model_fields[name].annotation is bool:
        group.add_argument(_option(name), action=argparse.BooleanOptionalAction, default=None, help=help_text)
    else:
        group.add_argument(_option(name), default=None, metavar=name.upper(), help=help_text)


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


@dataclasses.dataclass(frozen=True)
class Options:
    """The parsed command line; `settings` are the given options of searches, as text or bool."""

    bundle: str
    search: str | None
    plugins: list[str]
    remove_repetitions: Removal | None
    normalised: bool
    batch: int
    device: str
    precision: str
    threads: int | None
    engine: str
    split: bool
    n_best: int | None
    scores: bool
    output_format: Literal["text", "jsonl"]
    input: list[Path]
    output: Path | None
    settings: dict[str, Any]


def _settings_of(options: Options, translator: BaseTranslator) -> dict[str, Any]:
    """Settings of the search, bundles as translators. Raises InputError for a setting that the search does not take."""
    fields = dict(options.settings)
    search = registry.search_of(translator.settings(options.search)[0])
    for name in fields:
        if name not in search.settings.model_fields:
            owners = ", ".join(
                candidate.name for candidate in registry.searches().values() if name in candidate.settings.model_fields
            )
            problem = f"no setting of search {search.name} but of {owners}"
            raise ConfigError(_option(name), fields[name], problem=problem, hint="remove one of the two")
    for name in search.settings.named("role"):
        if fields.get(name) == "none":
            fields[name] = None
        elif name in fields:
            fields[name] = Translator.load(fields[name], options.device, options.precision, options.threads)
    return fields


class _Command:
    """The translator and the search of the options, opened when the first line is translated."""

    def __init__(self, options: Options):
        self.options = options
        # Lines that are translated, of all files.
        self.done = 0
        self._prepared = False
        # Characters outside of the vocabulary that translations lack, and the lines that have such.
        self.lost: Counter[str] = Counter()
        self.lines_with_lost = 0

    @functools.cached_property
    def _opened(self) -> tuple[BaseTranslator, SearchSettings, Mapping[str, BaseTranslator], Extras]:
        options = self.options
        check_batch(options.batch)
        translator = Translator.load(options.bundle, options.device, options.precision, options.threads, options.engine)
        settings, systems = translator.settings(options.search, **_settings_of(options, translator))
        if note := translator.why_eager(settings):
            log.warning("warning: %s", note)
        as_json = options.output_format == "jsonl"
        extras = Extras(options.n_best, options.scores or as_json, as_json and translator.knows_origins(settings))
        # Report wrong settings even when there is nothing to translate.
        translator.translations([], settings, systems, options.batch, extras)
        return translator, settings, systems, extras

    def chunks(self, path: Path, named: bool, progress: Callable[[float], None]) -> Iterator[list[str]]:
        """The lines to write for a file; `progress` is called with the number of lines done, of all files.

        What has arrived is translated before more is waited for. Warnings name the file if `named`.
        """
        options, (translator, settings, systems, extras) = self.options, self._opened
        first_line = 1
        # Sorting by length works within a chunk, so chunks are much larger than batches.
        for chunk in _chunks(read_lines_and_pauses(path, own=True), 64 * options.batch):
            if self.done >= EXPORT_PAYS and not self._prepared:
                translator.prepare(settings, options.batch, extras.details, systems)
                self._prepared = True

            def watch(sentences: int, total: int, lines_before: int = self.done, lines: int = len(chunk)) -> None:
                progress(lines_before + lines * sentences / total)

            translations = translator.translations(
                chunk,
                settings,
                systems,
                options.batch,
                extras,
                split=options.split,
                normalised=options.normalised,
                file=path if named else None,
                first_line=first_line,
                remove_repetitions=options.remove_repetitions,
                watch=watch,
            )
            written: list[str] = []
            for number, translation in enumerate(translations, first_line):
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
        placeholders = self._opened[0].placeholders
        if any(placeholders[name] for name in ("missing", "surplus", "dropped")):
            log.warning("warning: %s", outcome_words(placeholders))


def _translate(options: Options) -> None:
    """Translate the files of the options, each into its output."""
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
            # The same bytes whatever the terminal's own encoding is.
            if isinstance(output, io.TextIOWrapper):
                output.reconfigure(encoding="utf-8", newline="\n")
            for lines in command.chunks(path, len(pairs) > 1, progress):
                # Flushed, because a program may wait for it.
                console.write(output, lines)
    command.warn_of_losses()


def _parse(words: list[str] | None) -> Options:
    """Parse the command line. The help depends on the bundle and the search, so these are parsed first."""
    early_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early_parser.add_argument("--bundle")
    early_parser.add_argument("--search")
    early_parser.add_argument("--plugins", nargs="+", default=[])
    early, _ = early_parser.parse_known_args(words)
    registry.use([*registry.used_modules(), *early.plugins])
    description = failure = None
    if early.bundle:
        try:
            description = bundle.read_bundle(console.user_path(early.bundle))
        except ArtifactError as error:
            failure = error
    if early.search and early.search not in registry.searches() and description:
        hint = PLUGGED.format("a search")
        raise ConfigError("--search", early.search, allowed=description.searches, hint=hint)
    name = early.search or (description.defaults.get("search") if description else None)
    search = registry.searches().get(name or "")
    parser = _parser(search, description)
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        # Without its plug-in a bundle cannot be read, nor the options of its searches.
        if failure:
            raise failure
        parser.error(f"unrecognized arguments: {' '.join(unknown)}. {PLUGGED.format('an option')}")
    values = vars(parsed)
    if values["output"] is not None:
        # The path "" would be the folder where the command runs.
        if not values["output"]:
            raise ConfigError("--output", "", problem="it names no file", hint="name one, or remove it")
        values["output"] = console.user_path(values["output"])
    settings = {name: value for name in _settings() if (value := values.pop(name)) is not None}
    return Options(**values, settings=settings)


def main(words: list[str] | None = None) -> None:
    """The command: exit code 0, or 1 with one sentence on standard error."""
    with console.command():
        _translate(_parse(words))


if __name__ == "__main__":
    main()
