"""The objective of inference networks, which is an energy, and their figures on dev.

Tu, Pang, Wiseman & Gimpel 2020 (ENGINE): a network that translates in one pass is trained to minimise the energy that a
frozen autoregressive system gives to its relaxed outputs. The length of an output is that of the training target, and
its end symbol follows the last word, as in the authors' code.
"""

from __future__ import annotations

from torch import Tensor, nn

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.search import searching
from workflow_src.losses.common import exact_lengths, length_loss
from workflow_src.losses.draws import gumbel, sentence_keys
from workflow_src.losses.relaxed import NOISY, energies, relaxed
from workflow_src.losses.settings import RelaxedEnergyConfig
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import AutoregressiveModel, OnePassModel
from workflow_src.types import EOS, Batch, Cells, DevFigures, LossTerms, Measured, TrainingContext, wide

# The role of the frozen system.
ENERGY = "energy"


def relaxed_energy_loss(
    model: OnePassModel, batch: Batch, context: TrainingContext, config: RelaxedEnergyConfig
) -> LossTerms:
    """Summed over a batch and divided by its target tokens, end symbols counted: the energy, and the length loss.

    The energy of a sentence is  sum_t -O2(z_t) . log p(. | O1(z_<t), x), z_t the network's logits over words.
    """
    memory, count = model.encode_batch(batch), batch.num_target_tokens
    keys = sentence_keys(batch, context.seed) if draws(config) else None
    energy = relaxed_energy(config, model, memory, context.roles[ENERGY], batch, keys)
    length, exact = length_loss(model.length, memory, batch)
    figures = {
        "energy": (energy.detach(), len(batch.target)),
        "length_nll": (length.detach(), len(batch.target)),
        "length_accuracy": exact,
    }
    return LossTerms((energy + config.length_weight * length) / count, count, figures)


def draws(config: RelaxedEnergyConfig) -> bool:
    """Whether an operator draws noise."""
    return not NOISY.isdisjoint((config.input_operator, config.output_operator))


def relaxed_energy(
    config: RelaxedEnergyConfig,
    model: OnePassModel,
    memory: Memory,
    scorer: AutoregressiveModel,
    batch: Batch,
    keys: Tensor | None,
) -> Tensor:
    """The energy of the relaxed outputs at the lengths of the targets, in nats, summed over a batch.

    `keys` (B,) are random numbers of sentences, for operators that draw noise: each draws its own.
    """
    hidden, mask = model.hidden(memory, batch.output_lengths)
    real = batch.cells(batch.output_lengths)
    # Words that may be put out: no padding, start or end symbols, no symbols outside of the energy's vocabulary.
    size = model.symbols.first
    logits = wide(model.logits(hidden[real]))[:, EOS + 1 : size]
    input_words, output_words = (
        _spread(relaxed(operator, logits, _noise(operator, logits, mask, keys, stream, real)), mask, size, real)
        for stream, operator in enumerate((config.input_operator, config.output_operator))
    )
    return energies(scorer, scorer.encode_batch(batch), input_words, output_words, mask).sum()


def _noise(operator: str, logits: Tensor, mask: Tensor, keys: Tensor | None, stream: int, real: Cells) -> Tensor | None:
    if operator not in NOISY:
        return None
    assert keys is not None, "operators that draw noise get keys"
    return gumbel(keys, (mask.size(1), logits.size(1)), stream)[real].to(logits)


def _spread(distributions: Tensor, mask: Tensor, size: int, real: Cells) -> Tensor:
    """Distributions (R, …) over words that may be put out, as (B, T, size) over the vocabulary; 0 outside the mask."""
    spread = distributions.new_zeros(*mask.shape, size)
    spread[real] = nn.functional.pad(distributions, (EOS + 1, 0))
    return spread


def validate(config: RelaxedEnergyConfig, _base: None, energy: AutoregressiveModel) -> DevFigures:
    """The energy of outputs on dev, which selects the weights: the smallest.

    `dev_energy` is that of the best words at the references' lengths, in nats a sentence: it can be
    compared between operators. `dev_loss` is that of the relaxed outputs, in nats a token. `dev_bleu` is that of the
    most probable lengths, `dev_bleu_reference_lengths` that of the references'.
    """

    def measure(model: OnePassModel, batch: Batch, keys: Tensor) -> Measured:
        memory = model.encode_batch(batch)
        hidden, mask = model.hidden(memory, batch.output_lengths)
        outputs = model.output(model.logits(hidden).argmax(-1), mask)
        log_probabilities = energy.log_probability(energy.encode_batch(batch), outputs)
        relaxed_sum = relaxed_energy(config, model, memory, energy, batch, keys)
        means = {
            "dev_energy": (-log_probabilities.sum(), len(batch.target)),
            "dev_loss": (relaxed_sum, batch.num_target_tokens),
            "dev_length_accuracy": exact_lengths(model.length.predict(memory), batch),
        }
        return Measured(means, {"dev_bleu_reference_lengths": unpadded(outputs)})

    return DevFigures(measure, {"dev_bleu": searching("argmax")}, "dev_energy", smallest=True)
