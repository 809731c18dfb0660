"""Bits on the wire: fixed-width integers, Elias-γ codes, masks and float64, packed without gaps.

A payload is a sequence of bits, most significant first, padded with zeros to whole bytes. A payload with too
few bits or a number out of range is ``Malformed``. ``messages`` also requires that the decoded message
encodes to the same bytes, so each message has exactly one encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable


class Malformed(ValueError):
    """The bytes are not a message of the expected kind. The reason is stored in the record."""


class Writer:
    """Write bits to a payload.

    >>> w = Writer(); w.fixed(5, 3); w.gamma(9); w.payload(), w.bits
    (b'\\xa2@', 10)
    """

    def __init__(self) -> None:
        self._value = 0
        self.bits = 0

    def fixed(self, value: int, width: int) -> None:
        """Write a number in a fixed number of bits.

        Parameters
        ----------
        value : int
            The number, from 0 to 2^width − 1.
        width : int
            The number of bits.

        Raises
        ------
        ValueError
            If the number does not fit.
        """
        if not 0 <= value < 1 << width:
            raise ValueError(f"{value} does not fit in {width} bits")
        self._value = (self._value << width) | value
        self.bits += width

    def flag(self, value: bool) -> None:
        """Write one bit.

        Parameters
        ----------
        value : bool
            The bit.
        """
        self.fixed(int(value), 1)

    def gamma(self, value: int) -> None:
        """Write a number in Elias-γ code: one zero per bit after the first, then the number.

        Parameters
        ----------
        value : int
            The number, at least 1.

        Raises
        ------
        ValueError
            If the number is below 1.
        """
        if value < 1:
            raise ValueError("Elias-γ can only encode numbers of at least 1")
        self.fixed(value, 2 * value.bit_length() - 1)

    def mask(self, values: Iterable[bool]) -> None:
        """Write one bit per value.

        Parameters
        ----------
        values : iterable of bool
            The bits.
        """
        digits = "".join("1" if value else "0" for value in values)
        self.fixed(int(digits or "0", 2), len(digits))

    def real(self, value: float) -> None:
        """Write a real number as the 64 bits of an IEEE double.

        Parameters
        ----------
        value : float
            The number.
        """
        self.fixed(int.from_bytes(struct.pack(">d", value), "big"), 64)

    def payload(self) -> bytes:
        """The bits written so far, padded with zeros to whole bytes.

        Returns
        -------
        bytes
            The payload of a message.
        """
        size = (self.bits + 7) // 8
        return (self._value << (8 * size - self.bits)).to_bytes(size, "big")


class Reader:
    """Read bits from a payload.

    Every method raises ``Malformed`` if the payload is too short.

    Parameters
    ----------
    data : bytes
        The payload.

    >>> r = Reader(b'\\xa2@'); r.fixed(3), r.gamma(100)
    (5, 9)
    """

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def fixed(self, width: int) -> int:
        """Read a number from a fixed number of bits.

        Parameters
        ----------
        width : int
            The number of bits.

        Returns
        -------
        int
            The number.
        """
        if width > self._left:
            raise Malformed("the message is too short")
        self._left -= width
        return (self._value >> self._left) & ((1 << width) - 1)

    def flag(self) -> bool:
        """Read one bit.

        Returns
        -------
        bool
            The bit.
        """
        return self.fixed(1) == 1

    def gamma(self, largest: int) -> int:
        """Read a number in Elias-γ code.

        Parameters
        ----------
        largest : int
            The largest number that is valid here.

        Returns
        -------
        int
            The number.

        Raises
        ------
        Malformed
            If it is larger, or the payload too short.
        """
        width = 0
        while not self.flag():
            width += 1
            if width >= largest.bit_length():
                raise Malformed("a number is out of range")
        value = (1 << width) | self.fixed(width)
        if value > largest:
            raise Malformed("a number is out of range")
        return value

    def mask(self, width: int) -> tuple[bool, ...]:
        """Read one bit per value.

        Parameters
        ----------
        width : int
            The number of values.

        Returns
        -------
        tuple of bool
            The bits.
        """
        value = self.fixed(width)
        return tuple(digit == "1" for digit in f"{value:0{width}b}") if width else ()

    def real(self) -> float:
        """Read a real number from the 64 bits of an IEEE double.

        Returns
        -------
        float
            The number; it may be infinite or NaN.
        """
        value: float = struct.unpack(">d", self.fixed(64).to_bytes(8, "big"))[0]
        return value


def width_of(choices: int) -> int:
    """⌈log₂ n⌉: the number of bits that identify one of n choices.

    >>> [width_of(n) for n in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return (choices - 1).bit_length()
