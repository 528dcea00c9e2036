"""Operators and synchronisations on a GPU, exactly, counted on a pretended one (`docs/kernels.md`)."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import kernels
from miniatures import cmlm, dat, inat, lanmt, lvm, nat, pairs, refiner, seq2seq, tagger, transformer
from pretended_cuda import counted, pretended

from workflow_src.config.training import TrainingConfig
from workflow_src.decoding.slots import ROOM, rows_of_tensors
from workflow_src.families.build import build_objective
from workflow_src.registry import searches
from workflow_src.runtime.device import choose, on_cpu, on_device
from workflow_src.training import update
from workflow_src.training.update import Part, Task, Updater

PAGE = (Path(__file__).resolve().parents[1] / "docs/kernels.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("\n## ")[0]
MEASURED = PAGE.partition("\n## ")[2]
ROWS = {row.name: row for row in kernels.ROWS}


@pytest.fixture(autouse=True)
def machine():
    with pretended() as gpus:
        yield gpus


VAE = {"latent": "vae", "latent_dim": 3}
UPDATES = {
    "transformer": ("transformer", transformer, {}),
    "lvm": ("lvm", lvm, {}),
    "score": ("score", lambda: refiner("score"), {}),
    "energy": ("energy", lambda: refiner("energy"), {}),
    "ctc": ("nat", lambda: nat(target_size=12), {}),
    "ctc, bigrams": ("nat", lambda: nat(target_size=12), {"ngrams": 2}),
    "ctc, latents, glancing": ("nat", lambda: nat(target_size=12, **VAE), {"glance": "glat"}),
    "axe": ("nat", lambda: nat(target_size=12, loss="axe", max_length_difference=4), {}),
    "axe, glancing": ("nat", lambda: nat(target_size=12, loss="axe", max_length_difference=4), {"glance": "random"}),
    "cross-entropy": ("nat", lambda: nat(target_size=12, loss="ce", max_length_difference=4), {}),
    "cross-entropy, glancing": (
        "nat",
        lambda: nat(target_size=12, loss="ce", max_length_difference=4),
        {"glance": "glat"},
    ),
    "dat": ("dat", dat, {}),
    "dat, bigrams": ("dat", dat, {"ngrams": 2}),
    "dat, without glancing": ("dat", dat, {"glance_share": 0.0, "glance_end": 0.0}),
    "seq2seq": ("seq2seq", seq2seq, {}),
    "tagger": ("tagger", tagger, {}),
    "inference-tagger": ("inference-tagger", tagger, {}),
    "cmlm": ("cmlm", lambda: cmlm(target_size=12), {}),
    "lanmt": ("lanmt", lanmt, {}),
    "inat": ("inat", inat, {"guess": "sample"}),
    "inference-network": ("inference-network", lambda: cmlm(target_size=12), {}),
}


@pytest.mark.parametrize(
    ("case", "precision", "accumulate"),
    [("transformer", "float32", 1), *((case, "bfloat16", 2) for case in UPDATES)],
)
def test_no_update_waits_for_the_gpu(case, precision, accumulate, machine, monkeypatch):
    """Neither a first nor a later one."""
    family, make, settings = UPDATES[case]
    runtime = choose("cuda", precision)
    frozen = copy.deepcopy(lvm()).float().to(runtime.device).eval() if family in ("score", "energy") else None
    scorer = seq2seq if family == "inference-tagger" else transformer
    roles = {"energy": copy.deepcopy(scorer()).float().to(runtime.device)} if "inference" in family else {}
    batch = pairs([3, 9, 1, 6], [4, 5, 2, 7])
    monkeypatch.setattr(update, "collate", lambda corpus, rows: batch)
    model = copy.deepcopy(make()).float().to(runtime.device).train()
    config = TrainingConfig(max_steps=5, accumulate=accumulate)
    objective = build_objective(family, settings)
    updater = Updater(Task(model, objective, None, config, 1, runtime, frozen=frozen, roles=roles))
    parts = [Part(np.arange(4), 0, 0, number) for number in range(accumulate)]
    for step in (0, 4):
        torch.cuda.set_sync_debug_mode("error")
        figures = updater.update(step, parts)
        torch.cuda.set_sync_debug_mode("default")
        assert not machine.counts["copies to the host"] and np.isfinite(float(figures["loss"][0]))
        machine.counts.clear()


@pytest.mark.parametrize("name", ROWS)
def test_a_search_takes_what_its_row_of_the_documentation_says(name):
    (documented,) = [line for line in TABLE.splitlines() if line.startswith(f"| {name} ")]
    assert kernels.line(ROWS[name]).split() == documented.split()


def test_the_table_has_a_row_of_every_search():
    assert {row.search for row in kernels.ROWS} == set(searches())
    figures = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in TABLE.splitlines()}
    # One pass whose outputs are as wide as the source says: one wait, also captured.
    assert [figures["ctc-greedy, nat"][column].strip(" |") for column in (2, 5)] == ["1", "1"]
    # Ten subwords and an end: a wait at each position, one for the limits of lengths, and one for the output.
    assert figures["greedy, transformer"][2] == "13"
    # Captured, blocks of eight and of four positions, after the graph that reads the source.
    assert [figures["greedy, transformer"][column].strip(" |") for column in (3, 4, 5)] == ["3", "0", "2"]


def test_figures_of_a_real_gpu_are_no_counts_of_the_pretended_one():
    rows = [line for line in MEASURED.splitlines() if line.split(" | ")[0].removeprefix("| ") in ROWS]
    assert len(rows) > 10 and not set(rows) & set(TABLE.splitlines())


def test_a_batch_takes_no_more_operators_than_a_sentence():
    """Nothing on a device is done sentence by sentence."""
    counts = []
    for sentences in ([kernels.SENTENCE], [kernels.SENTENCE] * 8):
        search = kernels.search_of(ROWS["ctc-greedy, nat"], torch.device("cuda"), sentences)
        with counted() as counter:
            search()
        counts.append(counter)
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("symbols", "waits"), [(ROOM, 1), (ROOM + 1, 2)])
def test_probable_symbols_come_to_the_cpu_with_one_wait_where_they_are_few(symbols, waits):
    logits = torch.full((2, 3, 2 * ROOM), -9.0)
    logits[..., :symbols] = 0.0
    values, slots = logits.cuda(), torch.tensor([3, 3]).cuda()
    with counted() as counts:
        rows = rows_of_tensors(values, slots, 0.1, False)
    assert counts["synchronisations"] == waits
    assert [row.counts.tolist() for row in rows] == [[symbols] * 3] * 2


def test_values_come_to_the_cpu_with_one_wait(machine):
    tensors = [torch.arange(3, device="cuda"), torch.ones(2, 2, device="cuda"), torch.tensor(5)]
    machine.counts.clear()
    assert [tensor.tolist() for tensor in on_cpu(*tensors)] == [[0, 1, 2], [[1.0, 1.0], [1.0, 1.0]], 5]
    assert machine.counts["synchronisations"] == 1 and machine.counts["copies to the host"] == 2
    machine.counts.clear()
    assert on_device([2, 3], torch.device("cuda")).device.type == "cuda" and on_cpu(tensors[2])[0] is tensors[2]
    assert not machine.counts["synchronisations"]


def test_a_batch_on_a_device_is_read_on_the_cpu_without_a_wait():
    batch = pairs([3, 1, 6], [2, 0, 7])
    on_gpu = batch.to(torch.device("cuda"))
    with counted() as counts:
        assert torch.equal(on_gpu.on_cpu.source, batch.source) and on_gpu.num_target_tokens == 12
        assert on_gpu.source_lengths.tolist() == [4, 2, 7]
        assert on_gpu.target_lengths.tolist() == [2, 0, 7] and on_gpu.output_lengths.tolist() == [2, 1, 7]
        real = on_gpu.cells(on_gpu.target_lengths)
    assert not counts["synchronisations"] and real[0].device.type == "cuda"
    assert torch.equal(torch.stack(real, 1).cpu(), batch.target_mask.nonzero())
    # Pairs that an objective replaces have lengths of their own.
    emptied = dataclasses.replace(on_gpu, target=torch.zeros_like(on_gpu.target))
    assert emptied.target_lengths.tolist() == [0, 0, 0]
