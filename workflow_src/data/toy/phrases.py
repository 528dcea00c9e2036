"""Noun phrases and verb phrases of the toy grammar: case, gender, adjective endings, government, word order."""

from __future__ import annotations

from collections.abc import Iterator

from workflow_src.data.toy.forest import Pattern, Rule, Symbol
from workflow_src.data.toy.lexicon import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PLACES,
    VERBS,
    Verb,
    english_plural,
    english_verb,
    pairs,
)

CASES = ("nom", "acc", "dat")
PERSONS = ("kin", "pro", "folk")
ENGLISH_FORMS = ("base", "3sg", "past", "pp", "ing")
_COLUMN = {"m": 0, "f": 1, "n": 2, "p": 3}
# Endings by case, columns masculine, feminine, neuter, plural.
_DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"}
_THIS = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"}
_EIN = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en"}
_WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"}
_MIXED = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"}
_STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"}
_DECLENSIONS = {"weak": _WEAK, "mixed": _MIXED, "strong": _STRONG}
# determiner: declension, weight in the singular, in the plural (0: none).
_DETERMINERS: dict[str, tuple[str, float, float]] = {
    "def": ("weak", 5, 2),
    "indef": ("mixed", 4, 0),
    "this": ("weak", 1, 0.5),
    "mein": ("mixed", 1, 0.5),
    "unser": ("mixed", 0.7, 0.4),
    "bare": ("strong", 0, 1),
    "zwei": ("strong", 0, 0.8),
    "drei": ("strong", 0, 0.5),
    "viele": ("strong", 0, 0.8),
    "kein": ("mixed", 0, 0),
}
_ENGLISH: dict[str, list[list[str]]] = {
    "def": [["the"]],
    "indef": [["a(n)"]],
    "mein": [["my"]],
    "unser": [["our"]],
    "bare": [[]],
    "zwei": [["two"]],
    "drei": [["three"]],
    "viele": [["many"], ["a(n)", "lot", "of"]],
}
PRONOUNS = {
    "acc": {"mich": "me", "dich": "you", "ihn": "him", "sie": "her/them", "uns": "us"},
    "dat": {"mir": "me", "dir": "you", "ihm": "him", "ihr": "her", "uns": "us", "ihnen": "them"},
}


def _cell(table: dict[str, str], case: str, gender: str) -> str:
    return table[case].split()[_COLUMN[gender]].replace("-", "")


def determiner(name: str, case: str, gender: str) -> list[str]:
    if name == "def":
        return [_cell(_DEFINITE, case, gender)]
    if name == "this":
        return ["dies" + _cell(_THIS, case, gender)]
    if name == "viele":
        return ["viel" + _cell(_STRONG, case, gender)]
    if name in ("mein", "unser", "kein", "indef"):
        return [name.replace("indef", "ein") + _cell(_EIN, case, gender)]
    return [] if name == "bare" else [name]


def relative_pronoun(case: str, gender: str) -> str:
    return _cell(_DEFINITE, case, gender)


def _english_determiner(name: str, plural: bool) -> list[list[str]]:
    if name == "this":
        return [["these" if plural else "this"]]
    if name == "kein":
        return [["any" if plural else "a(n)"]]
    return _ENGLISH[name]


def unit(symbol: Symbol, slot: Symbol, weight: float = 1.0) -> Rule:
    return Rule(symbol, (slot,), {}, {}, weight, head=0, passes=True)


def words(
    symbol: Symbol, german: list[str], english: list[list[str]], weight: float = 1.0, head: str | None = None
) -> Rule:
    return Rule(symbol, (), {"": [tuple(german)]}, {"": [tuple(wording) for wording in english]}, weight, head)


def kinds() -> list[str]:
    return list(dict.fromkeys(noun.kind for noun in NOUNS))


def nouns() -> Iterator[Rule]:
    """Nouns and adjectives by case, number and gender: symbols N (a noun), A (an adjective), NB (both)."""
    for noun in NOUNS:
        for case in CASES:
            for number in ("sg", "pl")[: 1 if noun.plural == "-" else 2]:
                gender = noun.gender if number == "sg" else "p"
                translations = [[word if number == "sg" else english_plural(word)] for word in noun.english]
                yield words(("N", case, gender, noun.kind), [noun.german(case, number)], translations, head=noun.lemma)
    for kind in kinds():
        endings = {_cell(table, *cell) for table in _DECLENSIONS.values() for cell in _cells()}
        for suits, stem, english in ADJECTIVES:
            for ending in sorted(endings) if kind in suits else ():
                yield words(("A", ending, kind), [stem + ending], [[word] for word in english], head=stem)
        genders = {noun.gender for noun in NOUNS if noun.kind == kind} | ({"p"} if kind != "drink" else set())
        for declension, table in _DECLENSIONS.items():
            for case, gender in _cells():
                if gender in genders:
                    symbol, noun_symbol = ("NB", case, gender, declension, kind), ("N", case, gender, kind)
                    yield unit(symbol, noun_symbol, 2)
                    if any(kind in suits for suits, _, _ in ADJECTIVES):
                        slots = (("A", _cell(table, case, gender), kind), noun_symbol)
                        plain = {"": [((0, ""), (1, ""))]}
                        yield Rule(symbol, slots, plain, plain, 1.2, head=1, link=(0, 1))


def _cells() -> list[tuple[str, str]]:
    return [(case, gender) for case in CASES for gender in "mfnp"]


def noun_phrases() -> Iterator[Rule]:
    """DP: determiner phrases (determiner, case, number, kind); NP: their union; Obj and others: unions of NP."""
    for kind in kinds():
        members = [noun for noun in NOUNS if noun.kind == kind]
        for case in CASES:
            for name, (declension, singular, plural) in _DETERMINERS.items():
                weights: tuple[float, float] = (singular, plural)
                if kind == "drink":
                    weights = {"def": (3, 0), "bare": (4, 0), "mein": (1, 0)}.get(name, (0, 0))
                elif kind == "kin":
                    # One speaks of one's own family.
                    factor = {"mein": 8, "unser": 6}.get(name, 0.3)
                    weights = (singular * factor, plural * factor)
                elif kind in ("folk", "event", "house") and name in ("mein", "unser"):
                    # "Meine Frau" is a wife, and few own a tower.
                    weights = (0, 0)
                for number, weight in zip(("sg", "pl"), weights, strict=True):
                    if weight == 0 and not (name == "kein" and kind != "drink"):
                        continue
                    symbol = ("DP", name, case, number, kind)
                    for gender in sorted({noun.gender for noun in members}) if number == "sg" else "p":
                        slot = ("NB", case, gender, declension, kind)
                        german: Pattern = (*determiner(name, case, gender), (0, ""))
                        articles = _english_determiner(name, number == "pl")
                        english: list[Pattern] = [(*article, (0, "")) for article in articles]
                        share = sum(noun.gender == gender for noun in members) if number == "sg" else 1
                        yield Rule(symbol, (slot,), {"": [german]}, {"": english}, share, head=0)
                    if weight:
                        # Subjects and persons without an article are rare.
                        weight = 0.3 if name == "bare" and (case == "nom" or kind in PERSONS) else weight
                        yield unit(("NP", case, number, kind), symbol, weight)
    for name in NAMES:
        yield words("Name", [name], [[name]])
    for case, table in PRONOUNS.items():
        for pronoun, translations in table.items():
            yield words(("Pron", case), [pronoun], [[word] for word in translations.split("/")])


def _union(case: str, group: tuple[str, ...], only: str) -> Iterator[Rule]:
    """Objects of several kinds: all, or definite ones (before `nicht`), or ones with `kein`."""
    symbol = ("Obj", case, group, only)
    for kind in group:
        if kind == "name":
            yield unit(symbol, "Name")
            continue
        weight = sum(noun.kind == kind for noun in NOUNS)
        numbers = (("sg", 3),) if kind == "drink" else (("sg", 3), ("pl", 1))
        for number, share in numbers:
            slot = ("NP", case, number, kind) if only == "all" else ("DP", only, case, number, kind)
            yield unit(symbol, slot, weight * share)


def english_verb_phrase(verb: Verb, form: str, slots: int, pronoun: bool, extra: Pattern = ()) -> list[Pattern]:
    """Wordings of the verb in `form` with its object slots; `extra` (a place) comes last."""
    wordings: list[Pattern] = []
    for synonym in verb.english:
        movable = "~" in synonym
        head, *particle = synonym.replace("~", "_").replace("!", "").split("_")
        head = english_verb(head, form)
        objects = [(index, "") for index in range(slots)]
        if slots == 2:
            wordings.append((head, *particle, objects[0], objects[1], *extra))
            wordings.append((head, *particle, objects[1], "to", objects[0], *extra))
        elif movable and slots:
            wordings.append((head, objects[0], *particle, *extra))
            if not pronoun:
                wordings.append((head, *particle, objects[0], *extra))
        else:
            wordings.append((head, *particle, *objects, *extra))
    return wordings


def _forms(verb: Verb, middle: Pattern, tail: Pattern = ()) -> dict[str, list[Pattern]]:
    """German forms of a verb phrase: `rest` is what stays at the end when the finite verb comes second."""
    forms: dict[str, list[Pattern]] = {
        "part": [(*middle, verb.participle, *tail)],
        "inf": [(*middle, verb.lemma, *tail)],
        "zu": [(*middle, *verb.to_infinitive, *tail)],
    }
    rest: Pattern = (*middle, *([verb.prefix] if verb.prefix else []), *tail)
    if rest:
        forms["rest"] = [rest]
    for tense in ("present", "past"):
        for agreement in ("1sg", "3sg", "pl"):
            forms[f"last.{tense}.{agreement}"] = [(*middle, verb.prefix + verb.finite(tense, agreement), *tail)]
    return forms


def _government(verb: Verb, flavour: str) -> list[tuple[tuple[Symbol, ...], Pattern]]:
    """(slots, German middle field) of a flavour: plain, place, pron, or neg."""
    frame, group = verb.frame, verb.kinds
    if frame in ("none", "to"):
        place: tuple[Symbol, ...] = ("Place to",) if frame == "to" else ()
        to_place: Pattern = ((0, ""),) if place else ()
        negation = {"plain": (), "neg": ("nicht",)}.get(flavour)
        return [] if negation is None else [(place, (*negation, *to_place))]
    if frame == "both":
        slots = (("Obj", "dat", ("kin", "pro", "folk", "name"), "all"), ("Obj", "acc", group, "all"))
        return [(slots, ((0, ""), (1, "")))] if flavour == "plain" else []
    preposition, _, case = frame.rpartition(".")
    before = (preposition,) if preposition else ()
    if flavour == "plain":
        return [((("Obj", case, group, "all"),), (*before, (0, "")))]
    if flavour == "pron":
        return [((("Pron", case),), (*before, (0, "")))] if set(group) & set(PERSONS) else []
    if preposition:
        return [((("Obj", case, group, "all"),), ("nicht", *before, (0, "")))]
    negated: list[tuple[tuple[Symbol, ...], Pattern]] = [((("Obj", case, group, "def"),), ((0, ""), "nicht"))]
    if case == "acc" and not set(group) & {"drink", "kin", "folk"}:
        negated.append(((("Obj", case, group, "kein"),), ((0, ""),)))
    return negated


def verb_phrases() -> Iterator[Rule]:
    """VP1: phrases of one verb by flavour (plain, place, full, pron, neg, zu); VP: unions over dynamic verbs."""
    objects: set[tuple] = set()
    for verb in VERBS:
        if verb.frame == "zu":
            yield from _to_phrases(verb)
            continue
        for flavour in ("plain", "pron", "neg"):
            for slots, middle in _government(verb, flavour):
                objects.update(slot for slot in slots if isinstance(slot, tuple) and slot[0] == "Obj")
                yield from _phrase(verb, flavour, slots, middle)
        yield unit(("VP1", verb.name, "full"), ("VP1", verb.name, "plain"), 3)
        if verb.place:
            (slots, middle), *_ = _government(verb, "plain")
            yield from _phrase(verb, "place", slots, middle)
            yield unit(("VP1", verb.name, "full"), ("VP1", verb.name, "place"), 1)
    for flavour in ("full", "pron", "neg", "zu"):
        for verb in verbs_with(flavour):
            if not verb.stative or verb.frame == "zu":
                for subject in verb.subjects:
                    yield unit(("VP", subject, verb.auxiliary, flavour), ("VP1", verb.name, flavour))
                if flavour == "full" and (verb.frame not in ("none", "to") or verb.lemma in ("arbeiten", "tanzen")):
                    yield unit("VP any", ("VP1", verb.name, flavour))
    for _, *key in sorted(objects):
        yield from _union(*key)
    for name, text in PLACES.items():
        for german, english in pairs(text):
            yield words(f"Place {name}", german, english)


def _phrase(verb: Verb, flavour: str, slots: tuple[Symbol, ...], middle: Pattern) -> Iterator[Rule]:
    number = len(slots)
    extra: Pattern = ()
    if flavour == "place":
        # Time before place before object, in German; in English the place comes last.
        extra = ((number, ""),)
        middle, slots = (*extra, *middle), (*slots, f"Place {verb.place}")
    english = {f: english_verb_phrase(verb, f, number, flavour == "pron", extra) for f in ENGLISH_FORMS}
    link = (verb.lemma, number - 1) if number and verb.frame != "to" and flavour != "pron" else None
    symbol = ("VP1", verb.name, flavour)
    yield Rule(symbol, slots, _forms(verb, middle), english, link=link)


def _to_phrases(verb: Verb) -> Iterator[Rule]:
    english: dict[str, list[Pattern]] = {form: [] for form in ENGLISH_FORMS}
    for synonym in verb.english:
        head, link = synonym.split()
        for form in ENGLISH_FORMS:
            if link == "to":
                english[form].append((english_verb(head, form), "to", (0, "base")))
            elif form != "ing":
                english[form].append((english_verb(head, form), (0, "ing")))
    yield Rule(("VP1", verb.name, "zu"), ("VP any",), _forms(verb, (), (",", (0, "zu"))), english)


def verbs_with(flavour: str) -> list[Verb]:
    """Verbs that have phrases of a flavour."""
    if flavour == "zu":
        return [verb for verb in VERBS if verb.frame == "zu"]
    plain = [verb for verb in VERBS if verb.frame != "zu"]
    return plain if flavour == "full" else [verb for verb in plain if _government(verb, flavour)]
