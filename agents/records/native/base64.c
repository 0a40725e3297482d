/* Columns of bytes: as they are stored, in base64, and as they are. octets.py says what is promised. */
#define PY_SSIZE_T_CLEAN
#include "base64.h"

#include <Python.h>

#include "compiled.h"
#include "span_view.h"

#define MOST_TEXT INT32_MAX

static uint16_t pairs[4096]; /* two digits for each twelve bits, as they lie in memory */
static int8_t values[256];   /* of digits; -1 for all else */

void fill_base64(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    memset(values, -1, sizeof values);
    for (int i = 0; i < 64; i++) values[(uint8_t)digits[i]] = (int8_t)i;
    for (int i = 0; i < 4096; i++) {
        uint8_t pair[2] = {(uint8_t)digits[i >> 6], (uint8_t)digits[i & 63]};
        memcpy(&pairs[i], pair, 2);
    }
}

static void encode(uint8_t *to, const uint8_t *at, int64_t length) {
    for (; length >= 3; at += 3, length -= 3, to += 4) {
        uint32_t three = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
        memcpy(to, &pairs[three >> 12], 2);
        memcpy(to + 2, &pairs[three & 4095], 2);
    }
    put_base64(to, at, length);
}

/* How many bytes some text in base64 stands for; -1 if it is none. */
static int64_t octets_in(const uint8_t *at, int64_t size) {
    if (size % 4) return -1;
    return size / 4 * 3 - (size > 0 && at[size - 1] == '=') - (size > 0 && at[size - 2] == '=');
}

/* 0 if a letter is no digit. Bits of the last one that are no octet are ignored, as Python does. */
static int decode(uint8_t *to, const uint8_t *at, int64_t octets) {
    int bad = 0;
    for (; octets > 0; at += 4, octets -= 3) {
        int a = values[at[0]], b = values[at[1]], c = octets > 1 ? values[at[2]] : 0, d = octets > 2 ? values[at[3]] : 0;
        uint32_t three = (uint32_t)a << 18 | (uint32_t)b << 12 | (uint32_t)c << 6 | (uint32_t)d;
        bad |= a | b | c | d;
        *to++ = (uint8_t)(three >> 16);
        if (octets > 1) *to++ = (uint8_t)(three >> 8);
        if (octets > 2) *to++ = (uint8_t)three;
    }
    return bad >= 0;
}

/* to_base64(buffer, offsets, lengths) or of_base64(…) -> (data, offsets, validity or None, nulls), of spans; a length of -1 is null */
static PyObject *turned(PyObject *spans, int back) {
    PyObject *data = NULL, *ends = NULL, *valid = NULL, *out = NULL;
    int64_t records = -1, total = 0, nulls = 0, size;
    const uint8_t *at;
    Part part;
    if (part_of(spans, &part, &records) < 0) goto done;
    if (part.data.obj == NULL) {
        PyErr_SetString(PyExc_TypeError, "spans are wanted");
        goto done;
    }
    if ((ends = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(records + 1) * 4)) == NULL ||
        (valid = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(records + 7) / 8)) == NULL)
        goto done;
    memset(PyBytes_AS_STRING(valid), 0, (size_t)(records + 7) / 8);
    memset(PyBytes_AS_STRING(ends), 0, 4);
    for (int64_t row = 0; row < records; row++) {
        if (!bytes_at(&part, row, &at, &size)) {
            PyErr_SetString(PyExc_ValueError, "a record lies outside of the buffer");
            goto done;
        }
        if (size < 0) nulls++;
        else PyBytes_AS_STRING(valid)[row >> 3] |= (char)(1u << (row & 7));
        int64_t made = size < 0 ? 0 : back ? octets_in(at, size) : base64_size(size);
        if (made < 0) {
            PyErr_SetString(PyExc_ValueError, "this is no base64");
            goto done;
        }
        if ((total += made) > MOST_TEXT) {
            PyErr_SetString(PyExc_ValueError, "more text than a column can hold");
            goto done;
        }
        int32_t end = (int32_t)total;
        memcpy(PyBytes_AS_STRING(ends) + (row + 1) * 4, &end, 4);
    }
    if ((data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) == NULL) goto done;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(data);
    for (int64_t row = 0; row < records; row++) {
        bytes_at(&part, row, &at, &size);
        if (size <= 0) continue;
        int64_t made = back ? octets_in(at, size) : base64_size(size);
        if (!back) {
            encode(to, at, size);
        } else if (!decode(to, at, made)) {
            PyErr_SetString(PyExc_ValueError, "this is no base64");
            goto done;
        }
        to += made;
    }
    out = Py_BuildValue("OOOL", data, ends, nulls ? valid : Py_None, (long long)nulls);
done:
    leave_part(&part);
    Py_XDECREF(data);
    Py_XDECREF(ends);
    Py_XDECREF(valid);
    return out;
}

static PyObject *base64_to(PyObject *Py_UNUSED(self), PyObject *spans) { return turned(spans, 0); }

static PyObject *base64_of(PyObject *Py_UNUSED(self), PyObject *spans) { return turned(spans, 1); }

PyMethodDef base64_methods[] = {
    {"to_base64", base64_to, METH_VARARGS, "Bytes as they are stored."},
    {"of_base64", base64_of, METH_VARARGS, "What is stored as bytes."},
    {NULL, NULL, 0, NULL},
};
