"""The report's section on analyses: figures' geometry, tables, captions, escaping, absent parts."""

import json
import re

import analysed
import markupsafe
import numpy as np
import pytest
import reports
from titles import BEAM_4, DELTA, DELTA_2, SCORE, SCORE_1

from workflow_src.errors import ArtifactError
from workflow_src.evaluation import charts
from workflow_src.evaluation.document import Document, Fold, Picture, Section, Table
from workflow_src.evaluation.report import analyses
from workflow_src.evaluation.report.html import page
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN

MANIFEST = reports.manifest()


# Analyses that are drawn; of the others there are tables or examples alone.
DRAWN = [name for name in analysed.EVERY if name not in ("energies", "lengths", "samples")]


def _document(contents, manifest=MANIFEST):
    section = Section("Analyses", analyses.blocks(contents, manifest))
    return Document("Analyses", [section], languages=("de", "en"))


def _page(contents, manifest=MANIFEST):
    document = _document(contents, manifest)
    pictures = {picture.name: markupsafe.Markup(f"<svg>{picture.name}</svg>") for picture in document.pictures()}
    return page(document, pictures)


def _drawn(contents):
    """Figures by name."""
    return {picture.name: picture.chart for picture in _document(contents).pictures()}


def _words(caption):
    return " ".join([caption.line, *(text for _, text in caption.nonempty_notes)])


def _flat(blocks):
    for block in blocks:
        yield from _flat(block.blocks) if isinstance(block, Fold) else [block]


def _tables(contents, manifest=MANIFEST):
    """Tables by the name of the analysis, with a number behind it from the second on."""
    tables = {}
    for name, content in contents.items():
        own = [block for block in _flat(analyses.blocks({name: content}, manifest)) if isinstance(block, Table)]
        tables |= {f"{name} {number}" if number else name: table for number, table in enumerate(own)}
    return tables


def _captions(contents, manifest=MANIFEST):
    """Captions in words: of the picture of an analysis, or else of its tables and examples."""
    captions = {}
    for name, content in contents.items():
        own = [block for block in _flat(analyses.blocks({name: content}, manifest)) if hasattr(block, "caption")]
        pictures = [block for block in own if isinstance(block, Picture)]
        for number, block in enumerate(pictures or own):
            captions[f"{name} {number}" if number else name] = _words(block.caption)
    return captions


def test_tables_say_the_figures():
    contents = analysed.contents_of("marginal", "tokens", "lengths", "latent_paths")
    captions, tables = _captions(contents), _tables(contents)
    marginal, tokens = tables["marginal"].rows, tables["tokens"].rows
    # The prior mean, the start of both procedures, is given once.
    assert [row[:2] for row in marginal] == [
        [PRIOR_MEAN.title, "0"],
        [DELTA, "1"],
        [DELTA, "4"],
        [SCORE, "1"],
        [SCORE, "4"],
    ]
    assert marginal[0][2:] == ["−7.00 ± 0.00", "", "", "", "80"]
    assert marginal[2][2:] == ["−3.00 ± 0.40", "+0.40 ± 0.40", "40", "40", "80"]
    assert tokens[1] == [DELTA, "2", "2.50 ± 0.20", "50", "1.50", "75 ± 5"]
    assert tables["lengths"].rows == [["lvm", "32.0", "74.0", "85.0", "85.2", "−0.71"]]
    assert tables["lengths"].heads[4] == "among the 3 likeliest, %"
    assert tables["lengths 1"].rows[1] == [SCORE_1, "36.5", "38.8", "43.8"]
    assert "500 samples" in captions["marginal"] and "1,200 sentences of dev" in captions["marginal"]
    assert "with Figure 1 of Lee, Shu & Cho 2020, not their heights" in captions["marginal"]
    assert re.search("Words that [^;.]* removed", captions["lengths 1"])
    paths = tables["latent_paths"].rows
    assert paths[0] == [PRIOR_MEAN.title, "0", "0.000 ± 0.062", "", "0.000 ± 0.062", *["−1.00 ± 0.06"] * 2, "", "", ""]
    figures = [*["0.250 ± 0.062"] * 3, *["−1.50 ± 0.06"] * 2, "+0.25 ± 0.06", "90", "25 ± 6"]
    assert paths[1] == [DELTA, "1", *figures]
    # Without steps there is no direction.
    assert paths[4][-3:] == ["–", "0", "50 ± 6"]
    assert f"the first 100 sentences of dev, from the {PRIOR_MEAN.title}, z_0" in captions["latent_paths"]


def test_energies_are_of_the_references_and_of_every_row():
    table = _tables(analysed.contents_of("energies"))["energies"]
    assert table.rows == [
        ["references", "20.0 ± 1.0", "1.50", "100", "0"],
        [f"teacher, {BEAM_4}", "9.0 ± 0.5", "0.81", "98", "2"],
        [f"lvm, {DELTA_2}", "–", "–", "98", "2"],
    ]
    assert "in nats under teacher" in _words(table.caption)


def _several():
    """Under two scorers."""
    second = {"scorer": "seq2seq", "energy_per_sentence": 33.25}
    rows = [row | more for row in analysed.energies()["rows"] for more in ({}, second)]
    return analysed.read(analysed.raw("energies", rows=rows))


def test_every_scorer_has_lines_of_its_own():
    table = _tables(_several())["energies"]
    assert table.heads[:3] == ["", "under", "energy, nats a sentence"]
    assert [row[:3] for row in table.rows[2:]] == [
        [f"teacher, {BEAM_4}", "teacher", "9.0 ± 0.5"],
        [f"teacher, {BEAM_4}", "seq2seq", "33.2 ± 0.5"],
        [f"lvm, {DELTA_2}", "teacher", "–"],
        [f"lvm, {DELTA_2}", "seq2seq", "33.2 ± 0.5"],
    ]
    assert "in nats under teacher and seq2seq, the mean" in _words(table.caption)
    # Columns of the main table are under the first alone.
    (note,) = analyses.column_notes(_several().values(), "dev", MANIFEST).values()
    assert "in nats under teacher, the mean" in note
    assert not analyses.column_notes(_several().values(), "test", MANIFEST)


def test_lines_of_several_seeds_name_theirs():
    rows = analysed.energies()["rows"]
    contents = analysed.read(analysed.raw("energies", rows=[*rows[:2], rows[1] | {"seed": 2}]))
    labels = [row[0] for row in _tables(contents)["energies"].rows]
    assert labels == ["references", f"teacher, {BEAM_4}, seed 1", f"teacher, {BEAM_4}, seed 2"]


def test_the_page_numbers_escapes_and_marks():
    text = _page(analysed.contents_of(*analysed.EVERY))
    assert re.findall(r"Figure (\d+)\.</b>", text) == [str(number) for number in range(1, 8)]
    assert re.findall(r"Table (\d+)\.</b>", text) == [str(number) for number in range(1, 10)]
    assert "What the figure shows, with its errors." in text and "What the figure shows." in text
    assert "Hund &amp; &lt;i&gt;Katze&lt;/i&gt;" in text and "dog &lt;b&gt;s" in text and "Hund &lt;x&gt;" in text
    assert "a <mark>dog</mark> dog" in text and "a <mark>big</mark> dog" in text


@pytest.mark.parametrize("name", analysed.EVERY)
def test_each_stands_alone(name):
    contents = analysed.contents_of(name)
    text = _page(contents)
    assert text.count("<h3>") == 1 and "None" not in text
    assert _drawn(contents).keys() == {name} & set(DRAWN)


def test_the_panel_of_an_end_symbol_is_reported_and_drawn():
    plain = analysed.raw("latent_space")
    ended = {
        "end_symbol": 2,
        "pieces": plain["pieces"] | {"2": "</s>"},
        "panels": [*plain["panels"], plain["panels"][1]],
    }
    ended["outputs"] = {name: [*ids, 2] for name, ids in plain["outputs"].items()}
    contents = analysed.read(plain | ended)
    assert "and one for the end symbol (</s>: nothing is said)" in _captions(contents)["latent_space"]
    assert len(_drawn(contents)["latent_space"].concat) == 3


def test_without_analyses_there_are_no_blocks():
    assert analyses.blocks({}, MANIFEST) == []


def test_searches_that_share_a_name_are_distinguished(tmp_path):
    """By words in tables, and curves of one colour by their dashes."""
    raw_entry = analysed.ENTRIES[0] | {"system": "lvm-raw", "model": "lvm-raw"}
    smaller = analysed.ENTRIES[1] | {"step_size": 0.5}
    point = analysed.marginal()["rows"][1]
    entries = [*analysed.ENTRIES, smaller, raw_entry]
    rows = [point | entry | {"steps": steps} for entry in entries for steps in (0, 1)]
    contents = analysed.read(analysed.raw("marginal", rows=rows))
    names = [row[0] for row in _tables(contents)["marginal"].rows]
    assert names == [
        f"{PRIOR_MEAN.title} · lvm",
        f"{DELTA} · lvm",
        f"{SCORE} · step size 1",
        f"{SCORE} · step size 0.5",
        f"{PRIOR_MEAN.title} · lvm-raw",
        f"{DELTA} · lvm-raw",
    ]
    chart = _drawn(contents)["marginal"]
    series = chart.to_dict()["concat"][0]["data"]["values"]
    assert [row["series"] for row in series[::2]] == [names[1], names[2], names[3], names[5]]
    charts.save(chart, tmp_path, "marginal")
    lines = re.findall(
        r'"line mark"[^>]* stroke="(#\w+)"[^>]* stroke-dasharray="([^"]+)"', (tmp_path / "marginal.svg").read_text()
    )
    # Of both panels: two systems of one search, and two settings of one.
    assert len(lines) == 8 and len({colour for colour, _ in lines}) == 2 and len(set(lines)) == 4


def test_files_are_recognised_by_what_they_say(tmp_path):
    paths = []
    for name in ("samples", "marginal"):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(analysed.raw(name)))
    assert list(analyses.read(paths)) == ["marginal", "samples"]
    expected = analysed.contents_of("samples", "marginal")
    assert {name: content.model_dump() for name, content in analyses.read(paths).items()} == {
        name: content.model_dump() for name, content in expected.items()
    }
    again = tmp_path / "other-split.json"
    again.write_text(json.dumps(analysed.raw("marginal", split="test")))
    contents = analyses.read([*paths, again])
    assert list(contents) == ["marginal", "marginal-test", "samples"]
    assert "<h3>Marginal log-probability, test</h3>" in _page(contents)
    (tmp_path / "other.json").write_text('{"rows": []}')
    with pytest.raises(ArtifactError, match=r"other.json is no analysis .*; delete it"):
        analyses.read([tmp_path / "other.json"])


@pytest.mark.parametrize("name", ["marginal", "latent_space", "components", "reordering"])
def test_pictures_are_vectors_and_self_contained(name, tmp_path):
    figure = _drawn(analysed.contents_of(name))[name]
    inline = charts.save(figure, tmp_path, name).partition('<div class="live">')[0]
    assert "<image" not in inline and not re.search(r'(href|src)="(?!#)', inline)
    if name == "latent_space":
        assert "prior mean" in inline and ">dog<" in inline and ">-s<" in inline and "posterior: -s" in inline
    elif name == "components":
        assert ">lvm<" in inline and ">lvm-raw<" in inline and ">95<" in inline
    elif name == "reordering":
        assert ">one-pass<" in inline and ">lanmt<" in inline and ">$b<" in inline
        assert ">one-pass, the reference<" in inline and ">y$<" in inline
        # Of the other translation there are more subwords than slots, and lanmt has no alignments.
        assert ">one-pass, teacher<" not in inline and ">lanmt, teacher<" not in inline
    else:
        assert f">{DELTA}<" in inline and f">{SCORE}<" in inline


def titles(chart):
    spec = chart.to_dict()
    return [panel["title"] for panel in spec.get("concat", [spec])]


def test_panels_have_the_figures_of_the_table_with_their_errors():
    _, relative = _drawn(analysed.contents_of("tokens"))["tokens"].to_dict()["concat"]
    points = [(row["series"], row["x"], row["y"], row["error"]) for row in relative["data"]["values"]]
    assert points == [(name, steps, 75.0, pytest.approx(5.0)) for name in (DELTA, SCORE) for steps in (0, 2)]
    alone, _ = _drawn(analysed.contents_of("components"))["components"].to_dict()["concat"]
    shares = [row["y"] for row in alone["data"]["values"] if row["series"] == "lvm"]
    assert shares == pytest.approx([70, 29, 1])


def test_numbers_on_axes_are_written_out_once(tmp_path):
    """Ticks of steps are the steps, and percent are no powers of ten."""
    for name, steps in (("tokens", ["0", "2"]), ("components", ["1", "2", "3"])):
        chart = _drawn(analysed.contents_of(name))[name]
        inline = charts.save(chart, tmp_path, name).partition('<div class="live">')[0]
        ticks = re.findall(r">(−?[0-9.]+(?:e[^<]*)?)</text>", inline)
        assert not [tick for tick in ticks if "e" in tick]
        # Of both panels.
        assert all(ticks.count(step) >= 2 for step in steps)
        views = [panel["layer"][0] for panel in chart.to_dict()["concat"]]
        assert [view["encoding"]["x"]["axis"]["values"] for view in views] == [list(map(int, steps))] * 2


def test_panels_without_a_curve_are_left_out():
    contents = analysed.read(analysed.raw("tokens", **analysed.tokens(None)))
    assert titles(_drawn(contents)["tokens"]) == ["edit distance from L = 0, subwords a sentence"]
    # Of one step there is no direction and no length of a step to follow.
    short = analysed.raw("latent_paths")
    short["rows"] = [row for row in short["rows"] if row["steps"] < 2]
    figure_titles = titles(_drawn(analysed.read(short))["latent_paths"])
    assert (
        len(figure_titles) == 4
        and "length of step L" not in figure_titles
        and "cosine with the delta step" not in figure_titles
    )


def without_content(name):
    """An analysis without content for figures: step 0 alone, one component, no position."""
    content = analysed.raw(name)
    content["rows"] = [row for row in content.get("rows", ()) if not row.get("steps")]
    if name == "components":
        content["rows"] = [row | {"shares": [1.0], "together": [1.0]} for row in content["rows"]]
    return content | ({"example": None, "rows": []} if name == "reordering" else {})


@pytest.mark.parametrize("name", [name for name in DRAWN if name != "latent_space"])
def test_figures_without_content_are_left_out_with_heading_and_caption(name):
    contents = analysed.read(without_content(name), analysed.raw("marginal" if name != "marginal" else "components"))
    drawn = _drawn(contents)
    assert name not in drawn and len(drawn) == 1
    text = _page(contents)
    assert text.count("<figure") == 1 and re.findall(r"Figure (\d+)\.</b>", text) == ["1"]
    # Its table stands by itself, with a caption of its own; of word order there is a sentence.
    tables = len(_tables(contents))
    assert text.count("<table") == tables == (1 if name == "reordering" else 2)
    assert text.count("<h3>") == 2 and text.count("What the figure shows") == 1
    assert name != "reordering" or "None of the first 200 sentences of dev has a translation of teacher" in text


def test_a_map_shows_the_subword_of_every_cell_and_names_regions_inside_of_them():
    """Seven is dog, eight -s, and nine a word's beginning in the upper left corner."""
    raw = analysed.raw("latent_space")
    (first, _) = _drawn(analysed.contents_of("latent_space"))["latent_space"].to_dict()["concat"]
    areas, edged_names, *_ = (layer["data"]["values"] for layer in first["layer"])
    cells, labels = np.array(raw["panels"][0]["regions"]), {7: "dog", 8: "-s", 9: "␣"}
    low, side = np.array([1.0, -2.0]) - 0.9, 2 * 0.9 / 9

    def piece_at(x, y):
        (piece,) = (area["piece"] for area in areas if area["x"] < x < area["x2"] and area["y"] < y < area["y2"])
        return piece

    for (row, column), token in np.ndenumerate(cells):
        assert piece_at(*(low + side * (np.array([column, row]) + 0.5))) == labels[token]
    # The frame cuts off the right region, which goes on beyond it: its name stands at the frame.
    named = {name["piece"]: (name["x"], name["y"]) for name in edged_names}
    assert named.keys() == {"dog", "-s", "␣"} and all(piece_at(*place) == piece for piece, place in named.items())
    assert named["-s"][0] == pytest.approx(low[0] + 8.5 * side)
