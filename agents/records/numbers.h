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
#endif
