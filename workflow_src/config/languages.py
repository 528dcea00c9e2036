"""What is known of languages by their codes (ISO 639): scripts, and whether spaces separate words. Without torch.

A code of two letters (ISO 639-1) and those of three letters of the same language (639-2 and 639-3) mean the same.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

LATIN = "LATIN"
CYRILLIC = "CYRILLIC"
ARABIC = "ARABIC"
DEVANAGARI = "DEVANAGARI"
# Scripts by language, as the Unicode names of their letters begin. Languages that have a code of two letters stand
# under it.
SCRIPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "aa af ak an ay bi bm br ca ch co cs cy da de ee en eo es et eu fi fj fo fr fy ga gd gl gn gv ho hr ht hu "
            "hz ia id ie ig ik io is it jv kg ki kj kl kw la lb lg li ln lt lu lv mg mh mi ms mt na nb nd ng nl nn no "
            "nr nv ny oc om pl pt qu rm rn ro rw sc se sg sk sl sm sn so sq ss st su sv sw tk tl tn to tr ts tw ty ve "
            "vi vo wa wo xh yo za zu "
            # Without a code of two letters
            "ang ast bar bas bci bcl bem bik bug cak cbk ceb chk csb dag dsb dyu efi egl ewo ext fon frp frr "
            "fur gaa gcf gcr gil gos gsw guw haw hil hmn hsb iba ibb ilo izh jam jbo kac kam kbp kea kek kha "
            "kmb kmr kpe krl kri ksh kss lfn lij liv lld lmo lua luo lus mad mak mam min mnk mos mus mwl nap nds "
            "nhn nia nso nov nus olo ota pag pam pap pau pcm pcd pdc pfl pms pon quc rar rup sas scn sco sgs "
            "sma smj smn sms srn stq swg szl tet tiv tlh toj tok tpi tsc tum tvl tzh tzo umb vec vep vls vot vro war "
            "wls yap yua zea zza"
        ).split(),
        (LATIN,),
    ),
    **dict.fromkeys("ha kr ace bjn".split(), (LATIN, ARABIC)),
    "ff": (LATIN, ARABIC, "ADLAM"),
    **dict.fromkeys(
        (
            "ru uk be bg mk ky tg ba cv tt os ce av ab cu kv "
            "ady alt bua bxr chm dar inh kbd kjh koi krc kum lbe lez mdf mhr mrj myv nog rue sah tyv udm xal"
        ).split(),
        (CYRILLIC,),
    ),
    **dict.fromkeys("sr sh bs uz kk".split(), (CYRILLIC, LATIN)),
    **dict.fromkeys("crh gag rom kaa".split(), (LATIN, CYRILLIC)),
    "az": (LATIN, CYRILLIC, ARABIC),
    "azb": (ARABIC,),
    "mn": (CYRILLIC, LATIN, "MONGOLIAN"),
    **dict.fromkeys("ar fa ur ps ug ckb glk lrc mzn pnb skr".split(), (ARABIC,)),
    "sd": (ARABIC, DEVANAGARI),
    "ku": (LATIN, ARABIC, CYRILLIC),
    "ks": (ARABIC, LATIN, DEVANAGARI),
    **dict.fromkeys("hi mr ne sa awa bgc bho brx doi hne mag mai new raj rwr".split(), (DEVANAGARI,)),
    **dict.fromkeys("gom kok".split(), (DEVANAGARI, LATIN)),
    "pi": (DEVANAGARI, LATIN, "SINHALA", "THAI", "MYANMAR", "KHMER"),
    **dict.fromkeys("bn as bpy".split(), ("BENGALI",)),
    "mni": ("BENGALI", "MEETEI"),
    "sat": ("OL", DEVANAGARI, "BENGALI", LATIN),
    **dict.fromkeys("he yi hbo".split(), ("HEBREW",)),
    "lad": ("HEBREW", LATIN),
    **dict.fromkeys("am ti gez tig".split(), ("ETHIOPIC",)),
    "wal": ("ETHIOPIC", LATIN),
    **dict.fromkeys("bo dz".split(), ("TIBETAN",)),
    **dict.fromkeys("iu cr oj".split(), ("CANADIAN", LATIN)),
    **dict.fromkeys("el grc".split(), ("GREEK",)),
    **dict.fromkeys("hy hyw".split(), ("ARMENIAN",)),
    **dict.fromkeys("ka xmf".split(), ("GEORGIAN",)),
    **dict.fromkeys("kab shi zgh tzm".split(), ("TIFINAGH", LATIN)),
    **dict.fromkeys("syr arc aii".split(), ("SYRIAC",)),
    "ae": ("AVESTAN",),
    "ban": (LATIN, "BALINESE"),
    "chr": ("CHEROKEE",),
    "cop": ("COPTIC",),
    "dv": ("THAANA",),
    "got": ("GOTHIC",),
    "gu": ("GUJARATI",),
    "ii": ("YI",),
    "pa": ("GURMUKHI", ARABIC),
    "or": ("ORIYA",),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    **dict.fromkeys("kn tcy".split(), ("KANNADA",)),
    "ml": ("MALAYALAM",),
    "nqo": ("NKO",),
    "si": ("SINHALA",),
    **dict.fromkeys("th nod tts".split(), ("THAI",)),
    "lo": ("LAO",),
    "km": ("KHMER",),
    **dict.fromkeys("my blk ksw mnw shn".split(), ("MYANMAR",)),
    "khb": ("NEW",),
    "tdd": ("TAI",),
    "zh": ("CJK",),
    **dict.fromkeys("hak nan cdo".split(), ("CJK", LATIN, "BOPOMOFO")),
    "ja": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ko": ("HANGUL", "CJK"),
}
CHINESE = "zh"
JAPANESE = "ja"
KOREAN = "ko"
# Languages without spaces between words, and characters that say about as much as a word of English, as in Article 1 of
# the Universal Declaration of Human Rights. Thai (also Northern and Isan), Lao, Khmer, Burmese, Shan, Mon, S'gaw Karen,
# Tibetan, Dzongkha, Tai Lue and Nua.
UNSPACED = {"zh": 1.5, "ja": 2.5, **dict.fromkeys("th nod tts lo km my shn mnw ksw bo dz khb tdd".split(), 4.5)}
# Turkish and Azerbaijani have an i with a dot and one without, small and capital.
DOTTED_I = ("tr", "az")
# Codes of countries, and withdrawn codes, that are taken for those of languages.
MISTAKEN = {
    **dict.fromkeys("us gb au nz".split(), "en"),
    **dict.fromkeys("cn tw hk".split(), "zh"),
    **{"jp": "ja", "kp": "ko", "cz": "cs", "dk": "da", "gr": "el", "ua": "uk", "vn": "vi", "at": "de", "by": "be"},
    **{"rs": "sr", "il": "he", "ir": "fa", "kz": "kk", "mx": "es", "al": "sq", "pk": "ur", "bd": "bn", "kh": "km"},
    **{"lk": "si", "ph": "tl", "np": "ne", "ge": "ka", "iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro"},
    **{"jap": "ja", "chn": "zh", "spn": "es", "esp": "es", "prt": "pt", "swd": "sv"},
}


@functools.cache
def two_letters(language: str) -> str:
    """The code of two letters (ISO 639-1) of a language, else of the macrolanguage that it is part of (cmn: zh).

    A code without either stays as it is.
    """
    if len(language) <= 2:
        return language
    # The import takes a quarter of a second.
    from iso639 import Language, LanguageNotFoundError

    try:
        match = Language.match(language)
        if match.macrolanguage and not match.part1:
            match = Language.match(match.macrolanguage)
    except LanguageNotFoundError:
        return language
    return match.part1 or language


@functools.cache
def same_language(first: str, second: str) -> bool:
    """Whether two codes mean one language (de, deu). A language and its macrolanguage (cmn, zh) are two."""
    if first == second or max(len(first), len(second)) <= 2:
        return first == second
    from iso639 import Language, LanguageNotFoundError

    try:
        return Language.match(first) == Language.match(second)
    except LanguageNotFoundError:
        return False


@functools.cache
def is_in(code: str, language: str, other: str) -> bool:
    """True for the code of a text in a language, which may be the code of a part of it or of its macrolanguage.

    `other` is the other language of the direction, or the same one. Where both languages are of one macrolanguage, a
    code is in at most one of them. A code of a third part is in the one that is the macrolanguage itself.
    """
    if same_language(code, language) or two_letters(code) != two_letters(language):
        return same_language(code, language)
    if other == language or two_letters(other) != two_letters(language):
        return True
    return same_language(two_letters(language), language) and not same_language(code, other)


def scripts_of(language: str) -> tuple[str, ...] | None:
    """The scripts that a language is written in, as the Unicode names of their letters begin; None for an unknown one.

    They are those of its macrolanguage (cmn: zh) where it has none of its own.
    """
    return SCRIPTS.get(language) or SCRIPTS.get(two_letters(language))


def scripts_of_sides(languages: tuple[str, str], stated: Mapping[str, Sequence[str]]) -> list[tuple[str, ...] | None]:
    """The scripts of each language, as `stated` or by its code; None where they are not known."""
    upper = {language: tuple(map(str.upper, names)) for language, names in stated.items()}
    # What is stated for one of two languages of a macrolanguage is not meant for the other.
    by_macrolanguage = {two_letters(code): names for code, names in upper.items() if code not in languages}
    return [upper.get(code) or by_macrolanguage.get(two_letters(code)) or scripts_of(code) for code in languages]


@functools.cache
def spaced(language: str) -> bool:
    """True for a language (ISO 639 code) that separates its words by spaces."""
    return two_letters(language) not in UNSPACED


def characters_a_word(language: str) -> float:
    """Characters that say about as much as a word of English, of a language that is not `spaced`."""
    return UNSPACED[two_letters(language)]


def nearest_language(code: str) -> str | None:
    """The known code that was probably meant: of a country's code, an English name, a locale, or a longer word."""
    code = code.lower()
    language = code.replace("_", "-").partition("-")[0]
    if language != code and scripts_of(language):
        return language
    return MISTAKEN.get(code) or _of_name(code) or (code[:2] if code[:2] in SCRIPTS else None)


def _of_name(name: str) -> str | None:
    """The code of the language with an English name."""
    from iso639 import Language, LanguageNotFoundError

    try:
        return two_letters(Language.from_name(name.title()).part3)
    except LanguageNotFoundError:
        return None
