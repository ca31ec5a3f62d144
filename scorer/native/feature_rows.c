/* Encode the rows of numeric matrices for feature records: as members of a JSON object, and as Avro integers.
 *
 * All arguments are borrowed for the time of a call. The caller provides output buffers that are large enough. `ends` receives
 * the offset of the end of each encoded row.
 */
#include <stdint.h>
#include <string.h>

/* `text` is a JSON array of `rows` arrays of `columns` numbers each, without spaces. Write each number behind the name of its
 * column. Name c is names[name_ends[c - 1], name_ends[c]), and includes all punctuation. */
void json_members(const char *text, int64_t rows, int64_t columns, const char *names, const int64_t *name_ends, char *out,
                  int64_t *ends)
{
    const char *at = text + 1; /* behind the bracket of the outer array */
    char *to = out;
    for (int64_t row = 0; row < rows; row++) {
        at++; /* the bracket of the row */
        const char *name = names;
        for (int64_t column = 0; column < columns; column++) {
            const char *name_end = names + name_ends[column];
            memcpy(to, name, (size_t)(name_end - name));
            to += name_end - name;
            name = name_end;
            while (*at != ',' && *at != ']') {
                *to++ = *at++;
            }
            at++; /* the comma, or the bracket that ends the row */
        }
        ends[row] = to - out;
        at++; /* the comma between two rows, or the bracket that ends the outer array */
    }
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
