/* Kafka's varints: zigzag, seven bits a byte, the lowest first. */
#ifndef HEADGATE_VARINTS_H
#define HEADGATE_VARINTS_H
#include <stdint.h>

typedef struct {
    const uint8_t *at, *end;
    int bad;
} Reader;

static inline int64_t read_varint(Reader *r) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->at >= r->end) break;
        uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7f) << (shift & 63);
        if (!(byte & 0x80)) return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    }
    r->bad = 1;
    return 0;
}

static inline int varint_size(int64_t value) {
    uint64_t v = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    int size = 1;
    while (v >= 0x80) {
        v >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *put_varint(uint8_t *to, int64_t value) {
    uint64_t v = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (v >= 0x80) {
        *to++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *to++ = (uint8_t)v;
    return to;
}
#endif
