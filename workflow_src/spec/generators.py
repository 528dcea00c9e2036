"""Declarations of generators, which compute a corpus."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from workflow_src.spec.fields import CHECKED, Code, EngineName, Title
from workflow_src.spec.sections import Frozen


@dataclass(frozen=True, config=CHECKED)
class Generator:
    """A corpus that is computed: datasets of kind generated name it as `generator.name`.

    title      of the corpus, in words
    languages  codes of the languages of the two sides
    settings   a class of its own; every setting has a default. Estimates read the numbers of pairs from settings that
               are called train, dev and test
    generate   reference of a function of these settings that gives pairs of sentences by split (train, dev, test), each
               sentence on one line; the same settings give the same pairs
    """

    name: EngineName
    title: Title
    languages: tuple[str, str]
    settings: type[Frozen]
    generate: Code
