"""What jobs ask for: against sums by hand, what must grow with what, limits, and retries."""

from __future__ import annotations

import gzip
import math
import random
from types import SimpleNamespace

import pytest
from counted_jobs import jobs

from workflow_src.cli.operations import Operations
from workflow_src.config import Plan, load_experiment
from workflow_src.config.costs import Sizes, most_weights
from workflow_src.config.files import experiment_names
from workflow_src.config.resources import Requests
from workflow_src.config.rules import STAGES, rule_table


def requests_for(experiment: str = "demo", gpu: bool = False, **settings) -> Requests:
    return Requests(Plan(load_experiment(experiment, **settings)), gpu)


def of(requests: Requests, rule: str, attempt: int = 1, **wildcards: str) -> tuple[int, int]:
    """(MB, minutes)."""
    job = SimpleNamespace(**wildcards)
    return tuple(ask(rule, job, attempt) for ask in (requests.memory, requests.minutes))


def test_settings_have_the_names_that_they_have_in_a_configuration():
    distillation = {"teacher": {"beam": 3}}
    plan = Plan(load_experiment("recommended", distillation=distillation))
    table = rule_table(plan)
    settings = {"clean": "clean", "normalise": "normalisation", "learn_subwords": "vocabulary_size"}
    settings |= {"encode": "max_length", "train_teacher": "training", "distill": "beam", "merge_distilled": "beam"}
    stages = {"train_teacher": "train", "distill": "distil", "merge_distilled": "distil"}
    for rule, setting in settings.items():
        value = plan.loaded.config
        for name in (*table[rule].settings.format(system="teacher", teacher="teacher").split("."), setting):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
        assert value is not None and table[rule].stage == stages.get(rule, "data")


def test_a_rule_that_a_user_adds_asks_for_all_systems_at_once():
    requests = requests_for()
    weights = sum(4 * most_weights(s.family, s.model, 1000) / 1e6 for s in requests.plan.loaded.systems.values())
    megabytes, minutes = of(requests, "a_rule_of_mine")
    assert megabytes > 5500 + 2 * weights and minutes == 60


def test_a_training_by_hand():
    # A tiny teacher of 2 + 2 layers, 1000 subwords, on one thread.
    training = {"max_steps": 600, "batch_tokens": 2000}
    requests = requests_for(runtime={"training_threads": 1}, systems={"teacher": {"training": training}})
    # All four layers as large as the decoder's, embeddings of both sides.
    weights = 4 * 16 * 128**2 + 2 * 1000 * 128
    operations = 600 * 2000 * 6 * weights
    # keep: last; weights, gradients, two moments, one validated copy, and four of them in a state being written.
    weight_memory = 4 * weights * 9 / 1e6
    activations = 4 * 2000 * 4 * (24 * 128 + 6 * 512) / 1e6
    expected = 1500 + weight_memory + activations, 15 + 2 * operations / 5e9 / 60
    request = of(requests, "train_teacher", system="teacher")
    assert request == tuple(math.ceil(value) for value in expected)


@pytest.mark.parametrize(
    ("experiment", "alike", "setting", "search"),
    [
        ("demo", ["ctc"], "upsample", "ctc-greedy"),
        ("smoke-families", ["dat", "bigrams"], "vertices", "graph-path-ahead0"),
    ],
)
def test_positions_beyond_the_subwords_of_the_source_count(experiment, alike, setting, search):
    """Slots and vertices: twice as many are twice the work of the decoder and of the output projection."""
    training = {"max_steps": 100_000, "batch_tokens": 2000}
    memory, operations, system = {}, {}, alike[0]
    for value in (2.0, 4.0):
        systems = {name: {"model": {setting: value}, "training": training} for name in alike}
        requests = requests_for(experiment, systems=systems)
        model, vocabulary = requests.plan.system(system).model, requests.plan.recipe.subwords.size
        jobs = {f"train_{requests.plan.system(system).family.name}": {"system": system}}
        jobs |= {"decode": {"system": system, "search": search, "split": "test"}}
        for rule, wildcards in jobs.items():
            memory[rule, value] = requests.need(rule, SimpleNamespace(**wildcards))[0]
            work = requests.table[rule].work(requests.plan, wildcards, requests.sizes)
            each = 6 if work.training else 2
            operations[rule, value] = requests._operations(work) / (each * work.tokens)
    layer = 8 * model.dim**2 + 2 * model.dim * model.feed_forward
    for rule in jobs:
        more = operations[rule, 4.0] - operations[rule, 2.0]
        assert more == pytest.approx(2 * (model.layers * layer + vocabulary * model.dim)), rule
        assert memory[rule, 4.0] > memory[rule, 2.0], rule
    # In a search, at least scores and layers' values of the batch at the further positions.
    values = 2 * vocabulary + 40 * model.dim + 8 * model.feed_forward
    held = 4 * work.batch * 2 * 2 * requests.sizes.length * values / 1e6
    assert memory["decode", 4.0] - memory["decode", 2.0] > held


def test_pairs_of_vertices_count_in_the_memory_of_a_training():
    """Twice as many in a batch whose sentences are twice as long, beside what grows with its positions."""

    def dat(vertices: float, longest: int) -> float:
        training = {"batch_tokens": 2000}
        requests = requests_for(
            "smoke-families",
            systems={name: {"model": {"vertices": vertices}, "training": training} for name in ("dat", "bigrams")},
            recipe={"max_length": longest},
        )
        return requests.need("train_dat", SimpleNamespace(system="dat"))[0]

    linear = dat(4.0, 25) - dat(2.0, 25)
    quadratic = [(dat(4.0, longest) - dat(2.0, longest)) - linear for longest in (25, 50, 100)]
    assert quadratic[1] > 0 and quadratic[2] == pytest.approx(3 * quadratic[1])


@pytest.mark.parametrize(
    ("experiment", "system", "setting"), [("smoke-families", "inat", "passes"), ("smoke", "score", "delta_steps")]
)
def test_what_an_objective_computes_again_counts_in_training_alone(experiment, system, setting):
    asked, searched, training = {}, {}, {"max_steps": 100_000, "batch_tokens": 2000}
    for value in (4, 40):
        systems = {system: {"objective": {setting: value}, "training": training}}
        requests = requests_for(experiment, systems=systems)
        row = next(requests.plan.folder(each) for each in requests.plan.loaded.decodes if each.system == system)
        model, rule = requests.plan.system(system).model, requests.plan.system(system).family.training_rule
        work = requests.table[rule].work(requests.plan, {"system": system}, requests.sizes)
        counted = Operations(requests.plan, requests.sizes).of(work)
        asked[value] = requests.need(rule, SimpleNamespace(system=system))
        searched[value] = requests.need("decode", SimpleNamespace(system=system, search=row, split="test"))
        # Of two threads, without the minutes of a start.
        assert asked[value][1] - 15 > counted / (2 * 5e9) / 60
    assert searched[4] == searched[40]
    # A frozen base holds no values of its steps, and passes that learn hold all of theirs.
    layers = (40 - 4) * model.layers if setting == "passes" else 0
    activations = 4 * 2000 * layers * (24 * model.dim + 6 * model.feed_forward) / 1e6
    assert asked[40][0] - asked[4][0] == pytest.approx(activations)


def test_drafts_and_the_system_that_drafts_count():
    def verified(drafts: int = 1, batch: int = 16, slots: float = 2.0) -> tuple[float, float]:
        row = {"system": "teacher", "search": "verified", "drafter": "ctc", "draft_search": "ctc-beam", "name": "v"}
        requests = requests_for(
            "demo",
            decodes=[row | {"drafts": drafts, "batch": batch}],
            recipe={"limits": {"test": 10**6}},
            systems={"ctc": {"model": {"upsample": slots}}},
        )
        return requests.need("decode", SimpleNamespace(system="teacher", search="v", split="test"))

    one, several, larger, wider = verified(), verified(4), verified(batch=32), verified(slots=8.0)
    assert several[0] > one[0] and several[1] > 2 * one[1]
    assert larger[0] > one[0] and larger[1] == one[1]
    assert wider[0] > one[0] and wider[1] > one[1]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_texts_of_the_user_ask_for_what_their_size_needs(ending, tmp_path):
    draw = random.Random(1)
    lines = [" ".join(f"{draw.getrandbits(12):x}" for _ in range(8)) + "\n" for _ in range(20_000)]
    texts = {language: str(tmp_path / f"my.{language}{ending}") for language in ("de", "en")}
    split = {"method": "connected-groups", "dev": 10, "test": 10}
    dataset = {"name": "mine", "languages": ["de", "en"], "train": [{"texts": texts}], "split": split}
    recipe = {"name": "mine", "dataset": dataset, "source": "de", "target": "en"}
    absent = requests_for("mine", extends="recommended", recipe=recipe)
    for path in texts.values():
        with gzip.open(path, "wt") if ending else open(path, "w") as file:
            file.writelines(lines)
    requests = requests_for("mine", extends="recommended", recipe=recipe)
    # At least the true number; far from the millions of pairs that are taken where nothing is known.
    assert 20_000 <= requests.sizes.pairs <= 200_000
    assert (
        of(requests, "train_language_model", system="lm")[0] < of(absent, "train_language_model", system="lm")[0] / 10
    )
    assert requests.corpus_threads("normalise") == 1


def test_what_reads_a_language_model_asks_for_its_memory():
    """Of 5,000,000 pairs, n-grams take gigabytes."""

    def memory(pairs: int, **job) -> int:
        dataset = {"name": "mine", "languages": ["de", "en"], "pairs": pairs, "sentence_length": 25}
        dataset |= {
            split: [{"texts": {"de": f"{split}.de", "en": f"{split}.en"}}] for split in ("train", "dev", "test")
        }
        recipe = {"name": "mine", "dataset": dataset, "source": "de", "target": "en"}
        return of(requests_for("mine", extends="recommended", recipe=recipe), **job)[0]

    for job in ({"rule": "export_bundle", "system": "lm"}, {"rule": "measure_speed"}):
        assert memory(5_000_000, **job) > memory(50_000, **job) + 5_000


def test_every_process_of_a_node_needs_memory_and_shares_the_time():
    def teacher(**runtime):
        runtime = {"longest_job": 10**9, **runtime}
        return of(requests_for("wmt14", True, runtime=runtime), "train_teacher", system="teacher")

    (memory, minutes), four, eight = teacher(), teacher(devices=4), teacher(devices=4, nodes=2)
    assert four[0] == eight[0] == pytest.approx(4 * memory, abs=4)
    assert [part[1] - 15 for part in (four, eight)] == [pytest.approx((minutes - 15) / n, abs=2) for n in (4, 8)]


def test_parts_that_processes_compute_side_by_side_are_in_memory_together():
    def teacher(accumulate: int, devices: int) -> float:
        training = {"batch_tokens": 2000, "accumulate": accumulate}
        requests = requests_for(systems={"teacher": {"training": training}}, runtime={"devices": devices})
        return requests.need("train_teacher", SimpleNamespace(system="teacher"))[0]

    assert teacher(4, 4) == teacher(1, 4) == pytest.approx(4 * teacher(4, 1))


@pytest.mark.parametrize("gpu", [False, True])
def test_more_work_asks_for_more(gpu):
    def teacher(**settings):
        runtime = {"longest_job": 10**9}
        return of(
            requests_for("wmt14", gpu, systems={"teacher": settings}, runtime=runtime),
            "train_teacher",
            system="teacher",
        )

    small, base, big = (teacher(preset=preset) for preset in ("small", "base", "big"))
    assert small[0] < base[0] < big[0] and base[1] < big[1]
    assert teacher(training={"max_steps": 600_000})[1] == pytest.approx(2 * base[1] - 15, abs=2)
    larger = teacher(training={"batch_tokens": 16384})
    assert larger[1] > base[1] and (larger[0] == base[0] if gpu else larger[0] > base[0])


def test_a_shard_asks_for_its_own_part():
    def distilled(shards):
        settings = {"distillation": {"teacher": {"shards": shards}}, "runtime": {"longest_job": 10**9}}
        return of(requests_for("wmt14", True, **settings), "distill", teacher="teacher", shards=str(shards))[1]

    assert distilled(1) > 1000 and distilled(1) - 15 == pytest.approx(32 * (distilled(32) - 15), rel=0.05)

    def decoded(shards):
        decodes = [{"system": "teacher", "search": "beam", "beam": 4, "name": "b", "shards": shards}]
        settings = {"decodes": decodes, "runtime": {"longest_job": 10**9}, "recipe": {"limits": {"test": 10**6}}}
        requests = requests_for("wmt14", True, **settings)
        return of(requests, "decode_shard", system="teacher", search="b", split="test", shards=str(shards))[1]

    assert decoded(2) > 150 and decoded(2) - 15 == pytest.approx(16 * (decoded(32) - 15), rel=0.05)


def test_jobs_that_open_a_gpu_ask_for_the_memory_of_its_libraries():
    decode = {"system": "teacher", "search": "beam-4", "split": "test"}
    shard = {"teacher": "teacher", "split": "train", "shards": "2"}
    jobs_on_gpus = {"decode": decode, "distill": shard, "measure_speed": {}, "train_teacher": {"system": "teacher"}}
    more = {
        rule: of(requests_for("demo", True), rule, **job)[0] - of(requests_for("demo"), rule, **job)[0]
        for rule, job in (jobs_on_gpus | {"score_quality": decode, "normalise": {}}).items()
    }
    assert more["decode"] == more["distill"] == more["measure_speed"] > 4000
    # Its activations are in the memory of the GPU.
    assert more["train_teacher"] > 4000 - 100 and more["score_quality"] == more["normalise"] == 0


@pytest.mark.parametrize("values", [[1.0], [0.6, 1.0, 1.4]])
def test_a_choice_translates_dev_once_with_each_value(values):
    row = {"system": "teacher", "search": "beam", "beam": 4, "tune": {"length_penalty": values}, "name": "b"}
    plan = requests_for("demo", decodes=[row]).plan
    table, sizes = rule_table(plan), Sizes(1000, 9.0)
    job = {"system": "teacher", "search": plan.folder(plan.loaded.decodes[0]), "split": "dev"}
    work = table["choose_settings"].work(plan, job, sizes)
    assert [settings.length_penalty for settings in work.searches] == values and work.every
    assert not table["decode"].work(plan, job, sizes).every
    runtime = {"longest_job": 10**9}
    requests = requests_for("demo", decodes=[row], recipe={"limits": {"dev": 10**6}}, runtime=runtime)
    chosen, decoded = (requests.need(rule, SimpleNamespace(**job))[1] - 15 for rule in ("choose_settings", "decode"))
    assert chosen == pytest.approx(len(values) * decoded)


def test_joining_shards_asks_for_little():
    def asked(shards: int) -> tuple[int, int]:
        decodes = [{"system": "teacher", "search": "beam", "beam": 4, "name": "b", "shards": shards}]
        requests = requests_for("wmt14", True, decodes=decodes, recipe={"limits": {"test": 10**6}})
        return of(requests, "decode", system="teacher", search="b", split="test")

    unsharded, joined = asked(1), asked(8)
    assert joined == (2000, 15) and unsharded[0] > 6000 and unsharded[1] > 300


def test_the_corpus_counts_where_it_is_read():
    small, large = requests_for("tatoeba"), requests_for("wmt14")
    for rule in ("normalise", "learn_subwords", "encode", "merge_distilled"):
        assert of(small, rule)[0] < of(large, rule)[0] and of(small, rule)[1] < of(large, rule)[1]
    # 2000 MB, eight processes of 250, and 4.5 million times 500 bytes; 15 minutes and 90.
    assert of(large, "normalise") == (6250, 105)


def test_a_text_is_cleaned_as_a_whole_whatever_the_limit_of_the_recipe_is(tmp_path):
    text = tmp_path / "news.de"
    text.write_text("ein ziemlich kurzer Satz\n" * 400_000)
    recipe = {"monolingual": [{"texts": {"de": str(text)}}], "clean": ["length"]}

    def asked(limit: int, rule: str) -> tuple[int, int, int]:
        limits = {"train": limit, "monolingual": limit}
        plan = Plan(load_experiment("wmt14", recipe=recipe | {"source": "de", "target": "en", "limits": limits}))
        requests = Requests(plan, False)
        return *of(requests, rule), requests.corpus_threads(rule)

    for rule in ("clean", "clean_monolingual"):
        assert asked(1000, rule) == asked(10**8, rule)
    for rule in ("normalise", "normalise_monolingual"):
        assert all(few < many for few, many in zip(asked(1000, rule), asked(10**8, rule), strict=True))
    # At least the true number, and not the millions that are taken where nothing is known.
    megabytes, minutes, threads = asked(1000, "clean_monolingual")
    assert 2000 + 400_000 * 100 / 1e6 <= megabytes <= 2000 + 2_000_000 * 100 / 1e6 + 8 * 250
    assert 15 + 400_000 / 250_000 <= minutes < 15 + 2_000_000 / 250_000 and 4 <= threads <= 8


def test_a_large_text_is_shared_out_to_threads_and_a_small_one_is_not():
    small, large = requests_for("tatoeba", recipe={"limits": {"train": 20_000}}), requests_for("wmt14")
    for rule in ("normalise", "encode"):
        assert (small.corpus_threads(rule), large.corpus_threads(rule)) == (1, 8)
    text = SimpleNamespace(text="raw", split="train")
    assert large.corpus_threads("encode", text) == 8
    assert large.corpus_threads("encode", SimpleNamespace(text="raw", split="dev")) == 1


def test_a_retry_gets_more_within_the_limits():
    requests = requests_for(runtime={"training_threads": 1, "longest_job": 300})
    memory, minutes = zip(*(of(requests, "train_lvm", attempt, system="lvm") for attempt in range(1, 8)), strict=True)
    first = requests.need("train_lvm", SimpleNamespace(system="lvm"))
    assert memory == tuple(math.ceil(first[0] * growth) for growth in (1, 1.5, 2.25, 3.375, 4, 4, 4))
    assert minutes == (math.ceil(first[1]), math.ceil(2 * first[1]), 300, 300, 300, 300, 300)
    bounded = requests_for(runtime={"largest_job": 2000})
    assert [of(bounded, "train_lvm", attempt, system="lvm")[0] for attempt in (2, 3)] == [2000, 2000]


def test_partitions():
    runtime = {"partition": "cpu", "gpu_partition": "gpu"}
    assert [requests_for(runtime=runtime, gpu=True).partition(gpu) for gpu in (True, False)] == ["gpu", "cpu"]
    # Where there is no GPU to ask for, all run where the others do.
    assert [requests_for(runtime=runtime, gpu=False).partition(gpu) for gpu in (True, False)] == ["cpu", "cpu"]
    assert [requests_for(gpu=True).partition(gpu) for gpu in (True, False)] == [None, None]
    assert requests_for(runtime={"partition": "cpu"}, gpu=True).partition(True) == "cpu"


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", experiment_names())
def test_every_job_of_every_experiment_has_a_rule_and_asks_for_whole_positive_numbers(name, gpu):
    requests = requests_for(name, gpu)
    plan = requests.plan
    assert {rule.stage for rule in requests.table.values()} <= STAGES.keys()
    for rule in jobs(plan):
        # Wildcards of a file, such as `systems.{system}`.
        assert "{" not in requests.table[rule].settings.format(system="a", teacher="b", search="c")
        cases = [{}]
        if rule.startswith("train_"):
            cases = [{"system": system} for system in plan.systems_of(rule)]
        elif rule in ("decode", "choose_settings"):
            decodes = [decode for decode in plan.loaded.decodes if decode.tune or rule == "decode"]
            cases = [{"system": decode.system, "search": plan.folder(decode)} for decode in decodes]
        elif rule.startswith("export_"):
            cases = [{"system": system} for system in plan.exported]
        elif rule in ("distill", "merge_distilled"):
            cases = [
                {"teacher": t, "split": split, "shards": str(plan.distillation(t).shards)}
                for t, split in plan.distilled
            ]
        for case in cases:
            memory, minutes = of(requests, rule, **case)
            assert isinstance(memory, int) and 1000 <= memory < 100_000, (rule, case, memory)
            assert isinstance(minutes, int) and 15 <= minutes <= 1440, (rule, case, minutes)


def test_the_characters_of_a_large_script_count_where_the_vocabulary_is_auto():
    # About what 46,000 pairs of Japanese and English have: 2,100 subwords, and 1,800 characters beyond 200.
    requests = requests_for("tanaka", recipe={"subwords": {"vocabulary_size": "auto"}})
    assert requests.plan.recipe.subwords.size > 3900
    assert requests_for("tanaka").plan.recipe.subwords.size == 4000


# `demo` has the families and searches of `smoke`.
SMALL = ("smoke-families", "demo")
ALL = [pytest.param(name, marks=() if name in SMALL else pytest.mark.long) for name in experiment_names()]


@pytest.mark.parametrize("name", ALL)
def test_requests_suffice_for_what_is_counted_with_networks(name):
    """Requests are made without networks; they double the work that they assume."""
    requests = requests_for(name)
    plan, table, sizes = requests.plan, requests.table, requests.sizes
    operations, vocabulary = Operations(plan, sizes), plan.recipe.subwords.size
    jobs = [(system.family.training_rule, {"system": name}) for name, system in plan.loaded.systems.items()]
    jobs += [("decode", {"system": decode.system, "search": plan.folder(decode)}) for decode in plan.loaded.decodes]
    for rule, wildcards in jobs:
        system = plan.system(wildcards["system"])
        if system.family.updated:
            counted = operations.parameters(system)
            weights = most_weights(system.family, system.model, vocabulary)
            # Embeddings of positions, which matter in the smallest networks, and a tagger's wider output are left out.
            assert 0.7 * counted - 20_000 < weights < 5 * counted + 2 * vocabulary * system.model.dim, system.name
            work = table[rule].work(plan, wildcards, sizes)
            assert 0 < operations.of(work) < 2 * requests._operations(work), (rule, wildcards)


@pytest.mark.parametrize("name", ["mine", "monolingual", "monolingual-news"])
def test_a_text_of_the_users_own_asks_for_what_its_pairs_need_under_any_name(name):
    requests = requests_for("smoke", recipe={"distilled": {name: "mine.en"}}, systems={"ctc": {"data": name}})
    raw, own = (SimpleNamespace(text=text, split="train") for text in ("raw", name))
    assert of(requests, "encode", text=name, split="train") == of(requests, "encode", text="raw", split="train")
    assert requests.corpus_threads("encode", own) == requests.corpus_threads("encode", raw) == 1
    # The number of lines of text of one language is unknown, and taken as large.
    assert requests.corpus_threads("encode", SimpleNamespace(text="monolingual-by-teacher", split="train")) == 8
