"""Dry runs of Snakemake, each in a fork of a process that has imported Snakemake: `serve()` is that process.

Importing takes longer than planning an experiment. A fork is a fresh Snakemake otherwise: its folder and its output are
its own, and it ends with the dry run. A project that no test changes has a process that has imported its package too.
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

from forks import end_with, environment_of_a_server


class DryRuns:
    """Starts a process at the first dry run that needs it; `close` ends them."""

    def __init__(self) -> None:
        # Projects whose package is imported once.
        self.unchanged: set[Path] = set()
        self._processes: dict[Path | None, subprocess.Popen] = {}

    def __call__(
        self, words: list[str], folder: Path, project: Path, describe: bool = True
    ) -> subprocess.CompletedProcess:
        """The finished `snakemake WORDS` in `folder`; `words` must start no jobs.

        `project` is the folder of the Snakefile. Without `describe` jobs are counted and their commands are formatted,
        but not described one by one, which takes much of the time.
        """
        imported = project if project in self.unchanged else None
        process = self._processes.get(imported)
        if process is None or process.poll() is not None:
            process = self._processes[imported] = self._start(imported)
        assert process.stdin and process.stdout
        with tempfile.TemporaryDirectory() as outputs:
            paths = [os.path.join(outputs, name) for name in ("stdout", "stderr")]
            print(json.dumps([words, str(folder), paths, describe]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, "the process that makes dry runs has ended"
            texts = [Path(path).read_text(encoding="utf-8") for path in paths]
        return subprocess.CompletedProcess(words, int(answer), *texts)

    def _start(self, imported: Path | None) -> subprocess.Popen:
        environment = environment_of_a_server()
        environment.pop("VIRTUAL_ENV", None)
        environment["PATH"] = os.defpath
        command = [sys.executable, __file__, *([str(imported)] if imported else [])]
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def close(self) -> None:
        for process in self._processes.values():
            assert process.stdin
            process.stdin.close()
            process.wait(timeout=30)


DRY_RUNS = DryRuns()


def serve(project: str | None) -> None:
    """Make the dry runs that standard input lists; writes the exit status of each to standard output."""
    program = str(Path(sys.executable).parent / "snakemake")
    # As in the program `snakemake`.
    sys.path[0], sys.argv = os.path.dirname(program), [program]
    # Modules that it imports late: its plug-ins, for their options, and one that opens remote files.
    import smart_open  # noqa: F401
    import snakemake.api
    import snakemake.cli
    import snakemake.dag
    import snakemake.executors.dryrun
    import snakemake.workflow

    snakemake.cli.get_argument_parser()
    if project:
        sys.path.insert(0, project)
        import workflow_src.config
        import workflow_src.registry

        workflow_src.registry.members()
        sys.path.remove(project)
    # A dry run ends before it has made garbage worth collecting.
    gc.disable()
    for line in sys.stdin:
        words, folder, outputs, describe = json.loads(line)
        child = os.fork()
        if child == 0:
            if not describe:
                snakemake.executors.dryrun.Executor.printjob = lambda executor, job: job.shellcmd
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
    serve(*(sys.argv[1:] or [None]))
