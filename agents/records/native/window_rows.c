/* Which windows of a fixed length rows belong to. window_rows.py says what is promised; core/windows/spans.py has the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "vector_view.h"

#define LIMIT ((int64_t)1 << 62) /* TIME_LIMIT of limits.py */

typedef struct {
    int64_t end, count;
    char *to; /* where the next row of this window is written */
    PyObject *rows;
} Group;

typedef struct {
    Group *groups;
    uint32_t *slots; /* group + 1, or 0; a power of two of them */
    int64_t count, room, slot_count;
} Groups;

static inline uint64_t place_of(const Groups *found, int64_t end) {
    uint64_t hash = (uint64_t)end * 0x9E3779B97F4A7C15ull;
    return (hash ^ hash >> 32) & (uint64_t)(found->slot_count - 1);
}

static int more_room(Groups *found) {
    int64_t room = found->room ? found->room * 2 : 32;
    Group *groups = PyMem_Realloc(found->groups, (size_t)room * sizeof(Group));
    if (groups == NULL) return 0;
    found->groups = groups;
    uint32_t *slots = PyMem_Calloc((size_t)room * 2, sizeof(uint32_t));
    if (slots == NULL) return 0;
    PyMem_Free(found->slots);
    found->slots = slots;
    found->slot_count = room * 2;
    found->room = room;
    for (int64_t number = 0; number < found->count; number++) {
        uint64_t at = place_of(found, found->groups[number].end);
        while (slots[at]) at = (at + 1) & (uint64_t)(found->slot_count - 1);
        slots[at] = (uint32_t)number + 1;
    }
    return 1;
}

/* The group of the window with this end, which is added if it is new; -1 if there is no memory. */
static int64_t group_of(Groups *found, int64_t end) {
    if (found->count == found->room && !more_room(found)) return -1;
    uint64_t at = place_of(found, end);
    for (; found->slots[at]; at = (at + 1) & (uint64_t)(found->slot_count - 1))
        if (found->groups[found->slots[at] - 1].end == end) return (int64_t)found->slots[at] - 1;
    found->groups[found->count] = (Group){.end = end};
    found->slots[at] = (uint32_t)++found->count;
    return found->count - 1;
}

/* The groups of one row, in `into`, at most `most` of them: how many, and at least one. -1 if there is no memory. `size` 0: the time is the
 * end. Otherwise all of them are below LIMIT, so that no end leaves 64 bits. */
static int64_t windows_of(Groups *found, int64_t time, int64_t size, int64_t every, int64_t offset, uint32_t *into) {
    int64_t count = 0, group;
    if (!size) {
        if ((group = group_of(found, time)) < 0) return -1;
        into[0] = (uint32_t)group;
        return 1;
    }
    int64_t over = (time - offset) % every, start = time - (over < 0 ? over + every : over);
    for (int64_t length = size; length > 0; length -= every) {
        int64_t end = start + length;
        if (end <= time) break; /* the last one may be shorter than a pane */
        if ((group = group_of(found, end)) < 0) return -1;
        into[count++] = (uint32_t)group;
    }
    return count;
}

typedef struct {
    Py_buffer times, rows;
    int64_t count, size, every, offset, closed, most;
} Given;

static inline int64_t row_at(const Given *given, int64_t index) {
    return given->rows.obj == NULL ? index : long_at(given->rows.buf, index);
}

enum { NO_ROOM = -1, NO_TIME = -2 };

/* Fills in `into` (the groups of each row) and `late` (1 where no window of a row is open). How many are late, NO_ROOM or NO_TIME. */
static int64_t assign(const Given *given, Groups *found, uint32_t *into, uint32_t *lengths, uint8_t *late, int64_t *partly) {
    int64_t before = 0, known = -1, late_count = 0;
    int64_t from = 1, until = 0; /* the times that have the windows of the row before */
    for (int64_t index = 0; index < given->count; index++) {
        int64_t time = long_at(given->times.buf, row_at(given, index));
        uint32_t *mine = into + index * given->most;
        if (index && given->size == given->every && given->size && time >= from && time < until) {
            mine[0] = into[before * given->most];
            known = 1;
        } else {
            if (given->size && (time <= -LIMIT || time >= LIMIT)) return NO_TIME;
            known = windows_of(found, time, given->size, given->every, given->offset, mine);
            if (known < 0) return NO_ROOM;
            if (given->size == given->every && given->size) {
                until = found->groups[mine[0]].end;
                from = until - given->size;
            }
        }
        before = index;
        lengths[index] = (uint32_t)known;
        int64_t open = 0;
        for (int64_t at = 0; at < known; at++) {
            Group *group = &found->groups[mine[at]];
            group->count++;
            open += group->end > given->closed;
        }
        late[index] = open == 0;
        late_count += open == 0;
        *partly += open > 0 && open < known;
    }
    return late_count;
}

/* [(end, rows or None)], the late rows or None, partly */
static PyObject *listed(const Given *given, Groups *found, const uint32_t *into, const uint32_t *lengths, const uint8_t *late,
                        int64_t late_count, int64_t partly) {
    PyObject *open = PyList_New(0), *late_rows = NULL, *made = NULL;
    if (open == NULL) return NULL;
    for (int64_t number = 0; number < found->count; number++) {
        Group *group = &found->groups[number];
        if (group->end <= given->closed || group->count == given->count) continue;
        if ((group->rows = PyBytes_FromStringAndSize(NULL, group->count * 8)) == NULL) goto done;
        group->to = PyBytes_AS_STRING(group->rows);
    }
    char *late_to = NULL;
    if (late_count) {
        if ((late_rows = PyBytes_FromStringAndSize(NULL, late_count * 8)) == NULL) goto done;
        late_to = PyBytes_AS_STRING(late_rows);
    }
    for (int64_t index = 0; index < given->count; index++) {
        int64_t row = row_at(given, index);
        for (uint32_t at = 0; at < lengths[index]; at++) {
            Group *group = &found->groups[into[index * given->most + at]];
            if (group->to != NULL) memcpy(group->to, &row, 8), group->to += 8;
        }
        if (late[index]) memcpy(late_to, &row, 8), late_to += 8;
    }
    for (int64_t number = 0; number < found->count; number++) {
        Group *group = &found->groups[number];
        if (group->end <= given->closed) continue;
        PyObject *pair = Py_BuildValue("(LO)", (long long)group->end, group->rows == NULL ? Py_None : group->rows);
        if (pair == NULL || PyList_Append(open, pair) < 0) {
            Py_XDECREF(pair);
            goto done;
        }
        Py_DECREF(pair);
    }
    made = Py_BuildValue("(OOL)", open, late_rows == NULL ? Py_None : late_rows, (long long)partly);
done:
    Py_DECREF(open);
    Py_XDECREF(late_rows);
    return made;
}

/* window_rows(times, rows or None, size, every, offset, closed) */
static PyObject *window_rows(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *times, *rows, *made = NULL;
    Given given = {0};
    Groups found = {0};
    uint32_t *into = NULL, *lengths = NULL;
    uint8_t *late = NULL;
    long long size, every, offset, closed;
    if (!PyArg_ParseTuple(args, "OOLLLL", &times, &rows, &size, &every, &offset, &closed)) return NULL;
    given.size = size, given.every = every, given.offset = offset, given.closed = closed;
    if (view_of(times, &given.times) < 0 || view_of(rows, &given.rows) < 0) goto done;
    int64_t length = given.times.len / 8;
    given.count = given.rows.obj == NULL ? length : given.rows.len / 8;
    if (size < 0 || (size && (every < 1 || every > size || size >= LIMIT / 2 || offset <= -LIMIT / 2 || offset >= LIMIT / 2))) {
        PyErr_SetString(PyExc_ValueError, "no such windows");
        goto done;
    }
    given.most = size ? size / every + (size % every != 0) : 1;
    for (int64_t index = 0; given.rows.obj != NULL && index < given.count; index++) {
        int64_t row = long_at(given.rows.buf, index);
        if (row < 0 || row >= length) {
            PyErr_SetString(PyExc_ValueError, "no such row");
            goto done;
        }
    }
    size_t room = given.count ? (size_t)given.count : 1;
    if ((size_t)given.most > SIZE_MAX / sizeof(uint32_t) / room) {
        PyErr_NoMemory();
        goto done;
    }
    into = PyMem_Malloc(room * (size_t)given.most * sizeof(uint32_t));
    lengths = PyMem_Malloc(room * sizeof(uint32_t));
    late = PyMem_Malloc(room);
    int64_t partly = 0, late_count = NO_ROOM;
    if (into != NULL && lengths != NULL && late != NULL) late_count = assign(&given, &found, into, lengths, late, &partly);
    if (late_count == NO_ROOM) PyErr_NoMemory();
    else if (late_count == NO_TIME) PyErr_SetString(PyExc_ValueError, "no such time");
    else made = listed(&given, &found, into, lengths, late, late_count, partly);
done:
    for (int64_t number = 0; number < found.count; number++) Py_XDECREF(found.groups[number].rows);
    PyMem_Free(found.groups);
    PyMem_Free(found.slots);
    PyMem_Free(into);
    PyMem_Free(lengths);
    PyMem_Free(late);
    leave(&given.times);
    leave(&given.rows);
    return made;
}

PyMethodDef window_rows_methods[] = {{"window_rows", window_rows, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
