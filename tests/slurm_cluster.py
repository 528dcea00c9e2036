"""A real Slurm of two nodes on this machine, for tests: `with Cluster() as cluster: cluster.run("sinfo")`.

Needs root and the programs of Debian's packages munge, slurmctld, slurmd and slurm-client; it installs nothing. Every
daemon is the first process below namespaces of its own: it has a host name, and when it ends, everything that it
started is killed with it. All nodes share the machine's processors, disks and network. There are no control groups, so
limits of memory are polled, and no accounting: `squeue` remembers finished jobs for a day.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "squeue", "scontrol", "srun", "unshare")
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
NODES = ("node1", "node2")

# The shell is the first process of the namespaces: it collects orphans, and stays until the daemon ends.
# The step of a job keeps no SLURM_CONF, so its srun finds the configuration where an installed one would be.
IN_NAMESPACES = """folder=$1 name=$2; shift 2; hostname "$name" && mount --bind "$folder/hosts" /etc/hosts &&
mount --bind "$folder/daemons" /etc/slurm && "$@"; exit $?"""

# Without control groups a job is what descends from its slurmstepd. A process whose parent died would leave that tree
# and outlive scancel; as a subreaper slurmstepd inherits it instead (PR_SET_CHILD_SUBREAPER is kept across exec).
STEP_DAEMON = """#!{python} -IS
import ctypes, os, sys
if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0):
    sys.exit("prctl failed")
os.execv({program!r}, ["slurmstepd", *sys.argv[1:]])
"""

CONFIGURATION = """
ClusterName=tests
SlurmctldHost=controller(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its old credential has expired: two minutes by default.
AuthInfo=socket={folder}/munge/socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=UsePss,OverMemoryKill
AccountingStorageType=accounting_storage/none
MinJobAge=86400
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=1
KillWait={kill_wait}
JobRequeue=1
EnforcePartLimits=ALL
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
DefMemPerCPU=1000
GresTypes=gpu
PartitionName=main Nodes={nodes} Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00 PriorityTier=10 PreemptMode=OFF
# Jobs of the other partition push its jobs out; they are requeued.
PartitionName=low Nodes={nodes} MaxTime=1-00:00:00 DefaultTime=01:00:00 PriorityTier=1 PreemptMode=REQUEUE
"""


def unavailable_reason() -> str | None:
    """Why no cluster can be started here; None when one can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: munge, slurmctld, slurmd, slurm-client)"
    namespaces = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "true"]
    if subprocess.run(namespaces, capture_output=True).returncode != 0:
        return "may not make namespaces here"
    return None


@dataclasses.dataclass(frozen=True)
class Job:
    number: str
    state: str
    comment: str
    node: str
    restarts: int


class Cluster:
    """Two nodes. `cpus` and `memory` (MB) of each may exceed the machine's; `gpus` have no device behind them."""

    def __init__(self, cpus: int = 4, memory: int = 64_000, gpus: int = 0, kill_wait: int = 10):
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.daemons: dict[str, subprocess.Popen] = {}
        for name in ("state", "log", "munge", *(f"spool/{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o711)
        self._write(cpus, memory, gpus, kill_wait)
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _write(self, cpus: int, memory: int, gpus: int, kill_wait: int) -> None:
        port, *ports = _free_ports(1 + len(NODES))
        text = CONFIGURATION.format(port=port, folder=self.folder, kill_wait=kill_wait, nodes=",".join(NODES))
        gres = f" Gres=gpu:{gpus}" if gpus else ""
        for node, node_port in zip(NODES, ports, strict=True):
            text += f"NodeName={node} NodeAddr=127.0.0.1 Port={node_port} CPUs={cpus} RealMemory={memory}{gres}\n"
        (self.folder / "slurm.conf").write_text(text)
        # Daemons listen on 127.0.0.1, which is what their host names mean to them.
        daemons = self.folder / "daemons"
        daemons.mkdir()
        Path("/etc/slurm").mkdir(exist_ok=True)
        (daemons / "slurm.conf").write_text(text + "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n")
        if gpus:
            for index in range(gpus):
                (self.folder / f"gpu{index}").touch()
            for target in (self.folder, daemons):
                (target / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{gpus - 1}]\n")
        names = " ".join(["controller", *NODES])
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost {names}\n" + Path("/etc/hosts").read_text())
        key = self.folder / "munge/key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        step = self.folder / "slurmstepd"
        step.write_text(STEP_DAEMON.format(python=sys.executable, program=shutil.which("slurmstepd", path=PATH)))
        step.chmod(0o755)

    def __enter__(self) -> Cluster:
        try:
            munge = self.folder / "munge"
            files = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
            words = ["--foreground", f"--socket={munge}/socket", *files, "--origin=127.0.0.1"]
            self._start("munged", "controller", "munged", *words)
            self.wait(munge.joinpath("socket").exists, 20, "munged has no socket")
            configuration = str(self.folder / "daemons/slurm.conf")
            self._start("slurmctld", "controller", "slurmctld", "-D", "-c", "-f", configuration)
            for node in NODES:
                self.power_on(node)
            self.wait(self._ready, 60, "the nodes take no jobs")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, name: str, host: str, *command: str) -> None:
        # --propagation slave: mounts made here are seen in there, but not the other way around.
        namespaces = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave"]
        inside = ["--", "sh", "-c", IN_NAMESPACES, "sh", str(self.folder), host, *command]
        with open(self.folder / f"log/{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                [*namespaces, *inside],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment,
                start_new_session=True,
            )

    def power_on(self, node: str) -> None:
        configuration, step = self.folder / "daemons/slurm.conf", self.folder / "slurmstepd"
        self._start(node, node, "slurmd", "-D", "-N", node, "-f", str(configuration), "-d", str(step))

    def power_off(self, node: str) -> None:
        """Kill a node's daemon and every process of its jobs at once, as if its power had gone."""
        daemon = self.daemons.pop(node)
        daemon.kill()
        daemon.wait(20)

    def stop(self) -> None:
        """End all daemons, and with them what they started; logs of daemons are kept only while the cluster runs."""
        for name in reversed(list(self.daemons)):
            self.power_off(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ready(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).split("\n")
        return len(states) >= len(NODES) and all(line.endswith((" idle", " mixed", " allocated")) for line in states)

    def wait(self, condition, seconds: float, complaint: str) -> None:
        """Until `condition()`; RuntimeError with the daemons' last words when a daemon dies or time is over."""
        deadline = time.monotonic() + seconds
        while not condition():
            dead = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = [f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("log/*"))]
                raise RuntimeError("\n".join([f"{complaint} after {seconds} s; ended: {dead or 'none'}", *logs]))
            time.sleep(0.2)

    def run(self, *command: str, check: bool = True) -> str:
        """Standard output of a command that reaches the cluster."""
        process = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        if check and process.returncode:
            raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")
        return process.stdout.strip()

    def jobs(self) -> list[Job]:
        """All jobs, also finished ones, in the order of their submission."""
        # A missing field would be empty: the separator is a character that no field has.
        lines = self.run(
            "squeue", "--states=all", "-h", "-S", "i", "-O", "JobID:|,State:|,Comment:|,NodeList:|,RestartCnt:|"
        )
        rows = [[field.strip() for field in line.split("|")[:5]] for line in lines.split("\n") if line]
        return [
            Job(number, state, comment, node, int(restarts or 0)) for number, state, comment, node, restarts in rows
        ]

    def running(self, comment: str) -> Job | None:
        """The running job whose comment, which names rule and wildcards, begins so."""
        return next((job for job in self.jobs() if job.state == "RUNNING" and job.comment.startswith(comment)), None)


def _free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
    finally:
        for bound in sockets:
            bound.close()


if __name__ == "__main__":
    # By hand: `python tests/slurm_cluster.py`, then what it prints in another terminal; Ctrl-C ends the cluster.
    if reason := unavailable_reason():
        sys.exit(f"no cluster here: {reason}")
    with Cluster() as cluster:
        print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
