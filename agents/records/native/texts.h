/* The texts that a program names, in one piece of memory. */
#ifndef HEADGATE_TEXTS_H
#define HEADGATE_TEXTS_H
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct { /* bytes in a buffer; a decoder that makes others of them says so with a length below zero */
    const uint8_t *at;
    int64_t length;
} Span;

/* Copies a list of bytes. 0 if there is no room, or one is something else; what was reserved by then is for the caller to free. */
static inline int copied_texts(PyObject *texts, Span **spans, uint8_t **bytes, int64_t *number) {
    int64_t total = 0, count = PyList_GET_SIZE(texts);
    for (int64_t i = 0; i < count; i++) {
        PyObject *one = PyList_GET_ITEM(texts, i);
        if (!PyBytes_Check(one)) return 0;
        total += PyBytes_GET_SIZE(one);
    }
    *spans = PyMem_RawCalloc((size_t)count + 1, sizeof(Span));
    *bytes = PyMem_RawMalloc((size_t)total + 1);
    if (*spans == NULL || *bytes == NULL) return 0;
    uint8_t *to = *bytes;
    for (int64_t i = 0; i < count; i++) {
        PyObject *one = PyList_GET_ITEM(texts, i);
        memcpy(to, PyBytes_AS_STRING(one), (size_t)PyBytes_GET_SIZE(one));
        (*spans)[i] = (Span){to, PyBytes_GET_SIZE(one)};
        to += PyBytes_GET_SIZE(one);
    }
    *number = count;
    return 1;
}
#endif
