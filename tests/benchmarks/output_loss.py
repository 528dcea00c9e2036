"""The output layer's cross-entropy: `losses/common.py` against PyTorch's `linear_cross_entropy`. A benchmark.

    python tests/benchmarks/output_loss.py

Forward and backward of `--tokens` positions with label smoothing 0.1 and a bias, one thread, milliseconds of CPU time.
Implementations take turns; a figure is the median over rounds. It prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.losses.common import smoothed_cross_entropy

SIZES = (
    (128, 4000, torch.float32),
    (128, 4000, torch.bfloat16),
    (512, 32000, torch.float32),
    (512, 32000, torch.bfloat16),
)
SMOOTHING = 0.1


def ours(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    return smoothed_cross_entropy(hidden, weight, bias, labels, SMOOTHING)[0]


def library(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    return F.linear_cross_entropy(hidden, weight, labels, linear_bias=bias, label_smoothing=SMOOTHING, reduction="sum")


def milliseconds(loss: Callable[..., Tensor], dtype: torch.dtype, tensors: tuple[Tensor, ...]) -> float:
    """CPU time of forward and backward."""
    for tensor in tensors[:3]:
        tensor.grad = None
    began = time.thread_time()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        value = loss(*tensors)
    value.backward()
    return 1000 * (time.thread_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| width, classes, precision | ours | `linear_cross_entropy` | ratio |\n|---|---|---|---|")
    for width, classes, dtype in SIZES:
        hidden = torch.randn(arguments.tokens, width, requires_grad=True)
        weight = (torch.randn(classes, width) / width**0.5).requires_grad_()
        bias = torch.zeros(classes, requires_grad=True)
        labels = torch.randint(classes, (arguments.tokens,))
        times: dict[Callable[..., Tensor], list[float]] = {ours: [], library: []}
        for _ in range(arguments.rounds + 1):
            for loss, durations in times.items():
                durations.append(milliseconds(loss, dtype, (hidden, weight, bias, labels)))
        # The first round warms up.
        mine, other = (statistics.median(durations[1:]) for durations in times.values())
        name = str(dtype).removeprefix("torch.")
        print(f"| {width}, {classes:,}, {name} | {mine:,.0f} ms | {other:,.0f} ms | {other / mine:.2f} |", flush=True)


if __name__ == "__main__":
    main()
