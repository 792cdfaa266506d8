/* A driver library with two devices, the second of which tells little. Built by tests/unit/test_nvml.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
static long devices[2] = {0, 1};
static unsigned samples;
enum { OK = 0, NOT_SUPPORTED = 3 };
#define SECOND(handle) (*(long *)(handle) == 1)
static int users;
/* What the file that an environment variable names says by being there. */
static int there(const char *name) { return getenv(name) && access(getenv(name), F_OK) == 0; }
/* The second device falls off the bus, and the driver hangs, when asked to. */
static int state(void *handle) { while (there("FAKE_NVML_HANGS")) pause(); return SECOND(handle) && there("FAKE_NVML_LOST") ? 15 : OK; }
/* Tells the file that FAKE_NVML_LOG names of every time that it is opened while nobody holds it open. */
int nvmlInit_v2(void)
{
	if (INIT == OK && users++ == 0 && getenv("FAKE_NVML_LOG")) {
		FILE *log = fopen(getenv("FAKE_NVML_LOG"), "a");
		fputs("opened\n", log);
		fclose(log);
	}
	return INIT;
}
int nvmlShutdown(void) { users--; return OK; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = &devices[index]; return OK; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **handle) { *handle = &devices[!strcmp(place, "0000:0c:00.0")]; return strncmp(place, "0000:0", 6) ? 6 : OK; }
int nvmlDeviceGetIndex(void *handle, unsigned *index) { *index = SECOND(handle) ? 1 : 0; return OK; }
int nvmlDeviceGetName(void *handle, char *name, unsigned size) { strncpy(name, SECOND(handle) ? "Quiet" : "Fake", size); return OK; }
int nvmlDeviceGetUtilizationRates(void *handle, Utilization *used) { if (state(handle)) return 15; used->gpu = 87; used->memory = 12; return SECOND(handle) ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) { memory->total = 80ULL << 30; memory->used = 3ULL << 30; memory->free = 77ULL << 30; return OK; }
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *value) { *value = sensor == 0 ? 71 : 0; return OK; }
/* With FAKE_NVML_STEPS each look at the power finds another one, of four. */
int nvmlDeviceGetPowerUsage(void *handle, unsigned *value) { static unsigned looks; *value = 345678 + (getenv("FAKE_NVML_STEPS") ? 1000 * (looks++ % 4) : 0); return SECOND(handle) ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *value) { *value = 700000; return OK; }
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size) { strncpy(uuid, SECOND(handle) ? "GPU-5b2d" : "GPU-5a1c", size); return OK; }
/* Which devices are divided into instances: FAKE_NVML_MIG is their numbers. */
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) { const char *said = getenv("FAKE_NVML_MIG"); *now = *later = said && strchr(said, SECOND(handle) ? '1' : '0'); return OK; }
/* Who holds a device: FAKE_NVML_HELD is DEVICE:PID:BYTES,DEVICE:PID (whose bytes are not told); without it two on the
 * first that are not told. */
typedef struct { unsigned pid; unsigned long long memory; unsigned instances[2]; } Holder;
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Holder *list)
{
	unsigned room = *count, device, pid, found = 0;
	unsigned long long bytes;
	const char *said = getenv("FAKE_NVML_HELD");
	if (!said) { *count = SECOND(handle) ? 0 : 2; return SECOND(handle) ? OK : 7; }
	for (const char *at = said; at && (bytes = -1ULL, sscanf(at, "%u:%u:%llu", &device, &pid, &bytes) >= 2); at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (device == SECOND(handle) && ++found && list && found <= room) list[found - 1] = (Holder){pid, bytes};
	*count = found;
	return list ? room >= found ? OK : 7 : found ? 7 : OK;
}
/* Power of the last 100 ms at 20 ms, by the clock of the day; the second device has only its power of the moment. */
typedef struct { unsigned long long time, value; } Sample;
int nvmlDeviceGetSamples(void *handle, unsigned type, unsigned long long seen, unsigned *kind, unsigned *count, Sample *samples)
{
	struct timespec now;
	unsigned long long at, found = 0;
	if (SECOND(handle) || type != 0) return NOT_SUPPORTED;
	clock_gettime(CLOCK_REALTIME, &now);
	at = now.tv_sec * 1000000ULL + now.tv_nsec / 1000 - 100000;
	for (int i = 0; i < 5; i++, at += 20000)
		if (at > seen) { samples[found].time = at; samples[found++].value = 300000 + i; }
	*kind = 1; *count = found;
	return found ? OK : 6;
}
typedef struct { unsigned id, scope; long long time, latency; unsigned kind; int code; unsigned long long value; } Field;
int nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) { fields->code = fields->id == 186 ? OK : NOT_SUPPORTED; fields->value = 111000; return OK; }
/* Who worked on the first device: FAKE_NVML_USERS is PID:SHARE,PID:SHARE; without it the driver does not tell. */
typedef struct { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; } Use;
int nvmlDeviceGetProcessUtilization(void *handle, Use *uses, unsigned *count, unsigned long long since)
{
	struct timespec now;
	unsigned room = *count, pid, share, found = 0;
	const char *said = getenv("FAKE_NVML_USERS");
	if (SECOND(handle) || !said) return NOT_SUPPORTED;
	if (!*said) return 6;
	clock_gettime(CLOCK_REALTIME, &now);
	for (const char *at = said; at && sscanf(at, "%u:%u", &pid, &share) == 2; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL, found++)
		if (uses && found < room) uses[found] = (Use){pid, now.tv_sec * 1000000ULL + now.tv_nsec / 1000, share};
	*count = found;
	return uses && room >= found ? OK : 7;
}
/* GPM of the first device: a snapshot counts how often one was taken. */
typedef struct { unsigned version, supported; } Support;
typedef struct { unsigned id; int code; double value; char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; void *older, *newer; GpmMetric metrics[16]; } Gpm;
int nvmlGpmQueryDeviceSupport(void *handle, Support *support) { support->supported = !SECOND(handle); return OK; }
int nvmlGpmSampleAlloc(void **sample) { *sample = calloc(1, sizeof(long)); return OK; }
int nvmlGpmSampleFree(void *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(void *handle, void *sample) { static long taken; *(long *)sample = ++taken; return OK; }
int nvmlGpmMetricsGet(Gpm *asked)
{
	if (asked->version != 1 || *(long *)asked->newer <= *(long *)asked->older) return 2;
	for (unsigned i = 0; i < asked->count; i++) {
		asked->metrics[i].code = asked->metrics[i].id == 61 ? NOT_SUPPORTED : OK;
		asked->metrics[i].value = 10.0 + asked->metrics[i].id;
	}
	return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *value) { *value = 5000000000ULL + ++samples; return OK; }
int nvmlDeviceGetClockInfo(void *handle, unsigned kind, unsigned *value) { *value = kind == 1 ? 1980 : 2619; return OK; }
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned kind, unsigned *value) { *value = 1995; return OK; }
/* An older driver's name for the same; the newer one is not there. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *value) { *value = 0x4 | 0x20 | 0x800; return SECOND(handle) ? NOT_SUPPORTED : OK; }
/* FAKE_NVML_ERRORS: the first device counts errors, a corrected one more each time; every second look finds an event: XID 13, one that is
 * no fault, then XID 79 for ever. */
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *count)
{
	static unsigned long long asked[2];
	if (SECOND(handle) || counter || kind > 1 || !getenv("FAKE_NVML_ERRORS")) return NOT_SUPPORTED;
	*count = kind ? 2 : 40 + ++asked[0];
	return OK;
}
typedef struct { void *device; unsigned long long kind, number; unsigned instances[2]; } Event;
static int watched, looks;
int nvmlEventSetCreate(void **events) { *events = calloc(1, sizeof(int)); watched++; return OK; }
int nvmlEventSetFree(void *events) { free(events); watched--; return OK; }
int fake_event_sets(void) { return watched; }
int nvmlDeviceRegisterEvents(void *handle, unsigned long long kinds, void *events) { return SECOND(handle) || kinds != 8 || !getenv("FAKE_NVML_ERRORS") ? NOT_SUPPORTED : OK; }
int nvmlEventSetWait_v2(void *events, Event *event, unsigned patience_ms)
{
	if (patience_ms || ++looks % 2) return 10;
	*event = (Event){0, looks == 4 ? 1 : 8, looks == 2 ? 13 : looks == 4 ? 5 : 79};
	return OK;
}
