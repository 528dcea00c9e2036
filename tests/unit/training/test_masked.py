"""Validation of masked language models: figures are those of single sentences."""

from __future__ import annotations

import pytest
import sacrebleu
import torch
from miniatures import search

from workflow_src.families.build import build
from workflow_src.families.cmlm import CmlmObjectiveConfig
from workflow_src.families.cmlm.objective import masked_places
from workflow_src.families.cmlm.validation import validate
from workflow_src.types import PAD


@torch.no_grad()
def test_dev_figures_are_those_of_sentences_one_by_one(dev, tiny, tiny_settings):
    torch.manual_seed(8)
    model = build("cmlm", tiny_settings("cmlm")["model"], tiny.sizes).eval()
    validation = dev.validation(validate(CmlmObjectiveConfig()))
    figures = validation.figures(model)
    # The same masks at every validation.
    torch.rand(100)
    assert validation.figures(model) == figures and validation.criterion == "dev_bleu"

    nll, masked, exact, sentences = 0.0, 0, 0, 0
    for batch in dev.batches():
        places = masked_places(dev.keys(batch), batch.target_lengths, batch.target.size(1))
        for row, is_masked in enumerate(places):
            source, target = (x[row][x[row] != PAD][None] for x in (batch.source, batch.target))
            memory, is_masked = model.encode(source), is_masked[: target.size(1)]
            shown = torch.where(is_masked, model.mask_symbol, target)
            hidden = model.states(memory, shown, shown != PAD)[0]
            scores = (hidden @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)
            nll -= float(scores[is_masked].gather(1, target[0, is_masked][:, None]).sum())
            masked += int(is_masked.sum())
            exact += int(model.length.predict(memory)) == target.size(1)
            sentences += 1
    assert sentences == len(dev.references)
    assert figures["dev_loss"] == pytest.approx(nll / masked, rel=1e-5)
    assert figures["dev_length_accuracy"] == pytest.approx(exact / sentences)
    for name, iterations in (("dev_bleu", 4), ("dev_bleu_one_pass", 1)):
        masked_search = search("mask-predict", model, iterations=iterations, length_beam=1)
        sources = [torch.tensor([[*tiny.dev.source(row).tolist(), 2]]) for row in range(5)]
        rows = [masked_search.translate(source).tokens[0] for source in sources]
        bleu = sacrebleu.corpus_bleu(tiny.subwords.decode_target(rows), [dev.references[:5]]).score
        assert figures[name] == pytest.approx(bleu)
