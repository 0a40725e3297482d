/* The parts of the compiled module: columns.c makes it, and adds the functions of the others. */
#ifndef HEADGATE_COMPILED_H
#define HEADGATE_COMPILED_H
#include <Python.h>
#include <stdint.h>

extern PyMethodDef avro_read_methods[], avro_write_methods[], proto_read_methods[], heads_methods[];
extern PyMethodDef json_read_methods[], json_write_methods[], longs_methods[], spans_methods[], unpack_methods[], expressions_methods[];
extern PyMethodDef take_methods[], leaving_methods[], window_rows_methods[], session_runs_methods[];
uint32_t crc32c_of(const uint8_t *at, size_t size);
uint32_t murmur2(const uint8_t *at, Py_ssize_t size); /* Kafka's hash of keys */
extern PyMethodDef arrow_give_methods[], arrow_take_methods[], lists_methods[], latest_methods[], spread_methods[], base64_methods[];
void fill_base64(void);
int add_groups(PyObject *module), add_memory(PyObject *module), add_matching(PyObject *module); /* 0, or -1 with an exception */
#endif
