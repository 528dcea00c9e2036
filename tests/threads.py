"""Work in several threads that change places often."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def in_threads(work: Callable[[int], None], count: int, interval: float = 1e-5) -> None:
    """Run `work(number)` for numbers from 0, each in a thread; threads change places every `interval` seconds."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
