/* The last record of each key, in the order of the keys. latest.py says what is promised, and has the same in Python.
 *
 * Records are sorted by eight bytes of their keys at a time, behind what all keys of a run have in common. Keys that are equal so far make a
 * run of their own. Runs wait in a list, so that long keys need no deep stack. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "span_view.h"

#define FEW 24 /* so many records are sorted by insertion */
enum { GOES_ON = 9 }; /* a key that does not end within the word; else its bytes in the word */

typedef struct {
    const uint8_t *at;
    int64_t size;
} Key;

typedef struct {
    uint64_t word;
    int64_t row; /* -1: a later record has the same key */
} Item;

typedef struct {
    int64_t first, behind, depth; /* these items have keys that are equal up to `depth` */
} Run;

typedef struct {
    const Key *keys;
    Item *items, *spare;
    Run *runs;
    int64_t waiting, room;
} Sorting;

/* Sort by the word; records with equal words keep their order. */
static void by_word(Item *items, Item *spare, int64_t count) {
    if (count < FEW) {
        for (int64_t i = 1; i < count; i++) {
            Item one = items[i];
            int64_t to = i;
            for (; to > 0 && items[to - 1].word > one.word; to--) items[to] = items[to - 1];
            items[to] = one;
        }
        return;
    }
    uint64_t differ = 0;
    for (int64_t i = 1; i < count; i++) differ |= items[i].word ^ items[0].word;
    Item *from = items, *to = spare;
    for (int shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & 0xFF)) continue;
        int64_t places[257] = {0};
        for (int64_t i = 0; i < count; i++) places[(from[i].word >> shift & 0xFF) + 1]++;
        for (int byte = 0; byte < 255; byte++) places[byte + 1] += places[byte];
        for (int64_t i = 0; i < count; i++) to[places[from[i].word >> shift & 0xFF]++] = from[i];
        Item *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != items) memcpy(items, from, (size_t)count * sizeof(Item));
}

/* How many bytes from `depth` on all of these keys have in common. */
static int64_t in_common(const Key *keys, const Item *items, int64_t count, int64_t depth) {
    const Key *one = &keys[items[0].row];
    int64_t common = one->size - depth;
    for (int64_t i = 1; i < count && common > 0; i++) {
        const Key *other = &keys[items[i].row];
        int64_t most = other->size - depth < common ? other->size - depth : common, equal = 0;
        if (most == common && memcmp(one->at + depth, other->at + depth, (size_t)most) == 0) continue;
        while (equal < most && one->at[depth + equal] == other->at[depth + equal]) equal++;
        common = equal;
    }
    return common;
}

/* The eight bytes of a key from `depth` on, zeros behind its end. */
static uint64_t word_of(const Key *key, int64_t depth) {
    uint8_t bytes[8] = {0};
    uint64_t word = 0;
    int64_t left = key->size - depth;
    memcpy(bytes, key->at + depth, (size_t)(left < 8 ? left : 8));
    for (int i = 0; i < 8; i++) word = word << 8 | bytes[i];
    return word;
}

static int wait_for(Sorting *all, int64_t first, int64_t count, int64_t depth) {
    if (all->waiting == all->room) {
        int64_t room = all->room ? all->room * 2 : 64;
        Run *grown = PyMem_RawRealloc(all->runs, (size_t)room * sizeof(Run));
        if (grown == NULL) return 0;
        all->runs = grown;
        all->room = room;
    }
    all->runs[all->waiting++] = (Run){first, first + count, depth};
    return 1;
}

/* Where the items with the word of the first of them end. */
static int64_t equal_words(const Item *items, int64_t count) {
    int64_t behind = 1;
    while (behind < count && items[behind].word == items[0].word) behind++;
    return behind;
}

/* Items with equal words: keys that end in the word come first, shorter ones before longer ones; the others wait. 0 if there is no memory. */
static int same_word(Sorting *all, Item *items, int64_t count, int64_t depth) {
    for (int64_t i = 0; i < count; i++) {
        int64_t left = all->keys[items[i].row].size - depth;
        items[i].word = (uint64_t)(left < GOES_ON ? left : GOES_ON);
    }
    by_word(items, all->spare, count);
    for (int64_t i = 0, behind; i < count; i = behind) {
        behind = i + equal_words(items + i, count - i);
        if (items[i].word == GOES_ON) {
            if (behind - i > 1 && !wait_for(all, items + i - all->items, behind - i, depth + 8)) return 0;
        } else {
            for (int64_t before = i; before < behind - 1; before++) items[before].row = -1;
        }
    }
    return 1;
}

/* 1, or 0 if there is no memory. */
static int sort_all(Sorting *all, int64_t count) {
    if (count > 1 && !wait_for(all, 0, count, 0)) return 0;
    while (all->waiting) {
        Run run = all->runs[--all->waiting];
        Item *items = all->items + run.first;
        int64_t size = run.behind - run.first, depth = run.depth + in_common(all->keys, items, size, run.depth);
        for (int64_t i = 0; i < size; i++) items[i].word = word_of(&all->keys[items[i].row], depth);
        by_word(items, all->spare, size);
        for (int64_t i = 0, behind; i < size; i = behind) {
            behind = i + equal_words(items + i, size - i);
            if (behind - i > 1 && !same_word(all, items + i, behind - i, depth)) return 0;
        }
    }
    return 1;
}

/* The rows that are left. */
static PyObject *rows_left(const Item *items, int64_t count) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) left += items[i].row >= 0;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)left * 8);
    char *to = made != NULL ? PyBytes_AS_STRING(made) : NULL;
    for (int64_t i = 0; made != NULL && i < count; i++) {
        if (items[i].row < 0) continue;
        memcpy(to, &items[i].row, 8);
        to += 8;
    }
    return made;
}

/* latest(data, starts, sizes) -> the index of the last record of each key, in the order of the keys; null is the empty key */
static PyObject *latest_of(PyObject *Py_UNUSED(self), PyObject *spans) {
    Part part;
    int64_t count = -1, size;
    int sorted = 1;
    Key *keys = NULL;
    Sorting all = {0};
    PyObject *out = NULL;
    if (part_of(spans, &part, &count) < 0) goto done;
    if (count < 0) {
        PyErr_SetString(PyExc_TypeError, "spans are wanted");
        goto done;
    }
    keys = PyMem_RawMalloc((size_t)count * sizeof(Key) + 1);
    all.items = PyMem_RawMalloc((size_t)count * sizeof(Item) + 1);
    all.spare = PyMem_RawMalloc((size_t)count * sizeof(Item) + 1);
    all.keys = keys;
    if (keys == NULL || all.items == NULL || all.spare == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (int64_t row = 0; row < count; row++) {
        if (!bytes_at(&part, row, &keys[row].at, &size)) {
            PyErr_SetString(PyExc_ValueError, "a key lies outside of its buffer");
            goto done;
        }
        keys[row].size = size < 0 ? 0 : size;
        if (size < 0) keys[row].at = part.data.buf; /* wherever it is said to lie */
        all.items[row].row = row;
    }
    Py_BEGIN_ALLOW_THREADS
    sorted = sort_all(&all, count);
    Py_END_ALLOW_THREADS
    if (sorted) out = rows_left(all.items, count);
    else PyErr_NoMemory();
done:
    PyMem_RawFree(keys);
    PyMem_RawFree(all.items);
    PyMem_RawFree(all.spare);
    PyMem_RawFree(all.runs);
    leave_part(&part);
    return out;
}

PyMethodDef latest_methods[] = {
    {"latest", latest_of, METH_VARARGS, "The last record of each key, in the order of the keys."},
    {NULL, NULL, 0, NULL},
};
