/* The hash of a text; see hash.c. */
#ifndef SCORESTREAM_HASH_H
#define SCORESTREAM_HASH_H

#include <stdint.h>

uint64_t text_hash(const char *at, const char *end, uint64_t seed);

#endif
