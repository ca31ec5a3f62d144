/* Encode the rows of numeric matrices for feature records: as members of a JSON object, and as Avro integers.
 *
 * All arguments are borrowed for the time of a call. The caller provides output buffers that are large enough. `ends` receives
 * the offset of the end of each encoded row.
 */
#include "float_text.h"
#include "text.h"

enum { LONGEST_NUMBER = 24 }; /* characters of a float64 */

/* Copy text up to the byte `stop`, and return the number of copied bytes. Whole words are read and written, unless the text ends
 * at `end` soon. */
static inline size_t copy_until(char *to, const char *at, const char *end, char stop)
{
    size_t copied = 0;
    if (end - at < LONGEST_NUMBER + 2 * WORD) {
        for (; at[copied] != stop; copied++) {
            to[copied] = at[copied];
        }
        return copied;
    }
    for (;; copied += WORD) {
        uint64_t word = word_at(at + copied);
        memcpy(to + copied, &word, WORD);
        uint64_t differing = word ^ (EACH_BYTE * (uint8_t)stop);
        uint64_t marks = (differing - EACH_BYTE) & ~differing & HIGH_BITS; /* only the lowest mark is exact */
        if (marks) {
            return copied + lowest(marks);
        }
    }
}

/* Copy a name in whole words, and return the end of the copy. */
static inline char *copy_name(char *to, const char *name, const char *end)
{
    for (const char *at = name; at < end; at += WORD) {
        memcpy(to + (at - name), at, WORD);
    }
    return to + (end - name);
}

/* `text`, of `size` bytes, is a JSON array of `rows` arrays of `columns` numbers each, without spaces. Write each number behind
 * the name of its column to `out`, from the offset `begin` on. Name c is names[name_ends[c - 1], name_ends[c]), and includes all
 * punctuation. A word behind `names` and `out` must be accessible. Return the offset behind the last row. */
int64_t json_members(const char *text, int64_t size, int64_t rows, int64_t columns, const char *names,
                     const int64_t *name_ends, char *out, int64_t begin, int64_t *ends)
{
    const char *at = text + 1; /* behind the bracket of the outer array */
    const char *end = text + size;
    char *to = out + begin;
    for (int64_t row = 0; row < rows; row++) {
        at++; /* the bracket of the row */
        const char *name = names;
        for (int64_t column = 0; column < columns; column++) {
            const char *name_end = names + name_ends[column];
            to = copy_name(to, name, name_end);
            name = name_end;
            size_t length = copy_until(to, at, end, column + 1 < columns ? ',' : ']');
            to += length;
            at += length + 1; /* also the comma, or the bracket that ends the row */
        }
        ends[row] = to - out;
        at++; /* the comma between two rows, or the bracket that ends the outer array */
    }
    return to - out;
}

/* Write each number of the matrix behind the name of its column to `out`, from the offset `begin` on, as `json_members` does.
 * FLOAT_TEXT_ROOM bytes behind the last row must be accessible. Return the offset behind the last row. */
int64_t json_float_members(const float *numbers, int64_t rows, int64_t columns, const char *names, const int64_t *name_ends,
                           char *out, int64_t begin, int64_t *ends)
{
    char *to = out + begin;
    for (int64_t row = 0; row < rows; row++) {
        const char *name = names;
        for (int64_t column = 0; column < columns; column++) {
            const char *name_end = names + name_ends[column];
            to = copy_name(to, name, name_end);
            name = name_end;
            to = write_float(to, *numbers++);
        }
        ends[row] = to - out;
    }
    return to - out;
}

/* Write each number of the matrix as a zigzag varint, the encoding of int and long in Avro. */
void avro_integers(const int64_t *numbers, int64_t rows, int64_t columns, uint8_t *out, int64_t *ends)
{
    uint8_t *to = out;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            int64_t number = *numbers++;
            uint64_t rest = ((uint64_t)number << 1) ^ (number < 0 ? UINT64_MAX : 0);
            while (rest >= 0x80) {
                *to++ = (uint8_t)(rest | 0x80);
                rest >>= 7;
            }
            *to++ = (uint8_t)rest;
        }
        ends[row] = to - out;
    }
}
