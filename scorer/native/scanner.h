/* The functions that Python calls. scanner.c documents ownership. */
#ifndef SCORESTREAM_SCANNER_H
#define SCORESTREAM_SCANNER_H

#include <stdint.h>

#define SCANNER_PADDING 32 /* the zero bytes that must follow a text */

/* The result for one event. All but UNCERTAIN are certain. */
enum { UNCERTAIN = 0, NO_ID = 1, TEXT_ID = 2, INTEGER_ID = 3 };

/* The form of the events. */
enum { OBJECTS = 0, OBJECTS_WITH_ID = 1, ARRAYS = 2 };

/* A numeric field. `array` is the length of an array, 0 for a single number. `absent` replaces each number if the field is
 * absent or null, unless it is `required`. */
typedef struct {
    uint32_t array, required;
    float absent;
} FieldSpec;

typedef struct Scanner Scanner;

Scanner *scanner_new(uint32_t form, uint32_t count, const char *names, const uint32_t *lengths, const FieldSpec *specs);
void scanner_free(Scanner *scanner);
int64_t scanner_scan(Scanner *scanner, const char *text, const int64_t *lengths, int64_t events, float *rows,
                     uint8_t *kinds, char *ids);

#endif
