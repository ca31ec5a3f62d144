/* Random rows of numbers at feature_rows.c, for so many seconds: fuzz_feature_rows SEED SECONDS. It is built with the address
 * sanitizer and the undefined behaviour sanitizer, which end it if a byte beside a buffer is touched. It prints the number of rows.
 *
 * Every buffer has the size that feature_rows.c asks for, and not a byte more. The text of each row is compared with a text that
 * is assembled byte by byte.
 */
#include "feature_rows.c"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_ROWS = 5, MAX_COLUMNS = 6, LONGEST_NAME = 20, ROUNDS_A_LOOK = 500, LONGEST_VARINT = 10 };
enum { LARGEST = MAX_ROWS * MAX_COLUMNS * (LONGEST_NAME + LONGEST_NUMBER + 2) + 2 * MAX_ROWS + 2 };

static uint64_t state;

static uint32_t drawn(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", what);
        abort();
    }
}

static void *exactly(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        abort();
    }
    return memory;
}

static void encode_members(int64_t rows, int64_t columns)
{
    static const char characters[] = "0123456789.-+eEnultrafs";
    char drawn_names[MAX_COLUMNS * LONGEST_NAME], drawn_text[LARGEST], expected[LARGEST];
    int64_t name_count = 0, size = 0, expected_size = 0, expected_ends[MAX_ROWS];
    int64_t *name_ends = exactly((size_t)columns * sizeof *name_ends), *ends = exactly((size_t)rows * sizeof *ends);
    for (int64_t column = 0; column < columns; column++) {
        for (uint32_t length = 1 + drawn(LONGEST_NAME); length > 0; length--) {
            drawn_names[name_count++] = (char)('a' + column);
        }
        name_ends[column] = name_count;
    }
    drawn_text[size++] = '[';
    for (int64_t row = 0; row < rows; row++) {
        drawn_text[size++] = '[';
        for (int64_t column = 0; column < columns; column++) {
            for (int64_t at = column ? name_ends[column - 1] : 0; at < name_ends[column]; at++) {
                expected[expected_size++] = drawn_names[at];
            }
            for (uint32_t length = drawn(3) ? 1 + drawn(LONGEST_NUMBER) : LONGEST_NUMBER; length > 0; length--) {
                char digit = characters[drawn(sizeof characters - 1)];
                drawn_text[size++] = expected[expected_size++] = digit;
            }
            drawn_text[size++] = column + 1 < columns ? ',' : ']';
        }
        drawn_text[size++] = row + 1 < rows ? ',' : ']';
        expected_ends[row] = expected_size;
    }
    char *text = exactly((size_t)size), *names = exactly((size_t)name_count + WORD);
    memcpy(text, drawn_text, (size_t)size);
    memcpy(names, drawn_names, (size_t)name_count);
    memset(names + name_count, 0, WORD);
    int64_t begin = drawn(3);
    char *out = exactly((size_t)(begin + rows * (name_count + columns * LONGEST_NUMBER) + WORD));
    int64_t used = json_members(text, size, rows, columns, names, name_ends, out, begin, ends);
    check(used == begin + expected_size && memcmp(out + begin, expected, (size_t)expected_size) == 0, "the text of the rows");
    for (int64_t row = 0; row < rows; row++) {
        check(ends[row] == begin + expected_ends[row], "the end of a row");
    }
    free(text);
    free(names);
    free(name_ends);
    free(out);
    free(ends);
}

static void encode_integers(int64_t rows, int64_t columns)
{
    int64_t count = rows * columns;
    int64_t *numbers = exactly((size_t)count * sizeof *numbers), *ends = exactly((size_t)rows * sizeof *ends);
    for (int64_t at = 0; at < count; at++) {
        uint64_t bits = ((uint64_t)drawn(1u << 31) << 33) ^ drawn(1u << 31);
        numbers[at] = drawn(8) ? (int64_t)bits >> drawn(64) : drawn(2) ? INT64_MIN : INT64_MAX;
    }
    uint8_t *out = exactly((size_t)(count * LONGEST_VARINT));
    avro_integers(numbers, rows, columns, out, ends);
    const uint8_t *at = out;
    for (int64_t index = 0; index < count; index++) {
        uint64_t zigzag = 0;
        unsigned shift = 0;
        do {
            zigzag |= (uint64_t)(*at & 0x7f) << shift;
            shift += 7;
        } while (*at++ & 0x80);
        int64_t number = (int64_t)((zigzag >> 1) ^ (zigzag & 1 ? UINT64_MAX : 0));
        check(number == numbers[index], "an integer");
        check((index + 1) % columns || ends[index / columns] == at - out, "the end of a row of integers");
    }
    free(numbers);
    free(out);
    free(ends);
}

int main(int count, char **arguments)
{
    int64_t rows = 0;
    if (count != 3) {
        return 2;
    }
    state = strtoull(arguments[1], NULL, 10);
    time_t until = time(NULL) + strtol(arguments[2], NULL, 10);
    do {
        for (int round = 0; round < ROUNDS_A_LOOK; round++) {
            int64_t some = 1 + drawn(MAX_ROWS);
            encode_members(some, 1 + drawn(MAX_COLUMNS));
            encode_integers(some, 1 + drawn(MAX_COLUMNS));
            rows += some;
        }
    } while (time(NULL) < until);
    printf("{\"rows\": %lld}\n", (long long)rows);
    return 0;
}
