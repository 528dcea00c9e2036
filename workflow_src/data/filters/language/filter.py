"""Leaves out pairs with a side that is most likely in another language, by the model of py3langid."""

from __future__ import annotations

import re
from collections.abc import Callable

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from workflow_src.data.filters.language import LANGUAGES, Settings, model_code
from workflow_src.data.texts import each, letters
from workflow_src.spec import Pair, Verdict

# Markup, in no language.
TAG = re.compile(r"<[^<>]*>")
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


def check(settings: Settings, languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    codes = tuple(map(model_code, languages))
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    near = compared_with(codes[0]) | compared_with(codes[1])
    others = near & LANGUAGES if settings.others is None else set(map(model_code, settings.others))
    identifier.set_languages(others | set(codes))
    least, shortest = settings.min_ratio, settings.min_letters

    def foreign(text: str, language: str) -> str | None:
        """The language that a text is in, where it is another."""
        text = TAG.sub(" ", text) if "<" in text else text
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
