/* Keys as dense numbers, and aggregates in arrays by these numbers. groups.py says what is promised, and has the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "numbers.h"
#include "vector_view.h"

#define MOST_KEYS INT32_MAX
#define AHEAD 32 /* keys whose places are asked for before the first of them is needed */

/* No one else may use a table while the GIL is released. */
static int enter(int *busy) {
    if (*busy) PyErr_SetString(PyExc_RuntimeError, "another thread is using this table");
    return *busy ? 0 : (*busy = 1);
}

/* Room for `wanted` items of `size` bytes; new ones are zero. 0 if there is none. */
static int reserve(void *array, int64_t *room, int64_t wanted, size_t size) {
    void **at = array;
    if (wanted <= *room) return 1;
    int64_t made = *room + *room / 4 < wanted ? wanted : *room + *room / 4; /* little is left unused */
    if (made < 64) made = 64;
    char *grown = PyMem_RawRealloc(*at, (size_t)made * size);
    if (grown == NULL) return 0;
    memset(grown + (size_t)*room * size, 0, (size_t)(made - *room) * size);
    *at = grown;
    *room = made;
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------ keys */

typedef struct {
    uint32_t *slots; /* number + 1, or 0; a power of two of them */
    uint32_t *hashes;
    int64_t *ends; /* of the bytes of each key */
    uint8_t *bytes;
    int64_t slot_count, hash_room, end_room, byte_room, count;
    uint64_t seed;
} Table;

typedef struct {
    PyObject_HEAD
    Table table;
    int busy;
} Keys;

static void free_table(Table *table) {
    PyMem_RawFree(table->slots);
    PyMem_RawFree(table->hashes);
    PyMem_RawFree(table->ends);
    PyMem_RawFree(table->bytes);
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t low, high = multiply(a, b, &low);
    return low ^ high;
}

static inline uint32_t hash_of(const Table *table, const uint8_t *at, int64_t length) {
    uint64_t hash = table->seed ^ (uint64_t)length, word;
    for (; length >= 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        hash = mixed(hash ^ word, 0xA0761D6478BD642Full);
    }
    word = 0;
    memcpy(&word, at, (size_t)length);
    hash = mixed(hash ^ word, 0xE7037ED1A0B428DBull);
    return (uint32_t)(hash ^ hash >> 32);
}

static inline int64_t begin_of(const Table *table, int64_t number) { return number ? table->ends[number - 1] : 0; }

static void fill_slots(const Table *table, uint32_t *slots, int64_t wanted) {
    for (int64_t number = 0; number < table->count; number++) {
        uint64_t at = table->hashes[number] & (uint64_t)(wanted - 1);
        while (slots[at]) at = (at + 1) & (uint64_t)(wanted - 1);
        slots[at] = (uint32_t)number + 1;
    }
}

static int more_slots(Table *table) {
    int64_t wanted = table->slot_count ? table->slot_count * 2 : 256;
    uint32_t *slots = PyMem_RawCalloc((size_t)wanted, sizeof(uint32_t));
    if (slots == NULL) return 0;
    fill_slots(table, slots, wanted);
    PyMem_RawFree(table->slots);
    table->slots = slots;
    table->slot_count = wanted;
    return 1;
}

/* The number of a key. A new one is added, with `adds`; -1 if it is not, or if there is no memory. */
static inline int64_t number_of(Table *table, const uint8_t *key, int64_t length, uint32_t hash, int adds) {
    uint64_t mask = (uint64_t)table->slot_count - 1, at = hash & mask;
    for (; table->slots[at]; at = (at + 1) & mask) {
        int64_t number = (int64_t)table->slots[at] - 1;
        if (table->hashes[number] != hash) continue;
        int64_t begin = begin_of(table, number);
        if (table->ends[number] - begin == length && memcmp(table->bytes + begin, key, (size_t)length) == 0) return number;
    }
    if (!adds) return -1;
    int64_t number = table->count, begin = begin_of(table, number);
    if (number >= MOST_KEYS || !reserve(&table->hashes, &table->hash_room, number + 1, sizeof(uint32_t)) ||
        !reserve(&table->ends, &table->end_room, number + 1, sizeof(int64_t)) ||
        !reserve(&table->bytes, &table->byte_room, begin + length + 1, 1))
        return -1;
    memcpy(table->bytes + begin, key, (size_t)length);
    table->ends[number] = begin + length;
    table->hashes[number] = hash;
    table->slots[at] = (uint32_t)number + 1;
    table->count++;
    if (table->count * 4 > table->slot_count * 3 && !more_slots(table)) { /* it was found to be new: as if it had not come */
        table->slots[at] = 0;
        table->count--;
        return -1;
    }
    return number;
}

/* Forgets all keys from this number on: those of a call that has failed, as if it had not come. */
static void forget_from(Table *table, int64_t count) {
    if (table->count == count) return;
    table->count = count;
    memset(table->slots, 0, (size_t)table->slot_count * sizeof(uint32_t));
    fill_slots(table, table->slots, table->slot_count);
}

/* A whole number as the bytes of a key (see keys.py): at most ten. */
static int64_t key_of_long(int64_t value, uint8_t *to) {
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int count = 0;
    while (count < 8 && size >> (8 * count)) count++;
    to[0] = 0xFF;
    to[1] = (uint8_t)(value < 0 ? 0x14 - count : 0x14 + count);
    uint64_t shown = value < 0 ? ~size : size;
    for (int i = 0; i < count; i++) to[2 + i] = (uint8_t)(shown >> (8 * (count - 1 - i)));
    return 2 + count;
}

typedef struct { /* where keys come from: a vector, or spans */
    VectorView view;
    Py_buffer rows, starts, sizes;
    int64_t length, count;
} Source;

/* The bytes of key `row`. -1: null, -2: its place makes no sense. */
static inline int64_t key_at(const Source *from, int64_t row, const uint8_t **at, uint8_t *made) {
    int64_t length;
    if (from->starts.obj != NULL) {
        int64_t start = long_at(from->starts.buf, row);
        length = long_at(from->sizes.buf, row);
        if (length == -1) return -1;
        if (start < 0 || length < 0 || start > from->view.data.len || length > from->view.data.len - start) return -2;
        *at = (const uint8_t *)from->view.data.buf + start;
        return length;
    }
    if (!is_valid(&from->view, row)) return -1;
    if (from->view.kind == TEXT) return text_at(&from->view, row, at, &length) ? length : -2;
    *at = made;
    if (from->view.kind == INT64) return key_of_long(long_at(from->view.data.buf, row), made);
    made[0] = 0xFF;
    made[1] = bit_at(from->view.data.buf, row) ? 0x27 : 0x26;
    return 2;
}

/* The numbers of all keys. 1; 0: no memory; -1: a key's place makes no sense. */
static int number_all(Table *table, const Source *from, int64_t *numbers) {
    const uint8_t *keys[AHEAD];
    uint8_t made[AHEAD][10];
    int64_t lengths[AHEAD];
    uint32_t hashes[AHEAD];
    if (table->slot_count == 0 && !more_slots(table)) return 0;
    for (int64_t first = 0; first < from->count; first += AHEAD) {
        int64_t block = from->count - first < AHEAD ? from->count - first : AHEAD;
        for (int64_t i = 0; i < block; i++) {
            int64_t row = from->rows.obj != NULL ? long_at(from->rows.buf, first + i) : first + i;
            if (row < 0 || row >= from->length) return -1;
            lengths[i] = key_at(from, row, &keys[i], made[i]);
            if (lengths[i] == -2) return -1;
            if (lengths[i] < 0) continue;
            hashes[i] = hash_of(table, keys[i], lengths[i]);
            __builtin_prefetch(&table->slots[hashes[i] & (uint64_t)(table->slot_count - 1)]);
        }
        for (int64_t i = 0; i < block; i++) {
            int64_t number = lengths[i] < 0 ? -1 : number_of(table, keys[i], lengths[i], hashes[i], 1);
            if (number < 0 && lengths[i] >= 0) return 0;
            numbers[first + i] = number;
        }
    }
    return 1;
}

static PyObject *numbers_made(Keys *self, Source *from) {
    PyObject *out = NULL;
    from->count = from->rows.obj != NULL ? from->rows.len / 8 : from->length;
    if (enter(&self->busy)) {
        int done = 0;
        out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)from->count * 8);
        if (out != NULL) {
            int64_t *numbers = (int64_t *)PyBytes_AS_STRING(out), before = self->table.count;
            Py_BEGIN_ALLOW_THREADS
            done = number_all(&self->table, from, numbers);
            if (done != 1) forget_from(&self->table, before);
            Py_END_ALLOW_THREADS
            if (done == 0) PyErr_NoMemory();
            if (done < 0) PyErr_SetString(PyExc_ValueError, "a key lies outside of its column");
            if (done != 1) Py_CLEAR(out);
        }
        self->busy = 0;
    }
    leave_vector(&from->view);
    leave(&from->rows);
    leave(&from->starts);
    leave(&from->sizes);
    return out;
}

/* numbers(vector, length, rows or None) -> the number of each row's key, -1 for null */
static PyObject *keys_numbers(Keys *self, PyObject *args) {
    PyObject *vector, *rows;
    Py_ssize_t length;
    Source from;
    memset(&from, 0, sizeof from);
    if (!PyArg_ParseTuple(args, "OnO", &vector, &length, &rows)) return NULL;
    from.length = length;
    if (length < 0 || vector_of(vector, length, &from.view) < 0 || view_of(rows, &from.rows) < 0 || from.view.kind == FLOAT64 ||
        from.view.kind == NUMBER) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a float64 is no key");
        leave_vector(&from.view);
        leave(&from.rows);
        return NULL;
    }
    return numbers_made(self, &from);
}

/* numbers_of(buffer, offsets, lengths, rows or None) -> the number of each key, -1 where the length is -1 */
static PyObject *keys_numbers_of(Keys *self, PyObject *args) {
    Source from;
    PyObject *rows;
    memset(&from, 0, sizeof from);
    if (!PyArg_ParseTuple(args, "y*y*y*O", &from.view.data, &from.starts, &from.sizes, &rows)) return NULL;
    from.length = from.starts.len / 8;
    if (from.starts.len % 8 || from.sizes.len != from.starts.len || view_of(rows, &from.rows) < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "offsets and lengths are not as many");
        leave(&from.view.data);
        leave(&from.starts);
        leave(&from.sizes);
        return NULL;
    }
    return numbers_made(self, &from);
}

/* Numbers that Python hands over, each below `below`. The view is to be left in any case. 0, or -1 with an exception. */
static int checked_numbers(PyObject *object, int64_t below, Py_buffer *view, int64_t *count) {
    if (view_of(object, view) < 0) return -1;
    *count = view->len / 8;
    int fine = view->len % 8 == 0 && view->obj != NULL;
    for (int64_t i = 0; fine && i < *count; i++) {
        int64_t number = long_at(view->buf, i);
        fine = number >= 0 && number < below;
    }
    if (!fine) PyErr_SetString(PyExc_ValueError, "no such key or row");
    return fine ? 0 : -1;
}

static PyObject *listed_numbers(Keys *self, PyObject *list, int adds) {
    if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "a list of keys is wanted");
    Py_ssize_t count = PyList_GET_SIZE(list);
    Table *table = &self->table;
    int64_t before = table->count;
    if (!enter(&self->busy)) return NULL;
    PyObject *out = PyBytes_FromStringAndSize(NULL, count * 8);
    if (out != NULL && table->slot_count == 0 && !more_slots(table)) Py_SETREF(out, PyErr_NoMemory());
    for (Py_ssize_t first = 0; out != NULL && first < count; first += AHEAD) {
        const uint8_t *keys[AHEAD];
        int64_t lengths[AHEAD];
        uint32_t hashes[AHEAD];
        Py_ssize_t block = count - first < AHEAD ? count - first : AHEAD;
        for (Py_ssize_t i = 0; i < block; i++) {
            PyObject *one = PyList_GET_ITEM(list, first + i);
            Py_ssize_t length = -1;
            keys[i] = NULL;
            if (PyBytes_Check(one)) {
                keys[i] = (const uint8_t *)PyBytes_AS_STRING(one);
                length = PyBytes_GET_SIZE(one);
            } else if (PyUnicode_Check(one)) {
                keys[i] = (const uint8_t *)PyUnicode_AsUTF8AndSize(one, &length);
            } else if (one != Py_None) {
                PyErr_SetString(PyExc_TypeError, "a key is bytes or text");
            }
            lengths[i] = length;
            if (PyErr_Occurred()) {
                Py_CLEAR(out);
                break;
            }
            if (length < 0) continue;
            hashes[i] = hash_of(table, keys[i], length);
            __builtin_prefetch(&table->slots[hashes[i] & (uint64_t)(table->slot_count - 1)]);
        }
        for (Py_ssize_t i = 0; out != NULL && i < block; i++) {
            int64_t number = lengths[i] < 0 ? -1 : number_of(table, keys[i], lengths[i], hashes[i], adds);
            if (adds && number < 0 && lengths[i] >= 0) Py_SETREF(out, PyErr_NoMemory());
            else memcpy(PyBytes_AS_STRING(out) + (first + i) * 8, &number, 8);
        }
    }
    if (out == NULL) forget_from(table, before);
    self->busy = 0;
    return out;
}

/* numbers_listed([bytes, text or None]) -> the number of each key, -1 for None */
static PyObject *keys_numbers_listed(Keys *self, PyObject *list) { return listed_numbers(self, list, 1); }

/* found(the same) -> the number of each key, -1 for None and for a key that has none; none is added */
static PyObject *keys_found(Keys *self, PyObject *list) { return listed_numbers(self, list, 0); }

/* keys(numbers, prefix) -> (bytes, where each key begins, how long it is, and the same of each key with the prefix before it) */
static PyObject *keys_keys(Keys *self, PyObject *args) {
    Table *table = &self->table;
    Py_buffer view = {0};
    int64_t count, total = 0;
    PyObject *wanted, *made[5] = {NULL}, *out = NULL;
    const char *prefix;
    Py_ssize_t before;
    if (!PyArg_ParseTuple(args, "Oy#", &wanted, &prefix, &before)) return NULL;
    if (self->busy) return enter(&self->busy), NULL;
    if (checked_numbers(wanted, table->count, &view, &count) < 0) goto done;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = long_at(view.buf, i);
        total += table->ends[number] - begin_of(table, number) + before;
    }
    for (int i = 0; i < 5; i++) {
        made[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(i ? count * 8 : total));
        if (made[i] == NULL) goto done;
    }
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = long_at(view.buf, i);
        if (number < 0 || number >= table->count) number = 0; /* changed meanwhile */
        int64_t begin = begin_of(table, number), size = table->ends[number] - begin, key = at + before, whole = size + before;
        if (whole > total - at) { /* the numbers have changed meanwhile */
            PyErr_SetString(PyExc_ValueError, "no such key");
            goto done;
        }
        if (before) memcpy(PyBytes_AS_STRING(made[0]) + at, prefix, (size_t)before);
        memcpy(PyBytes_AS_STRING(made[0]) + key, table->bytes + begin, (size_t)size);
        int64_t told[4] = {key, size, at, whole};
        for (int one = 0; one < 4; one++) memcpy(PyBytes_AS_STRING(made[one + 1]) + i * 8, &told[one], 8);
        at += whole;
    }
    out = PyTuple_Pack(5, made[0], made[1], made[2], made[3], made[4]);
done:
    for (int i = 0; i < 5; i++) Py_XDECREF(made[i]);
    leave(&view);
    return out;
}

/* retain(numbers): only these keys stay, and get the numbers 0, 1, … in this order. No number may come twice. */
static PyObject *keys_retain(Keys *self, PyObject *wanted) {
    Table *table = &self->table, fresh = {0};
    Py_buffer view;
    int64_t count;
    if (self->busy) return enter(&self->busy), NULL;
    if (checked_numbers(wanted, table->count, &view, &count) < 0) {
        leave(&view);
        return NULL;
    }
    fresh.seed = table->seed;
    int fine = more_slots(&fresh);
    for (int64_t i = 0; fine && i < count; i++) {
        int64_t number = long_at(view.buf, i), begin = begin_of(table, number);
        fine = number_of(&fresh, table->bytes + begin, table->ends[number] - begin, table->hashes[number], 1) >= 0;
    }
    leave(&view);
    if (!fine || fresh.count != count) {
        free_table(&fresh);
        if (!fine) return PyErr_NoMemory();
        PyErr_SetString(PyExc_ValueError, "a key comes twice");
        return NULL;
    }
    free_table(table);
    *table = fresh;
    Py_RETURN_NONE;
}

static Py_ssize_t keys_length(Keys *self) { return (Py_ssize_t)self->table.count; }

static PyObject *keys_memory(Keys *self, PyObject *Py_UNUSED(unused)) {
    const Table *table = &self->table;
    return PyLong_FromLongLong(table->slot_count * 4 + table->hash_room * 4 + table->end_room * 8 + table->byte_room);
}

static PyObject *keys_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "K", &seed)) return NULL;
    Keys *self = (Keys *)type->tp_alloc(type, 0);
    if (self != NULL) self->table.seed = seed;
    return (PyObject *)self;
}

static void keys_dealloc(Keys *self) {
    free_table(&self->table);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef keys_methods[] = {
    {"numbers", (PyCFunction)keys_numbers, METH_VARARGS, "The numbers of a column of keys."},
    {"numbers_of", (PyCFunction)keys_numbers_of, METH_VARARGS, "The numbers of keys that are bytes."},
    {"numbers_listed", (PyCFunction)keys_numbers_listed, METH_O, "The numbers of keys in a list."},
    {"found", (PyCFunction)keys_found, METH_O, "The numbers of those that are known."},
    {"keys", (PyCFunction)keys_keys, METH_VARARGS, "The bytes of keys."},
    {"retain", (PyCFunction)keys_retain, METH_O, "Forget all other keys."},
    {"memory", (PyCFunction)keys_memory, METH_NOARGS, "The bytes that are reserved."},
    {NULL, NULL, 0, NULL},
};
static PySequenceMethods keys_sequence = {.sq_length = (lenfunc)keys_length};
static PyTypeObject keys_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headgate.agents.records.native._columns.Keys",
    .tp_basicsize = sizeof(Keys),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = keys_new,
    .tp_dealloc = (destructor)keys_dealloc,
    .tp_methods = keys_methods,
    .tp_as_sequence = &keys_sequence,
};

/* ----------------------------------------------------------------------------------------------------------- cells */

enum { ROWS, VALUES, SUM, MIN, MAX, TOTAL }; /* what a cell holds: see groups.py; a TOTAL is a SUM that begins with zero */

typedef struct {
    void *states;  /* int64 or double of each key */
    uint8_t *tags; /* which of them; not of ROWS and VALUES, which are whole */
    int64_t room, tag_room;
    uint64_t bound; /* sums and counts: no whole state is larger; one more than INT64_MAX: unknown */
    int op;
    int from_zero; /* the state of a new key is a whole zero, not null */
} Cell;

typedef struct {
    PyObject_HEAD
    Cell *cells;
    Py_ssize_t count;
    uint8_t *touched; /* of each key: whether it has changed since it was settled */
    int32_t *written; /* of each key: the write with which it was settled last; -1: none */
    int64_t *times;   /* of each key: the greatest since then */
    int32_t *dirty;   /* the keys that have changed, in the order in which they did first */
    int64_t keys, touched_room, written_room, times_room, dirty_room, dirties;
    int busy;
} Cells;

typedef struct { /* what is added: numbers of keys, rows of columns */
    int64_t *numbers, *rows; /* copies, which no one changes once they are checked; rows: NULL for all */
    Py_buffer times;
    VectorView *columns; /* one for each cell; `data.obj` is NULL for ROWS */
    Py_ssize_t cells;
    int64_t count, length;
    uint8_t *skip; /* rows that would make a whole number overflow; NULL if there are none */
    int64_t skips;
    int merging;
} Addition;

#define UNKNOWN ((uint64_t)1 << 63)

static inline uint64_t size_of(int64_t value) { return value < 0 ? 0 - (uint64_t)value : (uint64_t)value; }

static inline int64_t row_of(const Addition *what, int64_t at) {
    return what->rows != NULL ? what->rows[at] : at;
}

/* Whether this cell counts rows, so that one is added for each of them. */
static inline int counts_rows(const Cell *cell, int merging) { return cell->op <= VALUES && !merging; }

static inline int state_tag(const Cell *cell, int64_t number) { return cell->tags == NULL ? TAG_WHOLE : cell->tags[number]; }

static uint64_t bound_of(const Cell *cell, int64_t keys) {
    uint64_t most = 0;
    for (int64_t i = 0; i < keys; i++) {
        uint64_t one = state_tag(cell, i) == TAG_WHOLE ? size_of(((const int64_t *)cell->states)[i]) : 0;
        if (one > most) most = one;
    }
    return most;
}

/* What a row adds to a cell that adds up: the tag of the number, and *value if it is whole. */
static inline int added_at(const Cell *cell, const VectorView *column, int merging, int64_t row, int64_t *value) {
    if (counts_rows(cell, merging)) {
        *value = cell->op == ROWS || is_valid(column, row);
        return TAG_WHOLE;
    }
    int tag = tag_at(column, row);
    *value = tag == TAG_WHOLE ? long_at(column->data.buf, row) : 0;
    return tag;
}

/* Raises the bound by what is added. 0 if a sum may overflow. */
static int within_bounds(Cell *cell, const VectorView *column, const Addition *what, int64_t keys, uint64_t *raised) {
    int counts = counts_rows(cell, what->merging);
    uint64_t total = counts ? (uint64_t)what->count : 0;
    for (int64_t i = 0; i < what->count && total < UNKNOWN && !counts && column->kind != FLOAT64; i++) {
        int64_t row = row_of(what, i);
        if (tag_at(column, row) == TAG_WHOLE) total += size_of(long_at(column->data.buf, row));
    }
    *raised = cell->bound;
    if (total == 0) return 1;
    if (total >= UNKNOWN) return 0;
    if (cell->bound >= UNKNOWN || cell->bound + total >= UNKNOWN) cell->bound = bound_of(cell, keys);
    *raised = cell->bound + total;
    return *raised < UNKNOWN;
}

/* Marks the rows that would make a whole sum overflow, as if the others were added in their order. 0 if there is no memory. */
static int mark_overflows(Cells *self, Addition *what) {
    Cell *copies = PyMem_RawCalloc((size_t)self->count + 1, sizeof(Cell));
    int fine = copies != NULL;
    what->skip = PyMem_RawCalloc((size_t)what->count + 1, 1);
    fine = fine && what->skip != NULL;
    for (Py_ssize_t c = 0; fine && c < self->count; c++) {
        const Cell *cell = &self->cells[c];
        if (cell->op > SUM) continue;
        copies[c].states = PyMem_RawMalloc((size_t)self->keys * 8 + 8);
        copies[c].tags = PyMem_RawMalloc((size_t)self->keys + 1);
        fine = copies[c].states != NULL && copies[c].tags != NULL;
        if (fine && self->keys) memcpy(copies[c].states, cell->states, (size_t)self->keys * 8);
        for (int64_t i = 0; fine && i < self->keys; i++) copies[c].tags[i] = (uint8_t)state_tag(cell, i);
    }
    for (int64_t i = 0; fine && i < what->count; i++) {
        int64_t number = what->numbers[i], row = row_of(what, i), made, value;
        for (Py_ssize_t c = 0; c < self->count; c++)
            if (copies[c].states != NULL && copies[c].tags[number] == TAG_WHOLE &&
                added_at(&self->cells[c], &what->columns[c], what->merging, row, &value) == TAG_WHOLE &&
                __builtin_add_overflow(((int64_t *)copies[c].states)[number], value, &made))
                what->skip[i] = 1;
        what->skips += what->skip[i];
        for (Py_ssize_t c = 0; !what->skip[i] && c < self->count; c++) {
            if (copies[c].states == NULL) continue;
            int tag = added_at(&self->cells[c], &what->columns[c], what->merging, row, &value), mine = copies[c].tags[number];
            int64_t *state = (int64_t *)copies[c].states + number;
            if (tag != TAG_NULL && mine != TAG_FRACTION) copies[c].tags[number] = (uint8_t)tag;
            if (mine == TAG_NULL) *state = value;
            else if (mine == TAG_WHOLE && tag == TAG_WHOLE) *state += value;
        }
    }
    for (Py_ssize_t c = 0; copies != NULL && c < self->count; c++) {
        PyMem_RawFree(copies[c].states);
        PyMem_RawFree(copies[c].tags);
    }
    PyMem_RawFree(copies);
    return fine;
}

/* Finds out which rows cannot be added. With `keep` the bounds rise by the others. 0 if there is no memory. */
static int find_overflows(Cells *self, Addition *what, int keep) {
    int fine = 1;
    for (Py_ssize_t c = 0; fine && c < self->count; c++) {
        uint64_t raised = UNKNOWN;
        if (self->cells[c].op > SUM) continue;
        fine = within_bounds(&self->cells[c], &what->columns[c], what, self->keys, &raised);
        if (keep) self->cells[c].bound = raised < UNKNOWN ? raised : UNKNOWN;
    }
    if (fine) return 1;
    for (Py_ssize_t c = 0; keep && c < self->count; c++) self->cells[c].bound = UNKNOWN;
    return mark_overflows(self, what);
}

#define EACH_ROW(what)                                              \
    for (int64_t i = 0; i < (what)->count; i++)                     \
        if ((what)->skip == NULL || !(what)->skip[i])

/* Whether one number is less than another, as Python compares a whole number with a float: by their values, not rounded. */
static inline int is_less(int tag, const void *at, int other_tag, const void *other) {
    int64_t whole, cut;
    if (tag == other_tag) return tag == TAG_WHOLE ? long_at(at, 0) < long_at(other, 0) : double_at(at, 0) < double_at(other, 0);
    double number = double_at(tag == TAG_WHOLE ? other : at, 0);
    if (number != number) return 0;
    if (number >= 9223372036854775808.0) return tag == TAG_WHOLE;
    if (number < -9223372036854775808.0) return tag != TAG_WHOLE;
    whole = long_at(tag == TAG_WHOLE ? at : other, 0);
    cut = (int64_t)number; /* towards zero: what is left decides if both are equal */
    if (tag == TAG_WHOLE) return whole != cut ? whole < cut : number > (double)cut;
    return whole != cut ? cut < whole : number < (double)cut;
}

/* Adds a number to the state of a key, or replaces it by a number that is less, or greater. */
static inline void add_number(Cell *cell, int op, int64_t number, int tag, const void *at) {
    int64_t *whole = (int64_t *)cell->states + number;
    double *fraction = (double *)cell->states + number;
    uint8_t *mine = &cell->tags[number];
    if (*mine == TAG_NULL || (op == MIN && is_less(tag, at, *mine, whole)) || (op == MAX && is_less(*mine, whole, tag, at))) {
        memcpy(whole, at, 8);
        *mine = (uint8_t)tag;
    } else if (op == SUM && *mine == TAG_WHOLE && tag == TAG_WHOLE) {
        *whole += long_at(at, 0);
    } else if (op == SUM) {
        double value = tag == TAG_WHOLE ? (double)long_at(at, 0) : double_at(at, 0);
        *fraction = (*mine == TAG_WHOLE ? (double)*whole : *fraction) + value;
        *mine = TAG_FRACTION;
    }
}

static void add_cell(Cell *cell, const VectorView *column, const Addition *what) {
    int64_t *longs = cell->states;
    EACH_ROW(what) {
        int64_t number = what->numbers[i], row = row_of(what, i);
        if (cell->op == ROWS && !what->merging) {
            longs[number]++;
            continue;
        }
        int tag = tag_at(column, row);
        if (cell->op == VALUES && !what->merging) {
            longs[number] += is_valid(column, row);
            continue;
        }
        if (tag == TAG_NULL) continue;
        const char *at = (const char *)column->data.buf + row * 8;
        if (cell->op <= VALUES) longs[number] += long_at(at, 0); /* of partial states, counts are added up */
        else add_number(cell, cell->op, number, tag, at);
    }
}

/* The same for what is added most: no nulls. */
static int add_cell_plainly(Cell *cell, const VectorView *column, const Addition *what) {
    if (what->skip != NULL || what->merging || column->validity.obj != NULL) return 0;
    const int64_t *numbers = what->numbers, *rows = what->rows;
    const char *values = column->data.buf;
    if (cell->op == ROWS) {
        int64_t *states = cell->states;
        for (int64_t i = 0; i < what->count; i++) states[numbers[i]]++;
        return 1;
    }
    if (cell->op != SUM || column->kind > FLOAT64) return 0;
    int tag = column->kind == INT64 ? TAG_WHOLE : TAG_FRACTION;
    for (int64_t i = 0; i < what->count; i++) {
        int64_t number = numbers[i];
        const char *at = values + (rows != NULL ? rows[i] : i) * 8;
        if (cell->tags[number] != tag) add_number(cell, SUM, number, tag, at); /* the first one: -0.0 stays what it is */
        else if (tag == TAG_WHOLE) ((int64_t *)cell->states)[number] += long_at(at, 0);
        else ((double *)cell->states)[number] += double_at(at, 0);
    }
    return 1;
}

static void touch_all(Cells *self, const Addition *what) {
    EACH_ROW(what) {
        int64_t number = what->numbers[i];
        int64_t time = what->times.obj != NULL ? long_at(what->times.buf, row_of(what, i)) : 0;
        if (!self->touched[number]) {
            self->touched[number] = 1;
            self->times[number] = time;
            self->dirty[self->dirties++] = (int32_t)number;
        } else if (time > self->times[number]) {
            self->times[number] = time;
        }
    }
}

static int reserve_keys(Cells *self, int64_t keys) {
    for (Py_ssize_t c = 0; c < self->count; c++) {
        Cell *cell = &self->cells[c];
        if (!reserve(&cell->states, &cell->room, keys, 8)) return 0;
        if (cell->op > VALUES && !reserve(&cell->tags, &cell->tag_room, keys, 1)) return 0;
        if (cell->from_zero && keys > self->keys) memset(cell->tags + self->keys, TAG_WHOLE, (size_t)(keys - self->keys));
    }
    if (!reserve(&self->touched, &self->touched_room, keys, 1) || !reserve(&self->written, &self->written_room, keys, 4) ||
        !reserve(&self->times, &self->times_room, keys, 8) ||
        !reserve(&self->dirty, &self->dirty_room, keys, 4))
        return 0;
    for (int64_t i = self->keys; i < keys; i++) self->written[i] = -1;
    if (keys > self->keys) self->keys = keys;
    return 1;
}

static void leave_addition(Addition *what) {
    for (Py_ssize_t c = 0; what->columns != NULL && c < what->cells; c++) leave_vector(&what->columns[c]);
    PyMem_RawFree(what->columns);
    PyMem_RawFree(what->skip);
    PyMem_RawFree(what->numbers);
    PyMem_RawFree(what->rows);
    leave(&what->times);
}

/* A copy of numbers from Python, each below `below`. NULL with an exception. */
static int64_t *numbers_copied(PyObject *object, int64_t below, int64_t *count) {
    Py_buffer view;
    int64_t *made = NULL;
    if (checked_numbers(object, below, &view, count) == 0) {
        made = PyMem_RawMalloc((size_t)*count * 8 + 8);
        if (made == NULL) PyErr_NoMemory();
        else memcpy(made, view.buf, (size_t)*count * 8);
    }
    leave(&view);
    return made;
}

/* (keys, numbers, [vector or None], length, rows or None, times or None) as an addition that can be trusted. 0, or -1 with an exception. */
static int addition_of(Cells *self, PyObject *args, Addition *what) {
    PyObject *numbers, *columns, *rows, *times;
    Py_ssize_t keys, length;
    if (!PyArg_ParseTuple(args, "nOO!nOO", &keys, &numbers, &PyList_Type, &columns, &length, &rows, &times)) return -1;
    if (keys < 0 || keys > MOST_KEYS || length < 0 || length > MOST_ROWS || PyList_GET_SIZE(columns) != self->count) {
        PyErr_SetString(PyExc_ValueError, "there are other columns than cells");
        return -1;
    }
    what->columns = PyMem_RawCalloc((size_t)self->count + 1, sizeof(VectorView));
    if (what->columns == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
    what->cells = self->count;
    what->length = length;
    int64_t selected = 0;
    if ((what->numbers = numbers_copied(numbers, keys, &what->count)) == NULL) return -1;
    if (rows != Py_None && (what->rows = numbers_copied(rows, length, &selected)) == NULL) return -1;
    if (view_of(times, &what->times) < 0) return -1;
    if ((rows != Py_None ? selected : length) != what->count || (what->times.obj != NULL && what->times.len < length * 8)) {
        PyErr_SetString(PyExc_ValueError, "columns have different lengths");
        return -1;
    }
    for (Py_ssize_t c = 0; c < self->count; c++) {
        PyObject *column = PyList_GET_ITEM(columns, c);
        Cell *cell = &self->cells[c];
        if (cell->op == ROWS && !what->merging && column == Py_None) continue;
        if (vector_of(column, length, &what->columns[c]) < 0) return -1;
        int kind = what->columns[c].kind;
        if (cell->op == VALUES && !what->merging) continue;
        if (kind == INT64 || (cell->op > VALUES && (kind == FLOAT64 || kind == NUMBER))) continue;
        PyErr_SetString(PyExc_ValueError, "a cell gets a column of another type");
        return -1;
    }
    if (reserve_keys(self, keys)) return 0;
    PyErr_NoMemory();
    return -1;
}

static PyObject *skipped(const Addition *what) {
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list != NULL && what->skips && i < what->count; i++) {
        if (!what->skip[i]) continue;
        PyObject *at = PyLong_FromLongLong(row_of(what, i));
        if (at == NULL || PyList_Append(list, at) < 0) Py_CLEAR(list);
        Py_XDECREF(at);
    }
    return list;
}

static PyObject *adding(Cells *self, PyObject *args, int merging, int only_looking) {
    Addition what;
    PyObject *out = NULL;
    memset(&what, 0, sizeof what);
    what.merging = merging;
    if (!enter(&self->busy)) return NULL;
    if (addition_of(self, args, &what) == 0) {
        int fine;
        Py_BEGIN_ALLOW_THREADS
        fine = find_overflows(self, &what, !only_looking);
        if (fine && !only_looking) {
            for (Py_ssize_t c = 0; c < self->count; c++)
                if (!add_cell_plainly(&self->cells[c], &what.columns[c], &what)) add_cell(&self->cells[c], &what.columns[c], &what);
            touch_all(self, &what);
        }
        Py_END_ALLOW_THREADS
        out = fine ? skipped(&what) : PyErr_NoMemory();
    }
    self->busy = 0;
    leave_addition(&what);
    return out;
}

static PyObject *cells_add(Cells *self, PyObject *args) { return adding(self, args, 0, 0); }
static PyObject *cells_merge(Cells *self, PyObject *args) { return adding(self, args, 1, 0); }
static PyObject *cells_overflows(Cells *self, PyObject *args) { return adding(self, args, 0, 1); }
static PyObject *cells_merge_overflows(Cells *self, PyObject *args) { return adding(self, args, 1, 1); }

/* put(keys, numbers, [vector], length, None, times or None): the states of these keys, which count as changed if they have times */
static PyObject *cells_put(Cells *self, PyObject *args) {
    Addition what;
    memset(&what, 0, sizeof what);
    what.merging = 1;
    if (!enter(&self->busy)) return NULL;
    int fine = addition_of(self, args, &what) == 0;
    for (Py_ssize_t c = 0; fine && c < self->count; c++) {
        Cell *cell = &self->cells[c];
        for (int64_t i = 0; i < what.count; i++) {
            int64_t number = what.numbers[i], row = row_of(&what, i);
            int tag = tag_at(&what.columns[c], row);
            uint64_t size = tag == TAG_WHOLE ? size_of(long_at(what.columns[c].data.buf, row)) : 0;
            if (size > cell->bound) cell->bound = size;
            if (cell->op > VALUES) cell->tags[number] = (uint8_t)(tag == TAG_NULL && cell->from_zero ? TAG_WHOLE : tag);
            if (tag) memcpy((char *)cell->states + number * 8, (char *)what.columns[c].data.buf + row * 8, 8);
            else memset((char *)cell->states + number * 8, 0, 8);
        }
    }
    if (fine && what.times.obj != NULL) touch_all(self, &what);
    self->busy = 0;
    leave_addition(&what);
    if (!fine) return NULL;
    Py_RETURN_NONE;
}

/* (number of the type, data, tags or None, validity or None, nulls) of a cell, for these keys; or NULL. Tags only where types differ. */
static PyObject *states_of(const Cell *cell, const Py_buffer *numbers, int64_t count, int64_t keys) {
    PyObject *out = NULL, *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count * 8);
    PyObject *validity = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count + 7) / 8), *tags = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count);
    int64_t of[3] = {0, 0, 0};
    if (data == NULL || validity == NULL || tags == NULL) goto done;
    char *to = PyBytes_AS_STRING(data), *valid = PyBytes_AS_STRING(validity);
    if (count) memset(valid, 0, (size_t)(count + 7) / 8);
    for (int64_t i = 0; i < count; i++) {
        int64_t number = long_at(numbers->buf, i);
        if (number < 0 || number >= keys) number = 0; /* changed meanwhile */
        int tag = state_tag(cell, number);
        memcpy(to + i * 8, (const char *)cell->states + number * 8, 8);
        PyBytes_AS_STRING(tags)[i] = (char)tag;
        of[tag]++;
        if (tag != TAG_NULL) valid[i >> 3] |= (char)(1 << (i & 7));
    }
    int mixed = of[TAG_WHOLE] && of[TAG_FRACTION], nulls = of[TAG_NULL] > 0;
    out = Py_BuildValue("iOOOL", mixed ? NUMBER : of[TAG_FRACTION] ? FLOAT64 : INT64, data, mixed ? tags : Py_None,
                        nulls && !mixed ? validity : Py_None, (long long)of[TAG_NULL]);
done:
    Py_XDECREF(data);
    Py_XDECREF(validity);
    Py_XDECREF(tags);
    return out;
}

/* take(numbers) -> ([(number of the type, data, tags or None, validity or None, nulls) of each cell], times) */
static PyObject *cells_take(Cells *self, PyObject *wanted) {
    Py_buffer view;
    int64_t count;
    PyObject *list = NULL, *times = NULL, *out = NULL;
    if (self->busy) return enter(&self->busy), NULL;
    if (checked_numbers(wanted, self->keys, &view, &count) < 0) goto done;
    list = PyList_New(self->count);
    times = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count * 8);
    if (list == NULL || times == NULL) goto done;
    for (Py_ssize_t c = 0; c < self->count; c++) {
        PyObject *one = states_of(&self->cells[c], &view, count, self->keys);
        if (one == NULL) goto done;
        PyList_SET_ITEM(list, c, one);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t number = long_at(view.buf, i);
        if (number < 0 || number >= self->keys) number = 0;
        memcpy(PyBytes_AS_STRING(times) + i * 8, &self->times[number], 8);
    }
    out = Py_BuildValue("OO", list, times);
done:
    Py_XDECREF(list);
    Py_XDECREF(times);
    leave(&view);
    return out;
}

/* dirty() -> the numbers of the keys that have changed since `settle` */
static PyObject *cells_dirty(Cells *self, PyObject *Py_UNUSED(unused)) {
    if (self->busy) return enter(&self->busy), NULL;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)self->dirties * 8);
    for (int64_t i = 0; made != NULL && i < self->dirties; i++) {
        int64_t number = self->dirty[i];
        memcpy(PyBytes_AS_STRING(made) + i * 8, &number, 8);
    }
    return made;
}

/* settle(write): what has changed is written with this write */
static PyObject *cells_settle(Cells *self, PyObject *number) {
    int write = (int)PyLong_AsLong(number) & INT32_MAX;
    if (PyErr_Occurred()) return NULL;
    if (self->busy) return enter(&self->busy), NULL;
    for (int64_t i = 0; i < self->dirties; i++) {
        self->touched[self->dirty[i]] = 0;
        self->written[self->dirty[i]] = write;
    }
    self->dirties = 0;
    Py_RETURN_NONE;
}

/* loaded(numbers, write): the states of these keys are stored, and at most as new as this write */
static PyObject *cells_loaded(Cells *self, PyObject *args) {
    PyObject *wanted;
    int write;
    Py_buffer view;
    int64_t count;
    if (!PyArg_ParseTuple(args, "Oi", &wanted, &write)) return NULL;
    if (self->busy) return enter(&self->busy), NULL;
    int fine = checked_numbers(wanted, self->keys, &view, &count) == 0;
    for (int64_t i = 0; fine && i < count; i++) {
        int64_t number = long_at(view.buf, i);
        if (number >= 0 && number < self->keys) self->written[number] = write;
    }
    leave(&view);
    if (!fine) return NULL;
    Py_RETURN_NONE;
}

/* durable(numbers, newest, waiting) -> (places, numbers): those of stored states that have not changed since the write `newest` - `waiting` */
static PyObject *cells_durable(Cells *self, PyObject *args) {
    PyObject *wanted, *places = NULL, *found = NULL, *out = NULL;
    int newest, waiting;
    Py_buffer view = {0};
    if (!PyArg_ParseTuple(args, "Oii", &wanted, &newest, &waiting)) return NULL;
    if (self->busy) return enter(&self->busy), NULL;
    if (view_of(wanted, &view) < 0) goto done;
    if (view.obj == NULL || view.len % 8) {
        PyErr_SetString(PyExc_ValueError, "no numbers of keys");
        goto done;
    }
    int64_t kept = 0, count = view.len / 8;
    places = PyBytes_FromStringAndSize(NULL, count * 8);
    found = PyBytes_FromStringAndSize(NULL, count * 8);
    if (places == NULL || found == NULL) goto done;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = long_at(view.buf, i);
        if (number < 0 || number >= self->keys || self->touched[number]) continue;
        if (self->written[number] < 0 || newest - self->written[number] < waiting) continue;
        memcpy(PyBytes_AS_STRING(places) + kept * 8, &i, 8);
        memcpy(PyBytes_AS_STRING(found) + kept * 8, &number, 8);
        kept++;
    }
    if (_PyBytes_Resize(&places, kept * 8) == 0 && _PyBytes_Resize(&found, kept * 8) == 0) out = PyTuple_Pack(2, places, found);
done:
    Py_XDECREF(places);
    Py_XDECREF(found);
    leave(&view);
    return out;
}

/* retain(numbers): only the states of these keys stay, under the numbers 0, 1, … in this order */
static PyObject *cells_retain(Cells *self, PyObject *wanted) {
    Py_buffer view;
    int64_t count;
    if (self->busy) return enter(&self->busy), NULL;
    if (checked_numbers(wanted, self->keys, &view, &count) < 0) {
        leave(&view);
        return NULL;
    }
    Cells fresh = *self;
    fresh.cells = PyMem_RawCalloc((size_t)self->count + 1, sizeof(Cell));
    fresh.touched = NULL;
    fresh.written = NULL;
    fresh.times = NULL;
    fresh.dirty = NULL;
    fresh.keys = fresh.touched_room = fresh.written_room = fresh.times_room = fresh.dirty_room = fresh.dirties = 0;
    int fine = fresh.cells != NULL;
    for (Py_ssize_t c = 0; fine && c < self->count; c++)
        fresh.cells[c] = (Cell){.op = self->cells[c].op, .bound = self->cells[c].bound, .from_zero = self->cells[c].from_zero};
    fine = fine && reserve_keys(&fresh, count);
    for (int64_t i = 0; fine && i < count; i++) {
        int64_t number = long_at(view.buf, i);
        if (number < 0 || number >= self->keys) number = 0;
        for (Py_ssize_t c = 0; c < self->count; c++) {
            memcpy((char *)fresh.cells[c].states + i * 8, (char *)self->cells[c].states + number * 8, 8);
            if (fresh.cells[c].tags) fresh.cells[c].tags[i] = self->cells[c].tags[number];
        }
        fresh.times[i] = self->times[number];
        fresh.touched[i] = self->touched[number];
        fresh.written[i] = self->written[number];
        if (fresh.touched[i]) fresh.dirty[fresh.dirties++] = (int32_t)i;
    }
    leave(&view);
    Cells *old = fine ? self : &fresh;
    for (Py_ssize_t c = 0; old->cells != NULL && c < self->count; c++) {
        PyMem_RawFree(old->cells[c].states);
        PyMem_RawFree(old->cells[c].tags);
    }
    PyMem_RawFree(old->cells);
    PyMem_RawFree(old->touched);
    PyMem_RawFree(old->written);
    PyMem_RawFree(old->times);
    PyMem_RawFree(old->dirty);
    if (!fine) return PyErr_NoMemory();
    self->cells = fresh.cells;
    self->touched = fresh.touched;
    self->written = fresh.written;
    self->times = fresh.times;
    self->dirty = fresh.dirty;
    self->keys = fresh.keys;
    self->touched_room = fresh.touched_room;
    self->written_room = fresh.written_room;
    self->times_room = fresh.times_room;
    self->dirty_room = fresh.dirty_room;
    self->dirties = fresh.dirties;
    Py_RETURN_NONE;
}

static PyObject *cells_memory(Cells *self, PyObject *Py_UNUSED(unused)) {
    int64_t total = self->touched_room + self->written_room * 4 + self->times_room * 8 + self->dirty_room * 4;
    for (Py_ssize_t c = 0; c < self->count; c++) total += self->cells[c].room * 8 + self->cells[c].tag_room;
    return PyLong_FromLongLong(total);
}

/* Cells([what each holds]) */
static PyObject *cells_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list)) return NULL;
    Cells *self = (Cells *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->cells = PyMem_RawCalloc((size_t)PyList_GET_SIZE(list) + 1, sizeof(Cell));
    if (self->cells == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t c = 0; c < PyList_GET_SIZE(list); c++) {
        long op = PyLong_AsLong(PyList_GET_ITEM(list, c));
        if (op < ROWS || op > TOTAL) {
            Py_DECREF(self);
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such cell");
            return NULL;
        }
        self->cells[c].op = op == TOTAL ? SUM : (int)op;
        self->cells[c].from_zero = op == TOTAL;
        self->count = c + 1;
    }
    return (PyObject *)self;
}

static void cells_dealloc(Cells *self) {
    for (Py_ssize_t c = 0; self->cells != NULL && c < self->count; c++) {
        PyMem_RawFree(self->cells[c].states);
        PyMem_RawFree(self->cells[c].tags);
    }
    PyMem_RawFree(self->cells);
    PyMem_RawFree(self->touched);
    PyMem_RawFree(self->written);
    PyMem_RawFree(self->times);
    PyMem_RawFree(self->dirty);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef cells_methods[] = {
    {"add", (PyCFunction)cells_add, METH_VARARGS, "Add rows."},
    {"merge", (PyCFunction)cells_merge, METH_VARARGS, "Add partial states."},
    {"overflows", (PyCFunction)cells_overflows, METH_VARARGS, "The rows that `add` would leave out."},
    {"merge_overflows", (PyCFunction)cells_merge_overflows, METH_VARARGS, "The partial states that `merge` would leave out."},
    {"put", (PyCFunction)cells_put, METH_VARARGS, "Set states."},
    {"take", (PyCFunction)cells_take, METH_O, "The states of keys."},
    {"dirty", (PyCFunction)cells_dirty, METH_NOARGS, "The keys that have changed."},
    {"settle", (PyCFunction)cells_settle, METH_O, "No key has changed any more."},
    {"loaded", (PyCFunction)cells_loaded, METH_VARARGS, "How new the states of keys are."},
    {"durable", (PyCFunction)cells_durable, METH_VARARGS, "The keys whose states are as old as a write."},
    {"retain", (PyCFunction)cells_retain, METH_O, "Forget all other keys."},
    {"memory", (PyCFunction)cells_memory, METH_NOARGS, "The bytes that are reserved."},
    {NULL, NULL, 0, NULL},
};
static PyTypeObject cells_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headgate.agents.records.native._columns.Cells",
    .tp_basicsize = sizeof(Cells),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = cells_new,
    .tp_dealloc = (destructor)cells_dealloc,
    .tp_methods = cells_methods,
};

/* numbers([int, float or None]) -> (number of the type, data, tags or None, validity or None, nulls); None if something else is there */
static PyObject *numbers_of_list(PyObject *Py_UNUSED(self), PyObject *list) {
    if (!PyList_Check(list) && !PyTuple_Check(list)) return PyErr_Format(PyExc_TypeError, "a list of numbers is wanted");
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    Cell cell = {.op = SUM};
    Py_buffer every = {0};
    PyObject *out = NULL;
    int64_t *numbers = PyMem_RawMalloc((size_t)count * 8 + 8);
    if (numbers == NULL || !reserve(&cell.states, &cell.room, count + 1, 8) || !reserve(&cell.tags, &cell.tag_room, count + 1, 1)) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PySequence_Fast_GET_ITEM(list, i);
        int beyond = 0;
        numbers[i] = i;
        if (PyFloat_CheckExact(one)) {
            ((double *)cell.states)[i] = PyFloat_AS_DOUBLE(one);
            cell.tags[i] = TAG_FRACTION;
        } else if (PyLong_CheckExact(one)) {
            ((int64_t *)cell.states)[i] = PyLong_AsLongLongAndOverflow(one, &beyond);
            cell.tags[i] = TAG_WHOLE;
        } else if (one != Py_None) {
            beyond = 1;
        }
        if (beyond) {
            out = Py_NewRef(Py_None);
            goto done;
        }
    }
    every.buf = numbers;
    out = states_of(&cell, &every, count, count);
done:
    PyMem_RawFree(numbers);
    PyMem_RawFree(cell.states);
    PyMem_RawFree(cell.tags);
    return out;
}

/* null_among(vector, length, rows or None) -> the place of the first null among these rows, or None */
static PyObject *null_among(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *vector, *wanted, *out = NULL;
    Py_ssize_t length;
    VectorView view;
    Py_buffer rows = {0};
    int64_t place = -1;
    if (!PyArg_ParseTuple(args, "OnO", &vector, &length, &wanted)) return NULL;
    if (length < 0 || vector_of(vector, length, &view) < 0) goto done;
    if (wanted != Py_None) {
        int64_t count;
        if (checked_numbers(wanted, length, &rows, &count) < 0) goto done;
        for (int64_t i = 0; place < 0 && i < count; i++) {
            int64_t row = long_at(rows.buf, i);
            if (row < 0 || row >= length || !is_valid(&view, row)) place = i;
        }
    } else {
        for (int64_t i = 0; place < 0 && i < length; i++)
            if (!is_valid(&view, i)) place = i;
    }
    out = place < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(place);
done:
    if (length >= 0) leave_vector(&view);
    else PyErr_SetString(PyExc_ValueError, "no such row");
    leave(&rows);
    return out;
}

static PyMethodDef groups_methods[] = {
    {"null_among", null_among, METH_VARARGS, "The first null of rows."},
    {"numbers", numbers_of_list, METH_O, "Numbers in a list as a vector."},
    {NULL, NULL, 0, NULL},
};

int add_groups(PyObject *module) {
    if (PyModule_AddFunctions(module, groups_methods) < 0) return -1;
    return PyType_Ready(&keys_type) < 0 || PyType_Ready(&cells_type) < 0 ||
                   PyModule_AddObjectRef(module, "Keys", (PyObject *)&keys_type) < 0 ||
                   PyModule_AddObjectRef(module, "Cells", (PyObject *)&cells_type) < 0
               ? -1
               : 0;
}
