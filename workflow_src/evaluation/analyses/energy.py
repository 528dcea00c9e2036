"""Energies of rows of the main table, which the report reads from whichever analysis measured them. No torch here.

An analysis whose content is a `RowEnergies` fills columns of the main table and cells of grids.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.plan.grids import GridCell
from workflow_src.evaluation.analyses.content import Content, Record


class Energy(Record):
    """-log p(y|x) in nats, means over the `sentences` of which all outputs could be scored; None where none could.

    `unscored` sentences of these outputs could not be scored.
    """

    sentences: int
    unscored: int
    per_sentence: float | None
    error: float | None
    per_token: float | None


class ScoredOutputs(Energy):
    """Energy under the first scorer, and in `others` under each other one."""

    others: dict[str, Energy] = Field({})


class ScoredRow(ScoredOutputs):
    """Energy of one row's outputs."""

    system: str
    name: str
    seed: int
    repetitions_removed: Removal


class AtReferenceLengths(ScoredOutputs):
    """Energy and BLEU of a decode's outputs at the references' lengths."""

    system: str
    name: str
    repetitions_removed: Removal
    # By the names of the metrics that are conventions of the main one.
    bleu: dict[str, float | None]


class RowEnergies(Content):
    """Energies of the references and of every row; `scorer` is the first system that scores."""

    scorer: str
    reference: ScoredOutputs
    rows: tuple[ScoredRow, ...]
    at_reference_lengths: tuple[AtReferenceLengths, ...] = ()

    def by_scorer(self, outputs: ScoredOutputs) -> dict[str, Energy]:
        """Energies of these outputs by the names of the scorers, the first one first."""
        return {self.scorer: outputs, **outputs.others}

    def scorer_of(self, cell: GridCell) -> str:
        """The scorer whose energy a cell of a grid shows."""
        return next((name for name in cell.scorers if name in self.by_scorer(self.reference)), self.scorer)


def row_energies(contents: Iterable[Content], split: str) -> RowEnergies | None:
    """The energies of rows on a split among the analyses of a report, if any."""
    return next((content for content in contents if isinstance(content, RowEnergies) and content.split == split), None)


def energy_words(scorers: str) -> str:
    """The sentence of captions that defines energy."""
    return (
        f"Energy is −log p(y|x) of what a row puts out, in nats under {scorers}, the mean over sentences and "
        "over tokens (end symbols counted), of the sentences that can be scored in every row."
    )


def unmatched(energies: RowEnergies | None, expected: dict[str, float]) -> dict[str, float]:
    """Published figures at the references' lengths of rows that were not measured there, each by a label."""
    measured = {f"{row.system}/{row.name}" for row in (energies.at_reference_lengths if energies else ())}
    return {f"{key} (at the references' lengths)": value for key, value in expected.items() if key not in measured}
