"""What the pictures and tables of the analyses show, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.analyses import contents
from workflow_src.evaluation.analyses.curves import FirstSentences
from workflow_src.evaluation.report import page
from workflow_src.evaluation.report.analysis_figures import start_title
from workflow_src.evaluation.report.conventions import removal_words, source_words
from workflow_src.evaluation.report.tables import CONVENTION_LABELS


def captions(found: contents.Analyses, manifest: Manifest) -> dict[str, str]:
    """What pictures and tables show, by analysis."""
    told = {name: CAPTIONS[name](content, manifest) for name, content in found.made().items()}
    if found.lengths:
        told["accuracy"] = _accuracy_caption(found.lengths)
    if found.energies and found.energies.at_reference_lengths:
        told["reference_lengths"] = _reference_lengths_caption(found.energies, manifest)
    return told


def energies_words(content: contents.Energies | None) -> str:
    """What the columns of energies in the main table are, for its caption."""
    return "" if content is None else _energies_under(content.scorer)


def _energies_under(scorers: str) -> str:
    return (
        f"Energy is −log p(y|x) of what a row puts out, in nats under {scorers}, the mean over sentences and "
        "over tokens (end symbols counted)."
    )


def _first(content: FirstSentences) -> str:
    return f"the first {content.sentences:,} sentences of {content.split}"


def _marginal_caption(content: contents.Marginal, manifest: Manifest) -> str:
    return (
        f"Marginal log-probability of what each procedure puts out after L steps, the mean over {_first(content)}, by "
        f"importance sampling with {content.samples:,} samples of q(z|y,x); given the length, whose own probability "
        "is left out. "
        "Bars on the left are standard errors from sampling; on the right, paired standard errors over sentences. "
        "Compare the shapes of these curves with Figure 1 of Lee, Shu & Cho 2020, not their heights: the paper's "
        "released code makes the importance weights sum to one and divides log-probabilities by the length; here "
        "values are log p(y|x) of whole sentences."
    )


def _tokens_caption(content: contents.Tokens, manifest: Manifest) -> str:
    start = start_title(manifest)
    return (
        f"What L steps change on {_first(content)}, in subwords: edit distance from the {start}'s output, and subwords "
        f"that repeat the one before, relative to the {start}'s. Bars are standard errors over sentences."
    )


def _accuracy_caption(content: contents.Lengths) -> str:
    return f"Predicted target lengths against the references', in subwords, on {_first(content)}."


def _lengths_caption(content: contents.Lengths, manifest: Manifest) -> str:
    return (
        f"BLEU on {_first(content)}, by where lengths come from; {removal_words(content.remove_repetitions)}. The "
        "best is chosen by the reference, which no system can do: it bounds what another choice of length could reach."
    )


def _latent_space_caption(content: contents.LatentSpace, manifest: Manifest) -> str:
    titles = (system.title.lower() for system in manifest.systems if system.name == content.system)
    kind, start = next(titles, "network"), start_title(manifest)
    return (
        f"The latents of sentence {content.sentence + 1} of {content.split} with the {kind} "
        f"{content.system}, a panel for each target subword{_and_end(content)}, at the reference's length. "
        "Background: the subword "
        f"decoded where only this position moves and the others stay at the {start}. Arrows: the {kind}'s field there. "
        "Paths move all positions at once, so their ends may decode to another subword "
        "than the background's; markers shrink from step to step. Above each panel: the subwords decoded from "
        f"the posterior mean of the reference, the {start}, and after {content.steps} steps."
    )


def _and_end(content: contents.LatentSpace) -> str:
    """What a map's last panel is where targets have an end symbol."""
    number = content.end_symbol
    return "" if number is None else f" and one for the end symbol ({content.pieces[number]}: nothing is said)"


def _convergence_caption(content: contents.Convergence, manifest: Manifest) -> str:
    return (
        f"Evidence lower bound of what L steps put out, BLEU, and the share of sentences whose output step L is the "
        f"first to leave as it was, on {_first(content)}; as Figures 3 and 4 of Shu et al. 2020. Bounds are in nats a "
        f"sentence, with {content.samples:,} draws of z for each output; the length's probability is part of them "
        f"where latents say it. Bars are standard errors over sentences. BLEU: "
        f"{removal_words(content.remove_repetitions)}."
    )


def _latent_paths_caption(content: contents.LatentPaths, manifest: Manifest) -> str:
    return (
        f"Where latents are after L steps, on {_first(content)}, from the {start_title(manifest)}, z_0. Distances are "
        "Euclidean norms of a position's latent: from z_0, from the step before, and from the mean of q(z|x,y) with "
        "the reference as y. Log-densities are in nats a position: of the prior p(z|x), and of q(z|x,y) with y as what "
        "z_L decodes to. All are means over positions, then over sentences. Cosine: between a step and the delta step "
        "from the same point, over the sentences in which both move. Latents of target positions are followed at the "
        "reference's length. Bars and ± are standard errors over sentences."
    )


def _components_caption(content: contents.Components, manifest: Manifest) -> str:
    return (
        f"Principal components of the posterior means of q(z|x,y) on {_first(content)} and their references, as in "
        "Figure 5 of Gu & Kong 2021: how many of the Z dimensions the latents use. The participation ratio is the "
        "number of equally large components that would spread alike. Variances are sums over the dimensions: latents "
        "whose means vary little beside the variance of q carry little."
    )


def _reordering_caption(content: contents.Reordering, manifest: Manifest) -> str:
    example, made = content.example, content.translations.system
    if example is None:
        return (
            f"Latents and word order, as in Figure 6 of Gu & Kong 2021: none of {_first(content)} has a translation of "
            f"{made} that differs from the reference and shares two words with it."
        )
    one, other = example.texts
    aligned = any(panel.alignments for panel in example.panels)
    slots = (
        "Beside them, where a model has alignments: the slots that hold each subword of either translation (down) on "
        "its most probable alignment given its own latents, at their places on the source (across). "
    )
    return (
        f"Means of q(z|x,y) with the reference as y (down) and with the translation of {made} (across), and which of "
        f"them fit each other best, as in Figure 6 of Gu & Kong 2021: dots are the assignment with the least sum of "
        f"distances, light is near. Shown is line {example.sentence + 1}: “{one}” and “{other}”, "
        f"{100 * example.order:.0f} % of whose pairs of shared words stand in the opposite order. "
        f"{slots if aligned else ''}The table is of "
        f"the {content.compared:,} of {_first(content)} whose two translations differ and share two words or more. "
        "Moved by: positions, the mean. Change / spread: distance at the same position beside that at others. "
        "Correlation: of the distance moved and the share of pairs in the opposite order, over sentences."
    )


def _samples_caption(content: contents.Samples, manifest: Manifest) -> str:
    steps = content.search.steps
    return (
        f"Translations of one sample from the prior, and after {page.in_words(steps)} "
        f"{'step' if steps == 1 else 'steps'} of {manifest.title(content.search.search)}: of {_first(content)}, "
        "those in which refinement changes most words. What it takes away and what it puts in is marked."
    )


def _energies_caption(content: contents.Energies, manifest: Manifest) -> str:
    scorers = " and ".join(content.by_scorer(content.reference))
    return (
        f"{_energies_under(scorers)} Of {content.split}; ±: standard error over sentences. Outputs are those that "
        "the main table scores. Not scored are sentences whose output is longer than the scorer's positions or "
        "impossible for it."
    )


def _reference_lengths_caption(content: contents.Energies, manifest: Manifest) -> str:
    report, entries = manifest.report, content.at_reference_lengths
    text = (
        f"BLEU on {content.split}, and energies as above, of what searches put out where lengths are those of the "
        "references, which no system knows: rows of the main table are at lengths of their own. "
        f"{removal_words(entries[0].repetitions_removed).capitalize()}."
    )
    if len({row.seed for row in manifest.rows}) > 1:
        text += " Systems are those of the first seed."
    if report.expected_reference_lengths:
        text += (
            f" Published figures{source_words(report)} are at these lengths too: compare them with the column "
            f"{CONVENTION_LABELS[report.expected_convention]}."
        )
    return text


CAPTIONS: dict[str, Callable[[Any, Manifest], str]] = {
    "energies": _energies_caption,
    "marginal": _marginal_caption,
    "tokens": _tokens_caption,
    "lengths": _lengths_caption,
    "latent_space": _latent_space_caption,
    "convergence": _convergence_caption,
    "latent_paths": _latent_paths_caption,
    "components": _components_caption,
    "reordering": _reordering_caption,
    "samples": _samples_caption,
}
