"""Declarations of engines, which compute a decode: our own code or another library. Other files have their code."""

from __future__ import annotations

from workflow_src.spec import Engine, Family, Look, Search, SearchSettings

BEAM_FAMILIES = ("transformer",)
BEAM_SEARCHES = ("greedy", "beam")


def _everything(_family: Family, _search: Search, _settings: SearchSettings) -> str | None:
    return None


def _named(settings: SearchSettings) -> str | None:
    """The first setting that names another system."""
    return next((name for name in settings.named("role") if getattr(settings, name)), None)


def _programs(family: Family, search: Search, settings: SearchSettings) -> str | None:
    if search.blocks and not family.blocks:
        return f"cannot compute search {search.name} of a {family.name}; remove the engine"
    if not search.program and not search.blocks:
        return f"computes searches that have a program, and {search.name} has none; remove the engine"
    if reason := search.varies(settings):
        return f"cannot compute search {search.name} {reason}; remove one of the two"
    # The function that reads a graph's outputs may use other systems; a drafter has graphs of its own.
    return _alone(settings) if search.graph is None and not search.blocks else None


def _alone(settings: SearchSettings) -> str | None:
    setting = _named(settings)
    return f"computes one system's networks, not those of a {setting}; remove one of the two" if setting else None


def _captured(family: Family, search: Search, settings: SearchSettings) -> str | None:
    if not family.static:
        return f"computes no network that needs lengths on the CPU, such as a {family.name}; remove the engine"
    if search.positions or search.blocks:
        # Its outputs may be ranked by another system.
        reason = search.varies(settings)
        return f"cannot compute search {search.name} {reason}; remove one of the two" if reason else None
    # The function that reads logits on their device may use other systems.
    return (None if search.logits else _alone(settings)) or _programs(family, search, settings)


def _beams(family: Family, search: Search, settings: SearchSettings) -> str | None:
    if search.name not in BEAM_SEARCHES:
        return f"translates with {', '.join(BEAM_SEARCHES)} only, not with {search.name}; remove the engine"
    # Families of models made elsewhere declare the engine that computes them.
    if family.name not in BEAM_FAMILIES and family.engine != CTRANSLATE2.name:
        return f"computes systems of family {', '.join(BEAM_FAMILIES)} only, not of {family.name}; remove the engine"
    if setting := _named(settings):
        return f"takes no {setting}; remove one of the two"
    return None


CONTINUUM = Engine(
    name="eager",
    title="Continuum",
    serves=_everything,
    open="workflow_src.engines.eager:open_networks",
    modes={None: "eager"},
)
CTRANSLATE2 = Engine(
    name="ctranslate2",
    title="CTranslate2",
    serves=_beams,
    open="workflow_src.engines.ctranslate2_imported:open_folder",
    compute_types=("float32", "int8", "float16"),
    packages=("ctranslate2",),
    exports="ctranslate2",
    export="workflow_src.engines.ctranslate2_spec:export",
    distil="workflow_src.engines.ctranslate2:open_distilling",
    look=Look(marker="p"),
)
ONNXRUNTIME = Engine(
    name="onnxruntime",
    title="ONNX Runtime",
    serves=_programs,
    open="workflow_src.engines.exported:open_networks",
    compute_types=("float32", "int8"),
    # On a GPU its modes mean another engine.
    devices=("cpu",),
    modes={"float32": "fast", "int8": "fast-int8"},
    packages=("onnx", "onnxruntime", "onnxscript"),
    look=Look(marker="<"),
)
CUDA_GRAPHS = Engine(
    name="cuda_graphs",
    title="CUDA graphs",
    serves=_captured,
    open="workflow_src.engines.cuda_graphs:open_networks",
    compute_types=("float32", "bfloat16"),
    devices=("cuda",),
    modes={"float32": "fast", "bfloat16": "fast"},
)
# The first computes decodes that name none.
ENGINES = (CONTINUUM, CTRANSLATE2, ONNXRUNTIME, CUDA_GRAPHS)
