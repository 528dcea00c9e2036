"""Spans such as tags and `%1` that translations keep, with and without `recipe.placeholders`.

Of the test set, and of 200 of its lines without any span, in which spans are planted; tests/experiments/ has the runs.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from workflow_src import Translator
from workflow_src.data.placeholders import Placeholders

PLANTED = (
    *("%1", "%2", "%s", "{name}", "${path}", "&amp;", "<b>", "</i>", "<br/>"),
    *("http://kde.org/a?b=%20c", "https://docs.kde.org/", "www.opensuse.org", "bug@kde.org"),
)


def planted(lines: list[str], count: int, seed: int = 1) -> list[tuple[str, list[str]]]:
    """`count` lines without spans, each with one to three distinct spans between its words."""
    draw, placeholders = random.Random(seed), Placeholders()
    candidates = [line for line in lines if 3 <= len(line.split()) <= 20 and not placeholders.spans(line)]
    pairs = []
    for line in draw.sample(candidates, count):
        words, spans = line.split(), draw.sample(PLANTED, draw.randrange(1, 4))
        for span in spans:
            words.insert(draw.randrange(len(words) + 1), span)
        pairs.append((" ".join(words), spans))
    return pairs


def count_kept(sources: list[tuple[str, list[str]]], translations: list[str]) -> tuple[int, int]:
    """How many spans of the sources their translations have as they are, and how many there are."""
    pairs = zip(sources, translations, strict=True)
    is_kept = [span in text for (_, spans), text in pairs for span in dict.fromkeys(spans)]
    return sum(is_kept), len(is_kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--off", default="placeholders-off")
    parser.add_argument("--on", default="placeholders-on")
    parser.add_argument("--system", default="teacher")
    arguments = parser.parse_args()
    lines = (arguments.results / arguments.off / "corpus/test.tr").read_text(encoding="utf-8").splitlines()
    placeholders = Placeholders()
    texts = {
        "test": [(line, spans) for line in lines if (spans := placeholders.spans(line))],
        "planted": planted(lines, 200),
    }
    for name in (arguments.off, arguments.on):
        translator = Translator.load(arguments.results / name / f"bundles/{arguments.system}/seed-1", "cpu", threads=1)
        for text, sources in texts.items():
            translations = translator.translate([line for line, _ in sources], normalised=True)
            count, total = count_kept(sources, translations)
            print(f"{name}, {text}: {count} of {total} spans in {len(sources)} lines, {100 * count / total:.1f} %")


if __name__ == "__main__":
    main()
