/* The rows of one slice of a join by their keys, and the search for pairs in several slices. core/windows/matching.py says what is promised,
 * and has the same in Python. Of a key only 32 bits of its hash are kept: a pair may have another key of the same hash. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "compiled.h"

#define NONE UINT32_MAX /* no row */
#define LEAST_HEADS 16
#define MOST_HEADS (UINT32_C(1) << 31)

typedef struct {
    uint32_t hash, next; /* next: the row before this one with the same head, or NONE */
} Row;

typedef struct {
    PyObject_HEAD
    Row *rows;
    uint32_t *heads; /* by the low bits of a hash: the last row, or NONE */
    uint32_t count, room, head_count;
} Index;

static int hash_of(PyObject *key, uint32_t *hash) {
    if (!PyBytes_CheckExact(key)) {
        PyErr_Format(PyExc_TypeError, "a key is bytes, not %s", Py_TYPE(key)->tp_name);
        return -1;
    }
    Py_hash_t whole = PyObject_Hash(key); /* kept by the object */
    uint64_t bits = (uint64_t)whole;
    *hash = (uint32_t)(bits ^ bits >> 32);
    return 0;
}

static void link_row(Index *index, uint32_t row) {
    uint32_t *head = &index->heads[index->rows[row].hash & (index->head_count - 1)];
    index->rows[row].next = *head;
    *head = row;
}

/* Make room for more rows. */
static int grow(Index *index, Py_ssize_t more) {
    uint64_t wanted = (uint64_t)index->count + (uint64_t)more;
    if (wanted >= NONE) {
        PyErr_SetString(PyExc_OverflowError, "a slice of a join has more rows than 32 bits can number");
        return -1;
    }
    if (wanted > index->room) {
        uint64_t room = (uint64_t)index->room + index->room / 4 + 16;
        if (room < wanted) room = wanted;
        if (room >= NONE) room = NONE - 1;
        Row *rows = PyMem_Realloc(index->rows, (size_t)room * sizeof(Row));
        if (rows == NULL) goto full;
        index->rows = rows;
        index->room = (uint32_t)room;
    }
    if (wanted > index->head_count && index->head_count < MOST_HEADS) {
        uint32_t head_count = index->head_count ? index->head_count : LEAST_HEADS;
        while (head_count < wanted && head_count < MOST_HEADS) head_count *= 2;
        uint32_t *heads = PyMem_Malloc((size_t)head_count * sizeof *heads);
        if (heads == NULL) goto full;
        PyMem_Free(index->heads);
        memset(heads, 0xff, (size_t)head_count * sizeof *heads);
        index->heads = heads;
        index->head_count = head_count;
        for (uint32_t row = 0; row < index->count; row++) link_row(index, row);
    }
    return 0;
full:
    PyErr_NoMemory();
    return -1;
}

/* add(keys): either all of them or, with an exception, none */
static PyObject *index_add(PyObject *self, PyObject *keys) {
    Index *index = (Index *)self;
    PyObject *items = PySequence_Fast(keys, "keys are a sequence");
    if (items == NULL) return NULL;
    Py_ssize_t more = PySequence_Fast_GET_SIZE(items);
    if (grow(index, more) < 0) goto failed;
    for (Py_ssize_t i = 0; i < more; i++)
        if (hash_of(PySequence_Fast_GET_ITEM(items, i), &index->rows[index->count + i].hash) < 0) goto failed;
    for (Py_ssize_t i = 0; i < more; i++) link_row(index, index->count + (uint32_t)i);
    index->count += (uint32_t)more;
    Py_DECREF(items);
    Py_RETURN_NONE;
failed:
    Py_DECREF(items);
    return NULL;
}

/* pack(): a row takes the same before and after */
static PyObject *index_pack(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) { Py_RETURN_NONE; }

static void index_free(PyObject *self) {
    PyMem_Free(((Index *)self)->rows);
    PyMem_Free(((Index *)self)->heads);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef index_methods[] = {
    {"add", index_add, METH_O, "Add rows with these keys."},
    {"pack", index_pack, METH_NOARGS, "Nothing: a row takes the same."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject index_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headgate.agents.records.native._columns.RowIndex",
    .tp_basicsize = sizeof(Index),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = index_free,
    .tp_methods = index_methods,
};

/* ------------------------------------------------------------------------------------------------------------------------- pairs */

typedef struct {
    Index *index;
    Py_buffer times;
    long long least, most;
} Part;

typedef struct {
    int64_t time;
    uint32_t part, place;
} Hit;

typedef struct {
    Hit *hits;
    size_t count, room;
} Hits;

static int hit(Hits *hits, Hit one) {
    if (hits->count == hits->room) {
        size_t room = hits->room ? 2 * hits->room : 64;
        Hit *grown = PyMem_Realloc(hits->hits, room * sizeof *grown);
        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        hits->hits = grown;
        hits->room = room;
    }
    hits->hits[hits->count++] = one;
    return 0;
}

static int in_order(const void *left, const void *right) {
    const Hit *a = left, *b = right;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* The rows with this hash and a time between both, over all parts. */
static int look_up(const Part *parts, Py_ssize_t count, uint32_t hash, int64_t from, int64_t to, Hits *hits) {
    for (Py_ssize_t number = 0; number < count; number++) {
        const Part *part = &parts[number];
        const Index *index = part->index;
        if (part->most < from || part->least > to || index->count == 0) continue;
        for (uint32_t row = index->heads[hash & (index->head_count - 1)]; row != NONE; row = index->rows[row].next) {
            if (index->rows[row].hash != hash) continue;
            int64_t time;
            memcpy(&time, (const char *)part->times.buf + (size_t)row * 8, 8);
            if (time >= from && time <= to && hit(hits, (Hit){time, (uint32_t)number, row}) < 0) return -1;
        }
    }
    return 0;
}

static int read_part(PyObject *given, Part *part) {
    PyObject *index, *times;
    if (!PyArg_ParseTuple(given, "OOLL", &index, &times, &part->least, &part->most)) return -1;
    if (!Py_IS_TYPE(index, &index_type)) {
        PyErr_SetString(PyExc_TypeError, "a part has another kind of index");
        return -1;
    }
    part->index = (Index *)index; /* the list of the parts holds it */
    if (PyObject_GetBuffer(times, &part->times, PyBUF_SIMPLE) < 0) return -1;
    if (part->times.len / 8 >= (Py_ssize_t)part->index->count) return 0;
    PyErr_SetString(PyExc_ValueError, "a part has fewer times than rows");
    return -1;
}

static int append_number(PyObject *list, long long value) {
    PyObject *number = PyLong_FromLongLong(value);
    if (number == NULL) return -1;
    int failed = PyList_Append(list, number);
    Py_DECREF(number);
    return failed;
}

static int64_t sum_within(int64_t time, int64_t more) {
    int64_t sum;
    if (!__builtin_add_overflow(time, more, &sum)) return sum;
    return more < 0 ? INT64_MIN : INT64_MAX;
}

/* find_pairs(parts, keys, times, back, ahead) -> (arrived, parts, places, times) */
static PyObject *find_pairs(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *given, *keys = NULL, *times = NULL, *key_arg, *time_arg, *out[4] = {NULL}, *made = NULL;
    long long back, ahead;
    Part *parts = NULL;
    Py_ssize_t count = 0, wanted = 0;
    Hits hits = {0};
    if (!PyArg_ParseTuple(args, "OOOLL", &given, &key_arg, &time_arg, &back, &ahead)) return NULL;
    if (back < 0 || ahead < 0) {
        PyErr_SetString(PyExc_ValueError, "a distance is not negative");
        return NULL;
    }
    /* copies of lists: nothing that is called below may change them */
    if ((given = PySequence_Tuple(given)) == NULL) return NULL;
    if ((keys = PySequence_Tuple(key_arg)) == NULL || (times = PySequence_Tuple(time_arg)) == NULL) goto done;
    if (PyTuple_GET_SIZE(keys) != PyTuple_GET_SIZE(times)) {
        PyErr_SetString(PyExc_ValueError, "keys and times differ in number");
        goto done;
    }
    wanted = PyTuple_GET_SIZE(given);
    if ((parts = PyMem_Calloc((size_t)wanted + 1, sizeof *parts)) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; count < wanted; count++)
        if (read_part(PyTuple_GET_ITEM(given, count), &parts[count]) < 0) {
            count++; /* its buffer, if it has one, is released, too */
            goto done;
        }
    for (int i = 0; i < 4; i++)
        if ((out[i] = PyList_New(0)) == NULL) goto done;
    for (Py_ssize_t row = 0; row < PyTuple_GET_SIZE(keys); row++) {
        uint32_t hash;
        if (hash_of(PyTuple_GET_ITEM(keys, row), &hash) < 0) goto done;
        long long time = PyLong_AsLongLong(PyTuple_GET_ITEM(times, row));
        if (time == -1 && PyErr_Occurred()) goto done;
        hits.count = 0;
        if (look_up(parts, count, hash, sum_within(time, -back), sum_within(time, ahead), &hits) < 0) goto done;
        if (hits.count > 1) qsort(hits.hits, hits.count, sizeof *hits.hits, in_order);
        for (size_t i = 0; i < hits.count; i++) {
            Hit one = hits.hits[i];
            if (append_number(out[0], row) < 0 || append_number(out[1], one.part) < 0 || append_number(out[2], one.place) < 0 ||
                append_number(out[3], one.time) < 0)
                goto done;
        }
    }
    made = PyTuple_Pack(4, out[0], out[1], out[2], out[3]);
done:
    for (Py_ssize_t i = 0; i < count; i++)
        if (parts[i].times.obj != NULL) PyBuffer_Release(&parts[i].times);
    PyMem_Free(parts);
    PyMem_Free(hits.hits);
    for (int i = 0; i < 4; i++) Py_XDECREF(out[i]);
    Py_DECREF(given);
    Py_XDECREF(keys);
    Py_XDECREF(times);
    return made;
}

static PyMethodDef matching_methods[] = {
    {"find_pairs", find_pairs, METH_VARARGS, "Pairs of arriving rows and rows of parts."},
    {NULL, NULL, 0, NULL},
};

int add_matching(PyObject *module) {
    if (PyModule_AddFunctions(module, matching_methods) < 0 || PyType_Ready(&index_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "RowIndex", (PyObject *)&index_type);
}
