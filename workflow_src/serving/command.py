"""`continuum translate`: lines of standard input or a file, translated with an exported bundle."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workflow_src.config.experiment import REMOVALS
from workflow_src.config.families import LATENT_SEARCH, REFINEMENTS, SEARCHES_OF_SETTING
from workflow_src.data.lines import read_lines
from workflow_src.records.atomic import atomic
from workflow_src.serving.translator import Translator

# Options that belong to some searches only.
OPTIONS = {"steps": (*REFINEMENTS, LATENT_SEARCH), "beam": ("beam",)} | {
    name: searches for name, searches in SEARCHES_OF_SETTING.items() if name != "max_length_ratio"
}


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"it is {number} and must be 1 or more")
    return number


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="continuum translate", description="Translate lines of standard input with an exported system."
    )
    made.add_argument("--bundle", required=True, help="folder that export_bundle made")
    made.add_argument("--search", help="default: the bundle's own")
    made.add_argument("--steps", type=int, help="refinement steps (delta, score, energy)")
    made.add_argument("--beam", type=int, help="hypotheses a sentence (beam)")
    made.add_argument(
        "--length-penalty", type=float, help="exponent of the length that scores are divided by (beam); default 1"
    )
    made.add_argument("--step-size", type=float, help="of refinement; default 1")
    made.add_argument("--length-quantile", type=float, help="of the predicted lengths; default: the most probable")
    made.add_argument(
        "--lengthening", type=float, help="times the source's subwords is added to the lengths; default 0"
    )
    made.add_argument("--stop-threshold", type=float, help="a sentence stops after a step shorter than this")
    made.add_argument("--lengths", type=int, help="target lengths tried (latent-search); default 5")
    made.add_argument("--samples", type=int, help="samples of z for each length (latent-search); default 5")
    made.add_argument(
        "--mean-first", action="store_const", const=True, help="the first sample is the prior mean (latent-search)"
    )
    made.add_argument("--search-seed", type=int, help="of the samples (latent-search); default 1")
    made.add_argument("--rescorer", help="bundle of an autoregressive system that ranks candidates (latent-search)")
    made.add_argument("--remove-repetitions", choices=REMOVALS,
                      help="what follows itself: default subwords, in autoregressive searches none")  # fmt: skip
    made.add_argument("--batch", type=int, default=64, help="sentences translated together")
    made.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    made.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16", "int8", "float16"),
                      help="int8 and float16: of a CTranslate2 folder")  # fmt: skip
    made.add_argument("--threads", type=_positive, help="CPU threads")
    made.add_argument("--engine", default="auto", help="auto, eager, fast or fast-int8")
    made.add_argument("--input", type=Path, help="a file instead of standard input")
    made.add_argument("--output", type=Path, help="a file instead of standard output; appears when it is whole")
    return made


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _told(given: argparse.Namespace, translator: Translator) -> dict[str, Any]:
    """The settings that the user gave. Raises ValueError for one that the search does not take."""
    if given.engine != "auto" and translator.description.get("engine") == "ctranslate2":
        raise ValueError(
            f"--engine {given.engine} is for bundles, and {given.bundle} is a CTranslate2 folder; remove it."
        )
    told = {name: getattr(given, name) for name in OPTIONS if getattr(given, name) is not None}
    search = translator.settings(given.search, given.steps, given.beam)["search"]
    for name in told:
        if search not in OPTIONS[name]:
            option = "--" + name.replace("_", "-")
            raise ValueError(
                f"{option} belongs to {', '.join(OPTIONS[name])}, and the search is {search}; remove one of the two."
            )
    told.pop("rescorer", None)
    return told | {"search": search, "batch": given.batch}


def _translated(given: argparse.Namespace) -> Iterator[str]:
    translator = Translator.load(given.bundle, given.device, given.precision, given.threads, given.engine)
    settings = _told(given, translator)
    if given.rescorer:
        settings["rescorer"] = Translator.load(given.rescorer, given.device, given.precision, given.threads)
    # Wrong settings are told even when there is nothing to translate.
    translator.search([], **settings)
    done = 0
    # Sorting by length works within a chunk, so chunks are much larger than batches.
    for chunk in _chunks(read_lines(given.input or "/dev/stdin"), 64 * max(1, given.batch)):
        yield from translator.translate(
            chunk, remove_repetitions=given.remove_repetitions, **settings, first_line=done + 1
        )
        done += len(chunk)


def main(words: list[str] | None = None) -> None:
    """The command: exit code 0, or 1 with one sentence on standard error."""
    given = _parser().parse_args(words)
    try:
        if given.output:
            with atomic(given.output) as file:
                file.writelines(f"{line}\n" for line in _translated(given))
        else:
            # The same bytes whatever the terminal's own encoding is.
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
            for line in _translated(given):
                print(line)
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has had enough (`| head`): no error, and nothing more to write at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
