/* Scan the source positions of score records: the topic, partition and offset in the field `source` of each.
 *
 * A record is *certain* if every JSON parser must read the same position from it; it is scanned to its end. Any other record is
 * UNCERTAIN_PLACE, which is not an error: Python reads that record and reports the error, if it has one. Uncertain are: the
 * strings and numbers that scanner.c lists; a repeated `source` or a repeated field in it; a field of another type; values
 * nested deeper than DEPTH; and records of other partitions than the first LANES of a call.
 *
 * Ownership and lifetimes
 * -----------------------
 * source_positions_scan borrows its arguments for the time of the call, keeps no pointer and allocates no memory. Text is read
 * as in scanner.c, which explains why no read leaves it: SCANNER_PADDING zero bytes follow the last record, and each value
 * starts within its own record.
 */
#include "number.h"
#include "scanner.h"

enum { DEPTH = 8, LANES = 64, UNCERTAIN_PLACE = -1 };
enum { TOPIC = 1, PARTITION = 2, OFFSET = 4, WHOLE = TOPIC | PARTITION | OFFSET };

typedef struct {
    const char *topic;
    size_t length;
    int64_t partition, offset;
    unsigned seen; /* the set of TOPIC, PARTITION and OFFSET */
} SourcePosition;

/* The partitions of a call, each with the position in its first record and the row of that record. */
typedef struct {
    SourcePosition positions[LANES];
    int64_t rows[LANES];
    int count, last;
} Lanes;

/* The end of a certain record, after the member that follows `source`. Records of one batch usually have equal ends. An equal
 * end is not scanned again. */
typedef struct {
    const char *at;
    ptrdiff_t length; /* 0: there is none yet */
} Rest;

/* ---- skipped values ---- */

static bool scan_any(Cursor *cursor, int depth);

/* Scan a key and its colon. */
static bool scan_name(Cursor *cursor, const char **name, size_t *length)
{
    if (!accept(cursor, '"')) {
        return false;
    }
    *name = cursor->at;
    if (!scan_string(cursor)) {
        return false;
    }
    *length = (size_t)(cursor->at - *name - 1);
    return accept(cursor, ':');
}

/* Skip an object or an array, from its opening bracket. */
static bool scan_nested(Cursor *cursor, int depth)
{
    bool object = *cursor->at == '{';
    char closing = object ? '}' : ']';
    const char *name;
    size_t length;
    cursor->at++;
    if (accept(cursor, closing)) {
        return true;
    }
    do {
        if ((object && !scan_name(cursor, &name, &length)) || !scan_any(cursor, depth)) {
            return false;
        }
    } while (accept(cursor, ','));
    return accept(cursor, closing);
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
        return accept_word(cursor, "null", 4);
    case 't':
        return accept_word(cursor, "true", 4);
    case 'f':
        return accept_word(cursor, "false", 5);
    default:
        return scan_number(cursor, &number);
    }
}

/* ---- positions ---- */

static inline bool equals(const char *name, size_t length, const char *wanted, size_t wanted_length)
{
    return length == wanted_length && memcmp(name, wanted, wanted_length) == 0;
}

static bool scan_topic(Cursor *cursor, SourcePosition *position)
{
    if (!accept(cursor, '"')) {
        return false;
    }
    position->topic = cursor->at;
    bool plain = scan_string(cursor);
    position->length = (size_t)(cursor->at - position->topic - 1);
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

/* Scan a field of `source`. */
static bool scan_part(Cursor *cursor, const char *name, size_t length, SourcePosition *position)
{
    unsigned part = equals(name, length, "topic", 5)       ? TOPIC
                    : equals(name, length, "partition", 9) ? PARTITION
                    : equals(name, length, "offset", 6)    ? OFFSET
                                                       : 0;
    if (position->seen & part) {
        return false;
    }
    position->seen |= part;
    switch (part) {
    case TOPIC:
        return scan_topic(cursor, position);
    case PARTITION:
        return scan_whole(cursor, &position->partition);
    case OFFSET:
        return scan_whole(cursor, &position->offset);
    default:
        return scan_any(cursor, 0);
    }
}

static bool scan_source(Cursor *cursor, SourcePosition *position)
{
    const char *name;
    size_t length;
    if (position->seen || !accept(cursor, '{')) {
        return false;
    }
    do {
        if (!scan_name(cursor, &name, &length) || !scan_part(cursor, name, length, position)) {
            return false;
        }
    } while (accept(cursor, ','));
    return accept(cursor, '}') && position->seen == WHOLE;
}

static inline bool is_rest(const Rest *rest, const char *at, ptrdiff_t length)
{
    return rest->length && rest->length == length && memcmp(rest->at, at, (size_t)length) == 0;
}

/* Scan a record. `rest` is the end of the last certain record, and is repositioned by the end of this one. */
static bool scan_record(Cursor *cursor, SourcePosition *position, Rest *rest)
{
    const char *name, *tail = NULL;
    size_t length;
    skip_space(cursor);
    if (cursor->at >= cursor->end || !accept(cursor, '{')) {
        return false;
    }
    do {
        bool positioned = position->seen == WHOLE;
        if (!scan_name(cursor, &name, &length) ||
            !(equals(name, length, "source", 6) ? scan_source(cursor, position) : scan_any(cursor, 0))) {
            return false;
        }
        if (positioned && !tail) {
            tail = cursor->at;
            if (is_rest(rest, tail, cursor->end - tail)) {
                return true;
            }
        }
    } while (accept(cursor, ','));
    if (!accept(cursor, '}')) {
        return false;
    }
    skip_space(cursor);
    if (cursor->at != cursor->end || position->seen != WHOLE) {
        return false;
    }
    *rest = (Rest){tail, tail ? cursor->end - tail : 0};
    return true;
}

static bool same_partition(const SourcePosition *one, const SourcePosition *other)
{
    return one->partition == other->partition && one->length == other->length &&
           memcmp(one->topic, other->topic, one->length) == 0;
}

/* Return the first row with this topic and partition; UNCERTAIN_PLACE if there are too many partitions. The partition of the
 * previous record is compared first: consecutive records often share it. */
static int64_t first_of(Lanes *lanes, const SourcePosition *position, int64_t row)
{
    if (lanes->count && same_partition(&lanes->positions[lanes->last], position)) {
        return lanes->rows[lanes->last];
    }
    for (int at = 0; at < lanes->count; at++) {
        if (same_partition(&lanes->positions[at], position)) {
            lanes->last = at;
            return lanes->rows[at];
        }
    }
    if (lanes->count == LANES) {
        return UNCERTAIN_PLACE;
    }
    lanes->last = lanes->count++;
    lanes->positions[lanes->last] = *position;
    lanes->rows[lanes->last] = row;
    return row;
}

/* Scan the records text[starts[i], ends[i]). Write the offset of each event, and the index of the first record with the same
 * topic and partition, or UNCERTAIN_PLACE if the record is not certain. */
void source_positions_scan(const char *text, const int64_t *starts, const int64_t *ends, int64_t count, int64_t *firsts,
                           int64_t *offsets)
{
    Lanes lanes = {.count = 0};
    Rest rest = {text, 0};
    for (int64_t row = 0; row < count; row++) {
        Cursor cursor = {text + starts[row], text + ends[row]};
        SourcePosition position = {.topic = text};
        bool certain = scan_record(&cursor, &position, &rest);
        firsts[row] = certain ? first_of(&lanes, &position, row) : UNCERTAIN_PLACE;
        offsets[row] = position.offset;
    }
}
