"""What is left of an input once retention has removed it."""

from __future__ import annotations

from amends_coordinator.engine.hashing import RECIPE, input_hash, is_hash_of


def test_only_the_same_input_by_a_known_recipe_is_the_same() -> None:
    """S9: nothing counts as equal that can't be shown to be."""
    kept = input_hash(b"ten")
    assert is_hash_of(b"ten", value=kept, recipe=RECIPE)
    assert not is_hash_of(b"ninety-nine", value=kept, recipe=RECIPE)
    assert not is_hash_of(b"ten", value=kept, recipe="sha256/of another release")
