/* The fields of a Scanner, and the lookup of a field by its key. */
#ifndef SCORESTREAM_FIELDS_H
#define SCORESTREAM_FIELDS_H

#include "scanner.h"
#include "text.h"

typedef struct {
    const char *name;   /* with its closing quotation mark, padded with zeros to whole words */
    uint32_t length;    /* of the name with the quotation mark */
    uint64_t last;      /* mask of the bytes of the last word that belong to the name */
    uint64_t seen;      /* the number of the last event that had this field */
    uint32_t column;    /* the column of its first number in a row */
    uint32_t numbers;   /* the number of its columns: 1 if it is not an array */
    float absent;       /* the value of each column if the field is absent or null */
    bool required;
    bool array;
} Field;

struct Scanner {
    bool bare;              /* each event is the array of the only field */
    uint32_t width;         /* columns of a row */
    uint32_t number_fields; /* the number of numeric fields */
    uint32_t field_count;   /* numeric fields and the id; the id, if there is one, is the last field */
    uint32_t slots;         /* a mask: the number of slots of `table` minus one */
    uint64_t event;         /* the number of the current event, from 1 */
    Field *fields;          /* `field_count` entries */
    uint32_t *after;        /* the field that last followed each field; the entry `field_count`: the first field */
    uint32_t *table;        /* by hash: the number of a field, or `field_count` for a free slot */
    char *names;            /* the padded names of all fields */
};

static inline uint32_t slot_of(const Scanner *scanner, uint64_t first, uint64_t last, uint32_t length)
{
    uint64_t hash = (first ^ (last * 0x9e3779b97f4a7c15u) ^ length) * 0xd6e8feb86659fd93u;
    return (uint32_t)(hash >> 32) & scanner->slots;
}

/* Return the first slot to probe for a name; `length` includes the quotation mark. */
static inline uint32_t first_slot(const Scanner *scanner, const char *name, uint32_t length)
{
    if (length < WORD) {
        return slot_of(scanner, word_at(name) & (~(uint64_t)0 >> (8 * (WORD - length))), 0, length);
    }
    return slot_of(scanner, word_at(name), word_at(name + length - WORD), length);
}

/* Return whether the text at `at` is the field's name and its quotation mark. */
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

/* Scan a key after its opening quotation mark and find the number of its field; `field_count` for a field that is not listed.
 */
static inline bool look_up(const Scanner *scanner, Cursor *cursor, uint32_t *found)
{
    const char *name = cursor->at;
    if (!scan_string(cursor)) {
        return false;
    }
    uint32_t length = (uint32_t)(cursor->at - name);
    uint32_t slot = first_slot(scanner, name, length);
    while (scanner->table[slot] < scanner->field_count) {
        const Field *field = &scanner->fields[scanner->table[slot]];
        if (field->length == length && memcmp(field->name, name, length) == 0) {
            break;
        }
        slot = (slot + 1) & scanner->slots;
    }
    *found = scanner->table[slot];
    return true;
}

/* Like look_up, but first compare the key with the one that followed `*before` in the previous event. A listed field is stored
 * in `*before`. */
static inline bool scan_key(Scanner *scanner, Cursor *cursor, uint32_t *before, uint32_t *found)
{
    uint32_t expected = scanner->after[*before];
    if (expected < scanner->field_count && is_named(&scanner->fields[expected], cursor->at, cursor->end)) {
        cursor->at += scanner->fields[expected].length;
        *found = *before = expected;
        return true;
    }
    if (!look_up(scanner, cursor, found)) {
        return false;
    }
    if (*found < scanner->field_count) {
        scanner->after[*before] = *found;
        *before = *found;
    }
    return true;
}

#endif
