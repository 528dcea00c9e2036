"""Tables of speed under each protocol, and what could not be timed."""

from __future__ import annotations

from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.document import Caption, Fold, Table
from workflow_src.evaluation.report.tables import rounds_heading, rounds_span, speedup_heading
from workflow_src.evaluation.speed.measured import LengthGroup, MeasuredProtocol, NotTimed, Speed, TimedRow


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
    return f"{protocol.threads} CPU thread{'s' * (protocol.threads != 1)}"


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
