"""Which rows to use: the table of needs that opens a report, and its last section with one recommended system."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path

from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions
from workflow_src.evaluation.document import Block, Caption, Cell, Code, Command, Paragraph, Strong, Table, table_of
from workflow_src.evaluation.manifest import Key, Row, ShownDecode
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.report import needs
from workflow_src.evaluation.report.captions import margin_words
from workflow_src.evaluation.report.inputs import Inputs
from workflow_src.evaluation.report.needs import FASTEST, FASTEST_NEED, Figures, close_to_best, deciding, served
from workflow_src.evaluation.report.results import KEY, Results, means
from workflow_src.evaluation.report.tables import digits, row_words
from workflow_src.records.atomic import read_json
from workflow_src.serving.bundle import choice_words, read_bundle
from workflow_src.serving.options import translate_command

EXAMPLES = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate(needs.Candidate):
    """A row of the first seed on the split of the tables."""

    row: Row
    shown: ShownDecode


def candidates_of(inputs: Inputs, measured: Results) -> list[Candidate]:
    """All candidates, in the order of the results."""
    manifest = inputs.manifest
    first_seed, split = manifest.rows[0].seed, manifest.plan.shown_split
    by_split = {each: means(measured.shown(each, manifest.report.remove_repetitions), KEY) for each in (split, "dev")}
    chosen = {(*choice.decode.key, choice.seed): {manifest.main: choice.quality} for choice in inputs.choices}
    metrics = [metric for metric in manifest.metrics if metric == manifest.main or metric.decides]
    candidates = []
    for row in manifest.rows:
        if (row.seed, row.split) != (first_seed, split):
            continue
        key = (*row.key, row.seed)
        on_split, means_on_dev = (by_split[each].get(key, {}) for each in (split, "dev"))
        figures, dev_figures = (
            {metric: of[metric.name].value for metric in metrics if metric.name in of}
            for of in (on_split, means_on_dev)
        )
        latency = on_split["latency_ms"].value if "latency_ms" in on_split else None
        on_dev = dev_figures or chosen.get(key, {})
        shown = manifest.decode(*row.key)
        candidates.append(
            Candidate(
                autoregressive=shown.autoregressive,
                search=shown.search,
                settings=row.settings,
                figures=figures,
                on_dev=on_dev,
                latency_ms=latency,
                row=row,
                shown=shown,
            )
        )
    return candidates


def selectable(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates that may be chosen: those with figures on dev where a row has some, else all."""
    return [candidate for candidate in candidates if candidate.on_dev] or candidates


def recommend(candidates: Sequence[Candidate], margin: float) -> Candidate:
    """The fastest candidate within the margin of the best one on dev (`close_to_best`)."""
    _, (recommended, *_) = close_to_best(selectable(candidates), margin)
    return recommended


def better_on_test(candidates: Sequence[Candidate], recommended: Candidate) -> Candidate | None:
    """The best on the split of the tables of the candidates that dev left out; None where the recommended one is as
    good there."""
    main = next(iter(recommended.figures))
    left_out = [candidate for candidate in candidates if recommended.on_dev and not candidate.on_dev]
    best = max([recommended, *left_out], key=lambda candidate: main.sign * candidate.figures[main])
    return None if best is recommended else best


def needs_table(
    inputs: Inputs, candidates: Sequence[Candidate], device: str = "auto", precision: str = "auto"
) -> Table:
    """The table of needs, which rows share. `device` and `precision` are those of the workflow.

    Raises ArtifactError for a bundle that cannot be read.
    """
    manifest, split = inputs.manifest, inputs.manifest.plan.shown_split
    main, on_dev = manifest.main, any(candidate.on_dev for candidate in candidates)
    names: dict[Key, list[str]] = {}
    rows: dict[Key, Candidate] = {}
    for need, candidate in served(selectable(candidates), manifest.report.margin).items():
        names.setdefault(candidate.row.key, []).append(need)
        rows[candidate.row.key] = candidate

    def shown(figures: Figures) -> str:
        return f"{main.factor * figures[main]:.1f}" if main in figures else ""

    entries: list[dict[str, str | Cell]] = [
        {
            "need": "; ".join(names[key]),
            "row": row_words(candidate.shown),
            "command": Cell(command_of(candidate, inputs, device, precision), code=True),
            f"{main.title} on dev": shown(candidate.on_dev),
            f"{main.title} on {split}": shown(candidate.figures),
            "ms a sentence": "" if candidate.latency_ms is None else digits(candidate.latency_ms),
        }
        for key, candidate in rows.items()
    ]
    undecided = sum(not candidate.on_dev for candidate in candidates)
    line = f"Dev decides; rows that were not decoded there are left out: {undecided}."
    if not on_dev:
        line = f"No row was decoded on dev, so {split} decides, which flatters these rows: decode rows on dev."
    better = better_on_test(candidates, recommend(candidates, manifest.report.margin))
    left_out = ""
    if better:
        figure = f"{shown(better.figures)} {main.title} on {split}"
        left_out = (
            f"{row_words(better.shown)} has {figure}, better than the best of all: decode it on dev to compare them."
        )
    metrics = [metric for _, figures in deciding(selectable(candidates))[:1] for metric in figures]
    fastest, close = (margin_words(margin, metrics) for margin in (FASTEST, manifest.report.margin))
    timed = any(candidate.latency_ms is not None for candidate in rows.values())
    in_rows = {
        name
        for candidate in rows.values()
        for name in (candidate.shown.system.name, candidate.shown.system.group, *candidate.row.decode.others.values())
    }
    learning = ", ".join(name for name in inputs.unfinished if name in in_rows)
    rule = f"The fastest within {close} of the best one of their kind; “{FASTEST_NEED}” allows {fastest}."
    notes = {
        "Rows": rule if timed else "",
        "Left out": left_out,
        "Still learning": f"{learning}: more updates (training.max_steps) may make them better." if learning else "",
        "Figures": f"Those of seed {manifest.rows[0].seed}." if len({row.seed for row in manifest.rows}) > 1 else "",
    }
    return table_of(entries, ("need", "row", "command"), caption=Caption(line, notes), wide=True, stacked=True)


def recommended_outputs(recommended: Candidate, inputs: Inputs) -> list[str]:
    """The first translations of a row, without repetitions where its scores are without them, as its bundle gives
    them."""
    removal = recommended.shown.removal(inputs.manifest.report.remove_repetitions)
    path = Path(_translation(recommended, inputs))
    texts = _first(path)
    if removal == "subwords":
        details = path.with_suffix(".jsonl")
        check_parallel(path, details)
        texts = [line[WITHOUT_REPEATED_SUBWORDS] for line in read_details(details)[:EXAMPLES]]
    return [collapse_repetitions(text) for text in texts] if removal == "words" else texts


def _first(path: str | Path) -> list[str]:
    return list(itertools.islice(read_lines(Path(path)), EXAMPLES))


def _translation(recommended: Candidate, inputs: Inputs) -> str:
    row = recommended.row
    return inputs.manifest.plan.translation(row.decode, row.seed, row.split)


def inputs_of(recommended: Candidate, inputs: Inputs) -> dict[str, str]:
    """Files that the section reads, by their role in it, for provenance."""
    plan, split = inputs.manifest.plan, recommended.row.split
    return {
        f"{split} source": plan.corpus(split, "source"),
        f"{split} reference": plan.reference(split),
        "recommended translations": _translation(recommended, inputs),
    }


def bundle_of(recommended: Candidate, inputs: Inputs) -> str:
    """The folder of the row's bundle."""
    row, plan = recommended.row, inputs.manifest.plan
    return plan.finished_bundle(row.system, row.seed, plan.export_of(row.decode))


def command_of(recommended: Candidate, inputs: Inputs, device: str = "auto", precision: str = "auto") -> str:
    """The command that translates as the row does, without its input. Raises ArtifactError for a damaged bundle."""
    row, plan = recommended.row, inputs.manifest.plan
    folder = bundle_of(recommended, inputs)
    systems = {role: plan.finished_bundle(other, row.seed) for role, other in row.decode.others.items()}
    decode = row.decode.with_values(row.picked or {})
    return translate_command(folder, read_bundle(Path(folder)), decode, systems, device, precision)


def blocks(
    inputs: Inputs, candidates: Sequence[Candidate], device: str = "auto", precision: str = "auto"
) -> list[Block]:
    """The content of the section of the recommended row. `device` and `precision` are those of the workflow.

    Raises ArtifactError for a bundle or translations that cannot be read.
    """
    manifest = inputs.manifest
    recommended = recommend(candidates, manifest.report.margin)
    row = recommended.row
    plan, split = manifest.plan, row.split
    source_path, folder = plan.corpus(split, "source"), bundle_of(recommended, inputs)
    description = read_bundle(Path(folder))
    for path in (plan.reference(split), _translation(recommended, inputs)):
        check_parallel(path, source_path)
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
        Paragraph.of(
            "Recommended: ",
            Strong(f"{row.system} {row.name}"),
            ", which is best of all in the table of needs. Its bundle is in ",
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
