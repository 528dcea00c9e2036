"""The `continuum` command: translate text; plan, estimate or check an experiment, preview its cleaning; compare,
collect or verify results; write a language model for other tools.

Commands start fast where they import no PyTorch. `translate` and `export-arpa` import it, `estimate` and `plan` where
they count operations for the first time, and `check` with a plug-in.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import rich.console
import rich.table

from workflow_src.cli.calibration import FILE as CALIBRATION_FILE
from workflow_src.cli.configuration import CONFIGURATION, configuration_files, configuration_of, setting_words
from workflow_src.config import Plan
from workflow_src.config.experiment import REMOVALS
from workflow_src.errors import ArtifactError, ConfigError, readable
from workflow_src.records.provenance import installed_version
from workflow_src.runtime import console, garbage

# Suffixes of the pages that `compare` writes.
PAGES = (".md", ".html")
PARSER = argparse.ArgumentParser(prog="continuum", description="Non-autoregressive machine translation.")
PARSER.add_argument("--version", action="version", version=f"continuum {installed_version('continuum')}")
COMMANDS = PARSER.add_subparsers(dest="command", required=True, metavar="COMMAND")
# The command has a parser of its own, whose options depend on the bundle.
COMMANDS.add_parser(
    "translate", help="translate standard input, files or folders with a trained system", add_help=False
)
# Arguments of `plan` and `estimate`.
PLAN = argparse.ArgumentParser(add_help=False, parents=[CONFIGURATION])
PLAN.add_argument("--directory", type=console.user_path, help="as for snakemake: the folder of results/")
PLAN.add_argument("--target", nargs="+", default=[], help="targets of snakemake, such as teachers; default the report")
PLAN.add_argument("--forcerun", nargs="+", default=[], metavar="RULE", help="as for snakemake")
PLAN.add_argument("--pairs", type=int, help="training pairs, instead of those stated or counted")
PLAN.add_argument("--length", type=float, help="mean subwords of a sentence, instead of those counted or assumed")
PLAN.add_argument("--output", type=console.user_path, help="a file for a picture too, ending in .svg or .html")
MEASURE = PLAN.add_mutually_exclusive_group()
MEASURE.add_argument(
    "--calibrate",
    dest="measure",
    action="store_const",
    const="anew",
    help=f"measure one core of this machine anew, for a few seconds; the rates are kept in {CALIBRATION_FILE}. "
    "estimate measures once by itself where there is no GPU",
)
MEASURE.add_argument("--no-calibration", dest="measure", action="store_const", const="never", help="measure nothing")
PLAN.add_argument("--json", action="store_true", help="print JSON")


def check_at_least(arguments: argparse.Namespace, **least: float) -> None:
    """Raises ConfigError for an option with a number below the least one that is allowed, infinity or NaN."""
    for name, number in least.items():
        value = getattr(arguments, name)
        if value is not None and not number <= value < math.inf:
            raise ConfigError(f"--{name}", value, allowed=f"{number:g} or more")


def show_plan(arguments: argparse.Namespace) -> None:
    from workflow_src.cli import drawing, plan, show

    everything = arguments.command == "estimate"
    check_at_least(arguments, pairs=1, length=1)
    if arguments.output and arguments.output.suffix not in drawing.SUFFIXES:
        raise ConfigError(
            "--output", str(arguments.output), allowed=f"a file that ends in {' or '.join(drawing.SUFFIXES)}"
        )
    if arguments.directory and not arguments.directory.is_dir():
        raise ConfigError("--directory", str(arguments.directory), problem="there is no such folder")
    request = plan.Request(
        configuration_files(arguments),
        setting_words(arguments),
        arguments.directory,
        arguments.target,
        arguments.forcerun,
        pairs=arguments.pairs,
        length=arguments.length,
        everything=everything,
        measure=arguments.measure or ("once" if everything else "never"),
    )
    overview = plan.overview(request)
    if arguments.output:
        drawing.write(overview, arguments.output)
    if arguments.json:
        console.write(sys.stdout, [json.dumps(show.as_json(overview), indent=1)])
        return
    print_table(show.as_table(overview))
    console.write(sys.stdout, show.facts(overview))
    if not (everything or overview.measured or overview.has_gpu):
        hint = "For hours of one core of this machine, add --calibrate: it measures for a few seconds, once."
        console.write(sys.stdout, [hint])
    if arguments.output:
        console.write(sys.stdout, [str(arguments.output)])


for command, purpose in (
    ("plan", "what Snakemake would run of an experiment, why, and what it takes"),
    ("estimate", "what an experiment takes in all: its plan, before anything has run"),
):
    COMMANDS.add_parser(command, help=purpose, parents=[PLAN]).set_defaults(run=show_plan)


def print_table(table: rich.table.Table) -> None:
    output = rich.console.Console()
    # Rich would end the command with 1 where the reader has closed the pipe.
    with output.capture() as text:
        output.print(table)
    console.write(sys.stdout, text.get().splitlines())


def check(arguments: argparse.Namespace) -> None:
    from workflow_src.cli.checking import check as check_configuration

    console.write(sys.stdout, check_configuration(Plan(configuration_of(arguments))))


COMMANDS.add_parser("check", help="check a configuration", parents=[CONFIGURATION]).set_defaults(run=check)


def clean(arguments: argparse.Namespace) -> None:
    from workflow_src.cli.cleaning import as_table, example_lines, kept_line, preview

    check_at_least(arguments, preview=1, examples=0)
    loaded = configuration_of(arguments)
    steps, pairs, has_more = preview(loaded, arguments.preview, arguments.examples)
    print_table(as_table(steps))
    console.write(sys.stdout, example_lines(steps, pairs, loaded.cleaning))
    console.write(sys.stdout, [kept_line(steps, len(pairs), len(loaded.dataset.train), has_more)])


clean_parser = COMMANDS.add_parser(
    "clean", help="what the filters of a recipe would leave out, without running anything", parents=[CONFIGURATION]
)
clean_parser.add_argument(
    "--preview", type=int, default=1000, metavar="PAIRS", help="first pairs of train (default 1000)"
)
clean_parser.add_argument("--examples", type=int, default=3, metavar="N", help="shown of each filter (default 3)")
clean_parser.set_defaults(run=clean)


def compare(arguments: argparse.Namespace) -> None:
    from workflow_src.evaluation.report import comparison
    from workflow_src.evaluation.report.html import page
    from workflow_src.evaluation.report.markdown import markdown
    from workflow_src.records.atomic import atomic

    results = comparison.read(arguments.experiments)
    document = comparison.compare(results, arguments.remove_repetitions)
    markdown_path, html_path = pages(arguments.output)
    texts = {markdown_path: markdown(document), html_path: page(document)}
    for path in texts:
        # Nobody named this file: it may be the user's.
        is_beside = path != arguments.output and path.exists()
        if is_beside and comparison.ABOUT not in path.read_text(encoding="utf-8", errors="replace"):
            problem = "would be overwritten, and is no page of this command"
            raise ArtifactError(path, problem, "give another --output")
    for path, text in texts.items():
        with atomic(path) as file:
            file.write(text)
    rows = sum(len(of_one.rows) for of_one in results)
    console.write(sys.stdout, [f"{html_path} and {markdown_path}: {rows} rows of {len(results)} experiments"])


compare_parser = COMMANDS.add_parser("compare", help="compare finished experiments on one page")
compare_parser.add_argument("experiments", nargs="+", help="finished experiments: names or folders")
compare_parser.add_argument(
    "--output",
    type=console.user_path,
    default=Path("results/comparison.html"),
    help="the page (default results/comparison.html); the same as Markdown is written beside it",
)
compare_parser.add_argument(
    "--remove-repetitions",
    choices=REMOVALS,
    help="repetitions removed from non-autoregressive outputs; default subwords, and none from outputs of models "
    "with alignments or graphs",
)
compare_parser.set_defaults(run=compare)


def pages(output: Path) -> tuple[Path, Path]:
    """The Markdown and the HTML page that `--output` of `compare` names.

    Raises ConfigError for the name of a file of another kind. `rate-0.5` has no suffix: the 5 is a part of its name.
    """
    if output.suffix not in PAGES and output.suffix[1:2].isalpha():
        raise ConfigError(
            "--output", str(output), allowed=f"a name that ends in {' or '.join(PAGES)}, or without a suffix"
        )
    stem = output.name.removesuffix(output.suffix) if output.suffix in PAGES else output.name
    markdown, html = (output.with_name(stem + suffix) for suffix in PAGES)
    return markdown, html


def leaderboard(arguments: argparse.Namespace) -> None:
    from workflow_src.evaluation.report import leaderboard as board
    from workflow_src.evaluation.report import leaderboard_tables
    from workflow_src.records.atomic import atomic

    rows = board.merge(board.read(name) for name in arguments.results)
    entries = leaderboard_tables.entries(rows)
    # All texts are ready before the first is written.
    texts = {arguments.output: board.csv_text(rows)}
    for page in arguments.pages:
        try:
            with readable(page):
                text = page.read_text(encoding="utf-8")
        except UnicodeDecodeError as failure:
            raise ArtifactError(page, f"is not UTF-8 text ({failure})", "name a Markdown file") from failure
        texts[page] = leaderboard_tables.fill(text, entries, str(page))
    for path, text in texts.items():
        with atomic(path) as file:
            file.write(text)
    runs = len({tuple(row[name] for name in board.RUN) for row in rows})
    console.write(sys.stdout, [f"{arguments.output}: {len(rows)} rows of {runs} experiments"])


leaderboard_parser = COMMANDS.add_parser(
    "leaderboard", help="all measured rows of experiments as one CSV file, and tables of it"
)
leaderboard_parser.add_argument(
    "results",
    nargs="+",
    metavar="RESULTS",
    help="finished experiments (names or folders), or CSV files of this command; of an "
    "experiment that comes twice, the last counts",
)
leaderboard_parser.add_argument(
    "--output",
    type=console.user_path,
    default=Path("results/leaderboard.csv"),
    help="the CSV file (default results/leaderboard.csv)",
)
leaderboard_parser.add_argument(
    "--pages",
    type=console.user_path,
    nargs="+",
    default=[],
    metavar="FILE",
    help="Markdown files; writes anew the table between <!-- leaderboard: rows CORPUS -->, <!-- leaderboard: needs "
    "CORPUS --> (both may end in: without EXPERIMENT …) or <!-- leaderboard: experiment NAME --> and "
    "<!-- /leaderboard -->",
)
leaderboard_parser.set_defaults(run=leaderboard)


def verify(arguments: argparse.Namespace) -> None:
    from workflow_src.records.verify import check_finished
    from workflow_src.records.verify import verify as verify_results

    for folder in arguments.folders:
        console.write(sys.stdout, [verify_results(folder)])
        check_finished(folder)


verify_parser = COMMANDS.add_parser("verify", help="check results against their checksums and inputs")
verify_parser.add_argument("folders", nargs="+", metavar="FOLDER", help="results/EXPERIMENT")
verify_parser.set_defaults(run=verify)


def export_arpa(arguments: argparse.Namespace) -> None:
    from workflow_src.serving.arpa import export_arpa as export

    # Standard output may be the model.
    print(export(arguments.bundle, arguments.output), file=sys.stderr if arguments.output is None else sys.stdout)


export_arpa_parser = COMMANDS.add_parser(
    "export-arpa", help="write an n-gram language model as ARPA, for KenLM and others"
)
export_arpa_parser.add_argument(
    "--bundle",
    type=console.user_path,
    required=True,
    help="folder of an exported language model, or of a system that carries one",
)
export_arpa_parser.add_argument(
    "--output", type=console.user_path, help="file, gzipped where its name ends in .gz; default: standard output"
)
export_arpa_parser.set_defaults(run=export_arpa)


def main(words: list[str] | None = None) -> None:
    """Run the command. For bad input, print one sentence and exit with code 1."""
    garbage.collect_rarely()
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["translate"]:
        # Ctrl-C may come while the libraries are read.
        with console.command():
            from workflow_src.serving.options import parse

            # The help, and a wrong option, come before PyTorch.
            options = parse(words[1:])
            from workflow_src.serving.command import translate

            translate(options)
        return
    with console.command():
        arguments = PARSER.parse_args(words)
        console.standard_output()
        arguments.run(arguments)
