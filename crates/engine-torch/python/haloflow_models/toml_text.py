"""Writes TOML: the standard library only reads it."""

import json
import math


def dumps(document: dict) -> str:
    """The text of `document`: strings, booleans, numbers, lists of them, and tables one level deep.

    Keys whose value is None are left out. Tables come last, as TOML wants.
    """
    plain = {key: value for key, value in document.items() if not isinstance(value, dict)}
    parts = [pairs(plain)]
    for key, table in document.items():
        if isinstance(table, dict) and table:
            parts.append(f"[{name(key)}]\n{pairs(table)}")
    return "\n".join(parts)


def pairs(table: dict) -> str:
    """One line for each key of `table`."""
    return "".join(f"{name(key)} = {value_text(value)}\n" for key, value in table.items() if value is not None)


def name(key: str) -> str:
    """A key, quoted where TOML needs it."""
    bare = key and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in key)
    return key if bare else string(key)


def value_text(value) -> str:
    """One value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def float_text(value: float) -> str:
    """A float with a point or an exponent, so that it is read back as one."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def string(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL, which only TOML escapes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
