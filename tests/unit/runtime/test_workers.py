"""Blocks in several processes: order, errors, and processes that end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.errors import ConfigError, InputError
from workflow_src.runtime import workers
from workflow_src.runtime.workers import Workers, blocks_of

PROJECT = Path(__file__).resolve().parents[3]


def squaring(offset):
    def square(block):
        return os.getpid(), [number**2 + offset for number in block]

    return square


def refusing(value):
    raise ConfigError("recipe.clean.mine", value, problem="it cannot be used")


def ending():
    return lambda _: os._exit(9)


@given(st.lists(st.integers()), st.integers(1, 5))
def test_blocks_have_all_items_in_order(items, size):
    blocks = list(blocks_of(iter(items), size))
    assert [item for block in blocks for item in block] == items
    assert all(len(block) == size for block in blocks[:-1]) and all(blocks)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_come_with_their_blocks_in_order(threads, monkeypatch):
    monkeypatch.setattr(workers, "WORTHWHILE", 1)
    blocks = list(blocks_of(range(97), 5))
    with Workers(threads, 97, squaring, 7) as pool:
        # Two texts at once, as where the second is made of the results of the first.
        first = pool.map(blocks)
        second = pool.map(numbers for _, (_, numbers) in first)
        results = list(second)
    assert [block for block, _ in results] == [[n**2 + 7 for n in block] for block in blocks]
    assert [numbers for _, (_, numbers) in results] == [[(n**2 + 7) ** 2 + 7 for n in block] for block in blocks]
    processes = {process for _, (process, _) in results}
    assert (processes == {os.getpid()}) if threads == 1 else (os.getpid() not in processes)


def test_a_short_text_starts_no_process():
    with Workers(4, workers.WORTHWHILE - 1, squaring, 0) as pool:
        assert [process for _, (process, _) in pool.map([[1]])] == [os.getpid()]


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_of_processes_are_those_of_this_one(threads, monkeypatch):
    monkeypatch.setattr(workers, "WORTHWHILE", 1)
    with pytest.raises(ConfigError) as caught, Workers(threads, 9, refusing, "x") as pool:
        list(pool.map([[1]]))
    assert (caught.value.setting, caught.value.value) == ("recipe.clean.mine", "x")


def test_processes_end_with_the_job_that_is_killed(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from workflow_src.runtime.workers import Workers\n"
        "from test_workers import squaring\n"
        "with Workers(2, 10**9, squaring, 0) as pool:\n"
        "    for _, (process, _) in pool.map(([number] for number in range(10**9))):\n"
        "        print(process, flush=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT), str(Path(__file__).parent)])}
    job = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=tmp_path, stdout=subprocess.PIPE)
    processes = {int(job.stdout.readline()) for _ in range(9)}
    assert processes and job.pid not in processes
    job.kill()
    job.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_the_system_ends_is_reported(monkeypatch):
    monkeypatch.setattr(workers, "WORTHWHILE", 1)
    with pytest.raises(InputError, match="fewer threads"), Workers(2, 9, ending) as pool:
        list(pool.map([[1], [2]]))
