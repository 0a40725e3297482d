/* Vectors as lists of Python objects, for steps that work in rows. vectors.py says what is promised. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "vector_view.h"

static PyObject *value_at(const VectorView *view, int64_t row) {
    const uint8_t *at;
    int64_t size;
    if (!is_valid(view, row)) return Py_NewRef(Py_None);
    switch (view->kind) {
    case INT64: return PyLong_FromLongLong(long_at(view->data.buf, row));
    case FLOAT64: return PyFloat_FromDouble(double_at(view->data.buf, row));
    case BOOL: return PyBool_FromLong(bit_at(view->data.buf, row));
    default:
        if (text_at(view, row, &at, &size)) return PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
        PyErr_SetString(PyExc_ValueError, "a text lies outside of its column");
        return NULL;
    }
}

/* values(vector, length) -> list */
static PyObject *lists_values(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *tuple, *list = NULL;
    Py_ssize_t length;
    VectorView view;
    if (!PyArg_ParseTuple(args, "On", &tuple, &length)) return NULL;
    if (length < 0) {
        PyErr_SetString(PyExc_ValueError, "no such vector");
        return NULL;
    }
    if (vector_of(tuple, length, &view) == 0) {
        if (view.kind <= TEXT) list = PyList_New(length);
        else PyErr_SetString(PyExc_ValueError, "no such vector");
    }
    for (Py_ssize_t row = 0; list != NULL && row < length; row++) {
        PyObject *one = value_at(&view, row);
        if (one == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, row, one);
    }
    leave_vector(&view);
    return list;
}

/* dicts(names, [a list for each], how many) -> a dict for each place in these lists */
static PyObject *lists_dicts(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *names, *columns, *list;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "O!O!n", &PyTuple_Type, &names, &PyList_Type, &columns, &length)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    int fits = length >= 0 && PyList_GET_SIZE(columns) == count;
    for (Py_ssize_t i = 0; fits && i < count; i++)
        fits = PyList_CheckExact(PyList_GET_ITEM(columns, i)) && PyList_GET_SIZE(PyList_GET_ITEM(columns, i)) == length;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "these are no columns of equal length");
        return NULL;
    }
    if ((list = PyList_New(length)) == NULL) return NULL;
    int collecting = PyGC_Disable(); /* collecting among thousands of new dicts costs more than making them */
    for (Py_ssize_t row = 0; row < length; row++) {
        PyObject *made = PyDict_New();
        for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
            PyObject *value = PyList_GET_ITEM(PyList_GET_ITEM(columns, i), row);
            if (PyDict_SetItem(made, PyTuple_GET_ITEM(names, i), value) < 0) Py_CLEAR(made);
        }
        if (made == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, row, made);
    }
    if (collecting) PyGC_Enable();
    return list;
}

PyMethodDef lists_methods[] = {
    {"values", lists_values, METH_VARARGS, "A vector as a list."},
    {"dicts", lists_dicts, METH_VARARGS, "Lists as a list of dicts."},
    {NULL, NULL, 0, NULL},
};
