/* Vectors as capsules of Arrow's C data interface. vectors.py says what is promised.

   A consumer may release a structure, or move its children out, in any order, on any thread, and while an exception is being raised. So
   each array holds the memory of its own buffers, and a release restores the exception that it found. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"
#include "vector_view.h"

#include "arrow.h"

static const char *const FORMATS[] = {"l", "g", "b", "u"};

typedef struct { /* what an exported array points to */
    Py_buffer views[3];
    const void *buffers[3];
    struct ArrowArray **pointers, *children;
} Held;

static void release_array(struct ArrowArray *array) {
    Held *held = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release != NULL) array->children[i]->release(array->children[i]);
    array->release = NULL;
    if (held->views[0].obj != NULL || held->views[1].obj != NULL || held->views[2].obj != NULL) {
        if (!Py_IsInitialized()) return; /* the interpreter has ended, and its memory with it */
        PyGILState_STATE state = PyGILState_Ensure();
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        for (int i = 0; i < 3; i++) leave(&held->views[i]);
        PyErr_Restore(type, value, trace);
        PyGILState_Release(state);
    }
    PyMem_RawFree(held->pointers);
    PyMem_RawFree(held->children);
    PyMem_RawFree(held);
}

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++)
        if (schema->children[i]->release != NULL) schema->children[i]->release(schema->children[i]);
    schema->release = NULL;
    PyMem_RawFree((void *)schema->name);
    PyMem_RawFree(schema->private_data);
}

/* A foreign release may run Python, which must not meet an exception that is being raised. */
static void destroy_schema(PyObject *capsule) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL) schema->release(schema);
    PyMem_RawFree(schema);
    PyErr_Restore(type, value, trace);
}

static void destroy_array(PyObject *capsule) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release != NULL) array->release(array);
    PyMem_RawFree(array);
    PyErr_Restore(type, value, trace);
}

PyObject *schema_capsule(struct ArrowSchema *schema) {
    PyObject *made = PyCapsule_New(schema, "arrow_schema", destroy_schema);
    if (made == NULL) {
        if (schema->release != NULL) schema->release(schema);
        PyMem_RawFree(schema);
    }
    return made;
}

PyObject *array_capsule(struct ArrowArray *array) {
    PyObject *made = PyCapsule_New(array, "arrow_array", destroy_array);
    if (made == NULL) {
        if (array->release != NULL) array->release(array);
        PyMem_RawFree(array);
    }
    return made;
}

/* Makes a schema that must be released. 0, or -1 with an exception. */
static int make_schema(struct ArrowSchema *made, const char *format, const char *name, int64_t children, int64_t flags) {
    memset(made, 0, sizeof *made);
    char *own = PyMem_RawMalloc(strlen(name) + 1);
    char *block = PyMem_RawCalloc((size_t)children + 1, sizeof(struct ArrowSchema *) + sizeof(struct ArrowSchema));
    if (own == NULL || block == NULL) {
        PyMem_RawFree(own);
        PyMem_RawFree(block);
        PyErr_NoMemory();
        return -1;
    }
    strcpy(own, name);
    struct ArrowSchema *parts = (struct ArrowSchema *)block;
    made->children = (struct ArrowSchema **)(block + ((size_t)children + 1) * sizeof(struct ArrowSchema));
    for (int64_t i = 0; i < children; i++) made->children[i] = &parts[i];
    made->format = format;
    made->name = own;
    made->flags = flags;
    made->n_children = children;
    made->private_data = block;
    made->release = release_schema;
    return 0;
}

/* Makes an array that must be released. 0, or -1 with an exception. */
static int make_array(struct ArrowArray *made, int64_t length, int64_t nulls, int64_t buffers, int64_t children) {
    memset(made, 0, sizeof *made);
    Held *held = PyMem_RawCalloc(1, sizeof(Held));
    if (held != NULL) {
        held->pointers = PyMem_RawCalloc((size_t)children + 1, sizeof(struct ArrowArray *));
        held->children = PyMem_RawCalloc((size_t)children + 1, sizeof(struct ArrowArray));
    }
    if (held == NULL || held->pointers == NULL || held->children == NULL) {
        if (held != NULL) {
            PyMem_RawFree(held->pointers);
            PyMem_RawFree(held->children);
        }
        PyMem_RawFree(held);
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t i = 0; i < children; i++) held->pointers[i] = &held->children[i];
    made->length = length;
    made->null_count = nulls;
    made->n_buffers = buffers;
    made->n_children = children;
    made->buffers = held->buffers;
    made->children = held->pointers;
    made->private_data = held;
    made->release = release_array;
    return 0;
}

/* An array of a vector, which keeps the memory of the vector. 0, or -1 with an exception. */
static int array_of(PyObject *tuple, int64_t length, int64_t nulls, struct ArrowArray *made) {
    static const char nothing[8];
    VectorView view;
    if (make_array(made, length, nulls, 0, 0) < 0) return -1;
    if (vector_of(tuple, length, &view) < 0) {
        leave_vector(&view);
        return -1;
    }
    if (view.kind > TEXT) {
        leave_vector(&view);
        PyErr_SetString(PyExc_ValueError, "a vector of this kind has no type in Arrow");
        return -1;
    }
    Held *held = made->private_data;
    Py_buffer *order[] = {&view.validity, view.kind == TEXT ? &view.offsets : &view.data, &view.data};
    made->n_buffers = view.kind == TEXT ? 3 : 2;
    for (int i = 0; i < made->n_buffers; i++) {
        held->views[i] = *order[i];
        held->buffers[i] = order[i]->obj == NULL ? NULL : order[i]->len ? order[i]->buf : nothing;
    }
    if (view.kind != TEXT) leave(&view.offsets);
    return 0;
}

/* give(name or None, [(name, (kind, data, offsets, validity), nulls)], length) -> (schema, array): of a frame, or with a name of the column of
   that name alone */
static PyObject *arrow_give(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *list, *schema_made = NULL, *array_made = NULL;
    long long length;
    int alone;
    if (!PyArg_ParseTuple(args, "pO!L", &alone, &PyList_Type, &list, &length)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (length < 0 || (alone && count != 1)) {
        PyErr_SetString(PyExc_ValueError, "no such vectors");
        return NULL;
    }
    struct ArrowSchema *schema = PyMem_RawCalloc(1, sizeof *schema);
    struct ArrowArray *array = PyMem_RawCalloc(1, sizeof *array);
    if (schema == NULL || array == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    if (!alone) {
        if (make_schema(schema, "+s", "", count, 0) < 0) goto failed;
        if (make_array(array, length, 0, 1, count) < 0) goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tuple = PyList_GET_ITEM(list, i), *vector;
        const char *name;
        long long nulls;
        if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "sOL", &name, &vector, &nulls)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a vector is wanted");
            goto failed;
        }
        struct ArrowArray *column = alone ? array : array->children[i];
        if (array_of(vector, length, nulls, column) < 0) goto failed;
        int kind = (int)PyLong_AsLong(PyTuple_GET_ITEM(vector, 0));
        if (make_schema(alone ? schema : schema->children[i], FORMATS[kind], name, 0, ARROW_FLAG_NULLABLE) < 0) goto failed;
    }
    schema_made = schema_capsule(schema);
    schema = NULL;
    if (schema_made == NULL) goto failed;
    array_made = array_capsule(array);
    array = NULL;
    if (array_made == NULL) goto failed;
    return Py_BuildValue("NN", schema_made, array_made);
failed:
    if (schema != NULL && schema->release != NULL) schema->release(schema);
    if (array != NULL && array->release != NULL) array->release(array);
    PyMem_RawFree(schema);
    PyMem_RawFree(array);
    Py_XDECREF(schema_made);
    return NULL;
}

PyMethodDef arrow_give_methods[] = {
    {"arrow_give", arrow_give, METH_VARARGS, "Vectors as capsules."},
    {NULL, NULL, 0, NULL},
};
