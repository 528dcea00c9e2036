"""A document as one HTML page that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2
import markupsafe

from workflow_src.evaluation.document import Document, cell_of

TEMPLATES = Path(__file__).parent


def page(document: Document, pictures: Mapping[str, markupsafe.Markup] | None = None) -> str:
    """The page; `pictures` are SVG elements by the names of the document's pictures.

    Everything that is not Markup is escaped.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = ""
    if any('class="live"' in picture for picture in (pictures or {}).values()):
        # Imported here: pages without charts do without it.
        from workflow_src.evaluation import charts

        script = markupsafe.Markup(charts.script())
    environment.filters |= {"kind": lambda block: type(block).__name__, "cell": cell_of}
    return environment.get_template("document.html.j2").render(
        document=document, pictures=pictures or {}, script=script
    )
