/* What Python calls; scanner.c says who owns what. */
#ifndef SCORESTREAM_SCANNER_H
#define SCORESTREAM_SCANNER_H

#include <stdint.h>

#define SCANNER_PADDING 32 /* zero bytes that have to follow a text */

/* What became of one event. All but UNCERTAIN are certain. */
enum { UNCERTAIN = 0, NO_ID = 1, TEXT_ID = 2, INTEGER_ID = 3 };

/* What an event is. */
enum { OBJECTS = 0, OBJECTS_WITH_ID = 1, ARRAYS = 2 };

/* What is wanted of a field of numbers. `array`: how many it has, 0 where it is a number by itself. `absent` stands for each of
 * them where the field is absent or null, unless it is `required`. */
typedef struct {
    uint32_t array, required;
    float absent;
} Wanted;

typedef struct Scanner Scanner;

Scanner *scanner_new(uint32_t form, uint32_t count, const char *names, const uint32_t *lengths, const Wanted *wanted);
void scanner_free(Scanner *scanner);
int64_t scanner_scan(Scanner *scanner, const char *text, const int64_t *lengths, int64_t events, float *rows,
                     uint8_t *kinds, char *ids);

#endif
