"""sacreBLEU's metrics: BLEU, the main one, and two conventions of papers; chrF, chrF++; TER (Snover et al. 2006)."""

from pydantic import Field

from workflow_src.spec import Convention, Frozen, Metric, spaced_words_only

MEASURE = "workflow_src.evaluation.metrics.sacre.measure"


class ChrfSettings(Frozen):
    char_order: int = Field(6, ge=1, description="longest n-grams of characters")
    word_order: int = Field(0, ge=0, description="longest n-grams of words; 2: chrF++")
    beta: int = Field(2, ge=1, description="recall counts so many times as much as precision")
    lowercase: bool = False


class ChrfPlusPlusSettings(ChrfSettings):
    word_order: int = Field(2, ge=1, description="longest n-grams of words")


class TerSettings(Frozen):
    case_sensitive: bool = False
    normalized: bool = Field(False, description="split punctuation off")
    no_punct: bool = Field(False, description="leave punctuation out")
    asian_support: bool = Field(False, description="treat Chinese and Japanese characters as words, where normalized")


METRICS = (
    Metric(
        name="bleu",
        title="BLEU",
        segments=f"{MEASURE}:bleu_segments",
        score=f"{MEASURE}:bleu",
        references="all",
        bounds=(0, 100),
        default=True,
        order=0,
        decides=True,
        least=5.0,
        about="sacreBLEU's",
        convention=Convention("sacrebleu", "sacreBLEU", "sacreBLEU"),
        leaderboard=True,
    ),
    Metric(
        name="bleu_tokenised",
        title="tokenised BLEU",
        score=f"{MEASURE}:tokenised_bleu",
        references="all",
        bounds=(0, 100),
        conflict=spaced_words_only,
        default=True,
        order=10,
        uncertainty=False,
        convention=Convention("tokenised", "tokenised", "cased BLEU over the tokens of Moses"),
    ),
    Metric(
        name="bleu_intl_lowercase",
        title="lowercase BLEU",
        score=f"{MEASURE}:international_lowercase_bleu",
        references="all",
        bounds=(0, 100),
        conflict=spaced_words_only,
        default=True,
        order=20,
        uncertainty=False,
        convention=Convention(
            "intl-lowercase", "international, lowercase", "BLEU over sacreBLEU's international tokens without case"
        ),
    ),
    Metric(
        name="chrf",
        title="chrF",
        segments=f"{MEASURE}:chrf_segments",
        score=f"{MEASURE}:chrf",
        settings=ChrfSettings,
        references="all",
        bounds=(0, 100),
        default=True,
        order=30,
        uncertainty=False,
        about="sacreBLEU's",
        leaderboard=True,
    ),
    Metric(
        name="chrf++",
        title="chrF++",
        segments=f"{MEASURE}:chrf_segments",
        score=f"{MEASURE}:chrf",
        settings=ChrfPlusPlusSettings,
        references="all",
        bounds=(0, 100),
        order=40,
        about="sacreBLEU's",
    ),
    Metric(
        name="ter",
        title="TER",
        segments=f"{MEASURE}:ter_segments",
        score=f"{MEASURE}:ter",
        settings=TerSettings,
        better="lower",
        references="all",
        bounds=(0, None),
        order=50,
        about="sacreBLEU's, less is better",
    ),
)
