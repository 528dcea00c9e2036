"""Translation memories (TMX 1.1 to 2.0): the units that have segments in two languages, one after another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from lxml import etree

from workflow_src.config.languages import is_in
from workflow_src.data.rows import RawPair, listed
from workflow_src.errors import ArtifactError

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Two characters that end one word, or a sentence, and begin another.
BETWEEN_WORDS = re.compile(r"^(?:[^\W\d_](?=[A-ZÀ-ÖØ-Þ])|[.!?:;,](?=[A-Za-zÀ-ÖØ-öø-ÿ0-9]))")
# Inline elements whose content is the code of a document's format, not text.
NATIVE_CODE = ("bpt", "ept", "it", "ph", "ut")
# From this line on, the library keeps the lines of texts alone.
FIRST_LONG_LINE = 65535
# What may break lines of a file; other spaces are part of the text.
SPACES = re.compile(r"[ \t\r\n]+")
# Bytes that are read at once.
CHUNK = 1 << 15


def units(
    stream: IO[bytes], name: str, languages: tuple[str, str], variants: Mapping[str, str], dropped: Counter[str]
) -> Iterator[tuple[RawPair, int]]:
    """The units of the translation memory `name` that have both languages, which may be the same one; and the number of
    inline elements that their texts, on one line each, lost.

    A segment is in a language where its xml:lang is a code of the language, alone or with a region or a script (de,
    de-AT, deu); a code of the other language is in that one alone. `variants` name the only xml:lang of a language that
    is read. Of several segments of a language in one unit, that with the code alone is taken, else the first; empty
    ones come last. Units without one of the languages and further segments are counted in `dropped`. Memory does not
    grow with the file; neither a DTD nor entities are read.

    Raises ArtifactError naming the file, and the line where it is no well-formed XML or a segment has an entity, and
    for a file without any unit in both languages.
    """
    codes: Counter[str] = Counter()
    unit_count, count = 0, 0
    choosers = [
        _chooser(language, other, variants.get(language))
        for language, other in dict.fromkeys([languages, languages[::-1]])
    ]
    for element in _elements(stream, name):
        unit_count += 1
        segments = [(_code(variant), variant) for variant in element.iterchildren("{*}tuv")]
        codes.update(code for code, _ in segments)
        chosen = [choose(segments) for choose in choosers]
        if not all(chosen):
            dropped["untranslated"] += 1
            continue
        if further := sum(len(fitting) - 1 for fitting in chosen):
            dropped["other_segment"] += further
        texts = [_text(fitting[0].find("{*}seg"), name) for fitting in chosen]
        count += 1
        pair = RawPair(texts[0][0], texts[-1][0], (name, name), _line(element))
        yield pair, sum(inline for _, inline in texts)
    if not unit_count:
        raise ArtifactError(name, "has no units (<tu>)", "check the file")
    if not count:
        present = [code or "none" for code, _ in codes.most_common()]
        wanted = " and ".join(variants.get(language, language) for language in dict.fromkeys(languages))
        fix = f"their xml:lang are {listed(present) or 'none'}: `variants` of the part may name one for each language"
        raise ArtifactError(name, f"has no unit with segments in {wanted}", fix)


def _elements(stream: IO[bytes], name: str) -> Iterator[Any]:
    """The <tu> elements of a file, each of which is removed before the next one is read."""
    parser = etree.XMLPullParser(
        events=("end",),
        tag="{*}tu",
        load_dtd=False,
        no_network=True,
        resolve_entities=False,
        collect_ids=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        while content := stream.read(CHUNK):
            parser.feed(content)
            for _, element in parser.read_events():
                yield element
                element.clear(keep_tail=False)
                while element.getprevious() is not None:
                    del element.getparent()[0]
            # An entity that nothing declares ends the text for the parser, but raises nothing here.
            if len(parser.feed_error_log.filter_from_fatals()):
                raise _malformed(parser, name)
        parser.close()
    except etree.XMLSyntaxError:
        raise _malformed(parser, name) from None


def _malformed(parser: etree.XMLPullParser, name: str) -> ArtifactError:
    """The first error of a parser; without any, its file is empty."""
    errors = parser.feed_error_log.filter_from_fatals()
    if not len(errors):
        return ArtifactError(name, "is empty", "check the file")
    message = " ".join(errors[0].message.split())
    return ArtifactError(name, f"is not well-formed XML ({message})", "correct the file", line=errors[0].line)


def _line(element: Any) -> int:
    """The line where an element begins, from 1."""
    line = element.sourceline
    if line < FIRST_LONG_LINE:
        return line
    # The library knows the line where the first text of an element so far down ends.
    return line - next(element.itertext(), "").count("\n")


def _code(variant: Any) -> str:
    """The xml:lang of a <tuv>; `lang` in TMX 1.1."""
    return str(variant.get(LANGUAGE) or variant.get("lang") or "").strip().casefold().replace("_", "-")


def _chooser(language: str, other: str, variant: str | None) -> Callable[[list[tuple[str, Any]]], list[Any]]:
    """A function of the segments of a unit with their codes: those in the language, the one to take first.

    `other` is the other language of the direction.
    """
    if variant is not None:
        only = variant.strip().casefold().replace("_", "-")
        return lambda segments: [segment for code, segment in segments if code == only]

    def choose(segments: list[tuple[str, Any]]) -> list[Any]:
        fitting = [(code, segment) for code, segment in segments if is_in(code.split("-")[0], language, other)]
        return [variant for _, variant in sorted(fitting, key=_later)]

    return choose


def _later(entry: tuple[str, Any]) -> tuple[bool, bool]:
    """A sorting key: segments with text first, then the code alone."""
    code, variant = entry
    segment = variant.find("{*}seg")
    return segment is None or not "".join(segment.itertext()).strip(), "-" in code


def _text(element: Any, name: str) -> tuple[str, int]:
    """The text of a <seg> on one line, without native code; and the number of inline elements in it."""
    if element is None:
        return "", 0
    pieces, inline = _pieces(element, name)
    return SPACES.sub(" ", "".join(pieces)).strip(" "), inline


def _pieces(element: Any, name: str) -> tuple[list[str], int]:
    pieces, inline = [element.text or ""], 0
    for child in element:
        if child.tag is etree.Entity:
            problem = f"has the entity {child.text}, which is not read"
            raise ArtifactError(name, problem, "write the character in its place", line=element.sourceline)
        inline += 1
        if etree.QName(child).localname not in NATIVE_CODE:
            inner, inner_count = _pieces(child, name)
            pieces += inner
            inline += inner_count
        elif etree.QName(child).localname == "ph" and BETWEEN_WORDS.search(
            next((piece[-1] for piece in reversed(pieces) if piece), "") + (child.tail or "")[:1]
        ):
            # A line break, or a picture.
            pieces.append(" ")
        pieces.append(child.tail or "")
    return pieces, inline
