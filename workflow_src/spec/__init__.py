# ruff: noqa: F401
"""Declarations: families, searches, engines, metrics, analyses, filters, generators; the roles between systems.

Configuration, names of files, command-line options, choices on dev, costs, labels and looks of a member all follow from
its declaration. Code is named as "module:object" and is imported inside of jobs only, so that planning needs no torch.
Standard library and pydantic only.
"""

from workflow_src.spec.analyses import Analysis, AnalysisSettings, Figure, FigureTable, Key, Selection, Use
from workflow_src.spec.filters import CAUSE, SCORES, Check, Filter, Pair, Verdict
from workflow_src.spec.generators import Generator
from workflow_src.spec.members import ROWS, Engine, Export, Family, Look, Plugin, Role, Search, Sizes, single
from workflow_src.spec.metrics import (
    Computed,
    Convention,
    Corpus,
    Metric,
    NoSettings,
    Program,
    Score,
    Segments,
    Texts,
    sentence_key,
    spaced_words_only,
)
from workflow_src.spec.sections import (
    DEFAULTS_NUMBERS,
    NONE,
    UNKNOWN,
    Frozen,
    changed,
    compared,
    config_error,
    defaults,
    parse,
    settings_json,
)
from workflow_src.spec.settings import Option, SearchSettings, check_beams
from workflow_src.spec.traits import (
    ALIGNED,
    AUTOREGRESSIVE,
    BASE,
    BOS,
    BOUND,
    EOS,
    GOES_WITH,
    GRAPH,
    ITERATIVE,
    LANGUAGE_MODEL,
    LATENT,
    LATENT_LENGTHS,
    LENGTHS,
    MASKED,
    MODEL,
    PAD,
    PARALLEL,
    PHRASES,
    REFINER,
    REPETITIONS,
    SCORER,
    SOURCE_LATENT,
    TARGET_LATENT,
    UNK,
    VECTOR_FIELD,
    phrase,
)
