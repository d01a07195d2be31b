# SPDX-License-Identifier: Apache-2.0
"""Element types: their numbers in the library, their names, and how others call them."""
import operator
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._errors import ArgumentTypeError, InvalidArgumentError


class Type(NamedTuple):
    number: int
    name: str
    itemsize: int
    alignment: int
    kind: str                                 # i, u, f, c as in numpy; ? bool; b bfloat, 8 float8, x bytes
    code: str                                 # for memoryviews of new memory


TYPES: Tuple[Type, ...] = (
    Type(1, "float32", 4, 4, "f", "f"),
    Type(2, "float64", 8, 8, "f", "d"),
    Type(3, "float16", 2, 2, "f", "e"),
    Type(4, "bfloat16", 2, 2, "b", "H"),
    Type(5, "float8_e4m3fn", 1, 1, "8", "B"),
    Type(6, "float8_e5m2", 1, 1, "8", "B"),
    Type(7, "int8", 1, 1, "i", "b"),
    Type(8, "int16", 2, 2, "i", "h"),
    Type(9, "int32", 4, 4, "i", "i"),
    Type(10, "int64", 8, 8, "i", "q"),
    Type(11, "uint8", 1, 1, "u", "B"),
    Type(12, "uint16", 2, 2, "u", "H"),
    Type(13, "uint32", 4, 4, "u", "I"),
    Type(14, "uint64", 8, 8, "u", "Q"),
    Type(15, "bool", 1, 1, "?", "?"),
    Type(16, "complex64", 8, 4, "c", "f"),
    Type(17, "complex128", 16, 8, "c", "d"),
    Type(18, "bytes", 1, 1, "x", "B"),
)

by_name: Dict[str, Type] = {t.name: t for t in TYPES}
by_kind: Dict[Tuple[str, int], Type] = {(t.kind, t.itemsize): t for t in TYPES if t.kind != "8"}
BYTES = by_name["bytes"]

# One letter of PEP 3118 (and of the struct module) without its size, which the exporter says itself.
_letters: Dict[str, str] = {"?": "?", "e": "f", "f": "f", "d": "f", "Zf": "c", "Zd": "c", "F": "c", "D": "c",
                            "c": "x"}
_letters.update({c: "i" for c in "bhilqn"})
_letters.update({c: "u" for c in "BHILQN"})


def is_swapped(letters: str, itemsize: int) -> bool:
    return itemsize > 1 and letters[:1] in (">", "!")


def from_format(letters: str, itemsize: int) -> Optional[Type]:
    """The type of a buffer with this format; None if there is none of that meaning."""
    kind = _letters.get(letters.lstrip("@=<>!^|"))
    return by_kind.get((kind, itemsize)) if kind else None


def named(dtype: Any) -> Type:
    """The type that an argument dtype= means: a name, or a type object of numpy, torch or ml_dtypes."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if not isinstance(name, str):
        name = str(dtype).rpartition(".")[2]  # torch.bfloat16
    found = by_name.get("bool" if name == "bool_" else name)
    if found is None:
        raise ArgumentTypeError("dtype is %r; there are %s" % (dtype, ", ".join(by_name)))
    return found


INT32_MAX, INT64_MAX = 2 ** 31 - 1, 2 ** 63 - 1


def integer(name: str, value: Any, low: int = -INT32_MAX - 1, high: int = INT32_MAX) -> int:
    """A whole number that the library's type holds: ctypes would drop the bits that do not fit."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError("%s is %r; a whole number is needed" % (name, value)) from None
    if not low <= number <= high:
        raise InvalidArgumentError("%s is %r; give one from %d to %d" % (name, value, low, high))
    return number
