/* As much of NVML as Millrace asks for, with one device that answers, one that is lost, and one that is divided. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; } process_sample;

typedef struct { unsigned id, p2p, slices, count, processors, copiers, decoders, encoders, jpeg, ofa; unsigned long long mb; } profile;
typedef struct { unsigned id, slices, count, processors, copiers, decoders, encoders, jpeg, ofa; } part_profile;
typedef struct { unsigned processors, copiers, decoders, encoders, jpeg, ofa, slices, compute_slices; unsigned long long mb; } attributes;

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15, IN_USE = 19, NO_RESOURCES = 23 };
static int first, third;
static struct { int is_there, has_part; } instances[3] = {{1, 1}};
/* The third one is divided: up to three instances of two slices, of which the first is in use. */
static int place_of(const void *device) {
    for (int place = 0; place < 3; place++) if (device == &instances[place]) return place;
    return -1;
}

static int answer(const void *device, int code) { return device == &first ? OK : code; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    return code == LOST ? "GPU is lost" : code == NO_PERMISSION ? "Insufficient Permissions" : "Not Supported";
}
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
    int place = place_of(device);
    if (place >= 0) snprintf(uuid, length, "MIG-3%d", place);
    else snprintf(uuid, length, device == &first ? "GPU-1" : "GPU-3");
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_info *info) {
    info->total = 16ULL << 30; info->used = 4ULL << 30; info->free = 12ULL << 30;
    if (place_of(device) >= 0) { info->total = 5ULL << 30; info->used = 1ULL << 30; return OK; }
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
    const char *busy = getenv("FAKE_NVML_BUSY");
    rates->gpu = busy ? (unsigned)atoi(busy) : 42; rates->memory = 7;
    return answer(device, NOT_SUPPORTED);
}
/* The first one's processes: FAKE_NVML_PROCESSES lists them as PID:PERCENT,PID:PERCENT. */
int nvmlDeviceGetProcessUtilization(void *device, process_sample *samples, unsigned *count, unsigned long long since) {
    const char *listed = getenv("FAKE_NVML_PROCESSES");
    unsigned most = samples == NULL ? 0 : *count, found = 0, pid, percent;
    (void)since;
    if (device != &first) return NOT_SUPPORTED;
    for (; listed && sscanf(listed, "%u:%u", &pid, &percent) == 2; found++) {
        if (found < most) samples[found] = (process_sample){.pid = pid, .sm = percent};
        listed = strchr(listed, ',');
        listed = listed ? listed + 1 : NULL;
    }
    *count = found;
    return found == 0 ? NOT_FOUND : found > most ? INSUFFICIENT_SIZE : OK;
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

/* Instances as devices: FAKE_NVML_INSTANCES says how many there are from the start, one otherwise. */
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    const char *made = getenv("FAKE_NVML_INSTANCES");
    for (int place = 0; made && place < 3; place++) instances[place].is_there = instances[place].has_part = place < atoi(made);
    *count = 7;
    return device == &third ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
    if (device != &third || index >= 3 || !instances[index].is_there) return NOT_FOUND;
    *instance = &instances[index];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(void *instance, unsigned *id) { *id = 7 + (unsigned)place_of(instance); return OK; }
int nvmlDeviceGetComputeInstanceId(void *instance, unsigned *id) { (void)instance; *id = 0; return OK; }
int nvmlDeviceGetAttributes_v2(void *instance, attributes *info) {
    memset(info, 0, sizeof *info);
    info->slices = info->compute_slices = 2; info->mb = 5120;
    return place_of(instance) >= 0 ? OK : NOT_SUPPORTED;
}

/* The first one's cap of power in milliwatts, which FAKE_NVML_LOCK tells, too. */
static unsigned cap = 250000;
int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *low, unsigned *high) {
    *low = 100000; *high = 300000;
    return answer(device, NOT_SUPPORTED);
}
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *limit) { *limit = cap; return answer(device, LOST); }
static int tell(const char *what, unsigned low, unsigned high);
int nvmlDeviceSetPowerManagementLimit(void *device, unsigned limit) {
    int told = tell("power", limit, 0);
    (void)device;
    if (told == OK) cap = limit;
    return told;
}

/* The first one's clocks, and the lock that was set: FAKE_NVML_LOCK names a file that tells it. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device) {
    *device = strcmp(address, "0000:c1:00.0") == 0 ? (void *)&first : (void *)&third;
    return strcmp(address, "0000:ff:00.0") == 0 ? LOST : OK;
}
static int listed(unsigned *count, unsigned *clocks, const unsigned *known, unsigned most) {
    if (*count < most || clocks == NULL) { *count = most; return INSUFFICIENT_SIZE; }
    memcpy(clocks, known, most * sizeof *known);
    *count = most;
    return OK;
}
int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *clocks) {
    static const unsigned known[] = {2619, 1593};
    return device == &first ? listed(count, clocks, known, 2) : NOT_SUPPORTED;
}
int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *clocks) {
    static const unsigned known[] = {1500, 1400, 1200, 1000, 345};
    (void)device;
    return memory == 2619 ? listed(count, clocks, known, 5) : NOT_SUPPORTED;
}
static int tell(const char *what, unsigned low, unsigned high) {
    const char *path = getenv("FAKE_NVML_LOCK");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) return NO_PERMISSION;
    fprintf(file, "%s %u %u\n", what, low, high);
    return fclose(file) == 0 ? OK : LOST;
}
int nvmlDeviceSetGpuLockedClocks(void *device, unsigned low, unsigned high) { (void)device; return tell("lock", low, high); }
int nvmlDeviceResetGpuLockedClocks(void *device) { (void)device; return tell("reset", 0, 0); }

int nvmlDeviceGetGpuInstanceProfileInfo(void *device, unsigned number, profile *info) {
    memset(info, 0, sizeof *info);
    info->id = 14; info->slices = 2; info->count = 3;
    return device == &third && number == 1 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetGpuInstances(void *device, unsigned id, void **found, unsigned *count) {
    (void)device;
    *count = 0;
    for (int place = 0; place < 3; place++) if (instances[place].is_there) found[(*count)++] = &instances[place];
    return id == 14 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetGpuInstanceRemainingCapacity(void *device, unsigned id, unsigned *count) {
    (void)device; (void)id;
    *count = 0;
    for (int place = 0; place < 3; place++) *count += !instances[place].is_there;
    return OK;
}
int nvmlDeviceCreateGpuInstance(void *device, unsigned id, void **instance) {
    (void)device;
    for (int place = 0; id == 14 && place < 3; place++)
        if (!instances[place].is_there) { instances[place].is_there = 1; *instance = &instances[place]; return OK; }
    return NO_RESOURCES;
}
int nvmlGpuInstanceDestroy(void *instance) {
    int place = (int)((char *)instance - (char *)instances) / (int)sizeof instances[0];
    if (instances[place].has_part) return IN_USE;
    instances[place].is_there = 0;
    return OK;
}
int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *instance, unsigned number, unsigned engine, part_profile *info) {
    (void)instance;
    memset(info, 0, sizeof *info);
    info->id = 5; info->slices = 2; info->count = 1;
    return number == 1 && engine == 0 ? OK : NOT_SUPPORTED;
}
int nvmlGpuInstanceCreateComputeInstance(void *instance, unsigned id, void **part) {
    int place = (int)((char *)instance - (char *)instances) / (int)sizeof instances[0];
    instances[place].has_part = 1;
    *part = &instances[place].has_part;
    return id == 5 ? OK : NOT_SUPPORTED;
}
int nvmlGpuInstanceGetComputeInstances(void *instance, unsigned id, void **parts, unsigned *count) {
    int place = (int)((char *)instance - (char *)instances) / (int)sizeof instances[0];
    *count = (unsigned)instances[place].has_part;
    parts[0] = &instances[place].has_part;
    return id == 5 ? OK : NOT_SUPPORTED;
}
int nvmlComputeInstanceDestroy(void *part) {
    if (part == &instances[0].has_part) return IN_USE;
    *(int *)part = 0;
    return OK;
}
