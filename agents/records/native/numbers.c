/* Text to double: Clinger's fast path, then Eisel and Lemire's algorithm. Double to text: Giulietti's Schubfach. Both multiply by a power of
 * ten of which the first 128 bits are known; the table is computed once, with whole numbers. */
#include "numbers.h"

#include <float.h>
#include <string.h>

#define LEAST_POWER (-348)
#define MOST_POWER 347
#define WORDS 48 /* of 32 bits: room for 10**347, and for 2**1500 */

static uint64_t powers[MOST_POWER - LEAST_POWER + 1][2]; /* the first 128 bits, high word first, cut off */

static void store_top(const uint32_t *words, uint64_t to[2]) {
    int top = WORDS - 1;
    while (words[top] == 0) top--;
    uint64_t taken[2] = {0, 0};
    int shift = __builtin_clz(words[top]);
    for (int bit = 0; bit < 128; bit++) { /* slow and plain: it runs once in a process */
        int at = top * 32 + 31 - shift - bit;
        uint64_t one = at < 0 ? 0 : words[at >> 5] >> (at & 31) & 1;
        taken[bit >> 6] |= one << (63 - (bit & 63));
    }
    to[0] = taken[0];
    to[1] = taken[1];
}

void fill_powers(void) {
    uint32_t big[WORDS] = {1};
    for (int power = 0; power <= MOST_POWER; power++) {
        store_top(big, powers[power - LEAST_POWER]);
        uint64_t carry = 0;
        for (int i = 0; i < WORDS; i++) {
            carry += (uint64_t)big[i] * 10;
            big[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    memset(big, 0, sizeof big);
    big[WORDS - 1] = 0x10000000u; /* a power of two, large enough that 128 bits are left after the last division */
    for (int power = -1; power >= LEAST_POWER; power--) {
        uint64_t rest = 0;
        for (int i = WORDS - 1; i >= 0; i--) {
            rest = rest << 32 | big[i];
            big[i] = (uint32_t)(rest / 10);
            rest %= 10;
        }
        store_top(big, powers[power - LEAST_POWER]);
    }
}

/* The bits of man * 10**exp10 without a sign. 1, or 0 if 128 bits do not decide it. man is not zero. */
static int eisel_lemire(uint64_t man, int64_t exp10, uint64_t *bits) {
    if (exp10 < LEAST_POWER || exp10 > MOST_POWER) return 0;
    const uint64_t *power = powers[exp10 - LEAST_POWER];
    int zeros = __builtin_clzll(man);
    man <<= zeros;
    uint64_t exponent = (uint64_t)(((217706 * (int)exp10) >> 16) + 64 + 1023) - (uint64_t)zeros;
    uint64_t low, high = multiply(man, power[0], &low);
    if ((high & 0x1FF) == 0x1FF && low + man < man) {
        uint64_t further_low, further = multiply(man, power[1], &further_low);
        uint64_t merged = low + further;
        if (merged < low) high++;
        if ((high & 0x1FF) == 0x1FF && merged + 1 == 0 && further_low + man < man) return 0;
        low = merged;
    }
    uint64_t first = high >> 63;
    uint64_t made = high >> (first + 9);
    exponent -= 1 ^ first;
    if (low == 0 && (high & 0x1FF) == 0 && (made & 3) == 1) return 0;
    made += made & 1;
    made >>= 1;
    if (made >> 53) {
        made >>= 1;
        exponent++;
    }
    if (exponent - 1 >= 0x7FF - 1) return 0;
    *bits = exponent << 52 | (made & 0xFFFFFFFFFFFFFull);
    return 1;
}

static double from_bits(uint64_t bits, int negative) {
    double made;
    bits |= (uint64_t)negative << 63;
    memcpy(&made, &bits, 8);
    return made;
}

int number_as_double(const Number *n, double *found) {
    static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (n->man == 0) { /* a whole number has no negative zero */
        *found = n->negative && !n->whole ? -0.0 : 0.0;
        return 1;
    }
#if FLT_EVAL_METHOD == 0 && !defined(HEADGATE_SCALAR)
    if (!n->truncated && n->man <= (1ull << 53) && n->exp10 >= -22 && n->exp10 <= 22) {
        double made = (double)n->man;
        made = n->exp10 < 0 ? made / exact[-n->exp10] : made * exact[n->exp10];
        *found = n->negative ? -made : made;
        return 1;
    }
#else
    (void)exact;
#endif
    /* the value is at least 10**exp10, and below 10**(exp10 + digits) */
    if (n->exp10 + n->digits < -324) {
        *found = n->negative ? -0.0 : 0.0;
        return 1;
    }
    if (n->exp10 > 310) {
        *found = from_bits(0x7FF0000000000000ull, n->negative);
        return 1;
    }
    uint64_t bits, above;
    if (!eisel_lemire(n->man, n->exp10, &bits)) return 0;
    if (n->truncated && (!eisel_lemire(n->man + 1, n->exp10, &above) || above != bits)) return 0;
    *found = from_bits(bits, n->negative);
    return 1;
}

static inline uint64_t round_to_odd(uint64_t high, uint64_t low, uint64_t by) {
    uint64_t x0, x1 = multiply(low, by, &x0), y0, y1 = multiply(high, by, &y0);
    y0 += x1;
    y1 += y0 < x1;
    return y1 | (y0 > 1);
}

static uint64_t schubfach(uint64_t fraction, int biased, int *exp10) {
    uint64_t c = fraction;
    int q = 1 - 1075;
    if (biased != 0) {
        c |= 1ull << 52;
        q = biased - 1075;
        if (q <= 0 && q > -53 && (c & ((1ull << -q) - 1)) == 0) {
            *exp10 = 0;
            return c >> -q;
        }
    }
    int closer = fraction == 0 && biased > 1, odd = (int)(c & 1);
    int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
    int h = q + ((-k * 1741647) >> 19) + 1;
    uint64_t high = powers[-k - LEAST_POWER][0], low = powers[-k - LEAST_POWER][1];
    if (-k < 0 || -k > 55) { /* the others are exact */
        low++;
        high += low == 0;
    }
    uint64_t lower = round_to_odd(high, low, (4 * c - 2 + (uint64_t)closer) << h) + (uint64_t)odd;
    uint64_t middle = round_to_odd(high, low, (4 * c) << h);
    uint64_t upper = round_to_odd(high, low, (4 * c + 2) << h) - (uint64_t)odd;
    uint64_t s = middle / 4;
    if (s >= 10) {
        uint64_t tens = s / 10;
        int down = lower <= 40 * tens, up = 40 * tens + 40 <= upper;
        if (down != up) {
            *exp10 = k + 1;
            return tens + (uint64_t)up;
        }
    }
    int down = lower <= 4 * s, up = 4 * s + 4 <= upper;
    *exp10 = k;
    if (down != up) return s + (uint64_t)up;
    uint64_t half = 4 * s + 2;
    return s + (uint64_t)(middle > half || (middle == half && (s & 1)));
}

uint64_t shortest_digits(double value, int *exp10) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    uint64_t digits = schubfach(bits & 0xFFFFFFFFFFFFFull, (int)(bits >> 52 & 0x7FF), exp10);
    while (digits % 10 == 0) {
        digits /= 10;
        ++*exp10;
    }
    return digits;
}
