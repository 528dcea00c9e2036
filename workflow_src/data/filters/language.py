"""Leaves out pairs with a side that is most likely in another language, by the model of py3langid."""

from __future__ import annotations

import re

from pydantic import Field

from workflow_src.config.languages import two_letters
from workflow_src.data.characters import each, letters
from workflow_src.data.patterns import TAG
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict

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


# Languages that share words with English and are common on the web.
LIKE_ENGLISH = "de nl fr es it pt"
# Languages that are taken for each other, and English, which stands in texts of all.
NEAR = (
    "en de nl da sv no nn is af lb fy",
    "en fr es it pt ro ca gl oc la eo",
    "en cs sk pl sl hr bs sr hu",
    "en ru uk be bg mk sr kk ky mn",
    "en tr az uz tk tt ku",
    "en ar fa ur ps ug he",
    "en hi mr ne bn gu pa ta te",
    "en zh ja ko",
    "en fi et lv lt hu",
    "en id ms tl jv vi",
    "en el hy ka sq",
    "en ga cy br eu mt",
    "en th lo km my",
    "en sw zu xh rw af",
)
# Groups of languages with indistinguishable sentences: none is compared with others of its group.
ALIKE = ("no nn", "hr bs sr", "id ms")


def compared_with(language: str) -> set[str]:
    """The language itself, English, and near languages that a model can distinguish from it."""
    if language == "en":
        return {"en", *LIKE_ENGLISH.split()}
    near, alike = ([set(group.split()) for group in groups] for groups in (NEAR, ALIKE))
    languages = {"en"}.union(*(group for group in near if language in group))
    return languages.difference(*(group for group in alike if language in group)) | {language}


def check(settings: Settings, languages: tuple[str, str]) -> Check:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    codes, tag = tuple(map(model_code, languages)), re.compile(TAG)
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    near = compared_with(codes[0]) | compared_with(codes[1])
    others = near & LANGUAGES if settings.others is None else set(map(model_code, settings.others))
    identifier.set_languages(others | set(codes))
    least, shortest = settings.min_ratio, settings.min_letters

    def foreign(text: str, language: str) -> str | None:
        """The language that a text is in, where it is another."""
        # Markup is in no language.
        text = tag.sub(" ", text) if "<" in text else text
        if letters(text) < shortest:
            return None
        best, probability = identifier.classify(text)
        if best == language:
            return None
        return best if dict(identifier.rank(text))[language] < least * probability else None

    def judge(pair: Pair) -> Verdict:
        if other := foreign(pair.source, codes[0]):
            return f"min_ratio: the source looks like {other}"
        if other := foreign(pair.target, codes[1]):
            return f"min_ratio: the target looks like {other}"
        return None

    return each(judge)


FILTER = Filter(name="language", title="Language", settings=Settings, check=check, each_side=True, conflict=conflict)
