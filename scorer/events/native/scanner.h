/* What Python calls; scanner.c says who owns what. */
#ifndef SCORESTREAM_SCANNER_H
#define SCORESTREAM_SCANNER_H

#include <stdint.h>

#define SCANNER_PADDING 32 /* zero bytes that have to follow a text */

/* What became of one event. All but UNCERTAIN are certain. */
enum { UNCERTAIN = 0, NO_ID = 1, TEXT_ID = 2, INTEGER_ID = 3 };

typedef struct Scanner Scanner;

Scanner *scanner_new(uint32_t count, uint32_t with_id, const char *names, const uint32_t *lengths,
                     const uint8_t *required, const float *absent);
void scanner_free(Scanner *scanner);
int64_t scanner_scan(Scanner *scanner, const char *text, const int64_t *lengths, int64_t events, float *rows,
                     uint8_t *kinds, char *ids);

#endif
