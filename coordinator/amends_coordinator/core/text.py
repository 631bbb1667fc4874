"""Error texts from participants, made safe to store, to log and to show on a terminal."""

from __future__ import annotations

TEXT_LIMIT_BYTES = 2048


def clean_text(text: str) -> str:
    """The text with control characters and lone surrogates escaped, at most 2 KiB as UTF-8.

    Args:
        text: anything, for example NUL bytes or terminal escapes.
    """
    escaped = "".join(_escaped(character) for character in text[:TEXT_LIMIT_BYTES])
    data = escaped.encode("utf-8")
    if len(data) <= TEXT_LIMIT_BYTES:
        return escaped
    return data[: TEXT_LIMIT_BYTES - 3].decode("utf-8", "ignore") + "…"


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
