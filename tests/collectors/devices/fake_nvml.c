/* As much of NVML as Millrace asks for, with one device that answers, one that is lost, and one that is divided. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned gpu, memory; } utilisation;

enum { OK = 0, NOT_SUPPORTED = 3, LOST = 15 };
static int first, third;

static int answer(const void *device, int code) { return device == &first ? OK : code; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    const char *lost = getenv("FAKE_NVML_LOST");
    *count = 3;
    return lost && *lost ? LOST : OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = index == 0 ? (void *)&first : (void *)&third;
    return index == 1 ? LOST : OK;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) { (void)device; snprintf(name, length, "Fake A1"); return OK; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, device == &first ? "GPU-1" : "GPU-3");
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_info *info) {
    info->total = 16ULL << 30; info->used = 4ULL << 30; info->free = 12ULL << 30;
    return answer(device, NOT_SUPPORTED);
}
int nvmlDeviceGetPciInfo_v3(void *device, pci_info *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, device == &first ? "00000000:C1:00.0" : "00000000:C2:00.0");
    return OK;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value) { *value = 4; return answer(device, NOT_SUPPORTED); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value) { *value = 16; return answer(device, NOT_SUPPORTED); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value) { *value = 3; return answer(device, NOT_SUPPORTED); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value) { *value = 8; return answer(device, NOT_SUPPORTED); }
int nvmlDeviceGetNumGpuCores(void *device, unsigned *value) { *value = 1000; return answer(device, NOT_SUPPORTED); }
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz) { (void)device; *mhz = type == 1 ? 1500 : 0; return OK; }
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) { (void)device; *mhz = type == 1 ? 1200 : 0; return OK; }
int nvmlDeviceGetUtilizationRates(void *device, utilisation *rates) {
    rates->gpu = 42; rates->memory = 7;
    return answer(device, NOT_SUPPORTED);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 123456; return answer(device, NOT_SUPPORTED); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    *celsius = sensor == 0 ? 55 : 0;
    return answer(device, NOT_SUPPORTED);
}
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kib) {
    *kib = counter == 1 ? 2048 : 1024;
    return answer(device, NOT_SUPPORTED);
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    *current = *pending = 1;
    return device == &first ? NOT_SUPPORTED : OK;
}
