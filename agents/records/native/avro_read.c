/* Decodes Avro records into Arrow vectors. avro_columns.py says what is promised, and makes the programs; plain/avro.py gives the same results.
 *
 * A program reads one record of one schema: a row of four numbers for each instruction. It is checked when it is made, so that no jump leaves
 * it and no column is of another type. Of the data nothing is believed: a length is compared with the bytes that are left, and what repeats
 * takes at least one byte each time, so that a record costs no more than its bytes allow. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "decoded.h"

enum {
    END, SKIP_LONG, SKIP_TEXT, SKIP_BYTES, SKIP_FIXED, SKIP_ENUM, UNION, JUMP, BLOCK, AGAIN, /* no column */
    LONG, LONG_DOUBLE, FLOAT, DOUBLE, BOOLEAN, STRING, ENUM, TIME, DATE, DECIMAL, BYTES, RAW, RAW_END, /* a column gets what stands there */
    NO_VALUE, FLAW, THERE, SAME_LONG, SAME_DOUBLE, SAME_BOOL, SAME_TEXT, /* a column gets what the program says */
    OPS
};
#define CUT NO_VALUE_AT_ALL
#define STRIDE 4
#define DEEPEST_BLOCK 64
#define FIRST_TIME (-62135596800000000LL) /* the years 1 to 9999, as core/columns/logical.py has them */
#define LAST_TIME 253402300799999999LL
#define FIRST_DAY (-719162)
#define LAST_DAY 2932896

typedef struct {
    int32_t *code, instructions;
    int64_t *longs, long_count;
    Span *texts;
    int64_t text_count;
    uint8_t *text_bytes;
    int32_t columns;
    uint8_t *kinds; /* of the columns that it was made for */
} Program;

#define PROGRAM "headgate.avro_program"

/* ---------------------------------------------------------------------------------------------------------------- values */

/* 0 if there is no number of at most 64 bits. */
static inline int long_of(Input *in, int64_t *found) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (in->at >= in->end) return 0;
        uint8_t byte = *in->at++;
        if (shift == 63 && byte > 1) return 0;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *found = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return 1;
        }
    }
    return 0;
}

static inline int span_of(Input *in, int64_t size, Span *found) {
    if (size < 0 && !long_of(in, &size)) return 0;
    if (size < 0 || size > in->end - in->at) return 0;
    *found = (Span){in->at, size};
    in->at += size;
    return 1;
}

/* The number of a decimal, whose bytes are its two's complement, the highest first. 0 if it has more than so many digits. */
static int decimal_of(const Span *of, int digits, int64_t *found) {
    const uint8_t *at = of->at, *end = at + of->length;
    uint8_t sign = of->length && *at & 0x80 ? 0xFF : 0;
    while (end - at > 8) /* bytes that only repeat the sign */
        if (*at++ != sign) return 0;
    if (of->length > 8 && at < end && ((*at ^ sign) & 0x80)) return 0;
    uint64_t value = sign ? ~(uint64_t)0 : 0;
    for (; at < end; at++) value = value << 8 | *at;
    uint64_t size = sign ? 0 - value : value, limit = 1;
    for (int i = 0; i < digits; i++) limit *= 10;
    *found = (int64_t)value;
    return size < limit;
}

/* -------------------------------------------------------------------------------------------------------------- a record */

/* One record: FINE, or why it is bad, and which column that concerns. */
static int read_record(const Program *program, Out *columns, Input *in, int64_t row, int32_t *concerned) {
    struct {
        int64_t left;
    } blocks[DEEPEST_BLOCK];
    int depth = 0;
    const int32_t *code = program->code;
    const uint8_t *begin = in->at;
    int64_t number;
    double fraction;
    float single;
    Span span;
    *concerned = -1;
    for (int32_t at = 0;; at++) {
        const int32_t *one = code + (int64_t)at * STRIDE;
        int32_t slot = one[1];
        Out *out = &columns[slot < 0 ? 0 : slot];
        switch (one[0]) {
        case END: return in->at == in->end ? FINE : MORE;
        case SKIP_LONG:
            if (!long_of(in, &number)) return CUT;
            break;
        case SKIP_TEXT:
            if (!span_of(in, -1, &span) || !is_utf8(span.at, span.length)) return CUT;
            break;
        case SKIP_BYTES:
            if (!span_of(in, -1, &span)) return CUT;
            break;
        case SKIP_FIXED:
            if (!span_of(in, one[2], &span)) return CUT;
            break;
        case SKIP_ENUM:
            if (!long_of(in, &number) || number < 0 || number >= one[2]) return CUT;
            break;
        case UNION:
            if (!long_of(in, &number) || number < 0 || number >= one[2]) return CUT;
            at += (int32_t)number; /* the jump of this branch follows */
            break;
        case JUMP: at = one[2] - 1; break;
        case BLOCK:
            if (depth == DEEPEST_BLOCK || !long_of(in, &number)) return CUT;
            if (number < 0) { /* the size of the block in bytes follows, for those who skip it */
                int64_t size;
                if (number == INT64_MIN || !long_of(in, &size)) return CUT;
                number = -number;
            }
            if (number == 0) {
                at = one[2] - 1;
                break;
            }
            if (number > in->end - in->at) return CUT; /* each has a byte at least */
            blocks[depth++].left = number;
            break;
        case AGAIN:
            if (depth == 0) return CUT;
            if (--blocks[depth - 1].left > 0) {
                at = one[2]; /* behind BLOCK */
            } else {
                depth--;
                at = one[2] - 1;
            }
            break;
        case LONG:
            if (!long_of(in, &number)) return CUT;
            put_long(out, row, number);
            break;
        case LONG_DOUBLE:
            if (!long_of(in, &number)) return CUT;
            fraction = (double)number;
            put_double(out, row, fraction);
            break;
        case FLOAT: /* the machine's byte order is the data's, see `avro_program` */
            if (in->end - in->at < 4) return CUT;
            memcpy(&single, in->at, 4);
            in->at += 4;
            fraction = (double)single;
            goto put_fraction;
        case DOUBLE:
            if (in->end - in->at < 8) return CUT;
            memcpy(&fraction, in->at, 8);
            in->at += 8;
        put_fraction:
            *concerned = slot;
            if (!is_finite_number(fraction)) return OUT_OF_RANGE;
            *concerned = -1;
            put_double(out, row, fraction);
            break;
        case BOOLEAN:
            if (in->at >= in->end) return CUT;
            put_bool(out, row, *in->at++ != 0);
            break;
        case STRING:
            if (!span_of(in, -1, &span) || !is_utf8(span.at, span.length)) return CUT;
            out->spans[row] = span;
            break;
        case ENUM:
            if (!long_of(in, &number) || number < 0 || number >= one[3]) return CUT;
            out->spans[row] = program->texts[one[2] + number];
            break;
        case TIME:
            if (!long_of(in, &number)) return CUT;
            *concerned = slot;
            if (number > LAST_TIME / one[2] || number < FIRST_TIME / one[2]) return OUT_OF_RANGE;
            *concerned = -1;
            put_long(out, row, number * one[2]);
            break;
        case DATE:
            if (!long_of(in, &number)) return CUT;
            *concerned = slot;
            if (number > LAST_DAY || number < FIRST_DAY) return OUT_OF_RANGE;
            *concerned = -1;
            put_long(out, row, number);
            break;
        case DECIMAL:
            if (!span_of(in, one[2], &span)) return CUT;
            *concerned = slot;
            if (!decimal_of(&span, one[3], &number)) return OUT_OF_RANGE;
            *concerned = -1;
            put_long(out, row, number);
            break;
        case BYTES:
            if (!span_of(in, one[2], &out->spans[row])) return CUT;
            break;
        case RAW: out->spans[row] = (Span){in->at, 0}; break;
        case RAW_END: /* what RAW has begun in this record, and nothing else */
            if ((uintptr_t)out->spans[row].at < (uintptr_t)begin || (uintptr_t)out->spans[row].at > (uintptr_t)in->at) return CUT;
            out->spans[row].length = in->at - out->spans[row].at;
            break;
        case NO_VALUE: put_null(out, row); break;
        case FLAW: *concerned = slot; return one[2];
        case THERE: put_bool(out, row, 1); break;
        case SAME_LONG:
        case SAME_DOUBLE: put_long(out, row, program->longs[one[2]]); break; /* a double by its bits */
        case SAME_BOOL: put_bool(out, row, one[2]); break;
        case SAME_TEXT: out->spans[row] = program->texts[one[2]]; break;
        default: return CUT;
        }
    }
}

/* --------------------------------------------------------------------------------------------------------------- programs */

static void free_program(Program *program) {
    if (program == NULL) return;
    PyMem_RawFree(program->code);
    PyMem_RawFree(program->longs);
    PyMem_RawFree(program->texts);
    PyMem_RawFree(program->text_bytes);
    PyMem_RawFree(program->kinds);
    PyMem_RawFree(program);
}

static void program_dies(PyObject *capsule) { free_program(PyCapsule_GetPointer(capsule, PROGRAM)); }

/* The type of the column that an instruction fills; -1: of none, -2: of any. */
static int kind_filled(int op) {
    switch (op) {
    case LONG: case TIME: case DATE: case DECIMAL: case SAME_LONG: return INT64;
    case LONG_DOUBLE: case FLOAT: case DOUBLE: case SAME_DOUBLE: return FLOAT64;
    case BOOLEAN: case THERE: case SAME_BOOL: return BOOL;
    case STRING: case ENUM: case BYTES: case RAW: case RAW_END: case SAME_TEXT: return TEXT;
    case NO_VALUE: return -2;
    default: return -1;
    }
}

/* Whether an instruction stays within its program, its columns and its constants. */
static int is_sound(const Program *program, int32_t at) {
    const int32_t *one = program->code + (int64_t)at * STRIDE, x = one[2], y = one[3];
    int kind = kind_filled(one[0]);
    if (one[0] < 0 || one[0] >= OPS) return 0;
    if (kind != -1 && (one[1] < 0 || one[1] >= program->columns || (kind >= 0 && program->kinds[one[1]] != kind))) return 0;
    switch (one[0]) {
    case SKIP_FIXED: case SKIP_ENUM: return x >= 0;
    case UNION:
        if (x < 1 || x >= program->instructions - at) return 0;
        for (int32_t i = 1; i <= x; i++)
            if (program->code[(int64_t)(at + i) * STRIDE] != JUMP) return 0;
        return 1;
    case JUMP: case BLOCK: return x > at && x < program->instructions; /* forward only, so that it ends */
    case AGAIN: return x >= 0 && x < at && program->code[(int64_t)x * STRIDE] == BLOCK && program->code[(int64_t)x * STRIDE + 2] == at + 1;
    case ENUM: return x >= 0 && y >= 0 && x <= program->text_count && y <= program->text_count - x;
    case TIME: return x == 1 || x == 1000;
    case DECIMAL: return x >= -1 && y >= 1 && y <= 18;
    case BYTES: return x >= -1;
    case FLAW: return one[1] >= -1 && one[1] < program->columns && x > FINE && x <= NO_SCHEMA;
    case SAME_LONG: case SAME_DOUBLE: return x >= 0 && x < program->long_count;
    case SAME_BOOL: return x == 0 || x == 1;
    case SAME_TEXT: return x >= 0 && x < program->text_count;
    default: return 1;
    }
}

static void *copy_of(const void *from, Py_ssize_t size) {
    void *made = PyMem_RawMalloc((size_t)size + 8);
    if (made != NULL) memcpy(made, from, (size_t)size);
    return made;
}

/* avro_program(code, longs, [text], kinds of the columns) -> what `avro_decode` runs */
static PyObject *avro_program(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer code, longs, kinds;
    PyObject *texts, *capsule = NULL;
    if (!PyArg_ParseTuple(args, "y*y*O!y*", &code, &longs, &PyList_Type, &texts, &kinds)) return NULL;
    Program *program = PyMem_RawCalloc(1, sizeof(Program));
    if (program == NULL) goto done;
    int sound = code.len >= STRIDE * 4 && code.len % (STRIDE * 4) == 0 && code.len <= 1 << 24 && longs.len % 8 == 0 && kinds.len <= MOST_COLUMNS;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    sound = 0; /* nobody has tried the other order */
#endif
    if (!sound) goto done;
    program->instructions = (int32_t)(code.len / (STRIDE * 4));
    program->columns = (int32_t)kinds.len;
    program->long_count = longs.len / 8;
    program->code = copy_of(code.buf, code.len);
    program->longs = copy_of(longs.buf, longs.len);
    program->kinds = copy_of(kinds.buf, kinds.len);
    if (program->code == NULL || program->longs == NULL || program->kinds == NULL) goto done;
    if (!copied_texts(texts, &program->texts, &program->text_bytes, &program->text_count)) goto done;
    for (int32_t i = 0; i < program->columns; i++)
        if (program->kinds[i] > TEXT) goto done;
    for (int32_t at = 0; at < program->instructions; at++)
        if (!is_sound(program, at)) goto done;
    if (program->code[(int64_t)(program->instructions - 1) * STRIDE] != END) goto done;
    capsule = PyCapsule_New(program, PROGRAM, program_dies);
done:
    if (capsule == NULL) {
        free_program(program);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such program");
    }
    PyBuffer_Release(&code);
    PyBuffer_Release(&longs);
    PyBuffer_Release(&kinds);
    return capsule;
}

/* --------------------------------------------------------------------------------------------------------------- decoding */

typedef struct {
    const Program *program; /* NULL: nothing reads these records */
    int64_t skipped;        /* bytes in front of the value */
} Reading;

typedef struct {
    Found found;
    const Reading *readings;
    const void *which; /* by record: the number of its reading */
    int64_t known;
} Work;

static ALWAYS_INLINE int read_one(void *of, int64_t index, const uint8_t *at, const uint8_t *end, int64_t row, int32_t *concerned) {
    Work *work = of;
    int64_t number = long_at(work->which, index);
    if (number >= work->known) return -2;
    const Reading *reading = number < 0 ? NULL : &work->readings[number];
    if (reading == NULL || reading->program == NULL) return NO_SCHEMA;
    if (end - at < reading->skipped) return CUT;
    Input in = {at + reading->skipped, end};
    int flaw = read_record(reading->program, work->found.out, &in, row, concerned);
    if (flaw != FINE) forget_row(&work->found, row);
    return flaw;
}

/* The programs of [(program or None, bytes in front of the value)]. NULL with an exception. */
static Reading *readings_of(PyObject *list, const Py_buffer *kinds) {
    Py_ssize_t known = PyList_GET_SIZE(list);
    Reading *made = PyMem_RawCalloc((size_t)known + 1, sizeof(Reading));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < known; i++) {
        PyObject *capsule, *one = PyList_GET_ITEM(list, i);
        Py_ssize_t skipped;
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "On", &capsule, &skipped)) goto failed;
        const Program *program = NULL;
        if (capsule != Py_None && (program = PyCapsule_GetPointer(capsule, PROGRAM)) == NULL) goto failed;
        if (skipped < 0 || (program != NULL && (program->columns != kinds->len || memcmp(program->kinds, kinds->buf, (size_t)kinds->len)))) {
            PyErr_SetString(PyExc_ValueError, "a program of other columns");
            goto failed;
        }
        made[i] = (Reading){program, skipped};
    }
    return made;
failed:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "no program");
    PyMem_RawFree(made);
    return NULL;
}

/* avro_decode(kinds of the columns, [(program or None, bytes in front)], number of the program by record, buffer, offsets, lengths) -> see
 * `results`. The list is not changed meanwhile: its programs live as long as it does. */
static PyObject *avro_decode(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *list, *out = NULL;
    Py_buffer kinds, which;
    Lying lying;
    if (!PyArg_ParseTuple(args, "y*O!y*y*y*y*", &kinds, &PyList_Type, &list, &which, &lying.data, &lying.offsets, &lying.lengths)) return NULL;
    Work work;
    memset(&work, 0, sizeof work);
    PyObject *held = PyList_GetSlice(list, 0, PyList_GET_SIZE(list)); /* another thread may change the other one */
    Reading *readings = held == NULL ? NULL : readings_of(held, &kinds);
    if (readings == NULL || lying_of(&lying) < 0) goto done;
    if (which.len != lying.offsets.len || kinds.len > MOST_COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "offsets, lengths and programs are not of one length");
        goto done;
    }
    for (Py_ssize_t i = 0; i < kinds.len; i++) {
        if (((const uint8_t *)kinds.buf)[i] > TEXT) {
            PyErr_SetString(PyExc_ValueError, "no such type of a column");
            goto done;
        }
    }
    int started = start_found(&work.found, (int32_t)kinds.len, lying.count);
    for (int32_t i = 0; started == 0 && i < (int32_t)kinds.len; i++)
        started = start_column(&work.found.out[i], ((const uint8_t *)kinds.buf)[i], 1, 1, lying.count);
    if (started < 0) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    work.readings = readings;
    work.which = which.buf;
    work.known = PyList_GET_SIZE(held);
    int64_t rows;
    Py_BEGIN_ALLOW_THREADS
    rows = read_each(&work.found, &lying, &work, read_one);
    Py_END_ALLOW_THREADS
    out = rows >= 0 ? found_made(&work.found, rows, lying.count) : refused(rows, "lies outside of the buffer, or has no such program");
done:
    PyMem_RawFree(readings);
    Py_XDECREF(held);
    free_found(&work.found);
    PyBuffer_Release(&kinds);
    PyBuffer_Release(&which);
    PyBuffer_Release(&lying.data);
    PyBuffer_Release(&lying.offsets);
    PyBuffer_Release(&lying.lengths);
    return out;
}

PyMethodDef avro_read_methods[] = {
    {"avro_program", avro_program, METH_VARARGS, "What reads the records of one schema."},
    {"avro_decode", avro_decode, METH_VARARGS, "Avro records as Arrow vectors."},
    {NULL, NULL, 0, NULL},
};
