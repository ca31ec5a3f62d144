/* JSON objects of numbers to rows of float32: certain, or left to Python.
 *
 * An event is *certain* where every JSON parser must read the same from it, and the float32 of each number has the very bits
 * that its float64 gives when it is rounded once more. Everything else is UNCERTAIN, which is no error: Python's decoder reads
 * that event and says what is wrong with it, if anything is. So this file has no error messages, and whenever it is in doubt
 * it stops. Uncertain are: escapes, control characters and bytes above 0x7e in strings; a known field that stands there
 * twice; values of another type; arrays and objects; a required field that is null or missing; the integer -0; more than 18
 * significant digits; powers of ten beyond 22; numbers whose float64 may lie on the wrong side of a float32 midpoint; the
 * empty object; anything after the object.
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
 *   rows     written: `events` rows of `count` floats. The row of an uncertain event holds anything.
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
 * member of an object, and each further word of a string, is begun within its own event only; one value can therefore lead
 * into the neighbour, but no further. An event is certain only where its closing brace and the white space behind it end
 * exactly at its own end: what was read of a neighbour never counts.
 */
#include "scanner.h"

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read as little-endian"
#endif
#if FLT_EVAL_METHOD != 0
#error "float64 has to be computed as float64"
#endif
#ifndef SCANNER_SOURCE
#define SCANNER_SOURCE ""
#endif

#define EACH_BYTE 0x0101010101010101u
#define HIGH_BITS 0x8080808080808080u

enum {
    WORD = 8,
    DIGITS = 18,  /* significant digits: they fit an int64_t */
    POWER = 22,   /* 10^22 is the largest power of ten that is a float64 */
    PLACES = 48,  /* digits after the point, with leading zeros */
};

typedef struct {
    const char *name;   /* with its closing quotation mark, then zeros to a whole number of words */
    uint32_t length;    /* of that, with the quotation mark */
    uint64_t last;      /* the bits of its last word that belong to it */
    uint64_t seen;      /* the newest event that had it */
    float absent;       /* what stands for it where it is absent or null */
    bool required;
} Field;

struct Scanner {
    uint32_t count;     /* fields of numbers */
    uint32_t known;     /* fields in all: the id, if there is one, is the one after the numbers */
    uint32_t slots;     /* of `table` less one: a mask */
    uint64_t event;     /* the number of the event in hand, from 1 */
    Field *fields;      /* `known` */
    uint32_t *after;    /* `known` + 1: the field that came last after each; the last entry: at the beginning */
    uint32_t *table;    /* by hash: the number of a field, or `known` where a slot is free */
    char *names;
};

typedef struct {
    const char *at;
    const char *end;
} Cursor;

typedef struct {
    uint64_t digits;
    int power;          /* the number is digits * 10^power */
    bool negative;
    bool whole;         /* neither a point nor an exponent */
} Number;

typedef struct {
    const char *start;
    size_t length;
    uint8_t kind;
} Id;

static const double TENS[POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
static const uint64_t WHOLE_TENS[WORD + 1] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
/* Below this a number has room for so many digits more. */
static const uint64_t ROOM[WORD + 1] = {1000000000000000000u, 100000000000000000u, 10000000000000000u,
                                        1000000000000000u,    100000000000000u,    10000000000000u,
                                        1000000000000u,       100000000000u,       10000000000u};

/* ---- words ---- */

static inline uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, WORD);
    return word;
}

/* The place of the lowest byte that has its high bit set; some byte has. */
static inline unsigned lowest(uint64_t marks)
{
    return (unsigned)__builtin_ctzll(marks) / 8;
}

/* Marks bytes that end a plain run of text: quotation mark, backslash, control character, DEL, above. The lowest is right. */
static inline uint64_t text_marks(uint64_t word)
{
    uint64_t quote = word ^ (EACH_BYTE * '"');
    uint64_t backslash = word ^ (EACH_BYTE * '\\');
    uint64_t found = ((quote - EACH_BYTE) & ~quote) | ((backslash - EACH_BYTE) & ~backslash);
    return (found | (word - EACH_BYTE * 0x20) | (word + EACH_BYTE) | word) & HIGH_BITS;
}

/* The value of up to 8 digits that stand at a place, and how many there are. */
static inline unsigned digit_run(const char *at, uint64_t *value)
{
    uint64_t word = word_at(at);
    uint64_t digits = word - EACH_BYTE * '0';
    uint64_t other = ((word + EACH_BYTE * (0x7f - '9')) | digits) & HIGH_BITS;
    unsigned count = other ? lowest(other) : WORD;
    unsigned half = 4 * (WORD - count); /* in two steps: a shift by 64 is undefined */
    digits = digits << half << half;
    digits = digits * 10 + (digits >> 8);
    *value = (((digits & 0x000000ff000000ffu) * 0x000f424000000064u) +
              (((digits >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u)) >> 32;
    return count;
}

/* ---- tokens ---- */

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline void skip_space(Cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\r' || *cursor->at == '\t')) {
        cursor->at++;
    }
}

/* The byte after white space, passed over if it is this one. */
static inline bool take(Cursor *cursor, char wanted)
{
    if (*cursor->at != wanted) {
        skip_space(cursor);
        if (*cursor->at != wanted) {
            return false;
        }
    }
    cursor->at++;
    return true;
}

static inline bool take_word(Cursor *cursor, const char *wanted, size_t length)
{
    if (memcmp(cursor->at, wanted, length) != 0) {
        return false;
    }
    cursor->at += length;
    return true;
}

/* The rest of a string after its first quotation mark: the cursor goes past the last one. */
static bool scan_string(Cursor *cursor)
{
    const char *at = cursor->at;
    while (at < cursor->end) {
        uint64_t marks = text_marks(word_at(at));
        if (marks) {
            at += lowest(marks);
            cursor->at = at + 1;
            return *at == '"';
        }
        at += WORD;
    }
    return false;
}

/* Digits at `*at` are appended to a number; how many, or -1 where they are too many. */
static inline int append_digits(const char **at, uint64_t *number)
{
    int count = 0;
    for (;;) {
        uint64_t value;
        unsigned run = digit_run(*at, &value);
        if (*number >= ROOM[run] || count > PLACES) {
            return -1;
        }
        *number = *number * WHOLE_TENS[run] + value;
        *at += run;
        count += (int)run;
        if (run < WORD) {
            return count;
        }
    }
}

/* The rest of an exponent after its letter, added to a power. */
static bool scan_exponent(const char **at, int *power)
{
    bool negative = **at == '-';
    if (negative || **at == '+') {
        (*at)++;
    }
    int value = 0, count = 0;
    while (is_digit(**at) && count < 4) {
        value = value * 10 + (*(*at)++ - '0');
        count++;
    }
    *power += negative ? -value : value;
    return count > 0 && count < 4;
}

/* A number by JSON's grammar. What follows it is not looked at. */
static inline bool scan_number(Cursor *cursor, Number *number)
{
    const char *at = cursor->at;
    number->negative = *at == '-';
    at += number->negative;
    if (!is_digit(*at)) {
        return false;
    }
    number->digits = (uint64_t)(*at - '0');
    number->power = 0;
    at++;
    if (is_digit(*at) && (number->digits == 0 || append_digits(&at, &number->digits) < 0)) {
        return false;
    }
    number->whole = *at != '.' && *at != 'e' && *at != 'E';
    if (*at == '.') {
        at++;
        int places = append_digits(&at, &number->digits);
        if (places <= 0) {
            return false;
        }
        number->power = -places;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        if (!scan_exponent(&at, &number->power)) {
            return false;
        }
    }
    cursor->at = at;
    return number->power >= -POWER && number->power <= POWER;
}

/* Whether the float32 next to a float64 is the same for all float64 within 8 units in the last place. It has 29 bits less. */
static bool far_from_midpoint(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t cut = bits & 0x1fffffffu;
    return value < 1e38 && (cut < 0x10000000u - 8 || cut > 0x10000000u + 8);
}

/* The float32 of a number, as rounding its nearest float64 once more gives it.
 *
 * Up to 2^53 digits and power are float64 without an error, so that one multiplication or division is correctly rounded
 * (Clinger, 1990). Above, the digits are rounded too: the result is at most 3 units in the last place off. */
static inline bool as_float32(const Number *number, float *out)
{
    if (number->digits == 0 && number->negative && number->whole) {
        return false;
    }
    double value = (double)(int64_t)number->digits;
    value = number->power < 0 ? value / TENS[-number->power] : value * TENS[number->power];
    if (number->digits > (uint64_t)1 << 53 && !far_from_midpoint(value)) {
        return false;
    }
    *out = (float)(number->negative ? -value : value);
    return true;
}

/* ---- fields ---- */

static inline uint32_t slot_of(const Scanner *scanner, uint64_t first, uint64_t last, uint32_t length)
{
    uint64_t hash = (first ^ (last * 0x9e3779b97f4a7c15u) ^ length) * 0xd6e8feb86659fd93u;
    return (uint32_t)(hash >> 32) & scanner->slots;
}

/* The slot where a name is looked for first; `length` with its quotation mark. */
static uint32_t first_slot(const Scanner *scanner, const char *name, uint32_t length)
{
    if (length < WORD) {
        return slot_of(scanner, word_at(name) & (~(uint64_t)0 >> (8 * (WORD - length))), 0, length);
    }
    return slot_of(scanner, word_at(name), word_at(name + length - WORD), length);
}

/* Whether a field's name and its quotation mark stand at a place. */
static inline bool is_named(const Field *field, const char *at, const char *end)
{
    if (end - at < (ptrdiff_t)field->length) {
        return false;
    }
    uint32_t offset = 0;
    for (; offset + WORD < field->length; offset += WORD) {
        if (word_at(at + offset) != word_at(field->name + offset)) {
            return false;
        }
    }
    return ((word_at(at + offset) ^ word_at(field->name + offset)) & field->last) == 0;
}

/* A key after its first quotation mark: the number of its field, or `known` for a field that nobody asked for. */
static bool look_up(const Scanner *scanner, Cursor *cursor, uint32_t *found)
{
    const char *name = cursor->at;
    if (!scan_string(cursor)) {
        return false;
    }
    uint32_t length = (uint32_t)(cursor->at - name);
    uint32_t slot = first_slot(scanner, name, length);
    while (scanner->table[slot] < scanner->known) {
        const Field *field = &scanner->fields[scanner->table[slot]];
        if (field->length == length && memcmp(field->name, name, length) == 0) {
            break;
        }
        slot = (slot + 1) & scanner->slots;
    }
    *found = scanner->table[slot];
    return true;
}

/* The same, where the key is expected that followed `*before` last time. Names that are known become `*before`. */
static inline bool scan_key(Scanner *scanner, Cursor *cursor, uint32_t *before, uint32_t *found)
{
    uint32_t expected = scanner->after[*before];
    if (expected < scanner->known && is_named(&scanner->fields[expected], cursor->at, cursor->end)) {
        cursor->at += scanner->fields[expected].length;
        *found = *before = expected;
        return true;
    }
    if (!look_up(scanner, cursor, found)) {
        return false;
    }
    if (*found < scanner->known) {
        scanner->after[*before] = *found;
        *before = *found;
    }
    return true;
}

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
        row[which] = field->absent;
        return !field->required && take_word(cursor, "null", 4);
    }
    Number number;
    return scan_number(cursor, &number) && as_float32(&number, &row[which]);
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
            row[which] = field->absent;
        }
    }
    return true;
}

static bool scan_event(Scanner *scanner, Cursor *cursor, float *row, Id *id)
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
        bool certain = scan_event(scanner, &cursor, rows, &id);
        kinds[event] = certain ? id.kind : UNCERTAIN;
        if (certain && id.length) {
            memcpy(written, id.start, id.length);
            written += id.length;
        }
        *written++ = '\n';
        text += lengths[event];
        rows += scanner->count;
    }
    return written - ids;
}

/* ---- making and ending one ---- */

/* The source that this was compiled from. */
const char *scanner_source(void)
{
    return SCANNER_SOURCE;
}

void scanner_free(Scanner *scanner)
{
    if (scanner) {
        free(scanner->fields);
        free(scanner->after);
        free(scanner->table);
        free(scanner->names);
        free(scanner);
    }
}

static size_t padded(uint32_t length)
{
    return ((size_t)length + 1 + WORD) & ~(size_t)(WORD - 1);
}

/* The names, each with its quotation mark and its padding, and the table that finds them. */
static void take_names(Scanner *scanner, const char *names, const uint32_t *lengths)
{
    char *copy = scanner->names;
    for (uint32_t which = 0; which < scanner->known; which++) {
        Field *field = &scanner->fields[which];
        memcpy(copy, names, lengths[which]);
        copy[lengths[which]] = '"';
        field->name = copy;
        field->length = lengths[which] + 1;
        field->last = ~(uint64_t)0 >> (8 * (WORD - 1 - (field->length - 1) % WORD));
        copy += padded(lengths[which]);
        names += lengths[which];
        uint32_t slot = first_slot(scanner, field->name, field->length);
        while (scanner->table[slot] < scanner->known) {
            slot = (slot + 1) & scanner->slots;
        }
        scanner->table[slot] = which;
    }
}

static Scanner *allocated(uint32_t known, const uint32_t *lengths)
{
    Scanner *scanner = calloc(1, sizeof *scanner);
    size_t bytes = 0, slots = 4;
    for (uint32_t which = 0; which < known; which++) {
        bytes += padded(lengths[which]);
    }
    while (slots < (size_t)known * 2) {
        slots *= 2;
    }
    if (!scanner) {
        return NULL;
    }
    scanner->known = known;
    scanner->slots = (uint32_t)slots - 1;
    scanner->fields = calloc((size_t)known + 1, sizeof *scanner->fields);
    scanner->after = calloc((size_t)known + 1, sizeof *scanner->after);
    scanner->table = calloc(slots, sizeof *scanner->table);
    scanner->names = calloc(1, bytes + WORD);
    if (!scanner->fields || !scanner->after || !scanner->table || !scanner->names) {
        scanner_free(scanner);
        return NULL;
    }
    for (size_t slot = 0; slot < slots; slot++) {
        scanner->table[slot] = known;
    }
    return scanner;
}

/* A scanner for `count` fields of numbers and, `with_id`, one more for the id, or NULL where memory is short.
 *
 * `names` follow each other without anything between them, the id's last. Each has only characters from 0x20 to 0x7e, no
 * quotation mark and no backslash, and stands there once. `required` and `absent` are those of the numbers. */
Scanner *scanner_new(uint32_t count, uint32_t with_id, const char *names, const uint32_t *lengths,
                     const uint8_t *required, const float *absent)
{
    uint32_t known = count + (with_id ? 1 : 0);
    Scanner *scanner = allocated(known, lengths);
    if (!scanner) {
        return NULL;
    }
    scanner->count = count;
    for (uint32_t which = 0; which < count; which++) {
        scanner->fields[which].required = required[which] != 0;
        scanner->fields[which].absent = absent[which];
    }
    for (uint32_t which = 0; which < known; which++) {
        scanner->after[which] = (which + 1) % known;
    }
    scanner->after[known] = known - 1;
    take_names(scanner, names, lengths);
    return scanner;
}
