"""Contents of the user's text, and files dated in the future."""

import json
import os
import subprocess
import time

import pytest

from workflow_src.errors import ArtifactError
from workflow_src.records import dates
from workflow_src.records.atomic import sha256
from workflow_src.records.provenance import provenance


def dated(path, seconds):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    os.utime(path, times=(time.time() + seconds,) * 2)
    return path


def test_contents_follow_contents_and_not_dates(tmp_path):
    text, missing = dated(tmp_path / "a", -5), str(tmp_path / "b")
    first = dates.contents([str(text), missing])
    assert first == {str(text): sha256(text), missing: None}
    dated(text, 7200)
    assert dates.contents([str(text), missing]) == first
    text.write_text("z")
    # As a copy that keeps dates may be: older than before.
    os.utime(text, times=(1, 1))
    assert dates.contents([str(text), missing])[str(text)] == sha256(text) != first[str(text)]


def test_a_missing_file_has_the_digest_of_the_record_that_was_made_from_it(tmp_path):
    text, other = dated(tmp_path / "a", -5), dated(tmp_path / "b", -5)
    record, paths = tmp_path / "record.json", [str(text), str(other), str(tmp_path / "c")]
    record.write_text(json.dumps({"provenance": provenance({}, {str(text): text, str(other): other}, {})}))
    before = dates.contents(paths, record)
    text.unlink()
    other.write_text("z")
    after = dates.contents(paths, record)
    assert after == before | {str(other): sha256(other)} != before
    record.write_text("{}")
    assert dates.contents(paths, record) == after | {str(text): None}


def test_dates_in_the_past_and_of_nearly_equal_clocks_pass(tmp_path):
    dates.check_dates([dated(tmp_path / "a/b/c", -1), tmp_path / "a", dated(tmp_path / "d", 30), tmp_path / "none"])


def test_a_file_of_the_future_is_named_with_its_cure(tmp_path):
    ahead = dated(tmp_path / "a/it's b", 7200)
    dated(tmp_path / "a/c", -100)
    with pytest.raises(ArtifactError) as refused:
        dates.check_dates([tmp_path / "a"])
    assert refused.value.path == str(ahead) and "more" not in refused.value.problem
    subprocess.run(["sh", "-c", refused.value.fix.removeprefix("run ").strip("`")], check=True)
    dates.check_dates([tmp_path / "a"])
    assert abs(ahead.stat().st_mtime - time.time()) < 30


def test_the_cure_of_many_leaves_none_newer_than_what_was_made_from_it(tmp_path):
    """Snakemake would make it anew."""
    files = [dated(tmp_path / name, 7200) for name in ("raw/a", "made of raw/b", "raw/c")]
    past = dated(tmp_path / "raw/d", -1000)
    before = past.stat().st_mtime
    with pytest.raises(ArtifactError, match="2 more files") as refused:
        dates.check_dates([tmp_path, tmp_path / "raw"])
    subprocess.run(["sh", "-c", refused.value.fix.removeprefix("run ").strip("`")], check=True)
    dates.check_dates([tmp_path])
    assert len({path.stat().st_mtime for path in files}) == 1 and past.stat().st_mtime == before
