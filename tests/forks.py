"""For processes that fork others: their environment, and the end of a fork that does one thing."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def environment_of_a_server() -> dict[str, str]:
    """This environment without the plug-ins and paths of the test that happens to start the server."""
    excluded = ("PYTHONPATH", "CONTINUUM_PLUGINS", "CONTINUUM_PLUGIN_PATH")
    return {name: value for name, value in os.environ.items() if name not in excluded}


def end_with(work: Callable[[], object]) -> NoReturn:
    """Do the work and end as a process of its own would; exit handlers, which are the parent's, do not run."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
