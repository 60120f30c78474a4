"""Values, texts and bytes that nobody should send, all of them functions of a generator."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

HUGE = 10**23
WORDS = [
    "", " ", "nan", "inf", "-inf", "1e5", "1e-4", "1e400", "0", "-1", "1.5", "null", "None", "true",
    "yes", "[]", "{}", "[1,", "{a: 1",
    "!!python/object:os.system", "!!timestamp x", "&a [*a]", "*b",
    "../..", "/", ".", "~", "$(x)", "%s", "{0}", "\\", "é", "\u202e", "🦥", "x" * 3000,
    "--help", "-",
    "--", "=", "a=b", "dmc:", ":", "dmc:walker_walk:x", "gym:", "a.b:c", "os:getcwd", str(HUGE),
    str(-HUGE), "0x10", "1_000", "１２", "cpu", "drqv2", "paper", "toy",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, 2, -1, 3.0, 1.5, -0.0, HUGE, -HUGE, 2**31, 2**63, 10**400, float("nan"), float("inf"),
    float("-inf"), 1e-320, 1e308, 1j,
]  # fmt: skip


def number(rng: random.Random) -> Any:
    return rng.choice(NUMBERS)


def word(rng: random.Random) -> str:
    """A word that could stand on a command line."""
    if rng.random() < 0.7:
        return rng.choice(WORDS)
    letters = "abcXYZ019-_.:/=,[]{}'\" \t\n#&*!%@`é🦥"
    return "".join(rng.choice(letters) for _ in range(rng.randrange(1, 20)))


def plain(rng: random.Random, depth: int = 3) -> Any:
    """A value that JSON or YAML could hold."""
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind in (1, 2):
        value = number(rng)
        return 0 if isinstance(value, complex) else value
    if kind in (3, 4):
        return word(rng)
    if kind == 5:
        return nested(rng)
    if kind == 6:
        return [plain(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {word(rng): plain(rng, depth - 1) for _ in range(rng.randrange(4))}


def nested(rng: random.Random) -> Any:
    """Lists in lists."""
    value: Any = 1
    for _ in range(rng.choice([2, 50, 400])):
        value = [value]
    return value


def anything(rng: random.Random) -> Any:
    """A value that a Python call could be given."""
    kind = rng.randrange(6)
    if kind < 3:
        return plain(rng)
    if kind == 3:
        return number(rng)
    if kind == 4:
        return rng.choice([object(), len, int, b"\x00", {1, 2}, range(3), (), random.Random])
    return array(rng)


def array(rng: random.Random) -> Any:
    """An array of an unusual type or shape."""
    shape = rng.choice([(), (0,), (1,), (3,), (3, 3), (2, 3, 3), (3, 2), (1, 1, 1, 1)])
    kind = rng.choice([np.float64, np.float32, np.int64, np.bool_, np.complex128, object, "U3"])
    made = np.ones(shape, dtype=kind) if kind != "U3" else np.full(shape, "abc")
    if kind in (np.float64, np.float32) and made.size and rng.random() < 0.5:
        made.flat[rng.randrange(made.size)] = rng.choice([np.nan, np.inf, -1.0, 1e300])
    return made


def damaged(rng: random.Random, content: bytes) -> bytes:
    """The content with a part changed, cut, doubled or replaced."""
    if not content or rng.random() < 0.05:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(64)))
    where = rng.randrange(len(content))
    kind = rng.randrange(5)
    if kind == 0:
        return content[:where]
    if kind == 1:
        return (
            content[:where]
            + bytes([content[where] ^ (1 << rng.randrange(8))])
            + content[where + 1 :]
        )
    if kind == 2:
        return content[:where] + content[where + rng.randrange(1, 40) :]
    if kind == 3:
        return content[:where] + content[max(0, where - 40) :]
    insert = word(rng).encode() if rng.random() < 0.5 else bytes([rng.randrange(256)] * 3)
    return content[:where] + insert + content[where:]


def changed(rng: random.Random, value: Any) -> Any:
    """A JSON value with one part replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kind = rng.randrange(6)
        if kind == 0:
            return {name: each for name, each in value.items() if name != key}
        if kind == 1:
            return {**value, word(rng): plain(rng)}
        return {**value, key: changed(rng, value[key]) if kind < 4 else plain(rng)}
    if isinstance(value, list) and value and rng.random() < 0.6:
        index = rng.randrange(len(value))
        return [*value[:index], changed(rng, value[index]), *value[index + 1 :]]
    return plain(rng)
