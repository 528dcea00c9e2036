"""Speed in the report: how it was measured, tables under each protocol, what could not be timed, and time by length."""

from __future__ import annotations

from collections.abc import Sequence

from workflow_src.evaluation.charts import Axis, Chart, Panel, is_curve, panels, series_apart
from workflow_src.evaluation.document import Beside, Block, Caption, Fold, Paragraph, Table, table_of
from workflow_src.evaluation.manifest import EngineKey, Manifest, ShownDecode
from workflow_src.evaluation.report.tables import digits, rounds_heading, rounds_span, speedup_heading
from workflow_src.evaluation.speed.measured import (
    LengthGroup,
    MeasuredProtocol,
    Measurement,
    NotTimed,
    Speed,
    TimedRow,
)

# With more lines than this, only the fastest of those alike are drawn.
CROWDED = 16
# A decode of the experiment, and its figures under a protocol.
Timed = tuple[ShownDecode, TimedRow]
HOW = {
    "One at a time": "A sentence's time is its median over rounds, which alternate between the rows, from text to "
    "text, each engine in a process of its own.",
    "In batches": "Throughput is that of the median round.",
    "Rounds": "Those that other load disturbed are measured again, as often as the settings allow.",
}


def label(row: TimedRow | NotTimed, manifest: Manifest) -> str:
    """A row in words, with its system; the name of the decode where the experiment no longer has the row."""
    decode = manifest.find_decode(*row.key)
    return f"{row.system}: {decode.label() if decode else row.name}"


def title(protocol: MeasuredProtocol) -> str:
    """A protocol in words."""
    load = max(protocol.other_load_cores, default=0.0)
    return f"Speed on {device_words(protocol)}; other load up to {load:.2f} cores"


def device_words(protocol: MeasuredProtocol) -> str:
    """The device of a protocol in words: CPU threads, or the name of the GPU."""
    if protocol.device == "cuda":
        return protocol.device_name or "GPU"
    return _threads(protocol)


def _threads(protocol: MeasuredProtocol) -> str:
    return f"{protocol.threads} CPU thread{'s' * (protocol.threads != 1)}"


def blocks(speed: Speed | None, manifest: Manifest) -> list[Block]:
    """How speed was measured, what was not, and the cost of a step; pictures and `protocol_tables` follow."""
    if not speed:
        return [Paragraph.of("Speed was not measured in this run.")]
    failures = _failures(speed, manifest)
    return [
        _protocol_facts(speed),
        *([table_of(failures, ("not timed", "device", "engine", "reason"))] if failures else []),
        *_step_costs(speed, manifest),
    ]


def _protocol_facts(speed: Speed) -> Block:
    """A column for each protocol that timed a row."""
    measurements = [measurement for measurement in speed.protocols if measurement.rows]
    if not measurements:
        return Paragraph.of("No row could be timed.")
    facts = [_facts(measurement, speed.processor) for measurement in measurements]
    heads = ["", *(device_words(measurement.protocol) for measurement in measurements)]
    rows = [[name, *(of_protocol[name] for of_protocol in facts)] for name in facts[0]]
    return Table(heads, rows, Caption("", HOW), left=len(heads))


def _facts(measurement: Measurement, processor: str | None) -> dict[str, str]:
    protocol, rows = measurement.protocol, measurement.rows
    load = protocol.other_load_cores or (0.0,)
    fastest = ", the fastest size of each row" if protocol.device == "cuda" else ""
    shares = [100 * row.subword_share for row in rows if row.subword_share is not None]
    engines = [EngineKey(key) for key in protocol.engines]
    own_precision = next((protocol.engines[engine.key] for engine in engines if engine.own), protocol.precision)
    baseline = protocol.baseline
    machine = protocol.device_name or processor or protocol.device
    return {
        "machine": f"{machine}, {_threads(protocol)}" if protocol.device == "cuda" else machine,
        "precision": "; ".join([own_precision, *(engine.label for engine in engines if not engine.own)]),
        "sentences": f"{protocol.sentences:,}; for warm-up, untimed: {protocol.warmup:,}",
        "rounds": f"{protocol.repeats}; {protocol.redone_rounds} measured again, {len(protocol.disturbed)} disturbed",
        "cores that other processes used": f"{extent(load, 2)}; disturbed above {protocol.disturbed_above_cores:.2f}",
        "size of batches": f"{extent([row.batch for row in rows], 0)}{fastest}",
        "speed-ups over": f"{baseline.system} {baseline.name}" if baseline else "–",
        "% of the time for subwords": extent(shares, 0) if shares else "–",
    }


def extent(values: Sequence[float], places: int) -> str:
    """The lowest and the highest value; one of them where they read the same."""
    ends = [f"{end:,.{places}f}" for end in (min(values), max(values))]
    return "–".join(dict.fromkeys(ends))


def _failures(speed: Speed, manifest: Manifest) -> list[dict[str, str]]:
    """Rows that could not be timed, and sizes at which batches stopped growing, each with the reason."""
    entries = []
    for measurement in speed.protocols:
        device = device_words(measurement.protocol)
        failed = [(label(row, manifest), row.batch, row.engine, row.reason) for row in measurement.protocol.not_timed]
        stopped = [(label(row, manifest), row.failed_batch) for row in measurement.rows if row.failed_batch]
        failed += [(row, batch.size, "timed in smaller batches", batch.reason) for row, batch in stopped]
        entries += [
            {
                "not timed": row,
                "device": device,
                "engine": engine,
                "reason": reason.rstrip("."),
                "batch": f"{batch:,}" if batch else "",
            }
            for row, batch, engine, reason in failed
        ]
    return entries


def _step_costs(speed: Speed, manifest: Manifest) -> list[Block]:
    """The time of one refinement step, as the slope of a sentence's time over steps, and ratios of steps; nothing where
    it is unknown."""
    measured = speed.step_costs
    if measured.failure:
        return [Paragraph.of(f"The time of a refinement step was not measured ({measured.failure.rstrip('.')}).")]
    costs = [
        {
            "refinement step": manifest.title(cost.search),
            "system": cost.system,
            "ms": f"{cost.ms_per_step:.2f}" if cost.ms_per_step > 0 else "≤ 0 (noise)",
        }
        for cost in measured.costs
    ]
    ratios = [
        {
            "ratio of steps": f"{manifest.title(ratio.control)} / {manifest.title(ratio.search)}",
            "measured": "" if ratio.measured is None else f"{ratio.measured:.2f}",
            "by operations": "" if ratio.predicted is None else f"{ratio.predicted:.2f}",
        }
        for ratio in measured.ratios
        if ratio.measured is not None or ratio.predicted is not None
    ]
    slope = {"Steps": "The slope of a sentence's time over steps, all rows in turns."}
    counted = any(ratio.predicted is not None for ratio in measured.ratios)
    predicted = {"By operations": "Of matrix products, counted." if counted else ""}
    tables = [
        table_of(entries, ("refinement step", "ratio of steps", "system"), caption=Caption("", notes))
        for entries, notes in ((costs, slope), (ratios, predicted))
        if entries
    ]
    return [Beside(tables)] if tables else []


def protocol_tables(speed: Speed | None, manifest: Manifest) -> list[Fold]:
    """A table for every protocol, with one column for each group of lengths."""
    tables = []
    for measurement in speed.protocols if speed else ():
        protocol = measurement.protocol
        compared = protocol.baseline
        reference = manifest.find_decode(compared.system, compared.name) if compared else None
        rounds = rounds_heading(len(protocol.other_load_cores), len(protocol.disturbed))
        entries = [
            {
                "row": label(row, manifest),
                "median, ms": digits(row.latency_ms),
                rounds: rounds_span(row.latency_rounds, protocol.disturbed),
                "mean ± deviation over sentences, ms": f"{digits(row.latency_mean)} ± {digits(row.latency_std)}",
                "sentences / s": f"{row.sentences_per_second:,.0f}",
                "batch": f"{row.batch:,}",
                speedup_heading(reference): "" if row.speedup is None else f"{row.speedup:.2f}×",
                **{f"{_span(group)}, ms": digits(group.latency_ms) for group in row.by_length},
            }
            for row in measurement.rows
        ]
        tables.append(Fold(title(protocol), [table_of(entries, ("row",), wide=True)]))
    return tables


def _span(group: LengthGroup) -> str:
    if group.shortest == group.longest:
        return f"{group.shortest} subwords"
    return f"{group.shortest}–{group.longest} subwords"


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
