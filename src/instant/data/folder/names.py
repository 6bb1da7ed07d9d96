"""Names of any number of files, end to end in one block of bytes: each costs its length and eight bytes more."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload


class Names(Sequence[str]):
    """Read like a tuple of strings, which it makes when asked; a slice is a list.

    >>> names = Names(f"{number}.png" for number in range(1000))
    >>> len(names), names[7], names[-1], names[998:]
    (1000, '7.png', '999.png', ['998.png', '999.png'])
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._text, self._ends = bytearray(), array("q", [0])
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        self._text += name.encode("utf-8", "surrogatepass")  # names of files need not be UTF-8
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        places = range(len(self))[place]  # also says what is out of range
        if isinstance(places, range):
            return [self[one] for one in places]
        return self._text[self._ends[places] : self._ends[places + 1]].decode("utf-8", "surrogatepass")
