"""The analyses in the report: what each shows as tables and captions, for the page and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.report import page
from workflow_src.evaluation.report.analysis_figures import DRAWN, curve_label, paths, start_title
from workflow_src.evaluation.report.conventions import removal_words
from workflow_src.evaluation.report.markdown import markdown_table
from workflow_src.records.atomic import ArtifactError, read_json

TEMPLATE = Path(__file__).with_name("analyses.html.j2")
NAMES = ("marginal", "tokens", "lengths", "energies", "latent_space", "convergence", "components", "reordering",
         "samples")  # fmt: skip
# The report's own come before.
FIRST_FIGURE, FIRST_TABLE = 4, 3


def read(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Analyses by name, in the order of the section. Raises ArtifactError for a file that is none."""
    found = {}
    for path in paths:
        content = read_json(path)
        name = content.get("analysis") if isinstance(content, dict) else None
        if name not in NAMES:
            raise ArtifactError(f"file {path} is no analysis ({', '.join(NAMES)}); make it again.")
        found[name] = content
    return {name: found[name] for name in NAMES if name in found}


def draw(found: dict[str, dict[str, Any]], manifest: Manifest) -> dict[str, Any]:
    """Figures by name."""
    return {name: DRAWN[name](content, manifest) for name, content in found.items() if name in DRAWN}


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _table(heads: list[str], rows: list[list[str]]) -> dict[str, Any]:
    return {"heads": heads, "rows": rows}


def _curve_rows(found: dict[str, Any], manifest: Manifest, cells: Any) -> list[list[str]]:
    """A row for each procedure and step; what all procedures of a model share, L = 0, stands once."""
    rows, starts = [], set()
    for curve in found["curves"]:
        for point in curve["points"]:
            name = curve_label(curve, found["curves"], manifest)
            if point["steps"] == 0:
                if curve["model"] in starts:
                    continue
                starts.add(curve["model"])
                several = len({other["model"] for other in found["curves"]}) > 1
                name = start_title(manifest) + (f" · {curve['model']}" if several else "")
            rows.append([name, str(point["steps"]), *cells(point)])
    return rows


def marginal_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    heads = ["", "L", "log p(y|x)", "gain", "risen, %", "fallen, %", "effective samples"]
    return _table(
        heads,
        _curve_rows(
            found,
            manifest,
            lambda p: [
                f"{_signed(p['log_probability'])} ± {p['error']:.2f}",
                f"{_signed(p['gain'])} ± {p['gain_error']:.2f}" if p["steps"] else "",
                f"{100 * p['risen']:.0f}" if p["steps"] else "",
                f"{100 * p['fallen']:.0f}" if p["steps"] else "",
                f"{p['effective_samples']:.0f}",
            ],
        ),
    )


def tokens_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    def relative(point: dict[str, Any]) -> str:
        ratio = point["relative_repetitions"]
        return "–" if ratio is None else f"{100 * ratio:.0f} ± {100 * point['relative_repetitions_error']:.0f}"

    heads = ["", "L", "edit distance", "changed, %", "repetitions a sentence", "of those at L = 0, %"]
    return _table(
        heads,
        _curve_rows(
            found,
            manifest,
            lambda p: [
                f"{p['edit_distance']:.2f} ± {p['edit_distance_error']:.2f}" if p["steps"] else "",
                f"{100 * p['changed']:.0f}" if p["steps"] else "",
                f"{p['repetitions']:.2f}",
                relative(p) if p["steps"] else "",
            ],
        ),
    )


def accuracy_table(found: dict[str, Any]) -> dict[str, Any]:
    count = found["candidates"]
    heads = ["", "exact, %", "off by ≤ 1, %", "off by ≤ 2, %", f"among the {count} likeliest, %", "bias, subwords"]
    rows = [
        [
            name,
            *(f"{100 * model[key]:.1f}" for key in ("exact", "within_1", "within_2")),
            f"{100 * model['within_top'][-1]:.1f}",
            _signed(model["bias"]),
        ]
        for name, model in found["models"].items()
    ]
    return _table(heads, rows)


def length_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    several = len(found["models"]) > 1
    heads = ["", "predicted length", "reference's length", f"best of the {found['candidates']} likeliest"]
    rows = []
    for row in found["rows"]:
        name = row.get("label") or manifest.title(row["search"]) + (f", L = {row['steps']}" if row["steps"] else "")
        name += f" ({row['system']})" if several else ""
        rows.append([name, *(f"{row['bleu'][key]:.1f}" for key in ("predicted", "reference", "oracle"))])
    return _table(heads, rows)


def energies_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """The references' energy, and each row's; a line for each seed where there are several."""
    several = len({row["seed"] for row in found["rows"]}) > 1

    def label(row: dict[str, Any]) -> str:
        decode = manifest.decode(row["system"], row["name"])
        return f"{row['system']}, {decode.label()}" + (f", seed {row['seed']}" if several else "")

    def cells(row: dict[str, Any]) -> list[str]:
        if row["per_sentence"] is None:
            return ["–", "–", str(row["unscored"])]
        return [f"{row['per_sentence']:.1f} ± {row['error']:.1f}", f"{row['per_token']:.2f}", str(row["unscored"])]

    named = [("references", found["reference"]), *((label(row), row) for row in found["rows"])]
    heads = ["", "energy, nats a sentence", "a token", "not scored"]
    return _table(heads, [[name, *cells(row)] for name, row in named])


def convergence_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    heads = ["", "L", "ELBO", "gain", "risen, %", "fallen, %", "BLEU", "stopped at L, %"]
    return _table(
        heads,
        _curve_rows(
            found,
            manifest,
            lambda p: [
                f"{_signed(p['bound'])} ± {p['bound_error']:.2f}",
                f"{_signed(p['gain'])} ± {p['gain_error']:.2f}" if p["steps"] else "",
                *(f"{100 * p[key]:.0f}" if p["steps"] else "" for key in ("risen", "fallen")),
                f"{p['bleu']:.1f}",
                f"{100 * p['stopped']:.0f}" if p["steps"] else "",
            ],
        ),
    )


def components_table(found: dict[str, Any]) -> dict[str, Any]:
    held = f"components that hold {100 * found['share']:g} %"
    heads = ["", "latents", "Z", held, "participation ratio", "variance of the means", "mean variance of q"]
    rows = [
        [
            one["system"],
            f"{one['latents']:,}",
            str(one["width"]),
            str(one["components"]),
            f"{one['participation']:.2f}",
            *(f"{one[key]:.3g}" for key in ("variance", "noise")),
        ]
        for one in found["systems"]
    ]
    return _table(heads, rows)


def captions(found: dict[str, dict[str, Any]], manifest: Manifest) -> dict[str, str]:
    """What pictures and tables show, by analysis."""
    return {name: CAPTIONS[name](content, manifest) for name, content in found.items()} | (
        {"accuracy": _accuracy_caption(found["lengths"])} if "lengths" in found else {}
    )


def reordering_table(found: dict[str, Any]) -> dict[str, Any]:
    heads = ["", "word order", "sentences", "latents that move, %", "moved by", "change / spread", "correlation"]
    rows = []
    for one in found["systems"]:
        correlation = "" if one["correlation"] is None else _signed(one["correlation"])
        groups = [(words, one[key]) for key, words in (("same", "the same"), ("other", "another")) if one[key]]
        for number, (words, group) in enumerate(groups):
            share = group["change"] / group["spread"] if group["spread"] else 0.0
            rows.append([
                "" if number else one["system"],
                words,
                f"{group['sentences']:,}",
                f"{100 * group['moved']:.1f}",
                f"{group['displacement']:.2f}",
                f"{share:.2f}",
                "" if number else correlation,
            ])  # fmt: skip
    return _table(heads, rows)


def _first(content: dict[str, Any]) -> str:
    return f"the first {content['sentences']:,} sentences of {content['split']}"


def _marginal_caption(content: dict[str, Any], manifest: Manifest) -> str:
    return (
        f"Marginal log-probability of what each procedure puts out after L steps, the mean over {_first(content)}, by "
        f"importance sampling with {content['samples']:,} samples of q(z|y,x); given the length, whose own probability "
        "is left out. "
        "Bars on the left are standard errors from sampling; on the right, paired standard errors over sentences. "
        "Compare the shapes of these curves with Figure 1 of Lee, Shu & Cho 2020, not their heights: the paper's "
        "released code makes the importance weights sum to one and divides log-probabilities by the length; here "
        "values are log p(y|x) of whole sentences."
    )


def _tokens_caption(content: dict[str, Any], manifest: Manifest) -> str:
    start = start_title(manifest)
    return (
        f"What L steps change on {_first(content)}, in subwords: edit distance from the {start}'s output, and subwords "
        f"that repeat the one before, relative to the {start}'s. Bars are standard errors over sentences."
    )


def _accuracy_caption(content: dict[str, Any]) -> str:
    return f"Predicted target lengths against the references', in subwords, on {_first(content)}."


def _lengths_caption(content: dict[str, Any], manifest: Manifest) -> str:
    return (
        f"BLEU on {_first(content)}, by where lengths come from; {removal_words(content['remove_repetitions'])}. The "
        "best is chosen by the reference, which no system can do: it bounds what another choice of length could reach."
    )


def _latent_space_caption(content: dict[str, Any], manifest: Manifest) -> str:
    titles = (system.title.lower() for system in manifest.systems if system.name == content["system"])
    kind, start = next(titles, "network"), start_title(manifest)
    return (
        f"The latents of sentence {content['sentence'] + 1} of {content['split']} with the {kind} "
        f"{content['system']}, a panel for each target subword{_and_end(content)}, at the reference's length. "
        "Background: the subword "
        f"decoded where only this position moves and the others stay at the {start}. Arrows: the {kind}'s field there. "
        "Paths move all positions at once, so their ends may decode to another subword "
        "than the background's; markers shrink from step to step. Above each panel: the subwords decoded from "
        f"the posterior mean of the reference, the {start}, and after {content['steps']} steps."
    )


def _convergence_caption(content: dict[str, Any], manifest: Manifest) -> str:
    return (
        f"Evidence lower bound of what L steps put out, BLEU, and the share of sentences whose output step L is the "
        f"first to leave as it was, on {_first(content)}; as Figures 3 and 4 of Shu et al. 2020. Bounds are in nats a "
        f"sentence, with {content['samples']:,} draws of z for each output; the length's probability is part of them "
        f"where latents say it. Bars are standard errors over sentences. BLEU: "
        f"{removal_words(content['remove_repetitions'])}."
    )


def _components_caption(content: dict[str, Any], manifest: Manifest) -> str:
    return (
        f"Principal components of the posterior means of q(z|x,y) on {_first(content)} and their references, as in "
        "Figure 5 of Gu & Kong 2021: how many of the Z dimensions the latents use. The participation ratio is the "
        "number of equally large components that would spread alike. Variances are sums over the dimensions: latents "
        "whose means vary little beside the variance of q carry little."
    )


def _reordering_caption(content: dict[str, Any], manifest: Manifest) -> str:
    example, made = content["example"], content["translations"]["system"]
    if example is None:
        return (
            f"Latents and word order, as in Figure 6 of Gu & Kong 2021: none of {_first(content)} has a translation of "
            f"{made} that differs from the reference and shares two words with it."
        )
    one, other = example["texts"]
    return (
        f"Means of q(z|x,y) with the reference as y (down) and with the translation of {made} (across), and which of "
        f"them fit each other best, as in Figure 6 of Gu & Kong 2021: dots are the assignment with the least sum of "
        f"distances, light is near. Shown is line {example['sentence'] + 1}: “{one}” and “{other}”, "
        f"{100 * example['order']:.0f} % of whose pairs of shared words stand in the opposite order. The table is of "
        f"the {content['compared']:,} of {_first(content)} whose two translations differ and share two words or more. "
        "Moved by: positions, the mean. Change / spread: distance at the same position beside that at others. "
        "Correlation: of the distance moved and the share of pairs in the opposite order, over sentences."
    )


def _samples_caption(content: dict[str, Any], manifest: Manifest) -> str:
    steps = content["search"]["steps"]
    return (
        f"Translations of one sample from the prior, and after {page.in_words(steps)} "
        f"{'step' if steps == 1 else 'steps'} of {manifest.title(content['search']['search'])}: of {_first(content)}, "
        "those in which refinement changes most words. What it takes away and what it puts in is marked."
    )


def energies_words(content: dict[str, Any] | None) -> str:
    """What the column of energies is, for a table's caption."""
    if content is None:
        return ""
    return (
        f"Energy is −log p(y|x) of what a row puts out, in nats under {content['scorer']}, the mean over sentences and "
        "over tokens (end symbols counted)."
    )


def _energies_caption(content: dict[str, Any], manifest: Manifest) -> str:
    return (
        f"{energies_words(content)} Of {content['split']}; ±: standard error over sentences. Outputs are those that "
        "the main table scores. Not scored are sentences whose output is longer than the scorer's positions or "
        "impossible for it."
    )


CAPTIONS = {
    "energies": _energies_caption,
    "marginal": _marginal_caption,
    "tokens": _tokens_caption,
    "lengths": _lengths_caption,
    "latent_space": _latent_space_caption,
    "convergence": _convergence_caption,
    "components": _components_caption,
    "reordering": _reordering_caption,
    "samples": _samples_caption,
}


def _and_end(content: dict[str, Any]) -> str:
    """What a map's last panel is where targets have an end symbol; maps of before had none."""
    number = content.get("end_symbol")
    return "" if number is None else f" and one for the end symbol ({content['pieces'][str(number)]}: nothing is said)"


def context_of(found: dict[str, dict[str, Any]], manifest: Manifest, carried: str = "") -> dict[str, Any]:
    """Numbers, tables and captions, apart from pictures. `carried` stands under every table."""
    drawn = [name for name in found if name in DRAWN]
    context: dict[str, Any] = {
        "found": found,
        "carried": carried,
        "captions": captions(found, manifest),
        "figure_numbers": {name: FIRST_FIGURE + number for number, name in enumerate(drawn)},
        "tables": {},
        "table_captions": captions(found, manifest),
        "points": _points(found, manifest),
        "refined_class": _refined_class(found, manifest),
    }
    if "marginal" in found:
        context["tables"]["marginal"] = marginal_table(found["marginal"], manifest)
    if "tokens" in found:
        context["tables"]["tokens"] = tokens_table(found["tokens"], manifest)
    if "lengths" in found:
        context["tables"]["accuracy"] = accuracy_table(found["lengths"])
        context["tables"]["lengths"] = length_table(found["lengths"], manifest)
    if "energies" in found:
        context["tables"]["energies"] = energies_table(found["energies"], manifest)
    if "convergence" in found:
        context["tables"]["convergence"] = convergence_table(found["convergence"], manifest)
    if "components" in found:
        context["tables"]["components"] = components_table(found["components"])
    if "reordering" in found:
        context["tables"]["reordering"] = reordering_table(found["reordering"])
    numbered = [*context["tables"], *(["samples"] if "samples" in found else [])]
    for name in drawn:
        if name in context["tables"]:
            also = ", with its errors" if "curves" in found[name] else ""
            context["table_captions"][name] = f"What Figure {context['figure_numbers'][name]} shows{also}."
    context["table_numbers"] = {name: FIRST_TABLE + number for number, name in enumerate(numbered)}
    context["examples"] = [
        example
        | {
            "sampled_html": page.marked(example["refined"], example["sampled"]),
            "refined_html": page.marked(example["sampled"], example["refined"]),
        }
        for example in found.get("samples", {}).get("examples", [])
    ]
    return context


def _points(found: dict[str, dict[str, Any]], manifest: Manifest) -> list[tuple[str, str]]:
    """Outputs that a map of the latent space tells, with their titles."""
    if "latent_space" not in found:
        return []
    ends = [(name, manifest.title(name)) for name in paths(found["latent_space"])]
    return [("posterior", "posterior"), ("prior", start_title(manifest)), *ends]


def _refined_class(found: dict[str, dict[str, Any]], manifest: Manifest) -> str:
    if "samples" not in found:
        return ""
    search = found["samples"]["search"]
    return page.colour_class(manifest.look(search["system"], search["search"]).colour)


def render(context: dict[str, Any], pictures: dict[str, markupsafe.Markup], number: int, languages: Any) -> str:
    """The section as HTML, its heading with `number`; `languages` are the codes of source and target."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source, target = languages
    more = {"figures": pictures, "number": number, "source_code": source, "target_code": target}
    return markupsafe.Markup(environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(context | more))


HEADINGS = {
    "marginal": "Marginal log-probability",
    "tokens": "Changes of tokens",
    "accuracy": "Lengths",
    "lengths": "",
    "energies": "Energies",
    "convergence": "Convergence",
    "components": "Components of the latents",
    "reordering": "Latents and word order",
}


def markdown(context: dict[str, Any]) -> str:
    """The section as Markdown; nothing where there are no analyses."""
    if not context["found"]:
        return ""
    parts = ["## Analyses"]
    for name, table in context["tables"].items():
        parts += [f"### {HEADINGS[name]}"] if HEADINGS[name] else []
        parts += [
            f"{context['captions'][name]} {context['carried']}".strip(),
            markdown_table(table["heads"], table["rows"]),
        ]
    if context["examples"]:
        parts += ["### Samples", context["captions"]["samples"]]
        for example in context["examples"]:
            lines = [f"- {name}: {example[name]}" for name in ("source", "reference", "sampled", "refined")]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)
