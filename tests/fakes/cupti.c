/* A libcupti of our own: the functions that the tracer calls, the real ABI of its callbacks, and known records.
 *
 * fake_work(n) is what a program does on its device: n kernels "alpha" and "beta" in turns, each launched by a runtime
 * call, and one copy. Records are laid out as in cupti_activity.h: only the fields that are read, at their offsets
 * (tests/captures/cupti_layouts), in records that are longer by FAKE_CUPTI_LONGER bytes.
 * FAKE_CUPTI_ERROR=FUNCTION:CODE makes a function return an error. FAKE_CUPTI_LOG names a file of the calls made.
 * FAKE_CUPTI_LIVE: work begins when it is asked for.
 * FAKE_CUPTI_LOCKED: a buffer is handed back with a lock held that fake_stream() waits for, as the real ones do.
 * FAKE_CUPTI_ROOM: bytes that are used of each buffer. FAKE_CUPTI_KEEPS: buffers are never handed back.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void (*Requested)(uint8_t **, size_t *, size_t *);
typedef void (*Completed)(void *, uint32_t, uint8_t *, size_t, size_t);
static Requested requested;
static Completed completed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of streams, and of buffers on their way back */
static pthread_mutex_t records = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t size, used, dropped;
static int zeroed; /* what the program promised: its buffers hold zeroes */
static int enabled[64], calls_off[2][1000];
static uint32_t correlation;
static uint64_t now = 1000;
static const char *NAMES[] = {"alpha", "beta"};
static const char *DEVICE_NAME = "Fake GPU";
static const char *CALLS[] = {"cudaDriverGetVersion_v3020", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_ptsz_v7000", "cudaGetDevice_v3020"};
enum { COPY = 1, FILL = 2, DRIVER = 4, RUNTIME = 5, DEVICE = 8, KERNEL = 10 };

static size_t length(int kind)
{
	const char *longer = getenv("FAKE_CUPTI_LONGER");
	size_t base = kind == KERNEL ? 208 : kind == RUNTIME || kind == DRIVER ? 40 : kind == DEVICE ? 184 : 88;
	return base + (longer && kind != RUNTIME && kind != DRIVER ? atoi(longer) : 0);
}
static int answer(const char *function)
{
	const char *error = getenv("FAKE_CUPTI_ERROR"), *log = getenv("FAKE_CUPTI_LOG");
	if (log) {
		FILE *file = fopen(log, "a");
		fprintf(file, "%s\n", function);
		fclose(file);
	}
	size_t name = strlen(function);
	return error && !strncmp(error, function, name) && error[name] == ':' ? atoi(error + name + 1) : 0;
}
static void give_back(void)
{
	if (!buffer || getenv("FAKE_CUPTI_KEEPS"))
		return;
	uint8_t *mine = buffer;
	buffer = NULL;
	if (getenv("FAKE_CUPTI_LOCKED")) {
		pthread_mutex_lock(&lock);
		usleep(20000);
	}
	completed(NULL, 0, mine, size, used);
	if (getenv("FAKE_CUPTI_LOCKED"))
		pthread_mutex_unlock(&lock);
}
void fake_forget(void) /* a buffer that is never handed back */
{
	buffer = NULL;
}
void fake_stream(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}
static uint8_t *record(int kind)
{
	const char *room = getenv("FAKE_CUPTI_ROOM");
	if (!enabled[kind])
		return NULL;
	if (buffer && used + length(kind) > (room ? (size_t)atoi(room) : size))
		give_back();
	if (!buffer) {
		size_t most;
		used = 0;
		requested(&buffer, &size, &most);
		for (size_t each = 0; zeroed && buffer && each < size; each++)
			if (buffer[each]) {
				fprintf(stderr, "a buffer that was promised to be zero is not\n");
				abort();
			}
	}
	if (!buffer) {
		dropped++;
		return NULL;
	}
	uint8_t *at = buffer + used;
	used += length(kind);
	if (!zeroed)
		memset(at, 0, length(kind));
	memcpy(at, &(uint32_t){kind}, 4);
	return at;
}
#define PUT(type, offset, value) do { type put = (value); memcpy(at + (offset), &put, sizeof put); } while (0)
static void call(int kind, uint32_t number, int returned)
{
	uint8_t *at = calls_off[kind == RUNTIME][number] ? NULL : record(kind);
	if (!at)
		return;
	PUT(uint32_t, 4, number); PUT(uint64_t, 8, now); PUT(uint64_t, 16, now + 5);
	PUT(uint32_t, 24, 77); PUT(uint32_t, 28, 78); PUT(uint32_t, 32, correlation); PUT(uint32_t, 36, returned);
}
static void kernel(int which)
{
	uint8_t *at = record(KERNEL);
	if (!at)
		return;
	PUT(uint16_t, 6, 32); PUT(uint64_t, 16, now + 10); PUT(uint64_t, 24, now + 10 + 100 * (which + 1));
	PUT(uint32_t, 40, 0); PUT(uint32_t, 44, 1); PUT(uint32_t, 48, 7);
	PUT(int32_t, 52, 4); PUT(int32_t, 56, 1); PUT(int32_t, 60, 1); PUT(int32_t, 64, 256); PUT(int32_t, 68, 1); PUT(int32_t, 72, 1);
	PUT(int32_t, 76, 1024); PUT(int32_t, 80, 512); PUT(uint32_t, 84, 16); PUT(uint32_t, 92, correlation);
	PUT(const char *, 104, NAMES[which]); PUT(uint64_t, 144, 0); PUT(uint32_t, 156, 0);
}
static void copy(void)
{
	uint8_t *at = record(COPY);
	if (!at)
		return;
	PUT(uint8_t, 4, 1); PUT(uint8_t, 5, 2); PUT(uint8_t, 6, 3); PUT(uint64_t, 8, 4096); PUT(uint64_t, 16, now + 20);
	PUT(uint64_t, 24, now + 50); PUT(uint32_t, 32, 0); PUT(uint32_t, 36, 1); PUT(uint32_t, 40, 7); PUT(uint32_t, 44, correlation);
}
int cuptiGetTimestamp(uint64_t *found);
void fake_work(int kernels)
{
	uint64_t found = 0;
	pthread_mutex_lock(&records);
	if (getenv("FAKE_CUPTI_LIVE") && !cuptiGetTimestamp(&found) && found > now)
		now = found;
	for (int each = 0; each < kernels; each++, now += 1000) {
		correlation++;
		call(RUNTIME, 4, 0);
		call(RUNTIME, 2, getenv("FAKE_CUPTI_VANISHES") && each > 0 ? 46 : 0);
		kernel(each % 2);
	}
	correlation++;
	call(RUNTIME, 3, 0);
	copy();
	now += 1000;
	pthread_mutex_unlock(&records);
}
int cuptiGetVersion(uint32_t *version)
{
	const char *said = getenv("FAKE_CUPTI_VERSION");
	*version = said ? atoi(said) : 130001;
	return answer(__func__);
}
int cuptiGetResultString(int code, const char **text)
{
	*text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : code == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : NULL;
	return *text ? 0 : 1;
}
int cuptiGetTimestamp(uint64_t *found)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	*found = time.tv_sec * 1000000000ull + time.tv_nsec - 123456789;
	now = now == 1000 ? *found : now;
	return answer(__func__);
}
int cuptiActivitySetAttribute(int attribute, size_t *bytes, void *value)
{
	int code = answer(__func__);
	if (!code && attribute == 5 && *bytes == 1)
		zeroed = *(uint8_t *)value;
	return code;
}
int cuptiActivityRegisterCallbacks(Requested first, Completed second)
{
	requested = first;
	completed = second;
	return answer(__func__);
}
int cuptiSetThreadIdType(int kind) { return answer(kind == 1 ? __func__ : "wrong"); }
int cuptiActivityEnable(int kind)
{
	char said[64];
	snprintf(said, sizeof said, "%s%d", __func__, kind);
	int code = answer(__func__) ? answer(__func__) : answer(said);
	if (code)
		return code;
	enabled[kind] = 1;
	uint8_t *at = kind == DEVICE ? record(DEVICE) : NULL;
	if (at) {
		PUT(uint64_t, 16, 80ull << 30); PUT(uint32_t, 44, 132); PUT(uint32_t, 104, 9); PUT(uint32_t, 108, 0);
		PUT(uint32_t, 112, 0); PUT(const char *, 136, DEVICE_NAME);
	}
	return 0;
}
int cuptiActivityDisable(int kind) { enabled[kind] = 0; return answer(__func__); }
int cuptiActivityEnableRuntimeApi(uint32_t number, uint8_t on) { calls_off[1][number] = !on; return answer(__func__); }
int cuptiActivityEnableDriverApi(uint32_t number, uint8_t on) { calls_off[0][number] = !on; return answer(__func__); }
int cuptiGetCallbackName(int domain, uint32_t number, const char **name)
{
	*name = domain == 2 && number >= 1 && number <= 4 ? CALLS[number - 1] : NULL;
	return *name ? 0 : 1;
}
int cuptiActivityFlushAll(uint32_t force)
{
	pthread_mutex_lock(&records);
	give_back();
	pthread_mutex_unlock(&records);
	return answer(__func__);
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
	*count = dropped;
	dropped = 0;
	return answer(__func__);
}
int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **one)
{
	uint32_t kind;
	memcpy(&kind, *one, 4);
	*one += length(kind);
	return *one < from + valid ? 0 : 12;
}
int cuptiFinalize(void) { return answer(__func__); }
