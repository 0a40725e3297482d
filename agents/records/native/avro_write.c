/* Writes Arrow vectors as Avro records. registry/avro_writer.py says what is promised; avro_write_program.py makes the programs, and
 * plain/avro_write.py gives the same results.
 *
 * A program writes one record of one schema: a row of four numbers for each instruction. It is checked when it is made, so that no jump leaves
 * it or goes back, and no column is of another type. Of the columns nothing is believed: what lies outside of a buffer is an error of the
 * whole call, and a value that the schema cannot hold leaves its row unwritten, and no other. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "texts.h"
#include "varints.h"
#include "vector_view.h"

enum { END, JUMP, IF_VALID, CONST, LONG, FLOATS, DOUBLE, BOOLEAN, STRING, SYMBOL, TIME, DECIMAL, BYTES, RAW, REFUSE, OPS };
#define STRIDE 4
#define LONGEST 10 /* bytes of a number */
#define WRITER "headgate.avro_writer"

typedef struct {
    int32_t *code, instructions;
    Span *texts;
    int64_t text_count;
    uint8_t *text_bytes;
    int32_t columns;
    uint8_t *kinds; /* of the columns that it was made for */
} Program;

typedef struct {
    PyObject *bytes;
    uint8_t *at, *end;
    PyThreadState *released;
} Text;

enum { WRITTEN = 1, NO_ROOM = 0, SENSELESS = -1, REFUSED = -2 };

/* Room for so many bytes more. 0 if there is none: then an exception is set. */
static int grow(Text *text, int64_t wanted) {
    PyEval_RestoreThread(text->released);
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(text->bytes);
    Py_ssize_t used = text->at - begin, size = PyBytes_GET_SIZE(text->bytes);
    size = (wanted > size ? wanted : size) + size;
    int fine = _PyBytes_Resize(&text->bytes, size) == 0;
    if (fine) {
        text->at = (uint8_t *)PyBytes_AS_STRING(text->bytes) + used;
        text->end = (uint8_t *)PyBytes_AS_STRING(text->bytes) + size;
    }
    text->released = PyEval_SaveThread();
    return fine;
}

static inline int room_for(Text *text, int64_t wanted) { return text->end - text->at >= wanted || grow(text, wanted); }

static int put_bytes(Text *text, const uint8_t *at, int64_t length, int with_length) {
    if (!room_for(text, length + LONGEST)) return NO_ROOM;
    if (with_length) text->at = put_varint(text->at, length);
    if (length) memcpy(text->at, at, (size_t)length);
    text->at += length;
    return WRITTEN;
}

/* A number of so many digits as its two's complement, the highest byte first: in `size` bytes, or in as few as hold it, with their number. */
static int put_decimal(Text *text, int64_t value, int32_t size, int32_t digits) {
    uint64_t bits = (uint64_t)value, amount = value < 0 ? 0 - bits : bits, limit = 1;
    for (int i = 0; i < digits; i++) limit *= 10;
    int least = 1;
    while (least < 8 && amount >= UINT64_C(1) << (8 * least - 1)) least++; /* the library takes two for -128, too */
    if (amount >= limit || (size >= 0 && size < least)) return REFUSED;
    int64_t wide = size >= 0 ? size : least;
    if (!room_for(text, wide + LONGEST)) return NO_ROOM;
    if (size < 0) text->at = put_varint(text->at, wide);
    for (int64_t i = wide - 1; i >= 0; i--) *text->at++ = (uint8_t)(i > 7 ? (value < 0 ? 0xFF : 0) : bits >> (8 * i));
    return WRITTEN;
}

/* Where the bytes of a row lie that are written as they are; a row without a value has a length below zero. 0 if they lie outside. */
static inline int bytes_at(const VectorView *view, int64_t row, const uint8_t **at, int64_t *length) {
    int64_t start = long_at(view->offsets.buf, row);
    *length = long_at(view->validity.buf, row);
    if (*length < 0) return 1;
    if (start < 0 || start > view->data.len || *length > view->data.len - start) return 0;
    *at = (const uint8_t *)view->data.buf + start;
    return 1;
}

static inline int has_value(const VectorView *view, int64_t row) {
    return view->kind == JSON ? long_at(view->validity.buf, row) >= 0 : is_valid(view, row);
}

/* The value of a column that is there. */
static int put_value(Text *text, const Program *program, const int32_t *one, const VectorView *view, int64_t row) {
    const uint8_t *at = NULL;
    int64_t length = 0, number;
    int whole = view->kind != TEXT && view->kind != JSON && kind_at(view, row) == INT64;
    switch (one[0]) {
    case LONG:
        if (!whole) return REFUSED;
        number = long_at(view->data.buf, row);
        if (one[2] && (number < INT32_MIN || number > INT32_MAX)) return REFUSED;
        if (!room_for(text, LONGEST)) return NO_ROOM;
        text->at = put_varint(text->at, number);
        return WRITTEN;
    case FLOATS:
    case DOUBLE: {
        double found = whole ? (double)long_at(view->data.buf, row) : double_at(view->data.buf, row);
        if (!room_for(text, 8)) return NO_ROOM;
        if (one[0] == FLOATS) { /* how one that has no place there is written, or not, is not decided here */
            if (!(found >= -3.4e38 && found <= 3.4e38)) return REFUSED;
            float single = (float)found;
            memcpy(text->at, &single, 4);
            text->at += 4;
        } else {
            memcpy(text->at, &found, 8);
            text->at += 8;
        }
        return WRITTEN;
    }
    case BOOLEAN:
        if (!room_for(text, 1)) return NO_ROOM;
        *text->at++ = (uint8_t)bit_at(view->data.buf, row);
        return WRITTEN;
    case STRING: return text_at(view, row, &at, &length) ? put_bytes(text, at, length, 1) : SENSELESS;
    case SYMBOL:
        if (!text_at(view, row, &at, &length)) return SENSELESS;
        for (int32_t i = 0; i < one[3]; i++) {
            const Span *symbol = &program->texts[one[2] + i];
            if (symbol->length != length || memcmp(symbol->at, at, (size_t)length) != 0) continue;
            if (!room_for(text, LONGEST)) return NO_ROOM;
            text->at = put_varint(text->at, i);
            return WRITTEN;
        }
        return REFUSED;
    case TIME:
        if (!room_for(text, LONGEST)) return NO_ROOM;
        number = long_at(view->data.buf, row);
        text->at = put_varint(text->at, number / one[2] - (number % one[2] < 0));
        return WRITTEN;
    case DECIMAL: return put_decimal(text, long_at(view->data.buf, row), one[2], one[3]);
    case BYTES:
        if (!bytes_at(view, row, &at, &length)) return SENSELESS;
        if (one[2] >= 0 && one[2] != length) return REFUSED;
        return put_bytes(text, at, length, one[2] < 0);
    default: return bytes_at(view, row, &at, &length) ? put_bytes(text, at, length, 0) : SENSELESS; /* RAW */
    }
}

static int put_record(Text *text, const Program *program, const VectorView *views, int64_t row) {
    for (int32_t at = 0;; at++) {
        const int32_t *one = program->code + (int64_t)at * STRIDE;
        int done = WRITTEN;
        switch (one[0]) {
        case END: return WRITTEN;
        case JUMP: at = one[2] - 1; break;
        case IF_VALID:
            if (has_value(&views[one[1]], row)) at = one[2] - 1;
            break;
        case CONST: done = put_bytes(text, program->texts[one[2]].at, program->texts[one[2]].length, 0); break;
        case REFUSE: return REFUSED;
        default: done = has_value(&views[one[1]], row) ? put_value(text, program, one, &views[one[1]], row) : REFUSED;
        }
        if (done != WRITTEN) return done;
    }
}

/* --------------------------------------------------------------------------------------------------------------- programs */

static void free_program(Program *program) {
    if (program == NULL) return;
    PyMem_RawFree(program->code);
    PyMem_RawFree(program->texts);
    PyMem_RawFree(program->text_bytes);
    PyMem_RawFree(program->kinds);
    PyMem_RawFree(program);
}

static void program_dies(PyObject *capsule) { free_program(PyCapsule_GetPointer(capsule, WRITER)); }

/* Whether an instruction may write a column of this type. */
static int writes_kind(int op, int kind) {
    switch (op) {
    case LONG: return kind == INT64 || kind == NUMBER;
    case FLOATS: case DOUBLE: return kind == INT64 || kind == FLOAT64 || kind == NUMBER;
    case BOOLEAN: return kind == BOOL;
    case STRING: case SYMBOL: return kind == TEXT;
    case TIME: case DECIMAL: return kind == INT64;
    case BYTES: case RAW: return kind == JSON;
    default: return 1;
    }
}

/* Whether an instruction stays within its program, its columns and its constants. */
static int is_sound(const Program *program, int32_t at) {
    const int32_t *one = program->code + (int64_t)at * STRIDE, x = one[2], y = one[3];
    if (one[0] < 0 || one[0] >= OPS) return 0;
    int of_column = one[0] == IF_VALID || (one[0] >= LONG && one[0] < REFUSE);
    if (of_column && (one[1] < 0 || one[1] >= program->columns || !writes_kind(one[0], program->kinds[one[1]]))) return 0;
    switch (one[0]) {
    case JUMP: case IF_VALID: return x > at && x < program->instructions; /* forward only, so that it ends */
    case CONST: return x >= 0 && x < program->text_count;
    case SYMBOL: return x >= 0 && y >= 0 && x <= program->text_count && y <= program->text_count - x;
    case TIME: return x == 1 || x == 1000;
    case DECIMAL: return x >= -1 && x <= 1 << 20 && y >= 1 && y <= 18;
    case BYTES: return x >= -1;
    default: return 1;
    }
}

static void *copy_of(const Py_buffer *from) {
    void *made = PyMem_RawMalloc((size_t)from->len + 8);
    if (made != NULL && from->len) memcpy(made, from->buf, (size_t)from->len);
    return made;
}

/* avro_writer(code, [text], kinds of the columns) -> what `avro_encode` runs */
static PyObject *avro_writer(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer code, kinds;
    PyObject *texts, *capsule = NULL;
    if (!PyArg_ParseTuple(args, "y*O!y*", &code, &PyList_Type, &texts, &kinds)) return NULL;
    Program *program = PyMem_RawCalloc(1, sizeof(Program));
    int sound = program != NULL && code.len >= STRIDE * 4 && code.len % (STRIDE * 4) == 0 && code.len <= 1 << 24 && kinds.len <= 100000;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    sound = 0; /* no one has tried the other order */
#endif
    if (!sound) goto done;
    program->instructions = (int32_t)(code.len / (STRIDE * 4));
    program->columns = (int32_t)kinds.len;
    program->code = copy_of(&code);
    program->kinds = copy_of(&kinds);
    if (program->code == NULL || program->kinds == NULL) goto done;
    if (!copied_texts(texts, &program->texts, &program->text_bytes, &program->text_count)) goto done;
    for (int32_t at = 0; at < program->instructions; at++)
        if (!is_sound(program, at)) goto done;
    if (program->code[(int64_t)(program->instructions - 1) * STRIDE] != END) goto done;
    capsule = PyCapsule_New(program, WRITER, program_dies);
done:
    if (capsule == NULL) {
        free_program(program);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such program");
    }
    PyBuffer_Release(&code);
    PyBuffer_Release(&kinds);
    return capsule;
}

/* --------------------------------------------------------------------------------------------------------------- encoding */

typedef struct {
    const Program *program;
    VectorView *views;
    int32_t viewed; /* how many of them are to be left */
    int64_t length, count;
    Py_buffer head, rows;
    Text text;
    PyObject *starts, *sizes;
    int64_t *refused, refusals;
} Job;

static int prepare(Job *job, PyObject *vectors, PyObject *rows) {
    Py_ssize_t columns = PyList_GET_SIZE(vectors);
    if (columns != job->program->columns || job->length < 0 || job->length > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a program of other columns");
        return -1;
    }
    job->views = PyMem_RawCalloc((size_t)columns + 1, sizeof(VectorView));
    if (job->views == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < columns; i++) {
        job->viewed = (int32_t)i + 1; /* also a view that fails is left */
        if (written_vector_of(PyList_GET_ITEM(vectors, i), job->length, &job->views[i]) < 0) return -1;
        if (job->views[i].kind != job->program->kinds[i]) {
            PyErr_SetString(PyExc_ValueError, "a program of other columns");
            return -1;
        }
    }
    if (view_of(rows, &job->rows) < 0) return -1;
    job->count = job->rows.obj != NULL ? job->rows.len / 8 : job->length;
    if (job->count > INT32_MAX || (job->rows.obj != NULL && job->rows.len % 8)) {
        PyErr_SetString(PyExc_ValueError, "these are no rows");
        return -1;
    }
    Py_ssize_t places = (Py_ssize_t)job->length * 8;
    int64_t guess = 64 + job->count * (job->head.len + 8);
    for (Py_ssize_t i = 0; i < columns && job->length > 0; i++) {
        int texts = job->views[i].kind == TEXT || job->views[i].kind == JSON;
        guess += job->count * (texts ? 2 : 6) + (texts ? job->views[i].data.len / job->length * job->count : 0);
    }
    job->text.bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)guess);
    job->starts = PyBytes_FromStringAndSize(NULL, places);
    job->sizes = PyBytes_FromStringAndSize(NULL, places);
    job->refused = PyMem_RawMalloc((size_t)job->count * 8 + 8);
    if (job->text.bytes == NULL || job->starts == NULL || job->sizes == NULL) return -1;
    if (job->refused == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
    memset(PyBytes_AS_STRING(job->starts), 0, (size_t)places);
    memset(PyBytes_AS_STRING(job->sizes), 0, (size_t)places);
    return 0;
}

/* All rows; what is said of one of them. */
static int put_all(Job *job) {
    Text *text = &job->text;
    for (int64_t i = 0; i < job->count; i++) {
        int64_t row = job->rows.obj != NULL ? long_at(job->rows.buf, i) : i;
        if (row < 0 || row >= job->length) return SENSELESS;
        if (!room_for(text, job->head.len)) return NO_ROOM;
        int64_t before = text->at - (uint8_t *)PyBytes_AS_STRING(text->bytes);
        if (job->head.len) memcpy(text->at, job->head.buf, (size_t)job->head.len);
        text->at += job->head.len;
        int done = put_record(text, job->program, job->views, row);
        if (done == REFUSED) {
            job->refused[job->refusals++] = row;
            text->at = (uint8_t *)PyBytes_AS_STRING(text->bytes) + before;
            continue;
        }
        if (done != WRITTEN) return done;
        int64_t size = text->at - (uint8_t *)PyBytes_AS_STRING(text->bytes) - before;
        memcpy(PyBytes_AS_STRING(job->starts) + row * 8, &before, 8);
        memcpy(PyBytes_AS_STRING(job->sizes) + row * 8, &size, 8);
    }
    return WRITTEN;
}

static void free_job(Job *job) {
    for (int32_t i = 0; i < job->viewed; i++) leave_vector(&job->views[i]);
    PyMem_RawFree(job->views);
    PyMem_RawFree(job->refused);
    leave(&job->head);
    leave(&job->rows);
    Py_XDECREF(job->text.bytes);
    Py_XDECREF(job->starts);
    Py_XDECREF(job->sizes);
}

/* avro_encode(program, [vector], length, what stands in front of each record, rows or None)
 *     -> (bytes, where the record of each row begins, how long it is, the rows whose values the program does not write) */
static PyObject *avro_encode(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *capsule, *vectors, *rows, *refused = NULL, *out = NULL;
    Py_ssize_t length;
    Job job;
    memset(&job, 0, sizeof job);
    if (!PyArg_ParseTuple(args, "OO!ny*O", &capsule, &PyList_Type, &vectors, &length, &job.head, &rows)) return NULL;
    job.length = length;
    if ((job.program = PyCapsule_GetPointer(capsule, WRITER)) == NULL || prepare(&job, vectors, rows) < 0) goto done;
    job.text.at = (uint8_t *)PyBytes_AS_STRING(job.text.bytes);
    job.text.end = job.text.at + PyBytes_GET_SIZE(job.text.bytes);
    job.text.released = PyEval_SaveThread();
    int fine = put_all(&job);
    PyEval_RestoreThread(job.text.released);
    if (fine < 0) PyErr_SetString(PyExc_ValueError, "a row lies outside of its column");
    if (fine != WRITTEN) goto done;
    if (_PyBytes_Resize(&job.text.bytes, job.text.at - (uint8_t *)PyBytes_AS_STRING(job.text.bytes)) < 0) goto done;
    refused = PyBytes_FromStringAndSize((const char *)job.refused, (Py_ssize_t)job.refusals * 8);
    if (refused != NULL) out = Py_BuildValue("OOOO", job.text.bytes, job.starts, job.sizes, refused);
done:
    Py_XDECREF(refused);
    free_job(&job);
    return out;
}

PyMethodDef avro_write_methods[] = {
    {"avro_writer", avro_writer, METH_VARARGS, "What writes records of a schema."},
    {"avro_encode", avro_encode, METH_VARARGS, "Arrow vectors as Avro records."},
    {NULL, NULL, 0, NULL},
};
