/* Computes expressions over vectors: a typed program in postfix order, run over blocks of the selected rows. expressions.py makes the
 * programs; core/columns/evaluate.py says what they give. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>

#include "compiled.h"
#include "functions.h"
#include "vector_view.h"

#define BLOCK 512
#define NAME "headgate program"
#define SHOWN 24 /* the digits of a whole number, and its sign */

enum { NONE = -1, ANY = -2 };
/* The order is that of `_CODES` in expressions.py. */
enum {
    LOAD, WHOLE, REAL, FLAG, LETTERS, TO_FLOAT,
    ADD_INT, SUBTRACT_INT, MULTIPLY_INT, FLOOR_DIVIDE, MODULO, NEGATIVE_INT, FLOOR,
    ADD_FLOAT, SUBTRACT_FLOAT, MULTIPLY_FLOAT, DIVIDE, NEGATIVE_FLOAT,
    EQUAL_INT, UNEQUAL_INT, LESS_INT, AT_MOST_INT, MORE_INT, AT_LEAST_INT,
    EQUAL_FLOAT, UNEQUAL_FLOAT, LESS_FLOAT, AT_MOST_FLOAT, MORE_FLOAT, AT_LEAST_FLOAT,
    EQUAL_TEXT, UNEQUAL_TEXT, LESS_TEXT, AT_MOST_TEXT, MORE_TEXT, AT_LEAST_TEXT,
    EQUAL_BOOL, UNEQUAL_BOOL, AND, OR, NOT, IS_NULL,
    IN_INT, IN_FLOAT, IN_TEXT, STARTS_WITH, CONTAINS,
    FLOAT_TO_INT, BOOL_TO_INT, BOOL_TO_FLOAT, INT_TO_TEXT, BOOL_TO_TEXT, TEXT_TO_INT, TEXT_TO_BOOL,
    LENGTH, STRIP, SLICE, SPLIT,
    ABS_INT, ABS_FLOAT, ROUND, LEAST_INT, LEAST_FLOAT, LEAST_TEXT, GREATEST_INT, GREATEST_FLOAT, GREATEST_TEXT,
    HASH_INT, HASH_FLOAT, HASH_BOOL, HASH_TEXT, TIME_PART, READ_TIME, WRITE_TIME,
    THEN, ELSE, CHOOSE, CHOOSE_OR_NULL, OTHERS, COALESCE, CODES
};

typedef struct {
    int8_t operands, in, out;
} Signature;

static Signature signature_of(int code) {
    if (code == LOAD) return (Signature){0, NONE, ANY};
    if (code >= WHOLE && code <= LETTERS) return (Signature){0, NONE, (int8_t)(code - WHOLE)};
    if (code == TO_FLOAT) return (Signature){1, INT64, FLOAT64};
    if (code >= ADD_INT && code <= MODULO) return (Signature){2, INT64, INT64};
    if (code == NEGATIVE_INT || code == FLOOR) return (Signature){1, INT64, INT64};
    if (code >= ADD_FLOAT && code <= DIVIDE) return (Signature){2, FLOAT64, FLOAT64};
    if (code == NEGATIVE_FLOAT) return (Signature){1, FLOAT64, FLOAT64};
    if (code >= EQUAL_INT && code <= AT_LEAST_TEXT)
        return (Signature){2, (int8_t)(code <= AT_LEAST_INT ? INT64 : code <= AT_LEAST_FLOAT ? FLOAT64 : TEXT), BOOL};
    if (code >= EQUAL_BOOL && code <= OR) return (Signature){2, BOOL, BOOL};
    if (code == NOT) return (Signature){1, BOOL, BOOL};
    if (code == IS_NULL) return (Signature){1, ANY, BOOL};
    if (code == IN_INT || code == IN_FLOAT) return (Signature){1, (int8_t)(code == IN_INT ? INT64 : FLOAT64), BOOL};
    if (code >= IN_TEXT && code <= CONTAINS) return (Signature){1, TEXT, BOOL};
    if (code == FLOAT_TO_INT) return (Signature){1, FLOAT64, INT64};
    if (code == BOOL_TO_INT || code == BOOL_TO_FLOAT || code == BOOL_TO_TEXT)
        return (Signature){1, BOOL, (int8_t)(code == BOOL_TO_INT ? INT64 : code == BOOL_TO_FLOAT ? FLOAT64 : TEXT)};
    if (code == ABS_INT) return (Signature){1, INT64, INT64};
    if (code == ABS_FLOAT || code == ROUND) return (Signature){1, FLOAT64, FLOAT64};
    if (code >= LEAST_INT && code <= GREATEST_TEXT) {
        static const int8_t of[] = {INT64, FLOAT64, TEXT};
        return (Signature){2, of[(code - LEAST_INT) % 3], of[(code - LEAST_INT) % 3]};
    }
    if (code >= HASH_INT && code <= HASH_TEXT) return (Signature){1, (int8_t)(code - HASH_INT), INT64};
    if (code == TIME_PART) return (Signature){1, INT64, INT64};
    if (code == WRITE_TIME) return (Signature){1, INT64, TEXT};
    if (code == LENGTH || code == READ_TIME) return (Signature){1, TEXT, INT64};
    if (code >= STRIP && code <= SPLIT) return (Signature){1, TEXT, TEXT};
    if (code == INT_TO_TEXT) return (Signature){1, INT64, TEXT};
    return (Signature){1, TEXT, (int8_t)(code == TEXT_TO_INT ? INT64 : BOOL)};
}

typedef struct {
    int code, kind, operands; /* kind: of a loaded column */
    int64_t whole; /* a constant, or which column */
    double real;
    Letters text;
    const char *options; /* numbers in order, eight bytes each */
    Letters *texts; /* in order */
    int64_t count;
} Op;

typedef struct {
    Op *ops;
    PyObject *kept; /* what the ops point into */
    int64_t count;
    int depth, columns, kind; /* kind: of the result */
    int64_t room; /* for the texts that the ops make of a block */
} Program;

typedef struct {
    union {
        int64_t whole[BLOCK];
        double real[BLOCK];
        const uint8_t *text[BLOCK];
    } of;
    int64_t size[BLOCK];
    uint8_t flag[BLOCK], valid[BLOCK], outer[BLOCK]; /* outer: the rows that counted before a choice that this slot decides */
    char made[BLOCK][SHOWN];
    int nulls; /* otherwise `valid` says nothing */
} Slot;

static inline int valid_at(const Slot *slot, int i) { return !slot->nulls || slot->valid[i]; }

/* -------------------------------------------------------------------------------------------------------- programs */

static void free_program(PyObject *capsule) {
    Program *program = PyCapsule_GetPointer(capsule, NAME);
    if (program == NULL) return;
    for (int64_t i = 0; i < program->count; i++) PyMem_RawFree(program->ops[i].texts);
    PyMem_RawFree(program->ops);
    Py_XDECREF(program->kept);
    PyMem_RawFree(program);
}

/* The operand of an op: None, text, numbers side by side, or a tuple of texts. 0, or -1 with an exception. */
static int operand_of(PyObject *from, Op *op) {
    char *at;
    Py_ssize_t size;
    if (from == Py_None) return 0;
    if (PyBytes_Check(from)) {
        if (PyBytes_AsStringAndSize(from, &at, &size) < 0) return -1;
        op->text = (Letters){(const uint8_t *)at, size};
        op->options = at;
        if (op->code == IN_INT || op->code == IN_FLOAT) op->count = size / 8;
        return 0;
    }
    if (!PyTuple_Check(from)) {
        PyErr_SetString(PyExc_TypeError, "no operand");
        return -1;
    }
    op->count = PyTuple_GET_SIZE(from);
    op->texts = PyMem_RawCalloc((size_t)op->count + 1, sizeof(Letters));
    if (op->texts == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
    for (int64_t i = 0; i < op->count; i++) {
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(from, i), &at, &size) < 0) return -1;
        op->texts[i] = (Letters){(const uint8_t *)at, size};
    }
    return 0;
}

/* An op of a choice: the same as below. It learns of which type the choice is. */
static int check_choice(Op *op, int8_t *kinds, int64_t *depth) {
    int8_t *top = kinds + *depth;
    int operands = op->code == CHOOSE ? 3 : op->code == THEN || op->code == OTHERS ? 1 : 2;
    if (*depth < operands) return 0;
    if (op->code == THEN) return top[-1] == BOOL;
    if (op->code == ELSE) return top[-2] == BOOL;
    if (op->code == OTHERS) return 1;
    op->kind = top[-1];
    int fits = op->code == CHOOSE ? top[-3] == BOOL && top[-2] == op->kind : top[-2] == (op->code == COALESCE ? op->kind : BOOL);
    *depth -= operands - 1;
    kinds[*depth - 1] = (int8_t)op->kind;
    return fits;
}

/* Whether the ops fit each other: then no run needs to look. -1 with an exception if not. */
static int check_program(Program *program) {
    int8_t *kinds = PyMem_RawCalloc((size_t)program->count + 1, 1);
    int64_t depth = 0;
    int fits = 1;
    if (kinds == NULL) return PyErr_NoMemory() == NULL ? -1 : 0;
    for (int64_t i = 0; fits && i < program->count; i++) {
        Op *op = &program->ops[i];
        Signature of = signature_of(op->code);
        op->operands = of.operands;
        if (op->code >= THEN) {
            fits = check_choice(op, kinds, &depth);
            continue;
        }
        if (depth < of.operands) fits = 0;
        for (int k = 1; fits && k <= of.operands; k++) fits = of.in == ANY || kinds[depth - k] == of.in;
        if (op->code == LOAD) fits = op->whole >= 0 && op->whole < program->columns && op->kind >= INT64 && op->kind <= TEXT;
        if (op->code == FLOOR) fits = fits && op->whole > 0;
        if (op->code == LETTERS || op->code == STARTS_WITH || op->code == CONTAINS) fits = fits && op->text.at != NULL;
        if (op->code == IN_INT || op->code == IN_FLOAT) fits = fits && op->options != NULL;
        if (op->code == STRIP || op->code == SPLIT) fits = fits && op->text.size > 0;
        if (op->code == READ_TIME || op->code == WRITE_TIME) fits = fits && op->text.size > 0 && op->text.size < BLOCK;
        if (op->code == TIME_PART) fits = fits && op->whole >= 0 && op->whole < TIME_PARTS;
        if (fits && op->code == WRITE_TIME) {
            op->count = op->text.size * TIME_ROOM;
            op->whole = program->room;
            program->room += op->count * BLOCK;
        }
        if (op->code == SLICE) fits = fits && op->text.size == 16;
        if (op->code == IN_TEXT) fits = fits && op->texts != NULL;
        if (!fits) break;
        depth -= of.operands;
        kinds[depth++] = of.out == ANY ? (int8_t)op->kind : of.out;
        if (depth > program->depth) program->depth = (int)depth;
    }
    program->kind = depth == 1 ? kinds[0] : NONE;
    PyMem_RawFree(kinds);
    if (fits && depth == 1) return 0;
    PyErr_SetString(PyExc_ValueError, "no such program");
    return -1;
}

/* program([(code, kind, whole number, float, operand)], columns) -> a capsule */
static PyObject *expressions_program(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *list, *capsule;
    int columns;
    if (!PyArg_ParseTuple(args, "O!i", &PyList_Type, &list, &columns)) return NULL;
    Program *program = PyMem_RawCalloc(1, sizeof *program);
    if (program == NULL) return PyErr_NoMemory();
    if ((capsule = PyCapsule_New(program, NAME, free_program)) == NULL) {
        PyMem_RawFree(program);
        return NULL;
    }
    program->kept = PyList_GetSlice(list, 0, PyList_GET_SIZE(list));
    program->ops = PyMem_RawCalloc((size_t)PyList_GET_SIZE(list) + 1, sizeof(Op));
    program->columns = columns;
    if (program->ops == NULL) PyErr_NoMemory();
    if (program->kept == NULL || program->ops == NULL) goto failed;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(program->kept); i++) {
        PyObject *one = PyList_GET_ITEM(program->kept, i), *operand;
        Op *op = &program->ops[i];
        long long whole;
        program->count = i + 1;
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "iiLdO", &op->code, &op->kind, &whole, &op->real, &operand)) goto failed;
        op->whole = whole;
        if (op->code < 0 || op->code >= CODES || operand_of(operand, op) < 0) goto failed;
    }
    if (check_program(program) < 0) goto failed;
    return capsule;
failed:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such program");
    Py_DECREF(capsule);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- ops */

typedef struct {
    const VectorView *views;
    int64_t row[BLOCK]; /* the base rows of this block */
    int count, straight; /* straight: they follow each other */
    Slot *slots;
    uint8_t *made;
    int choices; /* how many choices are open; if there is one, `counts` says which rows it lets through, and no other can fail */
    uint8_t counts[BLOCK];
    int bad;  /* whether some row of the block has no value */
    int torn; /* the offsets of a text make no sense */
} Run;

/* Whether a row can fail for what is in this slot. */
static inline int may_fail(const Run *run, const Slot *slot, int i) { return valid_at(slot, i) && (!run->choices || run->counts[i]); }

static void load(Run *run, const Op *op, Slot *to) {
    const VectorView *view = &run->views[op->whole];
    to->nulls = view->validity.obj != NULL;
    for (int i = 0; to->nulls && i < run->count; i++) to->valid[i] = (uint8_t)bit_at(view->validity.buf, run->row[i]);
    if (op->kind == INT64 || op->kind == FLOAT64) {
        if (run->straight) memcpy(to->of.whole, (const char *)view->data.buf + run->row[0] * 8, (size_t)run->count * 8);
        else
            for (int i = 0; i < run->count; i++) to->of.whole[i] = long_at(view->data.buf, run->row[i]);
    } else if (op->kind == BOOL) {
        for (int i = 0; i < run->count; i++) to->flag[i] = (uint8_t)bit_at(view->data.buf, run->row[i]);
    } else {
        for (int i = 0; i < run->count; i++) {
            to->size[i] = 0;
            to->of.text[i] = (const uint8_t *)"";
            if (valid_at(to, i) && !text_at(view, run->row[i], &to->of.text[i], &to->size[i])) run->torn = 1;
            if (run->torn) return;
        }
    }
}

/* Where both are valid. */
static void join_valid(Slot *a, const Slot *b, int count) {
    if (!b->nulls) return;
    if (!a->nulls) memset(a->valid, 1, (size_t)count);
    a->nulls = 1;
    for (int i = 0; i < count; i++) a->valid[i] &= b->valid[i];
}

static inline int floor_divided(int64_t a, int64_t b, int64_t *to) { /* whether it has more than 64 bits; b is not zero */
    if (b == -1) return __builtin_sub_overflow((int64_t)0, a, to);
    int64_t made = a / b;
    *to = made - (a % b != 0 && (a < 0) != (b < 0));
    return 0;
}

static inline int64_t modulo(int64_t a, int64_t b) { /* b is not zero */
    if (b == -1) return 0;
    int64_t left = a % b;
    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

/* One result; whether it is out of range. */
static inline int computed_int(int code, int64_t a, int64_t b, int64_t *to) {
    if (code == ADD_INT) return __builtin_add_overflow(a, b, to);
    if (code == SUBTRACT_INT) return __builtin_sub_overflow(a, b, to);
    if (code == MULTIPLY_INT) return __builtin_mul_overflow(a, b, to);
    *to = 0;
    if (b == 0) return 1;
    if (code == FLOOR_DIVIDE) return floor_divided(a, b, to);
    *to = modulo(a, b);
    if (code == MODULO) return 0;
    return __builtin_sub_overflow(a, *to, to); /* FLOOR */
}

#define EACH(expression)                                                                                                                 \
    for (int i = 0; i < count; i++) bad |= (expression)

/* Of whole numbers: `b` is another slot or, for FLOOR, a constant. */
static void arithmetic_int(Run *run, int code, Slot *a, const int64_t *b) {
    int64_t made[BLOCK];
    int count = run->count, bad = 0;
    const int64_t *from = a->of.whole;
    switch (code) { /* a loop each, so that nothing is decided inside */
    case ADD_INT: EACH(__builtin_add_overflow(from[i], b[i], &made[i])); break;
    case SUBTRACT_INT: EACH(__builtin_sub_overflow(from[i], b[i], &made[i])); break;
    case MULTIPLY_INT: EACH(__builtin_mul_overflow(from[i], b[i], &made[i])); break;
    default: EACH(computed_int(code, from[i], b[i], &made[i]));
    }
    for (int i = 0; bad && i < count; i++)
        if (may_fail(run, a, i) && computed_int(code, from[i], b[i], &made[i])) run->bad = 1;
    memcpy(a->of.whole, made, (size_t)count * 8);
}

static inline int is_finite(double value) { return value >= -DBL_MAX && value <= DBL_MAX; }

static void arithmetic_float(Run *run, int code, Slot *a, const Slot *b) {
    double *to = a->of.real;
    const double *by = b->of.real;
    int count = run->count, bad = 0;
    if (code == DIVIDE) {
        EACH(by[i] == 0);
        for (int i = 0; bad && i < count; i++)
            if (may_fail(run, a, i) && by[i] == 0) run->bad = 1;
        bad = 0;
    }
    switch (code) {
    case ADD_FLOAT: for (int i = 0; i < count; i++) to[i] += by[i]; break;
    case SUBTRACT_FLOAT: for (int i = 0; i < count; i++) to[i] -= by[i]; break;
    case MULTIPLY_FLOAT: for (int i = 0; i < count; i++) to[i] *= by[i]; break;
    default: for (int i = 0; i < count; i++) to[i] = by[i] == 0 ? 0 : to[i] / by[i];
    }
    EACH(!is_finite(to[i]));
    for (int i = 0; bad && i < count; i++)
        if (may_fail(run, a, i) && !is_finite(to[i])) run->bad = 1;
}

static inline int compared(const uint8_t *a, int64_t a_size, const uint8_t *b, int64_t b_size) {
    int64_t both = a_size < b_size ? a_size : b_size;
    int order = both ? memcmp(a, b, (size_t)both) : 0;
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

#define COMPARE(of, first)                                                                                                               \
    switch (code - (first)) {                                                                                                            \
    case 0: for (int i = 0; i < count; i++) a->flag[i] = a->of[i] == b->of[i]; break;                                                    \
    case 1: for (int i = 0; i < count; i++) a->flag[i] = a->of[i] != b->of[i]; break;                                                    \
    case 2: for (int i = 0; i < count; i++) a->flag[i] = a->of[i] < b->of[i]; break;                                                     \
    case 3: for (int i = 0; i < count; i++) a->flag[i] = a->of[i] <= b->of[i]; break;                                                    \
    case 4: for (int i = 0; i < count; i++) a->flag[i] = a->of[i] > b->of[i]; break;                                                     \
    default: for (int i = 0; i < count; i++) a->flag[i] = a->of[i] >= b->of[i];                                                          \
    }

static void compare_text(int code, Slot *a, const Slot *b, int count) {
    for (int i = 0; i < count; i++) {
        if (code <= UNEQUAL_TEXT) {
            int same = a->size[i] == b->size[i] && (a->size[i] == 0 || memcmp(a->of.text[i], b->of.text[i], (size_t)a->size[i]) == 0);
            a->flag[i] = (uint8_t)(same == (code == EQUAL_TEXT));
            continue;
        }
        int order = compared(a->of.text[i], a->size[i], b->of.text[i], b->size[i]);
        a->flag[i] = (uint8_t)(code == LESS_TEXT ? order < 0 : code == AT_MOST_TEXT ? order <= 0 : code == MORE_TEXT ? order > 0 : order >= 0);
    }
}

/* Decided by one side if that is `decides`; null if the other is null. */
static void logic(Slot *a, const Slot *b, uint8_t decides, int count) {
    if (!a->nulls && !b->nulls) {
        for (int i = 0; i < count; i++) a->flag[i] = decides ? a->flag[i] | b->flag[i] : a->flag[i] & b->flag[i];
        return;
    }
    for (int i = 0; i < count; i++) {
        int one = valid_at(a, i), other = valid_at(b, i);
        int decided = (one && a->flag[i] == decides) || (other && b->flag[i] == decides);
        a->flag[i] = decided ? decides : !decides;
        a->valid[i] = (uint8_t)(decided || (one && other));
    }
    a->nulls = 1;
}

static int is_in(const Op *op, const Slot *slot, int i) {
    int64_t low = 0, high = op->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order;
        if (op->code == IN_TEXT) {
            order = compared(slot->of.text[i], slot->size[i], op->texts[middle].at, op->texts[middle].size);
        } else if (op->code == IN_INT) {
            int64_t one = long_at(op->options, middle);
            order = (slot->of.whole[i] > one) - (slot->of.whole[i] < one);
        } else {
            double one = double_at(op->options, middle);
            order = (slot->of.real[i] > one) - (slot->of.real[i] < one);
        }
        if (order == 0) return 1;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return 0;
}

/* Parts of a text, which stand in it. */
static void part_of_text(const Op *op, Slot *a, int count) {
    int64_t start = op->code == SLICE ? long_at(op->options, 0) : 0, stop = op->code == SLICE ? long_at(op->options, 1) : 0;
    if (op->code == SPLIT && !a->nulls) memset(a->valid, 1, (size_t)count);
    if (op->code == SPLIT) a->nulls = 1;
    for (int i = 0; i < count; i++) {
        if (!valid_at(a, i)) continue;
        Letters text = {a->of.text[i], a->size[i]};
        if (op->code == SLICE) slice(&text, start, stop);
        else if (op->code == STRIP) strip(&text, &op->text);
        else a->valid[i] = (uint8_t)split(&text, &op->text, op->whole);
        a->of.text[i] = text.at;
        a->size[i] = text.size;
    }
}

/* A whole number as JSON has it. 0 if it is none of 64 bits. */
static int whole_of(const uint8_t *at, int64_t size, int64_t *to) {
    int negative = size > 0 && *at == '-';
    uint64_t made = 0;
    at += negative;
    size -= negative;
    if (size < 1 || size > 19 || (*at == '0' && size > 1)) return 0;
    for (int64_t i = 0; i < size; i++) {
        if (at[i] < '0' || at[i] > '9') return 0;
        made = made * 10 + (uint64_t)(at[i] - '0'); /* 19 digits have less than 64 bits */
    }
    if (made > (uint64_t)INT64_MAX + (uint64_t)negative) return 0;
    *to = (int64_t)(negative ? 0 - made : made);
    return 1;
}

static void digits_of(int64_t value, char *made, const uint8_t **at, int64_t *size) {
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int begin = SHOWN;
    do {
        made[--begin] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (value < 0) made[--begin] = '-';
    *at = (const uint8_t *)made + begin;
    *size = SHOWN - begin;
}

static void cast(Run *run, int code, Slot *a) {
    static const char *const names[] = {"false", "true"};
    for (int i = 0; i < run->count; i++) {
        int fine = 1;
        if (code == TO_FLOAT) {
            a->of.real[i] = (double)a->of.whole[i];
        } else if (code == FLOAT_TO_INT) {
            double real = a->of.real[i];
            fine = real >= -9223372036854775808.0 && real < 9223372036854775808.0;
            a->of.whole[i] = fine ? (int64_t)real : 0;
        } else if (code == BOOL_TO_INT) {
            a->of.whole[i] = a->flag[i];
        } else if (code == BOOL_TO_FLOAT) {
            a->of.real[i] = a->flag[i];
        } else if (code == INT_TO_TEXT) {
            digits_of(a->of.whole[i], a->made[i], &a->of.text[i], &a->size[i]);
        } else if (code == BOOL_TO_TEXT) {
            a->of.text[i] = (const uint8_t *)names[a->flag[i]];
            a->size[i] = a->flag[i] ? 4 : 5;
        } else if (code == TEXT_TO_INT) {
            int64_t made = 0;
            fine = whole_of(a->of.text[i], a->size[i], &made);
            a->of.whole[i] = made;
        } else {
            int yes = a->size[i] == 4 && memcmp(a->of.text[i], "true", 4) == 0;
            fine = yes || (a->size[i] == 5 && memcmp(a->of.text[i], "false", 5) == 0);
            a->flag[i] = (uint8_t)yes;
        }
        if (!fine && may_fail(run, a, i)) run->bad = 1;
    }
}

static void fill(const Op *op, Slot *to, int count) {
    to->nulls = 0;
    for (int i = 0; i < count; i++) {
        if (op->code == WHOLE) to->of.whole[i] = op->whole;
        else if (op->code == REAL) to->of.real[i] = op->real;
        else if (op->code == FLAG) to->flag[i] = op->whole != 0;
        else {
            to->of.text[i] = op->text.at;
            to->size[i] = op->text.size;
        }
    }
}

static void hash(Slot *a, int code, int count) {
    for (int i = 0; i < count; i++) {
        uint64_t made = 0;
        if (!valid_at(a, i)) made = 0;
        else if (code == HASH_TEXT) made = xxhash64(a->of.text[i], a->size[i]);
        else if (code == HASH_BOOL) made = xxhash64(&a->flag[i], 1);
        else {
            if (code == HASH_FLOAT && a->of.real[i] == 0) a->of.real[i] = 0; /* equal numbers have one hash */
            made = hash_of_long((uint64_t)a->of.whole[i]);
        }
        a->of.whole[i] = (int64_t)made;
    }
}

static void times(Run *run, const Op *op, Slot *a) {
    for (int i = 0; i < run->count; i++) {
        if (op->code == TIME_PART) {
            a->of.whole[i] = time_part(a->of.whole[i], (int)op->whole);
        } else if (op->code == READ_TIME) {
            int64_t ms = 0;
            if (valid_at(a, i) && !read_time((Letters){a->of.text[i], a->size[i]}, &op->text, &ms) && may_fail(run, a, i)) run->bad = 1;
            a->of.whole[i] = ms;
        } else {
            uint8_t *to = run->made + op->whole + i * op->count;
            int64_t size = write_time(a->of.whole[i], &op->text, to);
            if (size < 0 && may_fail(run, a, i)) run->bad = 1;
            a->of.text[i] = to;
            a->size[i] = size < 0 ? 0 : size;
        }
    }
}

static inline void take_row(Slot *to, const Slot *from, int i, int kind);

/* The least or the greatest of two, the first of equal ones. */
static void extreme(int code, Slot *a, const Slot *b, int count) {
    int kind = signature_of(code).out, sign = code >= GREATEST_INT ? -1 : 1;
    for (int i = 0; i < count; i++) {
        int order;
        if (!valid_at(a, i)) continue;
        if (kind == INT64) order = (b->of.whole[i] > a->of.whole[i]) - (b->of.whole[i] < a->of.whole[i]);
        else if (kind == FLOAT64) order = (b->of.real[i] > a->of.real[i]) - (b->of.real[i] < a->of.real[i]);
        else order = compared(b->of.text[i], b->size[i], a->of.text[i], a->size[i]);
        if (order * sign < 0) take_row(a, b, i, kind);
    }
}

/* Of one slot, in its place. */
static void of_one(Run *run, const Op *op, Slot *a) {
    int count = run->count;
    if (op->code == NOT) {
        for (int i = 0; i < count; i++) a->flag[i] = !a->flag[i];
    } else if (op->code == IS_NULL) {
        for (int i = 0; i < count; i++) a->flag[i] = !valid_at(a, i);
        a->nulls = 0;
    } else if (op->code >= IN_INT && op->code <= IN_TEXT) {
        for (int i = 0; i < count; i++) a->flag[i] = (uint8_t)is_in(op, a, i);
    } else if (op->code == STARTS_WITH) {
        for (int i = 0; i < count; i++)
            a->flag[i] = a->size[i] >= op->text.size && (op->text.size == 0 || memcmp(a->of.text[i], op->text.at, (size_t)op->text.size) == 0);
    } else if (op->code == CONTAINS) {
        for (int i = 0; i < count; i++) a->flag[i] = op->text.size == 0 || found_in(a->of.text[i], a->size[i], &op->text) != NULL;
    } else if (op->code == LENGTH) {
        for (int i = 0; i < count; i++) a->of.whole[i] = valid_at(a, i) ? characters(a->of.text[i], a->size[i]) : 0;
    } else if (op->code == ABS_FLOAT) {
        for (int i = 0; i < count; i++) a->of.real[i] = fabs(a->of.real[i]);
    } else if (op->code == ABS_INT) {
        for (int i = 0; i < count; i++) {
            if (a->of.whole[i] == INT64_MIN && may_fail(run, a, i)) run->bad = 1;
            a->of.whole[i] = a->of.whole[i] < 0 ? (int64_t)(0 - (uint64_t)a->of.whole[i]) : a->of.whole[i];
        }
    } else if (op->code == ROUND) {
        for (int i = 0; i < count; i++) a->of.real[i] = rounded(a->of.real[i], op->real);
    } else if (op->code >= TIME_PART && op->code <= WRITE_TIME) {
        times(run, op, a);
    } else if (op->code >= HASH_INT && op->code <= HASH_TEXT) {
        hash(a, op->code, count);
    } else if (op->code >= STRIP && op->code <= SPLIT) {
        part_of_text(op, a, count);
    } else if (op->code == NEGATIVE_FLOAT) {
        for (int i = 0; i < count; i++) {
            a->of.real[i] = -a->of.real[i];
            if (!is_finite(a->of.real[i]) && may_fail(run, a, i)) run->bad = 1;
        }
    } else if (op->code == NEGATIVE_INT) {
        for (int i = 0; i < count; i++) {
            if (a->of.whole[i] != INT64_MIN) a->of.whole[i] = -a->of.whole[i];
            else if (may_fail(run, a, i)) run->bad = 1;
        }
    } else if (op->code == FLOOR) {
        int64_t every[BLOCK];
        for (int i = 0; i < count; i++) every[i] = op->whole;
        arithmetic_int(run, FLOOR, a, every);
    } else {
        cast(run, op->code, a);
    }
}

/* Of two slots, in the place of the first. */
static void of_two(Run *run, const Op *op, Slot *a, Slot *b) {
    int code = op->code, count = run->count;
    if (code == AND || code == OR) return logic(a, b, code == OR, count);
    join_valid(a, b, count);
    if (code >= ADD_INT && code <= MODULO) arithmetic_int(run, code, a, b->of.whole);
    else if (code >= ADD_FLOAT && code <= DIVIDE) arithmetic_float(run, code, a, b);
    else if (code >= LEAST_INT && code <= GREATEST_TEXT) extreme(code, a, b, count);
    else if (code <= AT_LEAST_INT) COMPARE(of.whole, EQUAL_INT)
    else if (code <= AT_LEAST_FLOAT) COMPARE(of.real, EQUAL_FLOAT)
    else if (code <= AT_LEAST_TEXT) compare_text(code, a, b, count);
    else
        for (int i = 0; i < count; i++) a->flag[i] = (uint8_t)((a->flag[i] == b->flag[i]) == (code == EQUAL_BOOL));
}

/* The value of a row of another slot. */
static inline void take_row(Slot *to, const Slot *from, int i, int kind) {
    to->valid[i] = (uint8_t)valid_at(from, i);
    if (kind == BOOL) {
        to->flag[i] = from->flag[i];
    } else if (kind == TEXT) {
        uintptr_t behind = (uintptr_t)from->of.text[i] - (uintptr_t)from->made[i];
        to->of.text[i] = from->of.text[i];
        to->size[i] = from->size[i];
        if (behind >= SHOWN) return;
        memcpy(to->made[i], from->made[i], SHOWN); /* the other slot is used again */
        to->of.text[i] = (const uint8_t *)to->made[i] + behind;
    } else {
        to->of.whole[i] = from->of.whole[i];
    }
}

static void begin_choice(Run *run, Slot *slot) {
    if (!run->choices++) memset(run->counts, 1, (size_t)run->count);
    memcpy(slot->outer, run->counts, (size_t)run->count);
}

static void end_choice(Run *run, const Slot *slot) {
    run->choices -= run->choices > 0;
    memcpy(run->counts, slot->outer, (size_t)run->count);
}

/* A step of a choice; `top` is behind the last slot. How many slots are left over. */
static int choose(Run *run, const Op *op, Slot *top) {
    int count = run->count;
    if (op->code == THEN || op->code == OTHERS) {
        Slot *by = top - 1;
        begin_choice(run, by);
        for (int i = 0; op->code == THEN && i < count; i++) run->counts[i] &= by->flag[i] = by->flag[i] && valid_at(by, i);
        for (int i = 0; op->code == OTHERS && i < count; i++) run->counts[i] &= (uint8_t)!valid_at(by, i);
        if (op->code == THEN) by->nulls = 0;
        return 0;
    }
    if (op->code == ELSE) {
        for (int i = 0; i < count; i++) run->counts[i] = top[-2].outer[i] && !top[-2].flag[i];
        return 0;
    }
    Slot *to = top - (op->code == CHOOSE ? 3 : 2), *a = to + 1, *b = to + 2;
    end_choice(run, to);
    if (op->code == CHOOSE) {
        if (!a->nulls && !b->nulls && (op->kind == INT64 || op->kind == FLOAT64))
            for (int i = 0; i < count; i++) to->of.whole[i] = to->flag[i] ? a->of.whole[i] : b->of.whole[i];
        else
            for (int i = 0; i < count; i++) take_row(to, to->flag[i] ? a : b, i, op->kind);
        to->nulls = a->nulls || b->nulls;
    } else if (op->code == CHOOSE_OR_NULL) {
        for (int i = 0; i < count; i++) {
            uint8_t yes = to->flag[i];
            take_row(to, a, i, op->kind);
            to->valid[i] &= yes;
        }
        to->nulls = 1;
    } else {
        for (int i = 0; i < count; i++)
            if (!valid_at(to, i)) take_row(to, a, i, op->kind);
        to->nulls = to->nulls && a->nulls;
    }
    return op->code == CHOOSE ? 2 : 1;
}

/* Runs the ops over a block, until a row has no value. */
static void run_block(Run *run, const Program *program) {
    int depth = 0;
    run->bad = run->choices = 0;
    for (int64_t i = 0; i < program->count && !run->bad && !run->torn; i++) {
        const Op *op = &program->ops[i];
        int operands = op->operands;
        if (op->code >= THEN) {
            depth -= choose(run, op, &run->slots[depth]);
            continue;
        }
        if (op->code == LOAD) load(run, op, &run->slots[depth]);
        else if (operands == 0) fill(op, &run->slots[depth], run->count);
        else if (operands == 1) of_one(run, op, &run->slots[depth - 1]);
        else of_two(run, op, &run->slots[depth - 2], &run->slots[depth - 1]);
        depth += 1 - operands;
    }
}

/* ---------------------------------------------------------------------------------------------------------- results */

typedef struct {
    int kind, filter, full; /* filter: the result is which rows stay; full: more than 2 GiB of text */
    int64_t length, used, room, kept, nulls, filled; /* of base rows; bytes of text; rows that stay; offsets that are written */
    uint8_t *data, *validity;
    int32_t *offsets;
    int64_t *places, failing; /* of the rows that have no value */
} Result;

static void free_result(Result *result) {
    PyMem_RawFree(result->data);
    PyMem_RawFree(result->validity);
    PyMem_RawFree(result->offsets);
    PyMem_RawFree(result->places);
}

static int begin_result(Result *result, const Program *program, int64_t length, int64_t rows, int filter) {
    memset(result, 0, sizeof *result);
    result->kind = program->kind;
    result->filter = filter;
    result->length = length;
    result->room = filter ? rows * 8 : program->kind == BOOL ? (length + 7) / 8 : program->kind == TEXT ? rows * 16 : length * 8;
    result->data = PyMem_RawCalloc((size_t)result->room + 8, 1);
    if (program->kind == TEXT && !filter) result->offsets = PyMem_RawCalloc((size_t)length + 1, 4);
    return result->data != NULL && (filter || program->kind != TEXT || result->offsets != NULL);
}

/* Text of a row, and empty text for those before it. 0 if there is no room. */
static int put_text_row(Result *result, int64_t row, const uint8_t *at, int64_t size) {
    if (result->used + size > INT32_MAX) return result->full = 1, 0;
    if (result->used + size > result->room) {
        int64_t wanted = (result->used + size) * 2;
        uint8_t *grown = PyMem_RawRealloc(result->data, (size_t)wanted + 8);
        if (grown == NULL) return 0;
        result->data = grown;
        result->room = wanted;
    }
    for (; result->filled < row; result->filled++) result->offsets[result->filled + 1] = (int32_t)result->used;
    if (size > 0) memcpy(result->data + result->used, at, (size_t)size);
    result->used += size;
    result->offsets[++result->filled] = (int32_t)result->used;
    return 1;
}

static int put_nulls(Result *result, const Run *run, const Slot *slot) {
    for (int i = 0; i < run->count; i++) {
        if (slot->valid[i]) continue;
        if (result->validity == NULL) {
            result->validity = PyMem_RawMalloc((size_t)(result->length + 7) / 8 + 1);
            if (result->validity == NULL) return 0;
            memset(result->validity, 0xFF, (size_t)(result->length + 7) / 8);
        }
        result->validity[run->row[i] >> 3] &= (uint8_t) ~(1 << (run->row[i] & 7));
        result->nulls++;
    }
    return 1;
}

/* What a block has given. 0 if there is no room. */
static int put_block(Result *result, const Run *run) {
    const Slot *slot = &run->slots[0];
    if (result->filter) {
        int64_t *to = (int64_t *)result->data;
        for (int i = 0; i < run->count; i++) {
            to[result->kept] = run->row[i]; /* there is room for one more than stay */
            result->kept += slot->flag[i] && valid_at(slot, i);
        }
        return 1;
    }
    if (slot->nulls && !put_nulls(result, run, slot)) return 0;
    if (result->kind == TEXT) {
        for (int i = 0; i < run->count; i++)
            if (!put_text_row(result, run->row[i], slot->of.text[i], valid_at(slot, i) ? slot->size[i] : 0)) return 0;
    } else if (result->kind == BOOL) {
        for (int i = 0; i < run->count; i++)
            result->data[run->row[i] >> 3] |= (uint8_t)((slot->flag[i] && valid_at(slot, i)) << (run->row[i] & 7));
    } else if (run->straight && !slot->nulls) {
        memcpy(result->data + run->row[0] * 8, slot->of.whole, (size_t)run->count * 8);
    } else {
        for (int i = 0; i < run->count; i++)
            if (valid_at(slot, i)) memcpy(result->data + run->row[i] * 8, &slot->of.whole[i], 8);
    }
    return 1;
}

static PyObject *bytes_or_none(const void *at, int64_t size) {
    if (at == NULL) return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize(at, (Py_ssize_t)size);
}

static PyObject *made_result(Result *result) {
    int64_t length = result->length, bits = (length + 7) / 8;
    if (result->filter) return bytes_or_none(result->data, result->kept * 8);
    int64_t size = result->kind == TEXT ? result->used : result->kind == BOOL ? bits : length * 8;
    for (; result->offsets != NULL && result->filled < length; result->filled++)
        result->offsets[result->filled + 1] = (int32_t)result->used;
    return Py_BuildValue("NNNL", bytes_or_none(result->data, size), bytes_or_none(result->offsets, (length + 1) * 4),
                         bytes_or_none(result->validity, bits), (long long)result->nulls);
}

/* The base rows of the next block. 0 if they make no sense. */
static int next_block(Run *run, const Py_buffer *rows, int64_t done, int64_t all, int64_t length) {
    int64_t before = done > 0 ? run->row[run->count - 1] : -1;
    run->count = (int)(all - done < BLOCK ? all - done : BLOCK);
    for (int i = 0; i < run->count; i++) {
        run->row[i] = rows->obj != NULL ? long_at(rows->buf, done + i) : done + i;
        if (run->row[i] <= before || run->row[i] >= length) return 0;
        before = run->row[i];
    }
    run->straight = before - run->row[0] == run->count - 1;
    return 1;
}

enum { FINE, NO_SENSE, NO_ROOM };

/* The places of the rows without a value in a block that has one: each runs alone. 0 if there is no room. */
static int failing_rows(Run *run, const Program *program, int64_t done, int64_t all, Result *result) {
    int count = run->count;
    int64_t block[BLOCK];
    if (result->places == NULL && (result->places = PyMem_RawMalloc((size_t)all * 8)) == NULL) return 0;
    memcpy(block, run->row, sizeof block);
    run->count = run->straight = 1;
    for (int i = 0; i < count; i++) {
        run->row[0] = block[i];
        run_block(run, program);
        if (run->bad) result->places[result->failing++] = done + i;
    }
    memcpy(run->row, block, sizeof block);
    run->count = count;
    return 1;
}

static int run_all(Run *run, const Program *program, const Py_buffer *rows, int64_t all, Result *result) {
    for (int64_t done = 0; done < all; done += BLOCK) {
        if (!next_block(run, rows, done, all, result->length)) return NO_SENSE;
        run_block(run, program);
        if (run->bad && !failing_rows(run, program, done, all, result)) return NO_ROOM;
        if (run->torn) return NO_SENSE;
        if (!result->failing && !put_block(result, run)) return NO_ROOM;
    }
    return FINE;
}

/* compute(program, [vector], length, rows or None, filter)
 *     -> ((data, offsets or None, validity or None, nulls), or the rows that stay, or None if some row has no value;
 *         the places of all rows without a value, or None) */
static PyObject *expressions_compute(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *capsule, *list, *rows_object, *out = NULL;
    Py_ssize_t length;
    int filter, how = FINE;
    Py_buffer rows = {0};
    Run *run = NULL;
    VectorView *views = NULL;
    Result result = {0};
    Py_ssize_t viewed = 0;
    if (!PyArg_ParseTuple(args, "OO!nOp", &capsule, &PyList_Type, &list, &length, &rows_object, &filter)) return NULL;
    Program *program = PyCapsule_GetPointer(capsule, NAME);
    if (program == NULL) return NULL;
    if (PyList_GET_SIZE(list) != program->columns || length < 0 || length > INT32_MAX || (filter && program->kind != BOOL))
        return PyErr_Format(PyExc_ValueError, "the program does not fit the columns");
    views = PyMem_RawCalloc((size_t)program->columns + 1, sizeof(VectorView));
    run = PyMem_RawCalloc(1, sizeof(Run));
    if (run != NULL) run->slots = PyMem_RawMalloc((size_t)program->depth * sizeof(Slot));
    if (run != NULL) run->made = PyMem_RawMalloc((size_t)program->room + 1);
    if (views == NULL || run == NULL || run->slots == NULL || run->made == NULL) goto no_memory;
    run->views = views;
    for (; viewed < program->columns; viewed++)
        if (vector_of(PyList_GET_ITEM(list, viewed), length, &views[viewed]) < 0) {
            viewed++;
            goto done;
        }
    for (int64_t i = 0; i < program->count; i++)
        if (program->ops[i].code == LOAD && views[program->ops[i].whole].kind != program->ops[i].kind) {
            PyErr_SetString(PyExc_ValueError, "a column has another type than the program takes");
            goto done;
        }
    if (view_of(rows_object, &rows) < 0) goto done;
    int64_t all = rows.obj != NULL ? rows.len / 8 : length;
    if (!begin_result(&result, program, length, all, filter)) goto no_memory;
    Py_BEGIN_ALLOW_THREADS
    how = run_all(run, program, &rows, all, &result);
    Py_END_ALLOW_THREADS
    if (how == NO_SENSE) PyErr_SetString(PyExc_ValueError, "rows must ascend within their columns, and text must lie within its own");
    else if (how == NO_ROOM && result.full) PyErr_SetString(PyExc_ValueError, "more than 2 GiB of text in one column");
    else if (how == NO_ROOM) PyErr_NoMemory();
    else if (result.failing) out = Py_BuildValue("Oy#", Py_None, (const char *)result.places, (Py_ssize_t)(result.failing * 8));
    else out = Py_BuildValue("NO", made_result(&result), Py_None);
    goto done;
no_memory:
    PyErr_NoMemory();
done:
    for (Py_ssize_t i = 0; i < viewed; i++) leave_vector(&views[i]);
    PyMem_RawFree(views);
    if (run != NULL) PyMem_RawFree(run->slots);
    if (run != NULL) PyMem_RawFree(run->made);
    PyMem_RawFree(run);
    free_result(&result);
    leave(&rows);
    return out;
}

PyMethodDef expressions_methods[] = {
    {"program", expressions_program, METH_VARARGS, "An expression that can be computed."},
    {"compute", expressions_compute, METH_VARARGS, "The value of an expression for each row, or the rows for which it is true."},
    {NULL, NULL, 0, NULL},
};
