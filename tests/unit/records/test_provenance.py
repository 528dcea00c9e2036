"""A record says what made an artefact, and by which code."""

import hashlib
import json
import os
import re

import torch

from workflow_src.records import provenance as module
from workflow_src.records.provenance import provenance
from workflow_src.registry import LoadedPlugin
from workflow_src.spec import Plugin


def test_the_code_is_identified_whatever_editors_leave_beside_it(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "types.py").write_text("a = 1\n")
    monkeypatch.setattr(module, "PACKAGE", package)
    digest = module.code_digest()
    (package / ".#types.py").symlink_to("nobody@nowhere.1")
    assert module.code_digest() == digest
    (package / "types.py").write_text("a = 2\n")
    assert module.code_digest() != digest


def test_the_code_of_plug_ins_is_part_of_the_code(monkeypatch):
    alone = module.code_digest()
    digests = []
    for digest in ("a", "b"):
        loaded = LoadedPlugin(Plugin("other", "1.2"), "other_package", digest)
        monkeypatch.setattr(module, "plugins", lambda loaded=loaded: (loaded,))
        digests.append(module.code_digest())
    assert len({alone, *digests}) == 3


def test_provenance_says_what_made_an_artefact(tmp_path):
    (tmp_path / "in.txt").write_text("abc")
    record = provenance({"a": 1}, {"text": tmp_path / "in.txt"}, gpu="none")
    assert record["settings"] == {"a": 1} and record["gpu"] == "none"
    digest = hashlib.sha256(b"abc").hexdigest()
    assert record["inputs"] == {"text": {"path": str(tmp_path / "in.txt"), "sha256": digest}}
    # PyTorch's own word for its version may name its CUDA too.
    assert record["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert {"python", "sacrebleu"} <= record["versions"].keys()
    assert record["hardware"]["cores"] == os.cpu_count() and record["hardware"]["processor"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["created"])
    assert record["commit"] is None or re.fullmatch("[0-9a-f]{40}(-modified)?", record["commit"])
    json.dumps(record)
