"""Tables of speed under each protocol, and time against sentence length, for the page and for Markdown."""

from __future__ import annotations

from typing import Any

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.report.markdown import markdown_table
from workflow_src.evaluation.report.tables import span

HEADS = (
    *("", "median, ms", "medians of rounds, ms", "mean ± deviation over sentences, ms"),
    *("sentences / s", "batch", "speed-up"),
)


def label(row: dict[str, Any], manifest: Manifest) -> str:
    """A timed row in words, with its system; one that the experiment has no more has its name."""
    decode = manifest.decode(row["system"], row["name"])
    return f"{row['system']}: {decode.label() if decode else row['name']}"


def title(protocol: dict[str, Any]) -> str:
    """A protocol in words."""
    load = protocol.get("other_load_cores") or [0.0]
    return f"Speed on {where(protocol)}; other load up to {max(load):.2f} cores"


def where(protocol: dict[str, Any]) -> str:
    """What a protocol computes on: CPU threads, or a GPU by its name."""
    if protocol["device"] == "cuda":
        return protocol.get("device_name") or "GPU"
    return f"{protocol['threads']} CPU thread{'s' * (protocol['threads'] != 1)}"


def protocol_tables(speed: dict[str, Any] | None, manifest: Manifest) -> list[dict[str, Any]]:
    """For every protocol: `title`, `heads`, and `rows` of cells as text; of lengths, one column a group."""
    found = []
    for one in (speed or {}).get("protocols", []):
        groups = one["rows"][0].get("by_length", []) if one["rows"] else []
        heads = [*HEADS, *(f"{_span(group)}, ms" for group in groups)]
        rows = []
        for row in one["rows"]:
            cells = [label(row, manifest), _ms(row["latency_ms"])]
            cells.append(span(row["latency_rounds"]) if row.get("latency_rounds") else "–")
            cells.append(f"{_ms(row['latency_mean'])} ± {_ms(row['latency_std'])}")
            cells += [f"{row['sentences_per_second']:,.0f}", f"{row['batch']:,}"]
            cells.append("–" if row["speedup"] is None else f"{row['speedup']:.2f}×")
            rows.append(cells + [_ms(group["latency_ms"]) for group in row.get("by_length", [])])
        found.append({"title": title(one["protocol"]), "heads": heads, "rows": rows})
    return found


def markdown(table: dict[str, Any]) -> str:
    """One of `protocol_tables` in Markdown."""
    return markdown_table(table["heads"], table["rows"]) + "\n"


def _span(group: dict[str, Any]) -> str:
    shortest, longest = group["shortest"], group["longest"]
    return f"{shortest} subwords" if shortest == longest else f"{shortest}–{longest} subwords"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
