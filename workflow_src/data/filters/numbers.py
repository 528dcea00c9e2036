"""Leaves out pairs with numbers on one side that the other does not have."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict

from pydantic import Field

from workflow_src.data.characters import each
from workflow_src.spec import Check, Filter, Frozen, Pair, Verdict


class Settings(Frozen):
    min_share: float = Field(1.0, gt=0, le=1, description="of the numbers of the side with more of them")
    written_out: int = Field(
        20, ge=0, description="numbers up to this one need not be on the other side, where they may be words"
    )


# What a number may mean: the digits of its whole part and of its fraction, without zeros that do not count.
Value = tuple[str, str]
# All that it may mean: 1.200 is 1200 in German, and 1.2 in English.
Readings = frozenset[Value]

DIGIT = re.compile(r"\d")
# Decimal places that a sign or word behind a number adds. A billion has 9 or 12, by the language.
SCALES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("K k thousand tausend тыс тысяч тысяча тысячи mil mille 千 천".split(), (3,)),
    **dict.fromkeys("万 萬 만".split(), (4,)),
    **dict.fromkeys("lakh lakhs लाख".split(), (5,)),
    **dict.fromkeys("M million millions mio millionen millón millones milione milioni milhão milhões".split(), (6,)),
    **dict.fromkeys("mln млн миллион миллиона миллионов milyon triệu".split(), (6,)),
    **dict.fromkeys("crore crores करोड़".split(), (7,)),
    **dict.fromkeys("亿 億 억".split(), (8,)),
    **dict.fromkeys("B mrd milliarde milliarden milliard milliards miliardo miliardi bilhão bilhões".split(), (9,)),
    **dict.fromkeys("млрд миллиард миллиарда миллиардов milyar tỷ".split(), (9,)),
    **dict.fromkeys("billion billions billionen bn".split(), (9, 12)),
    **dict.fromkeys("trillion trillions 兆 조".split(), (12,)),
}
# Written without spaces, more words may follow.
_SIGNS = "".join(sorted(name for name in SCALES if len(name) == 1 and name not in "KkMB"))
_WORDS = "|".join(sorted((re.escape(name) for name in SCALES if len(name) > 1), key=len, reverse=True))
# Thousands in groups (in India: of two digits, before the last three); a decimal or an hour, but no part of a date;
# digits. Languages differ in what separates them. Then a sign or a word for thousands, millions and so on.
NUMBER = re.compile(
    rf"""(?:
    (?P<groups>\d{{1,3}}(?:[.,'\u2019\ \u00a0\u202f\u066c]\d{{3}})+|\d{{1,2}}(?:,\d{{2}})+,\d{{3}})(?!\d)
        (?:[.,\u066b](?P<rest>\d+))?
    | (?<!\d[.,:])(?P<whole>\d+)[.,:\u066b](?P<fraction>\d+)(?![.,:]?\d)
    | (?P<digits>\d+)
    )(?:(?P<letter>[KkMB])(?!\w)|[\ \u00a0\u202f]?(?:(?i:(?P<word>{_WORDS}))(?!\w)|(?P<sign>[{_SIGNS}])))?""",
    re.VERBOSE,
)
NO_DIGIT = re.compile(r"\D+")
# Groups that may as well be a whole number and a fraction.
ONE_GROUP = re.compile(r"\d{1,3}[.,]\d{3}")
NOON = 12
TIME = re.compile(r"\s?(?:[Uu]hr|h)\b")


def _value(whole: str, fraction: str = "", zeros: int = 0) -> Value:
    """The value of the digits of a number, times ten to the power of `zeros`."""
    if zeros:
        fraction = fraction.ljust(zeros, "0")
        whole, fraction = whole + fraction[:zeros], fraction[zeros:]
    return whole.lstrip("0"), fraction.rstrip("0")


def readings(match: re.Match[str]) -> Readings:
    """The values that a match of NUMBER may have."""
    number = match.group()
    if number.isascii():
        groups, rest, whole, fraction, digits = match.group("groups", "rest", "whole", "fraction", "digits")
    else:
        groups, rest, whole, fraction, digits = (
            part and "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in part)
            for part in match.group("groups", "rest", "whole", "fraction", "digits")
        )
    if groups:
        parts = [(NO_DIGIT.sub("", groups), rest or "")]
        if rest is None and ONE_GROUP.fullmatch(groups):
            whole, fraction = NO_DIGIT.split(groups)
            parts.append((whole, fraction))
    else:
        parts = [(whole, fraction) if whole else (digits, "")]
    values = [_value(*part) for part in parts]
    if scale := match["letter"] or match["word"] or match["sign"]:
        zeros = SCALES[scale.lower() if match["word"] else scale]
        values += [_value(*part, number) for part in parts for number in zeros]
    is_time = whole and len(fraction) == 2 and (":" in number or TIME.match(match.string, match.end()))
    # Python reads no number of thousands of digits.
    if is_time and len(whole) <= 2 and NOON < int(whole) < 2 * NOON:
        # 20.30 Uhr may be half past eight.
        values.append(_value(str(int(whole) - NOON), fraction))
    return frozenset(values)


def numbers(text: str) -> Counter[Readings]:
    """How often each number stands in a text."""
    return Counter(map(readings, NUMBER.finditer(text)))


def unmatched(first: Counter[Readings], second: Counter[Readings]) -> tuple[list[Readings], list[Readings]]:
    """Numbers of each side without one of the other side that may have the same value."""
    alone, others = list((first - second).elements()), list((second - first).elements())
    places = defaultdict(list)
    for place, number in enumerate(others):
        for value in number:
            places[value].append(place)
    taken: set[int] = set()
    left = []
    for number in sorted(alone, key=len):
        candidates = [place for value in number for place in _last_free(places[value], taken)]
        if candidates:
            taken.add(min(candidates))
        else:
            left.append(number)
    return left, [number for place, number in enumerate(others) if place not in taken]


def _last_free(places: list[int], taken: set[int]) -> list[int]:
    """The last of `places` that is not taken, where there is one; taken ones are removed from their end."""
    while places and places[-1] in taken:
        places.pop()
    return places[-1:]


def check(settings: Settings, _languages: tuple[str, str]) -> Check:
    least, written_out = settings.min_share, settings.written_out

    def may_be_a_word(number: Readings) -> bool:
        return any(not fraction and len(whole) < 10 and int(whole or 0) <= written_out for whole, fraction in number)

    def judge(pair: Pair) -> Verdict:
        source, target, _ = pair
        if not (DIGIT.search(source) or DIGIT.search(target)):
            return None
        first, second = numbers(source), numbers(target)
        if first == second:
            return None
        sides = unmatched(first, second)
        shared = first.total() - len(sides[0])
        most = max(sum(not may_be_a_word(number) for number in side) for side in sides)
        if shared >= least * (shared + most):
            return None
        of_source, of_target = (" ".join(match.group() for match in NUMBER.finditer(side)) for side in (source, target))
        return f"min_share: {of_source or 'none'} in the source, {of_target or 'none'} in the target"

    return each(judge)


FILTER = Filter(name="numbers", title="Numbers", settings=Settings, check=check)
