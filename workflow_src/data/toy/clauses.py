"""Clauses and sentences of the toy grammar: tense, agreement, verb-second and verb-final order, subordination.

A clause has the German forms `sv` (subject, finite verb, rest), `tf` (fronted adverbial, finite verb, subject), `inv`
(finite verb first: questions, and after a fronted subordinate clause) and `last` (finite verb last), and the English
forms `stmt` (adverbial of time last or first), `sub` (last) and `q` (question).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from workflow_src.data.toy.forest import Item, Pattern, Rule, Symbol
from workflow_src.data.toy.lexicon import MIDDLE, TIMES, VERBS, Verb, pairs
from workflow_src.data.toy.phrases import (
    PERSONS,
    english_verb_phrase,
    noun_phrases,
    nouns,
    unit,
    verb_phrases,
    verbs_with,
    words,
)

FINITE = {
    "haben": "habe hast hat haben",
    "hatten": "hatte hattest hatte hatten",
    "sein": "bin bist ist sind",
    "waren": "war warst war waren",
    "werden": "werde wirst wird werden",
    "können": "kann kannst kann können",
    "müssen": "muss musst muss müssen",
    "wollen": "will willst will wollen",
    "sollen": "soll sollst soll sollen",
    "dürfen": "darf darfst darf dürfen",
}
BE = {"1sg": "am", "2sg": "are", "3sg": "is", "pl": "are"}
WAS = {"1sg": "was", "2sg": "were", "3sg": "was", "pl": "were"}
AGREEMENT_WEIGHTS = {"1sg": 1, "2sg": 0.6, "3sg": 5, "pl": 2.5}
_MODALS = ("können", "müssen", "wollen", "sollen", "dürfen")
_STATES = {
    "müde": "tired",
    "krank": "sick/ill",
    "hungrig": "hungry",
    "glücklich": "happy",
    "traurig": "sad/unhappy",
    "nervös": "nervous",
}
# German, English, and English with a form of `be` before it.
_WEATHER = {
    "present": [("regnet", "rains", "raining"), ("schneit", "snows", "snowing")],
    "past": [("regnete", "rained", "raining"), ("schneite", "snowed", "snowing")],
}


def finite_word(word: str, agreement: str) -> str:
    """The form of an auxiliary for a subject."""
    return FINITE[word].split()[list(AGREEMENT_WEIGHTS).index(agreement)]


class Wording(NamedTuple):
    """An English verb group: words before the verb phrase, the form of the verb phrase, words of a question."""

    auxiliaries: tuple[str, ...]
    form: str
    # The same as a question: auxiliary, words after the subject, form.
    question: tuple[tuple[str, tuple[str, ...], str], ...]


class Adverbial(NamedTuple):
    """A German adverbial in the clause; `fronts`: whether it can open the clause. `wordings`: places in English."""

    slots: tuple[Symbol, ...]
    german: tuple[str, ...]
    english: tuple[tuple[str, tuple[str, ...]], ...]
    fronts: bool


NONE = Adverbial((), (), (("none", ()),), False)
SOON = Adverbial((), ("gerade",), (("none", ()), ("last", ("right", "now")), ("mid", ("currently",))), False)
ALREADY = Adverbial((), ("schon",), (("mid", ("already",)),), False)


def _time(kind: str) -> Adverbial:
    return Adverbial((f"Time {kind}",), (), (("first", ()), ("last", ())), True)


FREQUENCY = Adverbial(("Frequency",), (), (("mid", ()),), False)


def verb_group(tense: str, agreement: str, adverbial: str = "none", stative: bool = False) -> list[Wording]:
    """English verb groups that render a German tense (with a kind of adverbial) for a subject.

    `adverbial`: none, time, habit (also frequency), now, or already. The German perfect is the English past, or the
    present perfect where no adverbial dates it.
    """
    third = agreement == "3sg"
    do, be, have = ("does" if third else "do"), BE[agreement], ("has" if third else "have")
    simple = Wording((), "3sg" if third else "base", ((do, (), "base"),))
    running = Wording((be,), "ing", ((be, (), "ing"),))
    past = Wording((), "past", (("did", (), "base"),))
    perfect = Wording((have,), "pp", ((have, (), "pp"),))
    if tense == "present":
        if adverbial == "now":
            return [running]
        return [simple] if adverbial in ("habit", "time") or stative else [simple, running]
    if tense == "past":
        return [past]
    if tense == "perfect":
        return [past] if adverbial == "time" else [perfect, past]
    if tense == "pluperfect":
        return [Wording(("had",), "pp", (("had", (), "pp"),))]
    want = "wants" if third else "want"
    table = {
        "werden": [("will", ()), (be, ("going", "to"))],
        "können": [("can", ()), (be, ("able", "to"))],
        "sollen": [("should", ()), (be, ("supposed", "to"))],
        "dürfen": [("may", ()), (be, ("allowed", "to"))],
    }
    if tense == "müssen":
        return [
            Wording(("must",), "base", (("must", (), "base"),)),
            Wording((have, "to"), "base", ((do, ("have", "to"), "base"),)),
        ]
    if tense == "wollen":
        return [Wording((want, "to"), "base", ((do, ("want", "to"), "base"),))]
    return [Wording((first, *rest), "base", ((first, rest, "base"),)) for first, rest in table[tense]]


def negated_group(tense: str, agreement: str) -> list[Wording]:
    """English verb groups of a negated clause, full and contracted; there are no negated questions."""
    third = agreement == "3sg"
    do, have, be = ("does" if third else "do"), ("has" if third else "have"), BE[agreement]
    if tense == "present":
        groups = [((do, "not"), "base"), ((do + "n't",), "base"), ((be, "not"), "ing")]
    elif tense == "perfect":
        groups = [((a, "not"), f) for a, f in (("did", "base"), (have, "pp"))]
        groups += [((a + "n't",), f) for a, f in (("did", "base"), (have, "pp"))]
    else:
        groups = [(("cannot",), "base"), (("can't",), "base"), ((be, "not", "able", "to"), "base")]
    return [Wording(auxiliaries, form, ()) for auxiliaries, form in groups]


def _english(
    groups: list[Wording], adverbial: Adverbial, phrases: Callable[[str], list[Pattern]]
) -> dict[str, list[tuple]]:
    """English forms of a clause whose slot 0 is the subject; `phrases(form)` gives verb phrases as patterns."""
    forms: dict[str, list[tuple]] = {"stmt": [], "sub": [], "q": []}
    time = ((1, ""),) if adverbial.slots else ()
    for place, spoken in adverbial.english:
        item = tuple(spoken) or time
        first, middle, last = (item if place == slot else () for slot in ("first", "mid", "last"))
        for group in groups:
            aux = (*group.auxiliaries[:1], *middle, *group.auxiliaries[1:])
            for phrase in phrases(group.form):
                statement = (*first, (0, ""), *aux, *phrase, *last)
                forms["stmt"].append(statement)
                if not first:
                    forms["sub"].append(statement)
            for auxiliary, rest, form in () if first else group.question:
                forms["q"] += [(auxiliary, (0, ""), *middle, *rest, *phrase, *last) for phrase in phrases(form)]
    return forms


def clause(
    symbol: Symbol,
    subject: Symbol,
    adverbial: Adverbial,
    finite: str,
    phrase: Symbol | Verb,
    ending: tuple[str, str | None],
    groups: list[Wording],
    weight: float,
    late: bool = True,
) -> Rule:
    """A clause rule: subject, German finite word, `phrase` (a symbol, or a verb alone) and the forms of its end.

    `ending` is (form of the phrase after a second finite verb, form in a final one or None to put `finite` last).
    `late` False leaves out the verb-final form.
    """
    slots = [subject, *adverbial.slots]
    time = ((1, ""),) if adverbial.slots else adverbial.german
    rest: Pattern
    final: Pattern | None
    if isinstance(phrase, Verb):
        rest, final = (), None
        phrases = lambda form: english_verb_phrase(phrase, form, 0, False)  # noqa: E731
    else:
        index = len(slots)
        slots.append(phrase)
        rest = ((index, ending[0]),)
        final = ((index, ending[1]),) if ending[1] else None
        phrases = lambda form: [((index, form),)]  # noqa: E731
    who: Item = (0, "")
    german = {"sv": [(who, finite, *time, *rest)], "inv": [(finite, who, *time, *rest)]}
    if adverbial.fronts:
        german["tf"] = [(*time, finite, who, *rest)]
    if late:
        german["last"] = [(who, *time, *(final or (*rest, finite)))]
    return Rule(symbol, slots, german, _english(groups, adverbial, phrases), weight)


# Kinds of adverbial by tense: (adverbial, its kind for the verb group, share).
def _adverbials(tense: str, subject: str) -> list[tuple[str, Adverbial, str, float]]:
    adverbials: list[tuple[str, Adverbial, str, float]] = [("none", NONE, "none", 1)]
    if tense == "present":
        adverbials += [("adv", _time("habit"), "habit", 1), ("adv", FREQUENCY, "habit", 0.7), ("adv", SOON, "now", 0.6)]
        if subject in ("event", "transport"):
            adverbials = [("none", NONE, "none", 1), ("adv", _time("hour"), "habit", 1)]
    elif tense in ("past", "perfect"):
        adverbials += [("adv", _time("past"), "time", 1)]
        if tense == "perfect":
            adverbials += [("adv", ALREADY, "already", 0.3), ("dated", NONE, "time", 1)]
    elif tense in ("werden", "müssen", "wollen", "sollen"):
        adverbials += [("adv", _time("future"), "time", 1)]
    return adverbials


def adverb_name(adverbial: Adverbial, name: str) -> str:
    """none, time (may open the clause), mid, or dated (none here, but a subordinate clause sets the time)."""
    return name if adverbial is NONE else "time" if adverbial.fronts else "mid"


def _agreements(subject: str, second: bool) -> list[str]:
    if subject != "person":
        return ["3sg", "pl"]
    return ["1sg", "2sg", "3sg", "pl"] if second else ["1sg", "3sg", "pl"]


def _simple_clauses() -> Iterator[Rule]:
    """Present and preterite: one rule a verb, because the finite form and the rest are separate."""
    for verb in VERBS:
        for subject in verb.subjects:
            for tense in ("present", "past"):
                for agreement in _agreements(subject, False):
                    if (agreement, tense, bool(verb.prefix)) == ("1sg", "present", True):
                        # Left out: dozens of rare forms ("aufmache") for little.
                        continue
                    finite = verb.finite(tense, agreement)
                    weight = AGREEMENT_WEIGHTS[agreement] / len(verb.subjects)
                    ending = ("rest", f"last.{tense}.{agreement}")
                    who = ("Subj", subject, agreement)
                    for name, adverbial, sort, share in _adverbials(tense, subject):
                        if name == "adv" and verb.stative:
                            continue
                        groups = verb_group(tense, agreement, sort, verb.stative)
                        # States have symbols of their own: they suit no "before ..." and no reason.
                        symbol = (
                            "Clause",
                            tense,
                            "state" if verb.stative and verb.frame != "zu" else adverb_name(adverbial, name),
                        )
                        arguments = (symbol, who, adverbial, finite)
                        for phrase in _phrases_after_finite(verb):
                            yield clause(*arguments, phrase, ending, groups, weight * share)
                    if agreement == "3sg" and verb in verbs_with("pron"):
                        groups = verb_group(tense, agreement, "none", verb.stative)
                        phrase = ("VP1", verb.name, "pron")
                        symbol = ("Clause", tense, "state" if verb.stative else "none")
                        yield clause(symbol, who, NONE, finite, phrase, ending, groups, weight / 4)
                    if tense == "present" and verb in verbs_with("neg") and subject == "person" and not verb.stative:
                        groups = negated_group(tense, agreement)
                        phrase = ("VP1", verb.name, "neg")
                        yield clause(("Clause", "neg"), who, NONE, finite, phrase, ending, groups, weight / 10)


def _phrases_after_finite(verb: Verb) -> list:
    """Phrases after the finite verb of a simple tense; the verb itself where nothing follows it."""
    if verb.frame == "zu":
        return [("VP1", verb.name, "zu")]
    if verb.frame == "none" and not verb.prefix:
        return [verb, *([("VP1", verb.name, "place")] if verb.place else [])]
    return [("VP1", verb.name, "full")]


def _compound_clauses() -> Iterator[Rule]:
    """Perfect, pluperfect, future and modal verbs: the verb phrase is closed and comes after the finite word."""
    for subject in ("person", "animal", "event", "transport"):
        for auxiliary in ("haben", "sein"):
            past = "hatten" if auxiliary == "haben" else "waren"
            tenses = [("perfect", auxiliary, "part"), ("pluperfect", past, "part")]
            tenses += [(word, word, "inf") for word in ("werden", *_MODALS[: 5 if subject == "person" else 0])]
            for tense, word, form in tenses:
                for flavour in ("full", "zu", "pron", "neg"):
                    verbs = [
                        verb
                        for verb in verbs_with(flavour)
                        if verb.auxiliary == auxiliary
                        and subject in verb.subjects
                        and (not verb.stative or flavour == "zu")
                    ]
                    if flavour == "neg" and (subject != "person" or tense not in ("perfect", "können")):
                        continue
                    if verbs and not (flavour == "zu" and tense not in ("perfect", "werden")):
                        yield from _compound(subject, auxiliary, tense, word, form, flavour, len(verbs))


def _compound(
    subject: str, auxiliary: str, tense: str, word: str, form: str, flavour: str, weight: float
) -> Iterator[Rule]:
    phrase = ("VP", subject, auxiliary, flavour)
    family = "modal" if tense in _MODALS else "future" if tense == "werden" else tense
    for agreement, finite in zip(AGREEMENT_WEIGHTS, FINITE[word].split(), strict=True):
        if agreement not in (["3sg"] if flavour == "pron" else _agreements(subject, True)):
            continue
        who = ("Subj", subject, agreement)
        share = weight * AGREEMENT_WEIGHTS[agreement] * {"full": 1, "zu": 1, "pron": 0.4, "neg": 0.2}[flavour]
        if flavour == "neg":
            groups = negated_group(tense, agreement)
            yield clause(("Clause", "neg"), who, NONE, finite, phrase, (form, None), groups, share)
            continue
        for name, adverbial, sort, part in _adverbials(tense, subject):
            if flavour == "pron" and name != "none":
                continue
            # A participle before its own zu-clause would need another verb-final order.
            place = adverb_name(adverbial, name)
            symbol = ("Clause", family, place, "zu") if flavour == "zu" else ("Clause", family, place)
            groups = verb_group(tense, agreement, sort)
            late = flavour != "zu"
            yield clause(symbol, who, adverbial, finite, phrase, (form, None), groups, share * part, late)


def _states() -> Iterator[Rule]:
    """Copula clauses, symbol (Mood, tense), and weather: together (State, tense)."""
    for tense, word, be in (("present", "sein", BE), ("past", "waren", WAS)):
        for agreement, finite in zip(AGREEMENT_WEIGHTS, FINITE[word].split(), strict=True):
            be_form = be[agreement]
            german: dict[str, list[Pattern]] = {"sv": [((0, ""), finite, (1, ""))], "inv": [(finite, (0, ""), (1, ""))]}
            german["last"] = [((0, ""), (1, ""), finite)]
            statement: list[Pattern] = [((0, ""), be_form, (1, ""))]
            question: list[Pattern] = [(be_form, (0, ""), (1, ""))]
            english = {"stmt": statement, "sub": statement, "q": question}
            slots = (("Subj", "person", agreement), "State")
            yield Rule(("Mood", tense), slots, german, english, AGREEMENT_WEIGHTS[agreement])
        yield unit(("State", tense), ("Mood", tense), 9)
        for finite, simple, running in _WEATHER[tense]:
            english = {"sub": [("it", simple), ("it", be["3sg"], running)]}
            yield Rule(("State", tense), (), {"last": [("es", finite)]}, english, 2)
    for state, translations in _STATES.items():
        yield words("State", [state], [[word] for word in translations.split("/")])


def _subjects() -> Iterator[Rule]:
    for agreement, german, english in (("1sg", "ich", "I"), ("2sg", "du", "you")):
        yield words(("Subj", "person", agreement), [german], [[english]])
    for number, agreement in (("sg", "3sg"), ("pl", "pl")):
        for kind in ("kin", "pro", "folk", "animal", "event", "transport"):
            subject = "person" if kind in PERSONS else kind
            yield unit(("Subj", subject, agreement), ("NP", "nom", number, kind), 3 if kind == "pro" else 2)
    yield unit(("Subj", "person", "3sg"), "Name", 1)
    pronouns = (("3sg", "er", "he"), ("3sg", "sie", "she"), ("pl", "sie", "they"), ("pl", "wir", "we"))
    for agreement, german, english in pronouns:
        yield words(("Subj", "person", agreement), [german], [[english]], 0.4)
    joined = {"": [((0, ""), "und", (1, ""))]}, {"": [((0, ""), "and", (1, ""))]}
    for second in (("DP", "mein", "nom", "sg", "kin"), ("DP", "unser", "nom", "sg", "kin"), "Name"):
        yield Rule(("Subj", "person", "pl"), (("DP", "def", "nom", "sg", "pro"), second), *joined, 0.3)


def _times() -> Iterator[Rule]:
    for kind, text in TIMES.items():
        for german, english in pairs(text):
            yield words(f"Time {kind}", german, english)
    for frequency, translations in MIDDLE.items():
        yield words("Frequency", [frequency], [[word] for word in translations.split("/")])


def clauses() -> Iterator[Rule]:
    """All rules below the sentence."""
    yield from nouns()
    yield from noun_phrases()
    yield from verb_phrases()
    yield from _subjects()
    yield from _times()
    yield from _states()
    yield from _simple_clauses()
    yield from _compound_clauses()
    for family in ("present", "past", "perfect", "future", "modal"):
        yield unit(("Clause", family, "adv"), ("Clause", family, "time"), 2)
        if family in ("present", "perfect"):
            yield unit(("Clause", family, "adv"), ("Clause", family, "mid"), 1)
