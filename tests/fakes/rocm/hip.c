/* The HIP calls that ONNX Runtime's MIGraphX provider makes, on a machine without a GPU: its memory is the host's, its
   streams are done when they are asked. Signatures: hip_runtime_api.h of ROCm 7. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FINE, PROPERTIES = 1472, ARCHITECTURE = 1160, NAME = 0, TOTAL_BYTES = 288, MOST_COPIES = 1 << 16 };

/* What a tracer would see of copies, for the engine; times are of CLOCK_BOOTTIME, as rocprofv3's are. */
struct { long begin_ns, end_ns, bytes, kind; } fake_copies[MOST_COPIES];
size_t fake_copied;

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

int hipGetDevice(int *device) { *device = 0; return FINE; }
int hipSetDevice(int device) { return device ? 101 : FINE; } /* hipErrorInvalidDevice */
int hipGetDeviceCount(int *count) { *count = 1; return FINE; }
int hipGetLastError(void) { return FINE; }
const char *hipGetErrorString(int code) { return code ? "the device that is none has no such thing" : "no error"; }
int hipDeviceSynchronize(void) { return FINE; }

int hipGetDevicePropertiesR0600(char *said, int device) {
    memset(said, 0, PROPERTIES);
    strcpy(said + NAME, "no Instinct at all");
    strcpy(said + ARCHITECTURE, "gfx942");
    *(size_t *)(said + TOTAL_BYTES) = (size_t)1 << 30;
    return device ? 101 : FINE;
}

int hipMalloc(void **at, size_t size) { return (*at = aligned_alloc(256, (size + 255) & ~(size_t)255)) ? FINE : 2; }
int hipHostMalloc(void **at, size_t size, unsigned flags) { return hipMalloc(at, size); }
int hipFree(void *at) { free(at); return FINE; }
int hipHostFree(void *at) { free(at); return FINE; }
int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    long begin = now();
    memmove(to, from, size);
    if (fake_copied < MOST_COPIES) {
        fake_copies[fake_copied].begin_ns = begin, fake_copies[fake_copied].end_ns = now();
        fake_copies[fake_copied].bytes = size, fake_copies[fake_copied++].kind = kind;
    }
    return FINE;
}
int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { return hipMemcpy(to, from, size, kind); }
int hipMemcpyWithStream(void *to, const void *from, size_t size, int kind, void *stream) { return hipMemcpy(to, from, size, kind); }

int hipStreamCreateWithFlags(void **stream, unsigned flags) { *stream = malloc(1); return FINE; }
int hipStreamDestroy(void *stream) { free(stream); return FINE; }
int hipStreamQuery(void *stream) { return FINE; }
int hipStreamSynchronize(void *stream) { return FINE; }
int hipStreamWaitEvent(void *stream, void *event, unsigned flags) { return FINE; }
int hipLaunchHostFunc(void *stream, void (*function)(void *), void *data) { function(data); return FINE; }
int hipEventCreateWithFlags(void **event, unsigned flags) { *event = malloc(1); return FINE; }
int hipEventDestroy(void *event) { free(event); return FINE; }
int hipEventRecord(void *event, void *stream) { return FINE; }
int hipEventSynchronize(void *event) { return FINE; }
