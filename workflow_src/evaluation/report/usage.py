"""The report's last section: the recommended system, the command that translates with it, and its outputs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions
from workflow_src.evaluation.document import Block, Cell, Code, Command, Paragraph, Strong, Table
from workflow_src.evaluation.manifest import Row
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.variants import VARIANTS
from workflow_src.evaluation.report.inputs import Inputs
from workflow_src.records.atomic import read_json
from workflow_src.serving.bundle import read_bundle
from workflow_src.serving.choice import choice_words
from workflow_src.serving.recommended import translate_command
from workflow_src.spec import Metric

EXAMPLES = 10


@dataclasses.dataclass(frozen=True)
class Recommended:
    """The recommended row, and its main metric on the split of the tables (`figure`).

    `on_dev` are its figures on dev by the metrics that decide, as far as measured; `latency_ms` is None where it was
    not timed. `measured` of `rows` rows were measured on dev. `close` rows are within the margin of the best one, whose
    main metric is `best_figure`, on dev or, where none was measured there, on the split of the tables. `above` is the
    best of the other rows on the split of the tables, where it is better than this one.
    """

    row: Row
    on_dev: Mapping[Metric, float]
    figure: float
    latency_ms: float | None
    measured: int = 0
    rows: int = 0
    close: int = 1
    best_figure: float = 0.0
    above: Recommended | None = None


def candidates_of(inputs: Inputs) -> list[Recommended]:
    """The rows of the first seed on the split of the tables, with their figures there and on dev."""
    manifest = inputs.manifest
    first_seed = manifest.rows[0].seed
    rows = {(row.key, row.split): row for row in manifest.rows if row.seed == first_seed}
    times = {row.key: row.latency_ms for row in inputs.speed.rows} if inputs.speed else {}
    chosen = {(choice.decode.key, choice.seed): choice.quality for choice in inputs.choices}
    deciding = deciding_metrics(inputs)
    candidates = []
    for row in rows.values():
        if row.split != manifest.plan.shown_split:
            continue
        key, dev_row = row.key, rows.get((row.key, "dev"))
        on_dev = _figures(inputs, dev_row, deciding) if dev_row else {}
        if not dev_row and (key, row.seed) in chosen:
            on_dev = {manifest.main: chosen[key, row.seed]}
        on_split = _figures(inputs, row, deciding)
        candidates.append(Recommended(row, on_dev, on_split[manifest.main], times.get(key)))
    return candidates


def recommend(
    inputs: Inputs, candidates: Sequence[Recommended] | None = None, margin: float | None = None
) -> Recommended:
    """The fastest of the candidates (by default all rows) that are within the margin of the best one on dev, in every
    metric that decides; of equally fast ones, and where none was timed, the best.

    Where no row was measured on dev, the figures on the split of the tables decide. `margin` is that of the report by
    default.
    """
    candidates = candidates_of(inputs) if candidates is None else candidates
    margin = inputs.manifest.report.margin if margin is None else margin
    main, deciding = inputs.manifest.main, deciding_metrics(inputs)
    measured = [candidate for candidate in candidates if candidate.on_dev]

    def figures(candidate: Recommended) -> Mapping[Metric, float]:
        return candidate.on_dev if measured else _figures(inputs, candidate.row, deciding)

    def goodness(candidate: Recommended) -> list[float]:
        ours = figures(candidate)
        return [metric.sign * ours[metric] if metric in ours else -math.inf for metric in deciding]

    def speed_and_goodness(candidate: Recommended) -> tuple[float, list[float]]:
        latency = math.inf if candidate.latency_ms is None else candidate.latency_ms
        return -latency, goodness(candidate)

    def within_margin(candidate: Recommended) -> bool:
        ours = figures(candidate)
        return all(
            metric in ours and metric.factor * metric.sign * (figure - ours[metric]) <= margin
            for metric, figure in figures(best).items()
        )

    best = max(measured or candidates, key=goodness)
    close = [candidate for candidate in measured or candidates if within_margin(candidate)]
    recommended = max(close, key=speed_and_goodness)
    better = [
        candidate
        for candidate in candidates
        if not candidate.on_dev and main.sign * (candidate.figure - recommended.figure) > 0
    ]
    return dataclasses.replace(
        recommended,
        measured=len(measured),
        rows=len(candidates),
        close=len(close),
        best_figure=figures(best)[main],
        above=max(better, key=lambda candidate: main.sign * candidate.figure, default=None) if measured else None,
    )


def deciding_metrics(inputs: Inputs) -> list[Metric]:
    """Metrics with figures in which a row must be near the best one to be recommended."""
    manifest = inputs.manifest
    scores = [quality[variant] for quality in inputs.qualities.values() for variant in VARIANTS.values()]
    deciding = [metric for metric in manifest.metrics if metric == manifest.main or metric.decides]
    return [metric for metric in deciding if any(scored.get(metric.name) is not None for scored in scores)]


def _figures(inputs: Inputs, row: Row, metrics: Sequence[Metric]) -> dict[Metric, float]:
    """Figures of a row by metric, as tables show them; without those that were not measured."""
    removal = inputs.manifest.decode(*row.key).removal(inputs.manifest.report.remove_repetitions)
    scored = inputs.qualities[row.quality][VARIANTS[removal]]
    return {metric: scored[metric.name] for metric in metrics if scored.get(metric.name) is not None}


def recommended_outputs(recommended: Recommended, inputs: Inputs) -> list[str]:
    """The first translations of a row, without repetitions where its scores are without them, as its bundle gives
    them."""
    removal = inputs.manifest.decode(*recommended.row.key).removal(inputs.manifest.report.remove_repetitions)
    path = Path(_translation(recommended, inputs))
    texts = _first(path)
    if removal == "subwords":
        details = read_details(path.with_suffix(".jsonl"))[:EXAMPLES]
        texts = [line[WITHOUT_REPEATED_SUBWORDS] for line in details]
    return [collapse_repetitions(text) for text in texts] if removal == "words" else texts


def _first(path: str | Path) -> list[str]:
    return list(itertools.islice(read_lines(Path(path)), EXAMPLES))


def _translation(recommended: Recommended, inputs: Inputs) -> str:
    row = recommended.row
    return inputs.manifest.plan.translation(row.decode, row.seed, row.split)


def inputs_of(recommended: Recommended, inputs: Inputs) -> dict[str, str]:
    """Files that the section reads, by their role in it, for provenance."""
    plan, split = inputs.manifest.plan, recommended.row.split
    return {
        f"{split} source": plan.corpus(split, "source"),
        f"{split} reference": plan.reference(split),
        "recommended translations": _translation(recommended, inputs),
    }


def bundle_of(recommended: Recommended, inputs: Inputs) -> str:
    """The folder of the row's bundle."""
    row, plan = recommended.row, inputs.manifest.plan
    return plan.finished_bundle(row.system, row.seed, plan.export_of(row.decode))


def command_of(recommended: Recommended, inputs: Inputs, device: str = "auto", precision: str = "auto") -> str:
    """The command that translates as the row does, without its input. Raises ArtifactError for a damaged bundle."""
    row, plan = recommended.row, inputs.manifest.plan
    folder = bundle_of(recommended, inputs)
    systems = {role: plan.finished_bundle(other, row.seed) for role, other in plan.systems_in_roles(row.decode).items()}
    decode = row.decode.with_values(row.picked or {})
    return translate_command(folder, read_bundle(Path(folder)), decode, systems, device, precision)


def blocks(recommended: Recommended, inputs: Inputs, device: str = "auto", precision: str = "auto") -> list[Block]:
    """The content of the section. `device` and `precision` are those of the workflow.

    Raises ArtifactError for a bundle or translations that cannot be read.
    """
    manifest, row = inputs.manifest, recommended.row
    plan, split = manifest.plan, row.split
    source_path, folder = plan.corpus(split, "source"), bundle_of(recommended, inputs)
    description = read_bundle(Path(folder))
    sources = _first(source_path)
    command = command_of(recommended, inputs, device, precision)
    kinds = read_json(Path(folder, "subwords", "subwords.json")).get("placeholders", ())
    normaliser = Normaliser(description.normalisation, description.languages.source, kinds)
    # Lines were decoded whole. Text that Moses tokenised is another text once it is tokenised again.
    option = "--normalised" if [normaliser.line(line) for line in sources] != sources else "--no-split"
    detokenised = [normaliser.detokenise(line) for line in sources]
    examples = zip(detokenised, _first(plan.reference(split)), recommended_outputs(recommended, inputs), strict=True)
    languages = (manifest.source, manifest.target, manifest.target)
    rows = [[Cell(text, language=code) for text, code in zip(example, languages, strict=True)] for example in examples]
    return [
        reasons(recommended, split, manifest.main, manifest.report.margin),
        Paragraph.of(
            "Recommended: ",
            Strong(f"{row.system} {row.name}"),
            ". Its bundle is in ",
            Code(folder),
            f", and searches by default with {choice_words(description)}. Run the commands in the folder that has ",
            Code("results"),
            ". Translate a file, one sentence a line:",
        ),
        Command(f"{command} < in.txt > out.txt"),
        Paragraph.of(f"The first {len(rows)} sentences of {split}, and the command that gives these translations:"),
        Command(f"head -n {len(sources)} {shlex.quote(source_path)} | {command} {option}"),
        Table(["source", "reference", "translation"], rows, left=3),
    ]


def reasons(recommended: Recommended, split: str, metric: Metric, margin: float) -> Table:
    """Why a row is recommended, by which figures on which split."""
    on_dev, fastest = recommended.on_dev.get(metric), "" if recommended.latency_ms is None else ", this one the fastest"
    decided = split if on_dev is None else "dev"
    flatters = " (no row was decoded on dev; this flatters the choice)" if on_dev is None else ""
    facts = {
        "decided by": f"the {metric.best} {metric.title} on {decided}{flatters}",
        "rows measured on dev": f"{recommended.measured} of {recommended.rows}",
        f"{metric.best} on {decided}": f"{recommended.best_figure:.2f}",
        f"rows within {margin:g} points of it": f"{recommended.close}{fastest}",
        "this row on dev": "" if on_dev is None else f"{on_dev:.2f}",
        f"this row on {split}": f"{recommended.figure:.2f}",
        "ms a sentence": "" if recommended.latency_ms is None else f"{recommended.latency_ms:.3g}",
    }
    if above := recommended.above:
        better = f"{above.row.system} {above.row.name}, {above.figure:.2f}; decode it on dev to compare them"
        facts[f"better on {split}, not measured on dev"] = better
    return Table([], [[name, value] for name, value in facts.items() if value], look="plain facts", left=2)
