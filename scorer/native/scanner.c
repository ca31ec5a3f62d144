/* Scan JSON objects of numbers and arrays of numbers to rows of float32, if the result is certain.
 *
 * An event is *certain* if every JSON parser must read the same values from it, and the float32 of each number has the same
 * bits as its rounded float64. Any other event is UNCERTAIN, which is not an error: Python's decoder reads that event and
 * reports the error, if it has one. So this file has no error messages, and it stops at the first doubt. Uncertain are:
 * escapes, control characters and bytes above 0x7e in strings; a repeated listed field; values of another type; arrays of another
 * length, nested arrays, and arrays with other values than numbers; objects as values; a required field that is null or
 * missing; the integer -0; more than 18 significant digits; powers of ten beyond 22; numbers whose float64 may be on the wrong
 * side of a float32 midpoint; the empty object; text after the object.
 *
 * text.h scans words and strings, number.h numbers; fields.h and fields.c define the fields; this file scans values and events.
 *
 * Ownership and lifetimes
 * -----------------------
 * scanner_new copies its arguments and returns the only state that outlives a call, or NULL if memory is exhausted. The caller
 * owns it and frees it with scanner_free, once. There are no globals, and scanning allocates no memory.
 *
 * scanner_scan borrows its arguments for the time of the call and keeps no pointer:
 *
 *   text     read only. The concatenated events, then SCANNER_PADDING zero bytes.
 *   lengths  read only. The bytes of each event; their sum is the length of the text without its padding.
 *   rows     written: `events` rows of `width` floats. The row of an uncertain event is undefined.
 *   kinds    written: `events` bytes.
 *   ids      written: the id of each event and a newline; only the newline if there is no id or the event is uncertain. Its size
 *            must be the length of the text plus one byte per event. An id contains no newline, which is a control character.
 *
 * A Scanner remembers the order of the keys of the previous event, so two threads must not use it at once. Python calls it with
 * the interpreter's lock held.
 *
 * Why no read leaves the text
 * ---------------------------
 * Text is read in words of 8 bytes, which may extend past the end of an event into the next one, and past the last event into
 * the padding. A zero byte is not a digit, not part of a name and not text, so each function that reads words stops at the
 * first zero. Each member of an object, element of an array and further word of a string starts within its own event. So one
 * value can extend into the next event, but not beyond. An event is certain only if its closing bracket and the white space
 * after it end exactly at its own end: bytes of the next event are never part of a result.
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
    if (accept_word(cursor, "null", 4)) {
        return true;
    }
    bool whole = scan_number(cursor, &number) && number.whole && !(number.negative && number.digits == 0);
    id->length = (size_t)(cursor->at - id->start);
    id->kind = INTEGER_ID;
    return whole;
}

/* Skip the value of a field that is not listed. */
static bool scan_other(Cursor *cursor)
{
    Number number;
    if (*cursor->at == '"') {
        cursor->at++;
        return scan_string(cursor);
    }
    return accept_word(cursor, "null", 4) || accept_word(cursor, "true", 4) || accept_word(cursor, "false", 5) ||
           scan_number(cursor, &number);
}

/* Scan an array with the length of the field. */
static bool scan_array(Cursor *cursor, const Field *field, float *out)
{
    if (!accept(cursor, '[')) {
        return false;
    }
    for (uint32_t at = 0; at < field->numbers; at++) {
        if (at > 0 && !accept(cursor, ',')) {
            return false;
        }
        skip_space(cursor);
        if (cursor->at >= cursor->end || !scan_float32(cursor, out + at)) {
            return false;
        }
    }
    return accept(cursor, ']');
}

static void fill(const Field *field, float *row)
{
    for (uint32_t at = 0; at < field->numbers; at++) {
        row[field->column + at] = field->absent;
    }
}

static inline bool scan_value(Scanner *scanner, Cursor *cursor, uint32_t which, float *row, Id *id)
{
    if (which == scanner->field_count) {
        return scan_other(cursor);
    }
    Field *field = &scanner->fields[which];
    if (field->seen == scanner->event) {
        return false;
    }
    field->seen = scanner->event;
    if (which == scanner->number_fields) {
        return scan_id(cursor, id);
    }
    if (*cursor->at == 'n') {
        fill(field, row);
        return !field->required && accept_word(cursor, "null", 4);
    }
    float *out = row + field->column;
    return field->array ? scan_array(cursor, field, out) : scan_float32(cursor, out);
}

/* ---- events ---- */

/* Write the defaults of the fields that are missing in an event; false if one of them is required. */
static bool fill_absent(const Scanner *scanner, float *row)
{
    for (uint32_t which = 0; which < scanner->number_fields; which++) {
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

/* Scan an event that is an array. */
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
    uint32_t before = scanner->field_count, which = 0, numbers = 0;
    scanner->event++;
    skip_space(cursor);
    if (!accept(cursor, '{')) {
        return false;
    }
    do {
        if (!accept(cursor, '"') || !scan_key(scanner, cursor, &before, &which) || !accept(cursor, ':')) {
            return false;
        }
        skip_space(cursor);
        if (cursor->at >= cursor->end || !scan_value(scanner, cursor, which, row, id)) {
            return false;
        }
        numbers += which < scanner->number_fields;
    } while (accept(cursor, ',') && cursor->at < cursor->end);
    if (!accept(cursor, '}')) {
        return false;
    }
    skip_space(cursor);
    return cursor->at == cursor->end && (numbers == scanner->number_fields || fill_absent(scanner, row));
}

/* Scan events. Return the number of bytes written to `ids`. */
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
