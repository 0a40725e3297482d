/* What all decoders of records have in common: where columns grow, which records are bad and which have no value, and how bytes of which
 * nothing is believed are read. A decoder says how one record is read; the rest is here. */
#ifndef HEADGATE_DECODED_H
#define HEADGATE_DECODED_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "json.h"
#include "texts.h"
#include "vector_view.h"

#if defined(__GNUC__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline))
#else
#define ALWAYS_INLINE inline
#define NEVER_INLINE
#endif

/* Why a record is bad, as `RecordFlaw` in decoder.py has it: NO_VALUE_AT_ALL is no JSON, or too few bytes; MORE: bytes follow it. */
enum { FINE = 0, NO_VALUE_AT_ALL = 1, NOT_OBJECT = 2, MISSING = 3, IS_NULL = 4, WRONG_TYPE = 5, OUT_OF_RANGE = 6, MORE = 7, NO_SCHEMA = 8 };
#define MOST_COLUMNS 100000

typedef struct {
    uint8_t *data, *validity; /* validity: NULL unless its values may be null */
    Span *spans;              /* of text, and of JSON as it stands there */
    int64_t nulls;
    int kind;
    PyObject *data_bytes, *offsets, *validity_bytes;
} Out;

typedef struct {
    int64_t index;
    int32_t column, flaw;
} Bad;

typedef struct {
    Out *out; /* one more than there are columns */
    int32_t columns;
    Bad *bad;
    int64_t bads, bad_room, *rows, *dead, deads, dead_room;
} Found;

typedef struct { /* where the records lie */
    Py_buffer data, offsets, lengths;
    int64_t count;
} Lying;

/* Writes what the bytes of a span with a length below zero stand for, at most as many: behind the last byte written. */
typedef uint8_t *(*Rewrite)(const uint8_t *at, const uint8_t *end, uint8_t *to);

int lying_of(Lying *lying);                               /* 0, or -1 with an exception: they do not fit together */
int start_found(Found *found, int32_t columns, int64_t count); /* room for so many rows, of no column yet; 0, or -1 */
int start_column(Out *out, int kind, int nullable, int zeroed, int64_t count);
void free_found(Found *found);
int more_room(void **array, int64_t used, int64_t *room, size_t size); /* 0 if memory was not to be had */
PyObject *columns_made(Found *found, int64_t rows, Rewrite rewrite);
PyObject *bad_made(const Found *found);
PyObject *dead_made(const Found *found);
PyObject *longs_made(const int64_t *from, int64_t count);
PyObject *found_made(Found *found, int64_t rows, int64_t count); /* (rows, [column], [(index, flaw, column)], [index without a value],
                                                                    indexes of the rows or None for all) */
PyObject *refused(int64_t rows, const char *what); /* NULL, with the exception for what `read_each` has returned */

/* ---------------------------------------------------------------------------------------------------------- one record */

typedef struct {
    const uint8_t *at, *end;
} Input;

static inline int is_utf8(const uint8_t *at, int64_t length) {
    const uint8_t *end = at + length;
    while (at < end) {
        uint64_t eight;
        while (end - at >= 8) {
            memcpy(&eight, at, 8);
            if (eight & 0x8080808080808080ull) break;
            at += 8;
        }
        while (at < end && *at < 0x80) at++;
        if (at < end && (at = skip_utf8(at, end)) == NULL) return 0;
    }
    return 1;
}

static inline int is_finite_number(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return (bits >> 52 & 0x7FF) != 0x7FF;
}

static inline void put_long(Out *out, int64_t row, int64_t value) { memcpy(out->data + row * 8, &value, 8); }
static inline void put_double(Out *out, int64_t row, double value) { memcpy(out->data + row * 8, &value, 8); }

static inline void put_bool(Out *out, int64_t row, int value) {
    uint8_t bit = (uint8_t)(1u << (row & 7));
    out->data[row >> 3] = (uint8_t)(value ? out->data[row >> 3] | bit : out->data[row >> 3] & ~bit);
}

/* Zero, false, or no text. */
static inline void put_empty(Out *out, int64_t row) {
    if (out->spans != NULL) out->spans[row] = (Span){NULL, 0};
    else if (out->kind == BOOL) put_bool(out, row, 0);
    else put_long(out, row, 0);
}

static inline void put_null(Out *out, int64_t row) {
    uint8_t bit = (uint8_t)(1u << (row & 7));
    if (out->validity[row >> 3] & bit) out->nulls++;
    out->validity[row >> 3] &= (uint8_t)~bit;
    put_empty(out, row);
}

/* A record that is bad leaves no trace in its row. */
static inline void forget_row(Found *found, int64_t row) {
    uint8_t bit = (uint8_t)(1u << (row & 7));
    for (int32_t i = 0; i < found->columns; i++) {
        Out *out = &found->out[i];
        if (!(out->validity[row >> 3] & bit)) {
            out->validity[row >> 3] |= bit;
            out->nulls--;
        }
        put_empty(out, row);
    }
}

/* --------------------------------------------------------------------------------------------------------- all records */

/* Reads record `index` into row `row`: FINE, or why it is bad, with what that concerns; below zero if all must end. */
typedef int (*ReadOne)(void *work, int64_t index, const uint8_t *at, const uint8_t *end, int64_t row, int32_t *concerned);

/* All records. The number of rows, -1 if memory was not to be had or a record has ended it, -2 - i if record i makes no sense. It is made
 * anew for each decoder, so that reading a record is no call. */
static ALWAYS_INLINE int64_t read_each(Found *found, const Lying *lying, void *work, ReadOne read) {
    const uint8_t *base = lying->data.buf;
    int64_t row = 0, size = lying->data.len;
    for (int64_t i = 0; i < lying->count; i++) {
        int64_t offset = long_at(lying->offsets.buf, i), length = long_at(lying->lengths.buf, i);
        if (length == -1) {
            if (!more_room((void **)&found->dead, found->deads, &found->dead_room, sizeof(int64_t))) return -1;
            found->dead[found->deads++] = i;
            continue;
        }
        if (offset < 0 || length < 0 || offset > size || length > size - offset) return -2 - i;
        int32_t concerned = -1;
        int flaw = read(work, i, base + offset, base + offset + length, row, &concerned);
        if (flaw == FINE) {
            found->rows[row++] = i;
        } else if (flaw < 0) {
            return flaw == -2 ? -2 - i : -1;
        } else {
            if (!more_room((void **)&found->bad, found->bads, &found->bad_room, sizeof(Bad))) return -1;
            found->bad[found->bads++] = (Bad){i, concerned, flaw};
        }
    }
    return row;
}
#endif
