"""Paths of latents: by hand, against torch.distributions sentence by sentence, and whatever they are batched with."""

import dataclasses

import miniatures
import pytest
import torch
from miniatures import decode, search
from torch.distributions import Normal

from workflow_src.evaluation.analyses.latent_paths import measure as latent_paths
from workflow_src.types import EOS

SOURCES = [[4, 7, 5], [6, 8, 9, 10, 11, 4], [5], [12, 3, 3, 4]]
TARGETS = [[4, 5], [3, 9, 8, 4, 4, 6, 5], [7, 7, 3], [6]]
CPU = torch.device("cpu")


def close(one, other):
    for a, b in zip(one, other, strict=True):
        assert [dataclasses.asdict(place) for place in a] == [
            {name: value if value is None else pytest.approx(value, abs=1e-9) for name, value in fields.items()}
            for fields in map(dataclasses.asdict, b)
        ]


def test_points_are_means_over_the_sentences_that_have_a_figure():
    place = latent_paths.Place(1.0, 2.0, 3.0, -4.0, -5.0, None, True)
    other = dataclasses.replace(place, from_start=2.0, cosine=0.5, changed=False)
    figures = latent_paths.point(4, [place, place, other])
    assert (figures["steps"], figures["moving"], figures["cosine"], figures["cosine_error"]) == (4, 1, 0.5, 0.0)
    assert (figures["from_start"], figures["changed"]) == (pytest.approx(4 / 3), pytest.approx(2 / 3))
    # sqrt(variance 1/3 / 3 sentences)
    assert figures["from_start_error"] == figures["changed_error"] == pytest.approx(1 / 3)
    assert latent_paths.point(4, [place])["cosine"] is None and latent_paths.point(4, [place])["cosine_error"] is None


KINDS = {
    "lvm": lambda: miniatures.lvm(seed=4),
    "ending": miniatures.ending,
    "lanmt": lambda: miniatures.lanmt(seed=4),
    "nat": lambda: miniatures.nat(seed=4, latent="vae", latent_dim=3, posterior_layers=1),
}


def output_of(kind, model, memory, z):
    """The output of latents z of one sentence, as a posterior reads it."""
    if kind in ("lvm", "ending"):
        first = EOS if kind == "ending" else EOS + 1
        return decode(model, memory, z, torch.ones(z.shape[:2], dtype=torch.bool))[..., first:].argmax(-1) + first
    positions = {"z": z} if kind == "nat" else {"z": z, "positions": model.length.predict(memory, z=z) + 1}
    hidden, mask = model.hidden(memory, **positions)
    return model.output(model.logits(hidden).argmax(-1), mask)


def alone(kind, followed, source, target, steps):
    """The path of one sentence, figure by figure."""
    model = followed.model
    memory = model.encode(torch.tensor([[*source, EOS]]))
    target = torch.tensor([[*target, EOS]] if kind == "ending" else [target])
    mask = torch.ones_like(target, dtype=torch.bool) if kind in ("lvm", "ending") else memory.mask
    prior, reference = Normal(*model.prior(memory, mask)), model.posterior(memory, target, mask)[0]
    path, rows, before = [prior.mean], [], None
    for number in range(steps + 1):
        z, tokens = path[-1], output_of(kind, model, memory, path[-1])
        words = [i for i in tokens[0].tolist() if i > EOS]
        row = {
            "from_start": (z - path[0]).norm(dim=-1).mean(),
            "from_reference": (z - reference).norm(dim=-1).mean(),
            "log_prior": prior.log_prob(z).sum(-1).mean(),
            "log_posterior": Normal(*model.posterior(memory, tokens, mask)).log_prob(z).sum(-1).mean(),
        }
        if number:
            moved = (z - path[-2]).flatten()
            words_before = output_of(kind, model, memory, path[-2])
            goal = (model.posterior(memory, words_before, mask)[0] - path[-2]).flatten()
            row["step"] = (z - path[-2]).norm(dim=-1).mean()
            row["changed"] = words != before
            if moved.norm() > 1e-9 and goal.norm() > 1e-9:
                row["cosine"] = moved @ goal / (moved.norm() * goal.norm())
        before = words
        rows.append(row)
        path.append(followed.moved(memory, z, mask))
    return rows


@pytest.mark.parametrize("name", ["delta", "score", "energy"])
@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_those_of_every_sentence_by_itself(kind, name):
    model = KINDS[kind]()
    refiner = None if name == "delta" else miniatures.refiner(name, seed=3)
    followed = search(name, model, 0.7, refiner, steps=3)
    paths = latent_paths.follow(followed, SOURCES, TARGETS, 3, 64, CPU)
    for source, target, places in zip(SOURCES, TARGETS, paths, strict=True):
        with torch.no_grad():
            expected = alone(kind, followed, source, target, 3)
        for place, expected_row in zip(places, expected, strict=True):
            for figure, value in dataclasses.asdict(place).items():
                expected_value = expected_row.get(figure)
                close_to = None if expected_value is None else pytest.approx(float(expected_value), abs=1e-8)
                assert value == close_to, figure
    if name == "delta":
        # A delta step goes where a delta step goes.
        cosines = [place.cosine for places in paths for place in places if place.cosine is not None]
        assert cosines == pytest.approx([1.0] * len(cosines)) and len(cosines) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_neither_batches_nor_padding_change_a_figure(kind):
    model, refiner = KINDS[kind](), miniatures.refiner("score", seed=3)
    followed = search("score", model, 0.7, refiner, steps=2)
    together = latent_paths.follow(followed, SOURCES, TARGETS, 2, 64, CPU)
    for size in (1, 2, 3):
        close(latent_paths.follow(followed, SOURCES, TARGETS, 2, size, CPU), together)
    batch = miniatures.pairs([4, 1, 6], [3, 2, 5])
    wider = miniatures.padded(batch)
    plain, padded = (latent_paths.followed(followed, 2, one.source, one.target) for one in (batch, wider))
    close(padded, plain)
