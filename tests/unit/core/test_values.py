"""Values that are made and copied quickly are the same values as those that their classes make, and as frozen."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from amends_coordinator.core.values import copier, maker, quick


@quick
@dataclass(frozen=True, slots=True)
class Parcel:
    """A value with every kind of field that ours have."""

    name: str
    weight_g: int = 1
    notes: list[str] = field(default_factory=list[str], kw_only=True)


make_parcel = maker(Parcel)
renamed = copier(Parcel, "weight_g", "name")


def test_a_maker_makes_what_the_class_makes() -> None:
    """Same arguments, same defaults, each value with its own of what is made anew."""
    assert make_parcel("a") == Parcel("a")
    assert make_parcel("a", 2, notes=["b"]) == Parcel("a", 2, notes=["b"])
    assert make_parcel("a").notes is not make_parcel("a").notes
    with pytest.raises(TypeError):
        make_parcel()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # that is what is tried


def test_a_copier_copies_all_but_what_is_anew() -> None:
    """The original stays as it is."""
    before = Parcel("a", 2, notes=["b"])
    after = renamed(before, 3, "c")
    assert after == Parcel("c", 3, notes=["b"])
    assert before == Parcel("a", 2, notes=["b"])


@pytest.mark.parametrize("value", [make_parcel("a"), renamed(Parcel("a"), 2, "b")])
def test_what_is_made_quickly_is_frozen(value: Parcel) -> None:
    """Nobody changes a value that was handed out."""
    assert type(value) is Parcel
    with pytest.raises(FrozenInstanceError):
        value.name = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # that is what is tried
