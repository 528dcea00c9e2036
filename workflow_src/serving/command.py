"""`continuum translate`: lines of standard input or a file, translated with an exported bundle."""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workflow_src import registry
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.data.lines import read_lines
from workflow_src.data.placeholders import outcome_words
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.atomic import atomic
from workflow_src.runtime import console
from workflow_src.serving import bundle
from workflow_src.serving.arguments import check_batch
from workflow_src.serving.base import BaseTranslator
from workflow_src.serving.choice import choice_words
from workflow_src.serving.translator import Translator
from workflow_src.spec import Search

log = logging.getLogger("continuum")
PLUGGED = "{} of a plug-in needs --plugins PACKAGE"


def _number(text: str) -> int | str:
    """A whole number, or the text as it is, which the check of the value refuses."""
    try:
        return int(text)
    except ValueError:
        return text


def _parser(search: Search | None, description: Mapping[str, Any] | None) -> argparse.ArgumentParser:
    """The options of the command and of all searches; the help has those of `search`, with defaults of `description`,
    that of a bundle."""
    defaults = bundle.defaults(description, search) if description and search else {}
    default = "the bundle's, which is the best on dev: --bundle FOLDER --help shows it"
    if description and description["searches"]:
        default = choice_words(description)
    wanted = (description or {}).get("remove_repetitions")
    removed, kept = wanted or "subwords", "autoregressive searches" + " and models with alignments" * (wanted is None)
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
        "--remove-repetitions", choices=REMOVALS, help=f"default: none for {kept}, {removed} for all others"
    )
    parser.add_argument(
        "--normalised",
        action="store_true",
        help="lines are normalised text, as in results/RECIPE/corpus: take them as they are",
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
    parser.add_argument("--input", type=Path, help="a file instead of standard input")
    parser.add_argument("--output", type=Path, help="a file instead of standard output; written as a whole")
    group = parser.add_argument_group(f"options of search {search.name}" if search else "options of searches")
    own = search.settings.model_fields if search else {}
    for name in dict.fromkeys([*own, *_settings()]):
        _add_setting(group, name, search if name in own else None, defaults)
    return parser


def _settings() -> list[str]:
    """Names of the settings of all searches."""
    return list(dict.fromkeys(name for search in registry.searches().values() for name in search.settings.model_fields))


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_setting(group: Any, name: str, search: Search | None, defaults: Mapping[str, Any]) -> None:
    """The option of a setting; its text is checked by the settings class. The help shows it for `search`."""
    kinds = [
        candidate.settings for candidate in registry.searches().values() if name in candidate.settings.model_fields
    ]
    kind = search.settings if search else kinds[0]
    about = argparse.SUPPRESS
    if search:
        default = defaults.get(name, kind.default(name))
        text = kind.model_fields[name].description or ""
        text += "" if default is None else f"; default {default}"
        about = ("bundle of a system: " if kind.option(name).role else "") + text.replace("%", "%%")
    if kind.model_fields[name].annotation is bool:
        group.add_argument(_option(name), action=argparse.BooleanOptionalAction, default=None, help=about)
    else:
        group.add_argument(_option(name), default=None, metavar=name.upper(), help=about)


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the command; `settings` are those of the search that the user set, as text or bool."""

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
    input: Path | None
    output: Path | None
    settings: dict[str, Any]


def _settings_of(options: Options, translator: BaseTranslator) -> dict[str, Any]:
    """Settings of the search, bundles as translators. Raises ValueError for a setting that the search does not take."""
    fields = dict(options.settings)
    search = registry.search_of(translator.settings(options.search)[0])
    for name in fields:
        if name not in search.settings.model_fields:
            owners = ", ".join(one.name for one in registry.searches().values() if name in one.settings.model_fields)
            problem = f"no setting of search {search.name} but of {owners}"
            raise ConfigError(_option(name), fields[name], problem=problem, hint="remove one of the two")
    for name in search.settings.named("role"):
        if fields.get(name) == "none":
            fields[name] = None
        elif name in fields:
            fields[name] = Translator.load(fields[name], options.device, options.precision, options.threads)
    return fields


def _translations(options: Options) -> Iterator[str]:
    check_batch(options.batch)
    translator = Translator.load(options.bundle, options.device, options.precision, options.threads, options.engine)
    settings, systems = translator.settings(options.search, **_settings_of(options, translator))
    if note := translator.why_eager(settings):
        log.warning("warning: %s", note)
    # Report wrong settings even when there is nothing to translate.
    translator.search([], settings, systems, batch=options.batch)
    done = 0
    # Sorting by length works within a chunk, so chunks are much larger than batches.
    for chunk in _chunks(read_lines(options.input or "/dev/stdin"), 64 * options.batch):
        yield from translator.translate(
            chunk,
            settings,
            batch=options.batch,
            first_line=done + 1,
            systems=systems,
            normalised=options.normalised,
            remove_repetitions=options.remove_repetitions,
        )
        done += len(chunk)
    if any(translator.placeholders[name] for name in ("missing", "dropped")):
        log.warning("warning: %s", outcome_words(translator.placeholders))


def _parse(words: list[str] | None) -> Options:
    """Parse the command line. The help depends on the bundle and the search, so these are parsed first."""
    first_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first_parser.add_argument("--bundle")
    first_parser.add_argument("--search")
    first_parser.add_argument("--plugins", nargs="+", default=[])
    first, _ = first_parser.parse_known_args(words)
    registry.use([*registry.wanted(), *first.plugins])
    description = failure = None
    if first.bundle:
        try:
            description = bundle.read_bundle(Path(first.bundle))
        except ArtifactError as error:
            failure = error
    if first.search and first.search not in registry.searches() and description:
        allowed = description["searches"]
        raise ConfigError("--search", first.search, allowed=allowed, hint=PLUGGED.format("a search"))
    name = first.search or (description["defaults"].get("search") if description else None)
    search = registry.searches().get(name or "")
    parser = _parser(search, description)
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        # Without its plug-in a bundle cannot be read, nor the options of its searches.
        if failure:
            raise failure
        parser.error(f"unrecognized arguments: {' '.join(unknown)}. {PLUGGED.format('an option')}")
    values = vars(parsed)
    settings = {name: value for name in _settings() if (value := values.pop(name)) is not None}
    return Options(**values, settings=settings)


def main(words: list[str] | None = None) -> None:
    """The command: exit code 0, or 1 with one sentence on standard error."""
    with console.command():
        options = _parse(words)
        if options.output:
            with atomic(options.output) as file:
                file.writelines(f"{line}\n" for line in _translations(options))
        else:
            output = console.standard_output(", or use --output")
            # The same bytes whatever the terminal's own encoding is.
            if isinstance(output, io.TextIOWrapper):
                output.reconfigure(encoding="utf-8", newline="\n")
            console.write(output, _translations(options))


if __name__ == "__main__":
    main()
