"""Command lines of jobs: options that name several files."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflow_src.serving.folders import bundles
from workflow_src.training.systems import named_files


def test_words_name_files_and_only_the_first_sign_divides():
    assert named_files(["critic=a/b=c.safetensors", "rescorer=d"]) == {
        "critic": Path("a/b=c.safetensors"),
        "rescorer": Path("d"),
    }
    assert named_files([]) == {} and bundles(["teacher=x/bundle"]) == {"teacher": Path("x/bundle")}


@pytest.mark.parametrize("word", ["critic", "=file", "critic=", "="])
def test_a_word_of_another_form_is_told_with_the_option_and_the_form(word):
    with pytest.raises(ValueError) as caught:
        named_files(["rescorer=d", word])
    assert str(caught.value) == f'--roles has "{word}"; write ROLE=FILE.'
    with pytest.raises(ValueError) as caught:
        bundles([word])
    assert str(caught.value) == f'--bundles has "{word}"; write SYSTEM=FOLDER.'
