"""The load of other processes while something is timed."""

from __future__ import annotations

import contextlib
import time

import psutil


class OtherLoad:
    """A context that measures the CPU time of processes other than this one and its children.

    Afterwards `.cores` is that time in cores. The busy time of our CPUs counts, less our own: processes that begin and
    end meanwhile, and those of other containers, cannot be listed. Where a machine does not say it, or says less, that
    of the processes that can be listed.
    """

    def __enter__(self) -> OtherLoad:
        self.cores = 0.0
        self._began = time.perf_counter()
        self._before, self._others_before = self._seconds_used(), self._seconds_of_others()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        # A new process counts from its start; one that has ended has no times.
        listed = sum(now - self._before.get(key, 0.0) for key, now in self._seconds_used().items())
        self.cores = max(0.0, listed, self._seconds_of_others() - self._others_before) / elapsed

    @staticmethod
    def _seconds_of_others() -> float:
        """Busy seconds of the CPUs that this process may use, less those of this process and its children."""
        current = psutil.Process()
        allowed = set(current.cpu_affinity()) if hasattr(current, "cpu_affinity") else None
        seconds = 0.0
        for number, cpu in enumerate(psutil.cpu_times(percpu=True)):
            if allowed is None or number in allowed:
                idle = cpu.idle + getattr(cpu, "iowait", 0.0)
                # Guests' time is part of the user's.
                guests = getattr(cpu, "guest", 0.0) + getattr(cpu, "guest_nice", 0.0)
                seconds += sum(cpu) - idle - guests
        for process in (current, *current.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                # Children that have ended count where they were waited for.
                ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                seconds -= times.user + times.system + ended
        return seconds

    @staticmethod
    def _seconds_used() -> dict[tuple[int, float], float]:
        current = psutil.Process()
        own_pids = {current.pid, *(child.pid for child in current.children(recursive=True))}
        seconds = {}
        for process in psutil.process_iter():
            try:
                if process.pid in own_pids:
                    continue
                times = process.cpu_times()
                seconds[(process.pid, process.create_time())] = times.user + times.system
            except psutil.Error:
                continue
        return seconds
