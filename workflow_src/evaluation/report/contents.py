"""What the report of an experiment says: its sections, as a document."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.evaluation import conventions
from workflow_src.evaluation.analyses.energy import energy_words, row_energies, unmatched
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
from workflow_src.evaluation.report import (
    analyses,
    captions,
    carried,
    corpus,
    evidence,
    figures_quality,
    grids,
    page,
    progress,
    results,
    significance_page,
    speed_page,
    summary,
    tables,
    trained,
)
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
    table: list[tables.Group]
    proof: evidence.Evidence
    refined: str
    drawn: Mapping[str, Chart]

    @property
    def manifest(self) -> Manifest:
        return self.material.manifest

    @property
    def data(self) -> str:
        """The data and seeds, which every caption has."""
        return carried.data(self.manifest.dataset, self.material.sums, self.measured.rows["seed"])

    @property
    def notes(self) -> dict[str, str]:
        """Notes on the systems, which every caption has."""
        return carried.notes(self.measured.rows)

    @property
    def record(self) -> Mapping[str, Any]:
        """The provenance."""
        provenance: Mapping[str, Any] = self.measured.record["provenance"]
        return provenance

    def picture(self, name: str, caption: Caption, label: str, title: str = "", narrow: bool = False) -> list[Block]:
        """A picture where it was drawn."""
        if name not in self.drawn:
            return []
        return [Picture(name, self.drawn[name], caption, label, title, narrow)]


def evidence_of(
    material: Inputs, measured: results.Results, split: str
) -> tuple[list[tables.Group], evidence.Evidence]:
    """The groups of the main table, and the evidence for comparisons of its rows."""
    manifest, tested = material.manifest, material.significance.get(split)
    removed = manifest.report.remove_repetitions
    proof = evidence.Evidence.of(
        measured.shown(split, removed),
        tested.pairs if tested else {},
        manifest.report.margin,
        (log.system.name for log in material.logs if evidence.cut_short(log.entries)),
        tested.sentences if tested else 0,
        manifest.metrics,
    )
    return tables.groups(measured, split, manifest, removed, proof), proof


def document(contents: Contents, needs: Sequence[Block], recommended: Sequence[Block]) -> Document:
    """The report; `needs` are the blocks of its first section, `recommended` those of its last one."""
    manifest, material = contents.manifest, contents.material
    source, target = page.language(manifest.source), page.language(manifest.target)
    experiment = manifest.plan.experiment
    points = [
        *summary.summary(contents.table, contents.proof),
        *corpus.warnings(material.corpus, material.encoded, material.unread, manifest.test_sets),
    ]
    description = manifest.plan.config.description
    lede: list[Block] = [Paragraph.of(Strong("Summary."), f" {description}")] if points or description else []
    sections = [
        Section("What to take", needs, "take", "What to take"),
        Section("Quality and speed", quality(contents), "quality", "Quality and speed"),
        Section("Refinement step by step", refinement(contents), "refinement", "Refinement"),
        Section("Sentences", sentences(contents), "sentences", "Sentences"),
        Section("Learning", learning(contents), "learning", "Learning"),
        Section("Analyses", _analyses(contents), "analyses", "Analyses"),
        Section("Provenance", provenance(contents), "provenance", "Provenance"),
        Section("Use it", recommended, "use", "Use it"),
    ]
    return Document(
        title=manifest.report.title or f"{experiment}: {source} to {target} without autoregression",
        about=[f"Experiment {experiment} on {manifest.dataset}, {source} to {target}", contents.record["created"][:10]],
        summary=[*lede, *([Points(tuple(points))] if points else [])],
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
    manifest, material, split, data = contents.manifest, contents.material, contents.split, contents.data
    measured = row_energies(material.analyses.values(), split)
    removal = captions.removal_caption(manifest, split, data, contents.notes)
    removals = tables.removals(contents.measured, split, manifest, removal)
    shown = contents.measured.shown(split, manifest.report.remove_repetitions)
    tested = material.significance.get(split)
    chosen = page.chosen(material.choices, Caption(data, {"Bold": "The settings that were chosen.", **contents.notes}))
    carried_caption = Caption(data, contents.notes)
    hollow = "Systems after the first one of their family." if figures_quality.hollow(contents.table) else ""
    series = figures_quality.joined_series(contents.table)
    return [
        tables.block(contents.table, manifest, main_caption(contents), numbered=True),
        *([Fold("What removing repetitions is worth", [removals])] if removals else []),
        *further_tables(contents),
        *significance_page.control_tables(tested, shown, manifest, data, contents.notes),
        *grids.tables(manifest, measured, contents.table, data, contents.notes),
        *contents.picture(
            "quality_speed",
            Caption(
                f"Quality against speed on {split}, one point a row of Table 1.",
                {
                    "Joined points": f"Points of one search, in the order of their {series}.",
                    "Grey line": "It joins rows that no other row beats in both.",
                    "Hollow markers": hollow,
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
                    "Grey line": "It joins rows that no other row beats in both; these have the numbers of Table 1.",
                    "Hollow markers": hollow,
                },
            ),
            f"{manifest.main.title} against every latency that was measured",
            title="Quality against every latency",
        ),
        *page.convention_table(manifest, material.qualities, split, data, contents.notes),
        *_below("Chosen on dev", chosen),
        Heading("How speed was measured"),
        speed_page.protocol_facts(material.speed, carried_caption),
        *map(Paragraph.of, speed_page.failure_sentences(material.speed, manifest)),
        *speed_page.step_costs(material.speed, manifest, carried_caption),
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
        *speed_page.protocol_tables(material.speed, manifest, carried_caption),
    ]


def _below(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Blocks below a heading; nothing where there are none."""
    return [Heading(title), *blocks] if blocks else []


def main_caption(contents: Contents) -> Caption:
    """The caption of the main table."""
    manifest, material, split = contents.manifest, contents.material, contents.split
    comparisons = sum(len(line.p_values) for group in contents.table for line in group.lines)
    measured = row_energies(material.analyses.values(), split)
    notes = {
        "Metrics": captions.scored_words(
            material.corpus.normalisation, manifest.metrics, contents.measured.record["signatures"][split]
        ),
        "p": significance_page.compared_words(material.significance.get(split), comparisons, manifest),
        "As good": captions.rival_words(contents.table, contents.proof),
        "Published": " ".join(
            filter(None, [conventions.published_words(manifest), tables.published_order(contents.table)])
        ),
        "Energy": energy_words(measured.scorer) if measured else "",
        "Training": carried.training(contents.measured.rows),
        **contents.notes,
    }
    without_row = tables.unmatched_expected(contents.table, manifest.report.expected)
    without_row |= unmatched(measured, manifest.report.expected_reference_lengths)
    published = ", ".join(f"{name} {value}" for name, value in without_row.items())
    line = [
        contents.data,
        corpus.repeated_words(material.corpus, split),
        page.loss_words(material.corpus, split),
        captions.bold_words(manifest),
        f"Published without a row here: {published}." if published else "",
    ]
    sentences = quality_on(material, split).get("sentences")
    timed = material.speed is not None
    return captions.main_caption(manifest, split, sentences, timed, " ".join(filter(None, line)), notes)


def further_tables(contents: Contents) -> list[Block]:
    """A heading and a table for each test set after the main one."""
    blocks: list[Block] = []
    material = contents.material
    for split in contents.measured.record["splits"][1:]:
        manifest = contents.manifest.on(split)
        table = tables.groups(contents.measured, split, manifest, manifest.report.remove_repetitions)
        comparisons = sum(len(line.p_values) for group in table for line in group.lines)
        measured = row_energies(material.analyses.values(), split)
        warnings = [corpus.repeated_words(material.corpus, split), page.loss_words(material.corpus, split)]
        line = " ".join(filter(None, [contents.data, *warnings, captions.bold_words(manifest)]))
        notes = {
            "p": significance_page.compared_words(material.significance.get(split), comparisons, manifest),
            "Energy": energy_words(measured.scorer) if measured else "",
            **contents.notes,
        }
        sentences = quality_on(material, split).get("sentences")
        caption = captions.main_caption(manifest, split, sentences, False, line, notes)
        blocks += [Heading(f"On {split}"), tables.block(table, manifest, caption)]
    return blocks


def refinement(contents: Contents) -> list[Block]:
    """Pictures of refinement step by step."""
    start = contents.manifest.start
    begins = f" L = 0 is the {start.title}, where all searches begin." if start else ""
    return [
        *contents.picture(
            "refinement",
            Caption(f"Quality on {contents.refined} after L refinement steps.{begins}"),
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


def sentences(contents: Contents) -> list[Block]:
    """Example sentences."""
    traces = contents.material.traces
    examples = page.examples(traces, contents.manifest)
    if traces is None or not examples:
        return []
    pool = f" of the first {traces.pool} of test" if traces.pool else ""
    refines = any(traces.examples[0].searches.values())
    what = (
        "refinement changes the most words. Words that a step changed are marked"
        if refines
        else "the systems differ by the most words"
    )
    return [Paragraph.of(f"The {page.in_words(len(examples))} sentences{pool} in which {what}."), *examples]


def learning(contents: Contents) -> list[Block]:
    """Learning curves."""
    caption = Caption(
        "Learning curves over updates, at every validation.",
        {
            "BLEU on dev": "Computed on the first dev sentences, as many as the setting dev_sentences says.",
            "Latent variables": "BLEU of the latent-variable model is from the prior mean and, as a broken line, from "
            "the posterior mean, which sees the reference.",
        },
    )
    return contents.picture("learning_curves", caption, "Learning curves")


def _analyses(contents: Contents) -> list[Block]:
    text = " ".join([contents.data, *contents.notes.values()])
    return analyses.blocks(contents.material.analyses, contents.manifest, text)


def provenance(contents: Contents) -> list[Block]:
    """Facts, systems, and the corpus."""
    manifest, material = contents.manifest, contents.material
    codes = (manifest.source, manifest.target)
    advice = progress.advice((log.system.name, log.entries) for log in material.logs)
    counts = corpus.table(material.corpus, material.monolingual, material.encoded)
    counted = [
        *corpus.sentences(material.corpus, material.encoded, material.mixtures),
        *corpus.placeholder_outcomes(manifest.rows, material.qualities, contents.split),
    ]
    sums: list[list[str | Cell]] = [
        [name, Cell(digest, code=True)] for name, digest in sorted((material.sums or {}).items())
    ]
    notes = manifest.report.notes
    return [
        Table([], facts(contents), look="plain facts", left=2),
        Heading("Systems"),
        trained.table(material.systems),
        *([Paragraph.of(advice)] if advice else []),
        *_below("Corpus", [counts, *map(Paragraph.of, counted)] if counts else []),
        *corpus.cleaning(material.corpus, material.monolingual, material.encoded, codes),
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
    dataset = [text for text in (terms.citation, terms.licence, terms.homepage) if text]
    checksum = carried.checksum(material.sums)
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
            for name, text in contents.measured.record["signatures"][contents.split].items()
        },
        "round trip": page.round_trip_words(material.corpus),
    }
    return [[name, value] for name, value in values.items() if value]


def quality_on(material: Inputs, split: str) -> dict[str, Any]:
    """The first quality file of a split."""
    return next(material.qualities[row.quality] for row in material.manifest.rows if row.split == split)
