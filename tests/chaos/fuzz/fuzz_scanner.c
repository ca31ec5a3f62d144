/* Mutated events at the scanner, for so many seconds: fuzz_scanner SEED SECONDS. Built with the address sanitizer and the
 * undefined behaviour sanitizer, which end it where a byte beside a buffer is touched; it prints how many events there were.
 *
 * Every buffer has the size that scanner.c asks for, and not a byte more. What is checked besides: an event that was certain
 * in company is so alone, with the same row and the same id, and the ids take no more room than is promised.
 */
#include "scanner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIELDS = 9, KNOWN = FIELDS + 1, ELEMENTS = 3, MOST = 12, LONGEST = 700, EVENTS_A_LOOK = 2000 };

/* Each third field is an array. */
static uint32_t elements_of(uint32_t field)
{
    return field % 3 == 1 ? ELEMENTS : 0;
}

/* What is scanned: objects of all fields, or arrays by themselves. */
typedef struct {
    uint32_t form, width;
    Scanner *scanner;
} Looked;

static const char *const NAMES[KNOWN] = {"a", "b", "", "f1", "f10", "exactly", "eight___", "a_name_of_three_words_0",
                                         "a_name_of_three_words_1", "id"};
static const char *const PIECES[] = {
    "{", "}", "[", "]", "\"", ":", ",", " ", "\n", "\\", "\\u0041", "\x7f", "\xc3\xa9", "\x01", "-", "0", "-0", "-0.0", "1", ".",
    "e", "E+", "null", "true", "false", "NaN", "12345678", "123456789012345678901234567890", "0.000000000000000000000000001",
    "16777217.00000000000001", "1e22", "1e-23", "1e400", "\"a\":", "\"f1\":1", "\"id\":\"x\",", "\"id\":7", "{\"a\":1}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "        ",
};

static uint64_t state;

static uint32_t drawn(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static size_t number(char *to, size_t room)
{
    switch (drawn(4)) {
    case 0:
        return (size_t)snprintf(to, room, "%.*g", (int)drawn(21), (double)drawn(2000000) / (1 + drawn(1000)) - 500);
    case 1:
        return (size_t)snprintf(to, room, "%d", (int)drawn(100000) - 50000);
    case 2:
        return (size_t)snprintf(to, room, "%.17g", (double)drawn(1u << 31) / (1u << 31));
    default:
        return (size_t)snprintf(to, room, "-%u.%u", drawn(10), drawn(10000));
    }
}

static size_t array(char *to, size_t room)
{
    size_t length = (size_t)snprintf(to, room, "[");
    for (uint32_t at = 0; at < ELEMENTS; at++) {
        length += (size_t)snprintf(to + length, room - length, at ? drawn(2) ? "," : " , " : "");
        length += number(to + length, room - length);
    }
    return length + (size_t)snprintf(to + length, room - length, "]");
}

/* A good event, its keys from a random one on. */
static size_t object(char *to, size_t room)
{
    size_t length = (size_t)snprintf(to, room, "{");
    uint32_t first = drawn(4) ? 0 : drawn(KNOWN);
    for (uint32_t k = 0; k < KNOWN; k++) {
        uint32_t which = (first + k) % KNOWN;
        length += (size_t)snprintf(to + length, room - length, "%s\"%s\":%s", k ? "," : "", NAMES[which], k % 2 ? " " : "");
        if (which == FIELDS) {
            length += (size_t)snprintf(to + length, room - length, drawn(2) ? "\"e-%u\"" : "%u", drawn(1000));
        } else {
            length += (elements_of(which) ? array : number)(to + length, room - length);
        }
    }
    return length + (size_t)snprintf(to + length, room - length, "}");
}

/* Cut, drop, change, insert: some bytes of an event. */
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

typedef struct {
    char text[MOST][LONGEST];
    int64_t lengths[MOST];
    int64_t count;
} Batch;

static void draw_batch(Batch *batch, uint32_t form)
{
    batch->count = 1 + drawn(MOST);
    for (int64_t k = 0; k < batch->count; k++) {
        size_t length = drawn(30) ? (form == ARRAYS ? array : object)(batch->text[k], LONGEST) : 0;
        for (uint32_t times = drawn(3) ? drawn(3) : 0; times > 0; times--) {
            length = damaged(batch->text[k], length);
        }
        batch->lengths[k] = (int64_t)length;
    }
}

typedef struct {
    float *rows;
    uint8_t *kinds;
    char *ids;
    int64_t written;
} Answer;

static void *exactly(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) {
        abort();
    }
    return memory;
}

/* The events from `first` to `last`, with buffers that have no byte to spare. */
static Answer scanned(const Looked *looked, const Batch *batch, int64_t first, int64_t last)
{
    size_t length = 0, count = (size_t)(last - first);
    for (int64_t k = first; k < last; k++) {
        length += (size_t)batch->lengths[k];
    }
    char *text = exactly(length + SCANNER_PADDING);
    char *end = text;
    for (int64_t k = first; k < last; k++) {
        memcpy(end, batch->text[k], (size_t)batch->lengths[k]);
        end += batch->lengths[k];
    }
    memset(end, 0, SCANNER_PADDING);
    Answer answer = {exactly(count * looked->width * sizeof(float)), exactly(count), exactly(length + count), 0};
    answer.written = scanner_scan(looked->scanner, text, batch->lengths + first, (int64_t)count, answer.rows, answer.kinds,
                                  answer.ids);
    free(text);
    return answer;
}

static void released(Answer *answer)
{
    free(answer->rows);
    free(answer->kinds);
    free(answer->ids);
}

static void check(int so, const char *what)
{
    if (!so) {
        fprintf(stderr, "not so: %s\n", what);
        abort();
    }
}

/* How many of a batch's events are certain. Each is scanned once more, alone. */
static int64_t played(const Looked *looked, const Batch *batch)
{
    Answer all = scanned(looked, batch, 0, batch->count);
    const char *id = all.ids;
    int64_t certain = 0;
    for (int64_t k = 0; k < batch->count; k++) {
        Answer one = scanned(looked, batch, k, k + 1);
        check(one.kinds[0] == all.kinds[k], "an event is the same alone and in company");
        check(!memcmp(id, one.ids, (size_t)one.written), "its id is the same");
        if (one.kinds[0] != UNCERTAIN) {
            check(!memcmp(one.rows, all.rows + k * looked->width, looked->width * sizeof(float)), "its row is the same");
            certain++;
        }
        id += one.written;
        released(&one);
    }
    check(id - all.ids == all.written, "the ids are those of the events");
    released(&all);
    return certain;
}

static Looked made(uint32_t form)
{
    char names[256] = "";
    uint32_t lengths[KNOWN];
    FieldSpec wanted[FIELDS] = {{ELEMENTS, 1, 0}};
    Looked looked = {form, form == ARRAYS ? ELEMENTS : 0, NULL};
    for (uint32_t k = 0; k < KNOWN; k++) {
        lengths[k] = (uint32_t)strlen(NAMES[k]);
        strcat(names, NAMES[k]);
    }
    for (uint32_t k = 0; k < FIELDS && form != ARRAYS; k++) {
        wanted[k] = (FieldSpec){elements_of(k), k % 3 == 0, (float)k};
        looked.width += elements_of(k) ? ELEMENTS : 1;
    }
    looked.scanner = scanner_new(form, form == ARRAYS ? 1 : FIELDS, names, lengths, wanted);
    return looked;
}

int main(int count, char **arguments)
{
    static Batch batch;
    long long events = 0, certain = 0;
    if (count != 3) {
        return 2;
    }
    state = strtoull(arguments[1], NULL, 10);
    time_t ends = time(NULL) + strtol(arguments[2], NULL, 10);
    for (uint32_t turn = 0; turn == 0 || time(NULL) < ends; turn++) {
        Looked looked = made(turn % 4 == 3 ? ARRAYS : OBJECTS_WITH_ID);
        check(looked.scanner != NULL, "there is memory");
        for (long long begin = events; events - begin < EVENTS_A_LOOK; events += batch.count) {
            draw_batch(&batch, looked.form);
            certain += played(&looked, &batch);
        }
        scanner_free(looked.scanner);
    }
    printf("{\"events\": %lld, \"certain\": %lld}\n", events, certain);
    return 0;
}
