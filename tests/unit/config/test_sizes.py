"""Sizes that follow the corpus: known points, growth, bounds, and what rules are handed."""

from __future__ import annotations

import gzip
import json
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from workflow_src.cli.sizes import numbered, sizes
from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.costs import Sizes, sized
from workflow_src.config.preparation import SubwordsConfig
from workflow_src.config.resources import Requests
from workflow_src.config.sizes import AutoStepsConfig, vocabulary_size
from workflow_src.config.training import TrainingConfig
from workflow_src.data.corpus import monolingual_lines
from workflow_src.data.subwords import learn
from workflow_src.errors import ArtifactError

COUNTS = st.integers(1, 10**10)


@pytest.mark.parametrize(
    ("pairs", "size"),
    [
        *((1, 500), (2_500, 500), (10_000, 1_000), (14_400, 1_200), (160_000, 4_000), (1_000_000, 10_000)),
        *((4_840_000, 22_000), (10_240_000, 32_000), (10**9, 32_000)),
    ],
)
def test_subwords_are_ten_times_the_root_of_the_pairs(pairs, size):
    assert vocabulary_size(pairs) == size


@pytest.mark.parametrize(
    ("method", "characters", "size"),
    [
        *(("sentencepiece", 200, 1_000), ("sentencepiece", 201, 1_001), ("sentencepiece", 2_000, 2_800)),
        # Each character twice: within a word and at its end.
        *(("subword-nmt", 100, 1_000), ("subword-nmt", 101, 1_002), ("subword-nmt", 2_000, 4_800)),
    ],
)
def test_characters_beyond_those_of_alphabets_come_on_top(method, characters, size):
    settings = SubwordsConfig(method=method, model="bpe", vocabulary_size="auto")
    assert settings.sized(10_000, characters).size == size


@pytest.mark.parametrize(
    ("tokens", "updates"),
    # 160 million tokens are seen once, a hundredth of them ten times, a ten thousandth a hundred times.
    [(10, 500), (16_000, 800), (1_600_000, 8_000), (160_000_000, 80_000), (10**10, 100_000)],
)
def test_updates_by_target_tokens(tokens, updates):
    assert AutoStepsConfig().updates(tokens, batch_tokens=2000) == updates


@given(COUNTS, COUNTS)
def test_a_larger_corpus_has_no_less_of_anything(one, other):
    small, large = sorted((one, other))
    assert vocabulary_size(small) <= vocabulary_size(large)
    assert AutoStepsConfig().updates(small, 2000) <= AutoStepsConfig().updates(large, 2000)
    assert 500 <= AutoStepsConfig().updates(one, 2000) <= 100_000
    assert 500 <= vocabulary_size(one) <= 32_000 and vocabulary_size(one) % 100 == 0


@given(st.integers(10**5, 10**8))
def test_four_times_the_text_is_twice_the_work_and_half_the_epochs(tokens):
    once, larger = (AutoStepsConfig(at_most=10**6).updates(count, 2000) for count in (tokens, 4 * tokens))
    assert abs(larger - 2 * once) <= 2


@given(COUNTS, st.integers(1, 10**5))
def test_larger_batches_see_as_many_tokens(tokens, batch_tokens):
    free = AutoStepsConfig(at_least=1, at_most=10**12)
    seen_tokens = math.sqrt(tokens * 160_000_000)
    assert seen_tokens <= free.updates(tokens, batch_tokens) * batch_tokens * (1 + 1e-9)
    assert (free.updates(tokens, batch_tokens) - 1) * batch_tokens < seen_tokens or seen_tokens <= batch_tokens


def test_epochs_and_bounds_of_ones_own():
    assert AutoStepsConfig(epochs=20).updates(100_000, 2000) == 1000
    assert AutoStepsConfig(epochs="none") == AutoStepsConfig()
    # As many as are named, however small or large the text is.
    assert AutoStepsConfig(epochs=2).updates(20_000, 2000) == 20
    assert AutoStepsConfig(epochs=15).updates(155_000_000, 16_000) == 145_313
    # Batches have fewer target tokens than fit where sources are longer.
    assert AutoStepsConfig(epochs=20).updates(100_000, 2000, batches=90) == 1800
    assert AutoStepsConfig(epochs=20, at_most=700).updates(100_000, 2000) == 700
    assert AutoStepsConfig(epochs=0.5, at_least=30).updates(100_000, 2000) == 30


def test_what_is_tied_to_the_updates():
    auto = {"max_steps": "auto", "warmup_steps": "auto", "validate_every": "auto", "save_every": "auto"}
    sized = TrainingConfig.model_validate(auto).sized(1_600_000)
    assert (sized.max_steps, sized.warmup_steps, sized.validate_every, sized.save_every) == (8000, 400, 800, 400)
    long = TrainingConfig.model_validate(auto | {"max_steps": 300_000}).sized(1)
    assert (long.max_steps, long.warmup_steps, long.validate_every, long.save_every) == (300_000, 4000, 30_000, 1000)
    short = TrainingConfig.model_validate(auto | {"max_steps": 7}).sized(1)
    assert (short.warmup_steps, short.validate_every, short.save_every) == (0, 1, 1)
    settings = {"max_steps": "auto", "warmup_steps": 3, "validate_every": 5, "save_every": 9}
    sized = TrainingConfig.model_validate(settings).sized(1_600_000)
    assert (sized.warmup_steps, sized.validate_every, sized.save_every) == (3, 5, 9)
    # Numbers are settings of their own: nothing is left to size.
    assert sized.sized(10**9) == sized == TrainingConfig.model_validate(sized.model_dump())


@pytest.mark.parametrize("unchanged", [0, 900])
def test_a_number_of_updates_stays(unchanged):
    assert TrainingConfig(max_steps=unchanged).sized(10**9).max_steps == unchanged


@pytest.mark.parametrize(
    ("setting", "value", "place", "fields"),
    [
        ("max_steps", "atuo", "", {}),
        ("max_steps", -1, "", {"value": -1}),
        ("max_steps", 2.5, "", {"value": 2.5}),
        ("max_steps", True, "", {"value": True}),
        ("max_steps", {"epoch": 3}, ".epoch", {"nearest": "epochs"}),
        ("max_steps", {"epochs": 0}, ".epochs", {"value": 0}),
        ("max_steps", {"at_least": 9, "at_most": 5}, ".at_least", {"value": 9}),
        ("validate_every", "often", "", {}),
        ("validate_every", 0, "", {"value": 0}),
        ("save_every", 0, "", {"value": 0}),
        ("warmup_steps", -1, "", {"value": -1}),
    ],
)
def test_other_values_are_refused(setting, value, place, fields):
    with refuses(setting=f"systems.teacher.training.{setting}{place}", **fields):
        load_experiment("smoke", systems={"teacher": {"training": {setting: value}}})


def test_rules_are_handed_what_the_sizes_follow_from_and_no_size():
    """Before the corpus is encoded no size is known, so that none may be a reason to run a job again."""
    plan = Plan(load_experiment("recommended"))
    assert json.loads(plan.settings_subwords())["vocabulary_size"] == "auto"
    training = json.loads(plan.settings_training("teacher"))["training"]
    assert training["max_steps"] == {"epochs": None, "at_least": 500, "at_most": 100_000}
    assert training["warmup_steps"] == training["validate_every"] == "auto"
    systems = {"teacher": {"training": {"max_steps": {"epochs": 12}}}}
    other = Plan(load_experiment("recommended", systems=systems))
    assert other.settings_training("teacher") != plan.settings_training("teacher")


def plan_of_own_texts(**more) -> Plan:
    """A plan of one teacher on files of the user's, with `more` in the recipe."""
    parts = {code: [{"texts": {"de": f"{code}.de", "en": f"{code}.en"}}] for code in ("train", "dev", "test")}
    dataset = {"name": "own", "languages": ["de", "en"], **parts}
    recipe = {"name": "own", "dataset": dataset, "source": "de", "target": "en"}
    systems = {"teacher": {"family": "transformer", "preset": "tiny", "training": {"max_steps": 1}}}
    decodes = [{"system": "teacher", "search": "greedy"}]
    return Plan(load({"experiment": "own", "recipe": recipe | more, "systems": systems, "decodes": decodes}))


def test_of_copied_subwords_only_stated_settings_are_handed_over():
    settings = {"joint": False, "vocabulary_size": 700}

    def subword_settings(**more) -> dict[str, object]:
        return json.loads(plan_of_own_texts(**more).settings_subwords())

    assert subword_settings(subwords_from="elsewhere") == {}
    assert subword_settings(subwords_from="elsewhere", subwords=settings) == settings
    assert subword_settings(subwords=settings).keys() == SubwordsConfig.model_fields.keys()


def test_estimates_count_the_copied_subwords(tmp_path):
    def estimated() -> SubwordsConfig:
        return sized(plan_of_own_texts(subwords_from=str(tmp_path)), Sizes(pairs=1000, length=10)).recipe.subwords

    assert estimated() == SubwordsConfig()  # nothing to read yet
    # As a recipe with placeholders learns them, whose vocabulary_size is auto.
    texts = [tmp_path / "a", tmp_path / "b"]
    for path in texts:
        path.write_text("a b c d e f g\n" * 40)
    for kind in ({"model": "bpe", "joint": False}, {"joint": True}):
        settings = SubwordsConfig(vocabulary_size=50, **kind)
        learned = learn(
            settings.model_copy(update={"vocabulary_size": "auto"}), *texts, tmp_path, placeholders=["tags"]
        )
        assert estimated() == settings.model_copy(update={"vocabulary_size": learned.source_size})
    (tmp_path / "subwords.json").write_text("{}")
    assert estimated() == SubwordsConfig()


def test_a_larger_corpus_asks_for_more_time_and_memory():
    def needed(pairs: int) -> tuple[float, float]:
        plan = Plan(load_experiment("recommended", recipe={"limits": {"train": pairs}}))
        return Requests(plan, gpu=False).need("train_teacher", SimpleNamespace(system="teacher"))

    (memory, minutes), (more_memory, more_minutes) = needed(10_000), needed(100_000)
    assert more_minutes > minutes > 0 and more_memory > memory > 0


def test_monolingual_text_counts_by_its_own_lines(tmp_path, monkeypatch):
    """In the steps of a mixture, in estimates, and in requests of a job: one number, of the user's own file."""
    monkeypatch.chdir(tmp_path)
    text, name = tmp_path / "news.de", "ctc"
    mixture = {"raw": 1, "monolingual-by-teacher": 0.5}
    systems = {name: {"data": mixture, "training": {"max_steps": {"epochs": 2, "at_least": 1, "at_most": 10**9}}}}
    recipe = {"monolingual": [{"texts": {"de": text.name}}], "limits": {"train": 600}}
    plan = Plan(load_experiment("smoke", recipe=recipe, systems=systems))

    def minutes(requests: Requests, split: str) -> float:
        return requests.need("distill", SimpleNamespace(teacher="teacher", shards=1, split=split))[1] - 15

    def steps(sized: Plan, length: float, lines: int) -> bool:
        training = sized.system(name).training
        return training.max_steps == math.ceil(2 * (length + 1) * (600 + 0.5 * lines) / training.batch_tokens)

    assert monolingual_lines(plan) is None and sizes(plan, 600).monolingual is None
    for lines in (200, 40_000):
        # As many bytes as requests assume of a line.
        text.write_text("ein Satz, der kurz.\n" * lines)
        assert monolingual_lines(plan) == lines
        assert steps(numbered(plan, sizes(plan, 600, 9)), 9, lines)
        requests = Requests(plan, gpu=False)
        assert steps(requests.plan, requests.sizes.length, lines)
        assert minutes(requests, "monolingual") / minutes(requests, "train") == pytest.approx(lines / 600)
    limited = Plan(load_experiment("smoke", recipe=recipe | {"limits": {"monolingual": 300}}, systems=systems))
    assert monolingual_lines(limited) == Requests(limited, gpu=False).sizes.monolingual == 300
    # Compressed lines cannot be counted at a glance.
    text.write_bytes(gzip.compress(text.read_bytes()))
    assert monolingual_lines(plan) is None and monolingual_lines(limited) == 300
    summary = tmp_path / plan.files.monolingual_summary
    summary.parent.mkdir(parents=True)
    summary.write_text('{"pairs": 7}')
    with pytest.raises(ArtifactError, match=r"monolingual.json .*delete it"):
        monolingual_lines(plan)


def test_recommended_is_small_and_says_each_thing_once():
    loaded = load_experiment("recommended")
    assert len(loaded.systems) <= 4
    assert {decode.engine for decode in loaded.decodes} >= {"ctranslate2", "onnxruntime"}
    assert all(decode.splits == ("dev", "test") for decode in loaded.decodes)
