"""Pairs with different web or e-mail addresses on their sides."""

from __future__ import annotations

from workflow_src.spec import Filter, Frozen


class Settings(Frozen):
    pass


FILTER = Filter(
    name="addresses", title="Addresses", settings=Settings, check="workflow_src.data.filters.addresses.filter:check"
)
