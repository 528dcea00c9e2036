"""Stage: fetch text of the source language and write its lines one after the other; nothing is normalised here."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import RemoteFile, file_and_members
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.data.corpus import own_path, text_lines
from workflow_src.data.download import DOWNLOADS, MIRRORS_VARIABLE, Files, Patience, mirror_folders, without_passwords
from workflow_src.data.unpack import Archives
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.spec import Frozen


class MonolingualFiles(Frozen):
    language: str
    texts: tuple[str, ...] = Field(min_length=1, description="FILE or FILE!MEMBER; FILE is one of files, or a path")
    files: dict[str, RemoteFile] = {}


class Inputs(JobInputs):
    settings: MonolingualFiles = Field(description="texts, and files of the dataset that they lie in")
    mirrors: tuple[str, ...] = Field((), description=f"folders; those of {MIRRORS_VARIABLE} come first")
    allow_unpinned: bool = Field(False, description="take files that the dataset has no checksum of")
    patience: Patience = Patience()
    downloads: Path = Field(DOWNLOADS, description="where downloaded files are kept")
    output_folder: Path


def run(inputs: Inputs) -> str:
    settings, folder = inputs.settings, inputs.output_folder
    files = Files(
        settings.files, inputs.downloads, mirror_folders(inputs.mirrors), inputs.allow_unpinned, inputs.patience
    )

    def locate(name: str) -> Path:
        return files.locate(name) if name in settings.files else own_path(name, settings.files)

    summary, name = folder / f"{MONOLINGUAL}.json", f"{MONOLINGUAL}.{settings.language}"
    summary.unlink(missing_ok=True)
    counts: dict[str, int] = {}
    with Archives() as archives, atomic(folder / name) as out:
        for text in settings.texts:
            counts[text] = 0
            with text_lines(text, locate, archives) as lines:
                for line in lines:
                    out.write(line.strip() + "\n")
                    counts[text] += 1
    names = {file_and_members(text)[0] for text in settings.texts}
    sums = digests(folder, [name])
    record = provenance(
        without_passwords(recorded(settings)), {path: path for path in names if path not in settings.files}, sums
    )
    record["inputs"] |= files.provenance_inputs()
    write_json(
        summary,
        {
            "language": settings.language,
            "lines": counts,
            "sha256": sums,
            "downloads": files.fetched,
            "provenance": record,
        },
    )
    return f"{sum(counts.values()):,} lines of {settings.language} from {len(counts)} texts"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
