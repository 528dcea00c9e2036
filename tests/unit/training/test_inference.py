"""Trainings of inference networks: interrupted is uninterrupted, and the energy stays as it was."""

from __future__ import annotations

import pytest
import sacrebleu
import torch
import yaml
from killed import Killed, killed_after
from miniatures import lively

from workflow_src.config.training import TrainingConfig
from workflow_src.data.batching import collate
from workflow_src.decoding.candidates import unpadded
from workflow_src.families import inference
from workflow_src.families.build import build, build_objective
from workflow_src.losses.settings import RelaxedEnergyConfig
from workflow_src.registry import families
from workflow_src.training.dev import Validation
from workflow_src.training.loop import Trainer
from workflow_src.training.state import StateFolder
from workflow_src.training.update import Task
from workflow_src.types import PAD, with_end

pytestmark = pytest.mark.usefixtures("without_rehearsal")


def miniature(family: str, sizes, seed: int):
    torch.manual_seed(seed)
    return build(family, yaml.safe_load(families()[family].presets.read_text(encoding="utf-8"))["miniature"], sizes)


@pytest.mark.parametrize(
    "family, objective, energy, accumulate",
    [
        ("inference-network", {"input_operator": "SG", "output_operator": "GX"}, "transformer", 2),
        ("inference-tagger", {"input_operator": "SX", "output_operator": "SG"}, "seq2seq", 1),
    ],
)
def test_interrupted_is_bit_equal_and_the_energy_does_not_move(
    tiny, runtime, compare, tmp_path, family, objective, energy, accumulate
):
    scorers = []

    def trainer(state: str, calls: int = 10**6):
        inner = killed_after(calls)(build_objective(family, objective))

        def call(network, batch, context):
            scorer = context.roles["energy"]
            assert not scorer.training and not any(p.requires_grad for p in scorer.parameters())
            return inner(network, batch, context)

        rates = {"learning_rate": 0.005, "warmup_steps": 4, "batch_tokens": 150, "accumulate": accumulate}
        config = TrainingConfig(max_steps=12, validate_every=6, save_every=3, keep="last", **rates)
        scorers.append(miniature(energy, tiny.sizes, 9))
        model = miniature(family, tiny.sizes, 1)
        task = Task(model, call, tiny.train, config, 1, runtime, roles={"energy": scorers[-1]})
        validation = Validation(lambda model: {"dev": 0.0}, "dev")
        return Trainer(task, validation, StateFolder(tmp_path / state, "a fingerprint"))

    straight = trainer("straight")
    straight.run()
    stopped = trainer("one", 7 * accumulate)
    with pytest.raises(Killed):
        stopped.run()
    torch.manual_seed(99)
    going_on = trainer("one")
    going_on.run()
    assert 0 < stopped.progress.step < 12 and compare.equal(straight.model, going_on.model)
    assert not compare.equal(straight.model, miniature(family, tiny.sizes, 1))
    for scorer in scorers:
        assert compare.equal(scorer, miniature(energy, tiny.sizes, 9))
        assert all(parameter.grad is None for parameter in scorer.parameters())


@pytest.mark.parametrize("operators", [("SX", "ST"), ("SG", "GX")], ids="-".join)
@pytest.mark.parametrize("family", ["inference-network", "inference-tagger"])
@torch.no_grad()
def test_dev_figures_are_those_of_sentences_one_by_one(family, operators, dev, tiny):
    model, scorer = (lively(miniature(name, tiny.sizes, 1), 1, 0.2).float() for name in (family, "transformer"))
    config = RelaxedEnergyConfig(input_operator=operators[0], output_operator=operators[1])
    validation = dev.validation(inference.validate(config, None, energy=scorer))
    figures = validation.figures(model)
    torch.rand(7)
    assert validation.figures(model) == figures
    assert validation.criterion == "dev_energy" and validation.smallest
    energy, exact, hypotheses, free = 0.0, 0, [], []
    for row in range(8):
        batch = collate(tiny.dev, [row])
        memory = model.encode(batch.source)
        hidden, _mask = model.hidden(memory, batch.target_lengths)
        words = model.logits(hidden).argmax(-1)
        energy -= float(scorer.log_probabilities(batch.source, words).double().sum())
        exact += int(model.length.predict(memory)) == batch.target.size(1)
        hypotheses += words.tolist()
        hidden, mask = model.hidden(memory, model.length.predict(memory))
        free += unpadded(model.output(model.logits(hidden).argmax(-1), mask))
    assert figures["dev_energy"] == pytest.approx(energy / 8, rel=1e-5)
    assert figures["dev_length_accuracy"] == exact / 8
    for name, rows in (("dev_bleu", free), ("dev_bleu_reference_lengths", hypotheses)):
        lines = tiny.subwords.decode_target(rows[:5])
        assert figures[name] == pytest.approx(sacrebleu.corpus_bleu(lines, [dev.references[:5]]).score), name
    # The loss of the whole dev set, with the numbers that validation draws.
    total, tokens = 0.0, 0
    for batch in dev.batches():
        keys, memory = dev.keys(batch), model.encode(batch.source)
        total += float(inference.relaxed_energy(config, model, memory, scorer, batch, keys))
        tokens += int((with_end(batch.target) != PAD).sum())
    assert figures["dev_loss"] == pytest.approx(total / tokens, rel=1e-6)


@pytest.mark.parametrize(
    "keep, energies, kept",
    [
        ("best", (5.0, 6.0, 7.0), 0),
        ("best", (5.0, 4.0, 7.0), 1),
        ("last", (5.0, 6.0, 7.0), 2),
    ],
)
def test_the_start_is_validated_and_kept_where_no_later_weights_are_better(
    tiny, runtime, compare, tmp_path, keep, energies, kept
):
    def trainer(state: str, validated: list, calls: int = 10**6):
        objective = killed_after(calls)(build_objective("inference-network", {}))

        def figures(model):
            validated.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
            return {"dev_energy": energies[min(len(validated) - 1, 2)]}

        rates = {"learning_rate": 0.005, "warmup_steps": 0, "batch_tokens": 150}
        config = TrainingConfig(max_steps=6, validate_every=3, save_every=2, keep=keep, **rates)
        roles = {"energy": miniature("transformer", tiny.sizes, 9)}
        task = Task(
            miniature("inference-network", tiny.sizes, 1), objective, tiny.train, config, 1, runtime, roles=roles
        )
        validation = Validation(figures, "dev_energy", smallest=True)
        return Trainer(task, validation, StateFolder(tmp_path / state, "fingerprint"), validate_start=True)

    validated: list = []
    uninterrupted = trainer("whole", validated)
    progress = uninterrupted.run()
    assert [entry["step"] for entry in progress.history] == [0, 3, 6] and len(validated) == 3
    first = miniature("inference-network", tiny.sizes, 1).state_dict()
    assert all(torch.equal(validated[0][name], first[name]) for name in first)
    assert "loss" not in progress.history[0] and "loss" in progress.history[1]
    assert all(torch.equal(uninterrupted.model.state_dict()[name], validated[kept][name]) for name in first)
    # A training that goes on has its start's figures, and does not measure other weights as if they were it.
    resumed_history: list = []
    with pytest.raises(Killed):
        trainer("parts", resumed_history, calls=5).run()
    assert len(resumed_history) == 2
    going_on = trainer("parts", resumed_history)
    going_on.run()
    assert len(resumed_history) >= 3 and [entry["step"] for entry in going_on.progress.history] == [0, 3, 6]
    assert compare.equal(uninterrupted.model, going_on.model)


def test_with_a_mean_of_weights_the_start_is_no_part_and_without_updates_it_is_not_validated(tiny, runtime, tmp_path):
    def trainer(steps: int):
        config = TrainingConfig(
            max_steps=steps,
            batch_tokens=150,
            learning_rate=0.005,
            validate_every=2,
            save_every=100,
            schedule="polynomial",
            keep="average",
        )
        model, objective = miniature("inference-network", tiny.sizes, 1), build_objective("inference-network", {})
        roles = {"energy": miniature("transformer", tiny.sizes, 9)}
        validation = Validation(lambda model: {"dev_energy": 1.0}, "dev_energy", smallest=True)
        task = Task(model, objective, tiny.train, config, 1, runtime, roles=roles)
        return Trainer(task, validation, StateFolder(tmp_path / str(steps), "fingerprint"), validate_start=True)

    progress = trainer(4).run()
    assert [entry["step"] for entry in progress.history] == [0, 2, 4, 4] and progress.history[-1]["averaged"] == 2
    assert trainer(0).run().history == []
