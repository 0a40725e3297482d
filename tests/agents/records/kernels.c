/* What reads and writes JSON without Python, on one text after another: built for the machine at hand and for others, whose answers must be
 * the same bytes (`other_machines.py`). Needs no library, so that an emulator of a processor alone can run it. */
#ifdef PLAIN /* of numbers.c not: without the first way from text to double it is sure of fewer */
#define HEADGATE_SCALAR
#endif
#include "../../../agents/records/native/json.h"

#ifdef FREESTANDING
void *memcpy(void *to, const void *from, size_t size) {
    uint8_t *t = to;
    const uint8_t *f = from;
    for (size_t i = 0; i < size; i++) {
        t[i] = f[i];
        __asm__ volatile(""); /* or a compiler makes a call of memcpy of it */
    }
    return to;
}

void *memset(void *to, int byte, size_t size) {
    uint8_t *t = to;
    for (size_t i = 0; i < size; i++) {
        t[i] = (uint8_t)byte;
        __asm__ volatile("");
    }
    return to;
}

void *memchr(const void *in, int byte, size_t size) { /* which compilers make of a strchr in a constant text */
    const uint8_t *at = in;
    for (size_t i = 0; i < size; i++)
        if (at[i] == (uint8_t)byte) return (void *)(at + i);
    return 0;
}
#endif

static uint8_t *put(uint8_t *to, uint64_t value) {
    for (int i = 0; i < 8; i++) *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static uint8_t *put_double(uint8_t *to, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    to = put(to, bits);
    int exp10 = 0;
    if (value == 0 || (bits >> 52 & 0x7FF) == 0x7FF) return to;
    to = put(to, shortest_digits(value, &exp10));
    return put(to, (uint64_t)(int64_t)exp10);
}

/* What each function says of the text from `at` on, where a record ends at `end` and the buffer at `limit`. */
static uint8_t *answers(uint8_t *to, const uint8_t *at, const Bounds *in) {
    if (in->limit - at >= 16) {
        *to++ = (uint8_t)first_special(at);
        *to++ = (uint8_t)first_escaped(at);
    }
    int escaped = 0;
    const uint8_t *quote = string_end(at, in, &escaped);
    to = put(to, quote == 0 ? 0 : (uint64_t)(quote - at + 1));
    *to++ = (uint8_t)escaped;
    if (quote != 0) to = unescape(at, quote, to);
    Number number;
    const uint8_t *behind = at < in->end ? read_number(at, in, &number) : 0;
    to = put(to, behind == 0 ? 0 : (uint64_t)(behind - at));
    if (behind != 0) {
        double found = 0;
        int sure = number_as_double(&number, &found);
        *to++ = (uint8_t)sure;
        if (sure) to = put_double(to, found);
    }
    if (in->limit - at >= 8) {
        double any;
        memcpy(&any, at, 8);
        uint64_t bits;
        memcpy(&bits, &any, 8);
        if ((bits >> 52 & 0x7FF) != 0x7FF) to = put_double(to, any);
    }
    return to;
}

/* How many bytes were written to `to`: the answers from each byte of the text on, for records that end there and ones that end before. */
uint64_t kernels(const uint8_t *text, uint64_t size, uint8_t *to) {
    static int filled;
    if (!filled) fill_powers();
    filled = 1;
    uint8_t *begin = to;
    for (uint64_t less = 0; less <= size && less < 20; less += 19) {
        Bounds in = {text + size - less, text + size};
        for (const uint8_t *at = text; at < in.end; at++) to = answers(to, at, &in);
    }
    return (uint64_t)(to - begin);
}
