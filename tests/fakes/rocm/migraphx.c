/* MIGraphX's functions that ONNX Runtime's provider calls, over an engine that Python registers (engine.py): it reads a
   model and runs it. Signatures and types: migraphx.h of ROCm 7. A program's parameters are its inputs by name, then its
   outputs as main:#output_N, as MIGraphX names them. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINE, UNKNOWN = 4, MOST = 256, DIMENSIONS = 16 };
typedef struct { int type; size_t count, lengths[DIMENSIONS], strides[DIMENSIONS], bytes; } shape;
typedef struct { shape is; void *at; } argument;
typedef struct { int id; size_t inputs, outputs; char *names[MOST]; shape shapes[MOST]; } program;
typedef struct { size_t count; const char *names[MOST]; const argument *given[MOST]; } parameters;
typedef struct { size_t count; argument all[MOST]; } arguments;
typedef struct { size_t count; char *names[MOST]; shape of[MOST]; } options;

static int (*parse)(program *, const void *, size_t, const options *);
static int (*run)(int, void **, void **);

/* For the engine. */
void fake_engine(void *parses, void *runs) { parse = parses; run = runs; }

static void shaped(shape *made, int type, size_t bytes, size_t count, const size_t *lengths) {
    made->type = type, made->count = count, made->bytes = bytes;
    for (size_t at = count; at-- > 0; bytes = 0)
        made->lengths[at] = lengths[at], made->strides[at] = at + 1 < count ? made->strides[at + 1] * lengths[at + 1] : 1;
    if (!count) made->count = 1, made->lengths[0] = 1, made->strides[0] = 0; /* how MIGraphX writes a scalar */
}

void fake_parameter(program *of, const char *name, int type, size_t bytes, size_t count, const size_t *lengths) {
    size_t at = of->inputs + of->outputs;
    if (at == MOST) abort();
    if (name) of->inputs++, of->names[at] = strdup(name);
    else if (asprintf(&of->names[at], "main:#output_%zu", of->outputs++) < 0) abort();
    shaped(&of->shapes[at], type, bytes, count, lengths);
}

size_t fake_given(const options *by, size_t at, const char **name, const size_t **lengths) {
    *name = by->names[at], *lengths = by->of[at].lengths;
    return at < by->count ? by->of[at].count : (size_t)-1;
}

/* What has nothing to say here: made, and freed. */
#define HANDLE(what) \
    int migraphx_##what##_create(void **made) { *made = calloc(1, 8); return FINE; } \
    int migraphx_##what##_destroy(void *one) { free(one); return FINE; }
HANDLE(compile_options)
HANDLE(file_options)
HANDLE(quantize_fp8_options)
HANDLE(quantize_int8_options)
int migraphx_compile_options_set_exhaustive_tune_flag(void *one, bool value) { return FINE; }
int migraphx_compile_options_set_fast_math(void *one, bool value) { return FINE; }
int migraphx_file_options_set_file_format(void *one, const char *format) { return FINE; }
int migraphx_target_create(void **made, const char *name) { *made = strdup(name); return strcmp(name, "gpu") ? 3 : FINE; }
int migraphx_target_destroy(void *one) { free(one); return FINE; }

/* Precisions and files of programs are not part of this engine. */
int migraphx_quantize_bf16(void *one) { return UNKNOWN; }
int migraphx_quantize_fp16(void *one) { return UNKNOWN; }
int migraphx_quantize_fp8(void *one, void *target, void *by) { return UNKNOWN; }
int migraphx_quantize_int8(void *one, void *target, void *by) { return UNKNOWN; }
int migraphx_quantize_fp8_options_add_calibration_data(void *one, void *data) { return UNKNOWN; }
int migraphx_quantize_int8_options_add_calibration_data(void *one, void *data) { return UNKNOWN; }
int migraphx_quantize_int8_options_add_op_name(void *one, const char *name) { return UNKNOWN; }
int migraphx_load(void **made, const char *name, void *by) { return UNKNOWN; }
int migraphx_save(void *one, const char *name, void *by) { return UNKNOWN; }

int migraphx_onnx_options_create(options **made) { *made = calloc(1, sizeof **made); return FINE; }
int migraphx_onnx_options_destroy(options *one) { free(one); return FINE; }
int migraphx_onnx_options_set_external_data_path(options *one, const char *path) { return FINE; }
int migraphx_onnx_options_set_input_parameter_shape(options *one, const char *name, size_t *lengths, size_t count) {
    if (one->count == MOST) abort();
    one->names[one->count] = strdup(name);
    shaped(&one->of[one->count], 0, 0, count, lengths);
    one->of[one->count++].count = count;
    return FINE;
}

int migraphx_shape_create_scalar(shape **made, int type) { *made = calloc(1, sizeof **made); shaped(*made, type, 0, 0, 0); return FINE; }
int migraphx_shape_destroy(shape *one) { free(one); return FINE; }
int migraphx_shape_lengths(const size_t **out, size_t *count, const shape *of) { *out = of->lengths, *count = of->count; return FINE; }
int migraphx_shape_strides(const size_t **out, size_t *count, const shape *of) { *out = of->strides, *count = of->count; return FINE; }
int migraphx_shape_type(int *out, const shape *of) { *out = of->type; return FINE; }
int migraphx_shape_bytes(size_t *out, const shape *of) { *out = of->bytes; return FINE; }

int migraphx_argument_create(argument **made, const shape *is, void *at) { *made = calloc(1, sizeof **made); **made = (argument){*is, at}; return FINE; }
int migraphx_argument_destroy(argument *one) { free(one); return FINE; }
int migraphx_argument_shape(const shape **out, const argument *of) { *out = &of->is; return FINE; }
int migraphx_argument_buffer(char **out, const argument *of) { *out = of->at; return FINE; }

int migraphx_program_create(program **made) { *made = calloc(1, sizeof **made); return FINE; }
int migraphx_program_destroy(program *one) { free(one); return FINE; } /* its names may be held by who asked for them */
int migraphx_program_compile(program *one, const char *target, void *by) { return FINE; }
int migraphx_parse_onnx_buffer(program **made, const void *model, size_t size, options *by) {
    *made = calloc(1, sizeof **made);
    return parse && ((*made)->id = parse(*made, model, size, by)) ? FINE : UNKNOWN;
}

int migraphx_program_get_parameter_shapes(program **out, program *of) { *out = malloc(sizeof **out); **out = *of; return FINE; }
int migraphx_program_parameter_shapes_destroy(program *one) { free(one); return FINE; }
int migraphx_program_parameter_shapes_size(size_t *out, program *of) { *out = of->inputs + of->outputs; return FINE; }
int migraphx_program_parameter_shapes_names(const char **out, program *of) { memcpy(out, of->names, (of->inputs + of->outputs) * sizeof *out); return FINE; }
int migraphx_program_parameter_shapes_get(const shape **out, program *of, const char *name) {
    for (size_t at = 0; at < of->inputs + of->outputs; at++)
        if (!strcmp(of->names[at], name)) { *out = &of->shapes[at]; return FINE; }
    return 1;
}
int migraphx_program_get_output_shapes(program **out, program *of) { return migraphx_program_get_parameter_shapes(out, of); }
int migraphx_shapes_destroy(program *one) { free(one); return FINE; }
int migraphx_shapes_size(size_t *out, program *of) { *out = of->outputs; return FINE; }
int migraphx_shapes_get(const shape **out, program *of, size_t at) { *out = &of->shapes[of->inputs + at]; return at < of->outputs ? FINE : 1; }

int migraphx_program_parameters_create(parameters **made) { *made = calloc(1, sizeof **made); return FINE; }
int migraphx_program_parameters_destroy(parameters *one) { free(one); return FINE; }
int migraphx_program_parameters_add(parameters *to, const char *name, const argument *given) {
    if (to->count == MOST) abort();
    to->names[to->count] = strdup(name);
    argument *kept = malloc(sizeof *kept);
    *kept = *given;
    to->given[to->count++] = kept;
    return FINE;
}
static const argument *of_name(const parameters *among, const char *name) {
    for (size_t at = 0; at < among->count; at++)
        if (!strcmp(among->names[at], name)) return among->given[at];
    return NULL;
}

int migraphx_program_run_async(arguments **out, program *what, parameters *by, void *stream, const char *kind) {
    void *in[MOST], *made[MOST];
    *out = calloc(1, sizeof **out);
    (*out)->count = what->outputs;
    for (size_t at = 0; at < what->inputs + what->outputs; at++) {
        const argument *given = of_name(by, what->names[at]);
        if (!given) return 1;
        if (at < what->inputs) in[at] = given->at;
        else made[at - what->inputs] = given->at, (*out)->all[at - what->inputs] = *given;
    }
    return run && run(what->id, in, made) ? FINE : UNKNOWN;
}
int migraphx_arguments_destroy(arguments *one) { free(one); return FINE; }
int migraphx_arguments_size(size_t *out, arguments *of) { *out = of->count; return FINE; }
int migraphx_arguments_get(const argument **out, arguments *of, size_t at) { *out = &of->all[at]; return at < of->count ? FINE : 1; }
