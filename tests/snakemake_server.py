"""Dry runs of Snakemake, each in a fork of a process that has imported Snakemake: `serve()` is that process.

Importing Snakemake takes longer than planning an experiment. A fork is a fresh Snakemake otherwise: no module of the
project is imported before it, its folder and its output are its own, and it ends with the dry run.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from forks import end_with


class DryRuns:
    """Starts the process at the first dry run; `close` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None

    def __call__(self, words: list[str], folder: Path) -> subprocess.CompletedProcess:
        """What `snakemake WORDS` in `folder` gives; `words` must ask for nothing that starts jobs."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin and self._process.stdout
        with tempfile.TemporaryDirectory() as outputs:
            paths = [os.path.join(outputs, name) for name in ("stdout", "stderr")]
            print(json.dumps([words, str(folder), paths]), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            assert answer, "the process that makes dry runs has ended"
            texts = [Path(path).read_text(encoding="utf-8") for path in paths]
        return subprocess.CompletedProcess(words, int(answer), *texts)

    def _start(self) -> subprocess.Popen:
        # Nor plug-ins that the test which happens to be the first one uses.
        without = ("PYTHONPATH", "VIRTUAL_ENV", "CONTINUUM_PLUGINS", "CONTINUUM_PLUGIN_PATH")
        environment = {name: value for name, value in os.environ.items() if name not in without}
        environment["PATH"] = os.defpath
        command = [sys.executable, __file__]
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def close(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.wait(timeout=30)


DRY_RUNS = DryRuns()


def serve() -> None:
    """Make the dry runs that standard input asks for; writes the exit status of each to standard output."""
    program = str(Path(sys.executable).parent / "snakemake")
    # As the program `snakemake` has them.
    sys.path[0], sys.argv = os.path.dirname(program), [program]
    # What it imports late: plug-ins of its own, for its options, what opens remote files, and what the project imports.
    import pydantic  # noqa: F401
    import smart_open  # noqa: F401
    import snakemake.api
    import snakemake.cli
    import snakemake.dag
    import snakemake.workflow
    import yaml  # noqa: F401

    snakemake.cli.get_argument_parser()
    # A dry run ends before it has made garbage worth collecting.
    gc.disable()
    for line in sys.stdin:
        words, folder, outputs = json.loads(line)
        child = os.fork()
        if child == 0:
            end_with(functools.partial(_dry_run, snakemake.cli.main, words, folder, outputs))
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)


def _dry_run(main, words: list[str], folder: str, outputs: list[str]) -> None:
    """In the fork."""
    for number, path in enumerate(outputs, 1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    sys.argv += words
    main(words)


if __name__ == "__main__":
    serve()
