/* Converts record batches (Kafka's format 2) to columns and back, and computes Kafka's two hashes. columns.py says what is promised, and
 * works without this file: nothing is decided here, and nothing is kept between two calls. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "compiled.h"
#include "numbers.h"
#include "varints.h"

/* ---------------------------------------------------------------------------------------------------------- reading */

/* Length and bytes; -1 is None. A new reference, or NULL with r->bad or an exception set. */
static inline PyObject *read_bytes(Reader *r) {
    int64_t length = read_varint(r);
    if (r->bad) return NULL;
    if (length < 0) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    if (length > r->end - r->at) {
        r->bad = 1;
        return NULL;
    }
    PyObject *made = PyBytes_FromStringAndSize((const char *)r->at, (Py_ssize_t)length);
    r->at += length;
    return made;
}

static PyObject *read_headers(Reader *r, int64_t count) {
    PyObject *list = PyList_New(0);
    if (list == NULL) return NULL;
    while (count-- > 0) {
        int64_t length = read_varint(r);
        if (r->bad || length < 0 || length > r->end - r->at) {
            r->bad = 1;
            break;
        }
        /* no one checks names before us: bytes that are no UTF-8 become text that shows them (plain_records.py) */
        PyObject *name = PyUnicode_DecodeUTF8((const char *)r->at, (Py_ssize_t)length, "backslashreplace");
        if (name == NULL) break;
        r->at += length;
        PyObject *value = read_bytes(r);
        if (value == NULL) {
            Py_DECREF(name);
            break;
        }
        PyObject *pair = PyTuple_Pack(2, name, value);
        Py_DECREF(name);
        Py_DECREF(value);
        if (pair == NULL || PyList_Append(list, pair) < 0) {
            Py_XDECREF(pair);
            break;
        }
        Py_DECREF(pair);
    }
    if (r->bad || PyErr_Occurred()) {
        Py_DECREF(list);
        return NULL;
    }
    return list;
}

/* A list of `count` items: the first `filled` are None, the others still empty. */
static PyObject *late_column(Py_ssize_t count, Py_ssize_t filled) {
    PyObject *list = PyList_New(count);
    if (list == NULL) return NULL;
    for (Py_ssize_t i = 0; i < filled; i++) {
        Py_INCREF(Py_None);
        PyList_SET_ITEM(list, i, Py_None);
    }
    return list;
}

/* The same of the offsets that follow each other from `first` on. */
static PyObject *late_offsets(Py_ssize_t count, Py_ssize_t filled, int64_t first) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < filled; i++) {
        PyObject *number = PyLong_FromLongLong((int64_t)((uint64_t)first + (uint64_t)i));
        if (number == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, number);
    }
    return list;
}

/* The same of records without headers. */
static PyObject *late_headers(Py_ssize_t count, Py_ssize_t filled) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < filled; i++) {
        PyObject *none = PyList_New(0);
        if (none == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, none);
    }
    return list;
}

typedef struct { /* the columns of a batch while it is read; those that no record has yet are NULL */
    PyObject *values, *stamps, *keys, *offsets, *headers;
    PyObject *append_ms, *stamp; /* stamp: of the record before */
    Py_ssize_t count;
    int64_t base, first_ms, before_ms, first_offset;
} Read;

/* 0, or -1 if there is no item. */
static inline int put(PyObject *column, Py_ssize_t i, PyObject *item) {
    if (item == NULL) return -1;
    PyList_SET_ITEM(column, i, item);
    return 0;
}

/* Key, value and headers of record `i`: 0, or -1 if they make no sense, or with an exception. */
static int read_parts(Reader *r, Read *to, Py_ssize_t i) {
    PyObject *key = read_bytes(r);
    if (key == NULL) return -1;
    if (key != Py_None && to->keys == NULL) to->keys = late_column(to->count, i);
    if (to->keys != NULL) {
        PyList_SET_ITEM(to->keys, i, key);
    } else {
        int lost = key != Py_None; /* there was no memory */
        Py_DECREF(key);
        if (lost) return -1;
    }
    if (put(to->values, i, read_bytes(r)) < 0) return -1;

    int64_t own = read_varint(r);
    if (r->bad || own < 0 || own > r->end - r->at) return -1;
    if (own == 0 && to->headers == NULL) return 0;
    if (to->headers == NULL && (to->headers = late_headers(to->count, i)) == NULL) return -1;
    return put(to->headers, i, read_headers(r, own));
}

/* Timestamp and offset of record `i`: 0, or -1 with an exception. */
static int put_place(Read *to, Py_ssize_t i, int64_t ms, int64_t offset) {
    if (to->append_ms != Py_None) {
        PyList_SET_ITEM(to->stamps, i, Py_NewRef(to->append_ms));
    } else { /* neighbours often have the same timestamp: then they share one int object */
        if (to->stamp == NULL || ms != to->before_ms) {
            Py_XSETREF(to->stamp, PyLong_FromLongLong(ms));
            if (to->stamp == NULL) return -1;
            to->before_ms = ms;
        }
        PyList_SET_ITEM(to->stamps, i, Py_NewRef(to->stamp));
    }
    if (i == 0) to->first_offset = offset;
    if (to->offsets == NULL) {
        if ((uint64_t)offset == (uint64_t)to->first_offset + (uint64_t)i) return 0;
        if ((to->offsets = late_offsets(to->count, i, to->first_offset)) == NULL) return -1;
    }
    return put(to->offsets, i, PyLong_FromLongLong(offset));
}

/* Record `i`: NULL, or why the batch cannot be read, perhaps with an exception that says more. */
static const char *read_record(Reader *r, Read *to, Py_ssize_t i) {
    static const char *const torn = "the records end in the middle of one";
    int64_t length = read_varint(r);
    const uint8_t *begun = r->at;
    if (r->bad || length < 1 || length > r->end - r->at) return torn;
    r->at++; /* attributes: unused */
    int64_t ms = (int64_t)((uint64_t)to->first_ms + (uint64_t)read_varint(r)); /* as Java adds: whoever wrote it */
    int64_t offset = (int64_t)((uint64_t)to->base + (uint64_t)read_varint(r));
    if (r->bad || read_parts(r, to, i) < 0) return torn;
    if (r->at != begun + length) return "a record has another length than it says";
    return put_place(to, i, ms, offset) < 0 ? torn : NULL;
}

/* read(data, start, end, count, base, first_ms, append_ms or None)
 *     -> (values, timestamps, base of the first, keys or None, offsets or None, headers or None) */
static PyObject *columns_read(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, end, count;
    long long base, first_ms;
    PyObject *append_ms, *out = NULL;
    if (!PyArg_ParseTuple(args, "y*nnnLLO", &data, &start, &end, &count, &base, &first_ms, &append_ms)) return NULL;
    if (start < 0 || end > data.len || start > end || count < 0 || count > (end - start) / 7) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "more records are announced than there can be");
        return NULL;
    }
    Reader r = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + end, 0};
    Read to = {.values = PyList_New(count), .stamps = PyList_New(count), .append_ms = append_ms, .count = count,
               .base = base, .first_ms = first_ms, .first_offset = base};
    const char *why = to.values == NULL || to.stamps == NULL ? "" : NULL;
    for (Py_ssize_t i = 0; why == NULL && i < count; i++) why = read_record(&r, &to, i);
    if (why == NULL && r.at != r.end) why = "bytes are left behind the last record";
    if (why == NULL)
        out = Py_BuildValue("OOLOOO", to.values, to.stamps, (long long)to.first_offset, to.keys ? to.keys : Py_None,
                            to.offsets ? to.offsets : Py_None, to.headers ? to.headers : Py_None);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, why);
    Py_XDECREF(to.values);
    Py_XDECREF(to.stamps);
    Py_XDECREF(to.keys);
    Py_XDECREF(to.offsets);
    Py_XDECREF(to.headers);
    Py_XDECREF(to.stamp);
    PyBuffer_Release(&data);
    return out;
}

/* ---------------------------------------------------------------------------------------------------------- writing */

static int bytes_of(PyObject *object, const char **data, Py_ssize_t *size) {
    if (object == Py_None) {
        *data = NULL;
        *size = -1;
        return 0;
    }
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "bytes are wanted, not %s", Py_TYPE(object)->tp_name);
        return -1;
    }
    *data = PyBytes_AS_STRING(object);
    *size = PyBytes_GET_SIZE(object);
    return 0;
}

static inline Py_ssize_t room_of(Py_ssize_t size) { return size < 0 ? 1 : varint_size(size) + size; }

static inline uint8_t *put_bytes(uint8_t *to, const char *data, Py_ssize_t size) {
    to = put_varint(to, size);
    if (size > 0) {
        memcpy(to, data, (size_t)size);
        to += size;
    }
    return to;
}

/* Name and value of a header: (str, bytes or None). */
static int header_of(PyObject *pair, const char **name, Py_ssize_t *named, const char **value, Py_ssize_t *size) {
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a header is a pair of name and value");
        return -1;
    }
    *name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), named);
    return *name == NULL ? -1 : bytes_of(PyTuple_GET_ITEM(pair, 1), value, size);
}

/* The bytes of a record after its length field, or -1. */
static Py_ssize_t body_size(PyObject *key, PyObject *value, PyObject *headers, int64_t delta_ms, int64_t delta) {
    const char *data, *name;
    Py_ssize_t size, named, total = 1 + varint_size(delta_ms) + varint_size(delta);
    if (bytes_of(key, &data, &size) < 0) return -1;
    total += room_of(size);
    if (bytes_of(value, &data, &size) < 0) return -1;
    total += room_of(size);
    if (headers == NULL) return total + 1;
    if (!PyList_Check(headers)) {
        PyErr_SetString(PyExc_TypeError, "headers are a list");
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(headers);
    total += varint_size(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (header_of(PyList_GET_ITEM(headers, i), &name, &named, &data, &size) < 0) return -1;
        total += room_of(named) + room_of(size);
    }
    return total;
}

#define TIME_LIMIT ((int64_t)1 << 62)

static inline int64_t less(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* measure(keys or None, values, stamps: a list or one int, headers or None, overhead) -> (bytes of keys and values, the largest record's)
 * Raises for whatever `write` would raise for, and for times before 1970: then a slower path finds out which record it is. */
static PyObject *columns_measure(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys, *values, *stamps, *headers;
    Py_ssize_t overhead;
    if (!PyArg_ParseTuple(args, "OO!OOn", &keys, &PyList_Type, &values, &stamps, &headers, &overhead)) return NULL;
    Py_ssize_t end = PyList_GET_SIZE(values), total = 0, largest = 0;
    int one_stamp = PyLong_Check(stamps);
    if ((keys != Py_None && (!PyList_Check(keys) || PyList_GET_SIZE(keys) != end)) ||
        (headers != Py_None && (!PyList_Check(headers) || PyList_GET_SIZE(headers) != end)) ||
        (!one_stamp && (!PyList_Check(stamps) || PyList_GET_SIZE(stamps) != end))) {
        PyErr_SetString(PyExc_TypeError, "columns are lists of one length");
        return NULL;
    }
    for (Py_ssize_t at = 0; at < end; at++) {
        const char *data, *name;
        Py_ssize_t size, named, own = 0;
        PyObject *stamp = one_stamp ? stamps : PyList_GET_ITEM(stamps, at);
        if (!PyLong_Check(stamp) || PyBool_Check(stamp)) {
            PyErr_SetString(PyExc_TypeError, "a time is a whole number");
            return NULL;
        }
        long long ms = PyLong_AsLongLong(stamp);
        if (ms == -1 && PyErr_Occurred()) return NULL;
        if (ms < -1 || ms >= TIME_LIMIT) { /* -1: Kafka's value for no timestamp */
            PyErr_SetString(PyExc_ValueError, "no time since 1970");
            return NULL;
        }
        if (bytes_of(PyList_GET_ITEM(values, at), &data, &size) < 0) return NULL;
        if (size > 0) own += size;
        if (keys != Py_None) {
            if (bytes_of(PyList_GET_ITEM(keys, at), &data, &size) < 0) return NULL;
            if (size > 0) own += size;
        }
        total += own;
        if (headers != Py_None) {
            PyObject *list = PyList_GET_ITEM(headers, at);
            if (!PyList_Check(list)) {
                PyErr_SetString(PyExc_TypeError, "headers are a list");
                return NULL;
            }
            for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
                if (header_of(PyList_GET_ITEM(list, i), &name, &named, &data, &size) < 0) return NULL;
                own += 10 + named + (size > 0 ? size : 0);
            }
        }
        if (own > largest) largest = own;
    }
    return Py_BuildValue("nn", total, largest + overhead);
}

/* write(keys or None, values, stamps: a list or one int, headers or None, start, count, first_ms, room)
 *     -> (bytes, index behind the last record that fits, greatest time)
 * The batch already has `count` records; the first record of a batch always fits. Lists only: they cannot change meanwhile. */
static PyObject *columns_write(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys, *values, *stamps, *headers;
    Py_ssize_t start, count, room;
    long long first_ms;
    if (!PyArg_ParseTuple(args, "OO!OOnnLn", &keys, &PyList_Type, &values, &stamps, &headers, &start, &count, &first_ms,
                          &room))
        return NULL;
    Py_ssize_t end = PyList_GET_SIZE(values);
    int one_stamp = PyLong_Check(stamps);
    long long ms = one_stamp ? PyLong_AsLongLong(stamps) : 0, max_ms = INT64_MIN;
    if (PyErr_Occurred()) return NULL;
    if ((keys != Py_None && (!PyList_Check(keys) || PyList_GET_SIZE(keys) != end)) ||
        (headers != Py_None && (!PyList_Check(headers) || PyList_GET_SIZE(headers) != end)) ||
        (!one_stamp && (!PyList_Check(stamps) || PyList_GET_SIZE(stamps) != end)) || start < 0 || start > end) {
        PyErr_SetString(PyExc_TypeError, "columns are lists of one length");
        return NULL;
    }
    Py_ssize_t at = start, total = 0;
    for (; at < end; at++) {
        if (!one_stamp) {
            PyObject *stamp = PyList_GET_ITEM(stamps, at);
            if (!PyLong_Check(stamp)) { /* its `__index__` could change the lists, and give another number below */
                PyErr_SetString(PyExc_TypeError, "a time is a whole number");
                return NULL;
            }
            ms = PyLong_AsLongLong(stamp);
            if (ms == -1 && PyErr_Occurred()) return NULL;
        }
        PyObject *key = keys == Py_None ? Py_None : PyList_GET_ITEM(keys, at);
        PyObject *own = headers == Py_None ? NULL : PyList_GET_ITEM(headers, at);
        Py_ssize_t body = body_size(key, PyList_GET_ITEM(values, at), own, less(ms, first_ms), count + at - start);
        if (body < 0) return NULL;
        Py_ssize_t whole = varint_size(body) + body;
        if (total + whole > room && count + at - start > 0) break;
        total += whole;
        if (ms > max_ms) max_ms = ms;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, total);
    if (made == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = start; i < at; i++) {
        const char *data = NULL, *name = NULL; /* all have been read above: nothing can fail here */
        Py_ssize_t size = 0, named = 0;
        if (!one_stamp) ms = PyLong_AsLongLong(PyList_GET_ITEM(stamps, i));
        PyObject *key = keys == Py_None ? Py_None : PyList_GET_ITEM(keys, i), *value = PyList_GET_ITEM(values, i);
        PyObject *own = headers == Py_None ? NULL : PyList_GET_ITEM(headers, i);
        int64_t delta_ms = less(ms, first_ms), delta = count + i - start;
        to = put_varint(to, body_size(key, value, own, delta_ms, delta));
        *to++ = 0;
        to = put_varint(to, delta_ms);
        to = put_varint(to, delta);
        bytes_of(key, &data, &size);
        to = put_bytes(to, data, size);
        bytes_of(value, &data, &size);
        to = put_bytes(to, data, size);
        Py_ssize_t number = own == NULL ? 0 : PyList_GET_SIZE(own);
        to = put_varint(to, number);
        for (Py_ssize_t j = 0; j < number; j++) {
            header_of(PyList_GET_ITEM(own, j), &name, &named, &data, &size);
            to = put_bytes(to, name, named);
            to = put_bytes(to, data, size);
        }
    }
    return Py_BuildValue("NnL", made, at, max_ms);
}

/* ----------------------------------------------------------------------------------------------------------- hashes */

static uint32_t crc_table[8][256];

static void fill_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ 0x82F63B78u : c >> 1;
        crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (uint32_t i = 0; i < 256; i++)
            crc_table[t][i] = (crc_table[t - 1][i] >> 8) ^ crc_table[0][crc_table[t - 1][i] & 255];
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
              crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^
              crc_table[0][at[7]];
        at += 8;
        size -= 8;
    }
    while (size--) crc = (crc >> 8) ^ crc_table[0][(crc ^ *at++) & 255];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(HEADGATE_SCALAR)
#if defined(__clang__) && __clang_major__ >= 14 /* where the instruction is a feature of its own */
#define WITH_CRC32 "sse4.2,crc32"
#else
#define WITH_CRC32 "sse4.2"
#endif
/* The instruction takes three cycles, but one can begin in each. So three lanes are worked on at once, and then put together: what a lane
 * gives is linear in what it begins with, and a table says what becomes of that along a lane of zeros. */
enum { LANE = 1024 };
static uint32_t lane_table[4][256];

static void fill_lane_table(void) {
    static const uint8_t zeros[LANE];
    if (lane_table[0][1]) return; /* another import of the module */
    for (int bit = 0; bit < 32; bit++) {
        uint32_t found = crc_by_table((uint32_t)1 << bit, zeros, LANE);
        for (int value = 0; value < 256; value++)
            if (value >> bit % 8 & 1) lane_table[bit / 8][value] ^= found;
    }
}

static inline uint32_t along_lane(uint32_t crc) {
    return lane_table[0][crc & 255] ^ lane_table[1][crc >> 8 & 255] ^ lane_table[2][crc >> 16 & 255] ^ lane_table[3][crc >> 24];
}

static inline uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

__attribute__((target(WITH_CRC32))) static uint32_t crc_by_cpu(uint32_t crc, const uint8_t *at, size_t size) {
    for (; size >= 3 * LANE; at += 3 * LANE, size -= 3 * LANE) {
        uint64_t first = crc, second = 0, third = 0;
        for (const uint8_t *here = at; here < at + LANE; here += 8) {
            first = __builtin_ia32_crc32di(first, word_at(here));
            second = __builtin_ia32_crc32di(second, word_at(here + LANE));
            third = __builtin_ia32_crc32di(third, word_at(here + 2 * LANE));
        }
        crc = along_lane(along_lane((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    uint64_t wide = crc;
    while (size >= 8) {
        wide = __builtin_ia32_crc32di(wide, word_at(at));
        at += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--) crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}
#endif

static uint32_t (*crc_of)(uint32_t, const uint8_t *, size_t) = crc_by_table;

uint32_t crc32c_of(const uint8_t *at, size_t size) { return crc_of(0xFFFFFFFFu, at, size) ^ 0xFFFFFFFFu; }

/* crc32c(data, start, end) -> int */
static PyObject *columns_crc32c(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "y*nn", &data, &start, &end)) return NULL;
    PyObject *out = NULL;
    if (start < 0 || end > data.len || start > end) PyErr_SetString(PyExc_ValueError, "outside of the data");
    else out = PyLong_FromUnsignedLong(crc32c_of((const uint8_t *)data.buf + start, (size_t)(end - start)));
    PyBuffer_Release(&data);
    return out;
}

uint32_t murmur2(const uint8_t *at, Py_ssize_t size) {
    const uint32_t m = 0x5BD1E995u;
    uint32_t h = 0x9747B28Cu ^ (uint32_t)size;
    while (size >= 4) {
        uint32_t k = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
        at += 4;
        size -= 4;
    }
    if (size > 0) {
        if (size == 3) h ^= (uint32_t)at[2] << 16;
        if (size >= 2) h ^= (uint32_t)at[1] << 8;
        h = (h ^ at[0]) * m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ (h >> 15);
}

/* murmur2(key) -> int */
static PyObject *columns_murmur2(PyObject *Py_UNUSED(self), PyObject *key) {
    if (!PyBytes_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "bytes are wanted");
        return NULL;
    }
    return PyLong_FromUnsignedLong(murmur2((const uint8_t *)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)));
}

/* split(keys, partitions, turn) -> (a list of indexes for each partition, whether a key was None: these go to `turn`) */
static PyObject *columns_split(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *keys;
    Py_ssize_t partitions, turn;
    if (!PyArg_ParseTuple(args, "O!nn", &PyList_Type, &keys, &partitions, &turn)) return NULL;
    if (partitions <= 0 || turn < 0 || turn >= partitions) {
        PyErr_SetString(PyExc_ValueError, "no such partition");
        return NULL;
    }
    PyObject *parts = PyList_New(partitions);
    if (parts == NULL) return NULL;
    for (Py_ssize_t p = 0; p < partitions; p++) {
        PyObject *list = PyList_New(0);
        if (list == NULL) goto failed;
        PyList_SET_ITEM(parts, p, list);
    }
    int some_none = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        const char *data;
        Py_ssize_t size, partition = turn;
        if (bytes_of(PyList_GET_ITEM(keys, i), &data, &size) < 0) goto failed;
        if (data == NULL) some_none = 1;
        else partition = (Py_ssize_t)(murmur2((const uint8_t *)data, size) & 0x7FFFFFFFu) % partitions;
        PyObject *index = PyLong_FromSsize_t(i);
        if (index == NULL || PyList_Append(PyList_GET_ITEM(parts, partition), index) < 0) {
            Py_XDECREF(index);
            goto failed;
        }
        Py_DECREF(index);
    }
    return Py_BuildValue("NN", parts, PyBool_FromLong(some_none));
failed:
    Py_DECREF(parts);
    return NULL;
}

/* pick(column, indexes) -> list */
static PyObject *columns_pick(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *column, *indexes;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &column, &PyList_Type, &indexes)) return NULL;
    Py_ssize_t size = PyList_GET_SIZE(column), count = PyList_GET_SIZE(indexes);
    PyObject *out = PyList_New(count);
    if (out == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyList_GET_ITEM(indexes, i));
        if (at < 0 || at >= size) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "outside of the column");
            Py_DECREF(out);
            return NULL;
        }
        PyObject *item = PyList_GET_ITEM(column, at);
        Py_INCREF(item);
        PyList_SET_ITEM(out, i, item);
    }
    return out;
}

static PyMethodDef methods[] = {
    {"read", columns_read, METH_VARARGS, "The records of a batch in columns."},
    {"write", columns_write, METH_VARARGS, "Columns as records of a batch."},
    {"measure", columns_measure, METH_VARARGS, "Whether these columns can be written, and how much they are."},
    {"crc32c", columns_crc32c, METH_VARARGS, "The checksum of a part of some bytes."},
    {"murmur2", columns_murmur2, METH_O, "Kafka's hash of a key."},
    {"split", columns_split, METH_VARARGS, "The indexes of keys by the partition that Java's client would choose."},
    {"pick", columns_pick, METH_VARARGS, "The items of a list at these indexes."},
    {NULL, NULL, 0, NULL},
};

/* Fills a module that was made. In a further interpreter of a process it fails, so that the plain way is taken there: a library that
 * releases a structure of Arrow's takes the GIL by functions that know of the first interpreter alone, and would wait for ever. */
static int fill_module(PyObject *made) {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "the compiled part is for the first interpreter of a process");
        return -1;
    }
    fill_crc_table();
#if defined(__x86_64__) && defined(__GNUC__) && !defined(HEADGATE_SCALAR)
    __builtin_cpu_init();
    fill_lane_table();
    if (__builtin_cpu_supports("sse4.2")) crc_of = crc_by_cpu;
#endif
    fill_powers();
    fill_base64();
    PyMethodDef *parts[] = {avro_read_methods, avro_write_methods, proto_read_methods, heads_methods, json_read_methods, json_write_methods, longs_methods,
                            spans_methods, unpack_methods, expressions_methods, arrow_give_methods, arrow_take_methods, leaving_methods,
                            lists_methods, window_rows_methods, latest_methods, take_methods, spread_methods, session_runs_methods,
                            base64_methods};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (PyModule_AddFunctions(made, parts[i]) < 0) return -1;
    /* what a row takes in a `RowIndex`: two `bytes` in two lists; and what is left of a packed one: its time, its place, its flag */
    if (PyModule_AddIntConstant(made, "ROW_BYTES", 80) < 0 || PyModule_AddIntConstant(made, "PACKED_BYTES", 29) < 0) return -1;
    return add_groups(made) < 0 || add_memory(made) < 0 ? -1 : add_matching(made);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill_module}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_columns", "See columns.py.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__columns(void) { return PyModuleDef_Init(&module); }
