"""The report as one HTML page that opens without a network, and as Markdown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from workflow_src.evaluation.manifest import EngineKey, Manifest, words
from workflow_src.evaluation.quality.metrics import LEAST_ROUND_TRIP
from workflow_src.evaluation.quality.variants import VARIANTS
from workflow_src.evaluation.report import conventions, speed_page, tables
from workflow_src.evaluation.report.files import CorpusSummary, FollowedSearch, Traces
from workflow_src.evaluation.report.markdown import bold, markdown_table, paragraph, plain
from workflow_src.evaluation.report.results import Choice
from workflow_src.evaluation.report.tables import Group
from workflow_src.evaluation.report.trained import UNREACHABLE
from workflow_src.evaluation.speed.measured import MeasuredProtocol, Speed
from workflow_src.registry import main_metric, searches
from workflow_src.spec import Metric

TEMPLATES = Path(__file__).parent
NUMBER_WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def language(code: str) -> str:
    """The English name of a language by its ISO 639 code of two or three letters; the code where it has none."""
    # Imported here, because it reads its tables on import.
    from iso639 import Language, LanguageNotFoundError

    for language_of in (Language.from_part1, Language.from_part3, Language.from_part2b):
        try:
            # Without "(macrolanguage)" and the years of a language.
            return re.sub(r" \((macrolanguage|[^)]*\d[^)]*)\)", "", language_of(code).name)
        except LanguageNotFoundError:
            continue
    return code


def in_words(number: int) -> str:
    """Small numbers as words."""
    return NUMBER_WORDS[number] if number < len(NUMBER_WORDS) else f"{number:,}"


def changed_words(before: list[str], after: list[str]) -> list[bool]:
    """For each word of `after`, whether it is new: outside a longest common subsequence with `before`.

    Among equally long subsequences the leftmost matches in `after` count as kept, so the result is deterministic.
    """
    rows, columns = len(before), len(after)
    # longest[i][j]: length of the longest common subsequence of before[i:] and after[j:].
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            longest[i][j] = (
                longest[i + 1][j + 1] + 1 if before[i] == after[j] else max(longest[i + 1][j], longest[i][j + 1])
            )
    changed = [True] * columns
    i = j = 0
    while i < rows and j < columns:
        if before[i] == after[j]:
            changed[j] = False
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return changed


def marked(before: str, after: str) -> markupsafe.Markup:
    """`after` as HTML, with a <mark> around each run of words that are not in `before`."""
    words = after.split()
    runs = []
    flags = changed_words(before.split(), words)
    for is_new, run in itertools.groupby(zip(words, flags, strict=True), key=lambda pair: pair[1]):
        text = markupsafe.escape(" ".join(word for word, _ in run))
        runs.append(markupsafe.Markup("<mark>{}</mark>").format(text) if is_new else text)
    return markupsafe.Markup(" ").join(runs)


def example_steps(texts: list[str], first: int = 0) -> list[dict[str, Any]]:
    """Steps of a trace after its first text, that of step `first`: label ("1", or "2–4" for steps without a change),
    HTML, and whether it changed."""
    steps: list[dict[str, Any]] = []
    for step in range(1, len(texts)):
        unchanged = texts[step] == texts[step - 1]
        if unchanged and steps and steps[-1]["same"]:
            steps[-1]["last"] = first + step
            continue
        number, html = first + step, marked(texts[step - 1], texts[step])
        steps.append({"first": number, "last": number, "same": unchanged, "html": html})
    for entry in steps:
        entry["label"] = str(entry["first"]) if entry["first"] == entry["last"] else f"{entry['first']}–{entry['last']}"
    return steps


def examples(traces: Traces | None, manifest: Manifest) -> list[dict[str, Any]]:
    """Example sentences for the page. The start of all searches is given once where it is the same text."""
    if traces is None:
        return []
    example_blocks, followed = [], traces.searches
    start = manifest.start
    starts_from = next((d for d in manifest.decodes if start and d.search.name == start.name), None)
    start_class = colour_class(starts_from.look.colour) if starts_from else ""
    for example in traces.examples:
        searches = {name: texts for name, texts in example.searches.items() if texts}
        starts = {texts[0] for texts in searches.values()}
        shared = starts.pop() if len(starts) == 1 else None
        example_blocks.append(
            {
                **{key: getattr(example, key) for key in ("index", "source", "reference", "teacher", "beside")},
                "start": shared,
                "start_title": start.title if start else "start",
                "start_class": start_class,
                "searches": [
                    {
                        "name": name,
                        "class": colour_class(manifest.look(followed[name].system, followed[name].search).colour),
                        "start": None if shared is not None else texts[0],
                        "first": _first_value(followed[name]),
                        "steps": example_steps(texts, _first_value(followed[name])),
                    }
                    for name, texts in searches.items()
                ],
            }
        )
    return example_blocks


def _first_value(followed: FollowedSearch) -> int:
    """The number of the first text of a trace; 0 where the search is not declared."""
    return searches()[followed.search].first_value if followed.search in searches() else 0


def colour_class(colour: str | None) -> str:
    """CSS class, and name of the variable, of a colour of figures."""
    return f"c-{colour.removeprefix('#')}" if colour else ""


def palette(manifest: Manifest) -> list[dict[str, str]]:
    """Colours of the page: class and the colour on light and on dark paper."""
    return [
        {"class": colour_class(colour), "light": look.light or colour, "dark": look.dark or colour}
        for look in manifest.palette
        if (colour := look.colour)
    ]


def round_trip_words(corpus: CorpusSummary) -> str:
    """BLEU of normalised references, from `corpus.json`, in words; "" where it is not there."""
    if not corpus.round_trip_bleu:
        return ""
    figures = " and ".join(f"{bleu:.2f} on {split}" for split, bleu in corpus.round_trip_bleu.items())
    text = f"references, normalised and put together like outputs, have BLEU {figures} against the references as given"
    if corpus.normalisation.references == "normalised":
        return f"{text}; outputs are scored against normalised references"
    return f"{text}: normalisation costs as much"


def loss_words(corpus: CorpusSummary, split: str) -> str:
    """A sentence for captions where normalisation alone costs more BLEU than it should, else ""."""
    bleu = corpus.round_trip_bleu.get(split, 100.0)
    if bleu >= LEAST_ROUND_TRIP or corpus.normalisation.references == "normalised":
        return ""
    return (
        f"The references themselves, normalised and put together like outputs, have {bleu:.1f} BLEU here: "
        "normalisation costs the rest."
    )


def protocol_words(speed: Speed | None) -> str:
    """How speed was measured, in sentences."""
    if not speed:
        return "Speed was not measured in this run."
    if not speed.rows:
        return "No row could be timed."
    protocol = speed.protocol
    device = protocol.device_name or speed.processor or protocol.device
    load = protocol.other_load_cores or (0.0,)
    disturbed, redone = (in_words(n) if n else "none" for n in (protocol.disturbed_rounds, protocol.redone_rounds))
    threads = f"{in_words(protocol.threads)} CPU thread{'s' * (protocol.threads != 1)}"
    rows = "Rows" if protocol.not_timed else "All rows"
    text = (
        f"{rows} were timed in one run on {device} with {threads} ({_precisions(protocol)}), each engine in a "
        f"process of its own, from text in to text out, on the same {protocol.sentences:,} sentences, in "
        f"{in_words(protocol.repeats)} rounds that alternate between the rows, each after {protocol.warmup} untimed "
        f"sentences. One at a time, a sentence's time is its median over rounds; throughput is that of the median "
        f"round with batches of {_batches(speed)}. Other processes used {min(load):.2f} to {max(load):.2f} of a core "
        f"during the rounds kept; rounds above {protocol.disturbed_above_cores:.2f} were redone "
        f"({redone} in all), and {disturbed} of those kept stayed above it."
    )
    if protocol.baseline:
        text += f" Speed-ups compare median latencies with {protocol.baseline.system} {protocol.baseline.name}."
    shares = [row.subword_share for row in speed.rows if row.subword_share is not None]
    if shares:
        low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
        text += f" Splitting into subwords and joining took {low if low == high else f'{low} to {high}'} % of the time."
    return text


def chosen_words(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """For every decode that chose settings on dev: its title, the chosen settings, and all tried ones with figures.

    Figures are those of the main metric, and of the metric that decided where it is another.
    """
    return [
        {
            "heads": [f"dev {metric.title}" for metric in _dev_metrics(choice)],
            "title": f"{choice.decode.system.name}, {choice.decode.name}, seed {choice.seed}",
            "chosen": words(choice.chosen),
            "at_edge": "; ".join(choice.at_edge),
            "points": [
                {
                    "settings": words(point["settings"]),
                    "figures": [
                        f"{metric.factor * point[metric.name]:.2f}{metric.unit and f' {metric.unit}'}"
                        for metric in _dev_metrics(choice)
                    ],
                    "steps": f"{point['mean_steps']:.2f}",
                    "chosen": point["settings"] == choice.chosen,
                }
                for point in choice.points
            ],
        }
        for choice in choices
    ]


def _dev_metrics(choice: Choice) -> list[Metric]:
    return list(dict.fromkeys((main_metric(), choice.metric)))


def convention_table(manifest: Manifest, qualities: Mapping[str, dict[str, Any]], split: str) -> dict[str, Any] | None:
    """The main metric of every row by its own convention and those of papers: `title`, `line`, `heads` and `rows`; None
    where there is no other convention, or no row was scored by all."""
    by_title = {metric.convention.title: metric for metric in manifest.metrics if metric.convention}
    rows = []
    for row in manifest.rows:
        removal = manifest.decode(*row.key).removal(manifest.report.remove_repetitions)
        scored = qualities[row.quality][VARIANTS[removal]]
        figures = [scored[metric.name] for metric in by_title.values()]
        if row.split == split and None not in figures:
            rows.append([row.system, row.name, str(row.seed), *(f"{figure:.1f}" for figure in figures)])
    if len(by_title) < 2 or not rows:
        return None
    words = ", and ".join(m.convention.words for m in by_title.values() if m.convention and m is not manifest.main)
    return {
        "title": f"{manifest.main.title} by other conventions",
        "line": f"For comparison with papers only: {words}.",
        "heads": ["system", "decode", "seed", *by_title],
        "rows": rows,
    }


def _precisions(protocol: MeasuredProtocol) -> str:
    """The precision, or each engine's where there are several engines."""
    precisions = protocol.engines
    if len(precisions) < 2:
        return protocol.precision
    engines = [EngineKey(key) for key in precisions]
    own_precision = next((precisions[engine.key] for engine in engines if engine.own), protocol.precision)
    return f"{own_precision}; {', '.join(engine.label for engine in engines if not engine.own)}"


def _batches(speed: Speed) -> str:
    sizes = sorted({row.batch for row in speed.rows} or {speed.protocol.batch})
    choice = ", the fastest size of each row" if speed.protocol.device == "cuda" else ""
    return f"{sizes[0]:,}{choice}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}{choice}"


def step_cost_words(speed: Speed | None, manifest: Manifest) -> str:
    """The time of one refinement step, in sentences; empty when it is unknown."""
    costs = speed and speed.step_costs
    if costs and costs.failure:
        return f"The time of a refinement step was not measured ({costs.failure.rstrip('.')})."
    if not costs or not costs.costs:
        return ""
    listed = ", ".join(
        f"{_milliseconds(cost.ms_per_step)} for {manifest.title(cost.search)} ({cost.system})" for cost in costs.costs
    )
    text = f"One refinement step costs {listed}, as the slope of a sentence's time over steps, all rows in turns."
    for ratio in costs.ratios:
        control, network = manifest.title(ratio.control), manifest.title(ratio.search)
        measured, predicted = ratio.measured, ratio.predicted
        if measured:
            text += f" A {control} step takes {measured:.1f} times as long as a {network} step."
        if predicted:
            text += f" Counting operations of matrix products predicts {predicted:.2f}"
            text += f", of which {measured / predicted:.2f} was reached." if measured else "."
    return text


def _milliseconds(value: float) -> str:
    return f"{value:.2f} ms" if value > 0 else "less than the noise of the measurement"


def table_cells(table: list[Group], manifest: Manifest) -> dict[str, Any]:
    """Headings and cells of a table for the template; the best lines are marked."""
    columns, best = tables.columns(table, manifest), tables.best_lines(table)
    return {
        "heads": [column.heading for column in columns],
        "groups": [
            {
                "title": group.title,
                "lines": [
                    {
                        "label": line.label,
                        "best": line.decode.key in best,
                        "cells": [
                            ("main" if column is columns[0] else column.kind, *column.cell_or_dash(line))
                            for column in columns
                        ],
                    }
                    for line in group.lines
                ],
            }
            for group in table
        ],
    }


def render(context: dict[str, Any], template: str = "report.html.j2") -> str:
    """The page as HTML; everything that is not Markup is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["in_words"] = in_words
    return environment.get_template(template).render(context)


def markdown(context: dict[str, Any]) -> str:
    """results.md: title, tables, gains from removing repetitions, speed, analyses and provenance."""
    points = "".join(f"- {paragraph(point)}\n" for point in context["summary"])
    sections = [f"# {plain(context['title'])}", paragraph(context["description"]), points]
    table = tables.markdown(context["groups"], context["manifest"])
    sections += ["## Quality and speed", context["caption"].around(table)]
    if context["removals"]:
        removals = conventions.removal_table(context["removals"])
        sections += ["### Repetitions", context["removal_caption"].around(removals)]
    for entry in context["further"]:
        further = tables.markdown(entry["groups"], entry["manifest"])
        sections += [f"### {plain(entry['title'])}", entry["caption"].around(further)]
    for entry in (*context["control_tables"], *context["grids"]):
        sections += [f"### {plain(entry['title'])}", entry["caption"].around(speed_page.markdown(entry))]
        if published := entry.get("published"):
            sections.append(published["caption"].around(speed_page.markdown(published)))
    if context["unmatched"]:
        unmatched = ", ".join(f"{name} {value}" for name, value in context["unmatched"].items())
        sections.append(paragraph(f"Published, without a row here: {unmatched}"))
    if entry := context["conventions"]:
        table = markdown_table(entry["heads"], entry["rows"], left=2)
        sections += [f"### {plain(entry['title'])}", entry["caption"].around(table)]
    if context["chosen"]:
        chosen = "\n\n".join(map(_chosen_table, context["chosen"]))
        sections += ["## Chosen on dev", context["chosen_caption"].around(chosen)]
    sections += ["## Speed", *map(paragraph, (context["protocol"], context["step_cost"]))]
    for entry in context["protocols"]:
        sections += [f"### {plain(entry['title'])}", context["data_caption"].around(speed_page.markdown(entry))]
    sections += [context["analyses_markdown"], "## Provenance"]
    sections.append("".join(f"- {plain(name)}: {plain(value)}\n" for name, value in context["facts"]))
    sections += ["### Systems", _system_table(context["systems"]), paragraph(context["advice"])]
    sections += ["## Notes", paragraph(context["notes"])] if context["notes"] else []
    sections.append(context["usage_markdown"])
    return "\n\n".join(section.strip() for section in sections if section and section.strip()) + "\n"


def _chosen_table(choice: dict[str, Any]) -> str:
    rows = [
        [point["settings"], *(map(bold, point["figures"]) if point["chosen"] else point["figures"]), point["steps"]]
        for point in choice["points"]
    ]
    edge = f" ({choice['at_edge']})" if choice["at_edge"] else ""
    heading = paragraph(f"{choice['title']}: {choice['chosen']}{edge}")
    return f"{heading}\n\n{markdown_table(['tried', *choice['heads'], 'mean steps'], rows)}"


def _system_table(systems: list[dict[str, Any]]) -> str:
    heads = system_heads(systems)
    rows = [[*(system.get(head, "–") for head in heads), system["still improving"]] for system in systems]
    return markdown_table([*heads, "still improving (BLEU)"], rows, left=SYSTEM_WORDS) + "\n"


# Number of columns of words in the table of systems; figures follow.
SYSTEM_WORDS = 4


def system_heads(systems: list[dict[str, Any]]) -> list[str]:
    """Columns of the table of systems: unreachable targets only where some system has them."""
    heads = ["system", "family", "preset", "data", "seed", "subwords", "parameters", "updates", "target tokens seen"]
    heads.append("minutes")
    return heads + [UNREACHABLE] * any(UNREACHABLE in system for system in systems)
