"""Pairs with a side in another language."""

from __future__ import annotations

from pydantic import Field

from workflow_src.config.languages import two_letters
from workflow_src.spec import Filter, Frozen

# Languages of the model of py3langid, which takes a second to load.
LANGUAGES = frozenset(
    (
        "ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo "
        "fr fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km "
        "kn ko ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm pl ps pt "
        "qu ro ru rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa "
        "wuu xh yo yue zh zu zxx"
    ).split()
)
# Codes of the model that differ from ISO 639-1.
CODES = {"nb": "no"}


def model_code(language: str) -> str:
    """The model's code of a language, or the language's own where the model does not know it."""
    code = two_letters(language)
    return language if language in LANGUAGES else CODES.get(code, code)


class Settings(Frozen):
    min_ratio: float = Field(
        0.1, gt=0, lt=1, description="of the probability of a side's language to that of the most probable one"
    )
    min_letters: int = Field(15, ge=0, description="sides with fewer, tags left out, are kept: too little to tell by")
    others: tuple[str, ...] | None = Field(
        None, description="languages that both are compared with; default: each other, and those near to the two"
    )


def conflict(settings: Settings, languages: tuple[str, str]) -> str | None:
    codes = [*zip(("source", "target"), languages, strict=True), *(("others", code) for code in settings.others or ())]
    for place, code in codes:
        if model_code(code) not in LANGUAGES:
            return f"does not know {place} {code} (py3langid)"
    return None


FILTER = Filter(
    name="language",
    title="Language",
    settings=Settings,
    check="workflow_src.data.filters.language.filter:check",
    each_side=True,
    conflict=conflict,
)
