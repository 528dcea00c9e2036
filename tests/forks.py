"""What a process that was forked to do one thing does with it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


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
