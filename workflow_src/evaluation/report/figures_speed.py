"""The picture of time against sentence length."""

from __future__ import annotations

from collections.abc import Sequence

from workflow_src.evaluation.charts import Axis, Chart, Panel, is_curve, panels, series_apart
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.speed.measured import Speed, TimedRow

# With more lines than this, only the fastest of those alike are drawn.
CROWDED = 16
# A decode of the experiment, and its figures under a protocol.
Timed = tuple[ShownDecode, TimedRow]


def timed_decodes(speed: Speed | None, manifest: Manifest) -> list[Timed]:
    """The rows of speed.json with times by length that belong to the experiment."""
    decodes = [(manifest.find_decode(*row.key), row) for row in (speed.rows if speed else ())]
    return [(decode, row) for decode, row in decodes if decode and row.by_length]


def rows_to_draw(rows: Sequence[Timed]) -> list[Timed]:
    """Rows of the picture: of those that differ in steps only, the one with the fewest steps.

    Where these are many, only the fastest of each system, search and library.
    """
    fewest = _fewest_steps(rows)
    if len(fewest) <= CROWDED:
        return fewest
    best: dict[tuple[str, str, str], Timed] = {}
    for decode, row in fewest:
        key = (decode.system.name, decode.search.name, decode.engine.library)
        if key not in best or row.latency_ms < best[key][1].latency_ms:
            best[key] = decode, row
    return [timed for timed in fewest if timed in best.values()]


def _fewest_steps(rows: Sequence[Timed]) -> list[Timed]:
    least: dict[tuple[str, str], float] = {}
    for decode, _ in rows:
        if decode.search.traceable and decode.value is not None:
            key = (decode.system.name, decode.search.name)
            least[key] = min(decode.value, least.get(key, decode.value))
    return [
        (decode, row)
        for decode, row in rows
        if not decode.search.traceable or decode.value == least[decode.system.name, decode.search.name]
    ]


def time_by_length(speed: Speed | None, manifest: Manifest) -> Chart | None:
    """Median milliseconds against mean source length of groups of sentences, a line a row, of the first protocol.

    None where no row has times of two lengths.
    """
    # Rows with settings chosen on dev take about the time of the plain row of their search, where there is one.
    timed = timed_decodes(speed, manifest)
    plain = {_kind(decode) for decode, _ in timed if not decode.tuned}
    rows = rows_to_draw([(decode, row) for decode, row in timed if not (decode.tuned and _kind(decode) in plain)])
    curves = [[(group.mean_length, group.latency_ms) for group in row.by_length] for _, row in rows]
    if not any(map(is_curve, curves)):
        return None
    decodes = [decode for decode, _ in rows]
    names = [f"{decode.system.name}: {short_label(decode, decodes)}" for decode in decodes]
    points = [
        {"series": name, "x": length, "y": milliseconds}
        for name, curve in zip(names, curves, strict=True)
        for length, milliseconds in curve
    ]
    title = "milliseconds a sentence, log scale"
    panel = Panel(title, points, Axis("source subwords"), Axis("milliseconds", log=True))
    looks = {name: decode.look for name, decode in zip(names, decodes, strict=True)}
    return panels([panel], series_apart(looks), width=620)


def _kind(decode: ShownDecode) -> tuple[str, str, str]:
    """System, search and engine."""
    return decode.system.name, decode.search.name, decode.engine.key


def short_label(decode: ShownDecode, decodes: Sequence[ShownDecode]) -> str:
    """The label with those settings in brackets that distinguish a decode from others of its system; the label of
    tables where these are not enough."""
    twins = [other for other in decodes if (other.system.name, other.head) == (decode.system.name, decode.head)]
    shared = set.intersection(*(set(twin.own) for twin in twins))
    short = [twin.short([setting for setting in twin.own if setting not in shared]) for twin in twins]
    return short[twins.index(decode)] if len(set(short)) == len(short) else decode.label()
