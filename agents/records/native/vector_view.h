/* Vectors, records and indexes that Python hands over, as memory that is checked before it is read. */
#ifndef HEADGATE_VECTOR_VIEW_H
#define HEADGATE_VECTOR_VIEW_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* KNOWN, WATCHED, OBJECT: fields of a record that make no column. NUMBER: an int64 or a float64 a row, as `offsets` says with a tag of each
 * row. JSON: text, or other bytes, that is written as it is, with where that of a row begins in `offsets` and its length in `validity`, each
 * an int64. */
enum { INT64, FLOAT64, BOOL, TEXT, KNOWN, WATCHED, NUMBER, OBJECT, JSON };
enum { TAG_NULL, TAG_WHOLE, TAG_FRACTION }; /* the tags: null, an int64, a float64 */
#define MOST_ROWS ((int64_t)1 << 40)          /* of a column: eight bytes of each stay far below 64 bits */

typedef struct {
    Py_buffer data, offsets, validity; /* those without memory: `obj` is NULL */
    int kind;
} VectorView;

static inline int64_t long_at(const void *base, int64_t index) {
    int64_t made;
    memcpy(&made, (const char *)base + index * 8, 8);
    return made;
}

static inline double double_at(const void *base, int64_t index) {
    double made;
    memcpy(&made, (const char *)base + index * 8, 8);
    return made;
}

static inline int bit_at(const void *base, int64_t index) { return ((const uint8_t *)base)[index >> 3] >> (index & 7) & 1; }

static inline int is_valid(const VectorView *view, int64_t row) {
    if (view->kind == NUMBER) return ((const uint8_t *)view->offsets.buf)[row] != TAG_NULL;
    return view->validity.obj == NULL || bit_at(view->validity.buf, row);
}

/* The type of a row's value. */
static inline int kind_at(const VectorView *view, int64_t row) {
    if (view->kind != NUMBER) return view->kind;
    return ((const uint8_t *)view->offsets.buf)[row] == TAG_WHOLE ? INT64 : FLOAT64;
}

/* The tag of a number of a row. */
static inline int tag_at(const VectorView *view, int64_t row) {
    return !is_valid(view, row) ? TAG_NULL : kind_at(view, row) == INT64 ? TAG_WHOLE : TAG_FRACTION;
}

/* Where the text of a row lies. 0 if its offsets make no sense. */
static inline int text_at(const VectorView *view, int64_t row, const uint8_t **at, int64_t *length) {
    int32_t ends[2];
    memcpy(ends, (const char *)view->offsets.buf + row * 4, 8);
    *length = (int64_t)ends[1] - ends[0];
    if (ends[0] < 0 || *length < 0 || ends[1] > view->data.len) return 0;
    *at = (const uint8_t *)view->data.buf + ends[0];
    return 1;
}

/* Memory of an object, or none for None. 0, or -1 with an exception. */
static inline int view_of(PyObject *object, Py_buffer *view) {
    memset(view, 0, sizeof *view);
    return object == Py_None ? 0 : PyObject_GetBuffer(object, view, PyBUF_SIMPLE);
}

static inline void leave(Py_buffer *view) {
    if (view->obj != NULL) PyBuffer_Release(view);
}

static inline void leave_vector(VectorView *view) {
    leave(&view->data);
    leave(&view->offsets);
    leave(&view->validity);
}

/* (number of the kind, data, offsets or None, validity or None) of a vector with `length` rows. 0, or -1 with an exception. */
static inline int vector_of(PyObject *tuple, int64_t length, VectorView *view) {
    PyObject *data, *offsets, *validity;
    memset(view, 0, sizeof *view);
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a vector is wanted");
        return -1;
    }
    if (length < 0 || length > MOST_ROWS) {
        PyErr_SetString(PyExc_ValueError, "a vector has no such length");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "iOOO", &view->kind, &data, &offsets, &validity)) return -1;
    if (view_of(data, &view->data) < 0 || view_of(offsets, &view->offsets) < 0 || view_of(validity, &view->validity) < 0) return -1;
    int64_t bits = (length + 7) / 8, wanted = view->kind == TEXT ? 0 : view->kind == BOOL ? bits : length * 8;
    if (view->kind < INT64 || (view->kind > TEXT && view->kind != NUMBER) || view->data.obj == NULL || view->data.len < wanted ||
        (view->validity.obj != NULL && view->validity.len < bits) ||
        (view->kind == NUMBER && (view->offsets.obj == NULL || view->offsets.len < length)) ||
        (view->kind == TEXT && (view->offsets.obj == NULL || view->offsets.len < (length + 1) * 4))) {
        PyErr_SetString(PyExc_ValueError, "a vector is shorter than it says");
        return -1;
    }
    return 0;
}

/* As `vector_of`, also of JSON. */
static inline int written_vector_of(PyObject *tuple, int64_t length, VectorView *view) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 4 || PyLong_AsLong(PyTuple_GET_ITEM(tuple, 0)) != JSON)
        return PyErr_Occurred() ? -1 : vector_of(tuple, length, view);
    memset(view, 0, sizeof *view);
    view->kind = JSON;
    if (view_of(PyTuple_GET_ITEM(tuple, 1), &view->data) < 0 || view_of(PyTuple_GET_ITEM(tuple, 2), &view->offsets) < 0 ||
        view_of(PyTuple_GET_ITEM(tuple, 3), &view->validity) < 0)
        return -1;
    if (length >= 0 && length <= MOST_ROWS && view->data.obj != NULL && view->offsets.obj != NULL && view->validity.obj != NULL &&
        view->offsets.len >= length * 8 && view->validity.len >= length * 8)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a vector is shorter than it says");
    return -1;
}
#endif
