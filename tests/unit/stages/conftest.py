"""Fixtures that several stages' tests share."""

import json
import shutil
from pathlib import Path

import pytest
import reports
from reports import bundle_description

from workflow_src.config import Plan, load
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.evaluation.quality.significance import FORMAT as SIGNIFICANCE_FORMAT
from workflow_src.evaluation.quality.variants import VARIANTS
from workflow_src.evaluation.speed.measured import FORMAT as SPEED_FORMAT
from workflow_src.records.atomic import load_tensors, read_json, save_tensors, sha256, write_json
from workflow_src.types import BOS, PAD


@pytest.fixture(scope="module")
def teacher(tiny_bundles, systems, tmp_path_factory):
    """The miniature teacher, as a bundle and as weights, with no probability for symbols that are never put out.

    A model that is trained to the end has learnt that; forty updates are too few.
    """
    root = tmp_path_factory.mktemp("teacher")
    bundle = shutil.copytree(tiny_bundles["transformer"], root / "bundle")
    tensors = load_tensors(systems["transformer"])
    tensors["output_bias"][[PAD, BOS]] = -30.0
    save_tensors(root / "model.safetensors", tensors)
    digest = sha256(root / "model.safetensors")
    config = read_json(systems["transformer"].with_name("config.json"))
    write_json(root / "config.json", config | {"sha256": digest})
    shutil.copy(root / "model.safetensors", bundle / "transformer.safetensors")
    description = read_json(bundle / "bundle.json")
    description["models"]["transformer"]["sha256"] = digest
    write_json(bundle / "bundle.json", description)
    return bundle, root / "model.safetensors"


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = content if isinstance(content, str) else json.dumps(content)
    path.write_text(lines, encoding="utf-8")
    return str(path)


def _decodes(system, family):
    if family == "transformer":
        yield "greedy", {"search": "greedy"}
        yield "beam-4", {"search": "beam", "beam": 4}
        return
    if family == "lvm":
        yield "prior-mean", {"search": "prior-mean"}
    search = "delta" if family == "lvm" else family
    for steps in (1, 2, 4):
        yield f"{search}-{steps}", {"search": search, "steps": steps}


QUALITY = {"greedy": 40.0, "beam": 41.6, "prior-mean": 33.2, "delta": 33.9, "score": 34.1, "energy": 33.0}
STEP_MS = {"delta": 1.8, "score": 0.6, "energy": 1.3}
START_MS = {"greedy": 7.4, "beam": 10.5}


def _quality(system, settings, seed, valid):
    steps, search = settings.get("steps") or 0, settings["search"]
    bleu = QUALITY[search] + 0.9 * (1 - 0.5**steps) - 4 * system.endswith("raw") + 0.3 * (seed - 1)

    def variant(score):
        return {
            "bleu": score,
            "bleu_ci": [score - 0.8, score + 0.8],
            "chrf": score + 20,
            "length_ratio": 0.97,
            "validity": round(score / 50, 3) if valid else None,
            "bleu_signature": "nrefs:1|bs:1000|case:mixed|tok:13a",
            "chrf_signature": "nrefs:1|nc:6",
            "bleu_tokenised": score + 1,
            "bleu_intl_lowercase": score + 3,
        }

    variants = {"kept": bleu - 1, "without_repeated_words": bleu - 0.4, "without_repeated_subwords": bleu}
    scored = {name: variant(score) for name, score in variants.items()}
    return scored | {"sentences": 1000}


def _log(family, seed):
    for number in range(1, 9):
        share = 1 - 0.5**number
        entry = {"step": 500 * number, "minutes": 0.4 * number, "loss": 5 - 3.5 * share + 0.1 * seed}
        entry |= {"target_tokens": 9, "tokens_per_second": 13000}
        if family == "transformer":
            entry |= {"dev_bleu": 41 * share, "dev_loss": 4.6 - 3 * share}
        elif family == "lvm":
            entry |= {"dev_elbo": -9 + 4 * share, "dev_kl": 1.2 - 0.7 * share, "dev_length_accuracy": 0.3 * share}
            entry |= {"dev_bleu": 33 * share**2, "dev_bleu_posterior": 45 * share}
        else:
            entry |= {"dev_cosine": 0.92 * share, "dev_cosine_noise0": 0.5 * share, "dev_bleu": 32 + 2 * share}
        yield json.dumps(entry) + "\n"


SYSTEMS = {"teacher": "transformer", "lvm": "lvm", "score": "score", "energy": "energy", "lvm-raw": "lvm"}


def _systems(families):
    teacher = next(name for name, family in families.items() if family == "transformer")
    for name, family in families.items():
        raw = family == "transformer" or name.endswith("raw")
        described = {"family": family, "preset": "tiny", "data": "raw" if raw else f"distilled-by-{teacher}"}
        yield name, described | ({"base": "lvm"} if family in ("score", "energy") else {})


def _training(paths, family, seed):
    steps, target_tokens = (1000, 308_642) if family == "energy" else (4000, 1_234_567)
    config = {"sizes": {"source": 1200, "target": 1200, "joint": True}, "parameters": 2_500_000}
    config |= {"target_tokens_seen": target_tokens, "minutes": 8.5, "steps": steps}
    _write(Path(paths["log"]), "".join(_log(family, seed)))
    _write(Path(paths["config"]), config)


def _timed(name, decode, settings):
    ms = START_MS.get(settings["search"], 2.6) + STEP_MS.get(settings["search"], 0) * (settings.get("steps") or 0)
    bins = [
        {"shortest": n, "longest": n + 3, "mean_length": n + 1.5, "sentences": 50, "latency_ms": ms * n / 8}
        for n in (4, 8)
    ]
    figures = {"latency_std": ms / 3, "latency_rounds": [1.01 * ms, 0.98 * ms, ms], "subword_share": 0.05}
    figures |= {"sentences_per_second": 4000 / ms, "speedup": 10.5 / ms}
    return reports.timed(name, decode, ms, by_length=bins, **figures)


def _speed(rows):
    costs = [
        {"system": system, "search": system.replace("lvm", "delta"), "ms_per_step": cost}
        for system, cost in (("lvm", 1.8), ("score", 0.6))
    ]
    protocol = {"baseline": {"system": "teacher", "name": "beam-4"}, "other_load_cores": [0.01, 0.12]}
    speed = reports.speed(*rows, costs={"costs": costs, "ratios": []}, redone_rounds=1, **protocol)
    provenance = {"hardware": {"processor": "A CPU"}}
    return speed.model_dump(mode="json") | {"format": SPEED_FORMAT, "provenance": provenance}


def _traces():
    start, goal = "the the dog sees house <b>old</b> .", "the big dog sees an old house ."
    slow = ["the the dog sees the old house .", "the old dog sees the old house ."]
    example = {
        "source": "der große Hund sieht ein altes Haus & <script>alert(1)</script> .",
        "reference": goal,
        "teacher": "the large dog sees an old house .",
        "searches": {"delta": [start, *slow, slow[-1], slow[-1]], "score": [start, *[goal] * 4]},
    }
    followed = {"delta": {"system": "lvm", "search": "delta"}, "score": {"system": "score", "search": "score"}}
    return {"pool": 200, "searches": followed, "examples": [example | {"index": 7}, example | {"index": 9}]}


CORPUS = {
    "pairs": {"dev": 1000, "test": 1000, "train": 24000},
    "words": {"train": {"de": 180000, "en": 190000}},
    "dropped": {"train": {"max_words": 3, "empty": 0}},
    "round_trip_bleu": {"dev": 99.871, "test": 97.25},
    "normalisation": NormalisationConfig().model_dump(mode="json"),
    "found_in_train": {"test": {"source": 4, "target": 2, "pair": 1}},
    "downloads": {"talks": {"check": "md5"}},
    "sha256": {"train.de": "ab" * 32},
}


ENCODED = {"pairs": 23_990, "max_length": 64, "dropped": {"source-too-long": 10}}


def _significance(rows):
    """p-values of all rows but the beam's; networks 0.25 BLEU above delta, repetitions kept 0.5 below it."""
    p_values, network = (0.2, 0.1, 0.0123), ((-0.5, 0.0004), (0.125, 0.75), (0.25, 0.5))
    pairs = []
    for row in (row for row in rows if row["name"] != "beam-4"):
        key = {name: row[name] for name in ("system", "name", "seed")}
        baseline = key | {"other": ["teacher", "beam-4"], "difference": 0.0}
        for removed, p, (difference, network_p) in zip(VARIANTS, p_values, network, strict=True):
            of_variant = {"variant": removed, "metric": "bleu"}
            pairs.append(baseline | of_variant | {"why": "baseline", "p_value": p})
            if key["system"] in ("score", "energy"):
                delta = {"other": ["lvm", key["name"].replace(key["system"], "delta")], "difference": difference}
                pairs.append(key | of_variant | delta | {"why": "control", "p_value": network_p})
        rival = {"why": "autoregressive", "variant": "subwords", "error": 0.001, "sentence": 0.0}
        pairs += [baseline | rival | {"metric": metric} for metric in ("bleu", "validity")]
    test = {"name": "two-sided paired approximate randomisation", "trials": 10_000, "seed": 1}
    return {"format": SIGNIFICANCE_FORMAT, "test": test, "sentences": 1000, "pairs": pairs}


# The text of a corpus may look like markup of any kind.
TEXTS = [("Der <b>Hund</b> | *schläft* & ruht.", "The dog_sleeps_ `there`."), ("Ein Baum.", "A tree.")]


def _usage(plan):
    """Files for the section "Use it": all rows have the same translations and the same bundle."""
    sources, references = zip(*TEXTS, strict=True)
    _write(Path(plan.corpus("test", "source")), "".join(f"{line}\n" for line in sources))
    _write(Path(plan.reference("test")), "".join(f"{line}\n" for line in references))
    details = [{"without_repeated_subwords": text} for text in ("A $dog$.", "A tree.")]
    for decode in plan.loaded.decodes:
        _write(Path(plan.translation(decode, 1, "test")), "A $dog$.\nA a tree.\n")
        _write(Path(plan.translation_details(decode, 1, "test")), "".join(f"{json.dumps(line)}\n" for line in details))
        _write(Path(plan.finished_file(decode.system, 1)), bundle_description("greedy"))
        _write(Path(plan.finished_bundle(decode.system, 1), "subwords/subwords.json"), {})


@pytest.fixture
def report_inputs(tmp_path, monkeypatch):
    """Writes the inputs of a report into the working directory and returns the words of its command line; options say
    what is there."""
    monkeypatch.chdir(tmp_path)

    def make(
        systems=SYSTEMS,
        seeds=(1,),
        valid=True,
        speed=True,
        traces=True,
        description="A fabricated run.",
        significance=False,
        further=(),
        **report,
    ):
        decodes = {(name, decode): s for name, family in systems.items() for decode, s in _decodes(name, family)}
        recipe = reports.RECIPE | {"dataset": reports.dataset(test=1, **dict.fromkeys(further, 2))}
        sections = {"experiment": "fabricated", "description": description, "recipe": recipe, "seeds": list(seeds)}
        sections["report"] = {"expected_source": "Lee et al. (2020)", **report}
        plan = Plan(load(reports.configuration(decodes, dict(_systems(systems)), **sections)))
        for name, seed in plan.trained:
            _training(plan.training_files(name, seed), systems[name], seed)
        rows = []
        for decode, seed, split in plan.rows:
            scored = _quality(decode.system, decode.settings, seed, valid)
            if split in further:
                for variant in VARIANTS.values():
                    scored[variant]["bleu"] -= 10 * (1 + further.index(split))
                    scored[variant]["bleu_signature"] = "nrefs:2|bs:1000|case:mixed|tok:13a"
                scored["sentences"] = 77
            _write(Path(plan.quality(decode, seed, split)), scored)
            rows.append({"system": decode.system, "name": decode.name, "seed": seed, "split": split})
        timed = [_timed(*key, settings) for key, settings in decodes.items()]
        _usage(plan)
        words = ["--settings", plan.settings_report(), "--output-folder", str(tmp_path / "report")]
        words += ["--corpus", _write(tmp_path / "corpus.json", CORPUS)]
        words += ["--encoded", _write(tmp_path / "encoded/raw/train.json", ENCODED)]
        words += ["--speed", _write(tmp_path / "speed.json", _speed(timed))] if speed else []
        if significance:
            words += ["--significance", _write(tmp_path / "significance.json", _significance(rows))]
            words += [_write(tmp_path / f"significance-{split}.json", _significance(rows)) for split in further]
        words += ["--traces", _write(tmp_path / "traces.json", _traces())] if traces else []
        return words

    return make
