/* Doubles and their shortest decimal texts, exactly as correctly rounding libraries give them, without the GIL and without a locale. */
#ifndef HEADGATE_NUMBERS_H
#define HEADGATE_NUMBERS_H
#include <stdint.h>

/* A JSON number as it stands in a text. Its value is man * 10**exp10, with more digits behind if `truncated`. */
typedef struct {
    const uint8_t *begin, *end;
    uint64_t man;
    int64_t exp10;
    int negative, whole, truncated, digits; /* `man` is below 10**digits, and digits at most 20 */
} Number;

void fill_powers(void);

/* 1: *found is the double of this number, or infinite. 0: too close to a halfway point for 128 bits, ask a library with big integers. */
int number_as_double(const Number *number, double *found);

/* The shortest digits that read back as this double, which is finite and not zero: digits * 10**exp10, no trailing zeros. */
uint64_t shortest_digits(double value, int *exp10);

/* The high half of a product of 128 bits. */
static inline uint64_t multiply(uint64_t a, uint64_t b, uint64_t *low) {
#if defined(__SIZEOF_INT128__) && !defined(HEADGATE_SCALAR)
    unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t p00 = a0 * b0, p01 = a0 * b1, p10 = a1 * b0, p11 = a1 * b1;
    uint64_t middle = (p00 >> 32) + (uint32_t)p01 + (uint32_t)p10;
    *low = middle << 32 | (uint32_t)p00;
    return p11 + (p01 >> 32) + (p10 >> 32) + (middle >> 32);
#endif
}

#endif
