"""Sentences of the toy grammar: statements, questions, subordinate and relative clauses, fronted objects."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

from workflow_src.data.toy.clauses import (
    AGREEMENT_WEIGHTS,
    BE,
    NONE,
    WAS,
    Adverbial,
    clause,
    clauses,
    finite_word,
    verb_group,
)
from workflow_src.data.toy.forest import Grammar, Pattern, Rule, Symbol
from workflow_src.data.toy.lexicon import NOUNS, VERBS, Verb
from workflow_src.data.toy.phrases import english_verb_phrase, relative_pronoun, unit, words

_QUALITIES = {
    "teuer": ("vehicle device clothes room", "expensive/costly"),
    "neu": ("vehicle device clothes text room", "new"),
    "alt": ("vehicle house text", "old"),
    "schön": ("vehicle clothes house", "beautiful/lovely"),
    "interessant": ("text press", "interesting"),
    "langweilig": ("text press", "boring/dull"),
    "lecker": ("food meal cake", "delicious/tasty"),
    "billig": ("vehicle device clothes", "cheap/inexpensive"),
    "groß": ("house room vehicle", "big/large"),
    "klein": ("house room cake", "small/little"),
}
_KINDS_WITH_QUALITIES = list(dict.fromkeys(kind for kinds, _ in _QUALITIES.values() for kind in kinds.split()))

_MATRIX = {
    # German present 1sg, 3sg, pl; past; English synonyms (present base, 3sg, past).
    "sagen": ("sage sagt sagen", "sagte sagte sagten", ["say says said"]),
    "glauben": (
        "glaube glaubt glauben",
        "glaubte glaubte glaubten",
        ["believe believes believed", "think thinks thought"],
    ),
    "wissen": ("weiß weiß wissen", "wusste wusste wussten", ["know knows knew"]),
    "hoffen": ("hoffe hofft hoffen", "", ["hope hopes"]),
}
# Subordinating word: before the main clause in English, after it; main clauses; subordinate clauses.
_PRESENT = [("Clause", "present", "none"), ("Clause", "modal", "none"), ("Clause", "present", "adv")]
_PAST = [("Clause", "past", "none"), ("Clause", "perfect", "dated"), ("Clause", "perfect", "time")]
_CONJUNCTIONS = [
    ("weil", ["because", "since"], ["because"], _PRESENT, ("State", "present")),
    ("weil", ["because", "since"], ["because"], _PAST, ("State", "past")),
    ("obwohl", ["although", "even though"], ["although", "even though"], _PRESENT, ("State", "present")),
    ("obwohl", ["although", "even though"], ["although", "even though"], _PAST, ("State", "past")),
    ("wenn", ["when", "if"], ["when", "if"], [*_PRESENT[:2], ("Clause", "future", "none")], ("State", "present")),
    ("als", ["when"], ["when"], _PAST[:2], ("State", "past")),
    ("nachdem", ["after"], ["after"], _PAST[:1], ("Clause", "pluperfect", "none")),
    ("bevor", ["before"], ["before"], _PAST[:1], ("Clause", "past", "none")),
]
# Verbs of relative clauses about things; the others take such a thing as object (reads the book that she bought).
_MAKING = {"kaufen", "schreiben", "kochen", "backen", "finden", "waschen", "reparieren", "bauen", "malen", "putzen"}
_GENDERS = (("m", "sg", "3sg"), ("f", "sg", "3sg"), ("n", "sg", "3sg"), ("p", "pl", "pl"))


def _transitive(*kinds: str) -> list[Verb]:
    """Dynamic verbs with an accusative object, of any of `kinds` where given."""
    return [
        verb
        for verb in VERBS
        if verb.frame == "acc" and not verb.stative and (not kinds or set(kinds) & set(verb.kinds))
    ]


def _adverbial_of(tense: str, time: str) -> str:
    """The kind of adverbial of a relative clause: beside a main clause in the past, the perfect is English past."""
    return "time" if (tense, time) == ("perfect", "then") else "none"


def _makers(kind: str) -> list[Verb]:
    return [verb for verb in _transitive(kind) if verb.lemma in _MAKING]


def _whole(
    german: Sequence[Pattern],
    english: Sequence[Pattern],
    slots: tuple[Symbol, ...],
    symbol: Symbol,
    weight: float = 1.0,
    link: tuple[str | int, str | int] | None = None,
) -> Rule:
    return Rule(symbol, slots, {"": german}, {"": english}, weight, link=link)


def _main() -> Iterator[Rule]:
    """Statements and questions of one clause."""
    weights = {"present": 3, "past": 2, "perfect": 3, "future": 1.5, "modal": 2}
    for family, weight in weights.items():
        none, adverb, time = (("Clause", family, name) for name in ("none", "adv", "time"))
        statement, question = [((0, "stmt"), ".")], [((0, "q"), "?")]
        yield _whole([((0, "sv"), ".")], statement, (none,), "Plain", weight)
        yield _whole([((0, "sv"), "."), ((0, "tf"), ".")], statement, (time,), "Adverb", weight)
        if family in ("present", "perfect"):
            yield _whole([((0, "sv"), ".")], statement, (("Clause", family, "mid"),), "Adverb", weight / 2)
        yield _whole([((0, "inv"), "?")], question, (none,), "Question", weight)
        yield _whole([("warum", (0, "inv"), "?")], [("why", *question[0])], (none,), "Question", weight / 3)
        if family in ("past", "present"):
            state = (("Clause", family, "state"),)
            yield _whole([((0, "sv"), ".")], statement, state, "Plain", 0.3)
            yield _whole([((0, "inv"), "?")], question, state, "Question", 0.3)
        if family in ("past", "perfect"):
            yield _whole([((0, "inv"), "?")], question, (adverb,), "Question", weight / 3)
        if family in ("perfect", "future"):
            for name in ("none", "time"):
                yield _whole([((0, "sv"), ".")], statement, (("Clause", family, name, "zu"),), "ToClause", weight)
    yield _whole([((0, "sv"), ".")], [((0, "stmt"), ".")], (("Clause", "neg"),), "Negated")
    yield _whole([((0, "sv"), ".")], [((0, "stmt"), ".")], (("Mood", "past"),), "Quality", 0.5)


def _complements() -> Iterator[Rule]:
    """`sagt, dass ...`, `weiß nicht, ob ...`."""
    present: dict[Symbol, float] = {
        ("Clause", family, name): 1 for family in ("present", "perfect", "modal") for name in ("none", "adv")
    }
    present |= {("Clause", "future", "none"): 0.6, ("State", "present"): 0.8, ("Clause", "present", "state"): 0.2}
    for symbol, weight in present.items():
        yield unit(("Content", "present"), symbol, weight)
    yield unit(("Content", "past"), ("Clause", "pluperfect", "none"))
    for lemma, (now, then, english) in _MATRIX.items():
        for tense, forms in (("present", now.split()), ("past", then.split())):
            for agreement, finite in zip(("1sg", "3sg", "pl"), forms, strict=False):
                column = 2 if tense == "past" else 1 if agreement == "3sg" else 0
                german: list[Pattern] = [((0, ""), finite, ",", "dass", (1, "last"), ".")]
                spoken = [entry.split()[column] for entry in english]
                wordings = [((0, ""), verb, *that, (1, "sub"), ".") for verb in spoken for that in (("that",), ())]
                slots = (("Subj", "person", agreement), ("Content", tense))
                yield _whole(german, wordings, slots, "Complement", AGREEMENT_WEIGHTS[agreement] / len(english))
                if lemma == "wissen" and tense == "present":
                    german = [((0, ""), finite, "nicht", ",", "ob", (1, "last"), ".")]
                    do = "does" if agreement == "3sg" else "do"
                    wordings = [
                        ((0, ""), *negation, "know", word, (1, "sub"), ".")
                        for negation in ((do, "not"), (do + "n't",))
                        for word in ("if", "whether")
                    ]
                    yield _whole(german, wordings, slots, "Complement", AGREEMENT_WEIGHTS[agreement] / 2)


def _conjunctions() -> Iterator[Rule]:
    for german, before, after, mains, subordinate in _CONJUNCTIONS:
        orders: list[Pattern] = [
            ((0, "sv"), ",", german, (1, "last"), "."),
            (german, (1, "last"), ",", (0, "inv"), "."),
        ]
        english: list[Pattern] = [(*word.split(), (1, "sub"), ",", (0, "sub"), ".") for word in before]
        english += [((0, "sub"), *word.split(), (1, "sub"), ".") for word in after]
        for main in mains:
            yield _whole(orders, english, (main, subordinate), "Conjunction", 1 / len(mains))


def _fronted_objects() -> Iterator[Rule]:
    """Object first, marked by its accusative: `Den Apfel hat der Junge gegessen.`"""
    masculine = dict.fromkeys(noun.kind for noun in NOUNS if noun.gender == "m")
    for kind in masculine:
        slot = (("NB", "acc", "m", "weak", kind),)
        for article, translation in (("den", "the"), ("diesen", "this")):
            symbol = ("Masculine", kind)
            yield Rule(symbol, slot, {"": [(article, (0, ""))]}, {"": [(translation, (0, ""))]}, head=0)
    for verb in _transitive():
        for kind in verb.kinds:
            if kind not in masculine:
                continue
            for agreement in ("1sg", "3sg", "pl"):
                slots, link = (("Masculine", kind), ("Subj", "person", agreement)), (verb.lemma, 0)
                end = (verb.prefix,) if verb.prefix else ()
                weight = AGREEMENT_WEIGHTS[agreement] / len(verb.kinds)
                for tense, middle, last in (
                    ("past", verb.finite("past", agreement), end),
                    ("perfect", finite_word("haben", agreement), (verb.participle,)),
                ):
                    german = [((0, ""), middle, (1, ""), *last, ".")]
                    english = [
                        ((1, ""), *group.auxiliaries, *phrase, ".")
                        for group in verb_group(tense, agreement)
                        for phrase in english_verb_phrase(verb, group.form, 1, False)
                    ]
                    yield _whole(german, english, slots, "Fronted", weight, link)


def _relatives() -> Iterator[Rule]:
    """Relative clauses and the noun phrases that carry them; form `open`: without the closing comma."""
    for gender, number, agreement in _GENDERS:
        for auxiliary in ("haben", "sein"):
            finite = finite_word(auxiliary, agreement)
            phrase = ("VP", "person", auxiliary, "full")
            ends: dict[str, Pattern] = {"perfect": ((0, "part"), finite)}
            ends["present"] = ((0, f"last.present.{agreement}"),)
            for tense, end in ends.items():
                inner = (",", relative_pronoun("nom", gender), *end)
                weight = 6 if auxiliary == "haben" else 1
                for time in ("now", "then"):
                    english = [
                        (word, *group.auxiliaries, (0, group.form))
                        for word in ("who", "that")
                        for group in verb_group(tense, agreement, _adverbial_of(tense, time))
                    ]
                    yield Rule(("Who", gender, time), (phrase,), {"": [(*inner, ",")]}, {"": english}, weight)
        german = {"": [(relative_pronoun("nom", gender), (0, ""), (1, ""))]}
        for kind in ("pro", "folk") if gender != "n" else ("folk",):
            for time in ("now", "then"):
                slots = (("NB", "nom", gender, "weak", kind), ("Who", gender, time))
                yield Rule(("Carrier", agreement, time), slots, german, {"": [("the", (0, ""), (1, ""))]})
        for kind in _KINDS_WITH_QUALITIES:
            if gender == "p" or any(noun.kind == kind and noun.gender == gender for noun in NOUNS):
                yield from _object_relative(gender, number, kind)
    for auxiliary in ("haben", "sein"):
        phrase = ("VP", "person", auxiliary, "full")
        for agreement in ("3sg", "pl"):
            past = Adverbial(("Time past",), (), (("first", ()), ("last", ())), False)
            for tense, word, form, adverbial, kind in (
                ("perfect", auxiliary, "part", NONE, "none"),
                ("perfect", auxiliary, "part", past, "time"),
                ("werden", "werden", "inf", NONE, "none"),
                ("können", "können", "inf", NONE, "none"),
            ):
                groups = verb_group(tense, agreement, kind)
                weight = (6 if auxiliary == "haben" else 1) * (3 if agreement == "3sg" else 1)
                carrier = ("Carrier", agreement, "then" if tense == "perfect" else "now")
                arguments = (carrier, adverbial, finite_word(word, agreement), phrase, (form, None))
                yield clause("RelativeMain", *arguments, groups, weight)
    yield _whole([((0, "sv"), ".")], [((0, "stmt"), ".")], ("RelativeMain",), "Relative", 3)


def _object_relative(gender: str, number: str, kind: str) -> Iterator[Rule]:
    for verb, time in itertools.product(_makers(kind), ("now", "then")):
        for agreement in ("1sg", "3sg", "pl"):
            start = (",", relative_pronoun("acc", gender), (0, ""))
            ends: dict[str, Pattern] = {"perfect": (verb.participle, finite_word("haben", agreement))}
            ends["past"] = (verb.prefix + verb.finite("past", agreement),)
            for tense, end in ends.items():
                german = {"": [(*start, *end, ",")], "open": [(*start, *end)]}
                english = [
                    (*word, (0, ""), *group.auxiliaries, *phrase)
                    for word in (("that",), ("which",), ())
                    for group in verb_group(tense, agreement, _adverbial_of(tense, time))
                    for phrase in english_verb_phrase(verb, group.form, 0, False)
                ]
                subject = (("Subj", "person", agreement),)
                weight = AGREEMENT_WEIGHTS[agreement]
                symbol = ("Which", gender, kind, time)
                yield Rule(symbol, subject, german, {"": english}, weight, head=verb.lemma)
    for case, time in (("nom", "now"), ("nom", "then"), ("acc", "then")):
        article = relative_pronoun(case, gender)
        german = {form: [(article, (0, ""), (1, form))] for form in ("", "open")}
        slots = (("NB", case, gender, "weak", kind), ("Which", gender, kind, time))
        carrier = ("Thing", case, number, kind, time)
        yield Rule(carrier, slots, german, {"": [("the", (0, ""), (1, ""))]}, 1, head=0, link=(1, 0))


def _qualities() -> Iterator[Rule]:
    """`Das Buch(, das ...,) war langweilig.`, and objects with a relative clause at the end."""
    for adjective, (kinds, translations) in _QUALITIES.items():
        for kind in kinds.split():
            yield words(("Quality", kind), [adjective], [[word] for word in translations.split("/")])
    for kind in _KINDS_WITH_QUALITIES:
        for number, agreement in (("sg", "3sg"), ("pl", "pl")):
            for word, be in (("sein", BE[agreement]), ("waren", WAS[agreement])):
                german = [((0, ""), finite_word(word, agreement), (1, ""), ".")]
                english = [((0, ""), be, (1, ""), ".")]
                weight: float = 2 if number == "sg" else 1
                noun_phrases: tuple[tuple[Symbol, str], ...] = (
                    (("Thing", "nom", number, kind, "now" if word == "sein" else "then"), "Relative"),
                    (("NP", "nom", number, kind), "Quality"),
                )
                for noun_phrase, symbol in noun_phrases:
                    if symbol == "Relative" and not _makers(kind):
                        continue
                    share = weight / (8 if symbol == "Relative" else 2)
                    yield _whole(german, english, (noun_phrase, ("Quality", kind)), symbol, share)
            for verb in _transitive(kind) if _makers(kind) else ():
                if verb.prefix or verb.lemma in _MAKING:
                    continue
                for subject in ("1sg", "3sg", "pl"):
                    slots = (("Thing", "acc", number, kind, "then"), ("Subj", "person", subject))
                    orders: list[Pattern] = [((1, ""), verb.finite("past", subject), (0, "open"), ".")]
                    wordings: list[Pattern] = [
                        ((1, ""), *phrase, ".") for phrase in english_verb_phrase(verb, "past", 1, False)
                    ]
                    weight = AGREEMENT_WEIGHTS[subject] / 60
                    yield _whole(orders, wordings, slots, "Relative", weight, (verb.lemma, 0))


# How often each kind of sentence is drawn, by its name in `generator.kinds`; with its symbol.
SENTENCES: dict[str, tuple[str, float]] = {
    "plain": ("Plain", 2),
    "adverb": ("Adverb", 6),
    "question": ("Question", 2.5),
    "negated": ("Negated", 1.5),
    "to-clause": ("ToClause", 1),
    "complement": ("Complement", 3),
    "conjunction": ("Conjunction", 4),
    "fronted": ("Fronted", 1.5),
    "relative": ("Relative", 2.5),
    "quality": ("Quality", 0.5),
}


@functools.cache
def grammar() -> Grammar:
    """The toy grammar, built once a process."""
    rule_sets = (clauses(), _main(), _complements(), _conjunctions(), _fronted_objects(), _relatives(), _qualities())
    rules = [rule for rule_set in rule_sets for rule in rule_set]
    return Grammar([*rules, *(unit("S", symbol, weight) for symbol, weight in SENTENCES.values())], "S")
