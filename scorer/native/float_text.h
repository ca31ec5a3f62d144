/* Write a float32 as the shortest JSON number that reads back to the same float32.
 *
 * The digits are determined by the algorithm Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles", 2020): the
 * bounds of the interval that rounds to the number are scaled by a power of ten, and of the integers between them the one with
 * the fewest digits, and then the nearest one, is taken. The notation is that of orjson.
 */
#ifndef SCORESTREAM_FLOAT_TEXT_H
#define SCORESTREAM_FLOAT_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MIN_POWER = -31,     /* of the powers of ten below */
    MIN_PLAIN = -6,      /* smallest exponent of ten of a number that is written without an exponent */
    MAX_PLAIN = 12,       /* and the largest one */
    FLOAT_TEXT_ROOM = 32,  /* bytes that write_float may overwrite */
};

#define ZEROS 0x3030303030303030u /* eight characters */

/* 10^k for k from MIN_POWER on, scaled to 64 bits and rounded up. */
static const uint64_t SCALED_POWERS[] = {
    0x81ceb32c4b43fcf5u, 0xa2425ff75e14fc32u, 0xcad2f7f5359a3b3fu, 0xfd87b5f28300ca0eu, 0x9e74d1b791e07e49u,
    0xc612062576589ddbu, 0xf79687aed3eec552u, 0x9abe14cd44753b53u, 0xc16d9a0095928a28u, 0xf1c90080baf72cb2u,
    0x971da05074da7befu, 0xbce5086492111aebu, 0xec1e4a7db69561a6u, 0x9392ee8e921d5d08u, 0xb877aa3236a4b44au,
    0xe69594bec44de15cu, 0x901d7cf73ab0acdau, 0xb424dc35095cd810u, 0xe12e13424bb40e14u, 0x8cbccc096f5088ccu,
    0xafebff0bcb24aaffu, 0xdbe6fecebdedd5bfu, 0x89705f4136b4a598u, 0xabcc77118461cefdu, 0xd6bf94d5e57a42bdu,
    0x8637bd05af6c69b6u, 0xa7c5ac471b478424u, 0xd1b71758e219652cu, 0x83126e978d4fdf3cu, 0xa3d70a3d70a3d70bu,
    0xcccccccccccccccdu, 0x8000000000000000u, 0xa000000000000000u, 0xc800000000000000u, 0xfa00000000000000u,
    0x9c40000000000000u, 0xc350000000000000u, 0xf424000000000000u, 0x9896800000000000u, 0xbebc200000000000u,
    0xee6b280000000000u, 0x9502f90000000000u, 0xba43b74000000000u, 0xe8d4a51000000000u, 0x9184e72a00000000u,
    0xb5e620f480000000u, 0xe35fa931a0000000u, 0x8e1bc9bf04000000u, 0xb1a2bc2ec5000000u, 0xde0b6b3a76400000u,
    0x8ac7230489e80000u, 0xad78ebc5ac620000u, 0xd8d726b7177a8000u, 0x878678326eac9000u, 0xa968163f0a57b400u,
    0xd3c21bcecceda100u, 0x84595161401484a0u, 0xa56fa5b99019a5c8u, 0xcecb8f27f4200f3au, 0x813f3978f8940985u,
    0xa18f07d736b90be6u, 0xc9f2c9cd04674edfu, 0xfc6f7c4045812297u, 0x9dc5ada82b70b59eu, 0xc5371912364ce306u,
    0xf684df56c3e01bc7u, 0x9a130b963a6c115du, 0xc097ce7bc90715b4u, 0xf0bdc21abb48db21u, 0x96769950b50d88f5u,
    0xbc143fa4e250eb32u, 0xeb194f8e1ae525feu, 0x92efd1b8d0cf37bfu, 0xb7abc627050305aeu, 0xe596b7b0c643c71au,
    0x8f7e32ce7bea5c70u, 0xb35dbf821ae4f38cu,
};

/* The number is digits * 10^power. */
typedef struct {
    uint32_t digits;
    int power;
} Decimal;

/* Return the upper 32 bits of a product of 96 bits. The lowest bit is set if a bit below it was lost. */
static inline uint32_t product_to_odd(uint64_t scaled_power, uint32_t factor)
{
    uint64_t upper = (scaled_power >> 32) * factor + (((scaled_power & UINT32_MAX) * factor) >> 32);
    return (uint32_t)(upper >> 32) | ((uint32_t)upper > 1);
}

/* Return the shortest decimal number in the interval that rounds to a positive float32, given by the fields of its bits. */
static inline Decimal shortest_decimal(uint32_t fraction, int exponent)
{
    uint32_t significand = exponent ? fraction | 1u << 23 : fraction;
    int binary = exponent ? exponent - 150 : -149;
    if (binary <= 0 && binary > -24 && !(significand & ((1u << -binary) - 1))) {
        return (Decimal){significand >> -binary, 0};
    }
    bool is_power_of_two = !fraction && exponent > 1; /* the lower neighbour is half as far as the upper one */
    uint32_t middle = 4 * significand;
    int power = is_power_of_two ? (binary * 1262611 - 524031) >> 22 : (binary * 1262611) >> 22;
    int shift = binary + ((-power * 1741647) >> 19) + 1;
    uint64_t scaled = SCALED_POWERS[-power - MIN_POWER];
    uint32_t is_odd = significand & 1; /* then the bounds do not round to the number */
    uint32_t lower = product_to_odd(scaled, (middle - 2 + is_power_of_two) << shift) + is_odd;
    uint32_t value = product_to_odd(scaled, middle << shift);
    uint32_t upper = product_to_odd(scaled, (middle + 2) << shift) - is_odd;
    uint32_t digits = value / 4;
    if (digits >= 10) {
        uint32_t shorter = digits / 10;
        bool is_lower_inside = lower <= 40 * shorter;
        bool is_upper_inside = 40 * shorter + 40 <= upper;
        if (is_lower_inside != is_upper_inside) {
            return (Decimal){shorter + is_upper_inside, power + 1};
        }
    }
    bool is_lower_inside = lower <= 4 * digits;
    bool is_upper_inside = 4 * digits + 4 <= upper;
    if (is_lower_inside != is_upper_inside) {
        return (Decimal){digits + is_upper_inside, power};
    }
    uint32_t half = 4 * digits + 2;
    return (Decimal){digits + (value > half || (value == half && (digits & 1))), power};
}

/* Return the digits of a number below 10^8 as eight bytes from 0 to 9, the first digit in the lowest byte. */
static inline uint64_t eight_digits(uint32_t number)
{
    uint64_t fours = number / 10000 | (uint64_t)(number % 10000) << 32;
    uint64_t hundreds = fours * 10486 >> 20 & 0x0000007f0000007fu;
    uint64_t twos = hundreds | (fours - 100 * hundreds) << 16;
    uint64_t tens = twos * 103 >> 10 & 0x000f000f000f000fu;
    return tens | (twos - 10 * tens) << 8;
}

/* Write a number, null if it is not finite, and return the end of the text. */
static inline char *write_float(char *to, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    int exponent = bits >> 23 & 0xff;
    if (exponent == 0xff) {
        memcpy(to, "null", 4);
        return to + 4;
    }
    *to = '-';
    to += bits >> 31;
    if (!(bits << 1)) {
        memcpy(to, "0.0", 3);
        return to + 3;
    }
    Decimal decimal = shortest_decimal(bits & 0x7fffff, exponent);
    uint32_t first = decimal.digits / 100000000;
    uint64_t others = eight_digits(decimal.digits % 100000000); /* the digits behind the first one */
    int scale = decimal.power + 8; /* the exponent of ten of the first digit */
    if (!first) {
        int zeros = __builtin_ctzll(others) / 8;
        others >>= 8 * zeros;
        first = others & 0xff;
        others >>= 8;
        scale -= zeros + 1;
    }
    char head = (char)('0' + first);
    int count = others ? 9 - __builtin_clzll(others) / 8 : 1; /* without zeros at the end */
    uint64_t tail = others | ZEROS;
    if (scale >= MIN_PLAIN && scale < 0) {
        memcpy(to, "0.000000", 8);
        to += 1 - scale;
        *to = head;
        memcpy(to + 1, &tail, 8);
        return to + count;
    }
    if (scale >= 0 && scale <= MAX_PLAIN) {
        uint64_t fraction = (scale < 8 ? others >> 8 * scale : 0) | ZEROS;
        uint64_t zeros = ZEROS;
        *to = head;
        memcpy(to + 1, &tail, 8);
        memcpy(to + 9, &zeros, 8);
        to += scale + 1;
        *to++ = '.';
        memcpy(to, &fraction, 8);
        return to + (count > scale + 1 ? count - scale - 1 : 1);
    }
    *to++ = head;
    if (count > 1) {
        *to++ = '.';
        memcpy(to, &tail, 8);
        to += count - 1;
    }
    *to++ = 'e';
    *to++ = scale < 0 ? '-' : '+';
    int size = scale < 0 ? -scale : scale;
    if (size >= 10) {
        *to++ = (char)('0' + size / 10);
    }
    *to++ = (char)('0' + size % 10);
    return to;
}

#endif
