/* Scan JSON numbers and convert them to float32 if the result is certain. */
#ifndef SCORESTREAM_NUMBER_H
#define SCORESTREAM_NUMBER_H

#include "text.h"

#include <float.h>

#if FLT_EVAL_METHOD != 0
#error "float64 must be evaluated as float64"
#endif

enum {
    POWER = 22,   /* 10^22 is the largest power of ten that is a float64 */
    PLACES = 48,  /* most consecutive digits, with leading zeros */
    USUAL = 17,   /* most decimal places in scan_usual */
};

typedef struct {
    uint64_t digits;
    int power;          /* the number is digits * 10^power */
    bool negative;
    bool whole;         /* neither a point nor an exponent */
} Number;

static const double TENS[POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
static const uint64_t WHOLE_TENS[WORD + 1] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
/* A number below ROOM[n] can take n more digits without exceeding 18 digits, which fit an int64_t. */
static const uint64_t ROOM[WORD + 1] = {1000000000000000000u, 100000000000000000u, 10000000000000000u,
                                        1000000000000000u,    100000000000000u,    10000000000000u,
                                        1000000000000u,       100000000000u,       10000000000u};

static const double SIGNS[2] = {1, -1};

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Convert up to 8 digits at `at`, and return their number. */
static inline unsigned digit_run(const char *at, uint64_t *value)
{
    uint64_t word = word_at(at);
    uint64_t digits = word - EACH_BYTE * '0';
    uint64_t other = ((word + EACH_BYTE * (0x7f - '9')) | digits) & HIGH_BITS;
    unsigned count = other ? lowest(other) : WORD;
    unsigned half = 4 * (WORD - count); /* in two steps: a shift by 64 is undefined */
    digits = digits << half << half;
    digits = digits * 10 + (digits >> 8);
    *value = (((digits & 0x000000ff000000ffu) * 0x000f424000000064u) +
              (((digits >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u)) >> 32;
    return count;
}

/* Append the digits at `*at` to a number. Return how many there are, or -1 if there are too many. */
static inline int append_digits(const char **at, uint64_t *number)
{
    int count = 0;
    for (;;) {
        uint64_t value;
        unsigned run = digit_run(*at, &value);
        if (*number >= ROOM[run] || count > PLACES) {
            return -1;
        }
        *number = *number * WHOLE_TENS[run] + value;
        *at += run;
        count += (int)run;
        if (run < WORD) {
            return count;
        }
    }
}

/* Scan an exponent after its letter and add it to a power. */
static inline bool scan_exponent(const char **at, int *power)
{
    bool negative = **at == '-';
    if (negative || **at == '+') {
        (*at)++;
    }
    int value = 0, count = 0;
    while (is_digit(**at) && count < 4) {
        value = value * 10 + (*(*at)++ - '0');
        count++;
    }
    *power += negative ? -value : value;
    return count > 0 && count < 4;
}

/* Scan a JSON number. The text after it is not checked. */
static inline bool scan_number(Cursor *cursor, Number *number)
{
    const char *at = cursor->at;
    number->negative = *at == '-';
    at += number->negative;
    if (!is_digit(*at)) {
        return false;
    }
    number->digits = (uint64_t)(*at - '0');
    number->power = 0;
    at++;
    if (is_digit(*at) && (number->digits == 0 || append_digits(&at, &number->digits) < 0)) {
        return false;
    }
    number->whole = *at != '.' && *at != 'e' && *at != 'E';
    if (*at == '.') {
        at++;
        int places = append_digits(&at, &number->digits);
        if (places <= 0) {
            return false;
        }
        number->power = -places;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        if (!scan_exponent(&at, &number->power)) {
            return false;
        }
    }
    cursor->at = at;
    return number->power >= -POWER && number->power <= POWER;
}

/* Return whether all float64 within 8 units in the last place round to the same float32, which has 29 bits less. There is no
 * branch: digits are random, and a branch on them would be mispredicted half of the time. */
static inline bool far_from_midpoint(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t cut = bits & 0x1fffffffu;
    return (value < 1e38) & (cut - (0x10000000u - 8) > 16);
}

/* Convert a number to the float32 that results from rounding its nearest float64. Return false if the result is not certain.
 *
 * Digits up to 2^53 and the power are exact float64, so one multiplication or division is correctly rounded (Clinger, 1990).
 * More digits are rounded too: the result is then at most 3 units in the last place off. */
static inline bool as_float32(const Number *number, float *out)
{
    if (number->digits == 0 && number->negative && number->whole) {
        return false;
    }
    double value = (double)(int64_t)number->digits;
    value = number->power < 0 ? value / TENS[-number->power] : value * TENS[number->power];
    *out = (float)(value * SIGNS[number->negative]);
    return (number->digits <= (uint64_t)1 << 53) | far_from_midpoint(value);
}

/* Do the work of scan_number and as_float32 for the most common form: one digit before the point and up to 17 after it. Return
 * false, and read nothing, if the number has another form or is not certain. */
static inline bool scan_usual(Cursor *cursor, float *out)
{
    bool negative = *cursor->at == '-';
    const char *at = cursor->at + negative;
    if (!is_digit(at[0]) || at[1] != '.') {
        return false;
    }
    uint64_t value, digits = (uint64_t)(at[0] - '0');
    unsigned places = digit_run(at + 2, &value);
    digits = digits * WHOLE_TENS[places] + value;
    for (unsigned run = places; run == WORD && places <= USUAL; places += run) {
        run = digit_run(at + 2 + places, &value);
        digits = digits * WHOLE_TENS[run] + value;
    }
    char next = at[2 + places];
    if (places == 0 || places > USUAL || next == 'e' || next == 'E') {
        return false;
    }
    double size = (double)(int64_t)digits / TENS[places];
    if ((digits > (uint64_t)1 << 53) & !far_from_midpoint(size)) {
        return false;
    }
    *out = (float)(size * SIGNS[negative]);
    cursor->at = at + 2 + places;
    return true;
}

static inline bool scan_float32(Cursor *cursor, float *out)
{
    Number number;
    return scan_usual(cursor, out) || (scan_number(cursor, &number) && as_float32(&number, out));
}

#endif
