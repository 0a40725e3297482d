/* Spans that Python hands over, as memory that is checked before it is read. */
#ifndef HEADGATE_SPAN_VIEW_H
#define HEADGATE_SPAN_VIEW_H
#include "vector_view.h"

typedef struct { /* parts of records somewhere; `data.obj` is NULL if no record has this part */
    Py_buffer data, starts, sizes;
} Part;

/* (buffer, starts, sizes) or None. 0, or -1 with an exception. The part is to be left in any case. */
static inline int part_of(PyObject *from, Part *part, int64_t *records) {
    PyObject *data, *starts, *sizes;
    memset(part, 0, sizeof *part);
    if (from == Py_None) return 0;
    if (!PyTuple_Check(from)) {
        PyErr_SetString(PyExc_TypeError, "spans are wanted");
        return -1;
    }
    if (!PyArg_ParseTuple(from, "OOO", &data, &starts, &sizes) || view_of(data, &part->data) < 0 ||
        view_of(starts, &part->starts) < 0 || view_of(sizes, &part->sizes) < 0)
        return -1;
    if (*records < 0) *records = part->starts.len / 8;
    if (part->data.obj != NULL && part->starts.len == *records * 8 && part->sizes.len == *records * 8) return 0;
    PyErr_SetString(PyExc_ValueError, "columns have different lengths");
    return -1;
}

static inline void leave_part(Part *part) {
    leave(&part->data);
    leave(&part->starts);
    leave(&part->sizes);
}

/* 1, or 0 if it lies outside of its buffer. A size of -1 is null. */
static inline int bytes_at(const Part *part, int64_t row, const uint8_t **at, int64_t *size) {
    *size = -1;
    *at = NULL;
    if (part->data.obj == NULL) return 1;
    int64_t start = long_at(part->starts.buf, row);
    *size = long_at(part->sizes.buf, row);
    if (*size == -1) return 1;
    if (start < 0 || *size < 0 || start > part->data.len || *size > part->data.len - start) return 0;
    *at = (const uint8_t *)part->data.buf + start;
    return 1;
}
#endif
