"""What `import instant` offers: every public name is found, also by those who look before they ask."""

from __future__ import annotations

import importlib

import pytest

import instant


def test_completion_finds_every_public_name() -> None:
    assert set(instant.__all__) <= set(dir(instant))


@pytest.mark.parametrize("name", instant.__all__)
def test_a_public_name_is_what_its_module_calls_so(name: str) -> None:
    assert getattr(instant, name) is getattr(importlib.import_module(instant._HOMES[name]), name)


def test_every_home_is_public_and_another_name_is_none() -> None:
    assert sorted(instant._HOMES) == sorted(instant.__all__)
    with pytest.raises(AttributeError, match="no attribute 'InstantClassifier'"):
        instant.InstantClassifier  # noqa: B018
