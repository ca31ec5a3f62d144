/* Create and free a Scanner. scanner.c documents its ownership. */
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

/* Copy the names, each with its closing quotation mark and its padding, and fill the hash table. */
static void copy_names(Scanner *scanner, const char *names, const uint32_t *lengths)
{
    char *copy = scanner->names;
    for (uint32_t which = 0; which < scanner->field_count; which++) {
        Field *field = &scanner->fields[which];
        memcpy(copy, names, lengths[which]);
        copy[lengths[which]] = '"';
        field->name = copy;
        field->length = lengths[which] + 1;
        field->last = ~(uint64_t)0 >> (8 * (WORD - 1 - (field->length - 1) % WORD));
        copy += padded(lengths[which]);
        names += lengths[which];
        uint32_t slot = first_slot(scanner, field->name, field->length);
        while (scanner->table[slot] < scanner->field_count) {
            slot = (slot + 1) & scanner->slots;
        }
        scanner->table[slot] = which;
    }
}

static Scanner *allocated(uint32_t field_count, const uint32_t *lengths)
{
    Scanner *scanner = calloc(1, sizeof *scanner);
    size_t bytes = 0, slots = 4;
    for (uint32_t which = 0; which < field_count; which++) {
        bytes += padded(lengths[which]);
    }
    while (slots < (size_t)field_count * 2) {
        slots *= 2;
    }
    if (!scanner) {
        return NULL;
    }
    scanner->field_count = field_count;
    scanner->slots = (uint32_t)slots - 1;
    scanner->fields = calloc((size_t)field_count + 1, sizeof *scanner->fields);
    scanner->after = calloc((size_t)field_count + 1, sizeof *scanner->after);
    scanner->table = calloc(slots, sizeof *scanner->table);
    scanner->names = calloc(1, bytes + WORD);
    if (!scanner->fields || !scanner->after || !scanner->table || !scanner->names) {
        scanner_free(scanner);
        return NULL;
    }
    for (size_t slot = 0; slot < slots; slot++) {
        scanner->table[slot] = field_count;
    }
    return scanner;
}

/* Copy the specifications of the numeric fields, whose numbers follow each other in a row. */
static void copy_specs(Scanner *scanner, const FieldSpec *specs)
{
    for (uint32_t which = 0; which < scanner->number_fields; which++) {
        Field *field = &scanner->fields[which];
        field->required = specs[which].required != 0;
        field->absent = specs[which].absent;
        field->array = specs[which].array != 0;
        field->numbers = field->array ? specs[which].array : 1;
        field->column = scanner->width;
        scanner->width += field->numbers;
    }
}

/* Create a scanner for `count` numeric fields and, if `form` is OBJECTS_WITH_ID, a field for the id. Return NULL if memory is
 * exhausted.
 *
 * `names` are concatenated, the id's last; `lengths` has the length of each. A name has only characters from 0x20 to 0x7e
 * without quotation mark and backslash. Names are unique. `specs` has an entry per numeric field. ARRAYS have one field, whose
 * name is ignored. */
Scanner *scanner_new(uint32_t form, uint32_t count, const char *names, const uint32_t *lengths, const FieldSpec *specs)
{
    uint32_t field_count = count + (form == OBJECTS_WITH_ID ? 1 : 0);
    Scanner *scanner = allocated(field_count, lengths);
    if (!scanner) {
        return NULL;
    }
    scanner->bare = form == ARRAYS;
    scanner->number_fields = count;
    copy_specs(scanner, specs);
    for (uint32_t which = 0; which < field_count; which++) {
        scanner->after[which] = (which + 1) % field_count;
    }
    scanner->after[field_count] = field_count - 1;
    copy_names(scanner, names, lengths);
    return scanner;
}
