/* Which rows of a chunk are near enough to be of one session. session_runs.py says what is promised; plain/windows.py has the same in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdlib.h>

#include "compiled.h"
#include "vector_view.h"

#define LIMIT ((int64_t)1 << 62) /* TIME_LIMIT of limits.py */

typedef struct {
    int64_t number, time, place;
} Row;

typedef struct {
    int64_t number, first, last, begin; /* `begin`: the time of the row that came first */
    int64_t low, high;                  /* of the rows that have been looked at, in the order in which they came */
    int seen, broken;
} Run;

static int in_order(const void *one, const void *other) {
    const Row *a = one, *b = other;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

/* Cut sorted rows into runs; `of` gets the run of each place. How many there are. */
static int64_t cut(const Row *rows, int64_t count, int64_t gap, Run *runs, int64_t *of) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const Row *row = &rows[i];
        if (!i || row->number != runs[found - 1].number || row->time - runs[found - 1].last > gap)
            runs[found++] = (Run){.number = row->number, .first = row->time};
        runs[found - 1].last = row->time;
        of[row->place] = found - 1;
    }
    return found;
}

static PyObject *column(const Run *runs, int64_t count, size_t field) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count * 8);
    for (int64_t i = 0; made != NULL && i < count; i++) memcpy(PyBytes_AS_STRING(made) + i * 8, (const char *)&runs[i] + field, 8);
    return made;
}

static PyObject *given_back(const Run *runs, int64_t found, const int64_t *of, int64_t count) {
    PyObject *broken = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)found);
    for (int64_t i = 0; broken != NULL && i < found; i++) PyBytes_AS_STRING(broken)[i] = (char)runs[i].broken;
    PyObject *of_rows = PyBytes_FromStringAndSize((const char *)of, (Py_ssize_t)count * 8);
    return Py_BuildValue("(NNNNNN)", of_rows, column(runs, found, offsetof(Run, number)), column(runs, found, offsetof(Run, first)),
                         column(runs, found, offsetof(Run, last)), column(runs, found, offsetof(Run, begin)), broken);
}

/* session_runs(numbers, times, rows or None, gap) */
static PyObject *session_runs(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *numbers, *times, *rows, *made = NULL;
    Py_buffer of_numbers = {0}, of_times = {0}, of_rows = {0};
    Row *sorted = NULL;
    Run *runs = NULL;
    int64_t *of = NULL;
    long long gap;
    if (!PyArg_ParseTuple(args, "OOOL", &numbers, &times, &rows, &gap)) return NULL;
    if (view_of(numbers, &of_numbers) < 0 || view_of(times, &of_times) < 0 || view_of(rows, &of_rows) < 0) goto done;
    int64_t length = of_times.len / 8, count = of_rows.obj == NULL ? length : of_rows.len / 8;
    if (of_numbers.len / 8 != count || gap < 0 || gap >= LIMIT) {
        PyErr_SetString(PyExc_ValueError, "no such sessions");
        goto done;
    }
    size_t room = count ? (size_t)count : 1;
    sorted = PyMem_Malloc(room * sizeof(Row));
    runs = PyMem_Malloc(room * sizeof(Run));
    of = PyMem_Malloc(room * sizeof(int64_t));
    if (sorted == NULL || runs == NULL || of == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int ascending = 1;
    for (int64_t place = 0; place < count; place++) {
        int64_t row = of_rows.obj == NULL ? place : long_at(of_rows.buf, place);
        if (row < 0 || row >= length) {
            PyErr_SetString(PyExc_ValueError, "no such row");
            goto done;
        }
        sorted[place] = (Row){long_at(of_numbers.buf, place), long_at(of_times.buf, row), place};
        if (sorted[place].time <= -LIMIT || sorted[place].time >= LIMIT) {
            PyErr_SetString(PyExc_ValueError, "no such time");
            goto done;
        }
        if (place && in_order(&sorted[place - 1], &sorted[place]) > 0) ascending = 0;
    }
    if (!ascending) qsort(sorted, (size_t)count, sizeof(Row), in_order);
    int64_t found = cut(sorted, count, gap, runs, of);
    for (int64_t place = 0; place < count; place++) { /* in the order in which the rows came */
        Run *run = &runs[of[place]];
        int64_t time = long_at(of_times.buf, of_rows.obj == NULL ? place : long_at(of_rows.buf, place));
        if (!run->seen) run->begin = run->low = run->high = time;
        run->seen = 1;
        if (time < run->low - gap || time > run->high + gap) run->broken = 1;
        if (time < run->low) run->low = time;
        if (time > run->high) run->high = time;
    }
    made = given_back(runs, found, of, count);
done:
    PyMem_Free(sorted);
    PyMem_Free(runs);
    PyMem_Free(of);
    leave(&of_numbers);
    leave(&of_times);
    leave(&of_rows);
    return made;
}

PyMethodDef session_runs_methods[] = {
    {"session_runs", session_runs, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
