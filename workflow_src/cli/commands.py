"""Commands of `continuum`, each with its arguments beside its function."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from workflow_src.records.provenance import installed_version

Run = Callable[[argparse.Namespace], None]
Argument = tuple[tuple[str, ...], dict[str, Any]]
# Arguments of which a command takes one at most.
Exclusive = list[Argument]
COMMANDS: dict[str, tuple[Run, str, tuple[Argument | Exclusive, ...]]] = {}


def argument(*names: str, **options: Any) -> Argument:
    """An argument of a command: what `argparse.ArgumentParser.add_argument` takes."""
    return names, options


def command(name: str, description: str, *arguments: Argument | Exclusive) -> Callable[[Run], Run]:
    """Make a function of the parsed arguments a command."""

    def declare(run: Run) -> Run:
        COMMANDS[name] = run, description, arguments
        return run

    return declare


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; `run` of what it returns is the function of the command."""
    main = argparse.ArgumentParser(prog="continuum", description="Non-autoregressive machine translation.")
    main.add_argument("--version", action="version", version=f"continuum {installed_version('continuum')}")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # The command has a parser of its own, whose options depend on the bundle.
    commands.add_parser(
        "translate", help="translate standard input, files or folders with a trained system", add_help=False
    )
    for name, (run, description, arguments) in COMMANDS.items():
        command_parser = commands.add_parser(name, help=description)
        for entry in arguments:
            group = command_parser.add_mutually_exclusive_group() if isinstance(entry, list) else command_parser
            for names, options in entry if isinstance(entry, list) else [entry]:
                group.add_argument(*names, **options)
        command_parser.set_defaults(run=run)
    return main
