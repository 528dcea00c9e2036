"""The embedded `toy` corpus: German-English pairs of a synchronous grammar that gives every valid translation.

    python -m workflow_src.data.toy.grammar --show 20 --seed 7

prints random pairs with the number of their valid translations. docs/toy.md explains the grammar. The rules are in
sentences.py, clauses.py, phrases.py (noun and verb phrases) and lexicon.py (words).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import random
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from workflow_src.data.toy import Settings, forest
from workflow_src.data.toy.forest import DE, EN, Node
from workflow_src.data.toy.lexicon import NOUNS
from workflow_src.data.toy.sentences import SENTENCES, grammar
from workflow_src.errors import ConfigError
from workflow_src.spec import parse

SPLITS = ("train", "dev", "test")
DIRECTIONS = {"de-en": (DE, EN), "en-de": (EN, DE)}
MIN_WORDS = 4
MAX_WORDS = 25
MAX_TRANSLATIONS = 256
# No combination of these shares of all (verb, object) and (adjective, noun) pairs is in train;
# at least HELD_OUT_SENTENCES of dev and test have one.
HELD_OUT_COMBINATIONS, HELD_OUT_SENTENCES = 0.06, 0.4
_MAX_LISTED = 20000
_DRINKS = {noun.lemma for noun in NOUNS if noun.kind == "drink"}


def _text(tokens: list[str] | tuple[str, ...]) -> str:
    """Words to a sentence: punctuation attached, `a` or `an`, first letter capital."""
    words: list[str] = []
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        if token in (",", ".", "?"):
            words[-1] += token
        elif token == "a(n)":
            words.append("an" if following[:1] in "aeiou" else "a")
        else:
            words.append(token)
    sentence = " ".join(words)
    return sentence[:1].upper() + sentence[1:]


def _tokens(sentence: str, side: int) -> list[list[str]]:
    """Possible token sequences of a sentence, first letter capital or not; none when its writing is not exact."""
    tokens: list[str] = []
    for word in sentence.split(" "):
        bare = word.rstrip(",.?")
        article = side == EN and bare in ("a", "an", "A", "An")
        tokens += ["a(n)" if article else bare, *word[len(bare) :]]
    readings = [[tokens[0][:1].lower() + tokens[0][1:], *tokens[1:]], tokens]
    return [reading for reading in readings if all(reading) and _text(reading) == sentence]


@functools.lru_cache(maxsize=8192)
def _parse(sentence: str, side: int) -> Node | None:
    options = [
        option
        for tokens in _tokens(sentence, side)
        if (node := grammar().parse(side, tokens))
        for option in node.options
    ]
    return Node(options) if options else None


class ToyGrammar:
    """The oracle in one direction, "de-en" or "en-de"."""

    def __init__(self, direction: str = "de-en"):
        if direction not in DIRECTIONS:
            raise ConfigError("direction", direction, allowed=DIRECTIONS)
        self._source, self._target = DIRECTIONS[direction]

    def translations(self, source: str) -> set[str]:
        """All valid translations of `source`.

        Raises InputError when the sentence is not in the grammar, or has more translations than can be listed.
        """
        return {_text(tokens) for tokens in forest.wordings(self._forest(source, True), self._target, "")}

    def is_valid(self, source: str, target: str) -> bool:
        """True for a valid translation `target` of `source`, to the letter (spaces around it do not matter).

        Raises InputError when `source` is not in the grammar. Does not list translations, so its time is bounded.
        """
        node = self._forest(source)
        return any(forest.recognise(node, self._target, tokens) for tokens in _tokens(target.strip(), self._target))

    def held_out(self, source: str) -> set[tuple[str, str]]:
        """Held-out combinations in `source`: (verb, object) and (adjective, noun), as German lemmas or stems."""
        return {pair for pair in forest.combinations(self._forest(source)) if is_held_out(pair)}

    def _forest(self, source: str, listed: bool = False) -> Node:
        node = _parse(source.strip(), self._source)
        if node is None:
            raise ConfigError("sentence", source, problem="not of the toy grammar")
        if listed and (number := forest.count(node, self._target, "")) > _MAX_LISTED:
            problem = f"up to {number} translations, and at most {_MAX_LISTED} are listed"
            raise ConfigError("sentence", source, problem=problem, hint="use is_valid")
        return node


@functools.cache
def is_held_out(pair: tuple[str, str]) -> bool:
    """True for a combination that is held out: by a digest of its words, so the same for every seed."""
    if pair[1] in _DRINKS:
        # These have one verb and hardly another adjective of their form, and each word must occur in train.
        return False
    digest = hashlib.sha256("+".join(pair).encode()).digest()
    return int.from_bytes(digest[:4]) < HELD_OUT_COMBINATIONS * 2**32


def _draw(random_: random.Random, kinds: Sequence[str]) -> tuple[str, str, bool]:
    """A random pair of one of `kinds`, within the limits; and whether it has a held-out combination."""
    symbols = {SENTENCES[kind][0] for kind in kinds}
    starts = [rule for rule in grammar().rules[grammar().start] if rule.slots[0] in symbols]
    while True:
        node = grammar().sample(random_, starts)
        if forest.count(node, EN, "") > MAX_TRANSLATIONS:
            continue
        wordings = [forest.choose(node, side, "", random_) for side in (DE, EN)]
        nouns = [word for word in wordings[DE] if word[0].isupper()]
        if len(nouns) != len(set(nouns)):
            # A noun or name that occurs twice makes an odd sentence.
            continue
        german, english = (_text(wording) for wording in wordings)
        if all(MIN_WORDS <= len(text.split()) <= MAX_WORDS for text in (german, english)):
            return german, english, any(is_held_out(pair) for pair in forest.combinations(node))


def generate(settings: Settings | Mapping[str, Any] = MappingProxyType({})) -> dict[str, list[tuple[str, str]]]:
    """Pairs (German, English) of every split, from `{train, dev, test, seed, kinds}`; the same for the same settings.

    No German and no English sentence occurs twice in the corpus. The reference of a pair is one of the valid
    translations, at random. Held-out combinations are in dev and test only. Raises InputError on a bad setting.
    """
    settings = parse(Settings, settings, "generator").model_dump()
    random_ = random.Random(settings["seed"])
    sentences: tuple[set[str], set[str]] = (set(), set())
    corpus: dict[str, list[tuple[str, str]]] = {}
    # Dev and test come first: they do not change with the size of train.
    for split in reversed(SPLITS):
        pairs = corpus[split] = []
        with_held_out = 0 if split == "train" else round(HELD_OUT_SENTENCES * settings[split])
        failures = 0
        while len(pairs) < settings[split]:
            german, english, holds_out = _draw(random_, settings["kinds"])
            fits = holds_out == (len(pairs) < with_held_out)
            if not fits or german in sentences[DE] or english in sentences[EN]:
                failures += 1
                if failures > 1000 + 100 * settings[split]:
                    problem = "the grammar has fewer distinct pairs"
                    raise ConfigError(f"generator.{split}", settings[split], problem=problem, hint="lower it")
                continue
            sentences[DE].add(german)
            sentences[EN].add(english)
            pairs.append((german, english))
        random_.shuffle(pairs)
    return {split: corpus[split] for split in SPLITS}


def main(arguments: list[str] | None = None) -> None:
    """Print random pairs as a Markdown table, with the number of valid translations."""
    parser = argparse.ArgumentParser(prog="python -m workflow_src.data.toy.grammar", description=main.__doc__)
    parser.add_argument("--show", type=int, default=20, help="number of pairs")
    parser.add_argument("--seed", type=int, default=7, help="seed of the pairs")
    options = parser.parse_args(arguments)
    try:
        pairs = generate({"train": options.show, "dev": 1, "test": 1, "seed": options.seed})["train"]
    except ConfigError as failure:
        sys.exit(f"error: {failure}")
    oracle = ToyGrammar()
    print("| German | English | valid |\n|---|---|---|")
    for german, english in pairs:
        print(f"| {german} | {english} | {len(oracle.translations(german))} |")


if __name__ == "__main__":
    main()
