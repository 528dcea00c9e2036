"""IRSTLM, a program for n-gram language models: perplexities by it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

PROGRAM = Path("/usr/lib/irstlm/bin/compile-lm")
installed = pytest.mark.skipif(not PROGRAM.is_file(), reason="irstlm is not installed")


def perplexity(model: Path, sentences: Iterable[Sequence[str]]) -> float:
    """The perplexity, to two decimals, of sentences of subwords by an ARPA file."""
    lines = [" ".join(["<s>", *sentence, "</s>"]) for sentence in sentences]
    text = model.with_suffix(".txt")
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [str(PROGRAM), model.name, f"--eval={text.name}"]
    environment = {"IRSTLM": str(PROGRAM.parents[1])}
    process = subprocess.run(words, cwd=model.parent, env=environment, capture_output=True, text=True)
    (figure,) = re.findall(r" PP=([\d.]+)", process.stdout)
    return float(figure)
