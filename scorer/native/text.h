/* Text in words of 8 bytes, and the tokens that are no numbers. See scanner.c for why no read leaves the text. */
#ifndef SCORESTREAM_TEXT_H
#define SCORESTREAM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read as little-endian"
#endif

#define EACH_BYTE 0x0101010101010101u
#define HIGH_BITS 0x8080808080808080u

enum { WORD = 8 };

typedef struct {
    const char *at;
    const char *end;
} Cursor;

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

static inline bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline void skip_space(Cursor *cursor)
{
    while ((unsigned char)*cursor->at <= ' ' && cursor->at < cursor->end && is_space(*cursor->at)) {
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
static inline bool scan_string(Cursor *cursor)
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

#endif
