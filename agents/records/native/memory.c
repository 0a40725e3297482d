/* Memory for large pieces of bytes that come and go. memory.py says what is promised. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "compiled.h"

enum { KEPT = 8, UNIT = 64 << 10 };
static const size_t KEPT_BYTES = 4u << 20;

typedef struct { /* its bytes are exported to views, which keep it alive */
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t size;
    size_t room;
} Block;

/* Blocks that no one has any more, the last one last: its pages and what the caches have of it are there. Guarded by the GIL. */
static struct { uint8_t *bytes; size_t room; } kept[KEPT];
static size_t kept_count, kept_bytes;

static uint8_t *take_kept(size_t wanted, size_t *room) {
    for (size_t i = kept_count; i-- > 0;) {
        if (kept[i].room < wanted || kept[i].room / 2 > wanted) continue;
        uint8_t *bytes = kept[i].bytes;
        *room = kept[i].room;
        kept_bytes -= *room;
        kept_count--;
        memmove(&kept[i], &kept[i + 1], (kept_count - i) * sizeof *kept);
        return bytes;
    }
    return NULL;
}

static void keep(uint8_t *bytes, size_t room) {
    if (bytes == NULL || room > KEPT_BYTES) {
        PyMem_RawFree(bytes);
        return;
    }
    while (kept_count == KEPT || kept_bytes + room > KEPT_BYTES) { /* the oldest gives way */
        kept_bytes -= kept[0].room;
        PyMem_RawFree(kept[0].bytes);
        kept_count--;
        memmove(&kept[0], &kept[1], kept_count * sizeof *kept);
    }
    kept[kept_count].bytes = bytes;
    kept[kept_count++].room = room;
    kept_bytes += room;
}

static int block_view(Block *self, Py_buffer *view, int flags) {
    return PyBuffer_FillInfo(view, (PyObject *)self, self->bytes, self->size, 0, flags);
}

static void block_dealloc(Block *self) {
    keep(self->bytes, self->room);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyBufferProcs block_buffer = {(getbufferproc)block_view, NULL};
static PyTypeObject block_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headgate.agents.records.native._columns.Block",
    .tp_basicsize = sizeof(Block),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)block_dealloc,
    .tp_as_buffer = &block_buffer,
};

/* fresh(size) -> a writable view of so many bytes, whatever is in them */
static PyObject *memory_fresh(PyObject *Py_UNUSED(self), PyObject *wanted) {
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size == -1 && PyErr_Occurred()) return NULL;
    if (size < 0 || size > PY_SSIZE_T_MAX - UNIT) return PyErr_Format(PyExc_ValueError, "no size of memory: %zd", size);
    Block *made = PyObject_New(Block, &block_type);
    if (made == NULL) return NULL;
    made->size = size;
    made->room = ((size_t)size / UNIT + 1) * UNIT;
    made->bytes = take_kept((size_t)size, &made->room);
    if (made->bytes == NULL) made->bytes = PyMem_RawMalloc(made->room);
    PyObject *view = made->bytes == NULL ? PyErr_NoMemory() : PyMemoryView_FromObject((PyObject *)made);
    Py_DECREF(made);
    return view;
}

static PyMethodDef memory_methods[] = {
    {"fresh", memory_fresh, METH_O, "Memory for so many bytes."},
    {NULL, NULL, 0, NULL},
};

int add_memory(PyObject *module) {
    return PyType_Ready(&block_type) < 0 ? -1 : PyModule_AddFunctions(module, memory_methods);
}
