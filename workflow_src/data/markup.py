"""Texts inside markup: IWSLT's lines of tags, and the segments of SGML and XML test sets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from workflow_src.config.languages import is_in
from workflow_src.data.characters import without_html_entities
from workflow_src.data.rows import folded
from workflow_src.errors import ArtifactError

Pair = tuple[str, str]
# ((the id of its document, that of the segment), each None where there is none; its text on one line)
Segment = tuple[tuple[str | None, str | None], str]

# Elements of IWSLT's train.tags files that describe a talk and are no part of its text.
METADATA = "url|keywords|speaker|talkid|title|description|reviewer|translator"
ONLY_TAGS = re.compile(r"(?:\s*<(?:/?[A-Za-z]|[?!])[^<>]*>)+\s*")
ELEMENT = re.compile(rf"\s*<({METADATA})\b[^<>]*>.*</\1\s*>\s*", re.IGNORECASE)

# No attribute holds a <, so that text with many tags that do not end is read in one pass.
TAG = re.compile(r"<(/?)(doc|seg)\b([^<>]*?)(/?)>", re.IGNORECASE)
DOCUMENT_ID = re.compile(r"\b(?:doc)?id\s*=\s*[\"']?([^\s\"'>]+)", re.IGNORECASE)
SEGMENT_ID = re.compile(r"\bid\s*=\s*[\"']?([^\s\"'>]+)", re.IGNORECASE)
SET = re.compile(r"<(src|ref|tst)set\b", re.IGNORECASE)
# WMT's form from 2021 on: every document has the source, references and outputs, each in an element of its own.
SOURCE = re.compile(r"<src[\s>]")


def is_markup(line: str) -> bool:
    """True for a line of tags alone, or of one whole element of METADATA."""
    return ONLY_TAGS.fullmatch(line) is not None or ELEMENT.fullmatch(line) is not None


def without_markup(
    numbered: Iterable[tuple[int, Pair]], first: str, second: str, dropped: Counter[str]
) -> Iterator[tuple[int, Pair]]:
    """The numbered pairs of lines of two texts, without lines of markup, which are counted in `dropped`.

    Raises ArtifactError naming both texts and the line where only one side is markup.
    """
    for number, pair in numbered:
        left, right = map(is_markup, pair)
        if left != right:
            tagged, other = (first, second) if left else (second, first)
            problem = f"and {second} are not aligned in line {number}: it is markup in {tagged} and text in {other}"
            raise ArtifactError(first, problem, "correct the texts, which need markup in the same lines")
        if left:
            dropped["markup"] += 1
        else:
            yield number, pair


def has_source_and_references(text: str) -> bool:
    """True for XML of WMT's form from 2021 on, which holds the texts of several languages."""
    return SOURCE.search(text) is not None


def segments(text: str, name: str, languages: tuple[str, str], translator: str | None = None) -> list[Segment]:
    """The segments of SGML or XML, entities resolved; empty ones stay.

    Of XML that has source and references in one file, those in the first of `languages`, which are those of the
    direction; `translator` chooses one of several, and has no effect on other texts. Raises ArtifactError naming the
    file where this is not clear or the file is not well formed.
    """
    if has_source_and_references(text):
        return _xml_segments(text, name, languages, translator)
    sets = [f"{kind.lower()}set" for kind in SET.findall(text)]
    if len(sets) > 1:
        raise ArtifactError(name, f"has several sets ({', '.join(sets)})", "give a file with one of them")
    segments_read = _sgml_segments(text, name)
    if not segments_read:
        raise ArtifactError(name, "has no <seg> elements", "check the file, or remove markup from its part")
    return segments_read


def _sgml_segments(text: str, name: str) -> list[Segment]:
    """The segments of SGML, each with the id of the document that it stands in.

    Raises ArtifactError for a segment that does not end before the next one or the end of its document.
    """
    pairs: list[Segment] = []
    document_id = None
    # The tag of the segment that is read.
    begun: re.Match[str] | None = None
    for tag in TAG.finditer(text):
        ends, kind, attributes, empty = tag.groups()
        is_segment = kind.lower() == "seg"
        if begun is not None and not (is_segment and ends):
            raise _endless(begun, name)
        if is_segment and ends and begun is not None:
            content = folded(without_html_entities(text[begun.end() : tag.start()]))
            pairs.append(((document_id, _id(SEGMENT_ID, begun[3])), content))
            begun = None
        elif is_segment and empty:
            pairs.append(((document_id, _id(SEGMENT_ID, attributes)), ""))
        elif is_segment and not ends:
            begun = tag
        elif not is_segment and not ends:
            document_id = _id(DOCUMENT_ID, attributes)
    if begun is not None:
        raise _endless(begun, name)
    return pairs


def _id(pattern: re.Pattern[str], attributes: str) -> str | None:
    match = pattern.search(attributes)
    return match[1] if match else None


def _endless(tag: re.Match[str], name: str) -> ArtifactError:
    line = tag.string.count("\n", 0, tag.start()) + 1
    return ArtifactError(name, "has a <seg> without </seg>", "correct the file", line=line)


def same_segments(pairs: Iterable[tuple[Segment, Segment]], first: str, second: str) -> Iterator[Pair]:
    """The texts of pairs of segments; ArtifactError naming both files and ids where the ids differ."""
    for number, ((left, source), (right, target)) in enumerate(pairs, 1):
        for element, left_id, right_id in zip(("document", "segment"), left, right, strict=True):
            if None not in (left_id, right_id) and left_id != right_id:
                raise ArtifactError(
                    first,
                    f'and {second} are not aligned in segment {number}: the id of its {element} is "{left_id}" in one '
                    f'and "{right_id}" in the other',
                    "correct the files",
                )
        yield source, target


def _xml_segments(text: str, name: str, languages: tuple[str, str], translator: str | None) -> list[Segment]:
    language = languages[0]
    documents = list(_parsed(text, name).iter("doc"))
    sources = {_language(element) for document in documents for element in document.iterfind("src")}
    are_sources = [is_in(code, *languages) for code in sources]
    if any(are_sources) and not all(are_sources):
        raise ArtifactError(
            name, f"has sources in several languages ({', '.join(sorted(sources))})", "give a file for one direction"
        )
    tag = "src"
    if not any(are_sources):
        tag, translator = "ref", _translator(documents, name, languages, translator, sources)
    chosen: list[Segment] = []
    for document in documents:
        place = f'document "{document.get("id")}" of {name}'
        source = _segments_by_id(_single(document.findall("src"), "source", place), place)
        if tag == "src":
            chosen += [((document.get("id"), number), content) for number, content in source.items()]
            continue
        references = [
            element
            for element in document.iterfind("ref")
            if is_in(_language(element), *languages) and element.get("translator", "") == translator
        ]
        label = f'reference in {language} by translator "{translator}"' if translator else f"reference in {language}"
        reference = _segments_by_id(_single(references, label, place), place)
        if list(reference) != list(source):
            odd = sorted(reference.keys() ^ source.keys()) or ["in another order"]
            raise ArtifactError(
                place, f"has different segments in its source and its {label}: {', '.join(odd)}", "correct the file"
            )
        chosen += [((document.get("id"), number), content) for number, content in reference.items()]
    return chosen


def _translator(
    documents: list[ElementTree.Element],
    name: str,
    languages: tuple[str, str],
    translator: str | None,
    sources: set[str],
) -> str:
    """The translator whose references in the first of `languages` are used; "" where the file names none."""
    language = languages[0]
    references = [element for document in documents for element in document.iterfind("ref")]
    fitting = [element for element in references if is_in(_language(element), *languages)]
    translators = sorted({element.get("translator", "") for element in fitting})
    if not translators:
        present = sorted(sources | {_language(element) for element in references})
        raise ArtifactError(name, f"has no source and no reference in {language}", f"it has {', '.join(present)}")
    if translator is None and len(translators) == 1:
        return translators[0]
    if translator not in translators:
        unknown = "" if translator is None else f", and none by {translator}"
        problem = f"has references in {language} by {', '.join(translators)}{unknown}"
        raise ArtifactError(name, problem, "choose one as translator of the part")
    return translator


def _parsed(text: str, name: str) -> ElementTree.Element:
    # Entities that a file declares can expand to gigabytes or read other files; test sets declare none.
    if "<!ENTITY" in text:
        raise ArtifactError(name, "is refused: it declares entities, which test sets do not need", "remove them")
    try:
        return ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as failure:
        raise ArtifactError(name, f"is not well-formed XML ({failure})", "correct the file") from None


def _language(element: ElementTree.Element) -> str:
    """The language of an element without its country: `cs` of `cs-CZ`."""
    return re.split("[-_]", element.get("lang", "unknown"))[0].lower()


def _single(elements: list[ElementTree.Element], label: str, place: str) -> ElementTree.Element:
    if len(elements) != 1:
        count = "no" if not elements else f"{len(elements)} elements for the"
        raise ArtifactError(place, f"has {count} {label}", "exactly one is needed")
    return elements[0]


def _segments_by_id(element: ElementTree.Element, place: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for segment in element.iter("seg"):
        identity = segment.get("id")
        if identity is None or identity in texts:
            which = "without id" if identity is None else f'"{identity}" twice'
            raise ArtifactError(place, f"has a segment {which}", "correct the file")
        texts[identity] = folded("".join(segment.itertext()))
    return texts
