"""`continuum translate --interactive`: a line in, its translation with alternatives and steps out."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import re
import sys
from collections.abc import Iterator

from workflow_src import registry
from workflow_src.engines.session import Request
from workflow_src.errors import InputError
from workflow_src.serving.sentences import split_lines, whole_lines
from workflow_src.serving.translations import Translation
from workflow_src.serving.translator import Translator

PROMPT = "> "
# How Python holds a byte that is not UTF-8.
BYTE = re.compile("[\udc80-\udcff]")


def typed_lines() -> Iterator[str]:
    """Lines of standard input until its end, without empty ones; with a prompt and editing on a terminal alone.

    Raises InputError where standard input is closed.
    """
    if sys.stdin is None:
        raise InputError("standard input", "is closed", "give lines to translate")
    for stream in (sys.stdin, sys.stdout):
        # As without --interactive, text is UTF-8, and LF alone ends a line. Bytes that are no UTF-8 become an error of
        # their line.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    on_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    lines = _prompted_lines() if on_terminal else (line.removesuffix("\n").removesuffix("\r") for line in sys.stdin)
    yield from (line for line in lines if line.strip())


def _prompted_lines() -> Iterator[str]:
    with contextlib.suppress(ImportError):
        # Gives `input` keys to edit a line and to recall earlier ones; these are kept in memory alone.
        import readline  # noqa: F401
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print()
            return


def answer(translator: Translator, line: str, request: Request) -> Iterator[str]:
    """The translation of a line; then, indented, hypotheses with scores, characters outside of the vocabulary, and the
    output of each sentence after every step of a search that refines.

    Raises InputError for a line that cannot be translated.
    """
    if escaped := BYTE.search(line):
        byte = ord(escaped[0]) - 0xDC00
        raise InputError("the line", f"is not UTF-8: it has the byte {byte:#x}", "type it as UTF-8")
    (translation,) = translator.translations([line], request)
    yield translation.text
    yield from _hypotheses(translation)
    if translation.unknown:
        unknown = dict.fromkeys(translation.unknown)
        words = (f"{character} (lost)" if character in translation.lost else character for character in unknown)
        yield f"  outside of the vocabulary: {', '.join(words)}"
    declared = registry.search_of(request.settings)
    if not declared.traceable:
        return
    parts = split_lines([line], translator.description.languages.source) if request.splits else whole_lines([line])
    texts = [part.text for part in parts]
    if max(translator.lengths(texts, request)) > translator.longest_part(request):
        yield "  no steps: the sentence is too long to be translated as a whole"
        return
    removal = request.remove_repetitions or translator.removal(request.settings)
    request_of_steps = dataclasses.replace(request, remove_repetitions=removal)
    for outputs in translator.trace(texts, request_of_steps):
        for step, text in enumerate(outputs, declared.first_value):
            yield f"  step {step}  {text}"


def _hypotheses(translation: Translation) -> Iterator[str]:
    for number, hypothesis in enumerate(translation.hypotheses, 1):
        score = f"{hypothesis.score:.4f}" if math.isfinite(hypothesis.score) else "no score"
        yield f"  {number}  {score}  {hypothesis.text}"
