"""`continuum translate`: lines of standard input or a file, translated with an exported bundle."""

from __future__ import annotations

import argparse
import io
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workflow_src import registry
from workflow_src.config.base import nearest
from workflow_src.config.experiment import REMOVALS
from workflow_src.data.lines import read_lines
from workflow_src.records.atomic import ArtifactError, atomic
from workflow_src.runtime import console
from workflow_src.serving import bundle
from workflow_src.serving.arguments import check_batch
from workflow_src.serving.base import BaseTranslator
from workflow_src.serving.choice import choice_words
from workflow_src.serving.translator import Translator
from workflow_src.spec import Search

log = logging.getLogger("continuum")
PLUGGED = "{} of a plug-in needs --plugins PACKAGE."


def _number(text: str) -> int | str:
    """A whole number; other text stays, and the check of the value says what is wrong with it."""
    try:
        return int(text)
    except ValueError:
        return text


def _parser(search: Search | None, description: Mapping[str, Any] | None) -> argparse.ArgumentParser:
    """The options of the command, and of all searches; the help has those of `search`, with the defaults of a bundle,
    as its `description` says them."""
    defaults = bundle.defaults(description, search) if description and search else {}
    default = "the bundle's, which is the best on dev: --bundle FOLDER --help shows it"
    if description and description["searches"]:
        default = choice_words(description)
    wanted = (description or {}).get("remove_repetitions")
    removed, kept = wanted or "subwords", "autoregressive searches" + " and models with alignments" * (wanted is None)
    made = argparse.ArgumentParser(
        prog="continuum translate",
        description="Translate lines of standard input with an exported system. A search has options of its own: "
        "--bundle FOLDER --search NAME --help shows them.",
        allow_abbrev=False,
    )
    made.add_argument("--bundle", required=True, help="folder of an exported system")
    made.add_argument("--search", help=f"default: {default.replace('%', '%%')}")
    made.add_argument(
        "--plugins", nargs="+", default=[], metavar="PACKAGE", help="plug-ins that the bundle or the search needs"
    )
    made.add_argument(
        "--remove-repetitions", choices=REMOVALS, help=f"default: none for {kept}, {removed} for all others"
    )
    made.add_argument(
        "--normalised",
        action="store_true",
        help="lines are normalised text, as in results/RECIPE/corpus: take them as they are",
    )
    made.add_argument("--batch", type=_number, default=64, help="sentences translated together")
    made.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    made.add_argument(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16", "int8", "float16"),
        help="int8 and float16 are for folders of other engines; default: auto",
    )
    made.add_argument("--threads", type=_number, help="CPU threads")
    made.add_argument("--engine", default="auto", help="auto, eager, fast or fast-int8; see docs/inference.md")
    made.add_argument("--input", type=Path, help="a file instead of standard input")
    made.add_argument("--output", type=Path, help="a file instead of standard output; written as a whole")
    group = made.add_argument_group(f"options of search {search.name}" if search else "options of searches")
    own = search.settings.model_fields if search else {}
    for name in dict.fromkeys([*own, *_settings()]):
        _add_setting(group, name, search if name in own else None, defaults)
    return made


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


def _told(given: argparse.Namespace, translator: BaseTranslator) -> dict[str, Any]:
    """The settings that the user gave. Raises ValueError for one that the search does not take."""
    told = {name: getattr(given, name) for name in _settings() if getattr(given, name) is not None}
    search = registry.search_of(translator.settings(given.search)[0])
    for name in told:
        if name not in search.settings.model_fields:
            owners = ", ".join(one.name for one in registry.searches().values() if name in one.settings.model_fields)
            raise ValueError(
                f"{_option(name)} belongs to {owners}, and the search is {search.name}; remove one of the two."
            )
    for name in search.settings.named("role"):
        if told.get(name) == "none":
            told[name] = None
        elif name in told:
            told[name] = Translator.load(told[name], given.device, given.precision, given.threads)
    return told


def _translated(given: argparse.Namespace) -> Iterator[str]:
    check_batch(given.batch)
    translator = Translator.load(given.bundle, given.device, given.precision, given.threads, given.engine)
    settings, systems = translator.settings(given.search, **_told(given, translator))
    if note := translator.why_eager(settings):
        log.warning("warning: %s", note)
    # Report wrong settings even when there is nothing to translate.
    translator.search([], settings, systems, batch=given.batch)
    done = 0
    # Sorting by length works within a chunk, so chunks are much larger than batches.
    for chunk in _chunks(read_lines(given.input or "/dev/stdin"), 64 * given.batch):
        yield from translator.translate(
            chunk,
            settings,
            batch=given.batch,
            first_line=done + 1,
            systems=systems,
            normalised=given.normalised,
            remove_repetitions=given.remove_repetitions,
        )
        done += len(chunk)


def _parse(words: list[str] | None) -> argparse.Namespace:
    """Parse the command line. The help depends on the bundle and the search, so these are parsed first."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--bundle")
    first.add_argument("--search")
    first.add_argument("--plugins", nargs="+", default=[])
    found, _ = first.parse_known_args(words)
    registry.use([*registry.wanted(), *found.plugins])
    description = failure = None
    if found.bundle:
        try:
            description = bundle.read_bundle(Path(found.bundle))
        except ArtifactError as error:
            failure = error
    if found.search and found.search not in registry.searches() and description:
        allowed = description["searches"]
        raise ValueError(
            f'unknown search "{found.search}"; allowed: {", ".join(allowed)}.{nearest(found.search, allowed)} '
            f"{PLUGGED.format('A search')}"
        )
    name = found.search or (description["defaults"].get("search") if description else None)
    search = registry.searches().get(name or "")
    made = _parser(search, description)
    options, unknown = made.parse_known_args(words)
    if unknown:
        # Without its plug-in a bundle cannot be read, nor the options of its searches.
        if failure:
            raise failure
        made.error(f"unrecognized arguments: {' '.join(unknown)}. {PLUGGED.format('An option')}")
    return options


def main(words: list[str] | None = None) -> None:
    """The command: exit code 0, or 1 with one sentence on standard error."""
    with console.command():
        given = _parse(words)
        if given.output:
            with atomic(given.output) as file:
                file.writelines(f"{line}\n" for line in _translated(given))
        else:
            output = console.standard_output(", or use --output")
            # The same bytes whatever the terminal's own encoding is.
            if isinstance(output, io.TextIOWrapper):
                output.reconfigure(encoding="utf-8", newline="\n")
            console.write(output, _translated(given))


if __name__ == "__main__":
    main()
