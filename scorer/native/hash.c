/* XXH64 of many strings: github.com/Cyan4973/xxHash, doc/xxhash_spec.md. It reads only the strings and keeps no state. */
#include "hash.h"
#include "text.h"

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u;
static const uint64_t P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

enum { LANES = 4, STRIPE = LANES * WORD, HALF = 4 };

static inline uint64_t left(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static inline uint64_t mixed(uint64_t lane, uint64_t word)
{
    return left(lane + word * P2, 31) * P1;
}

/* Hash the whole stripes of a text that has at least one, and advance the text behind them. */
static uint64_t stripes(const char **text, const char *end, uint64_t seed)
{
    uint64_t lanes[LANES] = {seed + P1 + P2, seed + P2, seed, seed - P1};
    const char *at = *text;
    for (; end - at >= STRIPE; at += STRIPE) {
        for (int lane = 0; lane < LANES; lane++) {
            lanes[lane] = mixed(lanes[lane], word_at(at + lane * WORD));
        }
    }
    *text = at;
    uint64_t hash = left(lanes[0], 1) + left(lanes[1], 7) + left(lanes[2], 12) + left(lanes[3], 18);
    for (int lane = 0; lane < LANES; lane++) {
        hash = (hash ^ mixed(0, lanes[lane])) * P1 + P4;
    }
    return hash;
}

/* Return the hash of the text [at, end). */
uint64_t text_hash(const char *at, const char *end, uint64_t seed)
{
    uint64_t size = (uint64_t)(end - at);
    uint64_t hash = (size >= STRIPE ? stripes(&at, end, seed) : seed + P5) + size;
    for (; end - at >= WORD; at += WORD) {
        hash = left(hash ^ mixed(0, word_at(at)), 27) * P1 + P4;
    }
    if (end - at >= HALF) {
        uint32_t half;
        memcpy(&half, at, HALF);
        hash = left(hash ^ half * P1, 23) * P2 + P3;
        at += HALF;
    }
    for (; at < end; at++) {
        hash = left(hash ^ (uint8_t)*at * P5, 11) * P1;
    }
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}

/* Write the hash of each string text[starts[i], ends[i]). */
void texts_hash(const char *text, const int64_t *starts, const int64_t *ends, int64_t count, uint64_t seed, uint64_t *hashes)
{
    for (int64_t at = 0; at < count; at++) {
        hashes[at] = text_hash(text + starts[at], text + ends[at], seed);
    }
}
