/* Decodes Protobuf messages into Arrow vectors. protobuf_columns.py says what is promised, and makes the programs; plain/protobuf.py gives the
 * same results.
 *
 * A program is a table for each message, with a row for each of its fields, sorted by number; fields that no row names are skipped. The first
 * table is that of the record. It is checked when it is made, so that no row leaves it and no column is of another type. Of the data nothing
 * is believed: a length is compared with the bytes that are left, and messages lie in each other only so deep. What is read is what upb
 * reads, also of fields that no column wants: these must have the form of their type. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base64.h"
#include "compiled.h"
#include "decoded.h"

enum { SKIP, FILL, INTO, KEEP, PART, LIST, ACTIONS };  /* what is done with a field; INTO: it is a message, of which fields are wanted */
enum { NOTHING, FLAWED, EMPTY, TIME, BRACKETS, RULES }; /* what a column has that has got no value; BRACKETS: a list without elements */
enum { AS_IT_IS = 1, AS_LIST, AS_BASE64 };             /* what is kept of a column */
enum { REPEATED = 1, CHECKED = 2, CLOSED = 4 };        /* flags of a field; CHECKED: its text must be UTF-8 */
enum { ABSENT, SET };                                  /* the state of a column or an object in a record; else a flaw */
enum { VARINT, WIRE_64, BYTES, BEGIN, END, WIRE_32 };  /* how a field stands in the data */
enum { /* types of fields, as descriptors number them */
    DOUBLE = 1, FLOAT, INT_64, UINT_64, INT_32, FIXED_64, FIXED_32, BOOLEAN, STRING, GROUP, MESSAGE, BLOB, UINT_32, ENUM, SFIXED_32, SFIXED_64,
    SINT_32, SINT_64, TYPES
};
#define CUT NO_VALUE_AT_ALL
#define STRIDE 11
#define DEEPEST_MESSAGE 100 /* as upb has it */
#define MOST_TABLES 5000
#define MOST_NUMBER ((1 << 29) - 1)
#define DENSE 128           /* field numbers up to this one are found by one look */
#define FIRST_SECOND (-62135596800LL) /* the years 1 to 9999, as core/columns/logical.py has them */
#define LAST_SECOND 253402300799LL

typedef struct {
    int32_t number, type, flags, action;
    int32_t slot;   /* FILL, KEEP: the column; PART: the number that is kept of it; INTO: the column that says whether it is there, or -1 */
    int32_t table;  /* of a message: its table */
    int32_t object; /* INTO: its state, behind those of the columns, or -1 */
    int32_t oneof, member; /* what it excludes: the number of the choice, or -1, and which of its lists names what belongs to this field */
    int32_t x, y;   /* CLOSED: its numbers are those constants, in order */
} Field;

typedef struct {
    int32_t first, count;
    int32_t dense[DENSE]; /* by field number: its row, or -1 */
} Table;

typedef struct {
    int32_t object, rule, x; /* of a column: the object that it lies in, or -1; TIME: where its seconds are kept, and behind them the rest */
} Rule;

typedef struct {
    int32_t parent, optional;
} Object;

typedef struct {
    Field *fields;
    Table *tables;
    Rule *rules; /* of each column */
    Object *objects;
    int32_t *cleared; /* lists: how many, then states to be cleared; parts stand behind the objects */
    int32_t *keeping; /* the columns whose bytes are not those of one field */
    uint8_t *keeps;   /* by column: what */
    int64_t *longs, long_count;
    uint8_t *kinds;
    int32_t field_count, table_count, columns, object_count, cleared_count, keeping_count, parts, oneofs;
} Program;

typedef struct {
    uint8_t *data;
    int64_t used, room, start; /* start: of the row at hand */
} Kept;

typedef struct {
    Found found;
    const Program *program;
    const Py_buffer *skipped;  /* by reading: the bytes in front of the message, or -1 if nothing reads it */
    const void *which;         /* by record: the number of its reading */
    uint8_t *state;  /* of columns, then of objects */
    int64_t *parts;
    int32_t *chosen; /* by oneof: the list of what is set */
    Kept *kept;      /* by column: what it keeps */
    int failed;
} Work;

#define PROGRAM "headgate.proto_program"

/* ---------------------------------------------------------------------------------------------------------------- values */

/* 0 if there is no number of at most ten bytes; what is beyond 64 bits does not count. */
static inline int number_of(Input *in, uint64_t *found) {
    if (in->at < in->end && *in->at < 0x80) {
        *found = *in->at++;
        return 1;
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (in->at >= in->end) return 0;
        uint8_t byte = *in->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *found = value;
            return 1;
        }
    }
    return 0;
}

/* The number of a field, and how it stands there. 0 if there is none. In an unknown group, a field may have the number 0. */
static inline int tag_of(Input *in, int32_t *number, int *wire) {
    const uint8_t *begin = in->at;
    uint64_t tag;
    if (!number_of(in, &tag) || in->at - begin > 5 || tag > UINT32_MAX) return 0;
    *number = (int32_t)(tag >> 3);
    *wire = (int)(tag & 7);
    return 1;
}

static inline int bytes_of(Input *in, Span *found) {
    uint64_t size;
    if (!number_of(in, &size) || size > (uint64_t)(in->end - in->at)) return 0;
    *found = (Span){in->at, (int64_t)size};
    in->at += size;
    return 1;
}

/* How one value of a type stands there. */
static inline int wire_of(int type) {
    switch (type) {
    case DOUBLE: case FIXED_64: case SFIXED_64: return WIRE_64;
    case FLOAT: case FIXED_32: case SFIXED_32: return WIRE_32;
    case STRING: case BLOB: case MESSAGE: return BYTES;
    case GROUP: return BEGIN;
    default: return VARINT;
    }
}

/* An unknown field: 0 if it is cut off. */
static int skip_unknown(Input *in, int32_t number, int wire, int depth) {
    uint64_t any;
    Span span;
    int32_t inner;
    switch (wire) {
    case VARINT: return number_of(in, &any);
    case WIRE_64:
    case WIRE_32:
        if (in->end - in->at < (wire == WIRE_64 ? 8 : 4)) return 0;
        in->at += wire == WIRE_64 ? 8 : 4;
        return 1;
    case BYTES: return bytes_of(in, &span);
    case BEGIN:
        if (depth >= DEEPEST_MESSAGE) return 0;
        for (;;) {
            if (!tag_of(in, &inner, &wire)) return 0;
            if (wire == END) return inner == number;
            if (!skip_unknown(in, inner, wire, depth + 1)) return 0;
        }
    default: return 0;
    }
}

/* --------------------------------------------------------------------------------------------------------------- columns */

static int is_allowed(const Program *program, const Field *field, int32_t number) {
    const int64_t *from = program->longs + field->x;
    int64_t low = 0, high = field->y;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (from[middle] < number) low = middle + 1;
        else high = middle;
    }
    return low < field->y && from[low] == number;
}

/* The field has a value now, so the others of its choice have none. */
static void choose(Work *work, const Field *field) {
    const Program *program = work->program;
    int32_t before = work->chosen[field->oneof];
    if (before == field->member) return;
    work->chosen[field->oneof] = field->member;
    const int32_t *list = program->cleared + before;
    for (int32_t i = 1; i <= list[0]; i++) {
        int32_t at = list[i];
        if (at < program->columns + program->object_count) {
            work->state[at] = ABSENT;
            if (at < program->columns) work->kept[at].used = work->kept[at].start;
        } else {
            work->parts[at - program->columns - program->object_count] = 0;
        }
    }
}

/* Room for so many bytes of a column; NULL if memory was not to be had, which ends all. */
static uint8_t *room_of(Work *work, int32_t slot, int64_t size) {
    Kept *kept = &work->kept[slot];
    if (size > kept->room - kept->used) {
        int64_t wanted = (kept->used + size) * 2;
        uint8_t *grown = PyMem_RawRealloc(kept->data, (size_t)wanted);
        if (grown == NULL) {
            work->failed = 1;
            return NULL;
        }
        kept->data = grown;
        kept->room = wanted;
    }
    return kept->data + kept->used;
}

/* Keep the bytes of a field. */
static int keep(Work *work, int32_t slot, const uint8_t *at, const uint8_t *end) {
    uint8_t *to = room_of(work, slot, end - at);
    if (to == NULL) return CUT;
    memcpy(to, at, (size_t)(end - at));
    work->kept[slot].used += end - at;
    work->state[slot] = SET;
    return FINE;
}

static uint8_t *put_digits(uint8_t *to, int64_t value) {
    uint8_t digits[20];
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int at = 20;
    do digits[--at] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *to++ = '-';
    memcpy(to, digits + at, (size_t)(20 - at));
    return to + 20 - at;
}

/* Text as JSON: at most six bytes for each, and the quotes. */
static uint8_t *put_json(uint8_t *to, const Span *text) {
    static const char short_ones[] = "btn\0fr", hex[] = "0123456789abcdef";
    *to++ = '"';
    for (int64_t i = 0; i < text->length; i++) {
        uint8_t c = text->at[i];
        if (is_plain(c)) {
            *to++ = c;
            continue;
        }
        *to++ = '\\';
        if (c >= 0x20) {
            *to++ = c;
        } else if (c >= 8 && c <= 13 && c != 11) {
            *to++ = (uint8_t)short_ones[c - 8];
        } else {
            memcpy(to, "u00", 3);
            to[3] = (uint8_t)hex[c >> 4];
            to[4] = (uint8_t)hex[c & 15];
            to += 5;
        }
    }
    *to++ = '"';
    return to;
}

/* The bits of a number as its type has them. */
static inline int64_t typed(int type, uint64_t bits) {
    switch (type) {
    case INT_32: case ENUM: case SFIXED_32: return (int32_t)(uint32_t)bits;
    case UINT_32: case FIXED_32: return (int64_t)(uint32_t)bits;
    case SINT_32: return (int32_t)((uint32_t)bits >> 1 ^ (0 - ((uint32_t)bits & 1)));
    case SINT_64: return (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
    case BOOLEAN: return bits != 0;
    default: return (int64_t)bits;
    }
}

/* The value at hand, into its column; a list is none. CUT if it is cut off, FINE else. */
static ALWAYS_INLINE int fill(Work *work, const Field *field, Input *in, int64_t row) {
    uint64_t bits = 0;
    uint32_t half;
    float single;
    double fraction;
    Span span;
    int32_t slot = field->slot;
    Out *out = &work->found.out[field->action == PART ? 0 : slot];
    switch (field->type) {
    case STRING:
    case BLOB:
        if (!bytes_of(in, &span)) return CUT;
        int text = field->type == BLOB || is_utf8(span.at, span.length);
        if (!text && field->flags & CHECKED) return CUT;
        if (field->oneof >= 0) choose(work, field);
        out->spans[row] = span;
        work->state[slot] = text ? SET : WRONG_TYPE;
        return FINE;
    case DOUBLE:
    case FLOAT:
        if (in->end - in->at < (field->type == DOUBLE ? 8 : 4)) return CUT;
        if (field->type == DOUBLE) {
            memcpy(&fraction, in->at, 8); /* the machine's byte order is the data's, see `proto_program` */
            in->at += 8;
        } else {
            memcpy(&single, in->at, 4);
            in->at += 4;
            fraction = (double)single;
        }
        if (field->oneof >= 0) choose(work, field);
        put_double(out, row, fraction);
        work->state[slot] = is_finite_number(fraction) ? SET : OUT_OF_RANGE;
        return FINE;
    case FIXED_64:
    case SFIXED_64:
        if (in->end - in->at < 8) return CUT;
        memcpy(&bits, in->at, 8);
        in->at += 8;
        break;
    case FIXED_32:
    case SFIXED_32:
        if (in->end - in->at < 4) return CUT;
        memcpy(&half, in->at, 4);
        in->at += 4;
        bits = half;
        break;
    default:
        if (!number_of(in, &bits)) return CUT;
    }
    int64_t number = typed(field->type, bits);
    if (field->flags & CLOSED && !is_allowed(work->program, field, (int32_t)number)) return FINE; /* it is unknown, as upb has it */
    if (field->oneof >= 0) choose(work, field);
    int is_large = (field->type == UINT_64 || field->type == FIXED_64) && number < 0;
    if (field->action == PART) {
        work->parts[slot] = number;
        return FINE;
    }
    work->state[slot] = SET;
    if (out->kind == BOOL) {
        put_bool(out, row, (int)number);
    } else if (out->kind == FLOAT64) {
        put_double(out, row, is_large ? (double)bits : (double)number);
    } else {
        put_long(out, row, number);
        if (is_large) work->state[slot] = OUT_OF_RANGE;
    }
    return FINE;
}

/* The next value of a list, as JSON. What no column holds is remembered: the list is none. CUT if it is cut off, FINE else. */
static int add_element(Work *work, const Field *field, Input *in) {
    Kept *kept = &work->kept[field->slot];
    uint8_t *state = &work->state[field->slot];
    uint64_t bits = 0;
    uint32_t half;
    Span text = {NULL, 0};
    switch (wire_of(field->type)) {
    case BYTES:
        if (!bytes_of(in, &text)) return CUT;
        if (!is_utf8(text.at, text.length)) {
            if (field->flags & CHECKED) return CUT;
            *state = WRONG_TYPE;
            return FINE;
        }
        break;
    case WIRE_64:
        if (in->end - in->at < 8) return CUT;
        memcpy(&bits, in->at, 8);
        in->at += 8;
        break;
    case WIRE_32:
        if (in->end - in->at < 4) return CUT;
        memcpy(&half, in->at, 4);
        in->at += 4;
        bits = half;
        break;
    default:
        if (!number_of(in, &bits)) return CUT;
    }
    int64_t number = typed(field->type, bits);
    if (field->flags & CLOSED && !is_allowed(work->program, field, (int32_t)number)) return FINE;
    if ((field->type == UINT_64 || field->type == FIXED_64) && number < 0) *state = OUT_OF_RANGE;
    if (*state != ABSENT && *state != SET) return FINE;
    uint8_t *to = room_of(work, field->slot, text.length * 6 + 32); /* the last bracket, too */
    if (to == NULL) return CUT;
    *to++ = kept->used == kept->start ? '[' : ',';
    if (field->type == STRING) {
        to = put_json(to, &text);
    } else if (field->type == BOOLEAN) {
        memcpy(to, number ? "true" : "false", number ? 4 : 5);
        to += number ? 4 : 5;
    } else {
        to = put_digits(to, number);
    }
    kept->used = to - kept->data;
    *state = SET;
    return FINE;
}

/* A value of a list, or several in one. */
static int add_elements(Work *work, const Field *field, Input *in, int wire) {
    if (wire == wire_of(field->type)) return add_element(work, field, in);
    Span span;
    if (!bytes_of(in, &span)) return CUT;
    Input inner = {span.at, span.at + span.length};
    while (inner.at < inner.end)
        if (add_element(work, field, &inner) != FINE) return CUT;
    return FINE;
}

/* Why a column has no value: FINE if it may have none, and has got what stands for that. */
static int settle(Work *work, int32_t slot, int64_t row, int32_t *concerned) {
    const Program *program = work->program;
    const Rule *rule = &program->rules[slot];
    Out *out = &work->found.out[slot];
    int rest = rule->rule, lacking = -1;
    for (int32_t object = rule->object; object >= 0; object = program->objects[object].parent)
        if (work->state[program->columns + object] == ABSENT) lacking = object; /* the outermost counts */
    if (lacking >= 0) rest = program->objects[lacking].optional ? NOTHING : FLAWED;
    *concerned = slot;
    switch (rest) {
    case NOTHING: put_null(out, row); return FINE;
    case EMPTY: put_empty(out, row); return FINE;
    case BRACKETS: out->spans[row] = (Span){(const uint8_t *)"[]", 2}; return FINE;
    case TIME: {
        int64_t seconds = work->parts[rule->x], nanos = work->parts[rule->x + 1];
        if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos > 999999999) return OUT_OF_RANGE;
        put_long(out, row, seconds * 1000000 + nanos / 1000);
        return FINE;
    }
    default: return MISSING;
    }
}

/* -------------------------------------------------------------------------------------------------------------- messages */

static inline const Field *field_of(const Program *program, const Table *table, int32_t number) {
    if (number < DENSE) return table->dense[number] < 0 ? NULL : program->fields + table->dense[number];
    int32_t low = table->first, high = table->first + table->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (program->fields[middle].number < number) low = middle + 1;
        else high = middle;
    }
    return low < table->first + table->count && program->fields[low].number == number ? program->fields + low : NULL;
}

static int read_message(Work *work, int32_t table, Input *in, int64_t row, int depth, int32_t group);

/* Values of a list in one: 0 if they do not fill it. */
static int is_packed(const Field *field, const Span *span) {
    Input in = {span->at, span->at + span->length};
    uint64_t any;
    switch (wire_of(field->type)) {
    case WIRE_64: return span->length % 8 == 0;
    case WIRE_32: return span->length % 4 == 0;
    default:
        while (in.at < in.end)
            if (!number_of(&in, &any)) return 0;
        return 1;
    }
}

/* A message, which has its table, or a group. */
static int read_inner(Work *work, const Field *field, Input *in, int64_t row, int depth) {
    if (depth >= DEEPEST_MESSAGE) return CUT;
    if (field->type == GROUP) return read_message(work, field->table, in, row, depth + 1, field->number);
    Span span;
    if (!bytes_of(in, &span)) return CUT;
    Input inner = {span.at, span.at + span.length};
    return read_message(work, field->table, &inner, row, depth + 1, 0);
}

/* A field of which there is no column, or one that gets the bytes as they are. */
static int pass(Work *work, const Field *field, Input *in, int wire, int64_t row, int depth) {
    uint64_t bits = 0;
    Span span;
    if (field->type == MESSAGE || field->type == GROUP) {
        int flaw = read_inner(work, field, in, row, depth);
        if (flaw != FINE) return flaw;
    } else if (wire != wire_of(field->type)) {
        if (!bytes_of(in, &span) || !is_packed(field, &span)) return CUT;
    } else if (wire == BYTES) {
        if (!bytes_of(in, &span) || (field->flags & CHECKED && !is_utf8(span.at, span.length))) return CUT;
    } else if (wire == VARINT) {
        if (!number_of(in, &bits)) return CUT;
        if (field->flags & CLOSED && !is_allowed(work->program, field, (int32_t)(uint32_t)bits)) return FINE;
    } else if (!skip_unknown(in, field->number, wire, depth)) {
        return CUT;
    }
    if (field->oneof >= 0) choose(work, field);
    return FINE;
}

/* The fields of a message, inside of `depth` others, up to its end or that of the group. FINE, or why the record is bad. */
static int read_message(Work *work, int32_t number_of_table, Input *in, int64_t row, int depth, int32_t group) {
    const Program *program = work->program;
    const Table *table = &program->tables[number_of_table];
    while (in->at < in->end) {
        const uint8_t *begin = in->at;
        int32_t number;
        int wire, flaw;
        if (!tag_of(in, &number, &wire) || number == 0) return CUT;
        if (wire == END) return number == group ? FINE : CUT;
        const Field *field = field_of(program, table, number);
        if (field == NULL || (wire != wire_of(field->type) &&
                              !(wire == BYTES && field->flags & REPEATED && wire_of(field->type) != BEGIN))) {
            if (!skip_unknown(in, number, wire, depth)) return CUT;
            continue;
        }
        switch (field->action) {
        case FILL:
        case PART: flaw = fill(work, field, in, row); break;
        case INTO:
            if (field->oneof >= 0) choose(work, field);
            if (field->object >= 0) work->state[program->columns + field->object] = SET;
            if (field->slot >= 0) {
                put_bool(&work->found.out[field->slot], row, 1);
                work->state[field->slot] = SET;
            }
            flaw = read_inner(work, field, in, row, depth);
            break;
        case LIST: flaw = add_elements(work, field, in, wire); break;
        default:
            flaw = pass(work, field, in, wire, row, depth);
            if (flaw == FINE && field->action == KEEP) flaw = keep(work, field->slot, begin, in->at);
        }
        if (flaw != FINE) return flaw;
    }
    return group ? CUT : FINE;
}

static int read_record(Work *work, Input *in, int64_t row, int32_t *concerned) {
    const Program *program = work->program;
    memset(work->state, ABSENT, (size_t)(program->columns + program->object_count));
    if (program->parts) memset(work->parts, 0, (size_t)program->parts * 8);
    if (program->oneofs) memset(work->chosen, 0, (size_t)program->oneofs * 4);
    int flaw = read_message(work, 0, in, row, 0, 0);
    for (int32_t slot = 0; flaw == FINE && slot < program->columns; slot++) {
        if (work->state[slot] == SET) continue;
        if (work->state[slot] == ABSENT) {
            flaw = settle(work, slot, row, concerned);
        } else {
            *concerned = slot;
            flaw = work->state[slot];
        }
    }
    if (flaw == FINE) *concerned = -1;
    return flaw;
}

/* A row is complete: what is kept of a column is its value. Where it lies is known when all rows are: see `place_kept`. */
static int close_kept(Work *work, int32_t slot, int64_t row) {
    Kept *kept = &work->kept[slot];
    Span *span = &work->found.out[slot].spans[row];
    uint8_t *to;
    if (work->program->keeps[slot] == AS_BASE64 && span->length > 0) {
        int64_t size = (span->length + 2) / 3 * 4;
        if ((to = room_of(work, slot, size)) == NULL) return 0;
        put_base64(to, span->at, span->length);
        kept->used += size;
    } else if (work->program->keeps[slot] == AS_LIST && kept->used > kept->start) {
        if ((to = room_of(work, slot, 1)) == NULL) return 0;
        *to = ']';
        kept->used++;
    }
    if (kept->used > kept->start) *span = (Span){NULL, kept->used - kept->start};
    kept->start = kept->used;
    return 1;
}

static ALWAYS_INLINE int read_one(void *of, int64_t index, const uint8_t *at, const uint8_t *end, int64_t row, int32_t *concerned) {
    Work *work = of;
    const Program *program = work->program;
    int64_t number = long_at(work->which, index);
    if (number >= work->skipped->len / 8) return -2;
    int64_t skipped = number < 0 ? -1 : long_at(work->skipped->buf, number);
    if (skipped < 0) return NO_SCHEMA;
    if (end - at < skipped) return CUT;
    Input in = {at + skipped, end};
    int flaw = read_record(work, &in, row, concerned);
    if (work->failed) return -1;
    if (flaw != FINE) forget_row(&work->found, row);
    for (int32_t i = 0; i < program->keeping_count; i++) {
        int32_t slot = program->keeping[i];
        if (flaw != FINE) work->kept[slot].used = work->kept[slot].start;
        else if (!close_kept(work, slot, row)) return -1;
    }
    return flaw;
}

/* What has been kept lies where it will stay. */
static void place_kept(Work *work, int64_t rows) {
    for (int32_t i = 0; i < work->program->keeping_count; i++) {
        Span *spans = work->found.out[work->program->keeping[i]].spans;
        const uint8_t *at = work->kept[work->program->keeping[i]].data;
        for (int64_t row = 0; row < rows; row++) {
            if (spans[row].length == 0 || spans[row].at != NULL) continue;
            spans[row].at = at;
            at += spans[row].length;
        }
    }
}

/* -------------------------------------------------------------------------------------------------------------- programs */

static void free_program(Program *program) {
    if (program == NULL) return;
    PyMem_RawFree(program->fields);
    PyMem_RawFree(program->tables);
    PyMem_RawFree(program->rules);
    PyMem_RawFree(program->objects);
    PyMem_RawFree(program->cleared);
    PyMem_RawFree(program->keeping);
    PyMem_RawFree(program->keeps);
    PyMem_RawFree(program->longs);
    PyMem_RawFree(program->kinds);
    PyMem_RawFree(program);
}

static void program_dies(PyObject *capsule) { free_program(PyCapsule_GetPointer(capsule, PROGRAM)); }

static int within(int64_t number, int64_t least, int64_t end) { return number >= least && number < end; }

/* Whether a column of this type can get the values of a field of this one. */
static int is_fitting(int type, int kind) {
    switch (type) {
    case STRING: case BLOB: return kind == TEXT;
    case DOUBLE: case FLOAT: return kind == FLOAT64;
    case BOOLEAN: return kind == BOOL;
    case MESSAGE: case GROUP: return 0;
    default: return kind == INT64 || kind == FLOAT64;
    }
}

/* Whether a list of what is cleared stays within what there is. */
static int is_list(const Program *program, int32_t at) {
    if (!within(at, 0, program->cleared_count) || !within(program->cleared[at], 0, program->cleared_count - at)) return 0;
    for (int32_t i = 1; i <= program->cleared[at]; i++)
        if (!within(program->cleared[at + i], 0, (int64_t)program->columns + program->object_count + program->parts)) return 0;
    return 1;
}

static int is_field(const Program *program, const Field *field) {
    int inner = field->type == MESSAGE || field->type == GROUP;
    if (!within(field->number, 1, MOST_NUMBER + 1) || !within(field->type, DOUBLE, TYPES) || !within(field->flags, 0, 8)) return 0;
    if (!within(field->oneof, -1, program->oneofs) || (field->oneof >= 0 && !is_list(program, field->member))) return 0;
    if (inner && !within(field->table, 0, program->table_count)) return 0;
    if (field->flags & CLOSED &&
        (field->type != ENUM || !within(field->x, 0, program->long_count + 1) || !within(field->y, 0, program->long_count - field->x + 1)))
        return 0;
    if (field->flags & REPEATED ? field->action != SKIP && field->action != KEEP && field->action != LIST : field->action == LIST) return 0;
    switch (field->action) {
    case SKIP: return 1;
    case FILL: return within(field->slot, 0, program->columns) && is_fitting(field->type, program->kinds[field->slot]);
    case KEEP: return within(field->slot, 0, program->columns) && program->kinds[field->slot] == TEXT;
    case LIST:
        return within(field->slot, 0, program->columns) && program->kinds[field->slot] == TEXT &&
               (field->type == STRING || field->type == BOOLEAN || is_fitting(field->type, INT64));
    case PART: return within(field->slot, 0, program->parts) && is_fitting(field->type, INT64);
    case INTO:
        return inner && within(field->object, -1, program->object_count) && within(field->slot, -1, program->columns) &&
               (field->slot < 0 || program->kinds[field->slot] == BOOL);
    default: return 0;
    }
}

static int is_sound(const Program *program) {
    for (int32_t i = 0; i < program->columns; i++) {
        const Rule *rule = &program->rules[i];
        if (program->kinds[i] > TEXT || !within(rule->object, -1, program->object_count) || !within(rule->rule, NOTHING, RULES)) return 0;
        if (rule->rule == BRACKETS && program->kinds[i] != TEXT) return 0;
        if (rule->rule == TIME && (program->kinds[i] != INT64 || !within(rule->x, 0, (int64_t)program->parts - 1))) return 0;
    }
    for (int32_t i = 0; i < program->object_count; i++)
        if (!within(program->objects[i].parent, -1, i)) return 0; /* so that the way out ends */
    if (program->oneofs && (program->cleared_count == 0 || program->cleared[0] != 0)) return 0;
    for (int32_t i = 0; i < program->field_count; i++)
        if (!is_field(program, &program->fields[i])) return 0;
    for (int32_t i = 0; i < program->table_count; i++) {
        const Table *table = &program->tables[i];
        if (!within(table->first, 0, program->field_count + 1) || !within(table->count, 0, program->field_count - table->first + 1)) return 0;
        for (int32_t j = table->first + 1; j < table->first + table->count; j++)
            if (program->fields[j].number <= program->fields[j - 1].number) return 0;
    }
    return 1;
}

static void *copy_of(const Py_buffer *from) {
    void *made = PyMem_RawMalloc((size_t)from->len + 8);
    if (made != NULL) memcpy(made, from->buf, (size_t)from->len);
    return made;
}

/* The tables with the rows of each number, and the columns that keep something. 0 if memory was not to be had. */
static int prepare(Program *program, const int32_t *tables) {
    program->tables = PyMem_RawCalloc((size_t)program->table_count + 1, sizeof(Table));
    program->keeping = PyMem_RawCalloc((size_t)program->columns + 1, sizeof(int32_t));
    program->keeps = PyMem_RawCalloc((size_t)program->columns + 1, 1);
    if (program->tables == NULL || program->keeping == NULL || program->keeps == NULL) return 0;
    for (int32_t i = 0; i < program->table_count; i++) {
        program->tables[i].first = tables[i * 2];
        program->tables[i].count = tables[i * 2 + 1];
    }
    return 1;
}

static void index_fields(Program *program) {
    for (int32_t i = 0; i < program->table_count; i++) {
        Table *table = &program->tables[i];
        memset(table->dense, 0xFF, sizeof table->dense);
        for (int32_t j = table->first; j < table->first + table->count; j++)
            if (program->fields[j].number < DENSE) table->dense[program->fields[j].number] = j;
    }
    for (int32_t i = 0; i < program->field_count; i++) {
        const Field *field = &program->fields[i];
        int what = field->action == KEEP ? AS_IT_IS : field->action == LIST ? AS_LIST : field->action == FILL && field->type == BLOB ? AS_BASE64 : 0;
        if (what == 0) continue;
        if (program->keeps[field->slot] == 0) program->keeping[program->keeping_count++] = field->slot;
        program->keeps[field->slot] = (uint8_t)what;
    }
}

/* proto_program(fields, tables, rules, objects, cleared, constants, kinds of the columns, parts, oneofs) -> what `proto_decode` runs. The first
 * five are 32-bit integers, as the types above have them. */
static PyObject *proto_program(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer of[7];
    PyObject *capsule = NULL;
    int parts, oneofs;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*ii", &of[0], &of[1], &of[2], &of[3], &of[4], &of[5], &of[6], &parts, &oneofs)) return NULL;
    Program *program = PyMem_RawCalloc(1, sizeof(Program));
    if (program == NULL) goto done;
    const Py_ssize_t sizes[7] = {sizeof(Field), 8, sizeof(Rule), sizeof(Object), 4, 8, 1};
    int sound = of[6].len <= MOST_COLUMNS && of[1].len / 8 <= MOST_TABLES && of[1].len > 0 && of[2].len / (Py_ssize_t)sizeof(Rule) == of[6].len &&
                within(parts, 0, MOST_COLUMNS * 2 + 1) && within(oneofs, 0, MOST_COLUMNS + 1);
    for (int i = 0; i < 7; i++) sound &= of[i].len % sizes[i] == 0 && of[i].len <= 1 << 24;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    sound = 0; /* nobody has tried the other order */
#endif
    if (!sound) goto done;
    program->field_count = (int32_t)(of[0].len / (Py_ssize_t)sizeof(Field));
    program->table_count = (int32_t)(of[1].len / 8);
    program->object_count = (int32_t)(of[3].len / (Py_ssize_t)sizeof(Object));
    program->cleared_count = (int32_t)(of[4].len / 4);
    program->long_count = of[5].len / 8;
    program->columns = (int32_t)of[6].len;
    program->parts = parts;
    program->oneofs = oneofs;
    program->fields = copy_of(&of[0]);
    program->rules = copy_of(&of[2]);
    program->objects = copy_of(&of[3]);
    program->cleared = copy_of(&of[4]);
    program->longs = copy_of(&of[5]);
    program->kinds = copy_of(&of[6]);
    int32_t *tables = copy_of(&of[1]);
    int made = tables != NULL && prepare(program, tables);
    PyMem_RawFree(tables);
    if (!made || !program->fields || !program->rules || !program->objects || !program->cleared || !program->longs || !program->kinds) goto done;
    if (!is_sound(program)) goto done;
    index_fields(program);
    capsule = PyCapsule_New(program, PROGRAM, program_dies);
done:
    if (capsule == NULL) {
        free_program(program);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such program");
    }
    for (int i = 0; i < 7; i++) PyBuffer_Release(&of[i]);
    return capsule;
}

/* -------------------------------------------------------------------------------------------------------------- decoding */

static int start_work(Work *work, const Program *program, int64_t count) {
    work->program = program;
    if (start_found(&work->found, program->columns, count) < 0) return -1;
    work->state = PyMem_RawCalloc((size_t)program->columns + (size_t)program->object_count + 1, 1);
    work->parts = PyMem_RawCalloc((size_t)program->parts + 1, 8);
    work->chosen = PyMem_RawCalloc((size_t)program->oneofs + 1, 4);
    work->kept = PyMem_RawCalloc((size_t)program->columns + 1, sizeof(Kept));
    if (!work->state || !work->parts || !work->chosen || !work->kept) return -1;
    for (int32_t i = 0; i < program->columns; i++)
        if (start_column(&work->found.out[i], program->kinds[i], 1, 1, count) < 0) return -1;
    return 0;
}

static void free_work(Work *work) {
    for (int32_t i = 0; work->kept != NULL && i < work->found.columns; i++) PyMem_RawFree(work->kept[i].data);
    free_found(&work->found);
    PyMem_RawFree(work->state);
    PyMem_RawFree(work->parts);
    PyMem_RawFree(work->chosen);
    PyMem_RawFree(work->kept);
}

/* proto_decode(program, bytes in front of a message by the number of a prefix: -1 if it is of none, the number of the prefix by record, buffer,
 * offsets, lengths) -> see `found_made` */
static PyObject *proto_decode(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *capsule, *out = NULL;
    Py_buffer skipped, which;
    Lying lying;
    if (!PyArg_ParseTuple(args, "Oy*y*y*y*y*", &capsule, &skipped, &which, &lying.data, &lying.offsets, &lying.lengths)) return NULL;
    Work work;
    memset(&work, 0, sizeof work);
    const Program *program = PyCapsule_GetPointer(capsule, PROGRAM);
    if (program == NULL || lying_of(&lying) < 0) goto done;
    if (which.len != lying.offsets.len || skipped.len % 8) {
        PyErr_SetString(PyExc_ValueError, "offsets, lengths and prefixes are not of one length");
        goto done;
    }
    if (start_work(&work, program, lying.count) < 0) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    work.skipped = &skipped;
    work.which = which.buf;
    int64_t rows;
    Py_BEGIN_ALLOW_THREADS
    rows = read_each(&work.found, &lying, &work, read_one);
    if (rows > 0) place_kept(&work, rows);
    Py_END_ALLOW_THREADS
    out = rows >= 0 ? found_made(&work.found, rows, lying.count) : refused(rows, "lies outside of the buffer, or has no such prefix");
done:
    free_work(&work);
    PyBuffer_Release(&skipped);
    PyBuffer_Release(&which);
    PyBuffer_Release(&lying.data);
    PyBuffer_Release(&lying.offsets);
    PyBuffer_Release(&lying.lengths);
    return out;
}

PyMethodDef proto_read_methods[] = {
    {"proto_program", proto_program, METH_VARARGS, "What reads the messages of one class."},
    {"proto_decode", proto_decode, METH_VARARGS, "Protobuf messages as Arrow vectors."},
    {NULL, NULL, 0, NULL},
};
