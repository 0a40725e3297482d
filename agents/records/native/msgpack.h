/* Numbers as msgpack has them. */
#ifndef HEADGATE_MSGPACK_H
#define HEADGATE_MSGPACK_H
#include <stdint.h>
#include <string.h>

static inline uint64_t big_endian(const uint8_t *at, int size) {
    uint64_t made = 0;
    for (int i = 0; i < size; i++) made = made << 8 | at[i];
    return made;
}

/* A whole number: 1 if it fits into 64 bits with a sign, 2 if only without (then *value is its pattern), 0 if there is none. */
static inline int read_whole(const uint8_t **at, const uint8_t *end, int64_t *value) {
    uint8_t code = *(*at)++;
    if (code < 0x80 || code >= 0xE0) {
        *value = (int8_t)code;
        return 1;
    }
    if (code < 0xCC || code > 0xD3) return 0;
    int size = 1 << (code & 3);
    if (end - *at < size) return 0;
    uint64_t made = big_endian(*at, size);
    *at += size;
    if (code >= 0xD0 && size < 8) made = (made ^ 1ull << (8 * size - 1)) - (1ull << (8 * size - 1)); /* the sign */
    memcpy(value, &made, 8);
    return code == 0xCF && made >> 63 ? 2 : 1;
}
#endif
