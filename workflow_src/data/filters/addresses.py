"""Leaves out pairs with a web or e-mail address that the other side does not have."""

from __future__ import annotations

from workflow_src.data.characters import each
from workflow_src.data.patterns import ADDRESS, ADDRESS_SIGN
from workflow_src.spec import Check, Filter, Frozen


class Settings(Frozen):
    pass


def addresses(text: str) -> set[str]:
    """The addresses of a text, by which two texts are compared."""
    if not ADDRESS_SIGN.search(text):
        return set()
    return {address.rstrip("/").casefold() for address in ADDRESS.findall(text)}


def check(_settings: Settings, _languages: tuple[str, str]) -> Check:
    return each(lambda pair: None if addresses(pair.source) == addresses(pair.target) else "different")


FILTER = Filter(name="addresses", title="Addresses", settings=Settings, check=check)
