"""Operations of an update and of a search, counted by PyTorch while networks of the real sizes compute without weights.

Matrix products are counted and left out, so that a count takes a fraction of a second and no memory for weights. All
other values are there, because losses and searches read masks, lengths and ids.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from workflow_src.data.batching import pad
from workflow_src.decoding.ranking import Scoring
from workflow_src.decoding.search import open_search
from workflow_src.families.build import build, build_objective
from workflow_src.nn.length import LengthClasses
from workflow_src.runtime.device import keep_memory
from workflow_src.spec import BASE, EOS, MODEL, Frozen, SearchSettings
from workflow_src.types import Batch, TrainingContext

aten = torch.ops.aten
PRODUCTS, SUMS_OF_PRODUCTS = (aten.mm, aten.bmm), (aten.addmm, aten.baddbmm)
WORD = EOS + 2
# Subwords that searches from left to right may put out beyond `max_length_ratio` times the source's.
ADDED = 10
# Sentences of a batch, and quarters of a training, that operations of an update are means of.
SENTENCES, QUARTERS = 8, (1, 3)
# Deviation of the scores of words in a search: few words of a position are probable, as in trained networks.
SPREAD = 3.0
# Scores of the end symbol, and of lengths that differ from the source's by one: outputs are as long as sources.
NEVER, FARTHER = -1000.0, -100.0


class ProductsLeftOut(TorchDispatchMode):
    """Counts operations, as `torch.utils.flop_counter` does, and computes no matrix products.

    These are zeros, and the bias that is added; where there is a `vocabulary`, those of its width are random scores of
    words, and the end symbol's is the lowest.
    """

    def __init__(self, vocabulary: int | None = None):
        super().__init__()
        self.vocabulary, self.operations = vocabulary, 0
        self.generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator, kwargs = func._overloadpacket, kwargs or {}
        if operator in PRODUCTS:
            result = self._product(*args)
        elif operator in SUMS_OF_PRODUCTS:
            result = args[0] + self._product(*args[1:])
        else:
            result = func(*args, **kwargs)
        if operator in flop_registry:
            self.operations += flop_registry[operator](*args, **kwargs, out_val=result)
        return result

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        result = left.new_zeros(*left.shape[:-1], right.size(-1))
        if result.size(-1) == self.vocabulary:
            result.normal_(0, SPREAD, generator=self.generator)
            result[..., EOS] = NEVER
        return result


@contextlib.contextmanager
def counted(vocabulary: int | None = None) -> Iterator[ProductsLeftOut]:
    """Count the operations of what is computed inside; `vocabulary` as in `ProductsLeftOut`."""
    threads = torch.get_num_threads()
    # What is left to compute is small: threads would wait for each other.
    torch.set_num_threads(1)
    # Attention and recurrent layers become products too, in place of kernels of their own.
    plain = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    try:
        with plain[0], plain[1], ProductsLeftOut(vocabulary) as products:
            yield products
    finally:
        torch.set_num_threads(threads)


def without_weights(family: str, model: Frozen | dict[str, Any], sizes: dict[str, Any]) -> nn.Module:
    """A network whose weights are zeros without memory, and which predicts lengths near the source's; `sizes` as in
    `families.build.build`."""
    keep_memory()
    with torch.device("meta"):
        network = build(family, model, sizes)
    network.to_empty(device="cpu")
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
    for head in network.modules():
        if isinstance(head, LengthClasses):
            differences = torch.arange(2 * head.limit + 1) - head.limit
            *_, bias = (parameter for parameter in head.parameters() if parameter.shape == differences.shape)
            bias.data = FARTHER * differences.abs()
    return network


def words(length: int) -> list[int]:
    return [WORD] * length


def update(networks: Mapping[str, nn.Module], family: str, objective: Frozen | dict[str, Any], length: int) -> float:
    """Operations of an update for a position of the target: `length` subwords and an end symbol on both sides.

    It is a mean, because objectives draw what they compute, such as words to mask, and change while a training goes on.

    `networks` has that of the family and, by their roles, the frozen ones that the training works with; `objective` are
    its settings.
    """
    model, loss = networks[MODEL], build_objective(family, objective)
    sentences = [words(length)] * SENTENCES
    batch = Batch(pad(sentences, eos=True), pad(sentences, eos=False), tuple(range(SENTENCES)))
    others = {role: network.eval() for role, network in networks.items() if role != MODEL}
    frozen = others.pop(BASE, None)
    with counted() as products:
        for step in QUARTERS:
            context = TrainingContext(step, 4, step, frozen, others)
            loss(model.train(), batch, context).loss.backward()
    model.zero_grad(set_to_none=True)
    return products.operations / (len(QUARTERS) * SENTENCES * (length + 1))


def search(networks: Mapping[str, nn.Module], settings: SearchSettings, vocabulary: int, length: int) -> float:
    """Operations of decoding a sentence of `length` subwords into as many, by the search alone, without a rescorer.

    `networks` by role; `vocabulary` is the width of their outputs.
    """
    if "max_length_ratio" in type(settings).model_fields:
        # The end symbol is never put out. Half a subword more, since the limit is rounded down.
        settings = settings.model_copy(update={"max_length_ratio": (length + 0.5 - ADDED) / length})
    module = open_search({role: network.eval() for role, network in networks.items()}, settings)
    with counted(vocabulary) as products:
        module.translate(pad([words(length)], eos=True))
    return float(products.operations)


def scoring(rescorer: Any, length: int, outputs: int = 1) -> float:
    """Operations of scoring `outputs` of a sentence; all have `length` subwords."""
    rows, target = torch.zeros(outputs, dtype=torch.long), pad([words(length)] * outputs, eos=False)
    with torch.no_grad(), counted() as products:
        Scoring(rescorer.eval())(pad([words(length)], eos=True), rows, target)
    return float(products.operations)
