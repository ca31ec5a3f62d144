/* Mutated score records at source_positions.c, for so many seconds: fuzz_source_positions SEED SECONDS. Built with the address sanitizer and the
 * undefined behaviour sanitizer, which end it where a byte beside a buffer is touched; it prints how many records there were.
 *
 * Every buffer has the size that source_positions.c asks for, and not a byte more. What is checked besides: a record that is certain in
 * company is so alone, with the same offset, and a record that only ends otherwise than the one before is not taken for it.
 */
#include "source_positions.c"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 90, LONGEST = 400, ROUNDS_A_LOOK = 500 };

static const char *const PIECES[] = {
    "{", "}", "[", "]", "\"", ":", ",", " ", "\n", "\\", "\x7f", "\xc3\xa9", "-", "0", "-0", ".", "e", "null", "true", "false",
    "12345678901234567890", "\"source\":", "\"source\":{\"topic\":\"t\",\"partition\":1,\"offset\":2},", "\"offset\":3,", "{}", "[]",
    "[[[[[[[[[", "\"topic\":\"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "        ",
};

static uint64_t state;

static uint32_t drawn(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", what);
        abort();
    }
}

/* A good record. */
static size_t record(char *to)
{
    static const char *const scores[] = {"0.25", "[1,2.5]", "{\"a\":[1],\"b\":2}", "null"};
    uint32_t place = drawn(4) ? 0 : drawn(100);
    return (size_t)snprintf(to, LONGEST,
                            "{\"id\":\"e%u\",\"score\":%s,\"source\":{\"topic\":\"t%u\",\"partition\":%u,\"offset\":%u},"
                            "\"event_ms\":%u,\"status\":\"scored\",\"digest\":\"sha256:aaaaaaaaaaaaaaaa\",\"revision\":%u}",
                            drawn(1000), scores[drawn(4)], place % 7, place, drawn(1u << 30), drawn(3), drawn(2));
}

/* Cut, drop, change, insert: some bytes of a record. */
static size_t damaged(char *text, size_t length)
{
    size_t at = drawn((uint32_t)length + 1);
    const char *piece = PIECES[drawn(sizeof PIECES / sizeof *PIECES)];
    size_t more = strlen(piece);
    switch (drawn(5)) {
    case 0:
        return at;
    case 1:
        memmove(text + at, text + at + (at < length), length - at - (at < length));
        return length - (at < length);
    case 2:
        text[at ? at - 1 : 0] = (char)drawn(256);
        return length ? length : 1;
    default:
        if (length + more > LONGEST) {
            return length;
        }
        memmove(text + at + more, text + at, length - at);
        memcpy(text + at, piece, more);
        return length + more;
    }
}

static void *exactly(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        abort();
    }
    return memory;
}

/* Scan records with buffers that have no byte to spare. */
static void scan(char records[][LONGEST], const size_t *lengths, size_t count, int64_t *firsts, int64_t *offsets)
{
    int64_t *starts = exactly(count * sizeof *starts), *ends = exactly(count * sizeof *ends);
    int64_t length = 0;
    for (size_t at = 0; at < count; at++) {
        starts[at] = length;
        length += (int64_t)lengths[at];
        ends[at] = length;
    }
    char *text = exactly((size_t)length + SCANNER_PADDING);
    for (size_t at = 0; at < count; at++) {
        memcpy(text + starts[at], records[at], lengths[at]);
    }
    memset(text + length, 0, SCANNER_PADDING);
    source_positions_scan(text, starts, ends, (int64_t)count, firsts, offsets);
    free(text);
    free(starts);
    free(ends);
}

/* How many of some records are certain. Each is scanned once more, alone. */
static int64_t played(size_t count)
{
    static char records[MOST][LONGEST];
    size_t lengths[MOST];
    int64_t *firsts = exactly(count * sizeof *firsts), *offsets = exactly(count * sizeof *offsets), certain = 0;
    for (size_t at = 0; at < count; at++) {
        lengths[at] = record(records[at]);
        for (uint32_t times = drawn(3) ? 0 : drawn(3); times > 0; times--) {
            lengths[at] = damaged(records[at], lengths[at]);
        }
    }
    scan(records, lengths, count, firsts, offsets);
    for (size_t at = 0; at < count; at++) {
        int64_t first, offset;
        scan(records + at, lengths + at, 1, &first, &offset);
        check(firsts[at] <= (int64_t)at, "a first row stands before the others");
        check(firsts[at] == UNCERTAIN_PLACE || first == 0, "a record that is certain in company is so alone");
        check(firsts[at] == UNCERTAIN_PLACE || offset == offsets[at], "its offset is the same");
        certain += first == 0;
    }
    free(firsts);
    free(offsets);
    return certain;
}

int main(int count, char **arguments)
{
    int64_t records = 0, certain = 0;
    if (count != 3) {
        return 2;
    }
    state = strtoull(arguments[1], NULL, 10);
    time_t ends = time(NULL) + strtol(arguments[2], NULL, 10);
    do {
        for (int round = 0; round < ROUNDS_A_LOOK; round++) {
            size_t some = 1 + drawn(MOST);
            certain += played(some);
            records += (int64_t)some;
        }
    } while (time(NULL) < ends);
    printf("{\"records\": %lld, \"certain\": %lld}\n", (long long)records, (long long)certain);
    return 0;
}
