"""Whether latents of source positions follow the word order of a translation (Gu & Kong 2021, Figure 6)."""

from typing import Annotated

from pydantic import Field

from workflow_src.config.plan.paths import Paths
from workflow_src.config.resolved import Loaded
from workflow_src.errors import ConfigError
from workflow_src.evaluation.content import Content, Record
from workflow_src.spec import (
    ALIGNED,
    SOURCE_LATENT,
    Analysis,
    AnalysisSettings,
    Figure,
    FigureTable,
    Key,
    Selection,
    Use,
)
from workflow_src.spec.analyses import Enabled


class ReorderingSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(200, gt=0, description="first sentences of test")
    system: Annotated[str | None, Use.SYSTEMS] = Field(
        None,
        description="whose translations are compared with the references; default: the first autoregressive system",
    )
    positions: int = Field(16, gt=1, description="longest source that is drawn, in subwords with the end symbol")


TABLE = FigureTable(
    (
        Figure("sentences", "sentences", digits=0),
        Figure("moved", "latents that move, %", factor=100),
        Figure("displacement", "moved by", digits=2),
        # Null where positions do not differ.
        Figure("relative_change", "change / spread", digits=2, optional=True),
        # Null where one of the two does not vary.
        Figure("correlation", "correlation", digits=2, signed=True, optional=True),
    ),
    line="Latents and word order, of the {compared:,} of {scope} whose two translations differ and share two words or "
    "more.",
    notes={
        "Moved by": "Positions, the mean.",
        "Change / spread": "Distance at the same position beside that at others.",
        "Correlation": "Of the distance moved and the share of pairs in the opposite order, over all sentences.",
    },
    keys=(Key("order", "word order"),),
)


class Alignment(Record):
    """The slots that hold each subword, of so many; None where the slots do not suffice."""

    slots: int = Field(gt=0)
    places: tuple[tuple[int, ...], ...] | None


class OrderPanel(Record):
    """Distances of the means of two translations, and the position that each of the first is assigned to.

    `alignments` are those of the two translations, where the system has any.
    """

    system: str
    distances: tuple[tuple[float, ...], ...]
    assigned: tuple[int, ...]
    alignments: tuple[Alignment, Alignment] | None = None


class OrderExample(Record):
    """Two translations of a sentence (its line's number, from 0); `order` is the share of pairs of words that differ.

    `pieces` are the source's subwords, `target_pieces` those of the two texts.
    """

    sentence: int
    order: float
    pieces: tuple[str, ...]
    texts: tuple[str, str]
    target_pieces: tuple[tuple[str, ...], tuple[str, ...]]
    panels: tuple[OrderPanel, ...] = Field(min_length=1)


class Translations(Record):
    """The decode whose translations stand beside the references."""

    system: str
    name: str


class Reordering(Content):
    """Latents and word order; `compared` are the sentences whose two translations differ."""

    compared: int
    translations: Translations
    example: OrderExample | None


def select(settings: ReorderingSettings, loaded: Loaded) -> Selection:
    """Systems whose latents are those of source positions, and the translations that stand beside the references.

    Raises ConfigError where these are not made.
    """
    where, system = "analyses.reordering", settings.system
    systems = [s for s in loaded.systems.values() if SOURCE_LATENT in s.traits]
    searches = [{"system": s.name, "aligned": ALIGNED in s.traits} for s in systems]
    if not (settings.enabled and searches):
        return Selection.of(rows=[])
    if system is not None and system not in loaded.systems:
        raise ConfigError(f"{where}.system", system, allowed=loaded.systems)
    test = loaded.test_sets[0]
    decodes = [decode for decode in loaded.decodes if test in decode.splits]
    fits = [
        decode
        for decode in decodes
        if (loaded.systems[decode.system].family.autoregressive if system is None else decode.system == system)
    ]
    if not fits and settings.enabled == "auto":
        return Selection.of(rows=[])
    if not fits:
        kind = f"system {system}" if system else "an autoregressive system"
        names = ", ".join(dict.fromkeys(decode.system for decode in decodes)) or "none"
        problem = f"no decode translates test by {kind}"
        hint = f"add one, or name a system that is decoded ({names})"
        raise ConfigError(f"{where}.system", system, problem=problem, hint=hint)
    decode = fits[0]
    details = Paths(loaded).translation_details(decode, loaded.config.seeds[0], test)
    return Selection.of(searches, rows=[{"system": decode.system, "name": decode.name, "details": details}])


ANALYSIS = Analysis(
    name="reordering",
    title="Latents and word order",
    settings=ReorderingSettings,
    select=select,
    needs="it looks at latents of source positions",
    measure="workflow_src.evaluation.analyses.reordering.measure:measure",
    tables=(TABLE,),
    content=Reordering,
    show="workflow_src.evaluation.analyses.reordering.show:show",
    split="test",
    message="Measuring how far posterior means follow another word order",
    # Means may differ by less than bfloat16 resolves.
    float32=True,
    order=9,
)
