"""CTranslate2 with our weights: the same tokens and scores as our own search, for every kind of model it can hold."""

import pytest
import torch
from miniatures import beam_search, greedy, nat
from refusals import fields_of

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.batches import search_all, search_rows
from workflow_src.engines import ctranslate2, ctranslate2_spec
from workflow_src.engines.choose import int8_is_safe
from workflow_src.engines.ctranslate2_spec import write_model
from workflow_src.engines.session import Request
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.families.transformer import TransformerConfig
from workflow_src.families.transformer.model import Transformer
from workflow_src.types import BOS, PAD

pytest.importorskip("ctranslate2", reason="needs the extra fast")

SOURCE, TARGET = 23, 21
MODEL = {"dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.0, "max_positions": 40}
KINDS = {"joint pre-norm": (True, "pre"), "separate pre-norm": (False, "pre"), "joint post-norm": (True, "post")}


def sentences(count: int, generator: torch.Generator, longest: int = 11) -> list[list[int]]:
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(4, SOURCE, (length,), generator=generator).tolist() for length in lengths]


def taught(joint: bool, norm: str, updates: int = 90) -> Transformer:
    """A small model with a deep encoder after a few updates on a substitution cipher: certain of some words only."""
    torch.manual_seed(0)
    size = SOURCE if joint else TARGET
    config = TransformerConfig(**MODEL, norm=norm, encoder_layers=3, decoder_layers=1)
    model = Transformer(config, SOURCE, size, joint)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3 if norm == "pre" else 3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(updates):
        source = sentences(48, generator)
        target = pad([[4 + (3 * word) % (size - 4) for word in row] for row in source], eos=False)
        loss = -model.log_probabilities(pad(source, eos=True), target).sum() / (target != PAD).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        # In a trained model, symbols that are never output have a probability close to 0.
        model.output_bias[[PAD, BOS]] = -30.0
    return model.eval()


def pieces(model: Transformer) -> dict[str, list[str]]:
    sizes = {"source": model.source_embedding.weight.size(0), "target": model.target_embedding.weight.size(0)}
    return {side: [f"▁{i}" for i in range(size)] for side, size in sizes.items()}


def engine_of(model: Transformer, folder, **options) -> ctranslate2.CTranslate2Session:
    write_model(model, pieces(model), folder)
    return ctranslate2.CTranslate2Session(folder, pieces(model), model.config.max_positions, **options)


def searched(engine, sources, beam=1, length_penalty=1.0, batch=64, scored=True, threads=1, **settings):
    search = registry.searches()["greedy" if beam == 1 else "beam"]
    sizes: dict = {} if beam == 1 else {"beam": beam, "length_penalty": length_penalty}
    request = Request(
        search.settings(**{"max_length_ratio": 2.0} | sizes | settings), batch=batch, return_scores=scored
    )
    return search_rows(lambda rows: engine.search(rows, request), sources, batch, threads=threads)


def cut_of(hypotheses) -> set[int]:
    return {row for row, is_cut in enumerate(hypotheses.cut) if is_cut}


def own(model: Transformer, sources, beam, penalty=1.0, ratio=2.0):
    def search(source):
        return greedy(model, source, ratio) if beam == 1 else beam_search(model, source, beam, penalty, ratio)

    return search_all(search, sources, 64, torch.device("cpu"))


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    model = taught(*KINDS[request.param])
    return model, engine_of(model, tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """An untrained model, and an engine of it with two workers."""
    model = taught(True, "pre", updates=0)
    return model, engine_of(model, tmp_path_factory.mktemp("quick"), threads=2)


def test_tokens_and_scores_are_ours(exported):
    model, engine = exported
    sources = sentences(200, torch.Generator().manual_seed(2))
    for beam, penalty in ((1, 1.0), (4, 1.0), (4, 0.0), (3, 0.6)):
        hypotheses, ours = searched(engine, sources, beam, penalty), own(model, sources, beam, penalty)
        cut = cut_of(hypotheses)
        uncut = [i for i in range(200) if i not in cut]
        # The model ends nearly all of its sentences itself, in different words, so that the comparison is meaningful.
        assert len(uncut) > 188 and len(set(map(tuple, ours.tokens))) > 120
        # Greedy search has nothing to choose where a limit cuts.
        compared = range(200) if beam == 1 else uncut
        assert [hypotheses.tokens[i] for i in compared] == [ours.tokens[i] for i in compared]
        assert [hypotheses.scores[i] for i in uncut] == pytest.approx([ours.scores[i] for i in uncut], abs=1e-4)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0, 2.0])
def test_a_beam_of_one_has_our_scores_too(exported, penalty):
    model, engine = exported
    sources = sentences(40, torch.Generator().manual_seed(6))
    settings = registry.searches()["beam"].settings(beam=1, length_penalty=penalty)
    hypotheses = engine.search(sources, Request(settings, return_scores=True))
    ours = beam_search(model, pad(sources, eos=True), 1, penalty)
    uncut = [i for i in range(40) if i not in cut_of(hypotheses)]
    assert len(uncut) > 30 and hypotheses.tokens == ours.tokens
    assert [hypotheses.scores[i] for i in uncut] == pytest.approx([ours.scores[i] for i in uncut], abs=1e-4)


def test_batches_and_order_change_nothing(exported):
    _, engine = exported
    sources = [[], *sentences(30, torch.Generator().manual_seed(3)), []]
    batched = searched(engine, sources, 4, batch=64)
    assert batched.tokens[0] == batched.tokens[-1] == [] and batched.scores[0] == 0
    for batch, threads in ((1, 1), (7, 1), (7, 3)):
        assert searched(engine, sources, 4, batch=batch, threads=threads).tokens == batched.tokens
    assert searched(engine, sources[::-1], 4).tokens == batched.tokens[::-1]
    assert searched(engine, sources, 4, scored=False).scores == [0.0] * len(sources)


def test_limits_are_ours_whoever_shares_a_batch(quick):
    model, engine = quick
    sources = sentences(40, torch.Generator().manual_seed(4))
    # Of a model that never ends a sentence, our greedy search is cut at its own limit, sentence by sentence.
    with torch.no_grad():
        model.output_bias[2] = -20.0
    # The last but one is a whole number in single precision.
    for ratio in (1e-9, 0.5, 9.0, 0.99999999, 1e308):
        hypotheses, ours = searched(engine, sources, 1, max_length_ratio=ratio), own(model, sources, 1, ratio=ratio)
        assert max(map(len, ours.tokens)) <= MODEL["max_positions"] - 1
        assert len(cut_of(hypotheses)) in (0, 40)
        if cut_of(hypotheses):
            assert [len(tokens) for tokens in hypotheses.tokens] == [len(tokens) for tokens in ours.tokens]


def test_int8_is_another_computation_of_the_same_model(exported, tmp_path):
    model, engine = exported
    coarse = engine_of(model, tmp_path, compute_type="int8")
    sources = sentences(100, torch.Generator().manual_seed(5))
    exact, rough = searched(engine, sources), searched(coarse, sources)
    assert exact.scores != rough.scores
    if not int8_is_safe():
        pytest.skip("this processor lacks VNNI instructions: 8-bit products may overflow")
    assert sum(a == b for a, b in zip(exact.tokens, rough.tokens, strict=True)) > 80


def test_pytorch_keeps_its_threads_beside_the_library(quick, tmp_path):
    model, _ = quick
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        searched(engine_of(model, tmp_path), sentences(3, torch.Generator().manual_seed(5)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_cannot_be_is_said_in_one_sentence(quick, tmp_path, monkeypatch):
    model, _ = quick
    with pytest.raises(ConfigError) as refused:
        ctranslate2.CTranslate2Session(tmp_path, pieces(model), 40, compute_type="int4")
    fields = {"setting": "precision", "value": "int4", "allowed": ("float16", "float32", "int8")}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ConfigError) as refused:
        ctranslate2.CTranslate2Session(tmp_path, pieces(model), 40, compute_type="float16")
    fields = {"setting": "precision", "value": "float16", "mentions": ("cpu",)}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ArtifactError) as refused:
        ctranslate2.CTranslate2Session(tmp_path, pieces(model), 40)
    assert refused.value.path == str(tmp_path)
    short = pieces(model) | {"target": pieces(model)["target"][:-1]}
    with pytest.raises(InputError) as refused:
        write_model(model, short, tmp_path)
    fields = {"subject": "the target vocabulary", "mentions": (f" {SOURCE - 1} ",)}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(InputError, match=r"^Linear"):
        write_model(torch.nn.Linear(2, 2), {}, tmp_path)
    # Its networks have embeddings and an output bias, too.
    with pytest.raises(InputError, match=r"^NonAutoregressiveModel"):
        write_model(nat(), {}, tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(ConfigError) as refused:
        ctranslate2_spec.library()
    fields = {"setting": "engine", "value": "ctranslate2", "hint": ctranslate2_spec.FIX}
    assert fields_of(refused.value, fields) == fields
