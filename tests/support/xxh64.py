"""A slow, plain implementation of the hash XXH64 from its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""

P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MASK = (1 << 64) - 1


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def _round(lane: int, word: int) -> int:
    return _rotate_left((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """Return the 64-bit hash of the data."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at <= size - 32:
            for number in range(4):
                lanes[number] = _round(lanes[number], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        state = sum(_rotate_left(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * P1 + P4) & MASK
    else:
        state = (seed + P5) & MASK
    state = (state + size) & MASK
    while at + 8 <= size:
        state = (_rotate_left(state ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= size:
        state = (_rotate_left(state ^ (int.from_bytes(data[at : at + 4], "little") * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        state = _rotate_left(state ^ (byte * P5 & MASK), 11) * P1 & MASK
    state = (state ^ (state >> 33)) * P2 & MASK
    state = (state ^ (state >> 29)) * P3 & MASK
    return state ^ (state >> 32)
