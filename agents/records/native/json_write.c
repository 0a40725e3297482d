/* Writes vectors as JSON objects, byte for byte as orjson does, or extends original objects; or packs them, as msgpack does. encoder.py and
 * packing.py say what is promised. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "json.h"
#include "vector_view.h"

typedef struct {
    const char *prefix; /* comma or brace, the name, colon */
    Py_ssize_t length;
    int32_t column;
} Member;

typedef struct {
    PyObject *bytes;
    uint8_t *at, *end;
    PyThreadState *released;
    int signs, packed; /* whether a positive exponent has its sign; whether it is msgpack, not JSON */
} Text;

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

/* ---------------------------------------------------------------------------------------------------------- values */

static uint8_t *put_whole(uint8_t *to, uint64_t value) {
    uint8_t digits[20];
    int at = 20;
    do {
        digits[--at] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value);
    memcpy(to, digits + at, (size_t)(20 - at));
    return to + 20 - at;
}

static inline uint8_t *put_long(uint8_t *to, int64_t value) {
    if (value >= 0) return put_whole(to, (uint64_t)value);
    *to++ = '-';
    return put_whole(to, 0 - (uint64_t)value);
}

static uint8_t *put_exponent(uint8_t *to, int exponent, int signs) {
    *to++ = 'e';
    if (exponent < 0) *to++ = '-';
    else if (signs) *to++ = '+';
    return put_whole(to, (uint64_t)(exponent < 0 ? -exponent : exponent));
}

/* At most 25 bytes. */
static uint8_t *put_double(uint8_t *to, double value, int signs) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if ((bits >> 52 & 0x7FF) == 0x7FF) {
        memcpy(to, "null", 4);
        return to + 4;
    }
    if (bits >> 63) *to++ = '-';
    double size = bits >> 63 ? -value : value;
    if (size < 1e9) { /* at most four decimals: so few digits that no shorter text reads back as this double */
        int64_t parts = (int64_t)(size * 1e4 + 0.5);
        if ((double)parts / 1e4 == size) {
            to = put_whole(to, (uint64_t)(parts / 10000));
            int rest = (int)(parts % 10000), last = 4;
            to[0] = '.';
            for (int i = 4; i > 0; i--, rest /= 10) {
                to[i] = (uint8_t)('0' + rest % 10);
                if (last == i && to[i] == '0' && i > 1) last--;
            }
            return to + last + 1;
        }
    }
    int exponent, count;
    uint8_t digits[20];
    uint64_t shortest = shortest_digits(size, &exponent);
    count = (int)(put_whole(digits, shortest) - digits);
    int point = count + exponent; /* where it stands, counted from the first digit */
    if (exponent >= 0 && point <= 16) {
        memcpy(to, digits, (size_t)count);
        memset(to + count, '0', (size_t)exponent);
        memcpy(to + point, ".0", 2);
        return to + point + 2;
    }
    if (point > 0 && point <= 16) {
        memcpy(to, digits, (size_t)point);
        to[point] = '.';
        memcpy(to + point + 1, digits + point, (size_t)(count - point));
        return to + count + 1;
    }
    if (point > -5 && point <= 0) {
        memcpy(to, "0.00000", (size_t)(2 - point));
        memcpy(to + 2 - point, digits, (size_t)count);
        return to + 2 - point + count;
    }
    *to++ = digits[0];
    if (count > 1) {
        *to++ = '.';
        memcpy(to, digits + 1, (size_t)count - 1);
        to += count - 1;
    }
    return put_exponent(to, point - 1, signs);
}

/* Needs room for six times the length, and 18. */
static uint8_t *put_text(uint8_t *to, const uint8_t *at, int64_t length) {
    const uint8_t *end = at + length;
    *to++ = '"';
    while (at < end) {
        if (end - at >= 16) {
            int ahead = first_escaped(at);
            memcpy(to, at, 16);
            to += ahead;
            at += ahead;
            if (ahead == 16) continue;
        }
        uint8_t c = *at++;
        if (is_plain(c)) {
            *to++ = c;
            continue;
        }
        *to++ = '\\';
        switch (c) {
        case '\b': *to++ = 'b'; break;
        case '\t': *to++ = 't'; break;
        case '\n': *to++ = 'n'; break;
        case '\f': *to++ = 'f'; break;
        case '\r': *to++ = 'r'; break;
        case '"':
        case '\\': *to++ = c; break;
        default:
            memcpy(to, "u00", 3);
            to[3] = "0123456789abcdef"[c >> 4];
            to[4] = "0123456789abcdef"[c & 15];
            to += 5;
        }
    }
    *to++ = '"';
    return to;
}

/* ---------------------------------------------------------------------------------------------------------- msgpack */

static uint8_t *put_big_endian(uint8_t *to, uint8_t code, uint64_t value, int size) {
    *to++ = code;
    for (int i = size - 1; i >= 0; i--) *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static uint8_t *pack_long(uint8_t *to, int64_t value) {
    uint64_t bits = (uint64_t)value;
    if (value >= -32 && value < 128) {
        *to++ = (uint8_t)bits;
        return to;
    }
    if (value >= 0) {
        if (bits <= 0xFF) return put_big_endian(to, 0xCC, bits, 1);
        if (bits <= 0xFFFF) return put_big_endian(to, 0xCD, bits, 2);
        return bits <= 0xFFFFFFFF ? put_big_endian(to, 0xCE, bits, 4) : put_big_endian(to, 0xCF, bits, 8);
    }
    if (value >= INT8_MIN) return put_big_endian(to, 0xD0, bits, 1);
    if (value >= INT16_MIN) return put_big_endian(to, 0xD1, bits, 2);
    return value >= INT32_MIN ? put_big_endian(to, 0xD2, bits, 4) : put_big_endian(to, 0xD3, bits, 8);
}

/* At most nine bytes, or five more than the text. */
static uint8_t *pack_value(uint8_t *to, const VectorView *view, int64_t row, int valid, const uint8_t *at, int64_t length) {
    if (!valid) {
        *to++ = 0xC0;
    } else if (kind_at(view, row) == INT64) {
        to = pack_long(to, long_at(view->data.buf, row));
    } else if (kind_at(view, row) == FLOAT64) {
        to = put_big_endian(to, 0xCB, (uint64_t)long_at(view->data.buf, row), 8);
    } else if (view->kind == BOOL) {
        *to++ = bit_at(view->data.buf, row) ? 0xC3 : 0xC2;
    } else {
        if (length < 32) *to++ = (uint8_t)(0xA0 | length);
        else if (length <= 0xFF) to = put_big_endian(to, 0xD9, (uint64_t)length, 1);
        else if (length <= 0xFFFF) to = put_big_endian(to, 0xDA, (uint64_t)length, 2);
        else to = put_big_endian(to, 0xDB, (uint64_t)length, 4);
        memcpy(to, at, (size_t)length);
        to += length;
    }
    return to;
}

/* JSON of a row, which is null where it has no length. As `put_member`. */
static int put_json(Text *text, const VectorView *view, const Member *member, int64_t row) {
    int64_t start = long_at(view->offsets.buf, row), size = long_at(view->validity.buf, row);
    if (text->packed || start < 0 || size < 0 || start > view->data.len || size > view->data.len - start) return -1;
    if (!room_for(text, member->length + size + 34)) return 0; /* and the last brace */
    memcpy(text->at, member->prefix, (size_t)member->length);
    text->at += member->length;
    memcpy(text->at, size ? (const char *)view->data.buf + start : "null", (size_t)(size ? size : 4));
    text->at += size ? size : 4;
    return 1;
}

/* A column's value of a row with what stands before it. 0: no room, or -1: its offsets make no sense. */
static inline int put_member(Text *text, const VectorView *view, const Member *member, int comma, int64_t row) {
    const uint8_t *at = NULL;
    int64_t length = 0;
    if (view->kind == JSON) return comma ? put_json(text, view, member, row) : -1;
    int kind = kind_at(view, row), valid = is_valid(view, row);
    if (kind == TEXT && valid && !text_at(view, row, &at, &length)) return -1;
    if (!room_for(text, member->length + 6 * length + 34)) return 0;
    int64_t skipped = !comma && member->length > 0;
    memcpy(text->at, member->prefix + skipped, (size_t)(member->length - skipped));
    uint8_t *to = text->at + member->length - skipped;
    if (text->packed) {
        to = pack_value(to, view, row, valid, at, length);
    } else if (!valid) {
        memcpy(to, "null", 4);
        to += 4;
    } else if (kind == TEXT) {
        to = put_text(to, at, length);
    } else if (kind == INT64) {
        to = put_long(to, long_at(view->data.buf, row));
    } else if (kind == FLOAT64) {
        to = put_double(to, double_at(view->data.buf, row), text->signs);
    } else {
        int yes = bit_at(view->data.buf, row);
        memcpy(to, yes ? "true" : "false", yes ? 4 : 5);
        to += yes ? 4 : 5;
    }
    text->at = to;
    return 1;
}

/* --------------------------------------------------------------------------------------------------------- objects */

typedef struct {
    VectorView *views;
    Py_ssize_t columns;
    Member *full, *added;
    Py_ssize_t fulls, addeds;
    int64_t length, count; /* rows of the vectors; rows that are written */
    Py_buffer rows, source, starts, sizes, others;
    int mask, aligned; /* aligned: places for every row of the vectors */
    Text text;
    PyObject *out_starts, *out_sizes;
} Job;

static const uint8_t *before_blanks(const uint8_t *begin, const uint8_t *end) {
    while (end > begin && (end[-1] == ' ' || end[-1] == '\n' || end[-1] == '\r' || end[-1] == '\t')) end--;
    return end;
}

/* The original object of a row with the added members. As `put_member`; -1: it is no object of the source. */
static int put_extended(Job *job, int64_t row) {
    Text *text = &job->text;
    int64_t start = long_at(job->starts.buf, row), size = long_at(job->sizes.buf, row);
    if (start < 0 || size < 0 || start > job->source.len || size > job->source.len - start) return -1;
    const uint8_t *begin = (const uint8_t *)job->source.buf + start, *end = begin + size;
    if (job->addeds > 0) { /* without its last brace */
        end = before_blanks(begin, end);
        if (end == begin || end[-1] != '}') return -1;
        end = before_blanks(begin, end - 1);
        if (end == begin) return -1;
    }
    if (!room_for(text, end - begin + 1)) return 0;
    memcpy(text->at, begin, (size_t)(end - begin));
    text->at += end - begin;
    if (job->addeds == 0) return 1;
    int comma = end[-1] != '{';
    for (Py_ssize_t i = 0; i < job->addeds; i++, comma = 1) {
        int done = put_member(text, &job->views[job->added[i].column], &job->added[i], comma, row);
        if (done != 1) return done;
    }
    *text->at++ = '}';
    return 1;
}

static int put_full(Job *job, int64_t row) {
    Text *text = &job->text;
    if (job->fulls == 0 && !text->packed) {
        if (!room_for(text, 2)) return 0;
        *text->at++ = '{';
    }
    for (Py_ssize_t i = 0; i < job->fulls; i++) {
        int done = put_member(text, &job->views[job->full[i].column], &job->full[i], 1, row);
        if (done != 1) return done;
    }
    if (!text->packed) *text->at++ = '}';
    return 1;
}

/* All rows. 1; 0: an exception is set; -1: what was handed over makes no sense. */
static int put_all(Job *job) {
    for (int64_t i = 0; i < job->count; i++) {
        int64_t row = job->rows.obj != NULL ? long_at(job->rows.buf, i) : i;
        if (row < 0 || row >= job->length) return -1;
        int extends = job->source.obj != NULL &&
                      (job->others.obj == NULL || (((const uint8_t *)job->others.buf)[row] & job->mask) == 0);
        int64_t before = job->text.at - (uint8_t *)PyBytes_AS_STRING(job->text.bytes);
        int done = extends ? put_extended(job, row) : put_full(job, row);
        if (done != 1) return done;
        int64_t size = job->text.at - (uint8_t *)PyBytes_AS_STRING(job->text.bytes) - before;
        int64_t place = job->aligned ? row : i;
        memcpy(PyBytes_AS_STRING(job->out_starts) + place * 8, &before, 8);
        memcpy(PyBytes_AS_STRING(job->out_sizes) + place * 8, &size, 8);
    }
    return 1;
}

/* [(column, prefix)] -> members; NULL with an exception. The list keeps the prefixes alive. */
static Member *members_of(PyObject *list, Py_ssize_t columns) {
    Py_ssize_t count = PyList_GET_SIZE(list);
    Member *made = PyMem_RawCalloc((size_t)count + 1, sizeof(Member));
    if (made == NULL) return (Member *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "iy#", &made[i].column, &made[i].prefix, &made[i].length) ||
            made[i].column < 0 || made[i].column >= columns) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such column");
            PyMem_RawFree(made);
            return NULL;
        }
    }
    return made;
}

/* A guess of how many bytes come: the texts without escapes, and numbers of middle length. */
static Py_ssize_t guess(const Job *job) {
    int64_t size = 64 + job->count * 8;
    for (Py_ssize_t i = 0; i < job->fulls; i++) size += job->count * (job->full[i].length + 16);
    for (Py_ssize_t i = 0; i < job->addeds; i++) size += job->count * (job->added[i].length + 24);
    for (Py_ssize_t i = 0; i < job->columns && job->length > 0; i++)
        if (job->views[i].kind == TEXT) size += job->views[i].data.len / job->length * job->count;
    if (job->source.obj != NULL && job->length > 0) size += job->source.len / job->length * job->count;
    return (Py_ssize_t)size;
}

static void free_job(Job *job) {
    for (Py_ssize_t i = 0; job->views != NULL && i < job->columns; i++) leave_vector(&job->views[i]);
    PyMem_RawFree(job->views);
    PyMem_RawFree(job->full);
    PyMem_RawFree(job->added);
    leave(&job->rows);
    leave(&job->source);
    leave(&job->starts);
    leave(&job->sizes);
    leave(&job->others);
    Py_XDECREF(job->text.bytes);
    Py_XDECREF(job->out_starts);
    Py_XDECREF(job->out_sizes);
}

static int prepare(Job *job, PyObject *vectors, PyObject *full, PyObject *added, PyObject *const buffers[5]) {
    job->columns = 0;
    job->views = PyMem_RawCalloc((size_t)PyList_GET_SIZE(vectors) + 1, sizeof(VectorView));
    if (job->views == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(vectors); i++) {
        job->columns = i + 1; /* also a view that fails is left */
        if (written_vector_of(PyList_GET_ITEM(vectors, i), job->length, &job->views[i]) < 0) return -1;
    }
    job->fulls = PyList_GET_SIZE(full);
    job->addeds = PyList_GET_SIZE(added);
    if ((job->full = members_of(full, job->columns)) == NULL || (job->added = members_of(added, job->columns)) == NULL) return -1;
    Py_buffer *to[5] = {&job->rows, &job->source, &job->starts, &job->sizes, &job->others};
    for (int i = 0; i < 5; i++)
        if (view_of(buffers[i], to[i]) < 0) return -1;
    job->count = job->rows.obj != NULL ? job->rows.len / 8 : job->length;
    int64_t bytes = job->length * 8;
    if (job->length < 0 || job->length > INT32_MAX || job->count > INT32_MAX || (job->rows.obj != NULL && job->rows.len % 8) ||
        (job->source.obj != NULL && (job->starts.len < bytes || job->sizes.len < bytes)) ||
        (job->others.obj != NULL && job->others.len < job->length)) {
        PyErr_SetString(PyExc_ValueError, "a column is shorter than the others");
        return -1;
    }
    job->text.bytes = PyBytes_FromStringAndSize(NULL, guess(job));
    Py_ssize_t places = (Py_ssize_t)(job->aligned ? job->length : job->count) * 8;
    job->out_starts = PyBytes_FromStringAndSize(NULL, places);
    job->out_sizes = PyBytes_FromStringAndSize(NULL, places);
    if (job->text.bytes == NULL || job->out_starts == NULL || job->out_sizes == NULL) return -1;
    memset(PyBytes_AS_STRING(job->out_starts), 0, (size_t)places);
    memset(PyBytes_AS_STRING(job->out_sizes), 0, (size_t)places);
    return 0;
}

/* encode([vector], length, [full member], [added member], signs, rows or None, source or None, starts, sizes, others or None, mask,
 *        packed: msgpack, not JSON, aligned: an empty place for each row that is not written)
 *     -> (bytes, where each object begins, how long it is) */
static PyObject *json_encode(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *vectors, *full, *added, *buffers[5], *out = NULL;
    Py_ssize_t length;
    Job job;
    memset(&job, 0, sizeof job);
    if (!PyArg_ParseTuple(args, "O!nO!O!pOOOOOi|pp", &PyList_Type, &vectors, &length, &PyList_Type, &full, &PyList_Type, &added,
                          &job.text.signs, &buffers[0], &buffers[1], &buffers[2], &buffers[3], &buffers[4], &job.mask, &job.text.packed,
                          &job.aligned))
        return NULL;
    job.length = length;
    if (prepare(&job, vectors, full, added, buffers) < 0) goto done;
    job.text.at = (uint8_t *)PyBytes_AS_STRING(job.text.bytes);
    job.text.end = job.text.at + PyBytes_GET_SIZE(job.text.bytes);
    job.text.released = PyEval_SaveThread();
    int fine = put_all(&job);
    PyEval_RestoreThread(job.text.released);
    if (fine < 0) PyErr_SetString(PyExc_ValueError, "a row lies outside of its column, or its original bytes are no object");
    if (fine != 1) goto done;
    if (_PyBytes_Resize(&job.text.bytes, job.text.at - (uint8_t *)PyBytes_AS_STRING(job.text.bytes)) < 0) goto done;
    out = Py_BuildValue("OOO", job.text.bytes, job.out_starts, job.out_sizes);
done:
    free_job(&job);
    return out;
}

PyMethodDef json_write_methods[] = {
    {"encode", json_encode, METH_VARARGS, "Arrow vectors as JSON objects."},
    {NULL, NULL, 0, NULL},
};
