"""Stage learn_subwords: two training texts -> subword models and subwords.json in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from workflow_src import jobs
from workflow_src.config.base import parse
from workflow_src.config.datasets import SubwordsConfig
from workflow_src.data import subwords


def run(arguments: argparse.Namespace) -> str:
    settings = parse(SubwordsConfig, arguments.settings, "recipe.subwords")
    learned = subwords.learn(settings, arguments.source, arguments.target, arguments.output_folder, arguments.threads)
    if learned.joint:
        return f"learned {learned.source_size:,} subwords for both languages"
    return f"learned {learned.source_size:,} subwords for the source, {learned.target_size:,} for the target"


def main(words: list[str] | None = None) -> None:
    parser = jobs.parser(__doc__)
    parser.add_argument("--source", type=Path, required=True, help="training text")
    parser.add_argument("--target", type=Path, required=True, help="its translation, line by line")
    parser.add_argument("--output-folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    jobs.start(run, parser, words)


if __name__ == "__main__":
    main()
