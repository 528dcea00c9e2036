"""Splitting by connected groups: nothing leaks, and the draws are those that published figures were measured with."""

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.config.datasets import DatasetConfig, Split
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.splits import Groups, connected_groups, key
from workflow_src.records.atomic import ArtifactError

SETTINGS = Split(method="connected-groups", dev=20, test=30, largest_group=4)


def corpus(seed: int, count: int = 600) -> list[tuple[str, str]]:
    """Pairs whose sentences repeat, on either side, also with other case and punctuation."""
    draw = random.Random(seed)
    ends = ["", ".", "!", " ?"]
    return [
        (f"Satz {draw.randrange(count)}" + draw.choice(ends), f"SENTENCE {draw.randrange(count)}" + draw.choice(ends))
        for _ in range(count)
    ]


@given(st.integers(0, 10_000))
def test_no_sentence_of_dev_or_test_is_in_another_split(seed):
    pairs = corpus(seed)
    made = connected_groups(pairs, SETTINGS)
    assert (len(made["dev"]), len(made["test"])) == (20, 30)
    for side in (0, 1):
        seen = {name: {key(pair[side]) for pair in rows} for name, rows in made.items()}
        assert not seen["dev"] & seen["test"] and not seen["train"] & (seen["dev"] | seen["test"])
    rows = [row for part in made.values() for row in part]
    assert set(rows) <= set(pairs)
    assert len({first for first, _ in rows}) == len(rows)


def test_the_split_is_the_one_that_figures_were_measured_on():
    # Digest of the rows of an independent script with the same rules, on the same pairs.
    made = connected_groups(corpus(7), SETTINGS)
    text = "\n".join(f"{name}\t{a}\t{b}" for name in ("dev", "test", "train") for a, b in made[name])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "79782acacf573d0699ba5eb7079d74a4566dbfbb15e1582fffc0e86772fc99c0"
    )


def test_the_split_is_the_same_in_both_directions(tmp_path):
    table = tmp_path / "t.tsv"
    table.write_text("".join(f"{b}\t{a}\n" for a, b in corpus(3)))
    settings = DatasetConfig.model_validate({
        "name": "x", "languages": ["en", "de"], "train": [{"table": str(table), "columns": {"en": 0, "de": 1}}],
        "split": SETTINGS.model_dump() | {"key_language": "de"},
    })  # fmt: skip
    made = []
    for languages in (("de", "en"), ("en", "de")):
        with RawCorpus(settings, languages, lambda name: name) as raw:
            made.append({split: list(pairs) for split, pairs in raw.splits()})
    assert made[0] == {split: [(b, a) for a, b in pairs] for split, pairs in made[1].items()}
    assert made[0] == connected_groups(corpus(3), SETTINGS)


def test_another_seed_gives_another_split():
    other = SETTINGS.model_copy(update={"seed": 2})
    assert connected_groups(corpus(1), SETTINGS) != connected_groups(corpus(1), other)


def test_large_groups_stay_in_train():
    pairs = [(f"eins {n}", "one") for n in range(10)] + [(f"s {n}", f"t {n}") for n in range(100)]
    made = connected_groups(pairs, SETTINGS)
    assert sum(target == "one" for _, target in made["train"]) == 10


def test_too_small_a_corpus_is_told():
    with pytest.raises(ArtifactError, match="40 pairs in 40 groups .* too few for 20 dev and 30 test pairs"):
        connected_groups([(f"s {n}", f"t {n}") for n in range(40)], SETTINGS)


def test_keys_ignore_case_and_punctuation():
    assert key("Straße, ja!") == key("STRASSE ja") == "strasseja"
    assert key("?!") == "?!"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=40))
def test_groups_are_the_connected_components(edges):
    groups, components = Groups(), {n: {n} for n in range(21)}
    for a, b in edges:
        groups.join(str(a), str(b))
        joined = components[a] | components[b]
        for n in joined:
            components[n] = joined
    for a in range(21):
        assert {b for b in range(21) if groups.find(str(b)) == groups.find(str(a))} == components[a]
