/* Scan text in words of 8 bytes, and all tokens except numbers. scanner.c explains why no read leaves the text. */
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

/* Return the index of the lowest byte with its high bit set. At least one byte must have it. */
static inline unsigned lowest(uint64_t marks)
{
    return (unsigned)__builtin_ctzll(marks) / 8;
}

/* Mark the bytes that end plain text: quotation mark, backslash, control character, and 0x7f and above. Only the lowest mark is
 * exact. */
static inline uint64_t text_marks(uint64_t word)
{
    uint64_t quote = word ^ (EACH_BYTE * '"');
    uint64_t backslash = word ^ (EACH_BYTE * '\\');
    uint64_t marks = ((quote - EACH_BYTE) & ~quote) | ((backslash - EACH_BYTE) & ~backslash);
    return (marks | (word - EACH_BYTE * 0x20) | (word + EACH_BYTE) | word) & HIGH_BITS;
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

/* Skip white space and the byte `wanted`. Return false if another byte follows. */
static inline bool accept(Cursor *cursor, char wanted)
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

static inline bool accept_word(Cursor *cursor, const char *wanted, size_t length)
{
    if (memcmp(cursor->at, wanted, length) != 0) {
        return false;
    }
    cursor->at += length;
    return true;
}

/* Scan a string after its opening quotation mark, and move the cursor past the closing one. */
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
