"""Lengths: the likeliest by brute force, shares by hand, translations of exactly the lengths asked for."""

from types import SimpleNamespace

import miniatures
import pytest
import torch
from miniatures import translate

from workflow_src.data.batching import pad
from workflow_src.evaluation.analyses import networks
from workflow_src.evaluation.analyses.lengths import measure as lengths
from workflow_src.searches.mask_predict import MaskPredictSettings

SOURCES = [[4, 7, 5], [6, 8, 9, 10, 11, 4], [5], [12, 3, 3, 4]]
CPU = torch.device("cpu")


def search_of(model, name, steps, step_size, refiner):
    steps = {} if name == "prior-mean" else {"steps": steps}
    return miniatures.search(name, model, step_size, refiner, scored=False, **steps)


def test_the_likeliest_lengths_are_those_of_all_classes_in_order():
    model = miniatures.lvm()
    candidates = lengths.candidates(model, SOURCES, 5, 64, CPU)
    assert candidates == lengths.candidates(model, SOURCES, 5, 1, CPU)
    for source, best in zip(SOURCES, candidates, strict=True):
        memory = model.encode(pad([source], eos=True))
        scores = model.length(memory)[0].tolist()
        order = sorted(range(len(scores)), key=lambda c: -scores[c])
        different = list(dict.fromkeys(max(1, len(source) + difference - 4) for difference in order))
        assert best == different[:5]
        assert best[0] == int(model.length.predict(memory))
    assert len(lengths.candidates(model, SOURCES, 99, 64, CPU)[0]) == 9


def test_given_lengths_need_no_number_of_them():
    """The default of `length_beam` is more than this model's head knows, and does nothing here."""
    calls = []
    translator = SimpleNamespace(networks=lambda settings: calls.append(settings) or {"model": None})
    opened = networks.at_lengths(translator, MaskPredictSettings(iterations=2, length_beam=5))
    assert (calls[0].length_beam, calls[0].iterations, opened.width) == (1, 2, 1)


def test_accuracy_by_hand():
    accuracy = lengths.accuracy([[5, 6, 7], [4, 3, 8], [2, 3, 9], [9, 8, 1]], [5, 3, 9, 10])
    assert accuracy["exact"] == 0.25 and accuracy["within_1"] == 0.75 and accuracy["within_2"] == 0.75
    assert accuracy["bias"] == pytest.approx((0 + 1 - 7 - 1) / 4)
    assert accuracy["within_top"] == 0.75
    assert lengths.accuracy([[5, 6], [4, 3], [2, 3], [9, 8]], [5, 3, 9, 10])["within_top"] == 0.5


def test_with_end_symbols_a_length_is_one_latent_less_than_there_are():
    """Outputs of a given length, against a model that reads one more position as any other."""
    with_end, without_end = miniatures.lvm(end_symbol=True), miniatures.lvm()
    with torch.no_grad():
        # No end symbol is put out, so that the two do not differ in words.
        with_end.output_bias[2] -= 1000
        without_end.output_bias[2] -= 1000
    outputs, expected = (
        networks.translate_with(search_of(model, "delta", 2, 1.0, None), SOURCES, target_lengths, 64, CPU)
        for model, target_lengths in ((with_end, [4, 2, 7, 3]), (without_end, [5, 3, 8, 4]))
    )
    assert outputs == expected
    ending = miniatures.ending()
    shorter = networks.translate_with(search_of(ending, "delta", 2, 1.0, None), SOURCES, [4, 2, 7, 3], 64, CPU)
    assert all(len(row) <= length + 1 for row, length in zip(shorter, [4, 2, 7, 3], strict=True))
    assert sum(map(len, shorter)) < 20 and not any(2 in row for row in shorter)


@pytest.mark.parametrize("search", ["prior-mean", "delta", "score", "energy"])
def test_translations_have_the_lengths_asked_for_whatever_the_batch(search):
    refiner = miniatures.refiner(search) if search in ("score", "energy") else None
    opened = search_of(miniatures.lvm(), search, 2, 0.5, refiner)
    target_lengths = [4, 2, 7, 3]
    outputs = networks.translate_with(opened, SOURCES, target_lengths, 64, CPU)
    assert [len(tokens) for tokens in outputs] == target_lengths
    assert outputs == networks.translate_with(opened, SOURCES, target_lengths, 1, CPU)
    source, length = pad(SOURCES[1:2], eos=True), torch.tensor([2])
    alone = translate(opened.model, source, search, 2, 0.5, refiner, lengths=length)
    assert outputs[1] == alone.tokens[0]


@pytest.mark.parametrize("batch", [1, 64])
def test_a_search_that_takes_lengths_is_followed_with_the_series_of_its_entry(batch):
    model = miniatures.cmlm()
    translator = SimpleNamespace(networks=lambda _: {"model": model})
    entry = {"system": "one", "search": "mask-predict", "model": "one", "iterations": 3}
    # Steps are those of searches that refine latents.
    opened = networks.at_lengths(translator, networks.entry_settings(entry, steps=1))
    assert not opened.steps and opened.declared.row_label(opened.settings) == "mask-predict, T = 3"
    target_lengths = [4, 2, 7, 3]
    outputs = networks.translate_with(opened, SOURCES, target_lengths, batch, CPU)
    alone = miniatures.search("mask-predict", model, iterations=3, length_beam=1)
    for source, length, row in zip(SOURCES, target_lengths, outputs, strict=True):
        assert alone.translate(pad([source], eos=True), torch.tensor([length])).tokens == [row] and len(row) == length
