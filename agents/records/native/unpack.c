/* Reads packed states (msgpack) back into columns. packing.py says what is promised. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "msgpack.h"
#include "vector_view.h"

typedef struct { /* one state: what stands before it, and where it goes */
    const char *prefix;
    Py_ssize_t length;
    int kind;
    uint8_t *data, *valid, *tags; /* tags: of a NUMBER alone */
    PyObject *data_bytes, *valid_bytes, *tag_bytes;
    int64_t nulls;
} Place;

/* 1 with a state in `row`, or 0 if it is no such number. */
static inline int read_state(Place *place, int64_t row, const uint8_t **at, const uint8_t *end) {
    if (end - *at < place->length || memcmp(*at, place->prefix, (size_t)place->length) != 0) return 0;
    *at += place->length;
    if (*at >= end) return 0;
    int64_t whole = 0;
    double number;
    int is_whole = 0;
    if (**at == 0xC0) {
        ++*at;
        return 1; /* null, as it was before */
    }
    if (**at == 0xCB || **at == 0xCA) {
        int size = **at == 0xCB ? 8 : 4;
        if (place->kind == INT64 || end - *at < 1 + size) return 0;
        uint64_t bits = big_endian(*at + 1, size);
        if (size == 8) {
            memcpy(&number, &bits, 8);
        } else {
            uint32_t narrow = (uint32_t)bits;
            float single;
            memcpy(&single, &narrow, 4);
            number = single;
        }
        *at += 1 + size;
    } else {
        int found = read_whole(at, end, &whole);
        if (found == 0 || (found == 2 && place->kind != FLOAT64)) return 0;
        number = found == 2 ? (double)(uint64_t)whole : (double)whole;
        is_whole = place->kind != FLOAT64;
    }
    memcpy(place->data + row * 8, is_whole ? (void *)&whole : (void *)&number, 8);
    if (place->tags != NULL) place->tags[row] = is_whole ? TAG_WHOLE : TAG_FRACTION;
    place->valid[row >> 3] |= (uint8_t)(1u << (row & 7));
    return 1;
}

/* Reads all records; `odd` marks those that are something else. 0 if one lies outside of the buffer. */
static int read_all(Place *places, Py_ssize_t count, const Py_buffer *data, const Py_buffer *starts, const Py_buffer *sizes, uint8_t *odd) {
    int64_t records = starts->len / 8;
    for (int64_t row = 0; row < records; row++) {
        int64_t start = long_at(starts->buf, row), size = long_at(sizes->buf, row);
        if (start < 0 || size < 0 || start > data->len || size > data->len - start) return 0;
        const uint8_t *at = (const uint8_t *)data->buf + start, *end = at + size;
        int fine = 1;
        for (Py_ssize_t i = 0; fine && i < count; i++) fine = read_state(&places[i], row, &at, end);
        odd[row] = !fine || at != end;
        for (Py_ssize_t i = 0; i < count; i++) {
            uint8_t bit = (uint8_t)(1u << (row & 7)), *valid = &places[i].valid[row >> 3];
            if (odd[row]) *valid &= (uint8_t)~bit;
            if (*valid & bit) continue;
            places[i].nulls++;
            memset(places[i].data + row * 8, 0, 8);
            if (places[i].tags != NULL) places[i].tags[row] = TAG_NULL;
        }
    }
    return 1;
}

/* unpack([(number of the type, prefix)], buffer, starts, sizes) -> ([(data, tags or None, validity or None, nulls)], a byte for each record: is it odd) */
static PyObject *states_unpack(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *list, *columns = NULL, *odd = NULL, *out = NULL;
    Py_buffer data, starts, sizes;
    if (!PyArg_ParseTuple(args, "O!y*y*y*", &PyList_Type, &list, &data, &starts, &sizes)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(list);
    int64_t records = starts.len / 8;
    Place *places = PyMem_RawCalloc((size_t)count + 1, sizeof(Place));
    if (places == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (starts.len % 8 || sizes.len != starts.len) {
        PyErr_SetString(PyExc_ValueError, "offsets and lengths are not as many");
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Place *one = &places[i];
        PyObject *tuple = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "iy#", &one->kind, &one->prefix, &one->length) ||
            (one->kind != INT64 && one->kind != FLOAT64 && one->kind != NUMBER)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a state is a number");
            goto done;
        }
        one->data_bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)records * 8);
        one->valid_bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(records + 7) / 8);
        if (one->data_bytes == NULL || one->valid_bytes == NULL) goto done;
        one->data = (uint8_t *)PyBytes_AS_STRING(one->data_bytes);
        one->valid = (uint8_t *)PyBytes_AS_STRING(one->valid_bytes);
        if (records) memset(one->valid, 0, (size_t)(records + 7) / 8);
        if (one->kind != NUMBER) continue;
        one->tag_bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)records);
        if (one->tag_bytes == NULL) goto done;
        one->tags = (uint8_t *)PyBytes_AS_STRING(one->tag_bytes);
    }
    odd = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)records);
    columns = PyList_New(count);
    if (odd == NULL || columns == NULL) goto done;
    uint8_t *marks = (uint8_t *)PyBytes_AS_STRING(odd);
    int fine;
    Py_BEGIN_ALLOW_THREADS
    fine = read_all(places, count, &data, &starts, &sizes, marks);
    Py_END_ALLOW_THREADS
    if (!fine) {
        PyErr_SetString(PyExc_ValueError, "a record lies outside of its buffer");
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tags = places[i].tag_bytes, *valid = places[i].nulls && tags == NULL ? places[i].valid_bytes : Py_None;
        PyObject *one = Py_BuildValue("OOOL", places[i].data_bytes, tags ? tags : Py_None, valid, (long long)places[i].nulls);
        if (one == NULL) goto done;
        PyList_SET_ITEM(columns, i, one);
    }
    out = Py_BuildValue("OO", columns, odd);
done:
    for (Py_ssize_t i = 0; places != NULL && i < count; i++) {
        Py_XDECREF(places[i].data_bytes);
        Py_XDECREF(places[i].valid_bytes);
        Py_XDECREF(places[i].tag_bytes);
    }
    PyMem_RawFree(places);
    Py_XDECREF(columns);
    Py_XDECREF(odd);
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&sizes);
    return out;
}

PyMethodDef unpack_methods[] = {
    {"unpack", states_unpack, METH_VARARGS, "Packed states as columns."},
    {NULL, NULL, 0, NULL},
};
