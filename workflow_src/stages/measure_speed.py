"""Measure the speed of every row of an experiment in one run: milliseconds a sentence, sentences a second."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflow_src.artifacts import provenance, read_chosen, write_json
from workflow_src.data.lines import read_lines
from workflow_src.evaluation import speed
from workflow_src.stages import command


def bundles(words: list[str]) -> dict[str, Path]:
    """SYSTEM=FOLDER words as a mapping. Raises ValueError for a word of another form."""
    found = {}
    for word in words:
        system, equals, folder = word.partition("=")
        if not (system and equals and folder):
            raise ValueError(f'--bundles has "{word}"; write SYSTEM=FOLDER.')
        found[system] = Path(folder)
    return found


def load(folders: dict[str, Path], needed: set[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """A translator for each needed system that has a folder."""
    from workflow_src.translate import Translator

    return {
        system: Translator.load(folder, arguments.device, arguments.precision, arguments.threads, engine="eager")
        for system, folder in folders.items()
        if system in needed
    }


def device_of(translators: dict[str, Any], requested: str) -> tuple[str, str | None, Callable[[], None]]:
    """Kind of the device (cpu or cuda), its model's name, and what waits for it."""
    name = str(getattr(next(iter(translators.values()), None), "device", requested))
    kind = name.split(":")[0]
    if kind != "cuda":
        return ("cpu" if kind == "auto" else kind), None, lambda: None
    import torch

    return kind, torch.cuda.get_device_name(name), lambda: torch.cuda.synchronize(name)


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    protocol = settings["speed"]
    rows = [row | (read_chosen(row["chosen"]) if "chosen" in row else {}) for row in settings["rows"]]
    # Threads change what is measured, so they are a setting here and not the machine's choice.
    arguments.threads = protocol["threads"]
    lines = list(itertools.islice(read_lines(arguments.source), protocol["sentences"]))
    translators = load(
        bundles(arguments.bundles), {row["system"] for row in rows} | {row.get("rescorer") for row in rows}, arguments
    )
    device, device_name, synchronise = device_of(translators, arguments.device)
    measured = speed.measure(translators, rows, lines, protocol, synchronise, command.log.info)
    precisions = sorted({str(getattr(t, "precision", arguments.precision)) for t in translators.values()})
    found = speed.results(rows, measured, protocol["batch"])
    told = protocol | {
        "sentences": len(lines),
        "device": device,
        "device_name": device_name,
        "precision": ", ".join(precisions),
        "baseline": found.pop("baseline"),
        "other_load_cores": measured.load,
        "disturbed_rounds": sum(load > speed.DISTURBED_SHARE for load in measured.load),
        "redone_rounds": measured.redone,
        "disturbed_above_cores": speed.DISTURBED_SHARE,
    }
    write_json(
        arguments.output,
        found | {"protocol": told, "provenance": provenance(settings, {"source": arguments.source})},
    )
    return f"{arguments.output}: {len(rows)} rows on {device}, {len(lines)} sentences, {measured.redone} rounds redone"


def make_parser() -> argparse.ArgumentParser:
    made = command.parser(__doc__)
    made.add_argument("--bundles", nargs="+", required=True, metavar="SYSTEM=FOLDER")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    command.add_runtime(made)
    return made


if __name__ == "__main__":
    command.start(run, make_parser())
