/* Buffers of 64-bit integers: indexes, places in bytes, times. longs.py says what is promised, and has the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "varints.h"
#include "vector_view.h"

/* Memory of so many integers. 0, or -1 with an exception; it is to be left in any case. */
static int longs_of(PyObject *object, Py_buffer *view, int64_t *count) {
    if (view_of(object, view) < 0) return -1;
    *count = view->len / 8;
    if (view->obj != NULL && view->len % 8 == 0) return 0;
    PyErr_SetString(PyExc_ValueError, "64-bit integers are wanted");
    return -1;
}

static inline void put_long(void *base, int64_t index, int64_t value) { memcpy((char *)base + index * 8, &value, 8); }

/* gathered(longs, rows) -> bytes */
static PyObject *longs_gathered(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *of, *rows, *made = NULL;
    Py_buffer from = {0}, index = {0};
    int64_t count, wanted;
    if (!PyArg_ParseTuple(args, "OO", &of, &rows)) return NULL;
    if (longs_of(of, &from, &count) < 0 || longs_of(rows, &index, &wanted) < 0) goto done;
    if ((made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)wanted * 8)) == NULL) goto done;
    char *to = PyBytes_AS_STRING(made);
    for (int64_t i = 0; i < wanted; i++) {
        int64_t row = long_at(index.buf, i);
        if (row < 0 || row >= count) {
            PyErr_SetString(PyExc_IndexError, "outside of the column");
            Py_CLEAR(made);
            goto done;
        }
        put_long(to, i, long_at(from.buf, row));
    }
done:
    leave(&from);
    leave(&index);
    return made;
}

/* scattered(longs, rows, length, rest) -> bytes: `length` integers, `rest` but at these indexes. */
static PyObject *longs_scattered(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *of, *rows, *made = NULL;
    Py_buffer from = {0}, index = {0};
    int64_t count, wanted;
    long long length, rest;
    if (!PyArg_ParseTuple(args, "OOLL", &of, &rows, &length, &rest)) return NULL;
    if (longs_of(of, &from, &count) < 0 || longs_of(rows, &index, &wanted) < 0) goto done;
    if (length < 0 || length > PY_SSIZE_T_MAX / 8 || count != wanted) {
        PyErr_SetString(PyExc_ValueError, "a row for each integer, and a length are wanted");
        goto done;
    }
    if ((made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length * 8)) == NULL) goto done;
    char *to = PyBytes_AS_STRING(made);
    for (int64_t i = 0; i < length; i++) put_long(to, i, rest);
    for (int64_t i = 0; i < wanted; i++) {
        int64_t row = long_at(index.buf, i);
        if (row < 0 || row >= length) {
            PyErr_SetString(PyExc_IndexError, "outside of the column");
            Py_CLEAR(made);
            goto done;
        }
        put_long(to, row, long_at(from.buf, i));
    }
done:
    leave(&from);
    leave(&index);
    return made;
}

/* scaled(longs, add, factor, divisor) -> bytes: floor((each + add) * factor / divisor). Nothing may leave 64 bits. */
static PyObject *longs_scaled(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *of, *made = NULL;
    Py_buffer from = {0};
    int64_t count;
    long long add, factor, divisor;
    if (!PyArg_ParseTuple(args, "OLLL", &of, &add, &factor, &divisor)) return NULL;
    if (longs_of(of, &from, &count) < 0) goto done;
    if (divisor < 1) {
        PyErr_SetString(PyExc_ValueError, "a divisor above zero is wanted");
        goto done;
    }
    if ((made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count * 8)) == NULL) goto done;
    char *to = PyBytes_AS_STRING(made);
    for (int64_t i = 0; i < count; i++) {
        int64_t value = (int64_t)(((uint64_t)long_at(from.buf, i) + (uint64_t)add) * (uint64_t)factor);
        put_long(to, i, value / divisor - (value % divisor < 0));
    }
done:
    leave(&from);
    return made;
}

/* extremes(longs) -> (least, greatest); there is at least one */
static PyObject *longs_extremes(PyObject *Py_UNUSED(self), PyObject *of) {
    Py_buffer from = {0};
    int64_t count, least = INT64_MAX, greatest = INT64_MIN;
    PyObject *out = NULL;
    if (longs_of(of, &from, &count) < 0) goto done;
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "there are no integers");
        goto done;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t value = long_at(from.buf, i);
        if (value < least) least = value;
        if (value > greatest) greatest = value;
    }
    out = Py_BuildValue("LL", (long long)least, (long long)greatest);
done:
    leave(&from);
    return out;
}

/* listed_extremes(list) -> (least, greatest), or None if it is empty, or holds anything but integers of 64 bits */
static PyObject *longs_listed_extremes(PyObject *Py_UNUSED(self), PyObject *of) {
    int64_t least = INT64_MAX, greatest = INT64_MIN;
    if (!PyList_Check(of)) {
        PyErr_SetString(PyExc_TypeError, "not a list");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(of);
    for (Py_ssize_t i = 0; i < count; i++) {
        int overflow = 0;
        PyObject *one = PyList_GET_ITEM(of, i);
        if (!PyLong_CheckExact(one)) Py_RETURN_NONE;
        int64_t value = PyLong_AsLongLongAndOverflow(one, &overflow);
        if (overflow) Py_RETURN_NONE;
        if (value < least) least = value;
        if (value > greatest) greatest = value;
    }
    if (count == 0) Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)least, (long long)greatest);
}

/* first_above(longs, start, stop, limit) -> index of the first one in [start, stop) that is greater than the limit, or stop */
static PyObject *longs_first_above(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *of, *out = NULL;
    Py_buffer from = {0};
    int64_t count;
    long long start, stop, limit;
    if (!PyArg_ParseTuple(args, "OLLL", &of, &start, &stop, &limit)) return NULL;
    if (longs_of(of, &from, &count) < 0) goto done;
    if (start < 0 || stop > count) {
        PyErr_SetString(PyExc_IndexError, "outside of the column");
        goto done;
    }
    while (start < stop && long_at(from.buf, start) <= limit) start++;
    out = PyLong_FromLongLong(start < stop ? start : stop);
done:
    leave(&from);
    return out;
}

/* distances(longs, start) -> bytes: each one's distance to the one before it, the first one's to the start, in Kafka's varints. */
static PyObject *longs_distances(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *of, *made = NULL;
    Py_buffer from = {0};
    int64_t count;
    long long start;
    if (!PyArg_ParseTuple(args, "OL", &of, &start)) return NULL;
    if (longs_of(of, &from, &count) < 0) goto done;
    Py_ssize_t size = 0;
    uint64_t before = (uint64_t)start;
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = (uint64_t)long_at(from.buf, i);
        size += varint_size((int64_t)(value - before));
        before = value;
    }
    if ((made = PyBytes_FromStringAndSize(NULL, size)) == NULL) goto done;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(made);
    before = (uint64_t)start;
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = (uint64_t)long_at(from.buf, i);
        to = put_varint(to, (int64_t)(value - before));
        before = value;
    }
done:
    leave(&from);
    return made;
}

/* summed(bytes) -> longs or None: the integers that these distances from 0 are of, modulo 2^64; None if they are none. */
static PyObject *longs_summed(PyObject *Py_UNUSED(self), PyObject *of) {
    Py_buffer from;
    PyObject *made = NULL;
    if (PyObject_GetBuffer(of, &from, PyBUF_SIMPLE) < 0) return NULL;
    Py_ssize_t count = 0;
    const uint8_t *bytes = from.buf;
    for (Py_ssize_t i = 0; i < from.len; i++) count += !(bytes[i] & 0x80);
    if ((made = PyBytes_FromStringAndSize(NULL, count * 8)) == NULL) goto done;
    Reader r = {bytes, bytes + from.len, 0};
    char *to = PyBytes_AS_STRING(made);
    uint64_t total = 0;
    Py_ssize_t read = 0;
    for (; read < count && r.at < r.end; read++) {
        total += (uint64_t)read_varint(&r);
        if (r.bad) break;
        memcpy(to + read * 8, &total, 8);
    }
    if (r.bad || r.at < r.end || read < count) {
        Py_DECREF(made);
        made = Py_NewRef(Py_None);
    }
done:
    PyBuffer_Release(&from);
    return made;
}

PyMethodDef longs_methods[] = {
    {"gathered", longs_gathered, METH_VARARGS, "The integers at these indexes."},
    {"scattered", longs_scattered, METH_VARARGS, "Integers at these indexes of a column."},
    {"scaled", longs_scaled, METH_VARARGS, "Integers moved, multiplied and divided."},
    {"extremes", longs_extremes, METH_O, "The least and the greatest integer."},
    {"listed_extremes", longs_listed_extremes, METH_O, "The least and the greatest integer of a list."},
    {"first_above", longs_first_above, METH_VARARGS, "Where the first integer above a limit is."},
    {"summed", longs_summed, METH_O, "The integers that distances are of."},
    {"distances", longs_distances, METH_VARARGS, "How far each integer is from the one before it."},
    {NULL, NULL, 0, NULL},
};
