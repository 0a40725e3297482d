/* What is asked of records that lie in buffers before they are written: how large they are, when they are, how their keys begin. writable.py
 * and spans.py have the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "span_view.h"
#include "varints.h"

typedef struct {
    Part keys, values, headers;
    Py_buffer rows, times;
    int64_t records, wanted;
} Leaving;

static void leave_all(Leaving *of) {
    leave_part(&of->keys);
    leave_part(&of->values);
    leave_part(&of->headers);
    leave(&of->rows);
    leave(&of->times);
}

/* What is common to the functions below. 0, or -1 with an exception; to be left in any case. */
static int leaving_of(Leaving *of, PyObject *keys, PyObject *values, PyObject *times, PyObject *headers, PyObject *rows) {
    memset(of, 0, sizeof *of);
    of->records = -1;
    if (part_of(keys, &of->keys, &of->records) < 0 || part_of(values, &of->values, &of->records) < 0 ||
        part_of(headers, &of->headers, &of->records) < 0 || view_of(times, &of->times) < 0 || view_of(rows, &of->rows) < 0)
        return -1;
    of->wanted = of->rows.obj != NULL ? of->rows.len / 8 : of->records;
    if (of->records >= 0 && (of->times.obj == NULL || of->times.len == of->records * 8)) return 0;
    PyErr_SetString(PyExc_ValueError, "columns have different lengths");
    return -1;
}

/* The record at this place, or -1. */
static inline int64_t row_at(const Leaving *of, int64_t at) {
    int64_t row = of->rows.obj != NULL ? long_at(of->rows.buf, at) : at;
    return row >= 0 && row < of->records ? row : -1;
}

typedef struct {
    int64_t size, largest, least, greatest, oldest;
    int keyless;
} Extent;

/* 1, or 0 if a record lies outside of its buffer. */
static int measure_all(const Leaving *of, Extent *found) {
    for (int64_t i = 0; i < of->wanted; i++) {
        const uint8_t *at;
        int64_t row = row_at(of, i), key, value, headers;
        if (row < 0 || !bytes_at(&of->keys, row, &at, &key) || !bytes_at(&of->values, row, &at, &value) ||
            !bytes_at(&of->headers, row, &at, &headers))
            return 0;
        int64_t own = (key > 0 ? key : 0) + (value > 0 ? value : 0), time = long_at(of->times.buf, row);
        found->size += own;
        found->keyless |= key < 0;
        if (headers > 0) {
            Reader r = {at, at + headers, 0};
            int64_t count = read_varint(&r);
            own += headers + (r.bad || count < 0 || count > headers ? headers : count) * 10;
        }
        if (own > found->largest) found->largest = own;
        if (time < found->least) found->least = time;
        if (time > found->greatest) found->greatest = time;
        if (time != -1 && time < found->oldest) found->oldest = time;
    }
    return 1;
}

/* measure_spans(keys or None, values, times, headers or None, rows or None)
 *     -> (bytes of keys and values, an upper bound of the largest record with its headers, least and greatest time,
 *         least time that is not -1, whether a record has no key) */
static PyObject *leaving_measure(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys, *values, *times, *headers, *rows, *out = NULL;
    Leaving of;
    Extent found = {0, 0, INT64_MAX, INT64_MIN, INT64_MAX, 0};
    int fine = 0;
    if (!PyArg_ParseTuple(args, "OOOOO", &keys, &values, &times, &headers, &rows)) return NULL;
    if (leaving_of(&of, keys, values, times, headers, rows) < 0) goto done;
    if (of.times.obj == NULL) {
        PyErr_SetString(PyExc_TypeError, "times are wanted");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    fine = measure_all(&of, &found);
    Py_END_ALLOW_THREADS
    if (!fine) PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
    else
        out = Py_BuildValue("LLLLLO", (long long)found.size, (long long)found.largest, (long long)found.least, (long long)found.greatest,
                            (long long)found.oldest, found.keyless ? Py_True : Py_False);
done:
    leave_all(&of);
    return out;
}

/* marked(spans, rows or None, byte) -> whether one begins with this byte */
static PyObject *leaving_marked(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys, *rows, *out = NULL;
    Leaving of;
    int fine = 1, found = 0;
    char mark;
    if (!PyArg_ParseTuple(args, "OOc", &keys, &rows, &mark)) return NULL;
    if (leaving_of(&of, keys, Py_None, Py_None, Py_None, rows) < 0) goto done;
    for (int64_t i = 0; fine && !found && i < of.wanted; i++) {
        const uint8_t *at;
        int64_t row = row_at(&of, i), size;
        fine = row >= 0 && bytes_at(&of.keys, row, &at, &size);
        found = fine && size > 0 && *at == (uint8_t)mark;
    }
    if (fine) out = PyBool_FromLong(found);
    else PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
done:
    leave_all(&of);
    return out;
}

/* A filter over a few keys, by their sizes and last bytes: nearly all spans are none of them. */
typedef struct {
    uint8_t bits[8192];
} Few;

static inline uint32_t place_in(const uint8_t *at, int64_t size) {
    uint32_t last = size > 0 ? at[size - 1] : 0, before = size > 1 ? at[size - 2] : 0;
    return ((uint32_t)size * 2654435761u >> 16 ^ last ^ before << 8) & 0xFFFF;
}

/* 0, or -1 with an exception. */
static int few_of(PyObject *keys, Few *few) {
    PyObject *each = PyObject_GetIter(keys), *key;
    if (each == NULL) return -1;
    memset(few, 0, sizeof *few);
    while ((key = PyIter_Next(each)) != NULL) {
        if (PyBytes_Check(key)) {
            uint32_t place = place_in((const uint8_t *)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
            few->bits[place >> 3] |= (uint8_t)(1 << (place & 7));
        } else PyErr_SetString(PyExc_TypeError, "keys are bytes");
        Py_DECREF(key);
        if (PyErr_Occurred()) break;
    }
    Py_DECREF(each);
    return PyErr_Occurred() ? -1 : 0;
}

/* 1 if this span is one of the keys, 0 if not, -1 with an exception. */
static inline int is_among(PyObject *keys, const Few *few, const uint8_t *at, int64_t size) {
    uint32_t place = place_in(at, size);
    if (!(few->bits[place >> 3] >> (place & 7) & 1)) return 0;
    PyObject *key = PyBytes_FromStringAndSize((const char *)at, size);
    if (key == NULL) return -1;
    int found = PySet_Contains(keys, key);
    Py_DECREF(key);
    return found;
}

/* among(spans, keys) -> the numbers of the spans that are one of the keys, a set */
static PyObject *leaving_among(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *spans, *keys, *out = NULL;
    Leaving of;
    Few few;
    if (!PyArg_ParseTuple(args, "OO", &spans, &keys)) return NULL;
    if (leaving_of(&of, spans, Py_None, Py_None, Py_None, Py_None) < 0) goto done;
    if (!PyAnySet_Check(keys)) {
        PyErr_SetString(PyExc_TypeError, "a set of keys is wanted");
        goto done;
    }
    if (few_of(keys, &few) < 0 || (out = PyList_New(0)) == NULL) goto done;
    for (int64_t row = 0; row < of.records; row++) {
        const uint8_t *at;
        int64_t size;
        int found = -1;
        if (!bytes_at(&of.keys, row, &at, &size)) PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
        else found = size < 0 ? 0 : is_among(keys, &few, at, size);
        PyObject *number = found == 1 ? PyLong_FromLongLong(row) : NULL;
        if (number != NULL && PyList_Append(out, number) < 0) found = -1;
        Py_XDECREF(number);
        if (found < 0 || (found == 1 && number == NULL)) {
            Py_CLEAR(out);
            break;
        }
    }
done:
    leave_all(&of);
    return out;
}

PyMethodDef leaving_methods[] = {
    {"measure_spans", leaving_measure, METH_VARARGS, "How large records are, and when they are."},
    {"marked", leaving_marked, METH_VARARGS, "Whether a span begins with a byte."},
    {"among", leaving_among, METH_VARARGS, "Which spans are one of a few keys."},
    {NULL, NULL, 0, NULL},
};
