/* Frames of Arrow's C data interface and C stream interface as columns of our own. arrow_take.py says what is promised.

   Everything is copied, so that nothing of the library that made a frame is needed afterwards. The interface says how many rows an array
   has and not how long its buffers are: what can be checked is checked, the rest is the library's word. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <string.h>

#include "compiled.h"
#include "json.h"
#include "vector_view.h"

#include "arrow.h"

#define MOST_TEXT (((int64_t)1 << 31) - 1)
#define INLINE 12 /* bytes of text that a view has in itself */

static PyObject *refuse(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------------ streams */

static void *fresh(size_t size) {
    void *made = PyMem_RawCalloc(1, size);
    if (made == NULL) PyErr_NoMemory();
    return made;
}

static PyObject *stream_failed(struct ArrowArrayStream *stream, int code) {
    const char *said = stream->get_last_error != NULL ? stream->get_last_error(stream) : NULL;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s", said != NULL ? said : strerror(code));
    return NULL;
}

/* drain(capsule of a stream) -> (capsule of its schema, [capsules of its arrays]) */
static PyObject *arrow_drain(PyObject *Py_UNUSED(self), PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream == NULL) return NULL;
    if (stream->release == NULL || stream->get_schema == NULL || stream->get_next == NULL) return refuse("the stream was taken already");
    int code;
    PyObject *schema = NULL, *arrays = NULL;
    struct ArrowSchema *its = fresh(sizeof *its);
    if (its == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS /* a library may compute in threads of its own, and call Python there */
    code = stream->get_schema(stream, its);
    Py_END_ALLOW_THREADS
    if (code != 0 || its->release == NULL) {
        PyMem_RawFree(its);
        return stream_failed(stream, code);
    }
    schema = schema_capsule(its);
    arrays = PyList_New(0);
    if (schema == NULL || arrays == NULL) goto failed;
    for (;;) {
        struct ArrowArray *next = fresh(sizeof *next);
        if (next == NULL) goto failed;
        Py_BEGIN_ALLOW_THREADS
        code = stream->get_next(stream, next);
        Py_END_ALLOW_THREADS
        if (code != 0 || next->release == NULL) {
            PyMem_RawFree(next);
            if (code == 0) break;
            stream_failed(stream, code);
            goto failed;
        }
        PyObject *one = array_capsule(next);
        if (one == NULL) goto failed;
        int added = PyList_Append(arrays, one);
        Py_DECREF(one);
        if (added < 0) goto failed;
    }
    return Py_BuildValue("NN", schema, arrays);
failed:
    Py_XDECREF(schema);
    Py_XDECREF(arrays);
    return NULL;
}

/* (name, format, has it a dictionary) */
static PyObject *field_of(const struct ArrowSchema *schema) {
    if (schema == NULL || schema->format == NULL) return refuse("a field has no type");
    const char *name = schema->name != NULL ? schema->name : "";
    PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
    return text == NULL ? NULL : Py_BuildValue("NsN", text, schema->format, PyBool_FromLong(schema->dictionary != NULL));
}

/* fields(capsule of a schema) -> (field, [fields of its children]) */
static PyObject *arrow_fields(PyObject *Py_UNUSED(self), PyObject *capsule) {
    const struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema == NULL) return NULL;
    if (schema->release == NULL) return refuse("the schema was taken already");
    if (schema->n_children < 0 || (schema->n_children > 0 && schema->children == NULL)) return refuse("its fields are missing");
    PyObject *own = field_of(schema), *list = own == NULL ? NULL : PyList_New(0);
    for (int64_t i = 0; list != NULL && i < schema->n_children; i++) {
        PyObject *one = field_of(schema->children[i]);
        if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    if (list == NULL) {
        Py_XDECREF(own);
        return NULL;
    }
    return Py_BuildValue("NN", own, list);
}

/* ------------------------------------------------------------------------------------------------------------------ columns */

enum { FIXED, BITS, TEXT32, TEXT64, VIEWS, NOTHING };

typedef struct { /* one array of a column */
    const void **buffers;
    const uint8_t *valid; /* NULL: every row has a value */
    const int64_t *sizes; /* of the buffers of views */
    int64_t start, rows, variadic;
} Piece;

static int form_of(const char *format) {
    if (strcmp(format, "vu") == 0) return VIEWS;
    if (format[0] == 0 || format[1] != 0) return -1;
    if (strchr("cCsSiIlLfg", *format)) return FIXED;
    return *format == 'b' ? BITS : *format == 'u' ? TEXT32 : *format == 'U' ? TEXT64 : *format == 'n' ? NOTHING : -1;
}

/* The rows of a column in one array of its frame. 0, or -1 with an exception. */
static int piece_of(PyObject *capsule, Py_ssize_t index, int form, Piece *made) {
    const struct ArrowArray *frame = PyCapsule_GetPointer(capsule, "arrow_array");
    if (frame == NULL) return -1;
    const char *wrong = NULL;
    const struct ArrowArray *one = NULL;
    if (frame->release == NULL) wrong = "the frame was taken already";
    else if (frame->length < 0 || frame->length > MOST_ROWS || frame->offset < 0 || frame->offset > MOST_ROWS) wrong = "it has no length";
    else if (index < 0 || index >= frame->n_children || frame->children == NULL || (one = frame->children[index]) == NULL)
        wrong = "a column is missing";
    else if (frame->null_count != 0 && frame->n_buffers > 0 && frame->buffers != NULL && frame->buffers[0] != NULL)
        wrong = "a whole row of it is null";
    else if (one->dictionary != NULL) wrong = "a column has a dictionary";
    else if (one->offset < 0 || one->offset > MOST_ROWS || one->length < frame->offset + frame->length) wrong = "a column is too short";
    else if (form != NOTHING && (one->n_buffers < (form == FIXED || form == BITS ? 2 : 3) || one->buffers == NULL)) wrong = "a buffer is missing";
    if (wrong != NULL) {
        refuse(wrong);
        return -1;
    }
    memset(made, 0, sizeof *made);
    made->rows = frame->length;
    made->start = one->offset + frame->offset;
    if (form == NOTHING) return 0;
    made->buffers = one->buffers;
    made->valid = one->null_count == 0 ? NULL : one->buffers[0];
    if (form == VIEWS) {
        made->variadic = one->n_buffers - 3;
        made->sizes = one->buffers[one->n_buffers - 1];
        if (made->variadic > 0 && made->sizes == NULL) wrong = "a buffer is missing";
        for (int64_t i = 0; wrong == NULL && i < made->variadic; i++)
            if (long_at(made->sizes, i) < 0 || (one->buffers[2 + i] == NULL && long_at(made->sizes, i) > 0)) wrong = "a buffer is missing";
    }
    if (made->rows > 0 && one->buffers[1] == NULL) wrong = "a buffer is missing";
    if (wrong != NULL) {
        refuse(wrong);
        return -1;
    }
    return 0;
}

static inline int has_value(const Piece *piece, int form, int64_t row) {
    return form != NOTHING && (piece->valid == NULL || bit_at(piece->valid, piece->start + row));
}

/* Where the text of a row lies. 0 if its offsets make no sense. */
static inline int text_of(const Piece *piece, int form, int64_t row, const uint8_t **at, int64_t *size) {
    static const uint8_t nothing[1];
    const char *base = (const char *)piece->buffers[1];
    int64_t from, to;
    row += piece->start;
    if (form == VIEWS) {
        int32_t parts[4];
        memcpy(parts, base + row * 16, 16);
        *size = parts[0];
        *at = (const uint8_t *)base + row * 16 + 4;
        if (parts[0] <= INLINE) return parts[0] >= 0;
        if (parts[2] < 0 || parts[2] >= piece->variadic || parts[3] < 0) return 0;
        *at = (const uint8_t *)piece->buffers[2 + parts[2]] + parts[3];
        return (int64_t)parts[3] + parts[0] <= long_at(piece->sizes, parts[2]);
    }
    if (form == TEXT32) {
        int32_t ends[2];
        memcpy(ends, base + row * 4, 8);
        from = ends[0], to = ends[1];
    } else {
        from = long_at(base, row), to = long_at(base, row + 1);
    }
    if (from < 0 || to < from || (to > from && piece->buffers[2] == NULL)) return 0;
    *size = to - from;
    *at = to > from ? (const uint8_t *)piece->buffers[2] + from : nothing;
    return 1;
}

static int is_utf8(const uint8_t *at, int64_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint64_t word;
        while (end - at >= 8 && (memcpy(&word, at, 8), (word & 0x8080808080808080ull) == 0)) at += 8;
        while (at < end && *at < 0x80) at++;
        if (at < end && (at = skip_utf8(at, end)) == NULL) return 0;
    }
    return 1;
}

typedef struct { /* a column that is being made */
    PyObject *data, *offsets, *valid;
    int64_t rows, nulls, flawed; /* flawed: the first row whose value no column can hold; -1 */
} Made;

static inline void mark(Made *made, int64_t row) {
    if (made->flawed < 0) made->flawed = row;
}

/* The number of a row, as 8 bytes; 0 if no column can hold it. */
static inline int number_of(const Piece *piece, char code, int64_t row, int kind, void *out) {
    const char *base = (const char *)piece->buffers[1];
    int64_t whole = 0, at = piece->start + row;
    double real = 0;
    int fine = 1, is_whole = 1;
    switch (code) {
    case 'c': whole = ((const int8_t *)base)[at]; break;
    case 'C': whole = ((const uint8_t *)base)[at]; break;
    case 's': { int16_t x; memcpy(&x, base + at * 2, 2); whole = x; break; }
    case 'S': { uint16_t x; memcpy(&x, base + at * 2, 2); whole = x; break; }
    case 'i': { int32_t x; memcpy(&x, base + at * 4, 4); whole = x; break; }
    case 'I': { uint32_t x; memcpy(&x, base + at * 4, 4); whole = x; break; }
    case 'l': whole = long_at(base, at); break;
    case 'L': {
        uint64_t x;
        memcpy(&x, base + at * 8, 8);
        fine = kind == FLOAT64 || x >> 63 == 0;
        if (kind == FLOAT64) real = (double)x, is_whole = 0;
        else memcpy(&whole, &x, 8);
        break;
    }
    case 'f': { float x; memcpy(&x, base + at * 4, 4); real = x, is_whole = 0; break; }
    default: real = double_at(base, at), is_whole = 0;
    }
    if (kind == INT64) {
        memcpy(out, &whole, 8);
        return fine;
    }
    if (is_whole) real = (double)whole;
    memcpy(out, &real, 8);
    return isfinite(real);
}

static void take_numbers(const Piece *piece, int form, char code, int kind, Made *made, int64_t to) {
    char *out = PyBytes_AS_STRING(made->data) + to * 8;
    for (int64_t row = 0; row < piece->rows; row++, out += 8) {
        if (!has_value(piece, form, row)) memset(out, 0, 8);
        else if (!number_of(piece, code, row, kind, out)) mark(made, to + row);
    }
}

static void take_bits(const Piece *piece, int form, Made *made, int64_t to) {
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(made->data);
    for (int64_t row = 0; row < piece->rows; row++)
        if (has_value(piece, form, row) && bit_at(piece->buffers[1], piece->start + row)) out[(to + row) >> 3] |= (uint8_t)(1u << ((to + row) & 7));
}

/* 0, or -1 with an exception */
static int take_texts(const Piece *pieces, Py_ssize_t count, int form, Made *made) {
    int64_t total = 0, to = 0, size = 0;
    const uint8_t *at = NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        for (int64_t row = 0; row < pieces[i].rows; row++) {
            if (!has_value(&pieces[i], form, row)) continue;
            if (!text_of(&pieces[i], form, row, &at, &size)) {
                refuse("the text of a row lies outside of its column");
                return -1;
            }
            total += size;
            if (total > MOST_TEXT) {
                PyErr_SetString(PyExc_OverflowError, "more than 2 GiB of text in one column");
                return -1;
            }
        }
    made->data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    made->offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(made->rows + 1) * 4);
    if (made->data == NULL || made->offsets == NULL) return -1;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(made->data);
    char *ends = PyBytes_AS_STRING(made->offsets);
    int32_t end = 0;
    memcpy(ends, &end, 4);
    for (Py_ssize_t i = 0; i < count; i++)
        for (int64_t row = 0; row < pieces[i].rows; row++) {
            if (has_value(&pieces[i], form, row)) {
                text_of(&pieces[i], form, row, &at, &size);
                if (!is_utf8(at, size)) mark(made, to);
                memcpy(out + end, at, (size_t)size);
                end += (int32_t)size;
            }
            memcpy(ends + ++to * 4, &end, 4);
        }
    return 0;
}

/* 0, or -1 with an exception */
static int take_validity(const Piece *pieces, Py_ssize_t count, int form, Made *made) {
    made->valid = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(made->rows + 7) / 8);
    if (made->valid == NULL) return -1;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(made->valid);
    memset(out, 0, (size_t)(made->rows + 7) / 8);
    int64_t to = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        for (int64_t row = 0; row < pieces[i].rows; row++, to++) {
            int there = has_value(&pieces[i], form, row);
            made->nulls += !there;
            out[to >> 3] |= (uint8_t)(there << (to & 7));
        }
    return 0;
}

/* take([capsules of the arrays of a frame], index of the column, its format, number of the kind)
   -> (length, data, offsets or None, validity or None, nulls, the first row that no such column can hold or -1) */
static PyObject *arrow_take(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *list, *out = NULL;
    Py_ssize_t index;
    const char *format;
    int kind;
    if (!PyArg_ParseTuple(args, "O!nsi", &PyList_Type, &list, &index, &format, &kind)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(list);
    int form = form_of(format);
    int is_text = form == TEXT32 || form == TEXT64 || form == VIEWS;
    int fits = form == NOTHING || (kind == TEXT && is_text) || (kind == BOOL && form == BITS) || (kind == FLOAT64 && form == FIXED) ||
               (kind == INT64 && form == FIXED && *format != 'f' && *format != 'g');
    if (kind < INT64 || kind > TEXT || !fits) return refuse("no such column");
    Made made = {.flawed = -1};
    Piece *pieces = PyMem_RawCalloc((size_t)count + 1, sizeof *pieces);
    if (pieces == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        if (piece_of(PyList_GET_ITEM(list, i), index, form, &pieces[i]) < 0) goto done;
        made.rows += pieces[i].rows;
        if (made.rows > MOST_ROWS) {
            refuse("it has no length");
            goto done;
        }
    }
    if (take_validity(pieces, count, form, &made) < 0) goto done;
    if (kind == TEXT) {
        if (take_texts(pieces, count, form, &made) < 0) goto done;
    } else {
        Py_ssize_t size = (Py_ssize_t)(kind == BOOL ? (made.rows + 7) / 8 : made.rows * 8);
        if ((made.data = PyBytes_FromStringAndSize(NULL, size)) == NULL) goto done;
        if (kind == BOOL) memset(PyBytes_AS_STRING(made.data), 0, (size_t)size);
        int64_t to = 0;
        for (Py_ssize_t i = 0; i < count; to += pieces[i++].rows) {
            if (kind == BOOL) take_bits(&pieces[i], form, &made, to);
            else take_numbers(&pieces[i], form, *format, kind, &made, to);
        }
    }
    out = Py_BuildValue("LOOOLL", (long long)made.rows, made.data, made.offsets != NULL ? made.offsets : Py_None,
                        made.nulls ? made.valid : Py_None, (long long)made.nulls, (long long)made.flawed);
done:
    PyMem_RawFree(pieces);
    Py_XDECREF(made.data);
    Py_XDECREF(made.offsets);
    Py_XDECREF(made.valid);
    return out;
}

PyMethodDef arrow_take_methods[] = {
    {"arrow_drain", arrow_drain, METH_O, "The arrays of a stream."},
    {"arrow_fields", arrow_fields, METH_O, "The fields of a schema."},
    {"arrow_take", arrow_take, METH_VARARGS, "A column of a frame."},
    {NULL, NULL, 0, NULL},
};
