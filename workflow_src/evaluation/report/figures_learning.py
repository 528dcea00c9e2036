"""Learning curves: figures of the trainings' logs over updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workflow_src.config.resolved import System
from workflow_src.evaluation.manifest import OTHER
from workflow_src.evaluation.report.figures import DASHES, STYLE, finite, is_curve, label_ends, new_figure

# Curves of a panel: key in the training log, line style, and addition to the label.
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
class Log:
    """The training log of a system and seed: the entries of its training.jsonl."""

    system: System
    seed: int
    entries: list[dict[str, Any]]

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


def _panels(logs: Sequence[Log]) -> list[tuple[str, list[Log], Curves]]:
    """Title, logs and curves of every panel with at least one curve."""
    by_order = sorted(logs, key=lambda log: log.system.family.order)
    losses = list(dict.fromkeys(log.loss_title for log in by_order))
    keys_without_own_panel = UNDRAWN | {key for _, curves in [*PANELS, *LAST_PANELS] for key, _, _ in curves}
    logged = dict.fromkeys(key for log in logs for entry in log.entries for key in entry)
    own_keys = [key for key in logged if key.startswith("dev_") and key not in keys_without_own_panel]
    words = {key: key.removeprefix("dev_").replace("_", " ") for key in own_keys}
    titled = [(f"{words[key]} on dev".capitalize().replace("Bleu", "BLEU"), [(key, 0, "")]) for key in own_keys]
    loss: Curves = [("loss", 0, "")]
    panels = [(title, [log for log in logs if log.loss_title == title], loss) for title in losses]
    common = [(title, list(logs), curves) for title, curves in PANELS]
    last = [(title, list(logs), curves) for title, curves in [*LAST_PANELS, *titled]]
    all_panels = [*panels[:1], *common, *panels[1:], *last]
    return [panel for panel in all_panels if any(log.has_curve(key) for log in panel[1] for key, _, _ in panel[2])]


def learning_curves(logs: Sequence[Log]) -> Figure | None:
    """One panel a metric, over updates; None where nothing was logged twice.

    Systems of one family share a colour and differ in dashes; seeds of a system are thin lines of the same kind.
    """
    # Systems without updates, such as n-gram models, have no curve.
    panels = _panels([log for log in logs if any(entry["step"] for entry in log.entries)])
    if not panels:
        return None
    columns = min(3, len(panels))
    # High enough for the labels of the curves.
    panel_heights = [max(1.85, 0.6 + 0.125 * _labels(chosen, curves)) for _, chosen, curves in panels]
    heights = [max(panel_heights[first : first + columns]) for first in range(0, len(panels), columns)]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(2.55 * columns, sum(heights))
        grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights).flatten()
        labels = []
        for axes, (title, chosen, curves) in zip(grid, panels, strict=False):
            labels.append((axes, _curves(axes, chosen, curves, logs)))
            axes.set_title(title)
            axes.set_xlabel("updates")
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"))
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            axes.margins(x=0.02)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        label_ends(figure, labels)
    return figure


def _labels(chosen: Sequence[Log], curves: Curves) -> int:
    """The number of labels in a panel."""
    keys = [key for key, *_ in curves]
    return len({(log.system.name, key) for log in chosen for key in keys if any(key in e for e in log.entries)})


def _curves(axes: Axes, chosen: Sequence[Log], curves: Curves, logs: Sequence[Log]) -> list[tuple]:
    names_by_family: dict[str, list[str]] = {}
    for log in logs:
        names = names_by_family.setdefault(log.system.family.name, [])
        if log.system.name not in names:
            names.append(log.system.name)
    ends, labelled = [], set()
    several = len({log.seed for log in chosen}) > 1
    for log in chosen:
        name, colour = log.system.name, log.system.family.look.colour or OTHER.colour
        twin = names_by_family[log.system.family.name].index(name)
        for key, dash, addition in curves:
            points = log.points(key)
            if not points:
                continue
            style = DASHES[(dash + twin) % len(DASHES)]
            marker = "o" if len(points) < 12 else None
            axes.plot(
                *zip(*points, strict=True),
                color=colour,
                linestyle=style,
                linewidth=0.9 if several else 1.4,
                marker=marker,
                markersize=2.2,
            )
            if (name, key) not in labelled:
                labelled.add((name, key))
                label = f"{name} (reversed)" if log.system.reversed else name
                ends.append((*points[-1], label + addition, colour))
    return ends
