/* What expressions compute of single values: parts of texts, rounding, hashes, times. core/columns says what they give. */
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

/* ----------------------------------------------------------------------------------------------------------- times */

enum { YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, WEEKDAY, TIME_PARTS };
#define DAY_MS 86400000

static inline int64_t floor_of(int64_t value, int64_t by) { return value / by - (value % by < 0); }

static inline int64_t rest_of(int64_t value, int64_t by) {
    int64_t rest = value % by;
    return rest < 0 ? rest + by : rest;
}

typedef struct {
    int64_t year, month, day;
} Date;

/* The algorithms of core/columns/calendar.py. */
static Date date_of(int64_t days) {
    int64_t era = floor_of(days + 719468, 146097), day = days + 719468 - era * 146097;
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    int64_t month = (5 * day + 2) / 153;
    return (Date){year + era * 400 + (month > 9), month < 10 ? month + 3 : month - 9, day - (153 * month + 2) / 5 + 1};
}

static int64_t days_of(Date date) { /* of the year 1 or later */
    int64_t from_march = date.year - (date.month < 3), era = from_march / 400, year = from_march % 400;
    int64_t month = date.month > 2 ? date.month - 3 : date.month + 9;
    return era * 146097 + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + date.day - 1 - 719468;
}

static int64_t time_part(int64_t ms, int part) {
    if (part == HOUR) return rest_of(floor_of(ms, 3600000), 24);
    if (part == MINUTE) return rest_of(floor_of(ms, 60000), 60);
    if (part == SECOND) return rest_of(floor_of(ms, 1000), 60);
    int64_t days = floor_of(ms, DAY_MS);
    if (part == WEEKDAY) return rest_of(days + 3, 7);
    Date date = date_of(days);
    return part == YEAR ? date.year : part == MONTH ? date.month : date.day;
}

/* A number of so many digits. 0 if there is none. */
static int read_digits(const uint8_t **at, const uint8_t *end, int count, int64_t *to) {
    if (end - *at < count) return 0;
    for (*to = 0; count > 0; count--, ++*at) {
        if (**at < '0' || **at > '9') return 0;
        *to = *to * 10 + **at - '0';
    }
    return 1;
}

static int read_zone(const uint8_t **at, const uint8_t *end, int64_t *minutes) {
    int64_t hour, minute;
    if (*at == end) return 0;
    uint8_t sign = *(*at)++;
    if (sign == 'Z') return 1;
    if ((sign != '+' && sign != '-') || !read_digits(at, end, 2, &hour)) return 0;
    if (*at < end && **at == ':') ++*at;
    if (!read_digits(at, end, 2, &minute) || hour > 23 || minute > 59) return 0;
    *minutes = (hour * 60 + minute) * (sign == '-' ? -1 : 1);
    return 1;
}

/* The time that a text is in this form. 0 if it is none. */
static int read_time(Letters text, const Letters *form, int64_t *ms) {
    static const uint8_t month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const char numbers[] = "YmdHMS";
    int64_t found[6] = {0}, thousandths = 0, zone = 0;
    const uint8_t *at = text.at, *end = at + text.size;
    for (int64_t i = 0; i < form->size; i++) {
        uint8_t letter = form->at[i];
        if (letter != '%' || i + 1 == form->size || form->at[i + 1] == '%') {
            i += letter == '%';
            if (at == end || *at++ != letter) return 0;
            continue;
        }
        const char *directive = memchr(numbers, letter = form->at[++i], 6);
        if (directive != NULL) {
            if (!read_digits(&at, end, letter == 'Y' ? 4 : 2, &found[directive - numbers])) return 0;
        } else if (letter == 'z') {
            if (!read_zone(&at, end, &zone)) return 0;
        } else {
            int digits = 0;
            for (; at < end && *at >= '0' && *at <= '9' && digits < 9; at++, digits++)
                if (digits < 3) thousandths = thousandths * 10 + *at - '0';
            if (digits == 0) return 0;
            for (; digits < 3; digits++) thousandths *= 10;
        }
    }
    if (at != end || found[0] < 1 || found[1] < 1 || found[1] > 12 || found[3] > 23 || found[4] > 59 || found[5] > 59) return 0;
    int leap = found[1] == 2 && found[0] % 4 == 0 && (found[0] % 100 != 0 || found[0] % 400 == 0);
    if (found[2] < 1 || found[2] > month_days[found[1] - 1] + leap) return 0;
    int64_t minutes = (days_of((Date){found[0], found[1], found[2]}) * 24 + found[3]) * 60 + found[4] - zone;
    *ms = (minutes * 60 + found[5]) * 1000 + thousandths;
    return 1;
}

static inline uint8_t *put_digits(uint8_t *to, int64_t value, int count) {
    for (int i = count - 1; i >= 0; i--, value /= 10) to[i] = (uint8_t)('0' + value % 10);
    return to + count;
}

#define TIME_ROOM 3 /* of bytes that a letter of a form may become */

/* The time in this form. Its length, or -1 if its year has not four digits. */
static int64_t write_time(int64_t ms, const Letters *form, uint8_t *begin) {
    int64_t days = floor_of(ms, DAY_MS), left = rest_of(ms, DAY_MS);
    Date date = date_of(days);
    uint8_t *to = begin;
    if (date.year < 1 || date.year > 9999) return -1;
    for (int64_t i = 0; i < form->size; i++) {
        uint8_t letter = form->at[i];
        if (letter != '%' || i + 1 == form->size) {
            *to++ = letter;
            continue;
        }
        switch (form->at[++i]) {
        case 'Y': to = put_digits(to, date.year, 4); break;
        case 'm': to = put_digits(to, date.month, 2); break;
        case 'd': to = put_digits(to, date.day, 2); break;
        case 'H': to = put_digits(to, left / 3600000, 2); break;
        case 'M': to = put_digits(to, left / 60000 % 60, 2); break;
        case 'S': to = put_digits(to, left / 1000 % 60, 2); break;
        case 'f': to = put_digits(to, left % 1000 * 1000, 6); break;
        case 'z':
            memcpy(to, "+0000", 5);
            to += 5;
            break;
        default: *to++ = '%';
        }
    }
    return to - begin;
}
#endif
