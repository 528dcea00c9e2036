"""The whole report from fabricated inputs: values, escaping, no network, absent parts, errors."""

import hashlib
import json
import re
from pathlib import Path

import analysed
import pytest
import reports
from refusals import fields_of
from reports import Page, assert_tables_fit, squeezed
from stage_words import start_stage
from titles import BLEU, DELTA, DELTA_1, ENERGY_1, GREEDY, SCORE_1, SCORE_4, VALID

from workflow_src.errors import MISSING
from workflow_src.evaluation.quality.significance import FORMAT
from workflow_src.evaluation.report import carried
from workflow_src.evaluation.report.figures_quality import latencies
from workflow_src.evaluation.report.files import AGAIN_COMPARED
from workflow_src.evaluation.report.results import read_results
from workflow_src.evaluation.report.summary import beaten_words
from workflow_src.evaluation.speed.measured import FORMAT as SPEED_FORMAT
from workflow_src.evaluation.speed.measured import read_speed
from workflow_src.records.checked import other_format
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN
from workflow_src.stages import report

PICTURES = ("learning_curves", "quality_speed", "latencies", "refinement", "time_by_length")


def _build(words):
    start_stage(report, words)
    return Path(words[words.index("--output-folder") + 1])


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures stay empty: to lay them out and to draw them takes seconds, and other tests look at them."""
    monkeypatch.setattr(report, "draw", lambda *_: dict.fromkeys(PICTURES))

    def save(figure, folder, name, colours):
        folder.mkdir(parents=True, exist_ok=True)
        for ending in ("svg", "png"):
            (folder / f"{name}.{ending}").touch()
        return "<svg></svg>"

    monkeypatch.setattr(report.charts, "save", save)


def markdown_of(folder):
    """The report in Markdown, without the numbers of rows, which pictures refer to."""
    return re.sub(r" #\d+(?= +\|)", "", (folder / "results.md").read_text(encoding="utf-8"))


def page_of(folder):
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def test_full_report(report_inputs, tmp_path):
    folder = _build(report_inputs(expected={"score-4": 29.1}))
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    pictures = {f"figures/{n}.{e}" for n in PICTURES for e in ("svg", "png")}
    assert names == {"index.html", "provenance.json", "results.md", "rows.csv", "figures.csv"} | pictures

    rows = reports.flat(read_results(folder))
    # 2 autoregressive rows once, 4 + 3 + 3 + 4 others kept and without repeated words and subwords
    assert len(rows) == 2 + 3 * 14
    score = next(r for r in rows if r.decode == "score-4" and r.variant == "subwords")
    assert score.bleu == pytest.approx(34.1 + 0.9 * (1 - 0.5**4)) and score.speedup == pytest.approx(10.5 / 5.0)
    assert (score.device, score.data) == ("cpu", "distilled")
    assert score.validity == pytest.approx(score.bleu / 50, abs=1e-3)

    html = page_of(folder)
    assert html.open == []
    html_text = (folder / "index.html").read_text(encoding="utf-8")
    assert_tables_fit(html_text)
    panels = latencies(read_speed(tmp_path / "speed.json"))
    assert len(panels) == 2 and all(title in html_text for title in panels)
    cells = [row for row in html.rows if row and row[0].startswith(SCORE_4)]
    # First the main table, then the table of removed repetitions.
    figures = "34.9 [34.1, 35.7] | 29.1 | 54.9 | 69.9 | 5.00 ± 1.67 | 4.90–5.05 | 800 | 2.10×"
    assert cells[0] == [SCORE_4, *figures.split(" | ")]
    assert cells[1] == [SCORE_4, "33.9", "34.5", "34.9"]
    assert ["", "kept", "removed by words", "removed by subwords"] in html.rows
    systems = [row for row in html.rows if len(row) == 12]
    column = systems[0].index("subwords")
    assert len(systems) > 1 and all(row[column] == "1,200" for row in systems[1:])
    validated = [row[-1] for row in systems]
    assert "last validation on dev" in validated and any(text.startswith("BLEU ") for text in validated)
    assert ["dataset", "toy; Doe 2020; licence: the authors' <own>"] in html.rows
    markdown = squeezed(markdown_of(folder))
    assert (
        f"| {SCORE_4} | **34.9** [34.1, 35.7] | 29.1 | 54.9 | 69.9 | 5.00 ± 1.67 | 4.90–5.05 | 800 | 2.10× |"
        in markdown
    )
    for passage in (
        "snakemake --config experiment=fabricated",
        "tok:13a",
        "1,234,567",
        "24,000",
        "3 over max_words",
        "| test | – | none | – | 1,000 | 4 | 2 | 1 | – |",
        "| trained on: raw | – | 10 source over max_length | 24,000 | 23,990 | – | – | – | 64 |",
        f"Published figures (Lee et al. (2020)) are sacreBLEU, as the column {BLEU} is.",
        "published (sacreBLEU)",
        f"| {SCORE_4} | 33.9 | 34.5 | 34.9 |",
    ):
        assert passage in markdown + html_text


def test_page_loads_nothing_and_escapes_sentences(report_inputs):
    folder = _build(report_inputs(description="A <b>bold</b> claim & more"))
    text = (folder / "index.html").read_text(encoding="utf-8")
    html = page_of(folder)
    files = {"provenance.json", "results.md", "rows.csv", "figures.csv", "figures/"}
    assert all(load.startswith("#") or load in files for load in html.loads), html.loads
    assert {"link", "iframe", "img"}.isdisjoint(html.tags)
    # Programs of the page may name addresses; that they ask for none is seen in a browser.
    assert not re.search(r"@import|url\((?!#)", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "A &lt;b&gt;bold&lt;/b&gt; claim &amp; more" in text
    assert "&lt;b&gt;old&lt;/b&gt;" in text
    assert "<mark>the old</mark>" in text


def test_bare_report_of_a_teacher_alone(report_inputs):
    folder = _build(report_inputs({"teacher": "transformer"}, valid=False, speed=False, traces=False))
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert not (folder / "figures/latencies.svg").exists() and "every latency" not in text
    assert "Speed was not measured" in text and "valid, %" not in text and "Sentences</h2>" not in text
    assert "ms a sentence" not in text and "fastest" not in text and "of seed 1" not in text
    # Headings, captions, links and numbers of figures without content are left out with them.
    assert {path.stem for path in (folder / "figures").iterdir()} == {"learning_curves"}
    assert "<dt>Repetitions</dt>" not in text and "<dt>±</dt>" not in text and "<dt>Brackets</dt>" in text
    assert "Latent variables" not in text and "BLEU on dev" in text
    assert text.count("<figure") == 1 and "Refinement" not in text and "#refinement" not in text
    assert re.findall(r"Figure (\d+)\.</b>", text) == ["1"]
    assert re.findall(r'<span class="n">(\d+)</span>', text) == ["1", "2", "3", "4", "5"]
    assert page_of(folder).open == []
    assert "latency_ms" not in set(read_results(folder).figures["figure"])


@pytest.mark.usefixtures("undrawn")
def test_seeds_are_averaged(report_inputs):
    folder = _build(report_inputs({"teacher": "transformer", "lvm": "lvm"}, seeds=(1, 2, 3), traces=False))
    rows = page_of(folder).rows
    # Kept figures of greedy are 39.0, 39.3 and 39.6.
    assert next(row for row in rows if row and row[0] == GREEDY)[1] == "39.3 ± 0.3"
    assert len(reports.flat(read_results(folder))) == 3 * (2 + 3 * 4)
    # The prior mean's are 31.9, 32.2 and 32.5.
    assert [PRIOR_MEAN.title, "32.5 ± 0.3", "33.1 ± 0.3", "33.5 ± 0.3"] in rows
    markdown = markdown_of(folder)
    # Notes speak of what the pictures have: bars of seeds, and no second system of a family.
    assert "- **±**: " in markdown and "- **Brackets**: " not in markdown
    assert "Deviations over seeds" in markdown and "Latent variables" in markdown and "Hollow" not in markdown
    # The table of needs names the bundle of one seed, and has its figures.
    taken = markdown.split("## What to take")[1].split("\n## ")[0]
    assert "Those of seed 1" in taken and "| 33.2 |" in squeezed(taken)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("convention", "head", "ours", "passage"),
    [
        (
            "intl-lowercase",
            "published (international, lowercase)",
            "37.9",
            "BLEU over sacreBLEU's international tokens without",
        ),
        ("tokenised", "published (tokenised)", "35.9", "cased BLEU over the tokens"),
    ],
)
def test_published_figures_stand_beside_ours_in_their_convention(report_inputs, convention, head, ours, passage):
    folder = _build(report_inputs(expected={"score-4": 29.1}, expected_convention=convention))
    rows = page_of(folder).rows
    heads = next(row for row in rows if head in row)
    assert heads[1:4] == [BLEU, head, "ours, same convention"]
    assert next(row[1:4] for row in rows if row[0].startswith(SCORE_4)) == ["34.9 [34.1, 35.7]", "29.1", ours]
    # By every convention, in a table of its own.
    assert ["score", "score-4", "1", "34.9", "35.9", "37.9"] in rows
    # Nothing was published for the others.
    assert next(row for row in rows if row[0] == SCORE_1)[2:4] == ["–", "–"]
    markdown = squeezed(markdown_of(folder))
    assert f"| | {BLEU} | {head} | ours, same convention |" in markdown
    assert f"| {SCORE_4} | **34.9** [34.1, 35.7] | 29.1 | {ours} |" in markdown
    assert f"Published figures (Lee et al. (2020)) are {passage}" in markdown


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("removal", "bleu", "passage"),
    [
        ("subwords", "34.9", "subwords that repeat the one before are removed before joining; autoregressive"),
        ("words", "34.5", "words that repeat the one before are removed; autoregressive"),
        ("none", "33.9", "repetitions are kept; autoregressive"),
    ],
)
def test_the_main_table_removes_what_the_setting_says(report_inputs, removal, bleu, passage):
    folder = _build(report_inputs(traces=False, remove_repetitions=removal))
    rows = page_of(folder).rows
    main, worth = (row for row in rows if row and row[0] == SCORE_4 and len(row) < 12)
    assert main[1].startswith(f"{bleu} [") and worth[1:] == ["33.9", "34.5", "34.9"]
    assert passage in markdown_of(folder)


def _written(text):
    return lambda path: path.write_text(text)


def _without(variant):
    def spoil(path):
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != variant}))

    return spoil


def _with(value, *place):
    def spoil(path):
        content = json.loads(path.read_text())
        inner = content
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        path.write_text(json.dumps(content))

    return spoil


@pytest.mark.usefixtures("undrawn")
def test_every_table_carries_its_data_and_how_its_systems_were_trained(report_inputs):
    """Sections up to provenance: each that has a table names checksum, seeds, and networks trained less than others."""
    folder = _build(report_inputs(significance=True))
    digest = hashlib.sha256(f"{'ab' * 32}  train.de\n".encode()).hexdigest()
    data = f"toy, SHA-256 {digest[:12]}…; seed 1."
    unequal = "score 4,000 updates, 1,234,567 target tokens; energy 1,000 updates, 308,642 target tokens."
    markdown = squeezed(markdown_of(folder))
    page = (folder / "index.html").read_text(encoding="utf-8")
    for text, heading, table, tables in (
        (markdown, r"^#+ ", "|---", 8),
        (page, r"<h[23]>|<summary>(?!How to read)", "<table", 8),
    ):
        shown, provenance = re.split(r"^## Provenance$|<section id=.provenance.>", text, flags=re.MULTILINE)
        sections = [part for part in re.split(heading, shown, flags=re.MULTILINE) if table in part]
        # The summary, what to take, the main table, repetitions, against delta, conventions, the protocol, and speed.
        assert len(sections) == tables
        for section in sections:
            assert data in section and unequal in section and carried.SYSTEMS in section
        assert f"SHA-256 {digest} of the sums of its texts" in provenance
    assert (
        "| energy | energy | tiny | distilled-by-teacher | 1 | 1,200 | 2,500,000 | 1,000 | 308,642 | 8.5 | no (+0.0) |"
        in markdown
    )


@pytest.mark.usefixtures("undrawn")
def test_what_normalisation_costs_stands_in_the_caption_and_among_the_facts(report_inputs):
    folder = _build(report_inputs())
    for name in ("results.md", "index.html"):
        text = squeezed((folder / name).read_text(encoding="utf-8"))
        assert "The references themselves, normalised and put together like outputs, have 97.2 BLEU here" in text
        assert "MD5: talks" in text
        assert "99.87 on dev, 97.25 on test" in text
    corpus = json.loads((folder / "provenance.json").read_text())["provenance"]["corpus"]
    assert corpus["round_trip_bleu"] == {"dev": 99.871, "test": 97.25}


@pytest.mark.usefixtures("undrawn")
def test_every_further_test_set_has_a_table_and_rows_of_its_own(report_inputs):
    folder = _build(report_inputs(significance=True, further=("news", "talks"), expected={"score-4": 29.1}))
    results = read_results(folder)
    assert results.record.splits == ("test", "news", "talks")
    rows = reports.flat(results)
    for split in ("news", "talks"):
        further = reports.flat(results, split)
        assert results.record.signatures[split][BLEU].startswith("nrefs:2") and len(further) == len(rows)
        for row, main in zip(further, rows, strict=True):
            lower = 10 if split == "news" else 20
            assert row.bleu == pytest.approx(main.bleu - lower) and row.bleu_p == main.bleu_p
            assert row.latency_ms is None and (row.system, row.decode) == (main.system, main.decode)
    page, markdown = (folder / "index.html").read_text(), squeezed(markdown_of(folder))
    assert_tables_fit(page)
    cells = [row for row in page_of(folder).rows if row]
    lines = [row for row in cells if row[0].startswith(SCORE_4)]
    (main, *_), further = lines, [row for row in lines if len(row) == 5]
    # BLEU with its interval, its p, chrF and validity; no figure of the main set's is published of another one.
    assert main[1].startswith("34.9 ") and "29.1" in main
    assert [row[1].split()[0] for row in further] == ["24.9", "14.9"] and all("29.1" not in row for row in further)
    for text in (page, markdown):
        assert "Quality on news of toy (de→en, 77 sentences)" in text and "On talks" in text
        assert text.count("Each source has 2, which count together as in sacreBLEU.") == 2


@pytest.mark.usefixtures("undrawn")
def test_p_values_say_their_test_and_how_many_they_are(report_inputs):
    folder = _build(report_inputs(significance=True))
    rows = reports.flat(read_results(folder))
    score = {row.variant: row for row in rows if row.decode == "score-4"}
    assert (score["subwords"].bleu_p, score["subwords"].from_control_p) == (0.0123, 0.5)
    assert [score[removed].from_control for removed in ("none", "words", "subwords")] == [-0.5, 0.125, 0.25]
    assert (score["none"].from_control_p, score["words"].bleu_p) == (0.0004, 0.1)
    assert {row.from_control_p for row in rows if row.family not in ("score", "energy")} == {None}
    markdown = squeezed(markdown_of(folder))
    # Fifteen rows have a p, all but the beam; and six a network of their own.
    for text in (markdown, " ".join((folder / "index.html").read_text(encoding="utf-8").split())):
        unescaped = text.replace("&lt;", "<").replace("&#39;", "'")
        test = f"Two-sided paired approximate randomisation of corpus {BLEU}, 10,000 trials, against"
        for against, comparisons, threshold in (("teacher/beam-4", 15, 0.0033), (DELTA, 6, 0.0083)):
            assert f"{test} {against}. Comparisons: {comparisons};" in unescaped and f"p < {threshold}" in unescaped
    assert f"| score: {SCORE_4} | 1 | 34.9 | +0.25 | 0.500 |" in markdown
    cells = page_of(folder).rows
    assert [f"energy: {ENERGY_1}", "1", "33.5", "+0.25", "0.500"] in cells
    assert json.loads((folder / "provenance.json").read_text())["provenance"]["significance"]["trials"] == 10_000


@pytest.mark.usefixtures("undrawn")
def test_the_summary_and_the_last_column_rest_on_the_pairs(report_inputs):
    """The file says that every row is as good as beam 4, whatever its BLEU. Greedy search was not compared."""
    markdown = squeezed((_build(report_inputs(significance=True)) / "results.md").read_text(encoding="utf-8"))
    assert "| **With PyTorch, the largest gain at equal quality" in markdown
    assert (
        f"| lvm, {PRIOR_MEAN.title} | 33.2 |" in markdown and "| difference | [−0.0, +0.0] | [−0.3, +0.3] |" in markdown
    )
    assert beaten_words(1, 1, 2) in markdown
    assert f"is shown to lose less than 0.5 {BLEU} and 0.5 % {VALID}" in markdown
    assert "over fastest as good" in markdown and "within one kind of engine (PyTorch, or others" in markdown
    summary = markdown.split("## What to take")[0]
    assert summary.count("| **") == 2 and "Pairs of test that are in train too: 1 of 1,000 (0.1 %)" in summary


@pytest.mark.usefixtures("undrawn")
def test_bleu_by_two_tokenisers_is_never_in_one_table(report_inputs, refused, tmp_path):
    words = report_inputs({"teacher": "transformer", "lvm": "lvm"})
    path = tmp_path / "results/fabricated/quality/lvm/seed-1/delta-1/test.json"
    path.write_text(path.read_text().replace("tok:13a", "tok:char"))
    error = refused("report", words)
    assert "delta-1/test.json by nrefs:1|bs:1000|case:mixed|tok:char; " in str(error)
    assert error.fix.startswith("score ")


@pytest.mark.usefixtures("undrawn")
def test_networks_against_delta_seed_by_seed(report_inputs):
    systems = {"teacher": "transformer", "lvm": "lvm", "score": "score"}
    folder = _build(report_inputs(systems, seeds=(1, 2), significance=True))
    markdown = squeezed(markdown_of(folder))
    assert f"| score: {SCORE_1} | 2 | 34.9 | +0.25 | 0.500 |" in markdown
    # Means over seeds have no p.
    assert markdown.count("Comparisons: ") == 1 and "Comparisons: 6" in markdown


SCORES = "results/fabricated/quality/lvm/seed-1/delta-1/test.json"
SYSTEM = "results/toy/systems/lvm/seed-1"


@pytest.mark.parametrize(
    ("file", "spoil", "fields"),
    [
        (f"{SYSTEM}/training.jsonl", _written('{"loss": 1}\n'), {"line": 1}),
        (f"{SYSTEM}/training.jsonl", Path.unlink, {"problem": MISSING}),
        (SCORES, Path.unlink, {"problem": MISSING}),
        (SCORES, _written('{"kept": {}}'), {"mentions": ("no kept.bleu",)}),
        (SCORES, _without("without_repeated_subwords"), {"mentions": ("no without_repeated_subwords.bleu",)}),
        ("speed.json", _written("{"), {"mentions": ("damaged",)}),
        ("speed.json", _written("{}"), {"problem": other_format(None, SPEED_FORMAT), "fix": "measure speed again"}),
        ("significance.json", _written('{"rows": []}'), {"problem": other_format(None, FORMAT), "fix": AGAIN_COMPARED}),
        (
            "significance.json",
            _written(json.dumps({"format": FORMAT})),
            {"mentions": ("missing",), "fix": AGAIN_COMPARED},
        ),
        ("significance.json", _with(None, "pairs", 0, "p_value"), {"mentions": ("p_value",), "fix": AGAIN_COMPARED}),
        (SCORES, _with("many", "kept", "bleu"), {"mentions": ("'many' as kept.bleu",)}),
        (SCORES, _with(None, "kept", "bleu"), {"mentions": ("None as kept.bleu",)}),
        (SCORES, _written("[]"), {}),
        (f"{SYSTEM}/config.json", _written("[]"), {}),
        (f"{SYSTEM}/config.json", _with("many", "parameters"), {"mentions": ("parameters",)}),
        ("results/toy/translations/teacher/seed-1/beam-4/test.txt", _written("A tree.\n"), {}),
        ("traces.json", _with({}, "searches"), {"mentions": ("searches.delta: missing",)}),
    ],
)
def test_bad_inputs_are_one_sentence_and_leave_no_page(report_inputs, refused, tmp_path, file, spoil, fields):
    words = report_inputs({"teacher": "transformer", "lvm": "lvm"}, significance=True)
    spoil(tmp_path / file)
    fields = fields | {"path": file if file.startswith("results/") else str(tmp_path / file)}
    assert fields_of(refused("report", words), fields) == fields
    assert not (tmp_path / "report").exists()


def test_scores_out_of_range_are_refused_before_anything_is_written(report_inputs, tmp_path, capsys):
    words = report_inputs({"teacher": "transformer"})
    _with(141.0, "kept", "bleu")(tmp_path / "results/fabricated/quality/teacher/seed-1/greedy/test.json")
    with pytest.raises(SystemExit):
        _build(words)
    assert re.search(r"figures.csv.* outside of the bounds .*greedy.*bleu, 141.0", capsys.readouterr().err)
    assert not (tmp_path / "report").exists()


def test_grids_and_rows_at_the_references_lengths(report_inputs, undrawn, tmp_path):
    published = {"raw": {"tiny": "1 (2.0)"}, "distilled-by-teacher": {"tiny": "3 (4.0)"}}
    grid = {"title": "Two <settings>", "family": "lvm", "rows": "data", "columns": "preset", "published": published}
    words = report_inputs(
        expected_reference_lengths={"lvm/delta-1": 19.5, "score/score-1": 18.0},
        expected_convention="intl-lowercase",
        grids=[grid],
    )
    under = {"energy_per_sentence": 9.04, "energy_per_token": 0.8, "error": 0.5, "sentences": 8, "unscored": 0}
    row = under | {"system": "lvm", "repetitions_removed": "subwords"}
    scored = [{"scorer": "teacher"}, {"scorer": "seq2seq", "energy_per_sentence": 7.0}]
    bleu = {"bleu": 20.0, "bleu_tokenised": 21.0, "bleu_intl_lowercase": 22.0}
    at_lengths = row | {"name": "delta-1"} | bleu
    energies = analysed.raw(
        "energies",
        split="test",
        rows=[row | {"name": "delta-2", "seed": 1} | more for more in scored],
        at_reference_lengths=[at_lengths | more for more in scored],
    )
    (tmp_path / "energies.json").write_text(json.dumps(energies))
    folder = _build([*words, "--analyses", str(tmp_path / "energies.json")])
    energy_by_row = {
        (row.decode, row.variant): row.energy_per_sentence
        for row in reports.flat(read_results(folder))
        if row.system == "lvm"
    }
    # In results the first scorer's, of rows at lengths of their own.
    assert energy_by_row["delta-2", "subwords"] == 9.04 and set(energy_by_row.values()) == {9.04, None}
    cells = page_of(folder).rows
    distilled = "distilled-by-teacher"
    assert [distilled, "9.0 (22.0)"] in cells and [distilled, "3 (4.0)"] in cells and ["raw", "1 (2.0)"] in cells
    # Another system was not measured there: BLEU of its first row, 3 above sacreBLEU's.
    assert ["raw", "32.2"] in cells
    counted = ["20.0", "21.0", "22.0", "19.5"]
    for scorer, energy in (("teacher", "9.0 ± 0.5"), ("seq2seq", "7.0 ± 0.5")):
        assert [f"lvm, {DELTA_1}", scorer, *counted, energy, "0.80", "8", "0"] in cells
    html, markdown = ((folder / name).read_text() for name in ("index.html", "results.md"))
    assert "Two &lt;settings&gt;" in html and "score/score-1 (at the references&#39; lengths) 18.0" in html
    assert r"### Two \<settings>" in markdown and "### At the references’ lengths" in markdown
    assert " under teacher, the mean" in markdown
