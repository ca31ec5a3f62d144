/* JSON objects of numbers, and of arrays of them, to rows of float32: certain, or left to Python.
 *
 * An event is *certain* where every JSON parser must read the same from it, and the float32 of each number has the very bits
 * that its float64 gives when it is rounded once more. Everything else is UNCERTAIN, which is no error: Python's decoder reads
 * that event and says what is wrong with it, if anything is. So this file has no error messages, and whenever it is in doubt
 * it stops. Uncertain are: escapes, control characters and bytes above 0x7e in strings; a known field that stands there
 * twice; values of another type; arrays of another length, or in arrays, or with anything but numbers; objects; a required
 * field that is null or missing; the integer -0; more than 18 significant digits; powers of ten beyond 22; numbers whose
 * float64 may lie on the wrong side of a float32 midpoint; the empty object; anything after the object.
 *
 * text.h has words and strings, number.h numbers, fields.h and fields.c what is asked for, this file values and events.
 *
 * Ownership and lifetimes
 * -----------------------
 * scanner_new copies the names and the defaults that it is given and returns the one block of state that outlives a call.
 * The caller owns that block and ends it with scanner_free, once. It is NULL where memory was short. There are no globals,
 * and nothing is allocated while events are scanned.
 *
 * scanner_scan borrows everything for the time of the call and keeps no pointer:
 *
 *   text     read only. The events without anything between them, then SCANNER_PADDING zero bytes.
 *   lengths  read only. The bytes of each event; their sum is the length of the text without its padding.
 *   rows     written: `events` rows of `width` floats. The row of an uncertain event holds anything.
 *   kinds    written: `events` bytes.
 *   ids      written: the id of each event and a newline, the newline alone where there is no id or no certainty. It needs
 *            room for the length of the text and one byte more an event. An id holds no newline: that is a control character.
 *
 * A Scanner remembers from event to event in which order the keys came, so one Scanner must not be used by two threads at
 * once. Python calls it with the interpreter's lock held.
 *
 * Why no read leaves the text
 * ---------------------------
 * Text is read in words of 8 bytes, which may reach past the end of an event into its neighbour, and past the last event into
 * the padding. A zero byte is no digit, no part of a name and no text, so every reader of words stops at the first one. A
 * member of an object, each element of an array, and each further word of a string, is begun within its own event only; one
 * value can therefore lead into the neighbour, but no further. An event is certain only where its closing bracket and the
 * white space behind it end exactly at its own end: what was read of a neighbour never counts.
 */
#include "scanner.h"

#include "fields.h"
#include "number.h"

typedef struct {
    const char *start;
    size_t length;
    uint8_t kind;
} Id;

/* ---- values ---- */

static bool scan_id(Cursor *cursor, Id *id)
{
    Number number;
    id->start = cursor->at;
    if (*cursor->at == '"') {
        id->start = ++cursor->at;
        bool plain = scan_string(cursor);
        id->length = (size_t)(cursor->at - id->start - 1);
        id->kind = TEXT_ID;
        return plain;
    }
    if (take_word(cursor, "null", 4)) {
        return true;
    }
    bool whole = scan_number(cursor, &number) && number.whole && !(number.negative && number.digits == 0);
    id->length = (size_t)(cursor->at - id->start);
    id->kind = INTEGER_ID;
    return whole;
}

/* The value of a field that nobody asked for. */
static bool scan_other(Cursor *cursor)
{
    Number number;
    if (*cursor->at == '"') {
        cursor->at++;
        return scan_string(cursor);
    }
    return take_word(cursor, "null", 4) || take_word(cursor, "true", 4) || take_word(cursor, "false", 5) ||
           scan_number(cursor, &number);
}

/* As many numbers as a field has. */
static bool scan_array(Cursor *cursor, const Field *field, float *out)
{
    if (!take(cursor, '[')) {
        return false;
    }
    for (uint32_t at = 0; at < field->numbers; at++) {
        if (at > 0 && !take(cursor, ',')) {
            return false;
        }
        skip_space(cursor);
        if (cursor->at >= cursor->end || !scan_float32(cursor, out + at)) {
            return false;
        }
    }
    return take(cursor, ']');
}

static void fill(const Field *field, float *row)
{
    for (uint32_t at = 0; at < field->numbers; at++) {
        row[field->place + at] = field->absent;
    }
}

static inline bool scan_value(Scanner *scanner, Cursor *cursor, uint32_t which, float *row, Id *id)
{
    if (which == scanner->known) {
        return scan_other(cursor);
    }
    Field *field = &scanner->fields[which];
    if (field->seen == scanner->event) {
        return false;
    }
    field->seen = scanner->event;
    if (which == scanner->count) {
        return scan_id(cursor, id);
    }
    if (*cursor->at == 'n') {
        fill(field, row);
        return !field->required && take_word(cursor, "null", 4);
    }
    float *out = row + field->place;
    return field->array ? scan_array(cursor, field, out) : scan_float32(cursor, out);
}

/* ---- events ---- */

/* What stands for the fields that an event lacks; false where one of them is required. */
static bool fill_absent(const Scanner *scanner, float *row)
{
    for (uint32_t which = 0; which < scanner->count; which++) {
        const Field *field = &scanner->fields[which];
        if (field->seen != scanner->event) {
            if (field->required) {
                return false;
            }
            fill(field, row);
        }
    }
    return true;
}

/* An event that is an array. */
static bool scan_bare(const Scanner *scanner, Cursor *cursor, float *row)
{
    if (!scan_array(cursor, &scanner->fields[0], row)) {
        return false;
    }
    skip_space(cursor);
    return cursor->at == cursor->end;
}

static bool scan_object(Scanner *scanner, Cursor *cursor, float *row, Id *id)
{
    uint32_t before = scanner->known, found = 0, numbers = 0;
    scanner->event++;
    skip_space(cursor);
    if (!take(cursor, '{')) {
        return false;
    }
    do {
        if (!take(cursor, '"') || !scan_key(scanner, cursor, &before, &found) || !take(cursor, ':')) {
            return false;
        }
        skip_space(cursor);
        if (cursor->at >= cursor->end || !scan_value(scanner, cursor, found, row, id)) {
            return false;
        }
        numbers += found < scanner->count;
    } while (take(cursor, ',') && cursor->at < cursor->end);
    if (!take(cursor, '}')) {
        return false;
    }
    skip_space(cursor);
    return cursor->at == cursor->end && (numbers == scanner->count || fill_absent(scanner, row));
}

/* Scan events; how many bytes of `ids` were written. */
int64_t scanner_scan(Scanner *scanner, const char *text, const int64_t *lengths, int64_t events, float *rows,
                     uint8_t *kinds, char *ids)
{
    char *written = ids;
    for (int64_t event = 0; event < events; event++) {
        Cursor cursor = {text, text + lengths[event]};
        Id id = {text, 0, NO_ID};
        bool certain = scanner->bare ? scan_bare(scanner, &cursor, rows) : scan_object(scanner, &cursor, rows, &id);
        kinds[event] = certain ? id.kind : UNCERTAIN;
        if (certain && id.length) {
            memcpy(written, id.start, id.length);
            written += id.length;
        }
        *written++ = '\n';
        text += lengths[event];
        rows += scanner->width;
    }
    return written - ids;
}
