/* Decodes JSON records into Arrow vectors. decoder.py says what is promised; its loop over orjson gives the same results. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "decoded.h"

enum { HAS_OTHER = 1, HAS_WATCHED = 2 };
#define NOT_JSON NO_VALUE_AT_ALL

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
    int32_t level; /* the number of the object that it lies in; 0: the record */
    int32_t number; /* of a nested object: its own */
    int32_t there; /* of a nested object: the column that says whether it is there, or -1 */
    uint8_t kind, optional, nullable; /* nullable: also because it lies in an object that may be null */
} Declared;

typedef struct {
    int32_t columns, names; /* names: also those that make no column, behind the others */
    int32_t objects;        /* nested ones, right behind the columns; their numbers begin with 1 */
    Py_ssize_t longest;     /* name */
    int32_t first[64];
    struct {
        int32_t keys, places, first[64];
        Key key[KEYS];
        uint8_t at[PLACES]; /* the number of the key that stood at this place of the record before */
    } seen;
    Declared *declared;
} Plan;

typedef struct {
    Plan *plan;  /* a copy that remembers keys of its own: another thread may use the same decoder */
    Found found; /* a text that has escapes has a length below zero */
    uint8_t *state, *key; /* what is known of each column and object of this record; room for an escaped key */
    uint8_t *odd;         /* of each nested object of this record: whether it has undeclared fields */
    const uint8_t *limit; /* the end of the buffer */
    uint8_t *others; /* by row: what fields it has besides */
    int some_others;
    PyThreadState *released;
    int failed; /* an exception is set */
} Work;

/* Whether it makes a column. One of JSON has each value as the text that stands there. */
static inline int is_column(int kind) { return kind <= TEXT || kind == JSON; }

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
        if (at != NULL && number.exp10 + number.digits > 308 && !is_finite_number(double_of(work, &number))) return NULL;
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

/* The value of a declared column into row `row`. *state becomes what is known of it. Values of the record itself are read where they stand:
 * a call for each would cost 5 % of all. */
static ALWAYS_INLINE const uint8_t *read_value(Work *work, const uint8_t *at, const Bounds *in, int32_t column, int64_t row,
                                        uint8_t *state, int depth) {
    Out *out = &work->found.out[column];
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
            if (!is_finite_number(made)) return NULL;
            if (work->plan->declared[column].kind == FLOAT64) {
                memcpy(out->data + row * 8, &made, 8);
                *state = FINE;
            } else if (!(made > -9223372036854775808.0 && made < 9223372036854775808.0) || number.whole) {
                *state = OUT_OF_RANGE;
            }
            return at;
        }
        break;
    case JSON:
        if (first != 'n') {
            const uint8_t *behind = skip_value(work, at, in, depth);
            if (behind == NULL) return NULL;
            out->spans[row].at = at;
            out->spans[row].length = behind - at;
            *state = FINE;
            return behind;
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
    return skip_value(work, at, in, depth);
}

/* --------------------------------------------------------------------------------------------------------- records */

static int32_t column_named(const Plan *plan, const uint8_t *name, Py_ssize_t length, int32_t level) {
    int32_t column = plan->first[hash_of(name, length)];
    while (column >= 0) {
        const Declared *one = &plan->declared[column];
        if (one->length == length && one->level == level && memcmp(one->name, name, (size_t)length) == 0) return column;
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
    key->column = column_named(plan, at + 1, name, 0);
    key->next = plan->seen.first[hash];
    return plan->seen.first[hash] = plan->seen.keys++;
}

/* The key at `at` in an object, with blanks and the colon: behind them, or NULL. Keys of the record (level 0) are remembered. */
static const uint8_t *read_key(Work *work, const uint8_t *at, const Bounds *in, int32_t place, int32_t *column, int32_t level) {
    Plan *plan = work->plan;
    if (at >= in->end || *at != '"') return NULL;
    const uint8_t *name = at + 1;
    int escaped = 0;
    const uint8_t *close = string_end(name, in, &escaped);
    if (close == NULL) return NULL;
    const uint8_t *colon = skip_blanks(close + 1, in->end);
    if (colon >= in->end || *colon != ':') return NULL;
    if (!escaped) {
        int32_t key = colon == close + 1 && level == 0 ? key_seen(plan, at, close - name, in) : -1;
        *column = key >= 0 ? plan->seen.key[key].column : column_named(plan, name, close - name, level);
        if (key >= 0 && place <= plan->seen.places && place < PLACES) {
            plan->seen.at[place] = (uint8_t)key;
            plan->seen.places += place == plan->seen.places;
        }
    } else if (close - name <= plan->longest * 6) {
        *column = column_named(plan, work->key, unescape(name, close, work->key) - work->key, level);
    } else {
        *column = -1;
    }
    return colon + 1;
}

/* The object with this number, among what is declared. */
static inline int32_t object_at(const Plan *plan, int32_t number) { return plan->columns + number - 1; }

/* An object comes for the second time: what was read of the first one does not count. */
static void forget(Work *work, int32_t object, int32_t *unsettled) {
    const Plan *plan = work->plan;
    for (int32_t i = 0; i < plan->columns + plan->objects; i++) {
        int32_t level = plan->declared[i].level;
        while (level > 0 && level != plan->declared[object].number) level = plan->declared[object_at(plan, level)].level;
        if (level == 0) continue;
        if (i < plan->columns && work->state[i] == FINE) (*unsettled)++;
        work->state[i] = MISSING;
        if (i >= plan->columns) work->odd[i - plan->columns] = 0;
    }
    work->odd[object - plan->columns] = 0;
}

/* The fields of a declared object, inside of `depth` others, into row `row`: behind it, or NULL. */
static NEVER_INLINE const uint8_t *read_object(Work *work, const uint8_t *at, const Bounds *in, int32_t object, int64_t row, int depth,
                                  int32_t *unsettled) {
    const Plan *plan = work->plan;
    const Declared *own = &plan->declared[object];
    const uint8_t *end = in->end;
    if (work->state[object] != MISSING) forget(work, object, unsettled);
    if (*at != '{') {
        work->state[object] = *at == 'n' ? IS_NULL : WRONG_TYPE;
        return skip_value(work, at, in, depth);
    }
    work->state[object] = FINE;
    if (own->there >= 0) {
        work->found.out[own->there].data[row >> 3] |= (uint8_t)(1u << (row & 7));
        work->state[own->there] = FINE;
        (*unsettled)--;
    }
    at = skip_blanks(at + 1, end);
    if (at < end && *at == '}') return at + 1;
    for (;;) {
        int32_t column;
        at = read_key(work, at, in, 0, &column, own->number);
        if (at == NULL) return NULL;
        at = skip_blanks(at, end);
        if (at >= end) return NULL;
        if (column < 0) {
            work->odd[object - plan->columns] = 1;
            at = skip_value(work, at, in, depth + 1);
        } else if (column >= plan->columns) {
            at = read_object(work, at, in, column, row, depth + 1, unsettled);
        } else {
            uint8_t before = work->state[column];
            at = read_value(work, at, in, column, row, &work->state[column], depth + 1);
            *unsettled += (work->state[column] != FINE) - (before != FINE);
        }
        if (at == NULL) return NULL;
        at = skip_blanks(at, end);
        if (at >= end) return NULL;
        if (*at == '}') return at + 1;
        if (*at != ',') return NULL;
        at = skip_blanks(at + 1, end);
    }
}

/* Why a column has no value: FINE if it is null, else the flaw, with what it concerns: the column, or the outermost object that it lacks. */
static NEVER_INLINE uint8_t flaw_of(const Work *work, int32_t column, int32_t *concerned) {
    const Plan *plan = work->plan;
    for (int32_t level = plan->declared[column].level; level > 0;) {
        int32_t object = object_at(plan, level);
        level = plan->declared[object].level;
        if (work->state[object] != FINE) column = object;
    }
    uint8_t state = work->state[column];
    if (plan->declared[column].optional && (state == MISSING || state == IS_NULL)) return FINE;
    *concerned = column;
    return state;
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
    memset(work->state, MISSING, (size_t)(plan->columns + plan->objects));
    if (plan->objects) memset(work->odd, 0, (size_t)plan->objects);
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
            at = read_key(work, at, in, place, &column, 0);
            if (at == NULL) return NOT_JSON;
        }
        at = skip_blanks(at, end);
        if (at >= end) return NOT_JSON;
        if (column < 0 || column >= plan->columns) {
            others |= column < 0 ? HAS_OTHER : plan->declared[column].kind == WATCHED ? HAS_WATCHED : 0;
            if (column >= 0 && plan->declared[column].kind == OBJECT) at = read_object(work, at, in, column, row, 1, &unsettled);
            else at = skip_value(work, at, in, 1);
        } else {
            uint8_t before = work->state[column];
            at = read_value(work, at, in, column, row, &work->state[column], 1);
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
    for (int32_t i = 0; i < plan->objects; i++)
        if (work->odd[i]) others |= HAS_OTHER;
    work->others[row] = others;
    if (unsettled == 0) return FINE;
    for (int32_t column = 0; column < plan->columns; column++) {
        uint8_t flaw = work->state[column] == FINE ? FINE : flaw_of(work, column, concerned);
        if (flaw != FINE) return flaw;
    }
    for (int32_t column = 0; column < plan->columns; column++) {
        if (work->state[column] == FINE) continue;
        Out *out = &work->found.out[column];
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

static ALWAYS_INLINE int read_one(void *of, int64_t Py_UNUSED(index), const uint8_t *at, const uint8_t *end, int64_t row, int32_t *concerned) {
    Work *work = of;
    Bounds in = {end, work->limit};
    int flaw = read_record(work, &in, at, row, concerned);
    if (work->failed) return -1;
    if (flaw == FINE) work->some_others |= work->others[row];
    return flaw;
}

/* --------------------------------------------------------------------------------------------------------- results */

/* (rows, [column], [(index, flaw, column)], [tombstone], indexes or None, offsets or None, lengths or None, others or None) */
static PyObject *results(Work *work, int64_t rows, const Lying *lying) {
    Found *found = &work->found;
    PyObject *columns = columns_made(found, rows, unescape), *bad = NULL, *dead = NULL;
    PyObject *indexes = NULL, *starts = NULL, *sizes = NULL, *others = NULL, *out = NULL;
    if (columns == NULL || (bad = bad_made(found)) == NULL || (dead = dead_made(found)) == NULL) goto done;
    if (rows < lying->count) {
        indexes = longs_made(found->rows, rows);
        starts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rows * 8);
        sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rows * 8);
        if (indexes == NULL || starts == NULL || sizes == NULL) goto done;
        for (int64_t i = 0; i < rows; i++) {
            memcpy(PyBytes_AS_STRING(starts) + i * 8, (const char *)lying->offsets.buf + found->rows[i] * 8, 8);
            memcpy(PyBytes_AS_STRING(sizes) + i * 8, (const char *)lying->lengths.buf + found->rows[i] * 8, 8);
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

/* What of nested objects is known when all of them are declared. 0, or -1 if they do not fit together. */
static int settle_objects(Plan *plan) {
    for (int32_t i = 0; i < plan->names; i++) {
        Declared *one = &plan->declared[i];
        if (one->level < 0 || one->level > plan->objects || (one->level > 0 && !is_column(one->kind) && one->kind != OBJECT)) return -1;
        if (one->kind == OBJECT) {
            /* outer ones come first, so that no object lies in itself */
            if (i != object_at(plan, one->number) || one->level >= one->number) return -1;
        } else if (one->number != 0) {
            if (one->number != one->level || one->kind != BOOL || plan->declared[object_at(plan, one->number)].there >= 0) return -1;
            plan->declared[object_at(plan, one->number)].there = i;
        }
    }
    for (int32_t i = 0; i < plan->columns; i++) {
        plan->declared[i].nullable = plan->declared[i].optional;
        for (int32_t level = plan->declared[i].level; level > 0; level = plan->declared[object_at(plan, level)].level)
            plan->declared[i].nullable |= plan->declared[object_at(plan, level)].optional;
    }
    return 0;
}

/* decoder([(name as bytes, number of the kind, optional, number of the object that it lies in, of an object: its own number)]) -> what
 * `decode` needs. What makes no column comes last, objects first. A boolean column that has a number, too, says whether that object is
 * there, and has no name. */
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
        int kind, optional, level = 0, number = 0;
        PyObject *one = PyList_GET_ITEM(columns, i);
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "y#ip|ii", &name, &length, &kind, &optional, &level, &number)) goto failed;
        if (kind < INT64 || (kind > WATCHED && kind != OBJECT && kind != JSON) || (is_column(kind) && plan->columns < i)) goto failed;
        if (kind == OBJECT && plan->columns + plan->objects < i) goto failed;
        plan->columns += is_column(kind);
        plan->objects += kind == OBJECT;
        Declared *made = &plan->declared[i];
        made->level = level;
        made->number = number;
        made->there = -1;
        made->name = PyMem_RawMalloc((size_t)length + 1);
        if (made->name == NULL) {
            PyErr_NoMemory();
            goto failed;
        }
        memcpy(made->name, name, (size_t)length);
        made->length = length;
        made->kind = (uint8_t)kind;
        made->optional = (uint8_t)optional;
        if (length > plan->longest) plan->longest = length;
        if (kind != OBJECT && number != 0) continue;
        int hash = hash_of((const uint8_t *)name, length);
        made->next = plan->first[hash];
        plan->first[hash] = i;
    }
    if (settle_objects(plan) < 0) goto failed;
    PyObject *capsule = PyCapsule_New(plan, PLAN, plan_dies);
    if (capsule != NULL) return capsule;
failed:
    free_plan(plan);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such columns");
    return NULL;
}

static void free_work(Work *work) {
    free_found(&work->found);
    PyMem_RawFree(work->state);
    PyMem_RawFree(work->odd);
    PyMem_RawFree(work->key);
    PyMem_RawFree(work->others);
    PyMem_RawFree(work->plan);
}

/* Room for `count` rows of every column. 0, or -1 with or without an exception. */
static int start_work(Work *work, const Plan *plan, int64_t count) {
    work->plan = PyMem_RawMalloc(sizeof(Plan));
    if (work->plan == NULL) return -1;
    *work->plan = *plan;
    if (start_found(&work->found, plan->columns, count) < 0) return -1;
    work->state = PyMem_RawMalloc((size_t)(plan->columns + plan->objects) + 1);
    work->odd = PyMem_RawMalloc((size_t)plan->objects + 1);
    work->key = PyMem_RawMalloc((size_t)plan->longest * 6 + 1);
    work->others = PyMem_RawMalloc((size_t)count + 1);
    if (!work->state || !work->odd || !work->key || !work->others) return -1;
    for (int32_t i = 0; i < plan->columns; i++)
        if (start_column(&work->found.out[i], plan->declared[i].kind, plan->declared[i].nullable, 0, count) < 0) return -1;
    return 0;
}

/* decode(decoder, buffer, offsets, lengths) -> see `results` */
static PyObject *json_decode(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *capsule, *out = NULL;
    Lying lying;
    if (!PyArg_ParseTuple(args, "Oy*y*y*", &capsule, &lying.data, &lying.offsets, &lying.lengths)) return NULL;
    Work work;
    memset(&work, 0, sizeof work);
    Plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    if (plan == NULL || lying_of(&lying) < 0) goto done;
    if (start_work(&work, plan, lying.count) < 0) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    work.limit = (const uint8_t *)lying.data.buf + lying.data.len;
    work.released = PyEval_SaveThread();
    int64_t rows = read_each(&work.found, &lying, &work, read_one);
    PyEval_RestoreThread(work.released);
    if (rows >= 0) {
        memcpy(&plan->seen, &work.plan->seen, sizeof plan->seen);
        out = results(&work, rows, &lying);
    } else {
        out = refused(rows, "lies outside of the buffer");
    }
done:
    if (work.plan != NULL) free_work(&work);
    PyBuffer_Release(&lying.data);
    PyBuffer_Release(&lying.offsets);
    PyBuffer_Release(&lying.lengths);
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
