"""Stage export_ctranslate2: an autoregressive bundle -> a folder for CTranslate2, subwords included."""

import functools

from workflow_src.engines import CTRANSLATE2
from workflow_src.jobs import start
from workflow_src.serving import export

run = functools.partial(export.export, CTRANSLATE2)
arguments = functools.partial(export.arguments, __doc__)

if __name__ == "__main__":
    start(run, arguments())
