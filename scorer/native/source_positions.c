/* Where the events of score records stand: `source` of each, which has a topic, a partition and an offset.
 *
 * A record is *certain* where every JSON parser must read the same place from it; it is read to its end. Any other is
 * UNCERTAIN_PLACE, which is no error: Python reads that record and says what is wrong with it, if anything is. Uncertain are
 * those that scanner.c names for strings and numbers, a second `source` or a second field in it, a field of another type, what
 * is nested deeper than DEPTH, and records of further places than the first LANES of a call.
 *
 * Ownership and lifetimes
 * -----------------------
 * places_scan borrows everything for the time of the call, keeps no pointer and allocates nothing. Text is read as in scanner.c,
 * which says why no read leaves it: SCANNER_PADDING zero bytes follow its last record, and a value is begun within its own
 * record only.
 */
#include "number.h"
#include "scanner.h"

enum { DEPTH = 8, LANES = 64, UNCERTAIN_PLACE = -1 };
enum { TOPIC = 1, PARTITION = 2, OFFSET = 4, WHOLE = TOPIC | PARTITION | OFFSET };

typedef struct {
    const char *topic;
    size_t length;
    int64_t partition, offset;
    unsigned seen; /* of TOPIC, PARTITION and OFFSET */
} Place;

/* The places of a call, and the first row of each. */
typedef struct {
    Place places[LANES];
    int64_t rows[LANES];
    int count, last;
} Lanes;

/* The end of a certain record, from behind the member that follows `source`. Records that were written together have all the
 * same end, and what is the same in the same place is read the same. */
typedef struct {
    const char *at;
    ptrdiff_t length; /* 0: none is known */
} Rest;

/* ---- values that nobody asks for ---- */

static bool scan_any(Cursor *cursor, int depth);

/* A key, and the colon behind it. */
static bool scan_name(Cursor *cursor, const char **name, size_t *length)
{
    if (!take(cursor, '"')) {
        return false;
    }
    *name = cursor->at;
    if (!scan_string(cursor)) {
        return false;
    }
    *length = (size_t)(cursor->at - *name - 1);
    return take(cursor, ':');
}

/* An object or an array, from its first bracket on. */
static bool scan_nested(Cursor *cursor, int depth)
{
    bool object = *cursor->at == '{';
    char closing = object ? '}' : ']';
    const char *name;
    size_t length;
    cursor->at++;
    if (take(cursor, closing)) {
        return true;
    }
    do {
        if ((object && !scan_name(cursor, &name, &length)) || !scan_any(cursor, depth)) {
            return false;
        }
    } while (take(cursor, ','));
    return take(cursor, closing);
}

static bool scan_any(Cursor *cursor, int depth)
{
    Number number;
    skip_space(cursor);
    if (cursor->at >= cursor->end) {
        return false;
    }
    switch (*cursor->at) {
    case '"':
        cursor->at++;
        return scan_string(cursor);
    case '{':
    case '[':
        return depth < DEPTH && scan_nested(cursor, depth + 1);
    case 'n':
        return take_word(cursor, "null", 4);
    case 't':
        return take_word(cursor, "true", 4);
    case 'f':
        return take_word(cursor, "false", 5);
    default:
        return scan_number(cursor, &number);
    }
}

/* ---- places ---- */

static inline bool is(const char *name, size_t length, const char *wanted, size_t wanted_length)
{
    return length == wanted_length && memcmp(name, wanted, wanted_length) == 0;
}

static bool scan_topic(Cursor *cursor, Place *place)
{
    if (!take(cursor, '"')) {
        return false;
    }
    place->topic = cursor->at;
    bool plain = scan_string(cursor);
    place->length = (size_t)(cursor->at - place->topic - 1);
    return plain;
}

static bool scan_whole(Cursor *cursor, int64_t *value)
{
    Number number;
    skip_space(cursor);
    if (cursor->at >= cursor->end || !scan_number(cursor, &number)) {
        return false;
    }
    *value = number.negative ? -(int64_t)number.digits : (int64_t)number.digits;
    return number.whole && !(number.negative && number.digits == 0);
}

/* A field of `source`, by its name. */
static bool scan_part(Cursor *cursor, const char *name, size_t length, Place *place)
{
    unsigned part = is(name, length, "topic", 5)       ? TOPIC
                    : is(name, length, "partition", 9) ? PARTITION
                    : is(name, length, "offset", 6)    ? OFFSET
                                                       : 0;
    if (place->seen & part) {
        return false;
    }
    place->seen |= part;
    switch (part) {
    case TOPIC:
        return scan_topic(cursor, place);
    case PARTITION:
        return scan_whole(cursor, &place->partition);
    case OFFSET:
        return scan_whole(cursor, &place->offset);
    default:
        return scan_any(cursor, 0);
    }
}

static bool scan_source(Cursor *cursor, Place *place)
{
    const char *name;
    size_t length;
    if (place->seen || !take(cursor, '{')) {
        return false;
    }
    do {
        if (!scan_name(cursor, &name, &length) || !scan_part(cursor, name, length, place)) {
            return false;
        }
    } while (take(cursor, ','));
    return take(cursor, '}') && place->seen == WHOLE;
}

static inline bool is_rest(const Rest *rest, const char *at, ptrdiff_t length)
{
    return rest->length && rest->length == length && memcmp(rest->at, at, (size_t)length) == 0;
}

/* A record; `rest` is that of the record before, and then its own. */
static bool scan_place(Cursor *cursor, Place *place, Rest *rest)
{
    const char *name, *behind = NULL;
    size_t length;
    skip_space(cursor);
    if (cursor->at >= cursor->end || !take(cursor, '{')) {
        return false;
    }
    do {
        bool placed = place->seen == WHOLE;
        if (!scan_name(cursor, &name, &length) ||
            !(is(name, length, "source", 6) ? scan_source(cursor, place) : scan_any(cursor, 0))) {
            return false;
        }
        if (placed && !behind) {
            behind = cursor->at;
            if (is_rest(rest, behind, cursor->end - behind)) {
                return true;
            }
        }
    } while (take(cursor, ','));
    if (!take(cursor, '}')) {
        return false;
    }
    skip_space(cursor);
    if (cursor->at != cursor->end || place->seen != WHOLE) {
        return false;
    }
    *rest = (Rest){behind, behind ? cursor->end - behind : 0};
    return true;
}

static bool alike(const Place *one, const Place *other)
{
    return one->partition == other->partition && one->length == other->length &&
           memcmp(one->topic, other->topic, one->length) == 0;
}

/* The first row of this topic and partition; records come in runs of one place. */
static int64_t first_of(Lanes *lanes, const Place *place, int64_t row)
{
    if (lanes->count && alike(&lanes->places[lanes->last], place)) {
        return lanes->rows[lanes->last];
    }
    for (int at = 0; at < lanes->count; at++) {
        if (alike(&lanes->places[at], place)) {
            lanes->last = at;
            return lanes->rows[at];
        }
    }
    if (lanes->count == LANES) {
        return UNCERTAIN_PLACE;
    }
    lanes->last = lanes->count++;
    lanes->places[lanes->last] = *place;
    lanes->rows[lanes->last] = row;
    return row;
}

/* For the records from `starts` to `ends` in a text: the offset of each event, and the first record whose event stands in the
 * same topic and partition, UNCERTAIN_PLACE where the record is not certain. */
void places_scan(const char *text, const int64_t *starts, const int64_t *ends, int64_t count, int64_t *firsts, int64_t *offsets)
{
    Lanes lanes = {.count = 0};
    Rest rest = {text, 0};
    for (int64_t row = 0; row < count; row++) {
        Cursor cursor = {text + starts[row], text + ends[row]};
        Place place = {.topic = text};
        bool certain = scan_place(&cursor, &place, &rest);
        firsts[row] = certain ? first_of(&lanes, &place, row) : UNCERTAIN_PLACE;
        offsets[row] = place.offset;
    }
}
