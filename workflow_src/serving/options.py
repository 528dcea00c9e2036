"""The options of `continuum translate`, and its command for a decode. No PyTorch here, so that help comes at once."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from workflow_src import registry
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.config.resolved import Decode
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.runtime import console
from workflow_src.serving import bundle
from workflow_src.serving.folders import placement
from workflow_src.spec import Search

# Hypotheses of a line that the interactive command shows.
INTERACTIVE_BEST = 5
PROGRAM = "continuum translate"
PLUGGED = "{} of a plug-in needs --plugins PACKAGE"


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
    interactive: bool
    output_format: Literal["text", "jsonl"]
    input: list[Path]
    output: Path | None
    settings: dict[str, Any]


def parse(words: list[str]) -> Options:
    """Parse the command line. The help depends on the bundle and the search, so these are parsed first."""
    early_parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    early_parser.add_argument("--bundle")
    early_parser.add_argument("--search")
    early_parser.add_argument("--plugins", nargs="+", action="extend", default=[])
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
    values["input"] = [_path("--input", text) for text in values["input"]]
    if values["output"] is not None:
        values["output"] = _path("--output", values["output"])
    if values["interactive"]:
        _check_interactive(values)
    settings = {name: value for name in _settings() if (value := values.pop(name)) is not None}
    return Options(**values, settings=settings)


def _path(name: str, text: str) -> Path:
    """The path of an option. Raises ConfigError for "", which would be the folder where the command runs."""
    if not text:
        raise ConfigError(name, "", problem="it names no file", hint="name one, or remove it")
    return console.user_path(text)


def _check_interactive(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for options that have no effect where lines are typed and answers are shown."""
    for name, unset in (("input", []), ("output", None), ("output_format", "text"), ("scores", False)):
        if values[name] != unset:
            value = list(map(str, values[name])) if name == "input" else str(values[name])
            problem = "--interactive reads what you type, and shows text with scores"
            raise ConfigError(option(name), value, problem=problem, hint="remove one of the two")


def _parser(search: Search | None, description: bundle.Description | None) -> argparse.ArgumentParser:
    """The options of the command and of all searches; the help has those of `search`, with the defaults of the bundle
    of `description`."""
    defaults = bundle.defaults(description, search) if description and search else {}
    default = "the bundle's, which is the best on dev: --bundle FOLDER --help shows it"
    if description and description.searches:
        default = bundle.choice_words(description)
    configured = description.remove_repetitions if description else None
    removal, exempt = (
        configured or "subwords",
        "autoregressive searches" + " and models with alignments or graphs" * (configured is None),
    )
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Translate lines of standard input with an exported system. A search has options of its own: "
        "--bundle FOLDER --search NAME --help shows them.",
        allow_abbrev=False,
    )
    parser.add_argument("--bundle", required=True, help="folder of an exported system")
    parser.add_argument("--search", help=f"default: {default.replace('%', '%%')}")
    parser.add_argument(
        "--plugins",
        nargs="+",
        action="extend",
        default=[],
        metavar="PACKAGE",
        help="plug-ins that the bundle or the search needs",
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
        help="at most N best hypotheses of a search that holds several, each on a line after the number of its source "
        "line, by which to group them",
    )
    parser.add_argument("--scores", action="store_true", help="put the score and a tab before each text")
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="translate line after line as you type them, each with its best hypotheses and their scores (--n-best; "
        f"default: {INTERACTIVE_BEST}, or as many as the search holds), characters outside of the vocabulary, and the "
        "outputs of refinement steps; Ctrl-D ends",
    )
    parser.add_argument(
        "--output-format",
        choices=("text", "jsonl"),
        default="text",
        help="jsonl: a line of JSON for each line, with score, hypotheses, and where subwords come from",
    )
    parser.add_argument("--batch", type=_number, default=64, help="sentences translated together (default 64)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16", "int8", "float16"),
        help="int8 and float16 are for folders of other engines; default: auto",
    )
    parser.add_argument("--threads", type=_number, help="CPU threads (default: as many as PyTorch takes)")
    parser.add_argument("--engine", default="auto", help="auto, eager, fast or fast-int8; see docs/inference.md")
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
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


def _number(text: str) -> int | str:
    """The text as an integer, or unchanged: the check of the value then refuses it."""
    try:
        return int(text)
    except ValueError:
        return text


def _settings() -> list[str]:
    """Names of the settings of all searches."""
    return list(dict.fromkeys(name for search in registry.searches().values() for name in search.settings.model_fields))


def option(name: str) -> str:
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
        group.add_argument(option(name), action=argparse.BooleanOptionalAction, default=None, help=help_text)
    else:
        group.add_argument(option(name), default=None, metavar=name.upper(), help=help_text)


def translate_command(
    folder: str,
    description: bundle.Description,
    decode: Decode,
    systems: Mapping[str, str],
    device: str = "auto",
    precision: str = "auto",
) -> str:
    """The command as a line for a shell, without its input.

    `folder` and `description` are those of the bundle, `decode` has the values chosen on dev, and `systems` the folders
    of other systems by role. Options that are defaults of the bundle are left out.
    """
    values, search = decode.values, registry.searches()[decode.search]
    defaults = bundle.defaults(description, search)
    words = ["--search", search.name] if search.name != description.defaults.get("search") else []
    kind = type(values)
    roles = kind.roles()
    for name, role in roles.items():
        system = getattr(values, name)
        if system != defaults.get(name):
            words += [option(name), systems[role] if system else "none"]
    defaults = bundle.defaults(description, search, [name for name in roles if getattr(values, name) is None])
    for name in kind.model_fields:
        value, default = getattr(values, name), defaults.get(name, kind.default(name))
        if name not in roles and value != default:
            words += option_words(name, value)
    owners = registry.members().owners
    families = [network.family for network in description.models.values()]
    asked = [owners.get(("search", search.name)), *(owners.get(("family", family)) for family in families)]
    modules = [plugin.module for plugin in description.plugins] + [owner.module for owner in asked if owner]
    if modules:
        words += ["--plugins", *dict.fromkeys(modules)]
    words += place_words(decode.engine, decode.compute_type, device, precision)
    return shlex.join(["continuum", "translate", "--bundle", folder, *words])


def place_words(
    engine: str | None, compute_type: str | None, device: str = "auto", precision: str = "auto"
) -> list[str]:
    """The options of `continuum translate` that compute as a decode of this engine and compute type does."""
    device, precision, mode = placement(engine, compute_type, device, precision)
    # CPUs compute in float32 by default.
    precision = "auto" if (device, precision) == ("cpu", "float32") else precision
    places = {"--device": device, "--precision": precision, "--engine": mode}
    return [word for name, value in places.items() if value != "auto" for word in (name, value)]


def option_words(name: str, value: Any) -> list[str]:
    """The words of `continuum translate` that give a setting of a search this value."""
    if isinstance(value, bool):
        return [option(name if value else f"no_{name}")]
    text = "none" if value is None else str(value)
    # A number such as -1e-05 would be read as an option.
    return [f"{option(name)}={text}"] if text.startswith("-") else [option(name), text]
