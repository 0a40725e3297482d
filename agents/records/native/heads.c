/* Finds the prefixes of records that name their schemas in a registry; registry/wire.py says what they are, and plain/heads.py gives the same. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "decoded.h"

#define MOST_HEADS 64
#define DEEPEST_PLACE 64 /* as wire.py has it */

typedef struct {
    Span seen[MOST_HEADS];
    int64_t known, last, own; /* own: so many numbers are those of the own place */
    const Py_buffer *mark;    /* NULL: no place follows a prefix */
} Heads;

/* A number of the place of a message: behind it, or NULL if it is none. */
static const uint8_t *place_number(const uint8_t *at, const uint8_t *end, int64_t *found) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (at >= end) return NULL;
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte >= 0x80) continue;
        *found = (int64_t)(value >> 1);
        return value & 1 ? NULL : at; /* below zero */
    }
    return NULL;
}

/* Behind the place of a message, or NULL. */
static const uint8_t *place_end(const uint8_t *at, const uint8_t *end) {
    int64_t count, any;
    at = place_number(at, end, &count);
    if (at == NULL || count > DEEPEST_PLACE) return NULL;
    while (at != NULL && count-- > 0) at = place_number(at, end, &any);
    return at;
}

/* The number of the prefix of a record: -2 without one, -3 if there are too many. */
static int64_t number_of(Heads *heads, const uint8_t *at, int64_t length) {
    int64_t size = length == 0 ? 0 : *at == 0 ? 5 : *at == 1 ? 17 : 0;
    if (size == 0 || size > length) return -2;
    if (heads->mark != NULL) {
        if (heads->mark->len <= length - size && memcmp(at + size, heads->mark->buf, (size_t)heads->mark->len) == 0) return *at;
        const uint8_t *end = place_end(at + size, at + length);
        if (end == NULL) return -2;
        size = end - at;
    }
    for (int64_t tried = 0; tried < heads->known; tried++) {
        int64_t one = (heads->last + tried) % heads->known;
        if (heads->seen[one].length == size && memcmp(heads->seen[one].at, at, (size_t)size) == 0) return (heads->last = one) + heads->own;
    }
    if (heads->known == MOST_HEADS) return -3;
    heads->seen[heads->known] = (Span){at, size};
    heads->last = heads->known++;
    return heads->last + heads->own;
}

/* record_heads(mark or None, buffer, offsets, lengths) -> ([prefix], number of the prefix by record: -1 without a value, -2 without a prefix), or
 * None if there are more than MOST_HEADS of them: nobody writes that many on purpose, and each costs a comparison. With a mark, the place of a
 * message belongs to a prefix; where that is the mark, the number is 0 or 1, as its first byte says, and the others begin with 2. */
static PyObject *record_heads(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *marked, *out = NULL, *list = NULL, *numbers = NULL;
    Py_buffer mark;
    Lying lying;
    if (!PyArg_ParseTuple(args, "Oy*y*y*", &marked, &lying.data, &lying.offsets, &lying.lengths)) return NULL;
    memset(&mark, 0, sizeof mark);
    if (view_of(marked, &mark) < 0 || lying_of(&lying) < 0) goto done;
    Heads heads;
    memset(&heads, 0, sizeof heads);
    heads.mark = marked == Py_None ? NULL : &mark;
    heads.own = marked == Py_None ? 0 : 2;
    numbers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)lying.count * 8);
    if (numbers == NULL) goto done;
    for (int64_t i = 0; i < lying.count; i++) {
        int64_t offset = long_at(lying.offsets.buf, i), length = long_at(lying.lengths.buf, i), number = -1;
        if (length != -1) {
            if (offset < 0 || length < 0 || offset > lying.data.len || length > lying.data.len - offset) {
                PyErr_Format(PyExc_ValueError, "record %lld lies outside of the buffer", (long long)i);
                goto done;
            }
            number = number_of(&heads, (const uint8_t *)lying.data.buf + offset, length);
            if (number == -3) {
                out = Py_NewRef(Py_None);
                goto done;
            }
        }
        memcpy(PyBytes_AS_STRING(numbers) + i * 8, &number, 8);
    }
    if ((list = PyList_New((Py_ssize_t)heads.known)) == NULL) goto done;
    for (int64_t i = 0; i < heads.known; i++) {
        PyObject *head = PyBytes_FromStringAndSize((const char *)heads.seen[i].at, (Py_ssize_t)heads.seen[i].length);
        if (head == NULL) goto done;
        PyList_SET_ITEM(list, (Py_ssize_t)i, head);
    }
    out = PyTuple_Pack(2, list, numbers);
done:
    Py_XDECREF(list);
    Py_XDECREF(numbers);
    leave(&mark);
    PyBuffer_Release(&lying.data);
    PyBuffer_Release(&lying.offsets);
    PyBuffer_Release(&lying.lengths);
    return out;
}

PyMethodDef heads_methods[] = {
    {"record_heads", record_heads, METH_VARARGS, "The prefixes of records that name their schemas."},
    {NULL, NULL, 0, NULL},
};
