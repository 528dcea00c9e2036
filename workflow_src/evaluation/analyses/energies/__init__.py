"""Mean -log p(y|x) of every row's outputs under one system or several, as in Tu et al. 2020 (Tables 2 and 5)."""

from typing import Annotated, Any

from pydantic import Field, field_validator

from workflow_src.config.base import distinct
from workflow_src.config.plan.selection import at_reference_lengths, main_split, rows, scoring
from workflow_src.config.resolved import Loaded
from workflow_src.errors import ConfigError
from workflow_src.spec import SCORER, Analysis, AnalysisSettings, Figure, FigureTable, Key, Selection, Use
from workflow_src.spec.analyses import Enabled

WHERE = "analyses.energies"


class EnergiesSettings(AnalysisSettings):
    enabled: Enabled = False
    scorer: Annotated[str | tuple[str, ...] | None, Use.SYSTEMS] = Field(
        None,
        description="systems that score outputs, the first that of the main table; default: the first autoregressive "
        "one, else the first",
    )
    reference_lengths: Annotated[bool, Use.SELECTS] = Field(
        False, description="also energy and BLEU of outputs of searches at the references' lengths"
    )
    batch: Annotated[int, Use.LIMIT] = Field(64, gt=0, description="sentences decoded or scored together")

    @field_validator("scorer")
    @classmethod
    def _different_scorers(cls, value: Any) -> Any:
        if isinstance(value, tuple):
            if not value:
                raise ConfigError("", allowed="one system or more")
            distinct(value)
        return value


def names(scorer: str | tuple[str, ...] | list[str] | None) -> tuple[str, ...]:
    """Names of the systems that score: one, several, or none."""
    return (scorer,) if isinstance(scorer, str) else tuple(scorer or ())


def select(settings: EnergiesSettings, loaded: Loaded) -> Selection:
    """The systems that score, and every row of the main table as it is scored there.

    With `reference_lengths` also the searches whose outputs at the references' lengths are measured. Raises ConfigError
    where there are none, and for a system that does not score.
    """
    scorers = scoring_systems(settings, loaded)
    if not scorers:
        return Selection(entries={"scorer": None, "rows": []})
    table_rows, searches, length_entries = rows(loaded), [], {}
    if settings.reference_lengths:
        searches = at_reference_lengths(loaded)
        if not searches and settings.enabled is True:
            problem = f"no decode of {main_split(loaded)} translates at given lengths"
            raise ConfigError(f"{WHERE}.reference_lengths", True, problem=problem, hint="add one, or remove it")
    if searches:
        # Outputs at given lengths are read off no alignment.
        removal, tokeniser = scoring(loaded).values()
        searches = [search | {"repetitions_removed": removal} for search in searches]
        length_entries = {"searches": searches, "bleu_tokeniser": tokeniser}
    systems = dict.fromkeys([*(search["system"] for search in searches), *(scorers if table_rows else ())])
    entries = {"scorer": list(scorers), "rows": table_rows} | length_entries
    return Selection(tuple(systems), tuple(row["details"] for row in table_rows), entries)


def scoring_systems(settings: EnergiesSettings, loaded: Loaded) -> tuple[str, ...]:
    """The systems that the settings name, or the first that fits; none where it is off. Raises ConfigError."""
    if not settings.enabled:
        return ()
    # The first of each kind: sorting keeps the order of the configuration.
    ranked = sorted(loaded.systems.values(), key=lambda s: not s.family.autoregressive)
    # Systems made elsewhere score texts, in subwords of their own; reversed ones score sources.
    fits = [s.name for s in ranked if SCORER in s.traits and not s.family.imported and not s.reversed]
    listed = names(settings.scorer)
    if not listed and not fits and settings.enabled == "auto":
        return ()
    if not listed and not fits:
        raise ConfigError(WHERE, problem="no system of the experiment scores outputs", hint="add one, or remove it")
    for name in listed:
        if name not in loaded.systems:
            raise ConfigError(f"{WHERE}.scorer", name, allowed=loaded.systems)
        if name not in fits:
            problem = f"family {loaded.systems[name].family.name} scores no outputs"
            raise ConfigError(f"{WHERE}.scorer", name, problem=problem, allowed=fits)
    return listed or (fits[0],)


# The first scorer's of each row stand in the main table. Null where none of the outputs can be scored.
FIGURES = (
    Figure("energy_per_sentence", "energy, nats a sentence", error="error", optional=True, column="energy, nats"),
    Figure("energy_per_token", "a token", digits=2, optional=True, column="a token"),
    Figure("sentences", "of sentences", digits=0),
    Figure("unscored", "not scored", digits=0),
)
ENERGY = (
    "Energy is −log p(y|x) of what a row puts out, in nats under {scorer}, the mean over sentences and over tokens "
    "(end symbols counted), of the sentences that can be scored in every row."
)
TABLE = FigureTable(
    FIGURES,
    line="Energies of the references and of every row of the main table, on {split}.",
    notes={
        "Energy": ENERGY,
        "±": "Standard error over sentences.",
        "Outputs": "Those that the main table scores.",
        "Not scored": "Sentences whose output is longer than the scorer's positions or impossible for it. Means of all "
        "rows leave them out.",
    },
    keys=(Key("scorer", "under", varying=True),),
    column_notes=("Energy",),
)
AT_REFERENCE_LENGTHS = FigureTable(
    FIGURES,
    line="BLEU on {split}, and energies, of what searches put out at the lengths of the references.",
    notes={
        "Lengths": "No system knows those of the references: rows of the main table are at lengths of their own.",
        "Repetitions": "{removed}",
        "Seeds": "Systems are those of the first seed.",
        "Published": "{published}",
    },
    key="at_reference_lengths",
    title="At the references’ lengths",
    keys=(Key("scorer", "under", varying=True),),
    at_reference_lengths=True,
)
ANALYSIS = Analysis(
    name="energies",
    title="Energies",
    settings=EnergiesSettings,
    select=select,
    needs="it scores the translations of a decode",
    measure="workflow_src.evaluation.analyses.energies.measure:measure",
    tables=(TABLE, AT_REFERENCE_LENGTHS),
    message="Measuring energies of every row's outputs",
    # Rows may differ by less than bfloat16 resolves.
    float32=True,
    order=4,
)
