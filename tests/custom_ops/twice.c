/* A library of one custom operator for ONNX Runtime: local.ops::Twice, float32 of any shape, each element twice.

   Built without onnxruntime_c_api.h, which the Python package does not ship: the functions of OrtApi are taken by their
   places in it, which never change (that header, "existing functions are never moved"). */
#include <stddef.h>
#include <stdint.h>

enum { CREATE_DOMAIN = 26, DOMAIN_ADD = 27, OPTIONS_ADD_DOMAIN = 28, TENSOR_DATA = 51, DIMENSION_COUNT = 61,
       DIMENSIONS = 62, ELEMENT_COUNT = 64, TENSOR_SHAPE = 65, GET_INPUT = 90, GET_OUTPUT = 91, RELEASE_SHAPE = 99 };
enum { API_VERSION = 1, FLOAT = 1, MOST_DIMENSIONS = 8 };

typedef void *(*Call)();
struct Base { Call *(*get_api)(uint32_t); const char *(*version)(void); };
struct Operator {
  uint32_t version;
  void *(*create)(const struct Operator *, const void *, const void *);
  const char *(*name)(const struct Operator *);
  const char *(*provider)(const struct Operator *);
  int (*input_type)(const struct Operator *, size_t);
  size_t (*input_count)(const struct Operator *);
  int (*output_type)(const struct Operator *, size_t);
  size_t (*output_count)(const struct Operator *);
  void (*compute)(void *, void *);
  void (*destroy)(void *);
  int (*input_kind)(const struct Operator *, size_t);
  int (*output_kind)(const struct Operator *, size_t);
};

static Call *api;

static void *create(const struct Operator *self, const void *a, const void *b) { (void)a, (void)b; return (void *)self; }
static const char *name(const struct Operator *self) { (void)self; return "Twice"; }
static const char *provider(const struct Operator *self) { (void)self; return NULL; }
static int type(const struct Operator *self, size_t at) { (void)self, (void)at; return FLOAT; }
static int required(const struct Operator *self, size_t at) { (void)self, (void)at; return 0; }
static size_t one(const struct Operator *self) { (void)self; return 1; }
static void destroy(void *kernel) { (void)kernel; }

static void compute(void *kernel, void *context) {
  void *input = NULL, *output = NULL, *shape = NULL;
  float *from = NULL, *to = NULL;
  int64_t sizes[MOST_DIMENSIONS];
  size_t rank = 0, count = 0;
  (void)kernel;
  api[GET_INPUT](context, (size_t)0, &input);
  api[TENSOR_SHAPE](input, &shape);
  api[DIMENSION_COUNT](shape, &rank);
  api[DIMENSIONS](shape, sizes, rank);
  api[ELEMENT_COUNT](shape, &count);
  api[RELEASE_SHAPE](shape);
  api[GET_OUTPUT](context, (size_t)0, sizes, rank, &output);
  api[TENSOR_DATA](input, &from);
  api[TENSOR_DATA](output, &to);
  for (size_t at = 0; at < count; at++)
    to[at] = 2 * from[at];
}

static struct Operator twice = {API_VERSION, create, name, provider, type, one, type, one, compute, destroy, required,
                                required};

void *RegisterCustomOps(void *options, const struct Base *base) {
  void *domain = NULL;
  api = base->get_api(API_VERSION);
  void *status = api[CREATE_DOMAIN]("local.ops", &domain);
  status = status ? status : api[DOMAIN_ADD](domain, &twice);
  return status ? status : api[OPTIONS_ADD_DOMAIN](options, domain);
}
