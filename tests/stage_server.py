"""Jobs of real Snakemake runs, and commands, each in a fork of a process that has imported torch: `serve()`.

Importing takes longer than most jobs of miniature systems. A folder that looks like the virtual environment has a
`python` that sends `python -m workflow_src.MODULE …` to it, and a `continuum` that does the same. A fork is a
fresh job otherwise: no module of the project is imported before it, its folder, environment, output and signals are its
own, and it ends with the job. But functions registered for the exit do not run, and torch has read its own variables
when the server imported it.
"""

from __future__ import annotations

import array
import contextlib
import functools
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock
from forks import end_with, environment_of_a_server

CLIENT = """#!{python} -ISE
import array, json, os, signal, socket, sys
if sys.argv[1:2] != ["--fork"] and not (sys.argv[1:2] == ["-m"] and sys.argv[2].startswith("workflow_src.")):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
line = socket.socket(socket.AF_UNIX)
line.connect({path!r})
job = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
line.sendmsg([len(job).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
line.sendall(job)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: line.sendall(bytes([number])))
status = int(line.recv(16) or 1)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class StageServer:
    """The server that all processes of pytest share.

    The first process makes its folder (`open`) and ends it (`close`); the first that needs it starts it (`programs`).
    """

    # The folder, which the processes of pytest inherit.
    VARIABLE = "CONTINUUM_STAGE_SERVER"

    def __init__(self) -> None:
        self._owner: int | None = None
        self._process: subprocess.Popen | None = None
        # Variables of the server, as they are before a test changes any.
        self._variables: dict[str, str] = {}

    def prepare(self) -> None:
        """Remember the environment of this process of pytest."""
        self._variables = environment_of_a_server()

    def open(self) -> None:
        # Not a folder of pytest's: the path of a socket may have 107 bytes.
        folder = tempfile.mkdtemp(prefix="stages-")
        os.environ[self.VARIABLE] = folder
        # The server ends when no process has this open for writing, so also when this one is killed.
        os.mkfifo(os.path.join(folder, "owner"))
        self._owner = os.open(os.path.join(folder, "owner"), os.O_RDWR)

    def programs(self) -> Path:
        """The `bin` of a folder like the virtual environment of this process, whose `python` asks the server."""
        folder = Path(os.environ[self.VARIABLE])
        with FileLock(folder / "lock"):
            if not (folder / "ready").exists():
                # A start that failed may have left some of it.
                shutil.rmtree(folder / "bin", ignore_errors=True)
                for name in ("lib", "jobs"):
                    (folder / name).unlink(missing_ok=True)
                _make_environment(folder)
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(folder)],
                    env=self._variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                )
                assert self._process.stdout
                assert self._process.stdout.readline(), "the process that runs stages has ended"
                (folder / "ready").touch()
        return folder / "bin"

    def close(self) -> None:
        if self._owner is not None:
            os.close(self._owner)
            shutil.rmtree(os.environ.pop(self.VARIABLE), ignore_errors=True)
            self._owner = None


STAGE_SERVER = StageServer()


def python_module(module: str, *words: str) -> list[str]:
    """The command `python -m MODULE WORDS` of a module of `workflow_src`, run in a fork of the server.

    Signals reach the fork by way of its client; SIGKILL ends the client first.
    """
    return [str(STAGE_SERVER.programs() / "python"), "-m", module, *words]


def python_code(code: str, *words: str) -> list[str]:
    """The command `python -c CODE WORDS`, run in a fork of the server."""
    return [str(STAGE_SERVER.programs() / "python"), "--fork", code, *words]


def pytest_command(folder: Path, *words: str) -> list[str]:
    """The command `pytest WORDS`, run in a fork of the server; its temporary folders lie in `folder`."""
    code = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    return python_code(code, *words, "-p", "no:cacheprovider", "--basetemp", str(folder / "inner"))


def _make_environment(folder: Path) -> None:
    real_programs = Path(sys.executable).parent
    programs = folder / "bin"
    programs.mkdir()
    for program in real_programs.iterdir():
        if program.name not in ("python", "continuum"):
            (programs / program.name).symlink_to(program)
    (folder / "lib").symlink_to(real_programs.parent / "lib")
    shutil.copy(real_programs.parent / "pyvenv.cfg", folder)
    client = programs / "python"
    client.write_text(CLIENT.format(python=str(real_programs / "python3"), path=str(folder / "jobs")))
    command = programs / "continuum"
    command.write_text(f'#!/bin/sh\nexec {client} -m workflow_src.cli "$@"\n')
    for program in (client, command):
        program.chmod(0o755)


def serve(folder: str) -> None:
    """Run the jobs that clients send to the socket in `folder` until no process has its pipe open for writing."""
    owner = open(os.path.join(folder, "owner"), "rb", buffering=0)
    # Modules that stages and commands import, but none that starts threads.
    import numpy  # noqa: F401
    import pydantic  # noqa: F401
    import sacrebleu.significance  # noqa: F401
    import sacremoses.tokenize  # noqa: F401
    import safetensors.torch  # noqa: F401
    import snakemake.api
    import snakemake.cli  # noqa: F401

    # The first optimiser imports it, and the first operator on a pretended GPU, which takes a second.
    import torch._dynamo  # noqa: F401
    import yaml  # noqa: F401

    # Collecting garbage in a fork would touch, and so copy, all imported modules.
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.join(folder, "jobs"))
    listening.listen(16)
    watched = selectors.DefaultSelector()
    watched.register(listening, selectors.EVENT_READ, ("accept", 0, None))
    watched.register(owner, selectors.EVENT_READ, ("end", 0, None))
    print("ready", flush=True)
    while True:
        for key, _ in watched.select():
            event, child, line = key.data
            if event == "end":
                return
            if event == "accept":
                line = listening.accept()[0]
                started = _start(line)
                if started is None:
                    line.close()
                    continue
                child = started
                watched.register(line, selectors.EVENT_READ, ("signal", child, line))
                watched.register(os.pidfd_open(child), selectors.EVENT_READ, ("ended", child, line))
            elif event == "ended":
                _end(watched, key.fd, child, line)
            # Both events may come at once: a job that has ended gets no more signals.
            elif key.fileobj.fileno() >= 0 and key.fileobj in watched.get_map():
                message = line.recv(1)
                # A job whose client is gone is killed.
                os.kill(child, message[0] if message else signal.SIGKILL)
                if not message:
                    watched.unregister(line)


def _start(line: socket.socket) -> int | None:
    """Fork the job that a client sends; returns its process, None where the client is gone."""
    head, ancillary, _, _ = line.recvmsg(8, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    if not ancillary:
        return None
    outputs = array.array("i")
    outputs.frombytes(ancillary[0][2])
    size, content = int.from_bytes(head, "big"), b""
    while len(content) < size:
        received = line.recv(size - len(content))
        if not received:
            for number in outputs:
                os.close(number)
            return None
        content += received
    words, folder, variables = json.loads(content)
    child = os.fork()
    if child == 0:
        end_with(functools.partial(_run, words, folder, variables, list(outputs)))
    for number in outputs:
        os.close(number)
    return child


def _run(words: list[str], folder: str, variables: dict[str, str], outputs: list[int]) -> None:
    """In the fork."""
    for number, descriptor in enumerate(outputs):
        os.dup2(descriptor, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    option, target, *arguments = words
    # As with `python -m`.
    safe_path = [] if variables.get("PYTHONSAFEPATH") else [folder]
    sys.path[:1] = [*safe_path, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [target, *arguments]
    if "CONTINUUM_PRETENDED_GPUS" in variables:
        import pretended_cuda

        pretended_cuda.begin()
    if option == "--fork":
        sys.argv[0] = "-c"
        exec(compile(target, "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)


def _end(watched: selectors.BaseSelector, ended: int, child: int, line: socket.socket) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    watched.unregister(ended)
    os.close(ended)
    if line in watched.get_map():
        watched.unregister(line)
        with contextlib.suppress(BrokenPipeError):
            line.sendall(str(status).encode())
    line.close()


if __name__ == "__main__":
    serve(sys.argv[1])
