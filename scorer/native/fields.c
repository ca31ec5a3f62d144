/* Making and ending a Scanner. See scanner.c for who owns it. */
#include "fields.h"

#include <stdlib.h>

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

/* What is wanted of the fields of numbers, which lie in a row one behind the other. */
static void take_wants(Scanner *scanner, const Wanted *wanted)
{
    for (uint32_t which = 0; which < scanner->count; which++) {
        Field *field = &scanner->fields[which];
        field->required = wanted[which].required != 0;
        field->absent = wanted[which].absent;
        field->array = wanted[which].array != 0;
        field->numbers = field->array ? wanted[which].array : 1;
        field->place = scanner->width;
        scanner->width += field->numbers;
    }
}

/* A scanner for `count` fields of numbers and, where `form` says so, one more for the id, or NULL where memory is short.
 *
 * `names` follow each other without anything between them, the id's last; `lengths` are theirs. Each has only characters from
 * 0x20 to 0x7e, no quotation mark and no backslash, and stands there once. `wanted` is for the numbers. ARRAYS have one field,
 * whose name nobody looks at. */
Scanner *scanner_new(uint32_t form, uint32_t count, const char *names, const uint32_t *lengths, const Wanted *wanted)
{
    uint32_t known = count + (form == OBJECTS_WITH_ID ? 1 : 0);
    Scanner *scanner = allocated(known, lengths);
    if (!scanner) {
        return NULL;
    }
    scanner->bare = form == ARRAYS;
    scanner->count = count;
    take_wants(scanner, wanted);
    for (uint32_t which = 0; which < known; which++) {
        scanner->after[which] = (which + 1) % known;
    }
    scanner->after[known] = known - 1;
    take_names(scanner, names, lengths);
    return scanner;
}
