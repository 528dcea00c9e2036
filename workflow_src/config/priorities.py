"""Which of the jobs that are ready starts first: what trainings wait for, the longest first. No torch here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

from workflow_src.config.plan import Plan
from workflow_src.config.resources import Requests
from workflow_src.config.texts import LIKELY, kind_and_system, system_behind

# The priority of jobs that others wait for, but no training. Those of trainings are higher.
AWAITED = 10
# A system and its seed.
Training = tuple[str, int]


def priorities(needs: Requests) -> Callable[[Any], int]:
    """A function of wildcards for `priority:` of rules that train, and of rules that make what trainings read.

    Trainings that others wait for come before those that none waits for; of either kind, the one that begins the
    longest chain of trainings comes first. What makes text of a system's outputs has the priority of this system. Text
    that no system makes comes before all trainings, and its test sets before the rest: encoding refuses sentences that
    are too long.
    """
    plan = needs.plan
    waiting: dict[Training, list[tuple[Training, float]]] = defaultdict(list)
    for name, seed in plan.trained:
        for awaited, minutes in _awaited(needs, name, seed):
            waiting[awaited].append(((name, seed), minutes))

    @cache
    def chain(training: Training) -> float:
        """Minutes of a training and of the longest chain of what waits for it."""
        family = plan.system(training[0]).family
        own = 0.0 if family.imported else needs.need(family.training_rule, SimpleNamespace(system=training[0]))[1]
        return own + max((minutes + chain(other) for other, minutes in waiting[training]), default=0.0)

    trainings = [*plan.trained, *waiting]
    keys = {training: (bool(waiting[training]), chain(training), len(waiting[training])) for training in trainings}
    order = sorted(set(keys.values()))
    ranks = {training: AWAITED + 1 + order.index(key) for training, key in keys.items()}
    first = AWAITED + 1 + len(order)

    def priority(wildcards: Any) -> int:
        text, system, seed, teacher = (getattr(wildcards, name, None) for name in ("text", "system", "seed", "teacher"))
        if teacher:
            training = teacher, plan.distillation_seed(teacher)
        elif text and system_behind(text):
            training = _maker(plan, text)
        elif system:
            training = system, int(seed) if seed else plan.likelihood_seed(system)
        else:
            return first + (getattr(wildcards, "split", None) in plan.loaded.dataset.test_sets)
        # A file of another seed may be asked for.
        return ranks.get(training, AWAITED)

    return priority


def _awaited(needs: Requests, name: str, seed: int) -> Iterator[tuple[Training, float]]:
    """Systems that a training waits for, with the minutes that making its text of their outputs takes."""
    plan = needs.plan
    system = plan.system(name)
    for other in dict.fromkeys([*system.filled.values(), system.init_from]):
        if other:
            yield (other, seed), 0.0
    for text in system.texts:
        if origin := kind_and_system(text):
            rule, wildcard = ("score_pairs", "system") if origin.kind == LIKELY else ("distill", "teacher")
            job = SimpleNamespace(**{wildcard: origin.system}, text=text)
            yield _maker(plan, text), needs.need(rule, job)[1]
            if origin.kind == LIKELY and (backward := plan.likelihood(origin.system).backward):
                yield (backward, plan.likelihood_seed(backward)), needs.need(rule, SimpleNamespace(system=backward))[1]


def _maker(plan: Plan, text: str) -> Training:
    """The system, with its seed, that a training text is made with."""
    origin = kind_and_system(text)
    assert origin, "a system makes the text"
    seed = plan.likelihood_seed if origin.kind == LIKELY else plan.distillation_seed
    return origin.system, seed(origin.system)
