/* What decoders of records have found, as Python gets it; see decoded.h. */
#include "decoded.h"

#include "compiled.h"

int more_room(void **array, int64_t used, int64_t *room, size_t size) {
    if (used < *room) return 1;
    int64_t wanted = *room ? *room * 2 : 16;
    void *grown = PyMem_RawRealloc(*array, (size_t)wanted * size);
    if (grown == NULL) return 0;
    *array = grown;
    *room = wanted;
    return 1;
}

int lying_of(Lying *lying) {
    lying->count = lying->offsets.len / 8;
    if (lying->offsets.len % 8 || lying->lengths.len != lying->offsets.len) {
        PyErr_Format(PyExc_ValueError, "%zd offsets and %zd lengths", lying->offsets.len / 8, lying->lengths.len / 8);
        return -1;
    }
    if (lying->count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more than 2**31 records at once");
        return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------------- room */

int start_found(Found *found, int32_t columns, int64_t count) {
    memset(found, 0, sizeof *found);
    found->columns = columns;
    found->out = PyMem_RawCalloc((size_t)columns + 1, sizeof(Out)); /* one more: what fills no column is given one, too */
    found->rows = PyMem_RawMalloc((size_t)count * 8 + 8);
    return found->out == NULL || found->rows == NULL ? -1 : 0;
}

int start_column(Out *out, int kind, int nullable, int zeroed, int64_t count) {
    out->kind = kind;
    Py_ssize_t bits = (Py_ssize_t)(count + 7) / 8;
    if (kind == TEXT || kind == JSON) {
        size_t wanted = (size_t)count + 1;
        out->spans = zeroed ? PyMem_RawCalloc(wanted, sizeof(Span)) : PyMem_RawMalloc(wanted * sizeof(Span));
        if (out->spans == NULL) return -1;
    } else {
        Py_ssize_t size = kind == BOOL ? bits : (Py_ssize_t)count * 8;
        out->data_bytes = PyBytes_FromStringAndSize(NULL, size);
        if (out->data_bytes == NULL) return -1;
        out->data = (uint8_t *)PyBytes_AS_STRING(out->data_bytes);
        if (zeroed || kind == BOOL) memset(out->data, 0, (size_t)size);
    }
    if (nullable) {
        out->validity_bytes = PyBytes_FromStringAndSize(NULL, bits);
        if (out->validity_bytes == NULL) return -1;
        out->validity = (uint8_t *)PyBytes_AS_STRING(out->validity_bytes);
        memset(out->validity, 0xFF, (size_t)bits);
    }
    return 0;
}

void free_found(Found *found) {
    for (int32_t i = 0; found->out != NULL && i < found->columns; i++) {
        Py_XDECREF(found->out[i].data_bytes);
        Py_XDECREF(found->out[i].offsets);
        Py_XDECREF(found->out[i].validity_bytes);
        PyMem_RawFree(found->out[i].spans);
    }
    PyMem_RawFree(found->out);
    PyMem_RawFree(found->rows);
    PyMem_RawFree(found->bad);
    PyMem_RawFree(found->dead);
}

/* ------------------------------------------------------------------------------------------------------------- results */

/* Offsets and bytes of a column of text from where they lie. 0, or -1 with an exception. */
static int gather_text(Out *out, int64_t rows, Rewrite rewrite) {
    int64_t total = 0;
    for (int64_t i = 0; i < rows; i++) {
        total += out->spans[i].length < 0 ? -out->spans[i].length : out->spans[i].length;
        if (total > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "more than 2 GiB of text in one column");
            return -1;
        }
    }
    out->offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows + 1) * 4);
    out->data_bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (out->offsets == NULL || out->data_bytes == NULL) return -1;
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(out->data_bytes), *to = begin, *ends = (uint8_t *)PyBytes_AS_STRING(out->offsets);
    memset(ends, 0, 4);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *at = out->spans[i].at;
        int64_t length = out->spans[i].length;
        if (length < 0) {
            to = rewrite(at, at - length, to);
        } else if (length) {
            memcpy(to, at, (size_t)length);
            to += length;
        }
        int32_t end = (int32_t)(to - begin);
        memcpy(ends + (i + 1) * 4, &end, 4);
    }
    Py_END_ALLOW_THREADS
    return to - begin == total ? 0 : _PyBytes_Resize(&out->data_bytes, to - begin);
}

static void cut_bits(PyObject *of, int64_t rows) {
    if (rows & 7) ((uint8_t *)PyBytes_AS_STRING(of))[rows >> 3] &= (uint8_t)((1u << (rows & 7)) - 1);
}

static int resized(PyObject **of, int64_t size) { return PyBytes_GET_SIZE(*of) == size ? 0 : _PyBytes_Resize(of, (Py_ssize_t)size); }

/* (data, offsets or None, validity or None, nulls) of a column, or NULL. */
static PyObject *column_made(Out *out, int64_t rows, Rewrite rewrite) {
    int64_t bits = (rows + 7) / 8;
    if (out->spans != NULL) {
        if (gather_text(out, rows, rewrite) < 0) return NULL;
    } else if (resized(&out->data_bytes, out->kind == BOOL ? bits : rows * 8) < 0) {
        return NULL;
    }
    if (out->kind == BOOL) cut_bits(out->data_bytes, rows);
    if (out->nulls) {
        if (resized(&out->validity_bytes, bits) < 0) return NULL;
        cut_bits(out->validity_bytes, rows);
    }
    return Py_BuildValue("OOOL", out->data_bytes, out->offsets ? out->offsets : Py_None, out->nulls ? out->validity_bytes : Py_None,
                         (long long)out->nulls);
}

/* A list of so many, each made by `one`. */
static PyObject *list_made(int64_t count, PyObject *(*one)(const void *of, int64_t index), const void *of) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list != NULL && i < count; i++) {
        PyObject *made = one(of, i);
        if (made == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, made);
    }
    return list;
}

static PyObject *one_bad(const void *of, int64_t index) {
    const Bad *one = (const Bad *)of + index;
    return Py_BuildValue("Lii", (long long)one->index, (int)one->flaw, (int)one->column);
}

static PyObject *one_long(const void *of, int64_t index) { return PyLong_FromLongLong(((const int64_t *)of)[index]); }

PyObject *bad_made(const Found *found) { return list_made(found->bads, one_bad, found->bad); }

PyObject *dead_made(const Found *found) { return list_made(found->deads, one_long, found->dead); }

PyObject *columns_made(Found *found, int64_t rows, Rewrite rewrite) {
    PyObject *columns = PyList_New(found->columns);
    for (int32_t i = 0; columns != NULL && i < found->columns; i++) {
        PyObject *one = column_made(&found->out[i], rows, rewrite);
        if (one == NULL) Py_CLEAR(columns);
        else PyList_SET_ITEM(columns, i, one);
    }
    return columns;
}

PyObject *longs_made(const int64_t *from, int64_t count) {
    return PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)count * 8);
}

PyObject *found_made(Found *found, int64_t rows, int64_t count) {
    PyObject *columns = columns_made(found, rows, NULL), *bad = NULL, *dead = NULL, *indexes = NULL, *out = NULL;
    if (columns == NULL || (bad = bad_made(found)) == NULL || (dead = dead_made(found)) == NULL) goto done;
    if (rows < count && (indexes = longs_made(found->rows, rows)) == NULL) goto done;
    out = Py_BuildValue("LOOOO", (long long)rows, columns, bad, dead, indexes ? indexes : Py_None);
done:
    Py_XDECREF(columns);
    Py_XDECREF(bad);
    Py_XDECREF(dead);
    Py_XDECREF(indexes);
    return out;
}

PyObject *refused(int64_t rows, const char *what) {
    if (rows < -1) PyErr_Format(PyExc_ValueError, "record %lld %s", (long long)(-2 - rows), what);
    else if (!PyErr_Occurred()) PyErr_NoMemory();
    return NULL;
}
