"""The picture of time against sentence length."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workflow_src.evaluation.charts import Axis, Chart, Panel, Series, is_curve, panels
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.report.figures_quality import short_labels
from workflow_src.evaluation.speed.measured import Speed

# With more lines than this, only the fastest of those alike are drawn.
CROWDED = 16


@dataclasses.dataclass(frozen=True)
class TimedDecode:
    """A decode with its median milliseconds, and by group of sentences of similar length: (mean length, ms)."""

    decode: ShownDecode
    milliseconds: float
    by_length: tuple[tuple[float, float], ...]

    @property
    def system(self) -> str:
        return self.decode.system.name

    @property
    def label(self) -> str:
        return self.decode.label()


def timed_rows(speed: Speed | None, manifest: Manifest) -> list[TimedDecode]:
    """The rows of speed.json with times by length that belong to the experiment."""
    timed = []
    for row in speed.rows if speed else ():
        decode = manifest.find_decode(*row.key)
        if decode and row.by_length:
            groups = tuple((group.mean_length, group.latency_ms) for group in row.by_length)
            timed.append(TimedDecode(decode, row.latency_ms, groups))
    return timed


def rows_to_draw(rows: Sequence[TimedDecode]) -> list[TimedDecode]:
    """Rows of the picture: of those that differ in steps only, the one with the fewest steps.

    Where these are many, only the fastest of each system, search and library.
    """
    fewest = _fewest_steps(rows)
    if len(fewest) <= CROWDED:
        return fewest
    best: dict[tuple[str, str, str], TimedDecode] = {}
    for row in fewest:
        key = (row.decode.system.name, row.decode.search.name, row.decode.engine.library)
        if key not in best or row.milliseconds < best[key].milliseconds:
            best[key] = row
    return [row for row in fewest if row in best.values()]


def _fewest_steps(rows: Sequence[TimedDecode]) -> list[TimedDecode]:
    least: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.decode.search.traceable and row.decode.value is not None:
            key = (row.decode.system.name, row.decode.search.name)
            least[key] = min(row.decode.value, least.get(key, row.decode.value))
    return [
        row
        for row in rows
        if not row.decode.search.traceable or row.decode.value == least[row.decode.system.name, row.decode.search.name]
    ]


def time_by_length(speed: Speed | None, manifest: Manifest) -> Chart | None:
    """Median milliseconds against mean source length of groups of sentences, a line a row, of the first protocol.

    None where no row has times of two lengths.
    """
    # Rows with settings chosen on dev take the time of the plain row, which is drawn.
    rows = rows_to_draw([row for row in timed_rows(speed, manifest) if not row.decode.tuned])
    if not any(is_curve(row.by_length) for row in rows):
        return None
    engines = list(dict.fromkeys(row.decode.engine.library for row in rows))
    texts = short_labels(rows)
    series, points = [], []
    for row in rows:
        name, dash = f"{row.system}: {texts[id(row)]}", engines.index(row.decode.engine.library)
        series.append(Series(name, row.decode.colour, row.decode.look.marker or "o", dash))
        points += [{"series": name, "x": length, "y": milliseconds} for length, milliseconds in row.by_length]
    title = "milliseconds a sentence, log scale"
    panel = Panel(title, points, Axis("source subwords"), Axis("milliseconds", log=True))
    return panels([panel], series, width=620)
