"""A disk that is full, a real one (tmpfs): one clear error, nothing half-written, and going on when there is room."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from stage_server import python_module
from stage_words import stage_line

from workflow_src.data.encoded import EncodedCorpus
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import atomic, copy_file, load_tensors

PROJECT = Path(__file__).resolve().parents[3]


class Disk:
    def __init__(self, folder):
        self.folder = folder

    def resize(self, kilobytes: int) -> None:
        self._mount("-o", f"remount,size={kilobytes}k")

    def mount(self, kilobytes: int) -> None:
        self._mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs")

    def _mount(self, *words):
        subprocess.run(["mount", *words, str(self.folder)], check=True, capture_output=True)

    def files(self) -> list[str]:
        """Files with content; a log and the document beside it may be there, as far as they went."""
        paths = (path for path in self.folder.rglob("*") if path.is_file() and not path.with_suffix(".log").exists())
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)


@pytest.fixture
def disk(tmp_path):
    """A small disk; `resize` changes its size."""
    small_disk = Disk(tmp_path / "disk")
    small_disk.folder.mkdir()
    try:
        small_disk.mount(64)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a tmpfs is not permitted here")
    yield small_disk
    subprocess.run(["umount", str(small_disk.folder)], check=True)


def ran(stage: str, words: list[str], log: Path) -> tuple[int, list[str]]:
    """Exit code and lines on stderr of a stage in a process of its own, as a rule runs it."""
    with tempfile.TemporaryDirectory() as folder:
        line = stage_line(stage, [*words, "--log", str(log)], Path(folder))
        command = python_module(f"workflow_src.stages.{stage}", *line)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120)
    assert process.stdout == ""
    return process.returncode, process.stderr.splitlines()


def refused(stage: str, words: list[str], disk: Disk, path: Path) -> None:
    """The stage must end with 1 and one error: `path`, a pattern, does not fit."""
    code, lines = ran(stage, words, disk.folder / "stage.log")
    assert code == 1
    (error,) = [line for line in lines if "rror" in line]
    # By the file, and the space that is left on its disk.
    assert re.match(rf"error: {path} .*\(\d+\.\d of \d+\.\d .* {path.parent} ", error)
    assert "Traceback" not in "".join(lines)


def test_encode(disk, tiny, tmp_path):
    for side in ("de", "en"):
        (tmp_path / f"train.{side}").write_text((tiny.corpus / f"train.{side}").read_text() * 300)
    words = ["--settings", '{"max_length": 50}', "--subwords", str(tiny.folder)]
    words += ["--languages", "de", "en", "--split", "train"]
    words += ["--source", str(tmp_path / "train.de"), "--target", str(tmp_path / "train.en")]
    words += ["--output-prefix", str(disk.folder / "train")]
    refused("encode", words, disk, disk.folder / "train.source.bin")
    assert disk.files() == []
    disk.resize(4000)
    assert ran("encode", words, disk.folder / "stage.log")[0] == 0
    corpus = EncodedCorpus.open(disk.folder / "train")
    corpus.verify()
    assert len(corpus) == 12000
    # Existing files stay as they were when there is no room for another.
    disk.resize(1200)
    assert ran("encode", words, disk.folder / "stage.log")[0] == 1
    EncodedCorpus.open(disk.folder / "train").verify()
    assert len(disk.files()) == 5


def test_training_state(disk, training_words, run_stage, tmp_path):
    """A state does not fit beside the two before it; they are whole, and training goes on from them."""
    state = disk.folder / "state"
    words = lambda folder, where: training_words("transformer", folder, state=where, save_every=3)  # noqa: E731
    before = torch.get_num_threads()
    # As `ran` runs stages: the number of threads changes the order of sums.
    torch.set_num_threads(1)
    run_stage("train", words(tmp_path / "whole", tmp_path / "state"))
    torch.set_num_threads(before)
    size = max(path.stat().st_size for path in (tmp_path / "state").glob("*/*.safetensors"))
    disk.resize(int(2.5 * size / 1024))
    refused("train", words(tmp_path / "out", state), disk, state / "[0-9a-f]+/step-000000(009|012).safetensors")
    steps = [int(path.stem.removeprefix("step-")) for path in sorted(state.glob("*/step-*.safetensors"))]
    assert steps in ([3, 6], [6, 9]) and len(list(state.glob("*/step-*.json"))) == 2
    assert not list(state.glob("*/.*"))
    assert not list((tmp_path / "out").glob("*.*"))
    disk.resize(int(20 * size / 1024))
    code, lines = ran("train", words(tmp_path / "out", state), disk.folder / "stage.log")
    assert code == 0 and any(re.search(rf"resumed\D+{steps[-1]} ", line) for line in lines), lines
    undisturbed, resumed = (load_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert undisturbed.keys() == resumed.keys() and all(
        torch.equal(undisturbed[name], resumed[name]) for name in undisturbed
    )


def test_a_copy_is_whole_or_the_old_file_stays(disk, tmp_path):
    (tmp_path / "large").write_bytes(bytes(100_000))
    (disk.folder / "old").write_text("whole")
    for name in ("old", "new"):
        with pytest.raises(ArtifactError, match=f"^{disk.folder}/{name} "):
            copy_file(tmp_path / "large", disk.folder / name)
    assert disk.files() == ["old"] and (disk.folder / "old").read_text() == "whole"


def test_a_full_disk_is_reported_by_the_file_that_did_not_fit(disk):
    (disk.folder / "old").write_text("whole")
    with pytest.raises(ArtifactError, match=f"^{disk.folder}/big cannot be written: no space left .0.0 of 0.1 MB"):
        with atomic(disk.folder / "old") as small, atomic(disk.folder / "big", "wb") as big:
            small.write("new")
            big.write(bytes(100_000))
    assert disk.files() == ["old"] and (disk.folder / "old").read_text() == "whole"
