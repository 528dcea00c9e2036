"""How speed was measured, tables of speed under each protocol, and what could not be timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from workflow_src.evaluation.document import Beside, Block, Caption, Fold, Paragraph, Table
from workflow_src.evaluation.manifest import EngineKey, Manifest
from workflow_src.evaluation.report.tables import rounds_heading, rounds_span, speedup_heading
from workflow_src.evaluation.speed.measured import (
    LengthGroup,
    MeasuredProtocol,
    Measurement,
    NotTimed,
    Speed,
    TimedRow,
)


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


def protocol_facts(speed: Speed | None, caption: Caption) -> Block:
    """How speed was measured: a column for each protocol that timed a row."""
    if not speed:
        return Paragraph.of("Speed was not measured in this run.")
    measurements = [measurement for measurement in speed.protocols if measurement.rows]
    if not measurements:
        return Paragraph.of("No row could be timed.")
    facts = [_facts(measurement, speed.processor) for measurement in measurements]
    heads = ["", *(device_words(measurement.protocol) for measurement in measurements)]
    notes = {
        "One at a time": "A sentence's time is its median over rounds, which alternate between the rows, from text to "
        "text, each engine in a process of its own.",
        "In batches": "Throughput is that of the median round.",
        "Rounds": "Those that other load disturbed are measured again, as often as the settings allow.",
    }
    rows = [[name, *(of_protocol[name] for of_protocol in facts)] for name in facts[0]]
    return Table(heads, rows, _with(caption, notes), left=len(heads))


def _facts(measurement: Measurement, processor: str | None) -> dict[str, str]:
    protocol, rows = measurement.protocol, measurement.rows
    load = protocol.other_load_cores or (0.0,)
    sizes = sorted({row.batch for row in rows})
    fastest = ", the fastest size of each row" if protocol.device == "cuda" else ""
    shares = [100 * row.subword_share for row in rows if row.subword_share is not None]
    engines = [EngineKey(key) for key in protocol.engines]
    own_precision = next((protocol.engines[engine.key] for engine in engines if engine.own), protocol.precision)
    baseline = protocol.baseline
    machine = protocol.device_name or processor or protocol.device
    return {
        "machine": f"{machine}, {_threads(protocol)}" if protocol.device == "cuda" else machine,
        "precision": "; ".join([own_precision, *(engine.label for engine in engines if not engine.own)]),
        "sentences": f"{protocol.sentences:,}, after {protocol.warmup} untimed ones",
        "rounds": f"{protocol.repeats}; {protocol.redone_rounds} measured again, {protocol.disturbed_rounds} disturbed",
        "cores that other processes used": f"{_range(load, 2)}; disturbed above {protocol.disturbed_above_cores:.2f}",
        "size of batches": f"{_range(sizes, 0)}{fastest}",
        "speed-ups over": f"{baseline.system} {baseline.name}" if baseline else "–",
        "% of the time for subwords": _range(shares, 0) if shares else "–",
    }


def _range(values: Sequence[float], digits: int) -> str:
    """The lowest and the highest value; one of them where they read the same."""
    ends = [f"{end:,.{digits}f}" for end in (min(values), max(values))]
    return "–".join(dict.fromkeys(ends))


def step_costs(speed: Speed | None, manifest: Manifest, caption: Caption) -> list[Block]:
    """The time of one refinement step, as the slope of a sentence's time over steps, and ratios of steps; nothing where
    it is unknown."""
    measured = speed and speed.step_costs
    if measured and measured.failure:
        return [Paragraph.of(f"The time of a refinement step was not measured ({measured.failure.rstrip('.')}).")]
    if not measured or not measured.costs:
        return []
    costs = [
        [manifest.title(cost.search), cost.system, f"{cost.ms_per_step:.2f}" if cost.ms_per_step > 0 else "≤ 0 (noise)"]
        for cost in measured.costs
    ]
    ratios = [
        [
            f"{manifest.title(ratio.control)} / {manifest.title(ratio.search)}",
            *("–" if value is None else f"{value:.2f}" for value in (ratio.measured, ratio.predicted)),
        ]
        for ratio in measured.ratios
    ]
    slope = {"Steps": "The slope of a sentence's time over steps, all rows in turns."}
    predicted = {"By operations": "Of matrix products, counted."}
    tables = [Table(["refinement step", "system", "ms"], costs, _with(caption, slope), left=2)]
    if ratios:
        heads = ["ratio of steps", "measured", "by operations"]
        tables.append(Table(heads, ratios, _with(caption, predicted)))
    return [Beside(tables)]


def _with(caption: Caption, notes: Mapping[str, str]) -> Caption:
    return dataclasses.replace(caption, notes={**notes, **caption.notes})


def failure_sentences(speed: Speed | None, manifest: Manifest) -> list[str]:
    """What could not be timed under each protocol, and why; and why batches stopped growing."""
    sentences = []
    for measurement in speed.protocols if speed else ():
        device = device_words(measurement.protocol)
        rows_by_reason: dict[str, list[str]] = {}
        for row in measurement.protocol.not_timed:
            place = f"{row.engine}, batch {row.batch:,}" if row.batch else row.engine
            rows_by_reason.setdefault(f"{place}: {row.reason}", []).append(label(row, manifest))
        for reason, labels in rows_by_reason.items():
            sentences.append(f"Not timed on {device}: {'; '.join(labels)} ({reason.rstrip('.')}).")
        batches: dict[tuple[int, str], list[str]] = {}
        for timed in measurement.rows:
            if failed := timed.failed_batch:
                batches.setdefault((failed.size, failed.reason), []).append(label(timed, manifest))
        for (size, reason), labels in batches.items():
            rows = "; ".join(labels)
            sentences.append(f"Batches on {device} stayed below {size:,} for {rows} ({reason.rstrip('.')}).")
    return sentences


def protocol_tables(speed: Speed | None, manifest: Manifest, caption: Caption) -> list[Fold]:
    """A table for every protocol, with one column for each group of lengths."""
    tables = []
    for measurement in speed.protocols if speed else ():
        groups = measurement.rows[0].by_length if measurement.rows else ()
        compared = measurement.protocol.baseline
        reference = manifest.find_decode(compared.system, compared.name) if compared else None
        disturbed = measurement.protocol.disturbed
        heads = ["", "median, ms", rounds_heading(len(measurement.protocol.other_load_cores), len(disturbed))]
        heads += ["mean ± deviation over sentences, ms", "sentences / s", "batch", speedup_heading(reference)]
        heads += [f"{_span(group)}, ms" for group in groups]
        rows = []
        for row in measurement.rows:
            cells = [label(row, manifest), _ms(row.latency_ms)]
            cells.append(rounds_span(row.latency_rounds, disturbed))
            cells.append(f"{_ms(row.latency_mean)} ± {_ms(row.latency_std)}")
            cells += [f"{row.sentences_per_second:,.0f}", f"{row.batch:,}"]
            cells.append("–" if row.speedup is None else f"{row.speedup:.2f}×")
            rows.append(cells + [_ms(group.latency_ms) for group in row.by_length])
        tables.append(Fold(title(measurement.protocol), [Table(heads, rows, caption, wide=True)]))
    return tables


def _span(group: LengthGroup) -> str:
    if group.shortest == group.longest:
        return f"{group.shortest} subwords"
    return f"{group.shortest}–{group.longest} subwords"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
