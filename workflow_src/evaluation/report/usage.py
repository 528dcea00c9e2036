"""The report's last section: the recommended system, the command that translates with it, and its outputs."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from workflow_src.config.manifest import RowInfo
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.variants import VARIANTS
from workflow_src.evaluation.report.inputs import Inputs
from workflow_src.evaluation.report.markdown import markdown_table, paragraph
from workflow_src.records.atomic import read_json
from workflow_src.serving.bundle import read_bundle
from workflow_src.serving.choice import choice_words
from workflow_src.serving.recommended import translate_command
from workflow_src.spec import Metric

TEMPLATE = Path(__file__).with_name("usage.html.j2")
EXAMPLES = 10


@dataclasses.dataclass(frozen=True)
class Recommended:
    """The recommended row: its `entry` in the plan, its `row` in the manifest, and its main metric on the split of the
    tables (`figure`) and on dev, if measured.

    `measured` of `rows` rows were measured on dev. `above` is the best of the other rows on the split of the tables,
    where it is better than this one.
    """

    entry: Mapping[str, Any]
    row: RowInfo
    dev_figure: float | None
    figure: float
    measured: int = 0
    rows: int = 0
    above: Recommended | None = None


def recommend(inputs: Inputs, usage: Mapping[str, Any]) -> Recommended:
    """The row of `usage` with the best figure of the main metric on dev; of equal ones, the fastest.

    Where no row was decoded on dev, the figure on the split of the tables decides.
    """
    sign = inputs.manifest.main.sign
    rows = {(row.key, row.split): row for row in reversed(inputs.manifest.rows)}
    times = {row.key: row.latency_ms for row in inputs.speed.rows} if inputs.speed else {}
    chosen = {(candidate.decode.key, candidate.seed): candidate.quality for candidate in inputs.choices}
    candidates = []
    for entry in usage["rows"]:
        key = entry["system"], entry["name"]
        row, on_dev = rows[key, usage["split"]], rows.get((key, "dev"))
        dev = _figure(inputs, on_dev) if on_dev else chosen.get((key, row.seed))
        candidates.append(Recommended(entry, row, dev, _figure(inputs, row)))
    measured = [candidate for candidate in candidates if candidate.dev_figure is not None]

    def goodness(candidate: Recommended) -> tuple[float, float]:
        figure = candidate.figure if candidate.dev_figure is None else candidate.dev_figure
        return sign * figure, -times.get(candidate.row.key, float("inf"))

    best = max(measured or candidates, key=goodness)
    better = [
        candidate
        for candidate in candidates
        if candidate.dev_figure is None and sign * (candidate.figure - best.figure) > 0
    ]
    above = max(better, key=lambda candidate: sign * candidate.figure, default=None)
    return dataclasses.replace(best, measured=len(measured), rows=len(candidates), above=above)


def _figure(inputs: Inputs, row: RowInfo) -> float:
    removal = inputs.manifest.decode(*row.key).removal(inputs.manifest.report.remove_repetitions)
    figure: float = inputs.qualities[row.quality][VARIANTS[removal]][inputs.manifest.main.name]
    return figure


def recommended_outputs(recommended: Recommended, inputs: Inputs) -> list[str]:
    """The first translations of a row, without repetitions where its scores are without them, as its bundle gives
    them."""
    removal = inputs.manifest.decode(*recommended.row.key).removal(inputs.manifest.report.remove_repetitions)
    path = Path(recommended.entry["translations"])
    texts = _first(path)
    if removal == "subwords":
        details = read_details(path.with_suffix(".jsonl"))[:EXAMPLES]
        texts = [line[WITHOUT_REPEATED_SUBWORDS] for line in details]
    return [collapse_repetitions(text) for text in texts] if removal == "words" else texts


def _first(path: str | Path) -> list[str]:
    return list(itertools.islice(read_lines(Path(path)), EXAMPLES))


def inputs_of(recommended: Recommended, usage: Mapping[str, Any]) -> dict[str, str]:
    """Files that the section reads, by their role in it, for provenance."""
    texts = {f"{usage['split']} {side}": usage[side] for side in ("source", "reference")}
    return texts | {"recommended translations": recommended.entry["translations"]}


def context_of(
    recommended: Recommended, inputs: Inputs, usage: Mapping[str, Any], device: str = "auto", precision: str = "auto"
) -> dict[str, Any]:
    """The content of the section. `device` and `precision` are those of the workflow.

    Raises ArtifactError for a bundle or translations that cannot be read.
    """
    folder, split, row = recommended.entry["bundle"], usage["split"], recommended.row
    description = read_bundle(Path(folder))
    sources = _first(usage["source"])
    settings = row.settings | (row.picked or {})
    command = translate_command(folder, description, settings, recommended.entry["systems"], device, precision)
    kinds = read_json(Path(folder, "subwords", "subwords.json")).get("placeholders", ())
    normaliser = Normaliser(description.normalisation, description.languages.source, kinds)
    # Lines were decoded whole. Text that Moses tokenised is another text once it is tokenised again.
    option = "--normalised" if [normaliser.line(line) for line in sources] != sources else "--no-split"
    detokenised = [normaliser.detokenise(line) for line in sources]
    examples = zip(detokenised, _first(usage["reference"]), recommended_outputs(recommended, inputs), strict=True)
    return {
        "title": f"{row.system} {row.name}",
        "why": _why(recommended, split, inputs.manifest.main),
        "folder": folder,
        "default": choice_words(description),
        "command": f"{command} < in.txt > out.txt",
        "again": f"head -n {len(sources)} {shlex.quote(usage['source'])} | {command} {option}",
        "split": split,
        "examples": [{"source": s, "reference": r, "translation": t} for s, r, t in examples],
    }


def _why(recommended: Recommended, split: str, metric: Metric) -> str:
    title = f"{metric.best} {metric.title}"
    if recommended.dev_figure is None:
        return (
            f"No row was decoded on dev, so this is the row with the {title} on {split}, {recommended.figure:.2f}; "
            "of equal rows, the fastest."
        )
    rows = "1 row" if recommended.measured == 1 else f"{recommended.measured} rows"
    were = "was" if recommended.measured == 1 else "were"
    some = recommended.measured < recommended.rows
    among = f" of the {rows} (of {recommended.rows}) that {were} measured there" if some else ""
    more = f" It has {recommended.figure:.2f} on {split}." if split != "dev" else ""
    if above := recommended.above:
        more += (
            f" {above.row.system} {above.row.name} has {above.figure:.2f} there and was not measured on dev; decode it "
            "on dev to compare them."
        )
    return f"It has the {title} on dev, {recommended.dev_figure:.2f}{among}; of equal rows, it is the fastest.{more}"


def render(context: Mapping[str, Any], languages: tuple[str, str]) -> markupsafe.Markup:
    """The section as HTML without its heading; `languages` are the codes of source and target."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source, target = languages
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    codes = {"source_code": source, "target_code": target}
    return markupsafe.Markup(template.render({**context, **codes}))


def markdown(context: Mapping[str, Any]) -> str:
    """The section as Markdown."""
    rows = [list(example.values()) for example in context["examples"]]
    return "\n\n".join(
        [
            "## Use it",
            paragraph(f"Recommended: {context['title']}. {context['why']}"),
            paragraph(f"Its bundle is in {context['folder']}. Default search: {context['default']}."),
            f"```\n{context['command']}\n```",
            f"The first {len(rows)} sentences of {context['split']}:",
            f"```\n{context['again']}\n```",
            markdown_table(["source", "reference", "translation"], rows, left=3),
        ]
    )
