"""Trainings in the report: what identifies each, whether it was still improving, its learning curves, the systems."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.config import texts
from workflow_src.config.resolved import System
from workflow_src.evaluation.charts import Axis, Chart, Panel, Series, finite, is_curve, panels
from workflow_src.evaluation.document import Caption, Cell, Table, table_of
from workflow_src.evaluation.manifest import OTHER
from workflow_src.evaluation.report.carried import count
from workflow_src.evaluation.report.files import TrainingSummary
from workflow_src.evaluation.report.markdown import signed
from workflow_src.registry import main_metric

# Figures of the last validation in the table of systems, with their titles.
VALIDATED = {
    "dev_bleu": "BLEU",
    "dev_bleu_posterior": "BLEU from the posterior",
    "dev_bleu_carried": "BLEU that latents carry",
    "dev_kl": "KL",
    "dev_length_accuracy": "lengths right",
    "dev_cosine": "cosine",
    "dev_cosine_noise0": "cosine at noise 0",
}
# Targets that a system cannot output, as shares of training pairs and of dev.
UNREACHABLE = "unreachable targets, % of train / dev"
# A training was still improving where the last part of its updates added more than this gain in BLEU on dev. Smaller
# differences between validations also arise by chance.
LAST_PART = 0.2
LARGEST_GAIN = 1.0
RULE = (
    f"“yes” where the best BLEU on dev of the last {100 * LAST_PART:.0f} % of updates is more than {LARGEST_GAIN:g} "
    "above the best before them: raise training.max_steps for a better result. A system that hardly learnt has too "
    "little BLEU for its curve to say something: look at the losses, and raise training.max_steps or change the "
    "learning rate."
)
# Curves of a panel: key in the training log, dashes, and addition to the label.
Curves = Sequence[tuple[str, int, str]]
# Panels of the learning curves: those after the first training loss, and those after all others.
PANELS: list[tuple[str, Curves]] = [
    ("Loss on dev", [("dev_loss", 0, "")]),
    ("BLEU on dev", [("dev_bleu", 0, ""), ("dev_bleu_posterior", 2, " posterior")]),
    ("ELBO on dev", [("dev_elbo", 0, "")]),
    ("KL on dev, nats a latent", [("dev_kl", 0, "")]),
    ("Lengths right on dev, share", [("dev_length_accuracy", 0, "")]),
]
LAST_PANELS: list[tuple[str, Curves]] = [
    ("Cosine with delta on dev", [("dev_cosine", 0, ""), ("dev_cosine_noise0", 2, " noise 0")])
]
# Figures of validation without a panel; every other figure that a family logs has a panel.
UNDRAWN = {"dev_offset_norm", "dev_offset_norm_noise0", "dev_squared_error", "dev_squared_error_noise0"}


@dataclasses.dataclass(frozen=True)
class Training:
    """A training of a system with a seed: its `config` and the entries of its training.jsonl."""

    system: System
    seed: int
    config: TrainingSummary
    entries: Sequence[Mapping[str, Any]]

    @property
    def data(self) -> str:
        """Its training texts with their weights."""
        return texts.words(self.system.learnt_data) + (" (reversed)" if self.system.reversed else "")

    @property
    def loss_title(self) -> str:
        """The title of the panel of its training loss."""
        return self.system.family.loss_title(self.system.objective)

    def points(self, key: str) -> list[tuple[float, float]]:
        """Updates, and a figure of validation or training."""
        return finite((entry["step"], entry.get(key)) for entry in self.entries)

    def has_curve(self, key: str) -> bool:
        """Whether a figure was logged at several updates and was not zero throughout."""
        points = self.points(key)
        return is_curve(points) and any(value for _, value in points)

    @property
    def cells(self) -> dict[str, str | Cell]:
        """Its cells in the table of systems."""
        config, sizes = self.config, self.config.sizes or {}
        sides = ("target",) if sizes.get("joint") or "source" not in sizes else ("source", "target")
        return {
            "system": self.system.name,
            "family": self.system.family.name,
            "preset": self.system.preset,
            "data": self.data,
            "seed": str(self.seed),
            "subwords": " / ".join(count(sizes.get(side)) for side in sides),
            "parameters": count(config.parameters),
            "updates": count(config.steps),
            "target tokens seen": count(config.target_tokens_seen),
            "minutes": "" if config.minutes is None else f"{config.minutes:.1f}",
            UNREACHABLE: self._unreachable,
            "still improving (BLEU)": Cell(gain_words(self.entries), kind="words"),
            "last validation on dev": Cell(self._last_validation or "–", kind="last"),
        }

    @property
    def _unreachable(self) -> str:
        shares = [
            next((f"{100 * entry[name]:.2f}" for entry in reversed(self.entries) if name in entry), "")
            for name in ("unreachable", "dev_unreachable")
        ]
        return " / ".join(share or "–" for share in shares) if any(shares) else ""

    @property
    def _last_validation(self) -> str:
        last = self.entries[-1] if self.entries else {}
        return ", ".join(f"{title} {last[key]:.4g}" for key, title in VALIDATED.items() if last.get(key) is not None)


def table(trainings: Sequence[Training]) -> Table:
    """The table of systems."""
    caption = Caption("", {"Still improving": RULE})
    words = ("system", "family", "preset", "data")
    return table_of([training.cells for training in trainings], words, caption=caption, look="plain systems", wide=True)


def last_gain(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Gain in BLEU on dev of the last fifth of a training's updates: its best less the best before; may be negative.

    `history` has the entries of a training.jsonl. Two bests are compared and not the last two validations, because one
    validation may be better or worse by chance, and because small steps of a schedule change little whether or not more
    updates would help. Validations of averaged weights are left out: averaging helps without any update. None where
    either part has no validation with BLEU.
    """
    measured = _validations(history)
    if not measured:
        return None
    border = (1 - LAST_PART) * max(step for step, _ in measured)
    earlier_bleu, last_bleu = ([bleu for step, bleu in measured if (step > border) == late] for late in (False, True))
    return max(last_bleu) - max(earlier_bleu) if earlier_bleu and last_bleu else None


def _validations(history: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Updates and BLEU on dev of validations, without those of averaged weights."""
    return [
        (entry["step"], entry["dev_bleu"])
        for entry in history
        if entry.get("dev_bleu") is not None and math.isfinite(entry["dev_bleu"]) and "averaged" not in entry
    ]


def cut_short(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a training ended while it was still improving much, or was too short to show it.

    False for systems without BLEU in their validations, such as language models.
    """
    if not any(entry.get("dev_bleu") is not None and entry["step"] > 0 for entry in history):
        return False
    gain = last_gain(history)
    return gain is None or gain > LARGEST_GAIN


def gain_words(history: Sequence[Mapping[str, Any]]) -> str:
    """A cell of a table: whether a training was still improving, with its `last_gain` in BLEU.

    A system with next to no BLEU has not ended learning, however flat its curve is: the cell has its best BLEU.
    """
    gain, least = last_gain(history), main_metric().least
    if gain is None:
        return "–"
    best = max(bleu for _, bleu in _validations(history))
    if least is not None and best < least:
        return f"hardly learnt ({best:.2f})"
    # Without the sign of a zero.
    return f"{'yes' if gain > LARGEST_GAIN else 'no'} ({signed(round(gain, 1) + 0.0, 1)})"


def _panels_of(trainings: Sequence[Training]) -> list[tuple[str, list[Training], Curves]]:
    """Title, trainings and curves of every panel with at least one curve."""
    by_order = sorted(trainings, key=lambda training: training.system.family.order)
    losses = list(dict.fromkeys(training.loss_title for training in by_order))
    keys_without_own_panel = UNDRAWN | {key for _, curves in [*PANELS, *LAST_PANELS] for key, _, _ in curves}
    logged = dict.fromkeys(key for training in trainings for entry in training.entries for key in entry)
    own_keys = [key for key in logged if key.startswith("dev_") and key not in keys_without_own_panel]
    words = {key: key.removeprefix("dev_").replace("_", " ") for key in own_keys}
    titled = [(f"{words[key]} on dev".capitalize().replace("Bleu", "BLEU"), [(key, 0, "")]) for key in own_keys]
    loss: Curves = [("loss", 0, "")]
    of_losses = [(title, [each for each in trainings if each.loss_title == title], loss) for title in losses]
    common = [(title, list(trainings), curves) for title, curves in PANELS]
    last = [(title, list(trainings), curves) for title, curves in [*LAST_PANELS, *titled]]
    all_panels = [*of_losses[:1], *common, *of_losses[1:], *last]
    return [panel for panel in all_panels if any(each.has_curve(key) for each in panel[1] for key, _, _ in panel[2])]


def learning_curves(trainings: Sequence[Training]) -> Chart | None:
    """One panel a metric, over updates; None where nothing was logged twice.

    Systems of one family share a colour and differ in dashes; seeds of a system are lines of the same kind.
    """
    # Systems without updates, such as n-gram models, have no curve.
    all_panels = _panels_of([training for training in trainings if any(entry["step"] for entry in training.entries)])
    if not all_panels:
        return None
    names_by_family: dict[str, list[str]] = {}
    for training in trainings:
        names = names_by_family.setdefault(training.system.family.name, [])
        if training.system.name not in names:
            names.append(training.system.name)
    series: dict[str, Series] = {}
    drawn = []
    for title, chosen, curves in all_panels:
        rows = []
        for training, (key, dash, addition) in itertools.product(chosen, curves):
            twin = names_by_family[training.system.family.name].index(training.system.name)
            name = training.system.name + (" (reversed)" if training.system.reversed else "") + addition
            series[name] = Series(name, training.system.family.look.colour or OTHER.colour or "", dash=dash + twin)
            curve = {"series": name, "curve": f"{name} {training.seed}", "name": f"{name}, seed {training.seed}"}
            rows += [curve | {"x": x, "y": y} for x, y in training.points(key)]
        drawn.append(Panel(title, rows, Axis("updates", whole=True)))
    return panels(drawn, list(series.values()))
