"""Full stops that end no sentence, which the sentence splitter takes for ends: of abbreviations and of ordinals.

Rules are those of German, English, French, Spanish, Italian, Portuguese, Dutch, Russian, Polish, Czech, Turkish and
Romanian; other languages have the splitter's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Abbreviations before a name or any other word, by language (ISO 639-1). None may be a word that ends a sentence.
BEFORE_WORDS = {
    "de": "bzw. ca. dr. dipl. evtl. fa. fr. geb. gegr. gen. hl. hr. hrsg. ing. inkl. lt. med. mr. mrs. prof. rd. sog. "
    "st. u. vgl. vs. z. zzgl.",
    "en": "capt. col. dr. e.g. gen. gov. i.e. lt. maj. messrs. mr. mrs. ms. mt. prof. rev. sen. sgt. vs.",
    "fr": "dr. env. m. mgr. mlle. mm. mme. mmes. pr. prof. st. ste. vve.",
    "es": "d. dña. dr. dra. excmo. gral. ilmo. lic. mons. prof. profa. sr. sra. sres. srta. sta. sto. ",
    "it": "arch. avv. cav. dott. dr. egr. geom. gent. ing. mons. on. prof. rag. s. sig. sigg. spett. ss.",
    "pt": "av. cap. d. dr. dra. eng. exa. exmo. gen. prof. profa. r. s. sr. sra. srta. sta. sto.",
    "nl": "bijv. dhr. d.w.z. dr. drs. fam. ir. jhr. jkvr. m.a.w. mej. mevr. mgr. mr. mw. o.a. ing. prof. st. t.a.v. "
    "vgl.",
    "ru": "акад. бул. гр. доц. ген. напр. пер. пл. пос. проф. св. см. т.е. е. тов. ул.",
    "pl": "abp. al. bp. dr. gen. hab. inż. kpt. ks. m.in. mgr. np. o. os. płk. pl. por. prof. ps. red. św. tj. "
    "tzn. tzw. ul. zob.",
    "cs": "doc. dr. gen. ing. judr. mgr. mudr. např. nám. phdr. popř. prof. resp. rndr. sv. tj. tzn. tzv. ul. ",
    "tr": "alb. av. bkz. cad. doç. dr. gn. hz. mah. öğr. örn. prof. sn. sok. şti. uzm. yrd.",
    "ro": "dl. dna. dnei. dlui. dr. ing. jud. mr. pr. prof. sf. st. str. bd.",
}
# Abbreviations before numbers, by language. None may be a word that often ends a sentence.
BEFORE_NUMBERS = {
    "de": "abb. abs. anh. anm. bd. bl. fig. hs. kap. nr. p. pp. s. str. tab. tel. vol.",
    "en": "approx. apt. ca. ch. circa. fig. nr. p. pp. tel. vol.",
    "fr": "approx. apt. ca. ch. chap. fig. lib. n. p. pp. sect. t. tab.",
    "es": "aprox. apt. art. cap. fig. lib. n. núm. p. pág. págs. pp. s. sec. t. tab. tel. vol.",
    "it": "abb. art. ca. cap. cl. fig. figg. lib. n. nr. num. p. pag. pagg. par. pp. sec. sez. t. tab. tel. vol.",
    "pt": "aprox. apt. art. ca. fig. n. núm. p. pág. págs. pp. sec. t. tab. tel. vol.",
    "nl": "abs. art. bl. blz. ca. circa. fig. hs. nr. p. pag. par. pp. str. tab. tel.",
    "ru": "д. гл. кв. п. пп. рис. ст. стр. т. табл. №.",
    "pl": "art. bl. ca. fig. nr. ods. ok. okr. p. poz. pp. rdz. rys. s. str. t. tab. tel. vol. z.",
    "cs": "ca. cca. čl. č. fig. kap. nr. okr. p. par. poz. s. str. t. tab. tel.",
    "tr": "apt. bl. nr. s. tel. vol.",
    "ro": "aprox. apt. art. bl. cca. cl. fig. nr. num. p. pag. pp. sec. sect. tab. tel. vol.",
}
# Languages that write ordinals with a full stop, with words that stand before an ordinal, not before a number that
# ends a sentence.
BEFORE_ORDINALS = {
    "de": "am ans aufs beim das dem den der des die diese diesem diesen dieser dieses ein eine einem einen einer eines "
    "im ihr ihre ihrem ihren ihrer ins jede jedem jeden jeder jedes mein meine meinem meinen meiner sein seine seinem "
    "seinen seiner ihres seines unser unsere unserem unseren unserer unseres vom zum zur",
    "pl": "dnia do na od po przed w we z za",
    "cs": "dne do ke k na od o po při před v ve z za ze",
    "tr": "bu en her o şu",
}
# Words that begin a sentence rather than follow an ordinal.
BEGINNINGS = {
    "de": "aber als also am auch auf aus bei da danach dann daher das dass dem den der deshalb die dies diese dieser "
    "dieses doch du ein eine einige er es hier ich ihr im in man mit nach nun ob sie so und unser vor wann warum was "
    "weil wenn wer wie wir wo zu",
    "pl": "a ale co czy gdy i jest jej jego kiedy oni ona on to tam potem teraz więc",
    "cs": "a ale ale až byl co je jeho její kde kdy když on ona oni pak potom proto tam ten to",
    "tr": "ama ben biz bu o onlar sen siz sonra şimdi ve",
}
ABBREVIATIONS = {language: frozenset(words.split()) for language, words in BEFORE_WORDS.items()}
NUMBERED = {language: frozenset(words.split()) for language, words in BEFORE_NUMBERS.items()}
CUES = {language: frozenset(words.split()) for language, words in BEFORE_ORDINALS.items()}
STARTERS = {language: frozenset(words.split()) for language, words in BEGINNINGS.items()}
# The last word of a text with a full stop, without brackets and quotes before it, and the word before that.
LAST_WORDS = re.compile(r"(?:^|(?P<before>\S*)\s+)[(\[{\"'«»„“‚‘¿¡]*(?P<last>\S+\.)\s*$")
FIRST_WORD = re.compile(r"\w+")
# J.-C., U.S.
INITIALS = re.compile(r"(?:[^\W\d_]\.-?)+")
ORDINAL = re.compile(r"\d{1,3}\.|[IVXLC]+\.")
# An ordinal that stands beside another one: 19. und 20.
SECOND_ORDINAL = re.compile(
    r"(?:\d{1,3}|[IVXLC]+)\.\s+(?:und|oder|bis|sowie|i|oraz|lub|a|nebo|až|ve|veya)\s+(?:\d{1,3}|[IVXLC]+)\.\s*$"
)
NUMBER = re.compile(r"[(\[]?(?:[\d½¼¾]|[IVXLC]+\b)")
# What the last words of a text are looked for in.
LONGEST = 100


def join_protected(segments: Sequence[str], language: str) -> list[str]:
    """The segments of a line, those joined between which no sentence of the language (ISO 639-1) ends."""
    joined: list[str] = []
    for segment in segments:
        if joined and _is_protected(joined[-1], segment, language):
            joined[-1] += segment
        else:
            joined.append(segment)
    return joined


def _is_protected(before: str, after: str, language: str) -> bool:
    """Whether the full stop at the end of `before` belongs to an abbreviation or an ordinal, which `after` follows."""
    # The splitter cuts J.-C. before its hyphen.
    if after.startswith("-") and before.endswith("."):
        return True
    match = LAST_WORDS.search(before, max(0, len(before) - LONGEST))
    if match is None:
        return False
    last, following = match["last"], after.lstrip()
    # After a number it is a unit: см. is "see", and centimetres.
    if last.lower() in ABBREVIATIONS.get(language, ()) and not (match["before"] or "")[-1:].isdecimal():
        return True
    if last.lower() in NUMBERED.get(language, ()) and NUMBER.match(following):
        return True
    if INITIALS.fullmatch(last) and following[:1].islower():
        return True
    if language not in CUES or not ORDINAL.fullmatch(last):
        return False
    first = FIRST_WORD.match(following)
    if first is None or first[0].lower() in STARTERS[language]:
        return False
    # At the beginning it numbers what follows.
    if not match["before"] or match["before"].lower() in CUES[language]:
        return True
    return SECOND_ORDINAL.search(before, max(0, len(before) - LONGEST)) is not None
