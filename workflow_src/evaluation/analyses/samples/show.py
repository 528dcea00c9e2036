"""Translations of samples before and after refinement, with their differences marked."""

from __future__ import annotations

from workflow_src.evaluation.analyses.samples import Sample, Samples
from workflow_src.evaluation.document import Block, Example, Line, Paragraph, marked
from workflow_src.evaluation.manifest import Manifest, colour_class


def show(content: Samples, manifest: Manifest) -> list[Block]:
    search = content.search
    words = (
        f"Translations of one sample from the prior, and after refinement ({manifest.title(search.search)}, L = "
        f"{search.steps}): of {content.scope}, those in which refinement changes most words. What it takes away and "
        "what it puts in is marked."
    )
    style = colour_class(manifest.look(search.system, search.search).colour)
    return [Paragraph.of(words), *(Example(_lines(sample, style)) for sample in content.examples)]


def _lines(sample: Sample, style: str) -> tuple[Line, ...]:
    """Removed words are marked in the sample, added words in the refined text."""
    return (
        Line("source", sample.source, source=True),
        Line("reference", sample.reference),
        Line("sampled", sample.sampled, marked(sample.refined, sample.sampled), first=True),
        Line("refined", sample.refined, marked(sample.sampled, sample.refined), style=style),
    )
