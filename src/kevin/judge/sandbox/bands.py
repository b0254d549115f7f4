"""Bands of a secret pattern before and behind every tensor that a candidate is given: what it writes there is seen.

Around what is read the pattern is NaN in float32, so that it spoils a result. Around outputs it is not: a processor
hands on a NaN as it is, and one that was read and written again would look untouched.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import torch

from kevin.core.types import TensorSpec

BAND_BYTES = 4096
"""On either side of a tensor, at least."""
_WORD = 8


def _pattern(*, is_number: bool) -> int:
    """Eight bytes, as a signed number: two secret numbers of float32 between 1 and 2 in size, or two NaN."""
    word = 0
    for _ in range(2):
        word = word << 32 | secrets.randbits(1) << 31 | (0x3F800000 if is_number else 0x7FC00000) | secrets.randbits(22)
    return word - (1 << 64) if word >> 63 else word


class _Band(NamedTuple):
    spec: TensorSpec
    first: int
    """Its first byte in the buffer; the band before a tensor ends where that begins."""
    offset: int
    """Of its tensor."""
    num_bytes: int
    """Of its tensor."""
    pattern: int


class Bands:
    """Of one buffer; places are byte offsets in it."""

    def __init__(self, buffer: torch.Tensor) -> None:
        """``buffer``: (total_bytes,) uint8, a whole number of words."""
        self._words = buffer.view(torch.int64)
        self._patterns = {is_output: _pattern(is_number=is_output) for is_output in (False, True)}
        self._bands: list[_Band] = []
        self._at: torch.Tensor | None = None
        self._mask: torch.Tensor | None = None
        self._expected: torch.Tensor | None = None

    def add(self, spec: TensorSpec, offset: int, num_bytes: int, *, is_output: bool) -> None:
        """A tensor at ``offset``, with room for a band on either side."""
        assert offset % _WORD == 0
        for first in (offset - BAND_BYTES, offset + num_bytes):
            self._bands.append(_Band(spec, first, offset, num_bytes, self._patterns[is_output]))

    def _index(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Numbers of the bands' words, which of their bits belong to them (a tensor may end within a word), and what
        these are to be.
        """
        if self._at is None or self._mask is None or self._expected is None:
            runs, masks, patterns = [], [], []
            for band in self._bands:
                start, stop = band.first // _WORD, -(-(band.first + BAND_BYTES) // _WORD)
                run, mask = torch.arange(start, stop), torch.full((stop - start,), -1, dtype=torch.int64)
                if own := band.first % _WORD:  # little-endian: the tensor's bytes are the low ones
                    mask[0] = -1 << 8 * own
                    run, mask = run[:-1], mask[:-1]
                runs.append(run)
                masks.append(mask)
                patterns.append(mask & band.pattern)
            made = [torch.cat(parts).to(self._words.device) for parts in (runs, masks, patterns)]
            self._at, self._mask, self._expected = made
        return self._at, self._mask, self._expected

    def fill(self) -> None:
        at, mask, expected = self._index()
        self._words[at] = (self._words[at] & ~mask) | expected

    def trespass(self) -> str | None:
        """What was written into the first band that is not as it was filled, as its author is told; None if all are."""
        at, mask, expected = self._index()
        changed = (self._words[at] & mask) != expected
        if not bool(changed.any()):
            return None
        places = at[changed].tolist()
        hit = [b for b in self._bands if any(b.first <= _WORD * p + _WORD - 1 < b.first + BAND_BYTES for p in places)]
        return self._told(hit[0])

    def _told(self, band: _Band) -> str:
        pattern = band.pattern.to_bytes(_WORD, "little", signed=True)
        here = range(band.first, band.first + BAND_BYTES)
        words = self._words[band.first // _WORD : -(-here.stop // _WORD)].cpu()
        held = words.view(torch.uint8)[band.first % _WORD :][:BAND_BYTES].tolist()
        bad = [place for place, byte in zip(here, held, strict=True) if byte != pattern[place % _WORD]]
        item = band.num_bytes // max(band.spec.num_elements, 1) or 1
        first = (bad[0] - band.offset) // item
        size = band.num_bytes // item
        side = f"past the end of {band.spec.name}" if first >= 0 else f"before the start of {band.spec.name}"
        at = (
            f"{band.spec.name}[{first}], {first - size + 1} past the last"
            if first >= 0
            else f"{band.spec.name}[{first}]"
        )
        return f"it writes {side}, which has {size} elements: the first such write is at {at}"
