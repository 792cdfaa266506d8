/* A libnvidia-ml.so.1 of one device whose state is a file, so that every process sees it. Signatures: nvml.h. */
#include <stdio.h>
#include <stdlib.h>

struct state { unsigned memory, graphics, power; };

static FILE *state_file(const char *mode) { return fopen(getenv("FAKE_NVML_STATE"), mode); }

static struct state get(void) {
    struct state s = {0};
    FILE *f = state_file("r");
    if (f) { if (fscanf(f, "%u %u %u", &s.memory, &s.graphics, &s.power) != 3) s.power = 0; fclose(f); }
    return s;
}

static int put(struct state s) {
    FILE *f = state_file("w");
    if (!f) return 999;
    fprintf(f, "%u %u %u\n", s.memory, s.graphics, s.power);
    fclose(f);
    return 0;
}

int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 4 ? "Insufficient Permissions" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)0x1; return index ? 2 : 0; }
int nvmlDeviceGetApplicationsClock(void *device, int kind, unsigned *mhz) {
    struct state s = get();
    *mhz = kind == 2 ? s.memory : s.graphics;
    return 0;
}
int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *clocks) {
    *count = 2;
    clocks[0] = 2619; clocks[1] = 1593;
    return 0;
}
int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *clocks) {
    unsigned offered[] = {1980, 1755, 345};
    *count = 3;
    for (int i = 0; i < 3; i++) clocks[i] = offered[i];
    return 0;
}
int nvmlDeviceSetApplicationsClocks(void *device, unsigned memory, unsigned graphics) {
    struct state s = get();
    if (getenv("FAKE_NVML_REFUSES")) return 4;
    s.memory = memory; s.graphics = graphics;
    return put(s);
}
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *mw) { *mw = get().power; return 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *low, unsigned *high) {
    *low = 200000; *high = 700000;
    return 0;
}
int nvmlDeviceSetPowerManagementLimit(void *device, unsigned mw) {
    struct state s = get();
    s.power = mw;
    return put(s);
}
