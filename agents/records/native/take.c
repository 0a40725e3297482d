/* Picks rows of vectors and spans, joins vectors, and splits keys by partition. taking.py and partitioner.py say what is promised, and have
 * the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "vector_view.h"

#define MOST_TEXT INT32_MAX

typedef struct { /* a vector that is being made; `offsets` and `valid` are NULL where there are none */
    PyObject *data, *offsets, *valid;
    int64_t length, nulls;
} Made;

static inline void *bytes_in(PyObject *made) { return PyBytes_AS_STRING(made); }

static PyObject *zeros(int64_t size) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (made != NULL) memset(PyBytes_AS_STRING(made), 0, (size_t)size);
    return made;
}

static inline void put_int(PyObject *ints, int64_t index, int64_t value) {
    int32_t narrow = (int32_t)value;
    memcpy((char *)bytes_in(ints) + index * 4, &narrow, 4);
}

static inline void put_long(PyObject *longs, int64_t index, int64_t value) { memcpy((char *)bytes_in(longs) + index * 8, &value, 8); }

static inline void set_bit(PyObject *bits, int64_t index) { ((uint8_t *)bytes_in(bits))[index >> 3] |= (uint8_t)(1u << (index & 7)); }

static void drop_made(Made *made) {
    Py_XDECREF(made->data);
    Py_XDECREF(made->offsets);
    Py_XDECREF(made->valid);
}

/* (data, offsets or None, validity or None, nulls); takes what was made. */
static PyObject *finished(Made *made) {
    PyObject *out = Py_BuildValue("OOOL", made->data, made->offsets != NULL ? made->offsets : Py_None,
                                  made->nulls && made->valid != NULL ? made->valid : Py_None, (long long)made->nulls);
    drop_made(made);
    return out;
}

static PyObject *refused(Made *made, const char *why) {
    drop_made(made);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, why);
    return NULL;
}

/* ----------------------------------------------------------------------------------------------------------- picking */

/* Whether all of these rows exist. */
static int rows_fit(const Py_buffer *rows, int64_t length) {
    if (rows->len % 8) return 0;
    for (int64_t i = 0; i < rows->len / 8; i++) {
        int64_t row = long_at(rows->buf, i);
        if (row < 0 || row >= length) return 0;
    }
    return 1;
}

static PyObject *take_text(const VectorView *view, const Py_buffer *rows, Made *made) {
    const uint8_t *at;
    int64_t total = 0, size;
    if ((made->offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(made->length + 1) * 4)) == NULL) return refused(made, "");
    put_int(made->offsets, 0, 0);
    for (int64_t i = 0; i < made->length; i++) {
        if (!text_at(view, long_at(rows->buf, i), &at, &size)) return refused(made, "a text lies outside of its column");
        if ((total += size) > MOST_TEXT) return refused(made, "more text than a column can hold");
        put_int(made->offsets, i + 1, total);
    }
    if ((made->data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) == NULL) return refused(made, "");
    char *to = bytes_in(made->data);
    for (int64_t i = 0; i < made->length; i++) {
        if (!text_at(view, long_at(rows->buf, i), &at, &size)) continue; /* all were read above */
        memcpy(to, at, (size_t)size);
        to += size;
    }
    return finished(made);
}

/* take(vector, length, rows) -> (data, offsets or None, validity or None, nulls) */
static PyObject *vector_take(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *vector, *out = NULL;
    long long length;
    Py_buffer rows;
    VectorView view;
    Made made = {0};
    if (!PyArg_ParseTuple(args, "OLy*", &vector, &length, &rows)) return NULL;
    if (length < 0) length = 0;
    if (vector_of(vector, length, &view) < 0) goto done;
    if (!rows_fit(&rows, length)) {
        PyErr_SetString(PyExc_ValueError, "a row lies outside of its column");
        goto done;
    }
    made.length = rows.len / 8;
    if (view.validity.obj != NULL) {
        if ((made.valid = zeros((made.length + 7) / 8)) == NULL) goto done;
        for (int64_t i = 0; i < made.length; i++)
            if (bit_at(view.validity.buf, long_at(rows.buf, i))) set_bit(made.valid, i);
            else made.nulls++;
    }
    if (view.kind == TEXT) {
        out = take_text(&view, &rows, &made);
        goto done;
    }
    if ((made.data = view.kind == BOOL ? zeros((made.length + 7) / 8) : PyBytes_FromStringAndSize(NULL, rows.len)) == NULL) {
        out = refused(&made, "");
        goto done;
    }
    if (view.kind == BOOL) {
        for (int64_t i = 0; i < made.length; i++)
            if (bit_at(view.data.buf, long_at(rows.buf, i))) set_bit(made.data, i);
    } else {
        for (int64_t i = 0; i < made.length; i++) put_long(made.data, i, long_at(view.data.buf, long_at(rows.buf, i)));
    }
    out = finished(&made);
done:
    leave_vector(&view);
    PyBuffer_Release(&rows);
    return out;
}

typedef struct { /* spans, and which of them */
    Py_buffer data, starts, sizes, rows;
    int64_t count;
} Spans;

static void leave_spans(Spans *spans) {
    leave(&spans->data);
    leave(&spans->starts);
    leave(&spans->sizes);
    leave(&spans->rows);
}

/* 0, or -1 with an exception. The spans are to be left in any case. */
static int spans_from(PyObject *data, PyObject *starts, PyObject *sizes, PyObject *rows, Spans *spans) {
    memset(spans, 0, sizeof *spans);
    if (view_of(data, &spans->data) < 0 || view_of(starts, &spans->starts) < 0 || view_of(sizes, &spans->sizes) < 0 ||
        view_of(rows, &spans->rows) < 0)
        return -1;
    int64_t length = spans->starts.len / 8;
    if (spans->data.obj == NULL || spans->starts.len % 8 || spans->starts.len != spans->sizes.len) {
        PyErr_SetString(PyExc_ValueError, "offsets and lengths are not as many");
        return -1;
    }
    if (spans->rows.obj != NULL && !rows_fit(&spans->rows, length)) {
        PyErr_SetString(PyExc_ValueError, "a row lies outside of its column");
        return -1;
    }
    spans->count = spans->rows.obj != NULL ? spans->rows.len / 8 : length;
    return 0;
}

/* The span at this place: its row. The size is -1 for null, -2 for one that lies outside of the buffer. */
static inline int64_t span_at(const Spans *spans, int64_t place, const uint8_t **at, int64_t *size) {
    int64_t row = spans->rows.obj != NULL ? long_at(spans->rows.buf, place) : place, start = long_at(spans->starts.buf, row);
    *size = long_at(spans->sizes.buf, row);
    *at = NULL;
    if (*size == -1) return row;
    if (start < 0 || *size < 0 || start > spans->data.len || *size > spans->data.len - start) *size = -2;
    else *at = (const uint8_t *)spans->data.buf + start;
    return row;
}

/* take_spans(buffer, starts, sizes, rows or None) -> the parts of a vector of text, as `take` has them */
static PyObject *spans_take(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *data, *starts, *sizes, *rows, *out = NULL;
    Spans spans;
    Made made = {0};
    const uint8_t *at;
    int64_t total = 0, size;
    if (!PyArg_ParseTuple(args, "OOOO", &data, &starts, &sizes, &rows)) return NULL;
    if (spans_from(data, starts, sizes, rows, &spans) < 0) goto done;
    made.length = spans.count;
    made.offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(made.length + 1) * 4);
    made.valid = zeros((made.length + 7) / 8);
    if (made.offsets == NULL || made.valid == NULL) {
        out = refused(&made, "");
        goto done;
    }
    put_int(made.offsets, 0, 0);
    for (int64_t i = 0; i < made.length; i++) {
        span_at(&spans, i, &at, &size);
        if (size == -2 || total + size > MOST_TEXT) {
            out = refused(&made, size == -2 ? "a record lies outside of its buffer" : "more text than a column can hold");
            goto done;
        }
        if (size == -1) made.nulls++;
        else set_bit(made.valid, i);
        total += size > 0 ? size : 0;
        put_int(made.offsets, i + 1, total);
    }
    if ((made.data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) == NULL) {
        out = refused(&made, "");
        goto done;
    }
    char *to = bytes_in(made.data);
    for (int64_t i = 0; i < made.length; i++) {
        span_at(&spans, i, &at, &size);
        if (size <= 0) continue;
        memcpy(to, at, (size_t)size);
        to += size;
    }
    out = finished(&made);
done:
    leave_spans(&spans);
    return out;
}

/* ----------------------------------------------------------------------------------------------------------- joining */

static void copy_bits(PyObject *to, int64_t from, const Py_buffer *bits, int64_t length) {
    if (from % 8 == 0 && length % 8 == 0) {
        memcpy((char *)bytes_in(to) + from / 8, bits->buf, (size_t)(length / 8));
        return;
    }
    for (int64_t i = 0; i < length; i++)
        if (bit_at(bits->buf, i)) set_bit(to, from + i);
}

/* One more vector behind `done` rows and `used` bytes of text, of which there is room. 0 if its text makes no sense. */
static int append_vector(Made *made, const VectorView *view, int64_t length, int64_t done, int64_t *used) {
    for (int64_t i = 0; made->valid != NULL && view->validity.obj == NULL && i < length; i++) set_bit(made->valid, done + i);
    if (made->valid != NULL && view->validity.obj != NULL) copy_bits(made->valid, done, &view->validity, length);
    if (view->kind == BOOL) {
        copy_bits(made->data, done, &view->data, length);
    } else if (view->kind != TEXT) {
        memcpy((char *)bytes_in(made->data) + done * 8, view->data.buf, (size_t)length * 8);
    } else {
        const uint8_t *at;
        int64_t size, room = PyBytes_GET_SIZE(made->data);
        for (int64_t i = 0; i < length; i++) {
            if (!text_at(view, i, &at, &size) || size > room - *used) return 0;
            memcpy((char *)bytes_in(made->data) + *used, at, (size_t)size);
            put_int(made->offsets, done + i + 1, *used += size);
        }
    }
    return 1;
}

/* How many bytes of text there are; -1 if that makes no sense. */
static int64_t text_in(const VectorView *view, int64_t length) {
    int32_t first, last;
    memcpy(&first, view->offsets.buf, 4);
    memcpy(&last, (const char *)view->offsets.buf + length * 4, 4);
    return first < 0 || last < first ? -1 : (int64_t)last - first;
}

/* join([(vector, length)]) of one kind -> (data, offsets or None, validity or None, nulls) */
static PyObject *vectors_join(PyObject *Py_UNUSED(self), PyObject *list) {
    if (!PyList_Check(list) || PyList_GET_SIZE(list) == 0) {
        PyErr_SetString(PyExc_ValueError, "nothing to join");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(list), opened = 0;
    VectorView *views = PyMem_RawCalloc((size_t)count, sizeof(VectorView));
    int64_t *lengths = PyMem_RawCalloc((size_t)count, sizeof(int64_t)), text = 0, done = 0, used = 0;
    int some_null = 0;
    PyObject *out = NULL;
    Made made = {0};
    if (views == NULL || lengths == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; opened < count;) {
        PyObject *vector, *pair = PyList_GET_ITEM(list, opened);
        long long length;
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "OL", &vector, &length) || length < 0) goto odd;
        lengths[opened] = length;
        if (vector_of(vector, length, &views[opened++]) < 0) goto done;
        const VectorView *view = &views[opened - 1];
        if (view->kind != views[0].kind) goto odd;
        int64_t more = view->kind == TEXT ? text_in(view, length) : 0;
        if (more < 0 || (text += more) > MOST_TEXT) goto odd;
        some_null |= view->validity.obj != NULL;
        made.length += length;
    }
    int kind = views[0].kind;
    int64_t bits = (made.length + 7) / 8;
    made.data = kind == TEXT ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)text) : zeros(kind == BOOL ? bits : made.length * 8);
    if (some_null) made.valid = zeros(bits);
    if (kind == TEXT) made.offsets = zeros((made.length + 1) * 4);
    if (made.data == NULL || (some_null && made.valid == NULL) || (kind == TEXT && made.offsets == NULL)) goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!append_vector(&made, &views[i], lengths[i], done, &used)) goto odd;
        done += lengths[i];
    }
    if (used != text) goto odd;
    for (int64_t i = 0; made.valid != NULL && i < made.length; i++) made.nulls += !bit_at(bytes_in(made.valid), i);
    out = finished(&made);
    memset(&made, 0, sizeof made);
    goto done;
odd:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "these are no vectors of one kind");
done:
    drop_made(&made);
    for (Py_ssize_t i = 0; views != NULL && i < opened; i++) leave_vector(&views[i]);
    PyMem_RawFree(views);
    PyMem_RawFree(lengths);
    return out;
}

/* text_spans(vector of text, length) -> (starts, sizes), -1 for null */
static PyObject *vector_spans(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *vector, *out = NULL, *starts = NULL, *sizes = NULL;
    long long length;
    VectorView view;
    const uint8_t *at;
    int64_t size;
    if (!PyArg_ParseTuple(args, "OL", &vector, &length)) return NULL;
    if (length < 0) length = 0;
    if (vector_of(vector, length, &view) < 0) goto done;
    starts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length * 8);
    sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length * 8);
    if (starts == NULL || sizes == NULL) goto done;
    for (int64_t i = 0; i < length; i++) {
        if (view.kind != TEXT || !text_at(&view, i, &at, &size)) {
            PyErr_SetString(PyExc_ValueError, "a text lies outside of its column");
            goto done;
        }
        put_long(starts, i, at - (const uint8_t *)view.data.buf);
        put_long(sizes, i, is_valid(&view, i) ? size : -1);
    }
    out = PyTuple_Pack(2, starts, sizes);
done:
    Py_XDECREF(starts);
    Py_XDECREF(sizes);
    leave_vector(&view);
    return out;
}

/* ---------------------------------------------------------------------------------------------------------- partitions */

/* split_spans(buffer, starts, sizes, rows or None, partitions, turn) -> ([the rows of a partition], whether a key was null: these go to `turn`) */
static PyObject *spans_split(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *data, *starts, *sizes, *rows, *parts = NULL, *out = NULL;
    long long partitions, turn;
    Spans spans;
    const uint8_t *at;
    int64_t size, **ends = NULL;
    uint32_t *numbers = NULL;
    int some_null = 0;
    if (!PyArg_ParseTuple(args, "OOOOLL", &data, &starts, &sizes, &rows, &partitions, &turn)) return NULL;
    if (spans_from(data, starts, sizes, rows, &spans) < 0) goto done;
    if (partitions <= 0 || partitions > INT32_MAX || turn < 0 || turn >= partitions) {
        PyErr_SetString(PyExc_ValueError, "no such partition");
        goto done;
    }
    numbers = PyMem_RawMalloc((size_t)spans.count * 4 + 4);
    ends = PyMem_RawCalloc((size_t)partitions, sizeof *ends);
    int64_t *counts = PyMem_RawCalloc((size_t)partitions, sizeof *counts);
    parts = PyList_New((Py_ssize_t)partitions);
    if (numbers == NULL || ends == NULL || counts == NULL || parts == NULL) {
        PyMem_RawFree(counts);
        PyErr_NoMemory();
        goto done;
    }
    for (int64_t i = 0; i < spans.count; i++) {
        span_at(&spans, i, &at, &size);
        if (size == -2) {
            PyMem_RawFree(counts);
            PyErr_SetString(PyExc_ValueError, "a key lies outside of its column");
            goto done;
        }
        some_null |= size == -1;
        numbers[i] = size == -1 ? (uint32_t)turn : (murmur2(at, (Py_ssize_t)size) & 0x7FFFFFFFu) % (uint32_t)partitions;
        counts[numbers[i]]++;
    }
    for (int64_t p = 0; p < partitions; p++) {
        PyObject *one = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)counts[p] * 8);
        if (one == NULL) break;
        ends[p] = bytes_in(one);
        PyList_SET_ITEM(parts, (Py_ssize_t)p, one);
    }
    PyMem_RawFree(counts);
    if (PyErr_Occurred()) goto done;
    for (int64_t i = 0; i < spans.count; i++) *ends[numbers[i]]++ = span_at(&spans, i, &at, &size);
    out = Py_BuildValue("OO", parts, some_null ? Py_True : Py_False);
done:
    Py_XDECREF(parts);
    PyMem_RawFree(numbers);
    PyMem_RawFree(ends);
    leave_spans(&spans);
    return out;
}

PyMethodDef take_methods[] = {
    {"take", vector_take, METH_VARARGS, "Rows of a vector, as a vector."},
    {"take_spans", spans_take, METH_VARARGS, "Spans as a vector of text."},
    {"join", vectors_join, METH_O, "Vectors of one kind as one."},
    {"text_spans", vector_spans, METH_VARARGS, "Where the texts of a vector lie."},
    {"split_spans", spans_split, METH_VARARGS, "The rows of keys by the partition that Java's client would choose."},
    {NULL, NULL, 0, NULL},
};
