"""Every rule of the workflow in one table: its stage in a plan, the place of its settings, its work, its requests.

No torch here. Rules whose names families, engines, metrics and analyses declare are added by `rule_table`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

from workflow_src.config.costs import Sizes, held_out, updates
from workflow_src.config.plan import Plan
from workflow_src.config.texts import kind_and_system
from workflow_src.registry import engines, families, metrics
from workflow_src.spec import SearchSettings

# Titles of stages in the order of the flow. Rules that a user adds are stages of their own, after these.
STAGES = {
    "data": "corpus, subwords",
    "import": "import",
    "train": "train",
    "distil": "distil",
    "keep_likely": "keep likely pairs",
    "export": "export",
    "translate": "translate",
    "bundles": "finish bundles",
    "compare_rows": "compare rows",
    "measure_speed": "measure speed",
    "analyse": "analyse",
    "report": "report",
}
# Megabytes of a process that has imported PyTorch, and what one that opens a GPU takes beyond them.
PROCESS, GPU_PROCESS = 1500, 4500
# Stages that share a text out to processes have one thread for each process.
MOST_THREADS = 8
# Pairs of the text for each of these threads.
PAIRS_A_THREAD = 100_000
# Megabytes of each of these processes.
WORKER = 250
# Minutes of every job, before those of its work.
STARTING_MINUTES = 15


@dataclasses.dataclass(frozen=True)
class Work:
    """What a job computes with networks: it trains a system, decodes with it, or scores with it.

    `tokens` are target positions, with padding in training; None where the number of pairs is not known. A decode has
    the settings of its search, or several that dev chooses from: the job takes one of these, or with `every` each.
    A `batch` of sentences is in memory at once, and so are the systems `others` beside `system`.
    """

    system: str
    tokens: float | None
    training: bool = False
    searches: tuple[SearchSettings, ...] = ()
    every: bool = False
    batch: int = 0
    others: tuple[str, ...] = ()


def text_of(wildcards: Mapping[str, str]) -> str:
    """The kind of the text that a job reads where a system makes it; else the split that it reads."""
    origin = kind_and_system(wildcards.get("text", ""))
    return origin.kind if origin else wildcards.get("split", "train")


WorkOf = Callable[[Plan, Mapping[str, str], Sizes], Work]


def training(plan: Plan, wildcards: Mapping[str, str], _sizes: Sizes) -> Work:
    system = plan.system(wildcards["system"])
    return Work(system.name, updates(system) * system.training.batch_tokens, training=True)


def distillation(plan: Plan, wildcards: Mapping[str, str], sizes: Sizes) -> Work:
    """A shard of the translations of a text by a teacher."""
    teacher, settings = wildcards["teacher"], plan.distillation(wildcards["teacher"])
    search = settings.search_settings()
    tokens = _tokens(sizes.sentences(text_of(wildcards)), wildcards, sizes)
    return Work(teacher, tokens, searches=(search,), batch=settings.batch)


def scoring(plan: Plan, wildcards: Mapping[str, str], sizes: Sizes) -> Work:
    """A shard of the training pairs, each scored in one parallel pass."""
    name = wildcards["system"]
    return Work(name, _tokens(sizes.pairs, wildcards, sizes), batch=plan.likelihood(name).batch)


def decoding(plan: Plan, wildcards: Mapping[str, str], sizes: Sizes, chooses: bool = False) -> Work:
    """A split or one of its shards; with `chooses`, dev with every combination of settings."""
    decode = plan.decode(wildcards["system"], wildcards["search"])
    tokens = _tokens(held_out(plan, wildcards.get("split", "dev")), wildcards, sizes)
    return Work(
        decode.system,
        tokens,
        searches=tuple(decode.combinations),
        every=chooses,
        batch=decode.batch,
        others=tuple(decode.others.values()),
    )


def _tokens(sentences: int | None, wildcards: Mapping[str, str], sizes: Sizes) -> float | None:
    """Target subwords of a shard of so many sentences."""
    return sentences / int(wildcards.get("shards", 1)) * sizes.length if sentences else None


@dataclasses.dataclass(frozen=True)
class Ask:
    """Megabytes and minutes that a job asks for, and what corpus and systems add to them; `Work` adds its own.

    `shared_out`: the job shares its text out to processes. `on_gpu`: further megabytes on a GPU. `copies` of the
    weights of its system in float32; `every_system`: two copies of those of all systems.
    """

    megabytes: int = 2000
    minutes: int = STARTING_MINUTES
    bytes_a_pair: int = 0
    pairs_a_minute: float = math.inf
    shared_out: bool = False
    on_gpu: int = 0
    copies: int = 0
    every_system: bool = False


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule. `settings` is the place of its settings in a configuration, with wildcards; `by_system`: a plan shows its
    jobs by system. An empty stage stands for the name of the rule; `monolingual`: it reads text of one language; `raw`:
    it reads the whole text, also where a limit cuts what is written."""

    stage: str = ""
    settings: str = ""
    ask: Ask = Ask()
    work: WorkOf | None = None
    by_system: bool = True
    monolingual: bool = False
    raw: bool = False


# Filters that remember pairs, and language identification.
CLEANING = Ask(bytes_a_pair=100, pairs_a_minute=250_000, shared_out=True)
DECODING = Ask(PROCESS, on_gpu=GPU_PROCESS, copies=3)
# Several systems are open, one after the other or all at once.
MEASURING = Ask(PROCESS + 4000, 60, on_gpu=GPU_PROCESS, every_system=True)
EXPORTING = Ask(PROCESS, copies=4)
TRAINING = Rule("train", "systems.{system}", work=training)
# A decode that has shards only joins them.
JOINING = Rule("translate", "decodes.{search}")
RULES = {
    "download": Rule("data", "recipe.dataset", Ask(minutes=240)),
    "download_monolingual": Rule("data", "recipe.monolingual", Ask(minutes=240), monolingual=True),
    "clean": Rule("data", "recipe", CLEANING, raw=True),
    "clean_monolingual": Rule("data", "recipe", CLEANING, monolingual=True, raw=True),
    "normalise": Rule("data", "recipe", Ask(bytes_a_pair=500, pairs_a_minute=50_000, shared_out=True)),
    "normalise_monolingual": Rule(
        "data", "recipe", Ask(bytes_a_pair=100, pairs_a_minute=50_000, shared_out=True), monolingual=True
    ),
    "learn_subwords": Rule("data", "recipe.subwords", Ask(bytes_a_pair=1500, pairs_a_minute=50_000)),
    "encode": Rule("data", "recipe", Ask(bytes_a_pair=200, pairs_a_minute=50_000, shared_out=True)),
    "import_model": Rule("import", ask=EXPORTING),
    # The whole source is in memory.
    "distill": Rule("distil", "distillation.{teacher}", dataclasses.replace(DECODING, bytes_a_pair=200), distillation),
    "merge_distilled": Rule("distil", "distillation.{teacher}", Ask(bytes_a_pair=500, pairs_a_minute=500_000)),
    "score_pairs": Rule("keep_likely", "likelihood.{system}", dataclasses.replace(DECODING, bytes_a_pair=16), scoring),
    "keep_likely": Rule("keep_likely", "likelihood.{system}", Ask(bytes_a_pair=300, pairs_a_minute=100_000)),
    "export_bundle": Rule("export", ask=EXPORTING),
    "finish_bundle": Rule("bundles", ask=Ask(minutes=30), by_system=False),
    "choose_settings": Rule("translate", "decodes.{search}", DECODING, functools.partial(decoding, chooses=True)),
    "decode_shard": Rule("translate", "decodes.{search}", DECODING, decoding),
    "decode": Rule("translate", "decodes.{search}", DECODING, decoding),
    "score_quality": Rule("translate", ask=Ask(4000, 60)),
    "compare_rows": Rule("compare_rows", ask=Ask(4000, 120)),
    "measure_speed": Rule("measure_speed", ask=dataclasses.replace(MEASURING, minutes=240)),
    "analyse": Rule("analyse", ask=MEASURING),
    "report": Rule("report", ask=Ask(4000, 60)),
}
# Rules that a user adds.
OTHER = Rule(ask=MEASURING)


def rule_table(plan: Plan) -> dict[str, Rule]:
    table = dict(RULES)
    table |= {family.training_rule: TRAINING for family in families().values() if not family.imported}
    table |= {engine.export_rule: RULES["export_bundle"] for engine in engines().values() if engine.export_rule}
    for metric in metrics().values():
        if metric.program:
            ask = Ask(metric.program.memory, metric.program.minutes, on_gpu=PROCESS + GPU_PROCESS)
            table[metric.rule] = Rule("translate", ask=ask)
    for analysis in plan.analyses.values():
        table[analysis.rule] = Rule("analyse", ask=dataclasses.replace(MEASURING, minutes=60 * analysis.hours))
    table |= {plan.rule_on("compare_rows", name): RULES["compare_rows"] for name in plan.compared_sets}
    split = plan.loaded.dataset.split
    if split and split.method == "connected-groups":
        table["normalise"] = dataclasses.replace(RULES["normalise"], raw=True)
    return table


def rule_of(plan: Plan, table: Mapping[str, Rule], name: str, wildcards: Mapping[str, str]) -> Rule:
    if name == "decode" and plan.decode(wildcards["system"], wildcards["search"]).shards > 1:
        return JOINING
    return table.get(name, OTHER)
