"""Build an experiment's report: results as JSON, CSV and Markdown, figures, and one HTML page written last."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import markupsafe
from matplotlib.figure import Figure

from workflow_src import jobs
from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.report import (
    analyses,
    analysis_captions,
    analysis_tables,
    carried,
    conventions,
    figures,
    figures_latencies,
    figures_learning,
    figures_quality,
    figures_speed,
    grids,
    page,
    results,
    significance_page,
    speed_page,
    summary,
    tables,
    usage,
)
from workflow_src.evaluation.report.inputs import Inputs, load
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import digests, provenance

# What the user ran, set by the workflow.
COMMAND = "CONTINUUM_COMMAND"


def corpus_table(corpus: dict[str, Any]) -> list[dict[str, str]]:
    """Pairs, words and dropped pairs of every split, as text, and SHA-256 of its files."""
    found = []
    for split, pairs in sorted(
        corpus.get("pairs", {}).items(), key=lambda item: ("train", "dev", "test").index(item[0])
    ):
        words = corpus.get("words", {}).get(split, {})
        dropped = {reason: count for reason, count in corpus.get("dropped", {}).get(split, {}).items() if count}
        found.append(
            {
                "split": split,
                "pairs": f"{pairs:,}",
                "words": ", ".join(f"{words[code]:,} {code}" for code in sorted(words)) or "–",
                "dropped": ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in dropped.items())
                or "none",
            }
        )
    return found


def facts(
    manifest: Manifest, made: dict[str, Any], signatures: dict[str, str], threads: str, checksum: str | None
) -> list[tuple[str, str]]:
    """Provenance as (name, value) pairs for reading."""
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items() if version)
    hardware = made["hardware"]
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in manifest.rows}))
    terms = manifest.dataset_terms
    dataset = [text for text in (terms.get("citation"), terms.get("licence"), terms.get("homepage")) if text]
    return [
        *([("dataset", "; ".join([manifest.dataset, *dataset]))] if dataset else []),
        *([("checksum", f"SHA-256 {checksum} of the sums of its texts")] if checksum else []),
        ("command", made["command"]),
        ("code", f"commit {made['commit']}" if made["commit"] else "not in version control"),
        ("made", made["created"]),
        ("seeds", seeds),
        ("hardware", f"{hardware['processor']}, {hardware['cores']} cores, {hardware['system']}{threads}"),
        ("versions", versions),
        *((f"signature of {name}", text) for name, text in signatures.items()),
    ]


def describe(found: Inputs, command_line: str) -> dict[str, Any]:
    """The provenance block of results.json."""
    first = next(iter(found.qualities.values()))["kept"]
    corpus = {key: found.corpus.get(key) for key in ("pairs", "words", "dropped", "sha256")}
    manifest = found.manifest
    return provenance(
        {"experiment": manifest.experiment, "report": manifest.report.model_dump(mode="json")},
        found.files,
        command=command_line,
        seeds=sorted({row.seed for row in manifest.rows}),
        signatures={"BLEU": first["bleu_signature"], "chrF": first["chrf_signature"]},
        corpus=corpus,
        systems=found.systems,
        significance=found.significance and found.significance.test,
        speed=found.speed_content
        and {key: found.speed_content.get(key) for key in ("protocol", "step_costs", "provenance")},
    )


def context_of(found: Inputs, made: dict[str, Any], rows: Sequence[results.Row], split: str) -> dict[str, Any]:
    """What page and Markdown show, apart from pictures."""
    manifest, speed = found.manifest, found.speed
    report = manifest.report
    removed = report.remove_repetitions
    table, convention = tables.groups(rows, manifest, removed), report.expected_convention
    comparisons = sum(line.p_value is not None for group in table for line in group.lines)
    compared = significance_page.main_caption(found.significance, comparisons, manifest)
    sentences = next(iter(found.qualities.values())).get("sentences")
    timing = f"; speed on {speed.protocol.device_name or speed.processor}" if speed and speed.processor else ""
    trained, about = carried.report_words(manifest.dataset, found.sums, found.systems, rows)
    caption = page.caption(
        removed, manifest, split, sentences, speed is not None, compared, found.corpus.get("normalisation")
    )
    measured = found.analyses.energies
    energies = analysis_captions.energies_words(measured)
    source, target = page.language(manifest.source), page.language(manifest.target)
    return {
        "title": report.title or f"{manifest.experiment}: {source} to {target} without autoregression",
        "experiment": manifest.experiment,
        "dataset": manifest.dataset,
        "source_language": source,
        "target_language": target,
        "source_code": manifest.source,
        "target_code": manifest.target,
        "description": manifest.description,
        "notes": report.notes,
        "palette": page.palette(manifest),
        "start_title": manifest.start.title if manifest.start else "",
        "summary": summary.summary(table, speed.protocol.baseline if speed else None),
        "groups": table,
        "removals": tables.removals(rows, manifest),
        "removal_heads": list(tables.REMOVAL_LABELS.values()),
        "removal_caption": conventions.removal_caption(removed, split, manifest.aligned),
        "small_digits": not figures_quality.crowded(table),
        "series": figures_quality.joined_by(table),
        "table": page.table_cells(table, convention),
        "caption": " ".join(filter(None, [caption, energies, trained, about])),
        "carried": about,
        "control_tables": significance_page.control_tables(found.significance, rows, manifest, removed),
        "chosen": page.chosen_words(found.choices),
        "conventions": page.by_convention(manifest, found.qualities, split, removed),
        "expected_convention": convention,
        "published": " ".join(filter(None, [conventions.published_words(report), tables.published_order(table)])),
        "unmatched": tables.unmatched_expected(table, report.expected)
        | analysis_tables.unmatched_reference_lengths(measured, report.expected_reference_lengths),
        "grids": grids.tables(manifest, measured, table, rows),
        "protocol": page.protocol_words(speed),
        "step_cost": page.step_cost_words(speed, manifest),
        "protocols": speed_page.protocol_tables(speed, manifest),
        "examples": page.examples(found.traces, manifest),
        "pool": (found.traces or {}).get("pool"),
        "facts": facts(manifest, made, made["signatures"], timing, carried.checksum(found.sums)),
        "systems": found.systems,
        "system_heads": page.system_heads(found.systems),
        "system_words": page.SYSTEM_WORDS,
        "corpus": corpus_table(found.corpus),
        "checksums": sorted((found.sums or {}).items()),
        "created": made["created"][:10],
    }


def _refinement_groups(
    found: Inputs, table: list[tables.Group], split: str, where: str
) -> tuple[list[tables.Group], str]:
    """Curves are drawn on dev where refinement was decoded there, else on the split of the tables."""
    manifest = found.manifest
    if any(row.split == "dev" and manifest.decode(*row.key).search.traceable for row in manifest.rows):
        rows = results.build_rows(manifest, found.qualities, found.speed, "dev", where=where)
        return tables.groups(rows, manifest, manifest.report.remove_repetitions), "dev"
    return table, split


def draw(found: Inputs, table: list[tables.Group], refined: list[tables.Group]) -> dict[str, Figure]:
    """Figures by name; `table` has the groups of the main table, `refined` those of the curves of refinement."""
    drawn = {
        "learning_curves": figures_learning.learning_curves(found.logs),
        "quality_speed": figures_quality.quality_speed(table),
        "time_by_length": figures_speed.time_by_length(found.speed, found.manifest),
        "refinement": figures.refinement(refined),
    }
    latencies = figures_latencies.quality_latencies(table, found.speed)
    drawn |= {"latencies": latencies} if latencies else {}
    stopping = figures.stopping(found.choices)
    drawn |= {"stopping": stopping} if stopping else {}
    return drawn | analyses.draw(found.analyses, found.manifest)


def run(arguments: argparse.Namespace) -> str:
    folder: Path = arguments.output_folder
    found = load(arguments)
    manifest = found.manifest
    command_line = os.environ.get(COMMAND) or f"snakemake --config experiment={manifest.experiment}"
    asked = arguments.settings["usage"]
    recommended = usage.recommend(found, asked)
    found.files.update(usage.inputs_of(recommended, asked))
    found.files.update({f"bundle {path.parent}": path for path in arguments.bundles})
    made = describe(found, command_line)
    split, where = results.table_split(manifest), str(folder / "results.json")
    energies = found.analyses.energies
    rows = results.build_rows(manifest, found.qualities, found.speed, split, found.significance, where, energies)
    context = context_of(found, made, rows, split)
    refined, refined_split = _refinement_groups(found, context["groups"], split, where)
    drawn = draw(found, context["groups"], refined)
    # Written last: where the page is there, the files beside it are whole.
    (folder / "index.html").unlink(missing_ok=True)
    colours = [look.colour for look in manifest.palette]
    pictures = folder / "figures"
    svg = {name: markupsafe.Markup(figures.save(figure, pictures, name, colours)) for name, figure in drawn.items()}
    analysed = analyses.context_of(found.analyses, manifest, context["carried"])
    languages = (manifest.source, manifest.target)
    number = 5 if context["examples"] else 4
    section = analyses.render(analysed, svg, number, languages) if found.analyses.made() else ""
    context |= {"analyses": section, "analyses_markdown": analyses.markdown(analysed)}
    use = usage.context_of(recommended, found, asked, arguments.device, arguments.precision)
    last = number + 1 + bool(section)
    context |= {"usage": usage.render(use, last, languages), "usage_markdown": usage.markdown(use)}
    html = page.render(context | {"figures": svg, "refined_split": refined_split, "table_split": split})
    texts = {"table.csv": tables.csv_text(rows), "results.md": page.markdown(context), "index.html": html}
    drawings = [f"figures/{name}.{ending}" for name in drawn for ending in ("svg", "png")]
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    made["files"] = digests(folder, drawings) | sums
    content = {"experiment": manifest.experiment, "dataset": manifest.dataset, "provenance": made}
    results.write_results(folder / "results.json", content | {"rows": [row.model_dump(mode="json") for row in rows]})
    for name, text in texts.items():
        with atomic(folder / name) as file:
            file.write(text)
    return f"{folder / 'index.html'}: {len(rows)} rows, {len(context['examples'])} example sentences"


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--speed", type=Path)
    made.add_argument("--traces", type=Path)
    made.add_argument("--significance", type=Path)
    made.add_argument("--corpus", type=Path, help="corpus.json")
    made.add_argument("--analyses", type=Path, nargs="*", default=[], help="files of the analyses")
    made.add_argument("--bundles", type=Path, nargs="*", default=[], help="descriptions of the finished bundles")
    made.add_argument("--device", default="auto", help="that translations were made on")
    made.add_argument("--precision", default="auto", help="of our own code, when translations were made")
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
