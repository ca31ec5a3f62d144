/* The fields that are asked for: what a Scanner is, and how a key finds its field. */
#ifndef SCORESTREAM_FIELDS_H
#define SCORESTREAM_FIELDS_H

#include "scanner.h"
#include "text.h"

typedef struct {
    const char *name;   /* with its closing quotation mark, then zeros to a whole number of words */
    uint32_t length;    /* of that, with the quotation mark */
    uint64_t last;      /* the bits of its last word that belong to it */
    uint64_t seen;      /* the newest event that had it */
    uint32_t place;     /* of its first number in a row */
    uint32_t numbers;   /* that it has: 1 where it is no array */
    float absent;       /* what stands for each where it is absent or null */
    bool required;
    bool array;
} Field;

struct Scanner {
    bool bare;          /* an event is the array of its one field */
    uint32_t width;     /* numbers of a row */
    uint32_t count;     /* fields of numbers */
    uint32_t known;     /* fields in all: the id, if there is one, is the one after the numbers */
    uint32_t slots;     /* of `table` less one: a mask */
    uint64_t event;     /* the number of the event in hand, from 1 */
    Field *fields;      /* `known` */
    uint32_t *after;    /* `known` + 1: the field that came last after each; the last entry: at the beginning */
    uint32_t *table;    /* by hash: the number of a field, or `known` where a slot is free */
    char *names;
};

static inline uint32_t slot_of(const Scanner *scanner, uint64_t first, uint64_t last, uint32_t length)
{
    uint64_t hash = (first ^ (last * 0x9e3779b97f4a7c15u) ^ length) * 0xd6e8feb86659fd93u;
    return (uint32_t)(hash >> 32) & scanner->slots;
}

/* The slot where a name is looked for first; `length` with its quotation mark. */
static inline uint32_t first_slot(const Scanner *scanner, const char *name, uint32_t length)
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
static inline bool look_up(const Scanner *scanner, Cursor *cursor, uint32_t *found)
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

#endif
