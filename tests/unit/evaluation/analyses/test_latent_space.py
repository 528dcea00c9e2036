"""Maps of a latent space: every cell and arrow against the model at that one point."""

import miniatures
import pytest
import torch
from miniatures import decode, search, translate
from refusals import refuses

from workflow_src.evaluation.analyses.latent_space import measure as latent_space
from workflow_src.types import EOS

SOURCE, REFERENCE = [4, 7, 5, EOS], [6, 9, 4]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def models():
    return miniatures.lvm(latent_dim=2), miniatures.refiner("score", latent_dim=2)


def searches(model, refiner):
    """Steps of delta and of the network."""
    return {"delta": search("delta", model, steps=1), "score": search("score", model, 1.0, refiner, steps=1)}


@pytest.fixture(scope="module")
def mapped(models):
    return latent_space.map_sentence(
        *models, searches(*models), SOURCE, REFERENCE, steps=3, resolution=5, arrows=3, device=CPU
    )


def test_a_lattice_has_the_centres_of_cells_row_by_row_from_below():
    points = latent_space.lattice(torch.tensor([1.0, -1.0]), 2.0, 4)
    assert points.shape == (16, 2)
    assert points[:5].tolist() == [[-0.5, -2.5], [0.5, -2.5], [1.5, -2.5], [2.5, -2.5], [-0.5, -1.5]]


def test_a_window_shows_all_points_and_the_priors_deviation():
    points = torch.tensor([[0.0, 0.0], [4.0, 1.0], [1.0, -1.0]])
    centre, half = latent_space.window(points, torch.tensor([0.1, 0.2]))
    assert centre.tolist() == [2.0, 0.0]
    assert 2 < half < 3 and bool(((points - centre).abs() < half).all())
    assert latent_space.window(points, torch.tensor([7.0, 0.2]))[1] == 17.5


def test_every_cell_and_arrow_is_what_the_models_say_there(models, mapped, monkeypatch):
    model, refiner = models
    monkeypatch.setattr(latent_space, "CHUNK", 7)
    repeated = latent_space.map_sentence(
        *models, searches(*models), SOURCE, REFERENCE, steps=3, resolution=5, arrows=3, device=CPU
    )
    assert [panel["regions"] for panel in repeated["panels"]] == [panel["regions"] for panel in mapped["panels"]]
    memory = model.encode(torch.tensor([SOURCE]))
    mask = torch.ones((1, 3), dtype=torch.bool)
    with torch.no_grad():
        mean, _ = model.prior(memory, mask)
        for position, panel in enumerate(mapped["panels"]):
            x, y = (c + panel["half"] * 0.8 for c in panel["centre"])  # the cell above and to the right
            z = mean.clone()
            z[0, position] = torch.tensor([x, y], dtype=z.dtype)
            assert (
                panel["regions"][-1][-1]
                == int(decode(model, memory, z, mask)[0, position, EOS + 1 :].argmax()) + EOS + 1
            )
            x, y, dx, dy = panel["arrows"][5]  # the middle row's last
            z[0, position] = torch.tensor([x, y], dtype=z.dtype)
            assert [dx, dy] == pytest.approx(refiner.direction(memory, z, mask)[0, position].tolist())
            assert [len(row) for row in panel["regions"]] == [5] * 5 and len(panel["arrows"]) == 9
            assert panel["prior"] == pytest.approx(mean[0, position].tolist())
            assert panel["paths"]["delta"][0] == panel["paths"]["score"][0] == panel["prior"]
    assert mapped["searches"] == ["delta", "score"]


def test_paths_and_outputs_are_those_of_the_searches(models, mapped):
    model, refiner = models
    for name in ("delta", "score"):
        hypotheses = translate(model, torch.tensor([SOURCE]), name, 3, 1.0, refiner, lengths=torch.tensor([3]))
        assert mapped["outputs"][name] == hypotheses.tokens[0]
    memory = model.encode(torch.tensor([SOURCE]))
    mask = torch.ones((1, 3), dtype=torch.bool)
    posterior, _ = model.posterior(memory, torch.tensor([REFERENCE]), mask)
    assert [panel["posterior"] for panel in mapped["panels"]] == [
        pytest.approx(point) for point in posterior[0].tolist()
    ]
    assert all(len(panel["paths"]["score"]) == len(panel["paths"]["delta"]) == 4 for panel in mapped["panels"])


def test_an_end_symbol_has_a_panel_of_its_own_and_outputs_keep_theirs():
    """In a model that knows of end symbols, and in one that reads an explicit one as any other word."""
    with_end, without_end = miniatures.ending(latent_dim=2), miniatures.lvm(latent_dim=2)
    without_end.load_state_dict(with_end.state_dict())
    refiner, words = miniatures.refiner("score", latent_dim=2), {"resolution": 5, "arrows": 3, "device": CPU}
    maps = latent_space.map_sentence(with_end, refiner, searches(with_end, refiner), SOURCE, REFERENCE, 0, **words)
    other_maps = latent_space.map_sentence(
        without_end, refiner, searches(without_end, refiner), SOURCE, [*REFERENCE, EOS], 0, **words
    )
    assert len(maps["panels"]) == 4 and (maps["end_symbol"], other_maps["end_symbol"]) == (EOS, None)
    ends = 0
    for panel, other in zip(maps["panels"], other_maps["panels"], strict=True):
        assert {key: panel[key] for key in panel if key != "regions"} == {
            key: other[key] for key in other if key != "regions"
        }
        # Where the one puts out an end symbol, the other takes the next best word.
        cells = [
            pair for rows in zip(panel["regions"], other["regions"], strict=True) for pair in zip(*rows, strict=True)
        ]
        assert all(one == other or one == EOS for one, other in cells)
        ends += sum(one == EOS for one, _ in cells)
    assert 0 < ends < 100
    maps = latent_space.map_sentence(with_end, refiner, searches(with_end, refiner), SOURCE, REFERENCE, 2, **words)
    for name in ("delta", "score"):
        translated = translate(with_end, torch.tensor([SOURCE]), name, 2, 1.0, refiner, lengths=torch.tensor([3]))
        assert len(maps["outputs"][name]) == 4
        assert [token for token in maps["outputs"][name] if token != EOS] == translated.tokens[0]


def test_the_sentence_shown_is_one_that_refinement_changes_most(models):
    model, refiner = models
    generator = torch.Generator().manual_seed(3)
    sources = [[*torch.randint(3, 13, (3,), generator=generator).tolist(), EOS] for _ in range(12)]
    lengths = [int(model.length.predict(model.encode(torch.tensor([source])))) for source in sources]
    references = [[5] * length for length in lengths]
    # A long one is left out, and right lengths are preferred, whatever the others change.
    references[0], references[1] = [5] * (lengths[0] + 1), [5] * 40
    chosen = latent_space.choose(model, refiner, sources, references, 30, 2, CPU)
    changed = [latent_space.changes(model, refiner, s, n, 2, CPU) for s, n in zip(sources, lengths, strict=True)]
    assert chosen == max(range(2, 12), key=lambda i: (changed[i], -i))
    assert changed[chosen] > 0
    # Where no length is right, others do.
    assert latent_space.choose(model, refiner, sources[:1], references[:1], 30, 2, CPU) == 0


def test_a_sentence_that_changes_is_preferred_to_one_of_the_right_length(models):
    model, _ = models
    sources = [[4, 7, 5, EOS], [8, 3, 9, EOS]]
    lengths = [int(model.length.predict(model.encode(torch.tensor([source])))) for source in sources]
    references = [[5] * lengths[0], [5] * (lengths[1] + 2)]
    moved = {lengths[0]: 0, lengths[1] + 2: 1}
    assert len(moved) == 2

    class Mover:
        """Moves the sentences of one length far away, and no others."""

        def direction(self, memory, z, target_mask):
            return moved[target_mask.size(1)] * torch.linspace(-60, 60, z.numel(), dtype=z.dtype).view_as(z)

    assert latent_space.changes(model, Mover(), sources[1], lengths[1] + 2, 1, CPU) > 0
    assert latent_space.choose(model, Mover(), sources, references, 30, 1, CPU) == 1


def test_what_cannot_be_drawn_is_refused_by_its_setting(models):
    with refuses(setting="analyses.latent_space.positions", value=2):
        latent_space.choose(*models, [SOURCE], [REFERENCE], 2, 1, CPU)
    wide = miniatures.lvm(), miniatures.refiner("score")
    with refuses(setting="model.latent_dim", value=3, allowed=("2",)):
        latent_space.map_sentence(*wide, searches(*wide), SOURCE, REFERENCE, 1, 5, 3, CPU)
