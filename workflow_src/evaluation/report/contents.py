"""What the report of an experiment says: its sections, as a document."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.evaluation.charts import Chart
from workflow_src.evaluation.document import (
    Block,
    Caption,
    Cell,
    Document,
    Fold,
    Heading,
    Paragraph,
    Picture,
    Points,
    Section,
    Strong,
    Table,
)
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.variants import Quality
from workflow_src.evaluation.report import (
    analyses,
    captions,
    carried,
    corpus,
    evidence,
    figures_quality,
    grids,
    page,
    results,
    significance_page,
    speed_page,
    summary,
    tables,
    trained,
)
from workflow_src.evaluation.report.evidence import Group
from workflow_src.evaluation.report.inputs import Inputs


@dataclasses.dataclass(frozen=True)
class Contents:
    """What sections are made of.

    measured   the results, whose record has the provenance
    split      that of the main table
    table      the groups of the main table
    refined    the split of the curves of refinement
    drawn      pictures by name
    """

    material: Inputs
    measured: results.Results
    split: str
    table: list[Group]
    proof: evidence.Evidence
    refined: str
    drawn: Mapping[str, Chart]

    @property
    def manifest(self) -> Manifest:
        return self.material.manifest

    @property
    def carried(self) -> Caption:
        """The data, the seeds and notes on the systems, which every table of results has."""
        rows = self.measured.rows
        data = carried.data(self.manifest.dataset, self.material.corpus.sha256, rows["seed"])
        return Caption(data, {"Systems": f"{carried.SYSTEMS} {carried.unequal(rows)}".strip()})

    @property
    def record(self) -> Mapping[str, Any]:
        """The provenance."""
        return self.measured.record.provenance

    @property
    def at_reference_lengths(self) -> list[dict[str, Any]]:
        """Figures of decodes at the references' lengths."""
        return analyses.at_reference_lengths(self.material.analyses.values(), self.split)

    def picture(self, name: str, caption: Caption, label: str, title: str = "", narrow: bool = False) -> list[Block]:
        """A picture where it was drawn."""
        if name not in self.drawn:
            return []
        return [Picture(name, self.drawn[name], caption, label, title, narrow)]


def evidence_of(material: Inputs, measured: results.Results, split: str) -> tuple[list[Group], evidence.Evidence]:
    """The groups of the main table, and the evidence for comparisons of its rows."""
    manifest, tested = material.manifest, material.significance.get(split)
    removed = manifest.report.remove_repetitions
    proof = evidence.Evidence.of(
        measured.shown(split, removed),
        tested.pairs if tested else {},
        manifest.report.margin,
        material.unfinished,
        manifest.metrics,
    )
    return tables.groups(measured, split, manifest, removed, proof), proof


def document(contents: Contents, needs: Sequence[Block], recommended: Sequence[Block]) -> Document:
    """The report; `needs` are the blocks of its first section, `recommended` those of its last one."""
    manifest, material = contents.manifest, contents.material
    source, target = page.language(manifest.source), page.language(manifest.target)
    experiment = manifest.plan.experiment
    facts_shown = summary.summary(contents.table, contents.proof)
    unread = {training.system.name: training.config.without_positions for training in material.trainings}
    points = corpus.warnings(material.corpus, material.encoded, unread, manifest.test_sets)
    description = manifest.plan.config.description
    head: list[Block] = []
    if facts_shown or points or description:
        head.append(Paragraph.of(Strong("Summary."), f" {description}"))
    if facts_shown:
        head += carried.carry([summary.block(facts_shown)], contents.carried)
    if points:
        head.append(Points(tuple(points)))
    sections = [
        Section("What to take", carried.carry(needs, contents.carried), "take"),
        Section("Quality and speed", carried.carry(quality(contents), contents.carried), "quality"),
        Section("Refinement step by step", refinement(contents), "refinement"),
        Section("Sentences", page.examples(material.traces, manifest), "sentences"),
        Section("Learning", learning(contents), "learning"),
        Section("Analyses", carried.carry(analyses.blocks(material.analyses, manifest), contents.carried), "analyses"),
        Section("Provenance", provenance(contents), "provenance"),
        Section("Use it", recommended, "use"),
    ]
    return Document(
        title=manifest.report.title or f"{experiment}: {source} to {target} without autoregression",
        about=[f"Experiment {experiment} on {manifest.dataset}, {source} to {target}", contents.record["created"][:10]],
        summary=head,
        sections=[section for section in sections if section.blocks],
        files={
            "figures.csv": "figures.csv",
            "rows.csv": "rows.csv",
            "provenance.json": results.RECORD,
            "results.md": "results.md",
            "pictures": "figures/",
        },
        palette=page.palette(manifest),
        languages=(manifest.source, manifest.target),
        footer="Continuum. Every number of the tables is in figures.csv; pictures are in figures/.",
    )


def quality(contents: Contents) -> list[Block]:
    """Tables of quality and speed, and their pictures."""
    manifest, material, split = contents.manifest, contents.material, contents.split
    removed = tables.removals(contents.measured, split, manifest)
    shown = contents.measured.shown(split, manifest.report.remove_repetitions)
    chosen = page.chosen(material.choices)
    blocks: list[Block] = [
        rows_table(contents, split, manifest, contents.table, numbered=True),
        *([Fold("What removing repetitions is worth", [removed])] if removed else []),
    ]
    for further in contents.measured.record.splits[1:]:
        on_split = manifest.on(further)
        groups = tables.groups(contents.measured, further, on_split, manifest.report.remove_repetitions)
        blocks += [Heading(f"On {further}"), rows_table(contents, further, on_split, groups)]
    return [
        *blocks,
        *significance_page.control_tables(material.significance.get(split), shown, manifest),
        *grids.tables(manifest, split, contents.at_reference_lengths, contents.table),
        *contents.picture(
            "quality_speed",
            Caption(
                f"Quality against speed on {split}, one point a row of Table 1.",
                {
                    **figures_quality.notes(contents.table, figures_quality.own_latencies(contents.table)),
                    "Numbers": "Those of the rows of Table 1 (#). On the page, a point says its row, and the legend "
                    "shows and hides searches (with the shift key: several).",
                },
            ),
            f"{manifest.main.title} against latency",
            narrow=True,
        ),
        *contents.picture(
            "latencies",
            Caption(
                f"{manifest.main.title} on {split}, as in Figures 1 and 4 of Gu & Kong 2021.",
                {
                    "Latencies": "The median time of a sentence by itself and the time a sentence in batches, under "
                    "each protocol.",
                    **figures_quality.notes(contents.table, figures_quality.latencies(material.speed)),
                    "Numbers": "Those of the rows of Table 1 (#) that no other row beats in both.",
                },
            ),
            f"{manifest.main.title} against every latency that was measured",
            title="Quality against every latency",
        ),
        *page.convention_table(manifest, shown),
        *_below("Chosen on dev", chosen),
        Heading("How speed was measured"),
        *speed_page.blocks(material.speed, manifest),
        *contents.picture(
            "time_by_length",
            Caption(
                "Median milliseconds of sentences of similar length, one at a time; of each refinement, the row with "
                "the fewest steps."
            ),
            "Time against sentence length",
            title="Time against length",
            narrow=True,
        ),
        *speed_page.protocol_tables(material.speed, manifest),
    ]


def _below(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Blocks below a heading; nothing where there are none."""
    return [Heading(title), *blocks] if blocks else []


def rows_table(
    contents: Contents, split: str, manifest: Manifest, table: Sequence[Group], numbered: bool = False
) -> Table:
    """The table of rows of a split; the numbered one is the main one."""
    material, report = contents.material, manifest.report
    lines = [line for group in table for line in group.lines]
    comparisons = sum(len(line.p_values) for line in lines)
    reference = manifest.reference
    # Speed is that of the main table's rows.
    timed, compared = (any(line.figures[name] is not None for line in lines) for name in ("latency_ms", "speedup"))
    shown = contents.measured.shown(split, report.remove_repetitions)
    tested = [metric for metric in manifest.metrics if metric.uncertainty]
    removal = captions.removal_words(report.remove_repetitions, manifest.means_repetitions)
    signatures = contents.measured.record.signatures[split]
    repetitions = f"In non-autoregressive outputs, {removal}; autoregressive outputs are scored as they are."
    notes = {
        "Repetitions": "" if all(line.decode.autoregressive for line in lines) else repetitions,
        **captions.figure_words(lines),
        "References": captions.reference_words(manifest, split),
        "Metrics": captions.scored_words(material.corpus.normalisation, manifest.metrics, signatures),
        "p": significance_page.p_words(
            material.significance.get(split), comparisons, tested, significance_page.compared_with(shown)
        ),
        "As good": captions.rival_words(contents.proof) if numbered else "",
        "Published": f"{captions.published_words(manifest)} {tables.published_order(table)}".strip(),
        **analyses.column_notes(material.analyses.values(), split, manifest),
        "Latency": captions.LATENCY if timed else "",
        "Speed-up": f"Of median latency, over {tables.row_words(reference)}." if compared and reference else "",
    }
    without_row = tables.unmatched_expected(table, report.expected)
    if numbered:
        measured = {f"{row['system']}/{row['name']}" for row in contents.at_reference_lengths}
        at_lengths = report.expected_reference_lengths.items()
        without_row |= {
            f"{key} (at the references' lengths)": value for key, value in at_lengths if key not in measured
        }
    published = ", ".join(f"{name} {value}" for name, value in without_row.items())
    sentences = quality_on(material, split).sentences or 0
    line = [
        f"{'Quality and speed' if timed else 'Quality'} on {split} of {manifest.dataset} "
        f"({manifest.source}→{manifest.target}, {sentences:,} sentences).",
        corpus.repeated_words(material.corpus, split, "train"),
        corpus.repeated_words(material.corpus, split, "dev"),
        page.loss_words(material.corpus, split),
        f"Published without a row here: {published}." if published else "",
    ]
    return tables.block(table, manifest, Caption(" ".join(filter(None, line)), notes), numbered)


def refinement(contents: Contents) -> list[Block]:
    """Pictures of refinement step by step."""
    followed = [decode.search for decode in contents.manifest.decodes if decode.search.traceable]
    starts = dict.fromkeys(search.baseline for search in followed)
    begins = ""
    if len(starts) == 1 and (start := next(iter(starts))):
        begins = f" L = 0 is the {contents.manifest.title(start)}, where all searches begin."
    seeds = {row.seed for row in contents.manifest.rows}
    notes = {"Bars": "Deviations over seeds." if len(seeds) > 1 else ""}
    return [
        *contents.picture(
            "refinement",
            Caption(f"Quality on {contents.refined} after L refinement steps.{begins}", notes),
            "Quality against refinement steps",
            narrow=True,
        ),
        *contents.picture(
            "stopping",
            Caption("Sentences stop when a step is shorter than a threshold, one point a threshold, on dev."),
            "Quality against mean steps with adaptive stopping",
            title="Adaptive stopping",
            narrow=True,
        ),
    ]


def learning(contents: Contents) -> list[Block]:
    """Learning curves."""
    notes = {
        "dev_bleu": ("BLEU on dev", "Computed on the first dev sentences, as many as the setting dev_sentences says."),
        "dev_bleu_posterior": (
            "Latent variables",
            "BLEU of the latent-variable model is from the prior mean and, as a broken line, from the posterior mean, "
            "which sees the reference.",
        ),
    }
    trainings = contents.material.trainings
    drawn = dict(note for key, note in notes.items() if any(each.has_curve(key) for each in trainings))
    caption = Caption("Learning curves over updates, at every validation.", drawn)
    return contents.picture("learning_curves", caption, "Learning curves")


def provenance(contents: Contents) -> list[Block]:
    """Facts, systems, and the corpus."""
    manifest, material = contents.manifest, contents.material
    outcomes = corpus.placeholder_outcomes(manifest.rows, material.qualities, contents.split)
    mixtures = {each.system.name: each.config.texts for each in material.trainings if each.config.texts}
    codes = (manifest.source, manifest.target)
    sums: list[list[str | Cell]] = [
        [name, Cell(digest, code=True)] for name, digest in sorted((material.corpus.sha256 or {}).items())
    ]
    notes = manifest.report.notes
    return [
        Table([], facts(contents), look="plain facts", left=2),
        *_below("Systems", [trained.table(material.trainings)] if material.trainings else []),
        *corpus.blocks(material.corpus, material.monolingual, material.encoded, mixtures, outcomes, codes),
        *([Fold("SHA-256 of the texts", [Table([], sums, left=2)])] if sums else []),
        *_below("Notes", [Paragraph.of(notes)] if notes else []),
    ]


def facts(contents: Contents) -> list[list[str | Cell]]:
    """Provenance as names and values for reading."""
    manifest, material, record = contents.manifest, contents.material, contents.record
    speed, hardware = material.speed, record["hardware"]
    timing = f"; speed on {speed.protocol.device_name or speed.processor}" if speed and speed.processor else ""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
    files = [f"{path} (SHA-256 {digest})" if digest else path for path, digest in record["configuration"].items()]
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in manifest.rows}))
    terms = manifest.plan.loaded.dataset
    licence = terms.licence and f"licence: {terms.licence}"
    dataset = [text for text in (terms.citation, licence, terms.homepage) if text]
    checksum = carried.checksum(material.corpus.sha256)
    values: dict[str, str | Cell] = {
        "dataset": "; ".join([manifest.dataset, *dataset]) if dataset else "",
        "checksum": f"SHA-256 {checksum} of the sums of its texts" if checksum else "",
        "downloads": corpus.downloads(material.corpus, material.monolingual),
        "command": Cell(record["command"], code=True),
        "configuration": ", ".join(files),
        "code": f"commit {record['commit']}" if record["commit"] else "not in version control",
        "date": record["created"],
        "seeds": seeds,
        "hardware": f"{hardware['processor']}, {hardware['cores']} cores, {hardware['system']}{timing}",
        "versions": versions,
        **{
            f"signature of {name}": Cell(text, code=True)
            for name, text in contents.measured.record.signatures[contents.split].items()
        },
        "BLEU of references, normalised and put together like outputs": page.round_trip_words(material.corpus),
    }
    return [[name, value] for name, value in values.items() if value]


def quality_on(material: Inputs, split: str) -> Quality:
    """The first quality file of a split."""
    return next(material.qualities[row.quality] for row in material.manifest.rows if row.split == split)
