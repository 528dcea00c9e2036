"""Synchronous grammar rules, sampled derivations and packed parse forests: the engine under the toy corpus.

A rule rewrites one symbol into *slots* (child symbols) and says how they are spoken on either side. A symbol may have
several *forms* on a side (German: the participle or the infinitive of one verb phrase; English: "bought" or "buy"), and
a form has one or more *patterns*, sequences of words and (slot, form) pairs. Every pattern uses every slot exactly once
and is never empty, so that the same grammar parses either side. A sentence is parsed into a forest that unites all
its analyses; the other side of the forest is the set of its translations.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

Symbol = Hashable
Item = str | tuple[int, str]
Pattern = tuple[Item, ...]
DE, EN = 0, 1
# A symbol and its form.
_Key = tuple[Symbol, str]


class Rule(NamedTuple):
    """One rule: symbol, slots, patterns of either side (`{form: [pattern, ...]}`), weight when sampling.

    `passes` marks a rule with one slot whose forms are those of the slot. `head` is the lemma that stands for the
    constituent, or the slot that gives it; `link` names two heads (a lemma or a slot each) that make a *combination*,
    such as a verb and its object.
    """

    symbol: Symbol
    slots: Sequence[Symbol]
    german: Mapping[str, Sequence[Pattern]]
    english: Mapping[str, Sequence[Pattern]]
    weight: float = 1.0
    head: str | int | None = None
    link: tuple[str | int, str | int] | None = None
    passes: bool = False

    def patterns(self, side: int, form: str) -> Sequence[Pattern]:
        return (((0, form),),) if self.passes else (self.german, self.english)[side].get(form, ())


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A packed node: every analysis (rule, children) of one stretch of text as one symbol and form."""

    options: list[tuple[Rule, tuple[Node, ...]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False)
class _Trie:
    """Patterns of one (symbol, form), sharing their beginnings."""

    words: dict[str, _Trie] = dataclasses.field(default_factory=dict)
    children: dict[_Key, _Trie] = dataclasses.field(default_factory=dict)
    # Children that a word can begin, computed at their first use.
    begun: dict[str, list[tuple[_Key, _Trie]]] = dataclasses.field(default_factory=dict)
    # (rule, order): order[k] is the slot of the k-th child in the pattern.
    accepts: list[tuple[Rule, tuple[int, ...]]] = dataclasses.field(default_factory=list)


class Grammar:
    """Rules by symbol, with a sampler and a memoising left-to-right parser for either side."""

    def __init__(self, rules: Iterable[Rule], start: Symbol):
        self.start = start
        self.rules: dict[Symbol, list[Rule]] = {}
        for rule in rules:
            self.rules.setdefault(rule.symbol, []).append(rule)
        self._tries: tuple[dict, dict] = ({}, {})
        self._firsts: tuple[dict, dict] = ({}, {})

    def sample(self, random_: random.Random, rules: Sequence[Rule]) -> Node:
        """A random derivation that begins with one of `rules`, as a node with one option everywhere."""
        rule = random_.choices(rules, [rule.weight for rule in rules])[0]
        return Node([(rule, tuple(self.sample(random_, self.rules[slot]) for slot in rule.slots))])

    def parse(self, side: int, tokens: Sequence[str]) -> Node | None:
        """The forest of all analyses of `tokens` as a whole sentence; None when there is none."""
        return self._spans(side, tokens, (self.start, ""), 0, {}).get(len(tokens))

    def _spans(
        self, side: int, tokens: Sequence[str], key: _Key, begin: int, memo: dict[tuple[_Key, int], dict[int, Node]]
    ) -> dict[int, Node]:
        """Nodes of (symbol, form) that begin at `begin`, by their end."""
        place = (key, begin)
        if place in memo:
            return memo[place]
        nodes_by_end: dict[int, Node] = {}
        states: list[tuple[_Trie, int, tuple[Node, ...]]] = [(self._trie(side, key), begin, ())]
        while states:
            trie, position, children = states.pop()
            for rule, order in trie.accepts:
                slots = tuple(children[order.index(slot)] for slot in range(len(order)))
                nodes_by_end.setdefault(position, Node()).options.append((rule, slots))
            if position == len(tokens):
                continue
            word = tokens[position]
            if word in trie.words:
                states.append((trie.words[word], position + 1, children))
            if word not in trie.begun:
                trie.begun[word] = [pair for pair in trie.children.items() if word in self._first(side, pair[0])]
            for child, following in trie.begun[word]:
                for end, node in self._spans(side, tokens, child, position, memo).items():
                    states.append((following, end, (*children, node)))
        memo[place] = nodes_by_end
        return nodes_by_end

    def _trie(self, side: int, key: _Key) -> _Trie:
        tries = self._tries[side]
        if key not in tries:
            symbol, form = key
            root = tries[key] = _Trie()
            for rule in self.rules[symbol]:
                for pattern in rule.patterns(side, form):
                    trie = root
                    for item in pattern:
                        if isinstance(item, str):
                            trie = trie.words.setdefault(item, _Trie())
                        else:
                            trie = trie.children.setdefault((rule.slots[item[0]], item[1]), _Trie())
                    trie.accepts.append((rule, tuple(item[0] for item in pattern if not isinstance(item, str))))
        return tries[key]

    def _first(self, side: int, key: _Key) -> frozenset[str]:
        firsts = self._firsts[side]
        if key not in firsts:
            trie = self._trie(side, key)
            words = set(trie.words)
            firsts[key] = frozenset(words.union(*(self._first(side, child) for child in trie.children)))
        return firsts[key]


def choose(node: Node, side: int, form: str, random_: random.Random) -> list[str]:
    """One wording of a derivation, each pattern chosen uniformly."""
    rule, children = node.options[0]
    words: list[str] = []
    for item in random_.choice(rule.patterns(side, form)):
        words += [item] if isinstance(item, str) else choose(children[item[0]], side, item[1], random_)
    return words


def count(node: Node, side: int, form: str) -> int:
    """Wordings of a forest on a side, equal ones of different analyses counted apart (so an upper bound)."""
    total = 0
    for rule, children in node.options:
        for pattern in rule.patterns(side, form):
            product = 1
            for item in pattern:
                if not isinstance(item, str):
                    product *= count(children[item[0]], side, item[1])
            total += product
    return total


def wordings(node: Node, side: int, form: str) -> set[tuple[str, ...]]:
    token_sequences: set[tuple[str, ...]] = set()
    for rule, children in node.options:
        for pattern in rule.patterns(side, form):
            partial: set[tuple[str, ...]] = {()}
            for item in pattern:
                tails = {(item,)} if isinstance(item, str) else wordings(children[item[0]], side, item[1])
                partial = {words + tail for words in partial for tail in tails}
            token_sequences |= partial
    return token_sequences


def recognise(node: Node, side: int, tokens: Sequence[str]) -> bool:
    """True for `tokens` that are a wording of the forest, in time that does not grow with the number of wordings."""
    memo: dict[tuple[int, str, int], frozenset[int]] = {}

    def ends(node: Node, form: str, begin: int) -> frozenset[int]:
        place = (id(node), form, begin)
        if place not in memo:
            ending: set[int] = set()
            for rule, children in node.options:
                for pattern in rule.patterns(side, form):
                    reached = {begin}
                    for item in pattern:
                        if isinstance(item, str):
                            reached = {i + 1 for i in reached if i < len(tokens) and tokens[i] == item}
                        else:
                            reached = {end for i in reached for end in ends(children[item[0]], item[1], i)}
                        if not reached:
                            break
                    ending |= reached
            memo[place] = frozenset(ending)
        return memo[place]

    return len(tokens) in ends(node, "", 0)


def combinations(node: Node) -> set[tuple[str, str]]:
    """Pairs of lemmas that the links of all analyses make: (verb, object noun), (adjective, noun)."""
    pairs: set[tuple[str, str]] = set()

    def visit(node: Node) -> frozenset[str]:
        heads: set[str] = set()
        for rule, children in node.options:
            below = [visit(child) for child in children]
            heads_of = lambda head, below=below: {head} if isinstance(head, str) else below[head]  # noqa: E731
            if rule.link is not None:
                pairs.update((first, second) for first in heads_of(rule.link[0]) for second in heads_of(rule.link[1]))
            if rule.head is not None:
                heads |= heads_of(rule.head)
        return frozenset(heads)

    visit(node)
    return pairs
