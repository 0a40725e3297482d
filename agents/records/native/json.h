/* Scans JSON text. Every function gets where the record ends, and where the buffer does: up to there whole words may be loaded, but nothing
 * behind the end of the record decides anything. */
#ifndef HEADGATE_JSON_H
#define HEADGATE_JSON_H
#include <stdint.h>
#include <string.h>

#include "numbers.h"
/* HEADGATE_SCALAR: nothing of a certain machine is used, as where there is none of these; the sanitized build is made so, too. */
#if defined(__SSE2__) && !defined(HEADGATE_SCALAR)
#define WITH_SSE2
#include <emmintrin.h>
#elif defined(__aarch64__) && !defined(HEADGATE_SCALAR)
#define WITH_NEON
#include <arm_neon.h>
#endif

#define DEEPEST 1024 /* nested arrays and objects, as orjson has it */

typedef struct {
    const uint8_t *end, *limit; /* of the record, of the buffer */
} Bounds;

static inline const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

/* The index of the first of 16 bytes that is a quote, a backslash, a control character or not ASCII; 16 if there is none. */
static inline int first_special(const uint8_t *at) {
#if defined(WITH_SSE2)
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m128i found = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))),
                                 _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20))); /* signed: those above 0x7f, too */
    int mask = _mm_movemask_epi8(found);
    return mask ? __builtin_ctz((unsigned)mask) : 16;
#elif defined(WITH_NEON)
    uint8x16_t bytes = vld1q_u8(at);
    uint8x16_t found = vorrq_u8(vorrq_u8(vceqq_u8(bytes, vdupq_n_u8('"')), vceqq_u8(bytes, vdupq_n_u8('\\'))),
                                vcltq_s8(vreinterpretq_s8_u8(bytes), vdupq_n_s8(0x20)));
    uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(found), 4)), 0);
    return mask ? __builtin_ctzll(mask) >> 2 : 16;
#else
    for (int i = 0; i < 16; i++)
        if (at[i] == '"' || at[i] == '\\' || at[i] < 0x20 || at[i] >= 0x80) return i;
    return 16;
#endif
}

static inline int is_plain(uint8_t c) { return c >= 0x20 && c != '"' && c != '\\'; }

/* The index of the first of 16 bytes that needs an escape; 16 if there is none. */
static inline int first_escaped(const uint8_t *at) {
#if defined(WITH_SSE2)
    __m128i bytes = _mm_loadu_si128((const __m128i *)at), control = _mm_set1_epi8(0x1f);
    __m128i found = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))),
                                 _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
    int mask = _mm_movemask_epi8(found);
    return mask ? __builtin_ctz((unsigned)mask) : 16;
#elif defined(WITH_NEON)
    uint8x16_t bytes = vld1q_u8(at);
    uint8x16_t found = vorrq_u8(vorrq_u8(vceqq_u8(bytes, vdupq_n_u8('"')), vceqq_u8(bytes, vdupq_n_u8('\\'))),
                                vcltq_u8(bytes, vdupq_n_u8(0x20)));
    uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(found), 4)), 0);
    return mask ? __builtin_ctzll(mask) >> 2 : 16;
#else
    int i = 0;
    while (i < 16 && is_plain(at[i])) i++;
    return i;
#endif
}

/* `at` is a byte of 0x80 or more: behind the sequence that begins there, or NULL. */
static inline const uint8_t *skip_utf8(const uint8_t *at, const uint8_t *end) {
    uint8_t first = *at;
    int64_t left = end - at;
    if (first < 0xC2) return NULL;
    if (left < 2 || (at[1] & 0xC0) != 0x80) return NULL;
    if (first < 0xE0) return at + 2;
    if (left < 3 || (at[2] & 0xC0) != 0x80) return NULL;
    if (first < 0xF0) return (first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) ? NULL : at + 3;
    if (left < 4 || (at[3] & 0xC0) != 0x80 || first > 0xF4) return NULL;
    return (first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] > 0x8F) ? NULL : at + 4;
}

/* Four hexadecimal digits, or -1. */
static inline int four_hex(const uint8_t *at) {
    int made = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i], low = c | 32;
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0) return -1;
        made = made << 4 | digit;
    }
    return made;
}

/* `at` is behind a backslash: behind the escape, or NULL. */
static inline const uint8_t *skip_escape(const uint8_t *at, const uint8_t *end) {
    if (at >= end) return NULL;
    if (*at != 'u') return *at && strchr("\"\\/bfnrt", *at) ? at + 1 : NULL;
    if (end - at < 5) return NULL;
    int unit = four_hex(at + 1);
    if (unit < 0 || (unit >= 0xDC00 && unit < 0xE000)) return NULL;
    if (unit < 0xD800 || unit >= 0xDC00) return at + 5;
    if (end - at < 11 || at[5] != '\\' || at[6] != 'u') return NULL;
    unit = four_hex(at + 7);
    return unit >= 0xDC00 && unit < 0xE000 ? at + 11 : NULL;
}

/* `at` is behind the opening quote: the closing quote, or NULL. */
static inline const uint8_t *string_end(const uint8_t *at, const Bounds *in, int *escaped) {
    const uint8_t *end = in->end;
    for (;;) {
        if (in->limit - at >= 16) {
            int ahead = first_special(at);
            at += ahead;
            if (ahead == 16) {
                if (at >= end) return NULL;
                continue;
            }
        }
        if (at >= end) return NULL;
        uint8_t c = *at;
        if (c == '"') return at;
        if (c == '\\') {
            *escaped = 1;
            at = skip_escape(at + 1, end);
            if (at == NULL) return NULL;
        } else if (c >= 0x80) {
            do {
                at = skip_utf8(at, end);
                if (at == NULL) return NULL;
            } while (at < end && *at >= 0x80);
        } else if (c < 0x20) {
            return NULL;
        } else {
            at++;
        }
    }
}

/* The text of a checked string, at most as long as the string: behind the last byte written. Whatever the bytes have become meanwhile,
 * nothing outside of the string is read. */
static inline uint8_t *unescape(const uint8_t *at, const uint8_t *end, uint8_t *to) {
    while (at < end) {
        if (*at != '\\' || end - at < 2) {
            *to++ = *at++;
            continue;
        }
        uint8_t c = at[1];
        at += 2;
        if (c != 'u') {
            *to++ = c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
            continue;
        }
        if (end - at < 4) return to;
        int unit = four_hex(at);
        at += 4;
        if (unit >= 0xD800 && unit < 0xDC00 && end - at >= 6) {
            unit = 0x10000 + ((unit - 0xD800) << 10) + ((four_hex(at + 2) - 0xDC00) & 0x3FF);
            at += 6;
        }
        if (unit < 0x80) {
            *to++ = (uint8_t)unit;
        } else if (unit < 0x800) {
            *to++ = (uint8_t)(0xC0 | unit >> 6);
            *to++ = (uint8_t)(0x80 | (unit & 63));
        } else if (unit < 0x10000) {
            *to++ = (uint8_t)(0xE0 | unit >> 12);
            *to++ = (uint8_t)(0x80 | (unit >> 6 & 63));
            *to++ = (uint8_t)(0x80 | (unit & 63));
        } else {
            *to++ = (uint8_t)(0xF0 | unit >> 18);
            *to++ = (uint8_t)(0x80 | (unit >> 12 & 63));
            *to++ = (uint8_t)(0x80 | (unit >> 6 & 63));
            *to++ = (uint8_t)(0x80 | (unit & 63));
        }
    }
    return to;
}

static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

/* Digits from `at` on are added to *man, which may run over: then there are more than 19. */
static inline const uint8_t *read_digits(const uint8_t *at, const Bounds *in, uint64_t *man) {
    uint64_t made = *man;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && !defined(HEADGATE_SCALAR)
    while (in->end - at >= 8) {
        uint64_t eight;
        memcpy(&eight, at, 8);
        if ((((eight & 0xF0F0F0F0F0F0F0F0ull) ^ 0x3030303030303030ull) |
             (((eight + 0x0606060606060606ull) & 0xF0F0F0F0F0F0F0F0ull) ^ 0x3030303030303030ull)) != 0)
            break;
        eight = (eight & 0x0F0F0F0F0F0F0F0Full) * 2561 >> 8;
        eight = (eight & 0x00FF00FF00FF00FFull) * 6553601 >> 16;
        made = made * 100000000 + (uint32_t)((eight & 0x0000FFFF0000FFFFull) * 42949672960001ull >> 32);
        at += 8;
    }
#endif
    while (at < in->end && is_digit(*at)) made = made * 10 + (uint64_t)(*at++ - '0');
    *man = made;
    return at;
}

/* A number with more than 19 digits: its first 19 that count. */
static inline void cut_digits(Number *n, const uint8_t *behind_digits) {
    const uint8_t *at = n->begin + n->negative;
    int fraction = 0;
    int64_t behind_point = 0;
    n->man = 0;
    n->digits = 0;
    for (; at < behind_digits; at++) {
        if (*at == '.') {
            fraction = 1;
            continue;
        }
        if (n->digits == 19) {
            n->truncated |= *at != '0';
            if (!fraction) behind_point--;
            continue;
        }
        n->man = n->man * 10 + (uint64_t)(*at - '0');
        n->digits += n->man != 0;
        behind_point += fraction;
    }
    n->exp10 = -behind_point;
}

/* Behind the number that begins at `at`, or NULL. */
static inline const uint8_t *read_number(const uint8_t *at, const Bounds *in, Number *n) {
    const uint8_t *end = in->end;
    n->begin = at;
    n->negative = *at == '-';
    at += n->negative;
    n->whole = 1;
    n->truncated = 0;
    n->man = 0;
    n->exp10 = 0;
    if (at >= end || !is_digit(*at)) return NULL;
    const uint8_t *first = at;
    at = read_digits(at, in, &n->man);
    if (*first == '0' && at - first > 1) return NULL;
    int64_t digits = at - first;
    if (at < end && *at == '.') {
        n->whole = 0;
        const uint8_t *point = ++at;
        at = read_digits(at, in, &n->man);
        if (at == point) return NULL;
        n->exp10 = point - at;
        digits += at - point;
    }
    n->digits = (int)(digits > 19 ? 20 : digits);
    if (digits > 19) cut_digits(n, at);
    if (at < end && (*at | 32) == 'e') {
        n->whole = 0;
        at++;
        int negative = at < end && *at == '-';
        if (at < end && (*at == '-' || *at == '+')) at++;
        const uint8_t *begin = at;
        int64_t exponent = 0;
        for (; at < end && is_digit(*at); at++)
            if (exponent < (int64_t)1 << 50) exponent = exponent * 10 + (*at - '0');
        if (at == begin) return NULL;
        n->exp10 += negative ? -exponent : exponent;
    }
    n->end = at;
    return at;
}
#endif
