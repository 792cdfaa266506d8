/*
 * A GPU's driver, its matrix library and its run-time compiler, CUDA's or (with -DAMD) HIP's. Nothing is computed: time
 * on the device is counted from what each kernel is asked to do, at the rates below, with formulas of its own. So what
 * is measured through it must come out as these rates.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef AMD
#define API(cuda, hip) hip
#define LT(name) hipblasLt##name
#define RTC(name) hiprtc##name
enum { UNITS = 63, L2 = 19, TRANSPOSE = 112, TRANSPOSE_A = 0, ALGORITHM = 56, F8 = 1000, I32 = 9 };
#else
#define API(cuda, hip) cuda
#define LT(name) cublasLt##name
#define RTC(name) nvrtc##name
enum { UNITS = 16, L2 = 38, TRANSPOSE = 1, TRANSPOSE_A = 3, ALGORITHM = 96, F8 = 28, I32 = 72 };
#endif

/* The device's rates: bytes or operations per second. */
#define MEMORY 4e12
#define L2_RATE 7e12
#define LDS_RATE 3e13
#define FMA32 6e13
#define FMA16 1.2e14
#define FMA64 3e13
#define MATRIX 7e14
#define LINK 5.5e10
#define EMPTY 1e-6
#define QUEUED 1e-5 /* until the host has queued the next, where the device has nothing to do */

static double now;            /* of the device, in s */
static double waited;         /* until then: all is done */
static double captured = -1;  /* of a graph that is being captured; -1: none is */
static double *clock_now(void) { return captured < 0 ? &now : &captured; }
static int transposed;
static uint64_t next_address = 1 << 20;
static long allocated;

static int fault(const char *name)
{
	const char *asked = getenv("FAKE_GPU_FAULT");
	return asked && strstr(asked, name);
}

int API(cuInit, hipInit)(unsigned flags)
{
	if (fault("hang"))
		pause();
	if (fault("die"))
		abort();
	return fault("none") ? 100 : 0;
}
/* FAKE_GPU_KINDS: how many devices there are, each of another kind (1); FAKE_GPU_ALIKE: all of one kind. */
static int current;
static int other(int device) { return device && !getenv("FAKE_GPU_ALIKE"); }
static int kinds(void) { const char *asked = getenv("FAKE_GPU_KINDS"); return asked ? atoi(asked) : 1; }
int API(cuDeviceGetCount, hipGetDeviceCount)(int *count) { *count = kinds(); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &now + (current = device); return device >= kinds(); }
int cuCtxSetCurrent(void *context) { return context != &now + current; }
int hipSetDevice(int device) { current = device; return device >= kinds(); }
int API(cuDeviceGetName, hipDeviceGetName)(char *name, int size, int device) { snprintf(name, size, other(device) ? "Other GPU" : "Fake GPU"); return 0; }
int API(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char *name, int size, int device) { snprintf(name, size, "0000:0%c:00.0", 'b' + device); return 0; }
int API(cuDeviceGetAttribute, hipDeviceGetAttribute)(int *value, int which, int device)
{
	*value = which == UNITS ? (other(device) ? 66 : 132) : which == L2 ? 50 << 20 : which == 75 ? 9 : 0;
	return 0;
}
int API(cuGetErrorString, hipGetErrorString_)(int code, const char **text) { *text = "out of memory"; return 0; }
const char *hipGetErrorString(int code) { return "out of memory"; }
int API(cuMemGetInfo_v2, hipMemGetInfo)(size_t *free, size_t *all)
{
	*all = (other(current) ? 40UL : 80UL) << 30;
	*free = fault("full") ? 300 << 20 : *all - (2UL << 30);
	return 0;
}
int API(cuModuleLoadData, hipModuleLoadData)(void **module, const char *code) { *module = (void *)code; return memcmp(code, "code", 4) && memcmp(code, "\177ELF", 4); }
static const char *names[] = {"memory_read", "memory_write", "memory_copy", "memory_add", "l2_read", "lds_read",
			      "fma_f32", "fma_f16", "fma_f64", "empty"};
int API(cuModuleGetFunction, hipModuleGetFunction)(void **function, void *module, const char *name)
{
	for (int i = 0; i < 10; i++)
		if (!strcmp(names[i], name)) {
			*function = (void *)(intptr_t)(i + 1);
			return 0;
		}
	return 500;
}
/* FAKE_GPU_LAUNCH_NS: how long the host takes to queue a kernel; less than that is spent in Python's calls. */
static long launch_ns(void)
{
	static long ns = -1;
	const char *asked = ns < 0 ? getenv("FAKE_GPU_LAUNCH_NS") : NULL;
	if (ns < 0)
		ns = asked ? atol(asked) : 300;
	return ns;
}
static void spin(long ns)
{
	struct timespec begun, is;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do
		clock_gettime(CLOCK_MONOTONIC, &is);
	while ((is.tv_sec - begun.tv_sec) * 1000000000L + is.tv_nsec - begun.tv_nsec < ns);
}
int API(cuLaunchKernel, hipModuleLaunchKernel)(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
					       unsigned bz, unsigned shared, void *stream, void **given, void **extra)
{
	int which = (int)(intptr_t)function - 1;
	double threads = (double)x * bx;
	static const double lanes[] = {1, 1, 2, 3};
	if (y * z * by * bz != 1 || bx != 256 || stream != &next_address)
		return 1;
	if (which < 4) /* four vectors of 16 bytes a thread and array */
		*clock_now() += lanes[which] * threads * 64 / MEMORY;
	else if (which == 4) {
		unsigned vectors = *(unsigned *)given[2], turns = *(unsigned *)given[3];
		if (vectors & (vectors - 1) || vectors * 16UL > (50UL << 20) / 4)
			return 1;
		*clock_now() += threads * turns * 64 / L2_RATE;
	} else if (which == 5) /* eight vectors a thread and turn */
		*clock_now() += threads * *(unsigned *)given[2] * 128 / LDS_RATE;
	else if (which < 9) {
		static const double flops[] = {32, 32, 16}, rates[] = {FMA32, FMA16, FMA64};
		*clock_now() += threads * *(unsigned *)given[3] * flops[which - 6] / rates[which - 6];
	} else {
		*clock_now() += EMPTY;
		spin(captured < 0 ? launch_ns() : 0);
	}
	return 0;
}
int API(cuMemAlloc_v2, hipMalloc)(uint64_t *at, size_t size) { *at = next_address; next_address += size + 256; allocated++; return 0; }
int API(cuMemFree_v2, hipFree)(uint64_t at) { allocated--; return allocated < 0; }
int API(cuMemHostAlloc, hipHostMalloc)(void **at, size_t size, unsigned flags) { *at = malloc(16); return 0; }
int API(cuMemFreeHost, hipHostFree)(void *at) { free(at); return 0; }
int API(cuMemcpyHtoD_v2, hipMemcpyHtoD)(uint64_t to, void *from, size_t size) { return 0; }
int API(cuMemcpyDtoH_v2, hipMemcpyDtoH)(void *to, uint64_t from, size_t size) { return fault("copy") ? 2 : 0; }
int API(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(uint64_t to, void *from, size_t size, void *stream) { now += size / LINK; return 0; }
int API(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *to, uint64_t from, size_t size, void *stream) { now += size / LINK; return 0; }
int API(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(uint64_t to, uint64_t from, size_t size, void *stream) { now += 2 * size / MEMORY; return 0; }
int API(cuMemsetD32Async, hipMemsetD32Async)(uint64_t to, unsigned value, size_t count, void *stream) { now += 4 * count / MEMORY; return 0; }
int API(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags) { *stream = &next_address; return 0; }
int API(cuStreamSynchronize, hipStreamSynchronize)(void *stream) { waited = now; return fault("sticky") ? 700 : 0; }
int API(cuEventCreate, hipEventCreateWithFlags)(void **event, unsigned flags) { *event = malloc(sizeof(double)); return 0; }
int API(cuEventRecord, hipEventRecord)(double *event, void *stream)
{
	*event = now;
	if (now == waited)
		now += QUEUED;
	return 0;
}
int API(cuEventElapsedTime, hipEventElapsedTime)(float *ms, double *start, double *end) { *ms = (*end - *start) * 1e3; return 0; }
int API(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *stream, int mode) { captured = 0; return 0; }
int API(cuStreamEndCapture, hipStreamEndCapture)(void *stream, void **graph)
{
	*graph = malloc(sizeof(double));
	**(double **)graph = captured;
	captured = -1;
	return 0;
}
int API(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void **launchable, void *graph, unsigned long long flags)
{
	*launchable = graph;
	return 0;
}
int API(cuGraphLaunch, hipGraphLaunch)(double *graph, void *stream) { now += *graph; return 0; }

/* Matrix products. */

struct layout { int type; uint64_t rows, columns; };
struct description { int compute, scale; };
int LT(Create)(void **handle) { *handle = &now; return fault("no blas") ? 1 : 0; }
int LT(Destroy)(void *handle) { return handle != &now; }
int LT(MatmulDescCreate)(struct description **made, int compute, int scale)
{
	*made = malloc(sizeof **made);
	**made = (struct description){compute, scale};
	transposed = 0;
	return 0;
}
int LT(MatmulDescSetAttribute)(void *description, int which, int *value, size_t size)
{
	if (which == TRANSPOSE_A)
		transposed = size == 4 && *value == TRANSPOSE;
	return 0;
}
int LT(MatrixLayoutCreate)(struct layout **made, int type, uint64_t rows, uint64_t columns, int64_t leading)
{
	*made = malloc(sizeof **made);
	**made = (struct layout){type, rows, columns};
	return leading != (int64_t)rows;
}
int LT(MatmulPreferenceCreate)(void **made) { *made = &now; return 0; }
int LT(MatmulPreferenceSetAttribute)(void *preference, int which, uint64_t *value, size_t size) { return which != 1 || size != 8; }
int LT(MatmulAlgoGetHeuristic)(void *handle, struct description *d, struct layout *a, struct layout *b, struct layout *c,
			       struct layout *to, void *preference, int asked, char *results, int *count)
{
	if ((a->type == F8 || d->compute == I32) && !transposed)
		return 15;
	*count = fault("no f8") && a->type == F8 ? 0 : 3;
	for (int i = 0; i < *count; i++)
		results[i * ALGORITHM] = i; /* the first is refused when it is used */
	return 0;
}
/* The second algorithm is the faster one. */
int LT(Matmul)(void *handle, struct description *d, void *one, uint64_t a, struct layout *la, uint64_t b, struct layout *lb,
	       void *none, uint64_t c, struct layout *lc, uint64_t to, struct layout *lto, char *algorithm, uint64_t workspace,
	       size_t size, void *stream)
{
	double n = la->rows;
	if (!a || !b || a == b || c != to || stream != &next_address || size != 64 << 20 || (*algorithm != 1 && *algorithm != 2))
		return 7;
	now += 2 * n * n * n / (*algorithm == 2 ? MATRIX : MATRIX / 2);
	return 0;
}

/* A compiler that looks at what it is given and no further. */

static int good;
int RTC(CreateProgram)(void **program, const char *source, const char *name, int headers, const char **texts, const char **named)
{
	good = headers == 2 && strstr(source, "memory_read") && !strcmp(named[0], "hip/hip_runtime.h") && !strcmp(named[1], "device.h");
	*program = &now;
	return 0;
}
int RTC(CompileProgram)(void *program, int count, const char **options)
{
	for (int i = 0; i < count; i++)
		if (!strncmp(options[i], "--gpu-architecture=", 19) && good && !fault("no compile"))
			return 0;
	return 6;
}
static const char said[] = "kernels.hip.cpp(12): error: identifier \"nonsense\" is undefined\n1 error detected\n";
int RTC(GetProgramLogSize)(void *program, size_t *size) { *size = sizeof said; return 0; }
int RTC(GetProgramLog)(void *program, char *log) { memcpy(log, said, sizeof said); return 0; }
#ifdef AMD
int hiprtcGetCodeSize(void *program, size_t *size) { *size = 4; return 0; }
int hiprtcGetCode(void *program, char *code) { memcpy(code, "code", 4); return 0; }
#else
int nvrtcGetCUBINSize(void *program, size_t *size) { *size = 4; return 0; }
int nvrtcGetCUBIN(void *program, char *code) { memcpy(code, "code", 4); return 0; }
#endif
