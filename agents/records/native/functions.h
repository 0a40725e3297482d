/* What expressions compute of single values: parts of texts, rounding, hashes. core/columns says what they give. */
#ifndef HEADGATE_FUNCTIONS_H
#define HEADGATE_FUNCTIONS_H
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *at;
    int64_t size;
} Letters;

/* Where a part that is not empty begins in a text; NULL if nowhere. */
static const uint8_t *found_in(const uint8_t *text, int64_t size, const Letters *part) {
    if (size < part->size) return NULL;
    for (const uint8_t *last = text + size - part->size; text <= last; text++) {
        text = memchr(text, part->at[0], (size_t)(last - text + 1));
        if (text == NULL || memcmp(text, part->at, (size_t)part->size) == 0) return text;
    }
    return NULL;
}

static inline int begins(uint8_t byte) { return (byte & 0xC0) != 0x80; } /* a character */

static int64_t characters(const uint8_t *at, int64_t size) {
    int64_t found = 0;
    for (int64_t i = 0; i < size; i++) found += begins(at[i]);
    return found;
}

/* Behind so many characters. */
static const uint8_t *behind(const uint8_t *at, const uint8_t *end, int64_t count) {
    for (; at < end && count > 0; count--)
        for (at++; at < end && !begins(*at);) at++;
    return at;
}

static void slice(Letters *text, int64_t start, int64_t stop) {
    const uint8_t *end = text->at + text->size;
    if (start < 0 || stop < 0) {
        int64_t all = characters(text->at, text->size);
        if (start < 0) start = start < -all ? 0 : start + all;
        if (stop < 0) stop = stop < -all ? 0 : stop + all;
    }
    text->at = behind(text->at, end, start);
    text->size = stop > start ? behind(text->at, end, stop - start) - text->at : 0;
}

/* Whether this character is one of these. */
static inline int is_one_of(const Letters *taken, const uint8_t *at, int64_t size) {
    if (size == 1) return memchr(taken->at, *at, (size_t)taken->size) != NULL;
    return found_in(taken->at, taken->size, &(Letters){at, size}) != NULL;
}

static void strip(Letters *text, const Letters *taken) {
    const uint8_t *at = text->at, *end = at + text->size, *next;
    for (; at < end && is_one_of(taken, at, (next = behind(at, end, 1)) - at); at = next) {}
    while (at < end) {
        for (next = end - 1; next > at && !begins(*next);) next--;
        if (!is_one_of(taken, next, end - next)) break;
        end = next;
    }
    *text = (Letters){at, end - at};
}

/* The part of a text with this number. 0 if there is none. */
static int split(Letters *text, const Letters *by, int64_t number) {
    const uint8_t *at = text->at, *end = at + text->size, *found;
    if (number < 0) {
        int64_t parts = 1;
        for (const uint8_t *in = at; (in = found_in(in, end - in, by)) != NULL; in += by->size) parts++;
        number += parts;
    }
    if (number < 0) return 0;
    while ((found = found_in(at, end - at, by)) != NULL && number-- > 0) at = found + by->size;
    if (found == NULL && number > 0) return 0;
    *text = (Letters){at, (found == NULL ? end : found) - at};
    return 1;
}

/* To so many digits, as Python rounds: the exact number counts, and half of a digit goes to the even one. `power`: 10**digits. */
static double rounded(double value, double power) {
    volatile double scaled = value * power; /* volatile: no compiler may fuse it with the difference below */
    if (!(scaled > -9007199254740992.0 && scaled < 9007199254740992.0)) return value; /* no double has such digits */
    double made = nearbyint(scaled), off = scaled - made;
    if (off == 0.5 || off == -0.5) { /* the product looks like a half: what was cut off from it decides */
        double cut = fma(value, power, -scaled);
        if (cut != 0) made = cut > 0 ? ceil(scaled) : floor(scaled);
    }
    return made / power;
}

#define XX1 0x9E3779B185EBCA87ull
#define XX2 0xC2B2AE3D27D4EB4Full
#define XX3 0x165667B19E3779F9ull
#define XX4 0x85EBCA77C2B2AE63ull
#define XX5 0x27D4EB2F165667C5ull

static inline uint64_t turned(uint64_t value, int by) { return value << by | value >> (64 - by); }

static inline uint64_t read_little(const uint8_t *at, int size) {
    uint64_t made = 0;
    for (int i = 0; i < size; i++) made |= (uint64_t)at[i] << (8 * i); /* compilers make one load of it */
    return made;
}

static inline uint64_t mixed(uint64_t into, uint64_t lane) { return turned(into + lane * XX2, 31) * XX1; }

/* xxHash64 with seed 0. */
static uint64_t xxhash64(const uint8_t *at, int64_t size) {
    const uint8_t *end = at + size;
    uint64_t made = XX5;
    if (size >= 32) {
        uint64_t lanes[4] = {XX1 + XX2, XX2, 0, 0 - XX1};
        for (; end - at >= 32; at += 32)
            for (int i = 0; i < 4; i++) lanes[i] = mixed(lanes[i], read_little(at + 8 * i, 8));
        made = turned(lanes[0], 1) + turned(lanes[1], 7) + turned(lanes[2], 12) + turned(lanes[3], 18);
        for (int i = 0; i < 4; i++) made = (made ^ mixed(0, lanes[i])) * XX1 + XX4;
    }
    made += (uint64_t)size;
    for (; end - at >= 8; at += 8) made = turned(made ^ mixed(0, read_little(at, 8)), 27) * XX1 + XX4;
    if (end - at >= 4) {
        made = turned(made ^ read_little(at, 4) * XX1, 23) * XX2 + XX3;
        at += 4;
    }
    for (; at < end; at++) made = turned(made ^ *at * XX5, 11) * XX1;
    made = (made ^ made >> 33) * XX2;
    made = (made ^ made >> 29) * XX3;
    return made ^ made >> 32;
}

/* Of a number, as its eight bytes with the lowest first. */
static inline uint64_t hash_of_long(uint64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    return xxhash64(bytes, 8);
}
#endif
