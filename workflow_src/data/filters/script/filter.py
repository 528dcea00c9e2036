"""Leaves out pairs with a side whose letters are of another script than its language is written in."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.config.languages import scripts_of, two_letters
from workflow_src.data.filters.script import Settings
from workflow_src.data.texts import each, letters, letters_outside
from workflow_src.spec import Pair, Verdict


def check(settings: Settings, languages: tuple[str, str]) -> Callable[[list[Pair]], list[Verdict]]:
    most = 1 - settings.min_share
    configured = {two_letters(language): tuple(map(str.upper, names)) for language, names in settings.scripts.items()}
    scripts = [configured.get(two_letters(code)) or scripts_of(code) for code in languages]
    # Snakemake's settings were checked by `conflict`: a script of each language is known.
    source_outside, target_outside = (letters_outside(names or ()) for names in scripts)

    def judge(pair: Pair) -> Verdict:
        for text, outside in ((pair.source, source_outside), (pair.target, target_outside)):
            count = outside(text)
            if count and count > most * letters(text):
                return f"min_share: {count} letters of another script, of {letters(text)}"
        return None

    return each(judge)
