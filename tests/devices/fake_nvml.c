/* A stand-in for NVIDIA's management library: machines that nobody has at hand.
 *
 * Built as libnvidia-ml.so.1 and found through LD_LIBRARY_PATH. Every question is
 * answered from settings: the lines KEY=VALUE of the file named by FAKE_NVML_FILE,
 * read anew each time so that a test can change a machine under a run, then the
 * environment. Keys of a GPU hold its number.
 *
 *   FAKE_NVML_INIT=18            what nvmlInit returns (nvmlReturn_t)
 *   FAKE_NVML_COUNT=2            number of GPUs (default 1)
 *   FAKE_NVML_DRIVER, _VERSION   texts; FAKE_NVML_CUDA=13000
 *   FAKE_NVML_EVENTS=0           events are not supported
 *   FAKE_NVML_0_HANDLE=15        what asking for the GPU returns (15: lost)
 *   FAKE_NVML_0_ERROR=15         what every question about the GPU returns
 *   FAKE_NVML_0_UUID, _NAME      texts;  _CC=90 compute capability
 *   FAKE_NVML_0_USED=1024        MiB of 81920 in use
 *   FAKE_NVML_0_PIDS=12,34       processes with a context on the GPU
 *   FAKE_NVML_0_ECC=3            uncorrected errors (-1: not supported)
 *   FAKE_NVML_0_PENDING, _FAILED a row waits for a reset, could not be replaced; -1: rows not supported
 *   FAKE_NVML_0_RETIRED=1        a page waits for a reset (GPUs without row remapping)
 *   FAKE_NVML_0_MODE=2           compute mode (2: prohibited)
 *   FAKE_NVML_0_MIG=2            number of MIG instances (not set: MIG is off)
 *   FAKE_NVML_0_XID=79           an event that nvmlEventSetWait delivers once
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, MOST = 16, INSTANCES = 7 };

struct device { int gpu, instance; }; /* instance -1: the whole GPU */
struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
struct event { struct device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
struct events { unsigned watched; };

static struct device devices[MOST][INSTANCES + 1];
static unsigned told; /* bit per GPU whose event was delivered */

static const char *setting(const char *key) {
    static char line[4096];
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t length = strlen(key);
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, length) && line[length] == '=') {
            fclose(file);
            return line + length + 1;
        }
    }
    if (file) fclose(file);
    return getenv(key);
}

static long number(const char *key, long otherwise) {
    const char *text = setting(key);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static const char *gpu_key(int gpu, const char *name) {
    static char key[64];
    snprintf(key, sizeof key, "FAKE_NVML_%d_%s", gpu, name);
    return key;
}

static long gpu_number(const struct device *device, const char *name, long otherwise) {
    return number(gpu_key(device->gpu, name), otherwise);
}

static int copy(char *to, unsigned size, const char *text) {
    return snprintf(to, size, "%s", text) < (int)size ? OK : TOO_SMALL;
}

#define ASK(device) do { long code = gpu_number(device, "ERROR", OK); if (code) return (int)code; } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; return (int)number("FAKE_NVML_INIT", OK); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    const char *found = setting("FAKE_NVML_DRIVER");
    return copy(text, size, found ? found : "580.65.06");
}

int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    const char *found = setting("FAKE_NVML_VERSION");
    return copy(text, size, found ? found : "13.580.65.06");
}

int nvmlSystemGetCudaDriverVersion(int *version) { *version = (int)number("FAKE_NVML_CUDA", 13000); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("FAKE_NVML_COUNT", 1); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    if (index >= (unsigned)number("FAKE_NVML_COUNT", 1) || index >= MOST) return INVALID;
    *device = &devices[index][0];
    **device = (struct device){(int)index, -1};
    return (int)gpu_number(*device, "HANDLE", OK);
}

int nvmlDeviceGetUUID(struct device *device, char *text, unsigned size) {
    char uuid[96];
    const char *found;
    ASK(device);
    found = setting(gpu_key(device->gpu, "UUID"));
    if (device->instance >= 0) {
        snprintf(uuid, sizeof uuid, "MIG-%d%d000000-aaaa-bbbb-cccc-dddddddddddd", device->gpu, device->instance);
        return copy(text, size, uuid);
    }
    snprintf(uuid, sizeof uuid, "GPU-%d0000000-1111-2222-3333-444444444444", device->gpu);
    return copy(text, size, found ? found : uuid);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device) {
    char text[96];
    unsigned index, count = (unsigned)number("FAKE_NVML_COUNT", 1);
    for (index = 0; index < count; index++)
        if (!nvmlDeviceGetHandleByIndex_v2(index, device) && !nvmlDeviceGetUUID(*device, text, sizeof text) && !strcmp(text, uuid))
            return OK;
    return NOT_FOUND;
}

int nvmlDeviceGetName(struct device *device, char *text, unsigned size) {
    const char *found;
    ASK(device);
    found = setting(gpu_key(device->gpu, "NAME"));
    return copy(text, size, found ? found : "Fake H200");
}

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    ASK(device);
    memory->total = 81920ULL << 20;
    memory->used = (unsigned long long)gpu_number(device, "USED", 0) << 20;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(struct device *device, int *major, int *minor) {
    long both;
    ASK(device);
    both = gpu_number(device, "CC", 90);
    *major = (int)(both / 10);
    *minor = (int)(both % 10);
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *processes) {
    char text[512];
    const char *found;
    char *word;
    unsigned used = 0, room = *count;
    ASK(device);
    found = setting(gpu_key(device->gpu, "PIDS"));
    snprintf(text, sizeof text, "%s", found ? found : "");
    for (word = strtok(text, ","); word; word = strtok(NULL, ","), used++)
        if (processes && used < room) processes[used] = (struct process){(unsigned)atoi(word), 1ULL << 30, 0, 0};
    *count = used;
    return used > (processes ? room : 0) ? TOO_SMALL : OK;
}

int nvmlDeviceGetTotalEccErrors(struct device *device, int error, int counter, unsigned long long *count) {
    long found;
    ASK(device);
    found = gpu_number(device, "ECC", 0);
    if (found < 0) return UNSUPPORTED;
    *count = error == 1 && counter == 0 ? (unsigned long long)found : 0;
    return OK;
}

int nvmlDeviceGetRemappedRows(struct device *device, unsigned *fixed, unsigned *broken, unsigned *pending, unsigned *failed) {
    ASK(device);
    if (gpu_number(device, "PENDING", 0) < 0) return UNSUPPORTED;
    *fixed = *broken = 0;
    *pending = (unsigned)gpu_number(device, "PENDING", 0);
    *failed = (unsigned)gpu_number(device, "FAILED", 0);
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(struct device *device, int *pending) {
    ASK(device);
    *pending = (int)gpu_number(device, "RETIRED", 0);
    return OK;
}

int nvmlDeviceGetComputeMode(struct device *device, int *mode) {
    ASK(device);
    *mode = (int)gpu_number(device, "MODE", 0);
    return OK;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
    ASK(device);
    *current = *pending = gpu_number(device, "MIG", -1) >= 0;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) { ASK(device); *count = INSTANCES; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **instance) {
    ASK(device);
    /* Every other position is empty, as instances of a real GPU are not dense either. */
    if (index % 2 || index / 2 >= (unsigned)gpu_number(device, "MIG", 0) || index >= INSTANCES) return NOT_FOUND;
    *instance = &devices[device->gpu][1 + index];
    **instance = (struct device){device->gpu, (int)index / 2};
    return OK;
}

int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned *id) { *id = 7 + (unsigned)device->instance; return OK; }
int nvmlDeviceGetComputeInstanceId(struct device *device, unsigned *id) { (void)device; *id = 0; return OK; }

int nvmlEventSetCreate(struct events **set) {
    if (number("FAKE_NVML_EVENTS", 1) == 0) return UNSUPPORTED;
    *set = calloc(1, sizeof **set);
    return OK;
}
int nvmlEventSetFree(struct events *set) { free(set); return OK; }

int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, struct events *set) {
    ASK(device);
    if (!(types & 8)) return UNSUPPORTED;
    set->watched |= 1U << device->gpu;
    return OK;
}

int nvmlEventSetWait_v2(struct events *set, struct event *event, unsigned milliseconds) {
    struct timespec pause = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L};
    int gpu;
    for (gpu = 0; gpu < MOST; gpu++) {
        unsigned bit = 1U << gpu;
        long xid = number(gpu_key(gpu, "XID"), 0);
        if (!(set->watched & bit) || (told & bit) || !xid) continue;
        told |= bit;
        *event = (struct event){&devices[gpu][0], 8, (unsigned long long)xid, 0, 0};
        return OK;
    }
    nanosleep(&pause, NULL);
    return TIMEOUT;
}
