/* The index of keys against a plain array: random puts, removals, removals by row, reservations and look-ups. */
#include <stdio.h>
#include <time.h>

#include "key_index.c"

enum { KEYS = 300, MOST = 64, LONGEST = 40 };

static uint64_t state;

static uint64_t random_number(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", what);
        abort();
    }
}

/* Write the text of a key. Each key has a text of its own; keys whose lengths are equal differ in the first bytes only. */
static int64_t write_key(char *text, uint64_t key)
{
    int64_t length = 2 + (int64_t)(key % (LONGEST - 2));
    memset(text, 'k', (size_t)length);
    text[0] = (char)key;
    text[1] = (char)(key >> 8);
    return length;
}

int main(int count, char **arguments)
{
    check(count == 3, "the number of arguments");
    state = strtoull(arguments[1], NULL, 10) * 2 + 1;
    time_t end = time(NULL) + strtol(arguments[2], NULL, 10);
    uint64_t rounds = 0, looked_up = 0;
    while (time(NULL) < end) {
        KeyIndex *index = key_index_new(random_number(1u << 30));
        int64_t row_of_key[3][KEYS];
        memset(row_of_key, 0xFF, sizeof row_of_key);
        for (int step = 0; step < 400; step++) {
            char *text = malloc(MOST * LONGEST + 1);
            int64_t starts[MOST], ends[MOST], numbers[MOST], at = 0;
            uint8_t nulls[MOST], removed[MOST];
            int32_t spaces[MOST];
            uint64_t keys[MOST];
            int64_t size = (int64_t)random_number(MOST + 1);
            for (int64_t i = 0; i < size; i++) {
                keys[i] = random_number(KEYS);
                starts[i] = at;
                at += write_key(text + at, keys[i]);
                ends[i] = at;
                nulls[i] = random_number(20) == 0;
                removed[i] = random_number(3) == 0;
                spaces[i] = (int32_t)random_number(3);
            }
            text = realloc(text, (size_t)at + 1); /* so that a read after the last key is found */
            if (random_number(2)) {
                check(key_index_reserve(index, size, at), "the reservation");
            }
            if (random_number(5) == 0) { /* remove the rows of one space */
                int64_t rows[KEYS], removed_rows = 0;
                int32_t space = (int32_t)random_number(3);
                for (int key = 0; key < KEYS; key++) {
                    if (row_of_key[space][key] >= 0) {
                        rows[removed_rows++] = row_of_key[space][key];
                        row_of_key[space][key] = NO_ROW;
                    }
                }
                check(key_index_remove_rows(index, rows, removed_rows), "the removal of rows");
            } else {
                check(key_index_apply(index, text, starts, ends, nulls, removed, spaces, 0, size, numbers), "the change");
                for (int64_t i = 0; i < size; i++) {
                    int64_t *row = &row_of_key[spaces[i]][keys[i]];
                    if (nulls[i]) {
                        check(numbers[i] == NO_ROW, "a missing key has no row");
                    } else if (removed[i]) {
                        check(numbers[i] == *row, "the row of a removed key");
                        *row = NO_ROW;
                    } else {
                        check(numbers[i] >= 0 && (*row < 0 || *row == numbers[i]), "the row of a key that is put");
                        *row = numbers[i];
                    }
                }
            }
            key_index_rows(index, text, starts, ends, nulls, spaces, 0, size, numbers);
            for (int64_t i = 0; i < size; i++) {
                check(numbers[i] == (nulls[i] ? NO_ROW : row_of_key[spaces[i]][keys[i]]), "the row of a look-up");
            }
            looked_up += (uint64_t)size;
            free(text);
        }
        key_index_free(index);
        rounds++;
    }
    printf("{\"rounds\": %llu, \"looked_up\": %llu}\n", (unsigned long long)rounds, (unsigned long long)looked_up);
    return 0;
}
