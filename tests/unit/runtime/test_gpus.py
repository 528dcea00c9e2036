"""GPUs for jobs side by side: real processes contend for made-up devices, and are killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from stage_server import python_code

from workflow_src.errors import ArtifactError
from workflow_src.runtime import gpus

PROJECT = Path(__file__).resolve().parents[3]
JOB = """
import json, os, sys, time
from workflow_src.runtime import gpus

names = {name: name for name in sys.argv[2].split(",")}
seconds = float(os.environ.get("SECONDS", "0"))
try:
    lease = gpus.lease(int(sys.argv[1]), names, seconds, alone="ALONE" in os.environ)
except (TimeoutError, ValueError) as failure:
    print("refused", failure, flush=True)
    sys.exit(1)
print(",".join(lease.devices), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""

# After the imports, because Python itself may lie where nobody else may look.
OF_ANOTHER_USER = """
import json, os, sys, time
from workflow_src.runtime import gpus
os.setgid(65534)
os.setuid(65534)
"""


@pytest.fixture
def locks(tmp_path, monkeypatch):
    monkeypatch.setenv(gpus.FOLDER, str(tmp_path / "locks"))
    for name in (gpus.VISIBLE, gpus.LEASED):
        # Set first, so that what a test sets is undone.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path / "locks"


@pytest.fixture
def job(locks):
    """Start a process that wants so many of these devices; returns it and what it said."""
    started = []

    def start(count, names, seconds=0.0, wait=True, **variables):
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "SECONDS": str(seconds), **variables}
        command = [sys.executable, "-c", JOB, str(count), names]
        process = subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True)
        started.append(process)
        return process, process.stdout.readline().strip() if wait else None

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def test_no_two_jobs_have_the_same_and_a_job_without_says_who_has_what(job):
    first, first_output = job(1, "0,1,2")
    second, second_output = job(2, "0,1,2")
    assert (first_output, second_output) == ("0 0", "1,2 1,2")
    third, refused = job(1, "0,1,2")
    assert third.wait() == 1
    assert refused == (
        f"refused no 1 free GPUs within 0 s: 0 by process {first.pid} (-c 1 0,1,2); "
        f"1 by process {second.pid} (-c 2 0,1,2); 2 by process {second.pid} (-c 2 0,1,2)."
    )


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, None], ids=["killed", "terminated", "finished"])
def test_a_device_is_free_when_its_job_ends_however_it_ends(job, ending):
    for _ in range(3):
        holder, output = job(2, "0,1")
        assert output == "0,1 0,1"
        waiting, _ = job(2, "0,1", seconds=30, wait=False)
        time.sleep(0.3)
        assert waiting.poll() is None
        if ending is None:
            holder.stdin.close()
        else:
            holder.send_signal(ending)
        holder.wait()
        assert waiting.stdout.readline().strip() == "0,1 0,1"
        waiting.kill()
        waiting.wait()


def test_ten_jobs_at_once_take_ten_devices(job):
    names = ",".join(map(str, range(10)))
    jobs = [job(1, names, wait=False)[0] for _ in range(10)]
    devices = [process.stdout.readline().split()[0] for process in jobs]
    assert sorted(devices, key=int) == names.split(",")


def test_a_part_is_not_kept_while_the_rest_is_missing(job):
    job(1, "0")
    _greedy, output = job(2, "0,1")
    assert output.startswith("refused") and job(1, "1")[1] == "1 1"


def test_jobs_share_gpus_as_far_as_they_may(job):
    """Two a GPU, on different GPUs first. A job that is to be alone waits for both, and they for it."""
    sharing = {gpus.SHARING: "2"}
    jobs = [job(1, "0,1", **sharing) for _ in range(4)]
    assert [output for _, output in jobs] == ["0 0", "1 1", "0 0", "1 1"]
    for variables in (sharing, {}, {**sharing, "ALONE": "yes"}):
        assert job(1, "0,1", **variables)[1].startswith("refused ")
    for process, _ in (jobs[0], jobs[2]):
        process.kill()
        process.wait()
    _, output = job(1, "0,1", ALONE="yes", **sharing)
    assert output == "0 0" and job(1, "0,1", **sharing)[1].startswith("refused ")
    jobs[1][0].kill()
    jobs[1][0].wait()
    # One place is free, for a job that shares.
    assert job(1, "0,1")[1].startswith("refused ") and job(1, "0,1", **sharing)[1] == "1 1"


def test_a_training_on_several_gpus_has_a_place_on_each(job):
    sharing = {gpus.SHARING: "2"}
    assert job(1, "0,1", **sharing)[1] == "0 0" and job(2, "0,1", **sharing)[1] == "0,1 0,1"
    # Places of one GPU are no two GPUs.
    assert job(2, "0,1", **sharing)[1].startswith("refused ") and job(1, "0,1", **sharing)[1] == "1 1"


def test_more_than_there_are_is_refused_at_once(job):
    process, output = job(3, "0,1", seconds=1000)
    assert process.wait() == 1
    assert output.startswith("refused runtime.devices is 3: 2 GPUs are visible here (0, 1); lower it")


def test_a_process_started_by_the_holder_does_not_wait_for_it(locks, monkeypatch):
    holder = gpus.lease(1, {"0": "0", "1": "1"})
    assert holder.devices == ("0",) == (os.environ["CUDA_VISIBLE_DEVICES"],)
    assert gpus.lease(1, {"0": "0"}, 0) is None
    # What another chose to show it is not the holder's.
    monkeypatch.setenv(gpus.VISIBLE, "1")
    assert gpus.lease(1, {"1": "1"}, 0).devices == ("1",)
    holder.release()


NVIDIA_SMI = "#!/bin/sh\nprintf 'GPU-aaaa\\nGPU-bbbb\\nGPU-cccc\\n'\n"


@pytest.fixture
def three_gpus(locks, tmp_path, monkeypatch):
    """A machine whose nvidia-smi lists three GPUs."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, {f"GPU-{c * 4}": f"GPU-{c * 4}" for c in "abc"}),
        ("2,0", {"2": "GPU-cccc", "0": "GPU-aaaa"}),
        ("GPU-bbbb", {"GPU-bbbb": "GPU-bbbb"}),
        ("GPU-bb", {"GPU-bb": "GPU-bbbb"}),
        ("0,7,1", {"0": "GPU-aaaa"}),
        ("1,-1,2", {"1": "GPU-bbbb"}),
        ("", {}),
        ("NoDevFiles", {}),
    ],
)
def test_allocation_stays_within_what_is_visible(three_gpus, monkeypatch, variable, expected):
    """Locks are called by UUID: 0 inside a job that sees one GPU may be 2 outside."""
    if variable is not None:
        monkeypatch.setenv(gpus.VISIBLE, variable)
    assert gpus.visible() == expected
    lease = gpus.lease()
    assert (lease.devices if lease else ()) == tuple(expected)[:1]
    if lease:
        lease.release()


def test_a_gpu_chosen_by_number_is_used_though_another_has_it(three_gpus, job, caplog, monkeypatch):
    holder, _ = job(1, "GPU-bbbb")
    assert gpus.announce(2) is not None and not caplog.records
    assert gpus.announce(1) is None
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == f"warning: GPU GPU-bbbb (cuda:1) is in use by process {holder.pid} (-c 1 GPU-bbbb)"
    assert gpus.VISIBLE not in os.environ
    monkeypatch.setenv(gpus.VISIBLE, "")


def test_without_gpus_nothing_is_taken(locks, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there are GPUs here")
    monkeypatch.setenv(gpus.VISIBLE, "0")
    assert gpus.lease() is None and not locks.exists()


def test_the_folder_is_the_machines_whatever_a_job_has_for_temporary_files(monkeypatch, tmp_path):
    monkeypatch.delenv(gpus.FOLDER, raising=False)
    monkeypatch.setattr(gpus, "DEFAULT_FOLDER", str(tmp_path / "locks"))
    for name in ("one", "two"):
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        monkeypatch.setattr("tempfile.tempdir", None)
        assert gpus.folder() == tmp_path / "locks"
    assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_where_the_machines_folder_cannot_be_made_jobs_use_that_for_temporary_files(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv(gpus.FOLDER, raising=False)
    monkeypatch.setattr(gpus, "DEFAULT_FOLDER", str(tmp_path / "file/locks"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert gpus.folder() == tmp_path / "locks" and "cannot be made" in caplog.text


def test_a_folder_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(gpus.FOLDER, str(tmp_path / "file/locks"))
    with pytest.raises(ArtifactError) as refused:
        gpus.folder()
    assert refused.value.path == str(tmp_path / "file/locks") and gpus.FOLDER in refused.value.fix


@pytest.mark.parametrize("mode", [None, 0o644], ids=["as it is made", "as an umask had it"])
def test_users_share_locks(mode, locks, monkeypatch):
    """Files of one user lock another out only while they are locked."""
    if os.getuid() != 0:
        pytest.skip("only root can start processes of other users")
    shared = Path(tempfile.mkdtemp(prefix="locks-", dir="/tmp"))
    try:
        shared.chmod(0o711)
        monkeypatch.setenv(gpus.FOLDER, str(shared / "locks"))
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {k: v for k, v in environment.items() if k not in (gpus.VISIBLE, gpus.LEASED)}
        holder = gpus.lease(1, {"0": "0"})
        if mode:
            (shared / "locks/0.lock").chmod(mode)
        words = [sys.executable, "-c", OF_ANOTHER_USER + JOB, "1", "0"]
        options = {"env": environment, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        refused = subprocess.run(words, **options)
        # One GPU within 0 seconds, and who has GPU 0.
        assert re.findall(r"\d+", refused.stdout)[:4] == ["1", "0", "0", str(os.getpid())], refused
        assert refused.stdout.startswith("refused ")
        holder.release()
        assert subprocess.run(words, **options).stdout == "0 0\n"
    finally:
        shutil.rmtree(shared)


def test_a_link_in_place_of_a_lock_is_not_followed(locks, tmp_path):
    gpus.folder()
    victim = tmp_path / "victim"
    victim.write_text("dear")
    (locks / "0.lock").symlink_to(victim)
    with pytest.raises(ArtifactError) as refused:
        gpus.lease(1, {"0": "0"}, 0)
    assert refused.value.path == str(locks / "0.lock") and gpus.FOLDER in refused.value.fix
    assert victim.read_text() == "dear"


def test_only_those_who_have_gpus_are_named(job):
    """Not who had one before, and not the one that waits."""
    before, _ = job(2, "0,1")
    before.kill()
    before.wait()
    holder, _ = job(1, "0")
    _, refused = job(2, "0,1")
    assert refused.startswith("refused ") and refused.endswith(" (-c 1 0).")
    assert re.findall(r"\d+", refused) == ["2", "0", "0", str(holder.pid), "1", "0"]


def test_stages_take_a_gpu_before_they_run(three_gpus, tmp_path):
    """A real stage's command: its environment names one free GPU before anything of it runs."""
    code = (
        "import os\nfrom workflow_src import jobs\n"
        "jobs.start(lambda inputs: print(os.environ.get('CUDA_VISIBLE_DEVICES')), jobs.DeviceJobInputs)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    holder = gpus.lease(1)
    # A PyTorch for CPUs has no use for one, unless it is asked for.
    auto = "None" if torch.version.cuda is None else "GPU-bbbb"
    for device, shown in (("auto", auto), ("cuda", "GPU-bbbb"), ("cpu", "None"), ("cuda:0", "None")):
        fresh = {name: value for name, value in environment.items() if name not in (gpus.VISIBLE, gpus.LEASED)}
        (tmp_path / "job.json").write_text(json.dumps({"device": device}))
        words = python_code(code, "--job", str(tmp_path / "job.json"))
        done = subprocess.run(words, env=fresh, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip() == shown, done.stderr
    holder.release()
