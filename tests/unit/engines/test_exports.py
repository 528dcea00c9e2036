"""Exports and computations take turns: PyTorch's exporter changes what modules do in all threads of a process."""

from __future__ import annotations

import threading

import pytest
from miniatures import lvm
from sessions import request, translated

from workflow_src import registry
from workflow_src.engines.eager import EagerSession
from workflow_src.engines.exports import Exports
from workflow_src.spec import MODEL

# Seconds after which a thread counts as one that waits for ever.
LONG = 60


def start(*works) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def end(threads) -> None:
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)


def test_an_export_waits_for_computations_and_those_that_come_wait_for_it():
    exports, order = Exports(), []
    computes, may_end = threading.Event(), threading.Event()

    def compute() -> None:
        with exports.computing():
            computes.set()
            may_end.wait(LONG)
            # One inside of another waits for nobody.
            with exports.computing():
                order.append("computed")

    def export() -> None:
        with exports.exporting(), exports.exporting(), exports.computing():
            order.append("exported")

    def compute_later() -> None:
        with exports.computing():
            order.append("computed later")

    threads = start(compute)
    assert computes.wait(LONG)
    exporter = start(export)
    while not exports._waiting:
        pass
    threads += start(compute_later) + exporter
    exporter[0].join(0.05)
    assert order == []
    may_end.set()
    end(threads)
    assert order == ["computed", "exported", "computed later"]


def test_threads_that_export_within_computations_do_not_wait_for_each_other_for_ever():
    exports, together, exporting, most = Exports(), threading.Barrier(4), [], []

    def work() -> None:
        with exports.computing():
            together.wait(LONG)
            with exports.exporting():
                exporting.append(1)
                most.append(len(exporting))
                exporting.pop()

    end(start(*[work] * 4))
    assert most == [1] * 4


@pytest.mark.graphs
def test_a_translation_beside_an_export_is_what_it_is_alone(tmp_path):
    """Both fail where they run at once: branches for exports are taken, and calls of modules are recorded."""
    pytest.importorskip("onnxscript", reason="needs the extra fast")
    from workflow_src.engines.exported import ExportedGraphs

    settings = registry.searches()["prior-mean"].settings()
    own, other = (lvm(seed=seed, layers=1, encoder_layers=1).float() for seed in (1, 2))
    sources, session = [[5, 6, 7], [8, 9, 5, 6, 4]], EagerSession("cpu")
    networks = {MODEL: own}
    expected = translated(session, sources, settings, networks=networks)
    stops, wrong, counts = threading.Event(), [], []

    def work() -> None:
        while not stops.is_set():
            try:
                hypotheses = translated(session, sources, settings, networks=networks)
            except BaseException as failure:
                hypotheses = failure
            counts.append(1)
            if hypotheses != expected:
                wrong.append(hypotheses)

    threads = start(work)
    try:
        engine = ExportedGraphs({"lvm": other}, 1, folder=tmp_path)
        engine.prepare(request(engine, settings), True)
    finally:
        stops.set()
        end(threads)
    assert counts and wrong == [] and len(list(tmp_path.iterdir())) == 1
