"""Searches that need more memory than there is are refused before they start, with what fits."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import fields_of
from stage_server import python_code

from workflow_src import registry
from workflow_src.errors import ConfigError, InputError
from workflow_src.runtime import device_memory
from workflow_src.serving import arguments
from workflow_src.serving.translator import Translator
from workflow_src.spec import Sizes

CPU = torch.device("cpu")
SIZES = Sizes(vocabulary=8000, length=30, dim=256, sentences=1, positions=60)
# Each has settings that make it hold more hypotheses.
HOLDING = [name for name, search in registry.searches().items() if search.settings.named("holds")]


def _environment():
    project = Path(__file__).resolve().parents[3]
    return os.environ | {"PYTHONPATH": f"{project}:{project / 'tests'}", "OMP_NUM_THREADS": "1"}


def settings_of(name, **fields):
    kind = registry.searches()[name].settings
    required = {field: 1 for field, info in kind.model_fields.items() if kind.option(field).required}
    return kind(**{**required, **fields})


def test_every_setting_that_widens_a_search_is_declared():
    """Settings marked `holds` are those that memory grows with, and `width` where a search gives several hypotheses."""
    for name, search in registry.searches().items():
        kind = search.settings
        for field, info in kind.model_fields.items():
            if info.annotation is not int:
                continue
            few, many = (settings_of(name).model_copy(update={field: value}) for value in (1, 7))
            holds = kind.option(field).holds
            assert (search.width(many) > search.width(few)) == (holds and search.several), (name, field)
            if holds:
                assert search.bytes_held(many, SIZES) > search.bytes_held(few, SIZES)


@pytest.mark.parametrize("name", HOLDING)
def test_the_largest_that_fits_is_said_and_fits(name, monkeypatch):
    search = registry.searches()[name]
    setting = search.settings.named("holds")[0]
    monkeypatch.setattr(device_memory, "available", lambda _device: 2 * 10**9)
    with pytest.raises(ConfigError) as refused:
        arguments.check_room(settings_of(name, **{setting: 900_000_000}), dataclasses.replace(SIZES, sentences=4), CPU)
    fields = {"setting": setting, "value": 900_000_000, "mentions": (f"search {name}", "2.0 GB are free")}
    assert fields_of(refused.value, fields) == fields
    match = re.fullmatch(rf"lower {setting} to (\d+)( or batch to \d)?", refused.value.hint)
    assert match, refused.value
    fits = int(match[1])
    arguments.check_room(settings_of(name, **{setting: fits}), dataclasses.replace(SIZES, sentences=4), CPU)
    with pytest.raises(ConfigError):
        arguments.check_room(settings_of(name, **{setting: fits + 1}), dataclasses.replace(SIZES, sentences=4), CPU)


def test_a_smaller_batch_is_named_where_it_helps(monkeypatch):
    monkeypatch.setattr(device_memory, "available", lambda _device: 2 * 10**9)
    settings = settings_of("beam", beam=500)
    with pytest.raises(ConfigError) as refused:
        arguments.check_room(settings, dataclasses.replace(SIZES, sentences=64), CPU)
    assert "64 sentences of 30 subwords" in refused.value.problem
    fits = int(re.search(r" or batch to (\d+)$", refused.value.hint)[1])
    arguments.check_room(settings, dataclasses.replace(SIZES, sentences=fits), CPU)


@pytest.mark.parametrize("name", ["graph-path", "graph-viterbi"])
def test_batches_of_one_hypothesis_are_bounded_too(name, monkeypatch):
    monkeypatch.setattr(device_memory, "available", lambda _device: 5 * 10**8)
    settings, sizes = settings_of(name), dataclasses.replace(SIZES, positions=240, sentences=64)
    with pytest.raises(ConfigError) as refused:
        arguments.check_room(settings, sizes, CPU)
    assert (refused.value.setting, refused.value.value) == ("batch", 64)
    fits = int(re.fullmatch(r"lower batch to (\d+)", refused.value.hint)[1])
    arguments.check_room(settings, dataclasses.replace(sizes, sentences=fits), CPU)
    with pytest.raises(ConfigError):
        arguments.check_room(settings, dataclasses.replace(sizes, sentences=fits + 1), CPU)
    # A sentence by itself that does not fit.
    monkeypatch.setattr(device_memory, "available", lambda _device: 10**6)
    with pytest.raises(ConfigError) as refused:
        arguments.check_room(settings, dataclasses.replace(sizes, positions=5000, sentences=1), CPU)
    assert "split" in refused.value.hint


def test_usual_settings_do_not_ask_what_is_free(monkeypatch):
    monkeypatch.delattr(device_memory, "available")
    arguments.check_room(settings_of("beam", beam=4), dataclasses.replace(SIZES, sentences=64), CPU)


# Code that makes a model and searches with a beam of some size, or in batches; the settings with the largest, and the
# sizes of that search.
GRAPHS = """
from miniatures import dat, searched
model = dat(4000, 4000, vertices=4.0).float()
source = torch.randint(4, 4000, (64, 4))
"""
REAL_SEARCHES = {
    "beam": (
        """
from miniatures import beam_search, transformer
model = transformer(4000, 4000).float()
source = torch.randint(4, 4000, (4, 10))
run = lambda beam: beam_search(model, source, beam=beam, max_length_ratio=0.1)
settings, largest = registry.searches()["beam"].settings(beam=800), 800
""",
        "10, 16, 4, 10",
    ),
    "graph-beam": (
        GRAPHS
        + """
kind = registry.searches()["graph-beam"].settings
run = lambda beam: searched({"model": model}, source[:2], kind(beam=beam, min_ratio=0.0, beam_threshold=None))
settings, largest = kind(beam=400, min_ratio=0.0), 400
""",
        "4, 16, 2, 16",
    ),
    **{
        name: (
            GRAPHS
            + f"""
settings, largest = registry.searches()["{name}"].settings(), 64
run = lambda sentences: searched({{"model": model}}, source[:sentences], settings)
""",
            "4, 16, 64, 16",
        )
        for name in ("graph-path", "graph-viterbi")
    },
}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows the peak")
@pytest.mark.parametrize("name", REAL_SEARCHES)
def test_the_bound_lies_below_what_a_search_takes(name):
    """The estimate is below the peak of a real search, in its own process: refused searches would not have fitted."""
    code, sizes = REAL_SEARCHES[name]
    script = f"""
import ctypes, re, torch
from workflow_src import registry
from workflow_src.spec import Sizes
{code}
def peak():
    # Not ru_maxrss, which begins with what the process that started this one had.
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

torch.set_num_threads(1)
run(2)
# From here on the peak is that of the search: what imports and the first search have freed goes back to the system.
ctypes.CDLL(None).malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")
before = peak()
run(largest)
used = peak() - before
print(used, registry.search_of(settings).bytes_held(settings, Sizes(4000, {sizes})))
"""
    completed = subprocess.run(python_code(script), capture_output=True, text=True, env=_environment())
    assert completed.returncode == 0, completed.stderr
    used, bound = map(float, completed.stdout.split())
    # Memory that the first search has left, less than 1 % of this, serves again and is not in the difference.
    assert 0.99 * bound < used < 4 * bound


def test_free_memory_ends_at_the_limit_of_the_process():
    script = """
import resource, torch
from workflow_src.runtime import device_memory
free = device_memory.available(torch.device("cpu"))
import psutil
limit = psutil.Process().memory_info().vms + 2**28
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(free, device_memory.available(torch.device("cpu")))
"""
    completed = subprocess.run(python_code(script), capture_output=True, text=True, env=_environment())
    assert completed.returncode == 0, completed.stderr
    free, limited = map(int, completed.stdout.split())
    assert free > 2**28 >= limited > 2**27


def test_free_memory_ends_at_the_limit_of_a_container(tmp_path, monkeypatch):
    monkeypatch.setattr(device_memory, "CONTAINER", tmp_path)
    unlimited = device_memory.available(CPU)
    assert unlimited > 10**6
    # A million bytes may be taken, 700,000 are, and 200,000 of these only keep what was read.
    for name, text in (("max", "1000000\n"), ("current", "700000\n"), ("stat", "anon 5\ninactive_file 200000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert device_memory.available(CPU) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert device_memory.available(CPU) > 10**6


@pytest.fixture(scope="module")
def translators(tiny_bundles):
    return {name: Translator.load(tiny_bundles[name], "cpu") for name in ("transformer", "score")}


def test_a_beam_beyond_the_vocabulary_is_refused_by_the_translator(translators):
    translator = translators["transformer"]
    size = translator.subwords.target_size
    with pytest.raises(InputError, match=f"^beam is 100000; allowed: {size} or less"):
        translator.translate(["Der Hund."], "beam", beam=100_000)
    # Also before the first line, as in the command.
    with pytest.raises(InputError, match="beam is 100000"):
        translator.search([], translator.request("beam", beam=100_000, return_scores=True))


def test_candidates_that_do_not_fit_are_refused_by_the_translator(translators):
    with pytest.raises(ConfigError) as refused:
        translators["score"].translate(
            ["Der Hund."], "latent-search", lengths=1, samples=500_000_000, steps=0, rescorer=None
        )
    assert (refused.value.setting, refused.value.value) == ("samples", 500_000_000)


def test_the_vertices_of_graphs_count(tiny, training_words, run_stage, export_words, tmp_path, monkeypatch):
    run_stage("train", training_words("dat", tmp_path, max_steps=0))
    run_stage("export_bundle", export_words(tmp_path / "model.safetensors", None, tmp_path / "bundle"))
    translator = Translator.load(tmp_path / "bundle", "cpu")
    vocabulary, (subwords,) = translator.subwords.target_size, translator.subwords.encode_source(["Der Hund."])
    length = len(subwords) + 1
    settings = translator.request("graph-beam", beam=2).settings
    search = registry.searches()["graph-beam"]
    vertices = translator.network.most_vertices(length)
    assert vertices > 2 * length
    needed = search.bytes_held(settings, Sizes(vocabulary, length, translator.network.config.dim, 1, vertices))
    monkeypatch.setattr(arguments, "SMALL", 0)
    monkeypatch.setattr(device_memory, "available", lambda _device: needed)
    translator.translate(["Der Hund."], settings)
    monkeypatch.setattr(device_memory, "available", lambda _device: needed - 1)
    with pytest.raises(ConfigError) as refused:
        translator.translate(["Der Hund."], settings)
    assert refused.value.setting == "beam"
