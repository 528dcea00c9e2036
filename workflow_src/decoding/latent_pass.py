"""`refinement.translate_batch` as one function of source ids, for engines that compile it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.decoding.candidates import read_symbols
from workflow_src.decoding.latent import LengthChoice, decode_slots, on_source, suppressed
from workflow_src.decoding.passes import Pass, largest
from workflow_src.decoding.refinement import StepMaker, refine
from workflow_src.spec import MODEL, SearchSettings
from workflow_src.types import PAD, EncoderOutput, LatentModel, Networks, SourceLatentModel, wide


class LatentPass(nn.Module):
    """Source (B, S) -> tokens (B, T), positions (B,) and, if `scored`, mean log p(y_t|z,x) (B,)."""

    def __init__(
        self,
        model: LatentModel | SourceLatentModel,
        make_step: StepMaker | None,
        steps: int,
        choice: LengthChoice,
        scored: bool,
    ):
        super().__init__()
        self.model, self.make_step, self.steps, self.choice, self.scored = model, make_step, steps, choice, scored

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        memory = self.model.encode(source)
        return self.slots(self.model, memory) if on_source(self.model) else self.positions(self.model, memory)

    def positions(self, model: LatentModel, memory: EncoderOutput) -> tuple[Tensor, ...]:
        """Words at target positions, from a model with latents of target positions."""
        lengths = model.predict_lengths(memory, self.choice.quantile, self.choice.lengthening)
        positions = lengths + model.extra_positions
        numbers = torch.arange(largest(positions, model.config.max_positions), device=lengths.device)
        mask = numbers[None, :] < positions[:, None]
        z, _ = model.prior(memory, mask)
        if self.make_step:
            z = refine(z, self.make_step(memory, mask), self.steps)
        logits = model.decode(memory, z, mask)
        normaliser = wide(logits).logsumexp(-1) if self.scored else None
        logits = suppressed(model, logits)
        tokens = logits.argmax(-1)
        if normaliser is None:
            return tokens, positions
        gains = (wide(logits.amax(-1)) - normaliser) * mask
        return tokens, positions, gains.sum(1) / positions

    def slots(self, model: SourceLatentModel, memory: EncoderOutput) -> tuple[Tensor, ...]:
        """Words read off the slots, padded, from a model with latents of source positions."""
        z, _ = model.prior(memory)
        if self.make_step:
            z = refine(z, self.make_step(memory, memory.mask), self.steps)
        logits, mask = decode_slots(model, memory, z, self.choice)
        tokens, scores = read_symbols(model, wide(logits), mask, self.scored)
        positions = (tokens != PAD).sum(1)
        return (tokens, positions, scores) if self.scored else (tokens, positions)


def program(networks: Networks, settings: SearchSettings, scored: bool) -> Pass:
    """The pass of a search that decodes the prior mean, refined by steps if it has any."""
    fields = settings.model_dump()
    make_step = registry.step_maker(networks, settings)
    steps = fields["steps"] if make_step else 0
    choice = LengthChoice(fields["length_quantile"], fields["lengthening"])
    return Pass(LatentPass(networks[MODEL], make_step if steps else None, steps, choice, scored), steps=steps)
