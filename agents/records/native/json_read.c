/* Decodes JSON records into Arrow vectors. decoder.py says what is promised; its loop over orjson gives the same results. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "json.h"
#include "vector_view.h"

enum { HAS_OTHER = 1, HAS_WATCHED = 2 };
enum { FINE = 0, NOT_JSON = 1, NOT_OBJECT = 2, MISSING = 3, IS_NULL = 4, WRONG_TYPE = 5, OUT_OF_RANGE = 6 };

#define PLACES 64      /* fields of a record whose places are remembered */
#define KEYS 64        /* keys that are remembered */
#define LONGEST_KEY 64 /* of those: with quotes and colon */
#define MANY_DIGITS 200 /* with an exponent of two digits, fewer than these make no number beyond every double */

typedef struct { /* a key that was read before, with its quotes and colon */
    uint64_t word[2], mask[2];
    uint8_t bytes[LONGEST_KEY];
    int32_t length, column; /* column: -1 if it is not declared */
    int32_t next;           /* of the keys that hash alike */
} Key;

typedef struct {
    char *name;
    Py_ssize_t length;
    int32_t next; /* of the columns whose names hash alike */
    uint8_t kind, optional;
} Declared;

typedef struct {
    int32_t columns, names; /* names: also those that make no column, behind the others */
    Py_ssize_t longest;     /* name */
    int32_t first[64];
    struct {
        int32_t keys, places, first[64];
        Key key[KEYS];
        uint8_t at[PLACES]; /* the number of the key that stood at this place of the record before */
    } seen;
    Declared *declared;
} Plan;

typedef struct { /* a text in the buffer; it has escapes if the length is negative */
    const uint8_t *at;
    int64_t length;
} Span;

typedef struct {
    uint8_t *data, *validity; /* validity: NULL unless optional */
    Span *spans;              /* of text */
    int64_t nulls;
    PyObject *data_bytes, *offsets, *validity_bytes;
} Out;

typedef struct {
    int64_t index;
    int32_t column;
    uint8_t flaw;
} Bad;

typedef struct {
    Plan *plan; /* a copy that remembers keys of its own: another thread may use the same decoder */
    Out *out;
    uint8_t *state, *key; /* what is known of each column of this record; room for an escaped key */
    Bad *bad;
    int64_t bads, bad_room, dead_room;
    int64_t *rows, *dead, deads;
    uint8_t *others; /* by row: what fields it has besides */
    int some_others;
    PyThreadState *released;
    int failed; /* an exception is set */
} Work;

static inline int hash_of(const uint8_t *name, Py_ssize_t length) {
    if (length == 0) return 0;
    return (int)((uint32_t)length * 7u + name[0] * 5u + name[length - 1]) & 63;
}

/* ---------------------------------------------------------------------------------------------------------- values */

/* The double of a number; a library decides what 128 bits cannot. Needs the GIL back for that. */
static double double_of(Work *work, const Number *n) {
    double found;
    if (number_as_double(n, &found)) return found;
    PyEval_RestoreThread(work->released);
    size_t size = (size_t)(n->end - n->begin);
    char *text = PyMem_Malloc(size + 1);
    if (text == NULL) {
        PyErr_NoMemory();
        found = 0;
    } else {
        memcpy(text, n->begin, size);
        text[size] = 0;
        found = PyOS_string_to_double(text, NULL, NULL);
        PyMem_Free(text);
    }
    if (PyErr_Occurred()) work->failed = 1;
    work->released = PyEval_SaveThread();
    return found;
}

static inline int is_finite(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return (bits >> 52 & 0x7FF) != 0x7FF;
}

static inline const uint8_t *skip_word(const uint8_t *at, const uint8_t *end, const char *word, size_t size) {
    return (size_t)(end - at) >= size && memcmp(at, word, size) == 0 ? at + size : NULL;
}

/* Behind the value that begins at `at`, inside of `depth` arrays and objects; NULL if it is not JSON. */
static const uint8_t *skip_value(Work *work, const uint8_t *at, const Bounds *in, int depth) {
    uint64_t objects[DEEPEST / 64 + 1]; /* one bit for each that is open: whether it is an object */
    const uint8_t *end = in->end;
    const int outside = depth;
    int escaped;
    Number number;
    objects[depth >> 6] = 0;
value:
    if (at >= end) return NULL;
    switch (*at) {
    case '"':
        at = string_end(at + 1, in, &escaped);
        if (at == NULL) return NULL;
        at++;
        goto behind;
    case '{':
        if (++depth > DEEPEST) return NULL;
        if ((depth & 63) == 0) objects[depth >> 6] = 0;
        objects[depth >> 6] |= 1ull << (depth & 63);
        at = skip_blanks(at + 1, end);
        if (at < end && *at == '}') goto close;
        goto key;
    case '[':
        if (++depth > DEEPEST) return NULL;
        if ((depth & 63) == 0) objects[depth >> 6] = 0;
        objects[depth >> 6] &= ~(1ull << (depth & 63));
        at = skip_blanks(at + 1, end);
        if (at < end && *at == ']') goto close;
        goto value;
    case 't':
        at = skip_word(at, end, "true", 4);
        break;
    case 'f':
        at = skip_word(at, end, "false", 5);
        break;
    case 'n':
        at = skip_word(at, end, "null", 4);
        break;
    default:
        at = read_number(at, in, &number);
        if (at != NULL && number.exp10 + number.digits > 308 && !is_finite(double_of(work, &number))) return NULL;
    }
    if (at == NULL) return NULL;
behind:
    if (depth == outside) return at;
    at = skip_blanks(at, end);
    if (at >= end) return NULL;
    int object = (int)(objects[depth >> 6] >> (depth & 63) & 1);
    if (*at == ',') {
        at = skip_blanks(at + 1, end);
        if (object) goto key;
        goto value;
    }
    if (*at != (object ? '}' : ']')) return NULL;
close:
    depth--;
    at++;
    goto behind;
key:
    if (at >= end || *at != '"') return NULL;
    at = string_end(at + 1, in, &escaped);
    if (at == NULL) return NULL;
    at = skip_blanks(at + 1, end);
    if (at >= end || *at != ':') return NULL;
    at = skip_blanks(at + 1, end);
    goto value;
}

/* The value of a declared column into row `row`. *state becomes what is known of it. */
static inline const uint8_t *read_value(Work *work, const uint8_t *at, const Bounds *in, int32_t column, int64_t row,
                                        uint8_t *state) {
    Out *out = &work->out[column];
    uint8_t first = *at;
    *state = WRONG_TYPE;
    switch (work->plan->declared[column].kind) {
    case TEXT:
        if (first == '"') {
            int escaped = 0;
            const uint8_t *close = string_end(at + 1, in, &escaped);
            if (close == NULL) return NULL;
            out->spans[row].at = at + 1;
            out->spans[row].length = escaped ? -(close - at - 1) : close - at - 1;
            *state = FINE;
            return close + 1;
        }
        break;
    case FLOAT64:
    case INT64:
        if (first == '-' || is_digit(first)) {
            Number number;
            at = read_number(at, in, &number);
            if (at == NULL) return NULL;
            if (work->plan->declared[column].kind == INT64 && number.whole && number.exp10 == 0) {
                uint64_t most = (1ull << 63) - 1 + (uint64_t)number.negative;
                if (number.man > most) {
                    *state = OUT_OF_RANGE;
                    return at;
                }
                int64_t made = (int64_t)(number.negative ? 0 - number.man : number.man);
                memcpy(out->data + row * 8, &made, 8);
                *state = FINE;
                return at;
            }
            double made = double_of(work, &number);
            if (!is_finite(made)) return NULL;
            if (work->plan->declared[column].kind == FLOAT64) {
                memcpy(out->data + row * 8, &made, 8);
                *state = FINE;
            } else if (!(made > -9223372036854775808.0 && made < 9223372036854775808.0) || number.whole) {
                *state = OUT_OF_RANGE;
            }
            return at;
        }
        break;
    default:
        if (first == 't' || first == 'f') {
            at = first == 't' ? skip_word(at, in->end, "true", 4) : skip_word(at, in->end, "false", 5);
            uint8_t bit = (uint8_t)(1u << (row & 7)), *byte = &out->data[row >> 3];
            *byte = first == 't' ? *byte | bit : *byte & (uint8_t)~bit;
            *state = FINE;
            return at;
        }
    }
    if (first == 'n') *state = IS_NULL;
    return skip_value(work, at, in, 1);
}

/* --------------------------------------------------------------------------------------------------------- records */

static int32_t column_named(const Plan *plan, const uint8_t *name, Py_ssize_t length) {
    int32_t column = plan->first[hash_of(name, length)];
    while (column >= 0) {
        const Declared *one = &plan->declared[column];
        if (one->length == length && memcmp(one->name, name, (size_t)length) == 0) return column;
        column = one->next;
    }
    return -1;
}

static inline int is_key(const Key *key, const uint8_t *at, const Bounds *in) {
    if (in->end - at <= key->length) return 0;
    if (in->limit - at < 16 || key->length > 16) return memcmp(at, key->bytes, (size_t)key->length) == 0;
    uint64_t word[2];
    memcpy(word, at, 16);
    return (((word[0] & key->mask[0]) ^ key->word[0]) | ((word[1] & key->mask[1]) ^ key->word[1])) == 0;
}

/* The number of the key with this name, which is remembered if there is room for it; or -1. */
static inline int32_t key_seen(Plan *plan, const uint8_t *at, Py_ssize_t name, const Bounds *in) {
    int hash = hash_of(at + 1, name);
    int32_t found = plan->seen.first[hash];
    while (found >= 0 && !is_key(&plan->seen.key[found], at, in)) found = plan->seen.key[found].next;
    Py_ssize_t length = name + 3;
    if (found >= 0 || length > LONGEST_KEY || plan->seen.keys == KEYS || in->end - at <= length) return found;
    Key *key = &plan->seen.key[plan->seen.keys];
    memset(key->mask, 0, 16);
    memset(key->word, 0, 16);
    memset(key->mask, 0xFF, (size_t)(length < 16 ? length : 16));
    memcpy(key->word, at, (size_t)(length < 16 ? length : 16));
    memcpy(key->bytes, at, (size_t)length);
    key->length = (int32_t)length;
    key->column = column_named(plan, at + 1, name);
    key->next = plan->seen.first[hash];
    return plan->seen.first[hash] = plan->seen.keys++;
}

/* The key at `at`, with blanks and the colon: behind them, or NULL. */
static const uint8_t *read_key(Work *work, const uint8_t *at, const Bounds *in, int32_t place, int32_t *column) {
    Plan *plan = work->plan;
    if (at >= in->end || *at != '"') return NULL;
    const uint8_t *name = at + 1;
    int escaped = 0;
    const uint8_t *close = string_end(name, in, &escaped);
    if (close == NULL) return NULL;
    const uint8_t *colon = skip_blanks(close + 1, in->end);
    if (colon >= in->end || *colon != ':') return NULL;
    if (!escaped) {
        int32_t key = colon == close + 1 ? key_seen(plan, at, close - name, in) : -1;
        *column = key >= 0 ? plan->seen.key[key].column : column_named(plan, name, close - name);
        if (key >= 0 && place <= plan->seen.places && place < PLACES) {
            plan->seen.at[place] = (uint8_t)key;
            plan->seen.places += place == plan->seen.places;
        }
    } else if (close - name <= plan->longest * 6) {
        *column = column_named(plan, work->key, unescape(name, close, work->key) - work->key);
    } else {
        *column = -1;
    }
    return colon + 1;
}

/* Decodes one record into row `row`. FINE, or why it is bad, with the column that it concerns. */
static int read_record(Work *work, const Bounds *in, const uint8_t *at, int64_t row, int32_t *concerned) {
    Plan *plan = work->plan;
    const uint8_t *end = in->end;
    *concerned = -1;
    at = skip_blanks(at, end);
    if (at >= end) return NOT_JSON;
    if (*at != '{') {
        at = skip_value(work, at, in, 0);
        return at != NULL && skip_blanks(at, end) == end ? NOT_OBJECT : NOT_JSON;
    }
    memset(work->state, MISSING, (size_t)plan->columns);
    int32_t unsettled = plan->columns;
    uint8_t others = 0;
    at = skip_blanks(at + 1, end);
    if (at < end && *at == '}') goto close;
    for (int32_t place = 0;; place++) {
        int32_t column;
        const Key *expected = place < plan->seen.places ? &plan->seen.key[plan->seen.at[place]] : NULL;
        if (expected != NULL && is_key(expected, at, in)) {
            at += expected->length;
            column = expected->column;
        } else {
            at = read_key(work, at, in, place, &column);
            if (at == NULL) return NOT_JSON;
        }
        at = skip_blanks(at, end);
        if (at >= end) return NOT_JSON;
        if (column < 0 || column >= plan->columns) {
            others |= column < 0 ? HAS_OTHER : plan->declared[column].kind == WATCHED ? HAS_WATCHED : 0;
            at = skip_value(work, at, in, 1);
        } else {
            uint8_t before = work->state[column];
            at = read_value(work, at, in, column, row, &work->state[column]);
            unsettled += (work->state[column] != FINE) - (before != FINE);
        }
        if (at == NULL) return NOT_JSON;
        at = skip_blanks(at, end);
        if (at >= end) return NOT_JSON;
        if (*at == '}') break;
        if (*at != ',') return NOT_JSON;
        at = skip_blanks(at + 1, end);
    }
close:
    if (skip_blanks(at + 1, end) != end) return NOT_JSON;
    work->others[row] = others;
    if (unsettled == 0) return FINE;
    for (int32_t column = 0; column < plan->columns; column++) {
        uint8_t state = work->state[column];
        if (state == FINE || (plan->declared[column].optional && (state == MISSING || state == IS_NULL))) continue;
        *concerned = column;
        return state;
    }
    for (int32_t column = 0; column < plan->columns; column++) {
        if (work->state[column] == FINE) continue;
        Out *out = &work->out[column];
        uint8_t bit = (uint8_t)(1u << (row & 7));
        out->validity[row >> 3] &= (uint8_t)~bit;
        out->nulls++;
        if (out->spans != NULL) {
            out->spans[row].length = 0;
            out->spans[row].at = at;
        } else if (plan->declared[column].kind == BOOL) {
            out->data[row >> 3] &= (uint8_t)~bit;
        } else {
            memset(out->data + row * 8, 0, 8);
        }
    }
    return FINE;
}

static int more(void **array, int64_t used, int64_t *room, size_t size) {
    if (used < *room) return 1;
    int64_t wanted = *room ? *room * 2 : 16;
    void *grown = PyMem_RawRealloc(*array, (size_t)wanted * size);
    if (grown == NULL) return 0;
    *array = grown;
    *room = wanted;
    return 1;
}

/* All records. The number of rows, -1 if memory was not to be had or an exception is set, -2 - i if record i lies outside of the buffer. */
static int64_t read_records(Work *work, const Py_buffer *data, const void *offsets, const void *lengths, int64_t count) {
    const uint8_t *base = data->buf;
    Bounds in = {NULL, base + data->len};
    int64_t row = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = long_at(offsets, i), length = long_at(lengths, i);
        if (length == -1) {
            if (!more((void **)&work->dead, work->deads, &work->dead_room, sizeof(int64_t))) return -1;
            work->dead[work->deads++] = i;
            continue;
        }
        if (offset < 0 || length < 0 || offset > data->len || length > data->len - offset) return -2 - i;
        int32_t concerned;
        in.end = base + offset + length;
        int flaw = read_record(work, &in, base + offset, row, &concerned);
        if (work->failed) return -1;
        if (flaw == FINE) {
            work->some_others |= work->others[row];
            work->rows[row++] = i;
        } else {
            if (!more((void **)&work->bad, work->bads, &work->bad_room, sizeof(Bad))) return -1;
            work->bad[work->bads++] = (Bad){i, concerned, (uint8_t)flaw};
        }
    }
    return row;
}

/* --------------------------------------------------------------------------------------------------------- results */

/* Offsets and bytes of a column of text from where they lie. 0, or -1 with an exception. */
static int gather_text(Out *out, int64_t rows) {
    int64_t total = 0;
    for (int64_t i = 0; i < rows; i++) total += out->spans[i].length < 0 ? -out->spans[i].length : out->spans[i].length;
    if (total > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more than 2 GiB of text in one column");
        return -1;
    }
    out->offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    out->data_bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (out->offsets == NULL || out->data_bytes == NULL) return -1;
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(out->data_bytes), *to = begin, *ends = (uint8_t *)PyBytes_AS_STRING(out->offsets);
    memset(ends, 0, 4);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *at = out->spans[i].at;
        int64_t length = out->spans[i].length;
        if (length < 0) {
            to = unescape(at, at - length, to);
        } else {
            memcpy(to, at, (size_t)length);
            to += length;
        }
        int32_t end = (int32_t)(to - begin);
        memcpy(ends + (i + 1) * 4, &end, 4);
    }
    Py_END_ALLOW_THREADS
    return to - begin == total ? 0 : _PyBytes_Resize(&out->data_bytes, to - begin);
}

static void cut_bits(uint8_t *bits, int64_t rows) {
    if (rows & 7) bits[rows >> 3] &= (uint8_t)((1u << (rows & 7)) - 1);
}

/* (data, offsets or None, validity or None, nulls) of a column, or NULL. */
static PyObject *column_made(Out *out, int kind, int64_t rows, int64_t count) {
    if (kind == TEXT) {
        if (gather_text(out, rows) < 0) return NULL;
    } else if (rows < count) {
        if (_PyBytes_Resize(&out->data_bytes, kind == BOOL ? (rows + 7) / 8 : rows * 8) < 0) return NULL;
    }
    if (kind == BOOL) cut_bits((uint8_t *)PyBytes_AS_STRING(out->data_bytes), rows);
    if (out->nulls) {
        if (rows < count && _PyBytes_Resize(&out->validity_bytes, (rows + 7) / 8) < 0) return NULL;
        cut_bits((uint8_t *)PyBytes_AS_STRING(out->validity_bytes), rows);
    }
    return Py_BuildValue("OOOL", out->data_bytes, out->offsets ? out->offsets : Py_None,
                         out->nulls ? out->validity_bytes : Py_None, (long long)out->nulls);
}

static PyObject *longs_made(const int64_t *from, int64_t count) {
    return PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)count * 8);
}

/* (rows, [column], [(index, flaw, column)], [tombstone], indexes or None, offsets or None, lengths or None, others or None) */
static PyObject *results(Work *work, int64_t rows, int64_t count, const void *offsets, const void *lengths) {
    Plan *plan = work->plan;
    PyObject *columns = PyList_New(plan->columns), *bad = PyList_New((Py_ssize_t)work->bads);
    PyObject *dead = PyList_New((Py_ssize_t)work->deads), *indexes = NULL, *starts = NULL, *sizes = NULL, *others = NULL, *out = NULL;
    if (columns == NULL || bad == NULL || dead == NULL) goto done;
    for (int32_t i = 0; i < plan->columns; i++) {
        PyObject *one = column_made(&work->out[i], plan->declared[i].kind, rows, count);
        if (one == NULL) goto done;
        PyList_SET_ITEM(columns, i, one);
    }
    for (int64_t i = 0; i < work->bads; i++) {
        const Bad *one = &work->bad[i];
        PyObject *made = Py_BuildValue("Lii", (long long)one->index, (int)one->flaw, (int)one->column);
        if (made == NULL) goto done;
        PyList_SET_ITEM(bad, (Py_ssize_t)i, made);
    }
    for (int64_t i = 0; i < work->deads; i++) {
        PyObject *made = PyLong_FromLongLong(work->dead[i]);
        if (made == NULL) goto done;
        PyList_SET_ITEM(dead, (Py_ssize_t)i, made);
    }
    if (rows < count) {
        indexes = longs_made(work->rows, rows);
        starts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rows * 8);
        sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rows * 8);
        if (indexes == NULL || starts == NULL || sizes == NULL) goto done;
        for (int64_t i = 0; i < rows; i++) {
            memcpy(PyBytes_AS_STRING(starts) + i * 8, (const char *)offsets + work->rows[i] * 8, 8);
            memcpy(PyBytes_AS_STRING(sizes) + i * 8, (const char *)lengths + work->rows[i] * 8, 8);
        }
    }
    if (work->some_others) {
        others = PyBytes_FromStringAndSize((const char *)work->others, (Py_ssize_t)rows);
        if (others == NULL) goto done;
    }
    out = Py_BuildValue("LOOOOOOO", (long long)rows, columns, bad, dead, indexes ? indexes : Py_None,
                        starts ? starts : Py_None, sizes ? sizes : Py_None, others ? others : Py_None);
done:
    Py_XDECREF(columns);
    Py_XDECREF(bad);
    Py_XDECREF(dead);
    Py_XDECREF(indexes);
    Py_XDECREF(starts);
    Py_XDECREF(sizes);
    Py_XDECREF(others);
    return out;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

static void free_plan(Plan *plan) {
    if (plan == NULL) return;
    for (int32_t i = 0; plan->declared != NULL && i < plan->names; i++) PyMem_RawFree(plan->declared[i].name);
    PyMem_RawFree(plan->declared);
    PyMem_RawFree(plan);
}

#define PLAN "headgate.decoder"

static void plan_dies(PyObject *capsule) { free_plan(PyCapsule_GetPointer(capsule, PLAN)); }

/* decoder([(name as bytes, number of the kind, optional)]) -> what `decode` needs. What makes no column comes last. */
static PyObject *json_decoder(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *columns;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &columns)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(columns);
    Plan *plan = PyMem_RawCalloc(1, sizeof(Plan));
    if (plan == NULL) return PyErr_NoMemory();
    if (count > 100000) goto failed;
    plan->declared = PyMem_RawCalloc((size_t)count + 1, sizeof(Declared));
    if (plan->declared == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    memset(plan->first, 0xFF, sizeof plan->first);
    memset(plan->seen.first, 0xFF, sizeof plan->seen.first);
    plan->names = (int32_t)count;
    for (int32_t i = 0; i < (int32_t)count; i++) {
        const char *name;
        Py_ssize_t length;
        int kind, optional;
        PyObject *one = PyList_GET_ITEM(columns, i);
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "y#ip", &name, &length, &kind, &optional)) goto failed;
        if (kind < INT64 || kind > WATCHED || (kind <= TEXT && plan->columns < i)) goto failed;
        plan->columns += kind <= TEXT;
        Declared *made = &plan->declared[i];
        made->name = PyMem_RawMalloc((size_t)length + 1);
        if (made->name == NULL) {
            PyErr_NoMemory();
            goto failed;
        }
        memcpy(made->name, name, (size_t)length);
        made->length = length;
        made->kind = (uint8_t)kind;
        made->optional = (uint8_t)optional;
        int hash = hash_of((const uint8_t *)name, length);
        made->next = plan->first[hash];
        plan->first[hash] = i;
        if (length > plan->longest) plan->longest = length;
    }
    PyObject *capsule = PyCapsule_New(plan, PLAN, plan_dies);
    if (capsule != NULL) return capsule;
failed:
    free_plan(plan);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such columns");
    return NULL;
}

static void free_work(Work *work) {
    for (int32_t i = 0; work->out != NULL && i < work->plan->columns; i++) {
        Py_XDECREF(work->out[i].data_bytes);
        Py_XDECREF(work->out[i].offsets);
        Py_XDECREF(work->out[i].validity_bytes);
        PyMem_RawFree(work->out[i].spans);
    }
    PyMem_RawFree(work->out);
    PyMem_RawFree(work->state);
    PyMem_RawFree(work->key);
    PyMem_RawFree(work->rows);
    PyMem_RawFree(work->others);
    PyMem_RawFree(work->bad);
    PyMem_RawFree(work->dead);
    PyMem_RawFree(work->plan);
}

/* Room for `count` rows of every column. 0, or -1 without an exception. */
static int start_work(Work *work, const Plan *plan, int64_t count) {
    work->plan = PyMem_RawMalloc(sizeof(Plan));
    if (work->plan == NULL) return -1;
    *work->plan = *plan;
    work->out = PyMem_RawCalloc((size_t)plan->columns + 1, sizeof(Out));
    work->state = PyMem_RawMalloc((size_t)plan->columns + 1);
    work->key = PyMem_RawMalloc((size_t)plan->longest * 6 + 1);
    work->rows = PyMem_RawMalloc((size_t)count * 8 + 8);
    work->others = PyMem_RawMalloc((size_t)count + 1);
    if (!work->out || !work->state || !work->key || !work->rows || !work->others) return -1;
    for (int32_t i = 0; i < plan->columns; i++) {
        Out *out = &work->out[i];
        if (plan->declared[i].kind == TEXT) {
            out->spans = PyMem_RawMalloc((size_t)count * sizeof(Span) + 1);
            if (out->spans == NULL) return -1;
        } else {
            Py_ssize_t size = plan->declared[i].kind == BOOL ? (Py_ssize_t)(count + 7) / 8 : (Py_ssize_t)count * 8;
            out->data_bytes = PyBytes_FromStringAndSize(NULL, size);
            if (out->data_bytes == NULL) return -1;
            out->data = (uint8_t *)PyBytes_AS_STRING(out->data_bytes);
            if (plan->declared[i].kind == BOOL) memset(out->data, 0, (size_t)size);
        }
        if (plan->declared[i].optional) {
            out->validity_bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count + 7) / 8);
            if (out->validity_bytes == NULL) return -1;
            out->validity = (uint8_t *)PyBytes_AS_STRING(out->validity_bytes);
            memset(out->validity, 0xFF, (size_t)(count + 7) / 8);
        }
    }
    return 0;
}

/* decode(decoder, buffer, offsets, lengths) -> see `results` */
static PyObject *json_decode(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *capsule, *out = NULL;
    Py_buffer data, offsets, lengths;
    if (!PyArg_ParseTuple(args, "Oy*y*y*", &capsule, &data, &offsets, &lengths)) return NULL;
    Work work;
    memset(&work, 0, sizeof work);
    Plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    if (plan == NULL) goto done;
    int64_t count = offsets.len / 8;
    if (offsets.len % 8 || lengths.len != offsets.len) {
        PyErr_Format(PyExc_ValueError, "%zd offsets and %zd lengths", offsets.len / 8, lengths.len / 8);
        goto done;
    }
    if (count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more than 2**31 records at once");
        goto done;
    }
    if (start_work(&work, plan, count) < 0) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    work.released = PyEval_SaveThread();
    int64_t rows = read_records(&work, &data, offsets.buf, lengths.buf, count);
    PyEval_RestoreThread(work.released);
    if (rows >= 0) {
        memcpy(&plan->seen, &work.plan->seen, sizeof plan->seen);
        out = results(&work, rows, count, offsets.buf, lengths.buf);
    } else if (rows < -1) {
        PyErr_Format(PyExc_ValueError, "record %lld lies outside of the buffer", (long long)(-2 - rows));
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
done:
    if (work.plan != NULL) free_work(&work);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&lengths);
    return out;
}

/* ------------------------------------------------------------------------------------------------- numbers beyond doubles */

/* Whether a number in this JSON may be beyond every double: an exponent of three digits or more, or so many digits in a row that one of two
 * is enough. It says yes rather too often; what is no JSON, or lies in a string, may be called anything. */
static int may_be_beyond(const uint8_t *at, const uint8_t *end) {
    const Bounds in = {end, end};
    while (at < end) {
        uint8_t c = *at;
        if (c == '"') {
            int escaped;
            at = string_end(at + 1, &in, &escaped);
            if (at == NULL) return 1;
            at++;
        } else if (is_digit(c)) {
            const uint8_t *first = at;
            while (at < end && is_digit(*at)) at++;
            if (at - first >= MANY_DIGITS) return 1;
            if (at >= end || (*at | 32) != 'e') continue;
            at++;
            if (at < end && (*at == '-' || *at == '+')) at++;
            for (first = at; at < end && is_digit(*at); at++)
                ;
            if (at - first >= 3) return 1;
        } else {
            at++;
        }
    }
    return 0;
}

#if defined(WITH_SSE2)
/* As `may_be_beyond`, and yes still more often: a digit before an `e` anywhere, also in a string, or as many digits as there are in blocks of a
 * long number. */
static int looks_beyond(const uint8_t *at, const uint8_t *end) {
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9), lower = _mm_set1_epi8(32), e = _mm_set1_epi8('e');
    int before = 0, full = 0; /* whether a digit stands before this block; blocks of digits alone before it */
    if (end - at < 16) return 1;
    for (const uint8_t *last = end - 16;; at = last - at > 16 ? at + 16 : last) { /* the last one begins within the one before it */
        __m128i bytes = _mm_loadu_si128((const __m128i *)at), from_zero = _mm_sub_epi8(bytes, zero);
        int digits = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(from_zero, nine), from_zero));
        int es = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_or_si128(bytes, lower), e));
        full = digits == 0xFFFF ? full + 1 : 0;
        if (((digits << 1 | before) & es) != 0 || full == MANY_DIGITS / 16 - 2) return 1;
        if (at == last) return 0;
        before = last - at >= 16 ? digits >> 15 & 1 : 0;
    }
}
#else
#define looks_beyond(at, end) 1
#endif

/* beyond(values) -> the indexes of those `bytes` among them in which a number may be beyond every double. */
static PyObject *json_beyond(PyObject *Py_UNUSED(self), PyObject *values) {
    PyObject *fast = PySequence_Fast(values, "not a sequence"), *found = PyList_New(0);
    if (fast == NULL || found == NULL) goto failed;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *one = PySequence_Fast_GET_ITEM(fast, i), *index;
        if (!PyBytes_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "not bytes");
            goto failed;
        }
        const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(one);
        const uint8_t *end = at + PyBytes_GET_SIZE(one);
        if (!looks_beyond(at, end) || !may_be_beyond(at, end)) continue;
        index = PyLong_FromSsize_t(i);
        if (index == NULL || PyList_Append(found, index) < 0) {
            Py_XDECREF(index);
            goto failed;
        }
        Py_DECREF(index);
    }
    Py_DECREF(fast);
    return found;
failed:
    Py_XDECREF(fast);
    Py_XDECREF(found);
    return NULL;
}

PyMethodDef json_read_methods[] = {
    {"beyond", json_beyond, METH_O, "Which JSON may have a number beyond every double."},
    {"decoder", json_decoder, METH_VARARGS, "What `decode` needs to know of declared columns."},
    {"decode", json_decode, METH_VARARGS, "JSON records as Arrow vectors."},
    {NULL, NULL, 0, NULL},
};
