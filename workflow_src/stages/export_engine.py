"""Stage export_engine: a bundle -> the folder of an engine that reads files of its own. The rule is export_NAME."""

from __future__ import annotations

from workflow_src.jobs import start
from workflow_src.registry import engines
from workflow_src.serving import export


def run(given) -> str:
    return export.export(engines()[given.engine], given)


def arguments():
    made = export.arguments(__doc__)
    made.add_argument("--engine", choices=[one.name for one in engines().values() if one.export], required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
