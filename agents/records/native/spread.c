/* Rows with keys as batch frames for each partition of a stream, and back. spreading.py and plain/spread.py say what is promised. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "msgpack.h"

typedef struct {
    const char *key, *value; /* NULL: null */
    Py_ssize_t key_size, value_size;
    int64_t ms;
    Py_ssize_t next; /* the next row of its partition; -1 behind the last */
} Row;

typedef struct {
    Py_ssize_t first, last, rows, size; /* `size`: of its keys, times and values as they are packed */
} Part;

typedef struct {
    Py_ssize_t partition, first;
    PyObject *frame, *offsets;
} Made;

static int bytes_of(PyObject *object, const char **data, Py_ssize_t *size) {
    *data = NULL;
    *size = 0;
    if (object == Py_None) return 0;
    if (!PyBytes_CheckExact(object)) {
        PyErr_Format(PyExc_TypeError, "bytes are wanted, not %s", Py_TYPE(object)->tp_name);
        return -1;
    }
    *data = PyBytes_AS_STRING(object);
    *size = PyBytes_GET_SIZE(object);
    return 0;
}

static int time_of(PyObject *object, int64_t *ms) {
    if (!PyLong_CheckExact(object)) {
        PyErr_Format(PyExc_TypeError, "a time is a whole number, not %s", Py_TYPE(object)->tp_name);
        return -1;
    }
    *ms = PyLong_AsLongLong(object);
    return *ms == -1 && PyErr_Occurred() ? -1 : 0;
}

/* -------------------------------------------------------------------------------------------------------------- msgpack */

static inline uint8_t *put(uint8_t *at, uint8_t code, uint64_t value, int size) {
    *at++ = code;
    for (int i = size - 1; i >= 0; i--) *at++ = (uint8_t)(value >> (8 * i));
    return at;
}

static inline Py_ssize_t size_of_bytes(const char *data, Py_ssize_t size) {
    return data == NULL ? 1 : size + (size < 0x100 ? 2 : size < 0x10000 ? 3 : 5);
}

static inline uint8_t *put_bytes(uint8_t *at, const char *data, Py_ssize_t size) {
    if (data == NULL) {
        *at++ = 0xC0;
        return at;
    }
    at = size < 0x100     ? put(at, 0xC4, (uint64_t)size, 1)
         : size < 0x10000 ? put(at, 0xC5, (uint64_t)size, 2)
                          : put(at, 0xC6, (uint64_t)size, 4);
    memcpy(at, data, (size_t)size);
    return at + size;
}

static inline Py_ssize_t size_of_time(int64_t ms) {
    if (ms >= 0) return ms < 0x80 ? 1 : ms < 0x100 ? 2 : ms < 0x10000 ? 3 : ms < 0x100000000ll ? 5 : 9;
    return ms >= -0x20 ? 1 : ms >= -0x80 ? 2 : ms >= -0x8000 ? 3 : ms >= -0x80000000ll ? 5 : 9;
}

static inline uint8_t *put_time(uint8_t *at, int64_t ms) {
    static const uint8_t whole[] = {0, 0, 0xCC, 0xCD, 0, 0xCE, 0, 0, 0, 0xCF}, negative[] = {0, 0, 0xD0, 0xD1, 0, 0xD2, 0, 0, 0, 0xD3};
    Py_ssize_t size = size_of_time(ms);
    if (size > 1) return put(at, (ms >= 0 ? whole : negative)[size], (uint64_t)ms, (int)size - 1);
    *at = (uint8_t)ms;
    return at + 1;
}

static inline Py_ssize_t size_of_array(Py_ssize_t rows) { return rows < 0x10 ? 1 : rows < 0x10000 ? 3 : 5; }

static inline uint8_t *put_array(uint8_t *at, Py_ssize_t rows) {
    if (rows < 0x10) {
        *at = (uint8_t)(0x90 | rows);
        return at + 1;
    }
    return rows < 0x10000 ? put(at, 0xDC, (uint64_t)rows, 2) : put(at, 0xDD, (uint64_t)rows, 4);
}

/* --------------------------------------------------------------------------------------------------------------- frames */

/* The frame of these rows: `head`, their keys, times and values, `tail`. */
static PyObject *frame_of(const Row *rows, const Part *part, const char *head, Py_ssize_t head_size, const char *tail, Py_ssize_t tail_size) {
    Py_ssize_t at_row, left;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, head_size + 3 * size_of_array(part->rows) + part->size + tail_size);
    if (frame == NULL) return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(frame);
    memcpy(at, head, (size_t)head_size);
    at = put_array(at + head_size, part->rows);
    for (at_row = part->first, left = part->rows; left > 0; left--, at_row = rows[at_row].next)
        at = put_bytes(at, rows[at_row].key, rows[at_row].key_size);
    at = put_array(at, part->rows);
    for (at_row = part->first, left = part->rows; left > 0; left--, at_row = rows[at_row].next) at = put_time(at, rows[at_row].ms);
    at = put_array(at, part->rows);
    for (at_row = part->first, left = part->rows; left > 0; left--, at_row = rows[at_row].next)
        at = put_bytes(at, rows[at_row].value, rows[at_row].value_size);
    memcpy(at, tail, (size_t)tail_size);
    return frame;
}

static PyObject *offsets_of(const Row *rows, const Part *part, const int64_t *offsets) {
    if (offsets == NULL) return Py_NewRef(Py_None);
    PyObject *made = PyBytes_FromStringAndSize(NULL, part->rows * 8);
    if (made == NULL) return NULL;
    char *to = PyBytes_AS_STRING(made);
    Py_ssize_t row = part->first;
    for (Py_ssize_t i = 0; i < part->rows; i++, row = rows[row].next) memcpy(to + 8 * i, &offsets[row], 8);
    return made;
}

/* Each row with its partition; the rows of one follow each other. 0, or -1 with an exception. */
static int read_rows(PyObject *keys, PyObject *times, PyObject *values, Row *rows, Part *parts, Py_ssize_t partitions, Py_ssize_t turn, int *some_null) {
    for (Py_ssize_t p = 0; p < partitions; p++) parts[p] = (Part){-1, -1, 0, 0};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        Row *row = &rows[i];
        if (bytes_of(PyList_GET_ITEM(keys, i), &row->key, &row->key_size) < 0) return -1;
        if (bytes_of(PyList_GET_ITEM(values, i), &row->value, &row->value_size) < 0) return -1;
        if (time_of(PyList_GET_ITEM(times, i), &row->ms) < 0) return -1;
        row->next = -1;
        if (row->key == NULL) *some_null = 1;
        Py_ssize_t p = partitions == 1 || row->key == NULL
                           ? turn
                           : (Py_ssize_t)(murmur2((const uint8_t *)row->key, row->key_size) & 0x7FFFFFFFu) % partitions;
        if (parts[p].last >= 0) rows[parts[p].last].next = i;
        else parts[p].first = i;
        parts[p].last = i;
    }
    return 0;
}

/* The rows of the next frame, from the row `first` of a partition on. `done`: how many rows of it are in frames already. Cuts are by number,
 * and between them by size: see `frame_cuts`. Returns the row behind it, or -1. */
static Py_ssize_t next_frame(const Row *rows, Py_ssize_t first, Py_ssize_t done, Py_ssize_t most_rows, Py_ssize_t most_bytes, Part *part) {
    Py_ssize_t row = first, bytes = 0;
    *part = (Part){first, first, 0, 0};
    do {
        Py_ssize_t one = rows[row].key_size + rows[row].value_size;
        if (part->rows > 0 && bytes + one > most_bytes) break;
        bytes += one;
        part->rows++;
        part->size += size_of_bytes(rows[row].key, rows[row].key_size) + size_of_time(rows[row].ms) + size_of_bytes(rows[row].value, rows[row].value_size);
        row = rows[row].next;
    } while (row >= 0 && (done + part->rows) % most_rows != 0);
    return row;
}

/* spread(keys, times, values, offsets or None, partitions, turn, most rows, most bytes, head, tail)
 * -> ([(partition, time of the first row, frame, offsets)], whether a key was None: these rows go to `turn`) */
static PyObject *spread_rows(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys, *times, *values, *given, *list = NULL;
    Py_ssize_t partitions, turn, most_rows, most_bytes, head_size, tail_size, made = 0;
    const char *head, *tail;
    if (!PyArg_ParseTuple(args, "O!O!O!Onnnny#y#", &PyList_Type, &keys, &PyList_Type, &times, &PyList_Type, &values, &given, &partitions,
                          &turn, &most_rows, &most_bytes, &head, &head_size, &tail, &tail_size))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(keys);
    Py_buffer offsets = {0};
    if (given != Py_None && PyObject_GetBuffer(given, &offsets, PyBUF_SIMPLE) < 0) return NULL;
    if (partitions <= 0 || turn < 0 || turn >= partitions || most_rows <= 0 || PyList_GET_SIZE(times) != count ||
        PyList_GET_SIZE(values) != count || (given != Py_None && offsets.len != count * 8)) {
        PyErr_SetString(PyExc_ValueError, "columns differ in length, or there is no such partition");
        PyBuffer_Release(&offsets);
        return NULL;
    }
    Row *rows = PyMem_New(Row, (size_t)(count ? count : 1));
    Part *parts = PyMem_New(Part, (size_t)partitions);
    Made *frames = PyMem_New(Made, (size_t)(count ? count : 1));
    int some_null = 0, failed = rows == NULL || parts == NULL || frames == NULL;
    if (failed) PyErr_NoMemory();
    else failed = read_rows(keys, times, values, rows, parts, partitions, turn, &some_null) < 0;
    for (Py_ssize_t p = 0; !failed && p < partitions; p++) {
        Py_ssize_t done = 0;
        for (Py_ssize_t row = parts[p].first; !failed && row >= 0;) {
            Part part;
            row = next_frame(rows, row, done, most_rows, most_bytes, &part);
            done += part.rows;
            Made *one = &frames[made];
            *one = (Made){p, part.first, frame_of(rows, &part, head, head_size, tail, tail_size), NULL};
            if (one->frame != NULL) one->offsets = offsets_of(rows, &part, given == Py_None ? NULL : offsets.buf);
            failed = one->offsets == NULL;
            if (failed) Py_XDECREF(one->frame);
            else made++;
        }
    }
    if (!failed) list = PyList_New(made); /* only now: a collection may run Python code */
    for (Py_ssize_t i = 0; i < made; i++) {
        PyObject *one = list == NULL ? NULL : Py_BuildValue("nLOO", frames[i].partition, rows[frames[i].first].ms, frames[i].frame, frames[i].offsets);
        Py_DECREF(frames[i].frame);
        Py_DECREF(frames[i].offsets);
        if (one != NULL) PyList_SET_ITEM(list, i, one);
        else Py_CLEAR(list);
    }
    PyMem_Free(rows);
    PyMem_Free(parts);
    PyMem_Free(frames);
    PyBuffer_Release(&offsets);
    return list == NULL ? NULL : Py_BuildValue("NN", list, PyBool_FromLong(some_null));
}

/* --------------------------------------------------------------------------------------------------------------- reading */

typedef struct {
    const uint8_t *at, *end;
} Rest;

/* How many elements the next array has: at most `most`, each of which takes a byte at least; -1 if it is no such array. */
static Py_ssize_t read_array(Rest *rest, Py_ssize_t most) {
    Py_ssize_t count, size = 0;
    if (rest->at >= rest->end) return -1;
    uint8_t code = *rest->at++;
    if (code >= 0x90 && code <= 0x9F) count = code & 0xF;
    else if (code == 0xDC || code == 0xDD) {
        size = code == 0xDC ? 2 : 4;
        if (rest->end - rest->at < size) return -1;
        count = (Py_ssize_t)big_endian(rest->at, (int)size);
        rest->at += size;
    } else return -1;
    return count > most || count > rest->end - rest->at ? -1 : count;
}

/* 1 with the bytes (`data`: NULL for null), or 0 if there are none. */
static int read_bytes(Rest *rest, const char **data, Py_ssize_t *size) {
    if (rest->at >= rest->end) return 0;
    uint8_t code = *rest->at++;
    *data = NULL;
    if (code == 0xC0) return 1;
    if (code < 0xC4 || code > 0xC6) return 0;
    int width = 1 << (code - 0xC4);
    if (rest->end - rest->at < width) return 0;
    *size = (Py_ssize_t)big_endian(rest->at, width);
    rest->at += width;
    if (rest->end - rest->at < *size) return 0;
    *data = (const char *)rest->at;
    rest->at += *size;
    return 1;
}

/* 1 with a whole number of 64 bits with a sign, or 0 if there is none. */
static int read_time(Rest *rest, int64_t *ms) {
    return rest->at < rest->end && read_whole(&rest->at, rest->end, ms) == 1;
}

/* The next column, of bytes or of times. 1, 0 if there is none, or -1 with an exception. */
static int read_column(Rest *rest, Py_ssize_t most, int of_times, PyObject **list) {
    Py_ssize_t count = read_array(rest, most);
    if (count < 0) return 0;
    if ((*list = PyList_New(count)) == NULL) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *data;
        Py_ssize_t size = 0;
        int64_t ms;
        PyObject *one;
        if (of_times) {
            if (!read_time(rest, &ms)) return 0;
            one = PyLong_FromLongLong(ms);
        } else {
            if (!read_bytes(rest, &data, &size)) return 0;
            one = data == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(data, size);
        }
        if (one == NULL) return -1;
        PyList_SET_ITEM(*list, i, one);
    }
    return 1;
}

/* gather(data, head, most rows) -> (keys, times, values, where what stands behind them begins), or None if `data` is not read so */
static PyObject *spread_gather(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *data, *head;
    Py_ssize_t size, head_size, most, count;
    PyObject *lists[3] = {NULL, NULL, NULL};
    if (!PyArg_ParseTuple(args, "y#y#n", &data, &size, &head, &head_size, &most)) return NULL;
    if (size < head_size || memcmp(data, head, (size_t)head_size) != 0) Py_RETURN_NONE;
    Rest rest = {(const uint8_t *)data + head_size, (const uint8_t *)data + size};
    int found = 1;
    for (int i = 0; found > 0 && i < 3; i++) found = read_column(&rest, most, i == 1, &lists[i]);
    count = found > 0 ? PyList_GET_SIZE(lists[0]) : 0;
    if (found > 0 && PyList_GET_SIZE(lists[1]) == count && PyList_GET_SIZE(lists[2]) == count)
        return Py_BuildValue("NNNn", lists[0], lists[1], lists[2], (Py_ssize_t)(rest.at - (const uint8_t *)data));
    for (int i = 0; i < 3; i++) Py_XDECREF(lists[i]);
    if (found < 0) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef spread_methods[] = {
    {"gather", spread_gather, METH_VARARGS, "The rows of a batch frame."},
    {"spread", spread_rows, METH_VARARGS, "Rows with keys as batch frames for each partition."},
    {NULL, NULL, 0, NULL},
};
