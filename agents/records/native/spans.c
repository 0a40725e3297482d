/* Record batches (Kafka's format 2) to spans and back: where each value, key and header lies, without an object a record. spans.py says what
 * is promised, and has the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "json.h"
#include "span_view.h"
#include "varints.h"

enum { VALUE, KEY, HEADERS, PARTS };

typedef struct {
    int64_t *starts[PARTS], *sizes[PARTS], *stamps, *offsets;
    int some_key, some_headers, some_gap;
} Found;

/* Whether these are so many headers. Their names may be any bytes: who reads them makes text of them. */
static int skip_headers(Reader *r, int64_t count) {
    while (count-- > 0) {
        int64_t length = read_varint(r);
        if (r->bad || length < 0 || length > r->end - r->at) return 0;
        r->at += length;
        length = read_varint(r);
        if (r->bad || length > r->end - r->at) return 0;
        if (length > 0) r->at += length;
    }
    return 1;
}

/* One record. NULL, or what is wrong. */
static const char *read_one(Reader *r, const uint8_t *base, int64_t i, Found *to, int64_t first_ms, int64_t first_offset) {
    int64_t length = read_varint(r);
    const uint8_t *begun = r->at;
    if (r->bad || length < 1 || length > r->end - r->at) return "the records end in the middle of one";
    r->at++; /* attributes: unused */
    to->stamps[i] = (int64_t)((uint64_t)first_ms + (uint64_t)read_varint(r));
    to->offsets[i] = (int64_t)((uint64_t)first_offset + (uint64_t)read_varint(r));
    for (int part = KEY; part >= VALUE; part--) {
        int64_t size = read_varint(r);
        if (r->bad || size > r->end - r->at) return "the records end in the middle of one";
        to->starts[part][i] = r->at - base;
        to->sizes[part][i] = size < 0 ? -1 : size;
        if (size > 0) r->at += size;
    }
    to->some_key |= to->sizes[KEY][i] >= 0;
    to->starts[HEADERS][i] = r->at - base;
    int64_t count = read_varint(r);
    if (r->bad || count < 0 || count > r->end - r->at || !skip_headers(r, count)) return "the records end in the middle of one";
    to->sizes[HEADERS][i] = r->at - base - to->starts[HEADERS][i];
    to->some_headers |= count > 0;
    to->some_gap |= (uint64_t)to->offsets[i] != (uint64_t)to->offsets[0] + (uint64_t)i;
    return r->at == begun + length ? NULL : "a record has another length than it says";
}

/* read_spans(data, start, end, count, base, first_ms, append_ms or None)
 *     -> (values, times, offset of the first, keys or None, offsets or None, headers or None); values, keys, headers: (starts, sizes) */
static PyObject *spans_read(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, end, count;
    long long base, first_ms;
    PyObject *append_ms, *columns[2 * PARTS + 2] = {0}, *out = NULL;
    if (!PyArg_ParseTuple(args, "y*nnnLLO", &data, &start, &end, &count, &base, &first_ms, &append_ms)) return NULL;
    if (start < 0 || end > data.len || start > end || count < 0 || count > (end - start) / 7) {
        PyErr_SetString(PyExc_ValueError, "more records are announced than there can be");
        goto done;
    }
    int64_t append = append_ms == Py_None ? 0 : PyLong_AsLongLong(append_ms), *memory[2 * PARTS + 2];
    if (PyErr_Occurred()) goto done;
    for (int i = 0; i < 2 * PARTS + 2; i++) {
        if ((columns[i] = PyBytes_FromStringAndSize(NULL, count * 8)) == NULL) goto done;
        memory[i] = (int64_t *)PyBytes_AS_STRING(columns[i]);
    }
    Found found = {{memory[0], memory[2], memory[4]}, {memory[1], memory[3], memory[5]}, memory[6], memory[7], 0, 0, 0};
    Reader r = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + end, 0};
    const char *wrong = NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count && wrong == NULL; i++) {
        wrong = read_one(&r, data.buf, i, &found, first_ms, base);
        if (append_ms != Py_None) found.stamps[i] = append;
    }
    if (wrong == NULL && r.at != r.end) wrong = "bytes are left behind the last record";
    Py_END_ALLOW_THREADS
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        goto done;
    }
    PyObject *keys = found.some_key ? Py_BuildValue("OO", columns[2], columns[3]) : Py_NewRef(Py_None);
    PyObject *headers = found.some_headers ? Py_BuildValue("OO", columns[4], columns[5]) : Py_NewRef(Py_None);
    if (keys != NULL && headers != NULL)
        out = Py_BuildValue("(OO)OLOOO", columns[0], columns[1], columns[6], (long long)(count ? found.offsets[0] : base), keys,
                            found.some_gap ? columns[7] : Py_None, headers);
    Py_XDECREF(keys);
    Py_XDECREF(headers);
done:
    for (int i = 0; i < 2 * PARTS + 2; i++) Py_XDECREF(columns[i]);
    PyBuffer_Release(&data);
    return out;
}

/* --------------------------------------------------------------------------------------------- many small batches at once */

enum { HEAD_SIZE = 61, SMALL = 4096, APPEND_TIME = 8 };

static inline uint64_t big_endian(const uint8_t *at, int size) {
    uint64_t value = 0;
    while (size-- > 0) value = value << 8 | *at++;
    return value;
}

/* The size of a small batch of version 2 with its right checksum, that is not compressed, belongs to no transaction and is no control batch;
 * 0 if the bytes begin with anything else. Of its attributes, only that of the log's time may be set. */
static int64_t small_batch(const uint8_t *at, const uint8_t *end) {
    if (end - at < HEAD_SIZE) return 0;
    int64_t size = 12 + (int64_t)big_endian(at + 8, 4), attributes = (int64_t)big_endian(at + 21, 2), count = (int64_t)big_endian(at + 57, 4);
    if (size < HEAD_SIZE || size > SMALL || size > end - at || at[16] != 2 || (attributes & ~(int64_t)APPEND_TIME)) return 0;
    if (count < 1 || count > (size - HEAD_SIZE) / 7) return 0;
    return crc32c_of(at + 21, (size_t)(size - 21)) == (uint32_t)big_endian(at + 17, 4) ? size : 0;
}

/* read_run(data, start) -> None, or (end, the next offset, count, values, times, offset of the first, keys or None, offsets or None, headers
 * or None): the records of two or more such batches that lie there one behind the other. Whatever else follows is left: its own call, or
 * somebody else, says what it is. */
static PyObject *spans_read_run(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start;
    PyObject *columns[2 * PARTS + 2] = {0}, *out = NULL;
    int64_t *memory[2 * PARTS + 2], most = INT64_MAX, batches, count;
    if (!PyArg_ParseTuple(args, "y*n", &data, &start)) return NULL;
    const uint8_t *base = data.buf, *end = base + data.len, *at;
    if (start < 0 || start > data.len) {
        PyErr_SetString(PyExc_ValueError, "outside of the data");
        goto done;
    }
again:
    batches = count = 0;
    at = base + start;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t size; batches < most && (size = small_batch(at, end)) > 0; at += size) {
        batches++;
        count += (int64_t)big_endian(at + 57, 4);
    }
    Py_END_ALLOW_THREADS
    if (batches < 2) {
        out = Py_NewRef(Py_None);
        goto done;
    }
    for (int i = 0; i < 2 * PARTS + 2; i++) {
        Py_XSETREF(columns[i], PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count * 8));
        if (columns[i] == NULL) goto done;
        memory[i] = (int64_t *)PyBytes_AS_STRING(columns[i]);
    }
    Found found = {{memory[0], memory[2], memory[4]}, {memory[1], memory[3], memory[5]}, memory[6], memory[7], 0, 0, 0};
    const uint8_t *stop = at;
    int64_t row = 0, batch = 0, next = 0;
    const char *wrong = NULL;
    Py_BEGIN_ALLOW_THREADS
    for (at = base + start; at < stop && wrong == NULL; batch++) {
        int64_t first = (int64_t)big_endian(at, 8), ms = (int64_t)big_endian(at + 27, 8), greatest = (int64_t)big_endian(at + 35, 8);
        int append = at[22] & APPEND_TIME;
        int64_t size = 12 + (int64_t)big_endian(at + 8, 4);
        if (size < HEAD_SIZE || size > stop - at) { /* the bytes have changed since the first look at them */
            wrong = "the batch has another length than before";
            break;
        }
        Reader r = {at + HEAD_SIZE, at + size, 0};
        next = (int64_t)((uint64_t)first + (uint64_t)(int64_t)(int32_t)big_endian(at + 23, 4) + 1);
        for (int64_t left = (int64_t)big_endian(at + 57, 4); left > 0 && row < count && wrong == NULL; left--, row++) {
            wrong = read_one(&r, base, row, &found, ms, first);
            if (append) found.stamps[row] = greatest;
        }
        if (wrong == NULL && r.at != r.end) wrong = "bytes are left behind the last record";
        at = r.end;
    }
    if (wrong == NULL && row != count) wrong = "the batches have other numbers of records than before";
    Py_END_ALLOW_THREADS
    if (wrong != NULL) { /* its own reader says so; the batches before it are a run */
        most = batch - 1;
        goto again;
    }
    PyObject *keys = found.some_key ? Py_BuildValue("OO", columns[2], columns[3]) : Py_NewRef(Py_None);
    PyObject *headers = found.some_headers ? Py_BuildValue("OO", columns[4], columns[5]) : Py_NewRef(Py_None);
    if (keys != NULL && headers != NULL)
        out = Py_BuildValue("nLL(OO)OLOOO", (Py_ssize_t)(stop - base), (long long)next, (long long)count, columns[0], columns[1], columns[6],
                            (long long)found.offsets[0], keys, found.some_gap ? columns[7] : Py_None, headers);
    Py_XDECREF(keys);
    Py_XDECREF(headers);
done:
    for (int i = 0; i < 2 * PARTS + 2; i++) Py_XDECREF(columns[i]);
    PyBuffer_Release(&data);
    return out;
}

/* ---------------------------------------------------------------------------------------------------------- writing */

typedef struct {
    Part parts[PARTS];
    Py_buffer rows, stamps;
    int64_t records, wanted, stamp; /* stamp: of all records, without `stamps` */
} Run;

typedef struct { /* one record, ready to be written */
    const uint8_t *at[PARTS];
    int64_t size[PARTS], delta_ms, body;
} Ready;

static inline int64_t room_of(int64_t size) { return size < 0 ? 1 : varint_size(size) + size; }

/* 1, or 0 if the run makes no sense there. */
static inline int ready_at(const Run *run, int64_t at, int64_t delta, int64_t first_ms, Ready *one) {
    int64_t row = run->rows.obj != NULL ? long_at(run->rows.buf, at) : at;
    if (row < 0 || row >= run->records) return 0;
    for (int part = VALUE; part < PARTS; part++)
        if (!bytes_at(&run->parts[part], row, &one->at[part], &one->size[part])) return 0;
    int64_t stamp = run->stamps.obj != NULL ? long_at(run->stamps.buf, row) : run->stamp;
    one->delta_ms = (int64_t)((uint64_t)stamp - (uint64_t)first_ms);
    one->body = 1 + varint_size(one->delta_ms) + varint_size(delta) + room_of(one->size[KEY]) + room_of(one->size[VALUE]) +
                (one->size[HEADERS] < 0 ? 1 : one->size[HEADERS]);
    return 1;
}

static inline uint8_t *put_part(uint8_t *to, const uint8_t *at, int64_t size) {
    to = put_varint(to, size);
    if (size > 0) memcpy(to, at, (size_t)size);
    return size > 0 ? to + size : to;
}

static uint8_t *put_ready(uint8_t *to, const Ready *one, int64_t delta) {
    to = put_varint(to, one->body);
    *to++ = 0;
    to = put_varint(to, one->delta_ms);
    to = put_varint(to, delta);
    to = put_part(to, one->at[KEY], one->size[KEY]);
    to = put_part(to, one->at[VALUE], one->size[VALUE]);
    if (one->size[HEADERS] < 0) {
        *to++ = 0;
    } else {
        memcpy(to, one->at[HEADERS], (size_t)one->size[HEADERS]);
        to += one->size[HEADERS];
    }
    return to;
}

/* write_spans(keys or None, values, times or one, headers or None, rows or None, start, count, first_ms, room)
 *     -> (bytes, index behind the last record that fits, greatest time)
 * The batch already has `count` records; the first record of a batch always fits. */
static PyObject *spans_write(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys, *values, *stamps, *headers, *rows, *made = NULL, *out = NULL;
    Py_ssize_t start, count, room;
    long long first_ms;
    Run run;
    Ready one;
    memset(&run, 0, sizeof run);
    run.records = -1;
    if (!PyArg_ParseTuple(args, "OOOOOnnLn", &keys, &values, &stamps, &headers, &rows, &start, &count, &first_ms, &room)) return NULL;
    int64_t total = 0, at = start, max_ms = INT64_MIN;
    int fine = 1;
    if (part_of(values, &run.parts[VALUE], &run.records) < 0 || part_of(keys, &run.parts[KEY], &run.records) < 0 ||
        part_of(headers, &run.parts[HEADERS], &run.records) < 0 || view_of(rows, &run.rows) < 0)
        goto done;
    if (PyLong_Check(stamps)) run.stamp = PyLong_AsLongLong(stamps);
    else if (view_of(stamps, &run.stamps) < 0) goto done;
    if (PyErr_Occurred()) goto done;
    run.wanted = run.rows.obj != NULL ? run.rows.len / 8 : run.records;
    if (run.records < 0 || start < 0 || start > run.wanted || count < 0 || (run.stamps.obj != NULL && run.stamps.len != run.records * 8)) {
        PyErr_SetString(PyExc_ValueError, "columns have different lengths");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (; at < run.wanted; at++) {
        fine = ready_at(&run, at, count + at - start, first_ms, &one);
        if (!fine) break;
        int64_t whole = varint_size(one.body) + one.body;
        if (total + whole > room && count + at - start > 0) break;
        total += whole;
        int64_t ms = (int64_t)((uint64_t)first_ms + (uint64_t)one.delta_ms);
        if (ms > max_ms) max_ms = ms;
    }
    Py_END_ALLOW_THREADS
    if (fine && (made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) == NULL) goto done;
    uint8_t *to = fine ? (uint8_t *)PyBytes_AS_STRING(made) : NULL;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = start; fine && i < at; i++) { /* what was measured may have changed meanwhile */
        fine = ready_at(&run, i, count + i - start, first_ms, &one) && varint_size(one.body) + one.body <= total;
        if (!fine) break;
        total -= varint_size(one.body) + one.body;
        to = put_ready(to, &one, count + i - start);
    }
    Py_END_ALLOW_THREADS
    if (fine && total == 0) out = Py_BuildValue("OnL", made, (Py_ssize_t)at, (long long)max_ms);
    else PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
done:
    Py_XDECREF(made);
    for (int part = VALUE; part < PARTS; part++) leave_part(&run.parts[part]);
    leave(&run.rows);
    leave(&run.stamps);
    return out;
}

/* ----------------------------------------------------------------------------------------------------- as objects */

/* pieces(data, starts, sizes) -> [bytes or None] */
static PyObject *spans_pieces(PyObject *Py_UNUSED(self), PyObject *spans) {
    Part part;
    int64_t records = -1;
    PyObject *out = NULL;
    if (part_of(spans, &part, &records) < 0) goto done;
    if (part.data.obj == NULL) PyErr_SetString(PyExc_TypeError, "spans are wanted");
    else out = PyList_New((Py_ssize_t)records);
    if (out == NULL) goto done;
    for (int64_t row = 0; row < records; row++) {
        const uint8_t *at;
        int64_t size;
        PyObject *piece = NULL;
        if (!bytes_at(&part, row, &at, &size)) PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
        else piece = size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
        if (piece == NULL) {
            Py_CLEAR(out);
            goto done;
        }
        PyList_SET_ITEM(out, (Py_ssize_t)row, piece);
    }
done:
    leave_part(&part);
    return out;
}

/* The bytes of one part; -1 for None. What it is must not change while this runs: it is bytes, or holds its memory by `view`. */
static int64_t size_of_part(PyObject *part, const char **at, Py_buffer *view) {
    view->obj = NULL;
    if (part == Py_None) return -1;
    if (PyBytes_CheckExact(part)) {
        *at = PyBytes_AS_STRING(part);
        return PyBytes_GET_SIZE(part);
    }
    if (PyObject_GetBuffer(part, view, PyBUF_SIMPLE) < 0) return -2;
    *at = view->buf;
    return view->len;
}

/* spans_of_parts(parts) -> (data, starts, sizes): the parts, one behind the other; None has the size -1 */
static PyObject *spans_of_parts(PyObject *Py_UNUSED(self), PyObject *given) {
    PyObject *parts = PySequence_Tuple(given), *starts = NULL, *sizes = NULL, *data = NULL, *made = NULL; /* a copy: nothing changes it */
    if (parts == NULL) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(parts);
    int64_t end = 0, size;
    const char *at = NULL;
    Py_buffer view;
    starts = PyBytes_FromStringAndSize(NULL, count * 8);
    sizes = PyBytes_FromStringAndSize(NULL, count * 8);
    if (starts == NULL || sizes == NULL) goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        if ((size = size_of_part(PyTuple_GET_ITEM(parts, i), &at, &view)) == -2) goto done;
        if (view.obj != NULL) PyBuffer_Release(&view);
        memcpy(PyBytes_AS_STRING(starts) + i * 8, &end, 8);
        memcpy(PyBytes_AS_STRING(sizes) + i * 8, &size, 8);
        if (size > 0) end += size;
    }
    if ((data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)end)) == NULL) goto done;
    char *to = PyBytes_AS_STRING(data), *stop = to + end;
    for (Py_ssize_t i = 0; i < count; i++) {
        if ((size = size_of_part(PyTuple_GET_ITEM(parts, i), &at, &view)) == -2) goto done;
        int fits = size <= stop - to; /* a buffer may have grown since */
        if (fits && size > 0) memcpy(to, at, (size_t)size), to += size;
        if (view.obj != NULL) PyBuffer_Release(&view);
        if (!fits) break;
    }
    if (to == stop) made = PyTuple_Pack(3, data, starts, sizes);
    else PyErr_SetString(PyExc_ValueError, "a part has changed its size");
done:
    Py_DECREF(parts);
    Py_XDECREF(starts);
    Py_XDECREF(sizes);
    Py_XDECREF(data);
    return made;
}

/* is_text(data, starts, sizes) -> whether each is UTF-8, or null */
static PyObject *spans_is_text(PyObject *Py_UNUSED(self), PyObject *spans) {
    Part part;
    int64_t records = -1, row = 0;
    int text = 1;
    PyObject *out = NULL;
    if (part_of(spans, &part, &records) < 0) goto done;
    for (; row < records && text; row++) {
        const uint8_t *at;
        int64_t size;
        if (!bytes_at(&part, row, &at, &size)) {
            PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
            goto done;
        }
        for (const uint8_t *end = at + (size > 0 ? size : 0); text && at < end;) {
            if (*at < 0x80) at++;
            else text = (at = skip_utf8(at, end)) != NULL;
        }
    }
    out = PyBool_FromLong(text);
done:
    leave_part(&part);
    return out;
}

PyMethodDef spans_methods[] = {
    {"is_text", spans_is_text, METH_VARARGS, "Whether spans are UTF-8."},
    {"read_spans", spans_read, METH_VARARGS, "Where the records of a batch lie."},
    {"read_run", spans_read_run, METH_VARARGS, "Where the records of several small batches lie."},
    {"spans_of_parts", spans_of_parts, METH_O, "Bytes, one behind the other."},
    {"pieces", spans_pieces, METH_VARARGS, "The bytes of spans."},
    {"write_spans", spans_write, METH_VARARGS, "Records that lie somewhere as records of a batch."},
    {NULL, NULL, 0, NULL},
};
