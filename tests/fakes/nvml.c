/* A driver library with two devices, the second of which tells little. Built by tests/unit/test_nvml.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
static long devices[2] = {0, 1};
static unsigned samples;
enum { OK = 0, NOT_SUPPORTED = 3 };
#define SECOND(handle) (*(long *)(handle) == 1)
static int users;
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
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = &devices[index]; return OK; }
int nvmlDeviceGetName(void *handle, char *name, unsigned size) { strncpy(name, SECOND(handle) ? "Quiet" : "Fake", size); return OK; }
int nvmlDeviceGetUtilizationRates(void *handle, Utilization *used) { used->gpu = 87; used->memory = 12; return SECOND(handle) ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) { memory->total = 80ULL << 30; memory->used = 3ULL << 30; memory->free = 77ULL << 30; return OK; }
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *value) { *value = sensor == 0 ? 71 : 0; return OK; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *value) { *value = 345678; return SECOND(handle) ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *value) { *value = 700000; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *value) { *value = 5000000000ULL + ++samples; return OK; }
int nvmlDeviceGetClockInfo(void *handle, unsigned kind, unsigned *value) { *value = kind == 1 ? 1980 : 2619; return OK; }
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned kind, unsigned *value) { *value = 1995; return OK; }
/* An older driver's name for the same; the newer one is not there. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *value) { *value = 0x4 | 0x20 | 0x800; return SECOND(handle) ? NOT_SUPPORTED : OK; }
