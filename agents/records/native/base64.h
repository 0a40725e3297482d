/* Base64, as columns of bytes are stored. */
#ifndef HEADGATE_BASE64_H
#define HEADGATE_BASE64_H
#include <stdint.h>
#include <string.h>

static inline int64_t base64_size(int64_t length) { return (length + 2) / 3 * 4; }

static inline void put_base64(uint8_t *to, const uint8_t *at, int64_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; length > 0; at += 3, length -= 3, to += 4) {
        uint32_t three = (uint32_t)at[0] << 16 | (length > 1 ? (uint32_t)at[1] << 8 : 0) | (length > 2 ? at[2] : 0);
        to[0] = (uint8_t)digits[three >> 18];
        to[1] = (uint8_t)digits[three >> 12 & 63];
        to[2] = (uint8_t)(length > 1 ? digits[three >> 6 & 63] : '=');
        to[3] = (uint8_t)(length > 2 ? digits[three & 63] : '=');
    }
}
#endif
