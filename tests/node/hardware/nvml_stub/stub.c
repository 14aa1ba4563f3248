/* A stand-in for libnvidia-ml.so.1 with MIG state: two A100-40GB in MIG mode and one T4.
 *
 * It is strict where the real one is: ids of one number space are refused in another, an occupied place is
 * INSUFFICIENT_RESOURCES, a GPU instance that has compute instances is IN_USE. The stub_* functions let a test
 * inject faults. In a container the library knows only the GPUs that the container was given: NVML_STUB_GPUS lists their
 * numbers (digits, such as "02").
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15, IN_USE = 19, INSUFFICIENT_RESOURCES = 23
};
enum { GPUS = 3, MIG_GPUS = 2, INSTANCES = 16, UNITS = 8 };

typedef struct { unsigned start, size; } Placement;
typedef struct { int enumeration, id, slices, size, limit, starts[8], count; unsigned long long mib; const char *name; } Profile;

static const Profile PROFILES[] = {
    {0, 19, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}, 7, 4864, "MIG 1g.5gb"},
    {1, 14, 2, 2, 3, {0, 2, 4}, 3, 9856, "MIG 2g.10gb"},
    {2, 9, 3, 4, 2, {0, 4}, 2, 19968, "MIG 3g.20gb"},
    {3, 5, 4, 4, 1, {0}, 1, 19968, "MIG 4g.20gb"},
    {4, 0, 7, 8, 1, {0}, 1, 40192, "MIG 7g.40gb"},
    {7, 20, 1, 1, 1, {0, 1, 2, 3, 4, 5, 6}, 7, 4864, "MIG 1g.5gb+me"},
    {9, 15, 1, 2, 4, {0, 2, 4, 6}, 4, 9856, "MIG 1g.10gb"},
};
enum { PROFILE_COUNT = sizeof PROFILES / sizeof *PROFILES };
/* Ids of compute profiles are none of the numbers that GPU instances use, so that a mix-up shows. */
static const struct { int id, slices; } COMPUTE[] = {{103, 1}, {113, 2}, {123, 3}, {133, 4}, {143, 7}};
enum { COMPUTE_COUNT = sizeof COMPUTE / sizeof *COMPUTE };

typedef struct Gpu Gpu;
typedef struct Instance Instance;
typedef struct { int live; Instance *instance; int profile; char uuid[64]; } Compute;
struct Instance { int live; unsigned id; Gpu *gpu; const Profile *profile; Placement place; Compute compute; };
struct Gpu { char uuid[64], name[64]; unsigned long long bytes; int mig, lost; Instance instances[INSTANCES]; };

static Gpu gpus[GPUS];
static int initialized, busy, refuse_compute, no_permission, made, slow_seconds;
/* One process and one pending error are enough for the tests. */
static struct { unsigned pid; unsigned long long bytes; unsigned instance; int gpu; } process;
static struct { int pending, gpu; unsigned long long type, data; } event;

void stub_reset(void) {
    memset(gpus, 0, sizeof gpus);
    busy = refuse_compute = no_permission = slow_seconds = 0;
    memset(&process, 0, sizeof process);
    memset(&event, 0, sizeof event);
    initialized = 0;
    for (int i = 0; i < GPUS; i++) {
        int t4 = i >= MIG_GPUS;
        snprintf(gpus[i].uuid, sizeof gpus[i].uuid, "GPU-0000000%d-aaaa-bbbb-cccc-dddddddddddd", i);
        strcpy(gpus[i].name, t4 ? "Tesla T4" : "NVIDIA A100-PCIE-40GB");
        gpus[i].bytes = (t4 ? 15360ULL : 40960ULL) << 20;
        gpus[i].mig = !t4;
    }
}
void stub_busy(int times) { busy = times; }
void stub_refuse_compute(int times) { refuse_compute = times; }
void stub_no_permission(int on) { no_permission = on; }
void stub_lose(int gpu, int on) { gpus[gpu].lost = on; }
void stub_process(int gpu, unsigned instance, unsigned pid, unsigned mib) {
    process.gpu = gpu; process.instance = instance; process.pid = pid; process.bytes = (unsigned long long)mib << 20;
}
void stub_event(int gpu, int type, int data) { event.pending = 1; event.gpu = gpu; event.type = type; event.data = data; }
void stub_slow(int seconds) { slow_seconds = seconds; }
void stub_unload(void) { initialized = 0; }
int stub_instances(int gpu) { int n = 0; for (int i = 0; i < INSTANCES; i++) n += gpus[gpu].instances[i].live; return n; }

static const Profile *by_id(int id) {
    for (int i = 0; i < PROFILE_COUNT; i++) if (PROFILES[i].id == id) return &PROFILES[i];
    return NULL;
}
static int check(const Gpu *gpu) { return !initialized ? UNINITIALIZED : gpu->lost ? GPU_IS_LOST : SUCCESS; }

static const char *given(void) { const char *named = getenv("NVML_STUB_GPUS"); return named ? named : "012"; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; if (!gpus[0].uuid[0]) stub_reset(); initialized = 1; return SUCCESS; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { initialized = 0; return SUCCESS; }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "stub error %d", code); return text; }
int nvmlDeviceGetCount_v2(unsigned *count) { if (slow_seconds) sleep(slow_seconds); if (!initialized) return UNINITIALIZED; *count = strlen(given()); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
    if (index >= strlen(given())) return INVALID_ARGUMENT;
    *gpu = &gpus[given()[index] - '0'];
    return check(*gpu);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
    for (int i = 0; i < GPUS; i++)
        if (!strcmp(gpus[i].uuid, uuid)) { *gpu = &gpus[i]; return check(*gpu); }
    for (int i = 0; i < GPUS; i++)
        for (int j = 0; j < INSTANCES; j++) {
            Compute *compute = &gpus[i].instances[j].compute;
            if (compute->live && !strcmp(compute->uuid, uuid)) { *gpu = (Gpu *)compute; return check(&gpus[i]); }
        }
    return initialized ? NOT_FOUND : UNINITIALIZED;
}
/* A MIG device is a Compute with a uuid at another offset: tell them apart by address. */
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    for (int i = 0; i < GPUS; i++)
        if (device == (void *)&gpus[i]) { snprintf(uuid, length, "%s", gpus[i].uuid); return check(&gpus[i]); }
    snprintf(uuid, length, "%s", ((Compute *)device)->uuid);
    return SUCCESS;
}
static int is_gpu(const void *device) { return (const Gpu *)device >= gpus && (const Gpu *)device < gpus + GPUS && ((const char *)device - (const char *)gpus) % sizeof *gpus == 0; }
int nvmlDeviceGetMinorNumber(Gpu *gpu, unsigned *minor) {
    if (!is_gpu(gpu)) return INVALID_ARGUMENT;
    *minor = gpu - gpus + 4; /* not the index, so that a mix-up shows */
    return check(gpu);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, Gpu **gpu) {
    if (is_gpu(device)) return INVALID_ARGUMENT;
    *gpu = ((Compute *)device)->instance->gpu;
    return check(*gpu);
}
int nvmlDeviceGetGpuInstanceId(Compute *compute, unsigned *id) {
    if (is_gpu(compute)) return INVALID_ARGUMENT;
    *id = compute->instance->id;
    return SUCCESS;
}
int nvmlDeviceGetComputeInstanceId(Compute *compute, unsigned *id) { if (is_gpu(compute)) return INVALID_ARGUMENT; *id = 0; return SUCCESS; }
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } ProcessInfo;
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, ProcessInfo *list) {
    if (check(gpu)) return check(gpu);
    if (!process.pid || gpu != &gpus[process.gpu]) { *count = 0; return SUCCESS; }
    if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1;
    list[0] = (ProcessInfo){process.pid, process.bytes, process.instance, 0};
    return SUCCESS;
}
typedef struct { Gpu *gpu; unsigned long long type, data; unsigned instance, compute; } Event;
int nvmlEventSetCreate(void **set) { if (!initialized) return UNINITIALIZED; *set = &event; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, void *set) {
    (void)types;
    if (set != &event) return INVALID_ARGUMENT;
    return gpu->mig ? check(gpu) : NOT_SUPPORTED;
}
int nvmlEventSetWait_v2(void *set, Event *found, unsigned milliseconds) {
    (void)set; (void)milliseconds;
    if (!event.pending) return TIMEOUT;
    event.pending = 0;
    *found = (Event){&gpus[event.gpu], event.type, event.data, 0, 0};
    return SUCCESS;
}
int nvmlDeviceGetName(Gpu *gpu, char *name, unsigned length) { snprintf(name, length, "%s", gpu->name); return check(gpu); }
int nvmlDeviceGetMemoryInfo(Gpu *gpu, unsigned long long *info) {
    info[0] = info[1] = gpu->bytes;
    info[2] = 0;
    return check(gpu);
}
int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    if (gpu->bytes >> 20 == 15360) return NOT_SUPPORTED;
    *current = *pending = gpu->mig;
    return check(gpu);
}

typedef struct {
    unsigned version, id, p2p, slices, count, processors, copy, decoder, encoder, jpeg, ofa;
    unsigned long long mib;
    char name[96];
} ProfileInfo;
int nvmlDeviceGetGpuInstanceProfileInfoV(Gpu *gpu, unsigned enumeration, ProfileInfo *info) {
    if (!gpu->mig) return NOT_SUPPORTED;
    for (int i = 0; i < PROFILE_COUNT; i++) {
        const Profile *p = &PROFILES[i];
        if ((unsigned)p->enumeration != enumeration) continue;
        info->id = p->id; info->slices = p->slices; info->count = p->limit; info->mib = p->mib;
        snprintf(info->name, sizeof info->name, "%s", p->name);
        return check(gpu);
    }
    return NOT_SUPPORTED;
}
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(Gpu *gpu, unsigned id, Placement *places, unsigned *count) {
    const Profile *p = by_id(id);
    if (!p) return INVALID_ARGUMENT;
    *count = p->count;
    for (int i = 0; places && i < p->count; i++) places[i] = (Placement){p->starts[i], p->size};
    return check(gpu);
}
int nvmlDeviceCreateGpuInstanceWithPlacement(Gpu *gpu, unsigned id, const Placement *place, Instance **made_one) {
    const Profile *p = by_id(id);
    int known = 0, same = 0, legal = 0;
    if (no_permission) return NO_PERMISSION;
    if (check(gpu)) return check(gpu);
    if (!p) return INVALID_ARGUMENT;
    for (int i = 0; i < p->count; i++) legal |= (unsigned)p->starts[i] == place->start && (unsigned)p->size == place->size;
    if (!legal) return INVALID_ARGUMENT;
    for (int i = 0; i < INSTANCES; i++) {
        Instance *other = &gpu->instances[i];
        if (!other->live) continue;
        same += other->profile == p;
        known |= other->place.start < place->start + place->size && place->start < other->place.start + other->place.size;
    }
    if (known || same >= p->limit) return INSUFFICIENT_RESOURCES;
    for (int i = 0; i < INSTANCES; i++) {
        Instance *free_one = &gpu->instances[i];
        if (free_one->live) continue;
        *free_one = (Instance){.live = 1, .id = i + 1, .gpu = gpu, .profile = p, .place = *place};
        *made_one = free_one;
        return SUCCESS;
    }
    return INSUFFICIENT_RESOURCES;
}
int nvmlGpuInstanceDestroy(Instance *instance) {
    if (check(instance->gpu)) return check(instance->gpu);
    if (instance->compute.live) return IN_USE;
    instance->live = 0;
    return SUCCESS;
}
int nvmlDeviceGetGpuInstances(Gpu *gpu, unsigned id, Instance **list, unsigned *count) {
    const Profile *p = by_id(id);
    if (!p) return INVALID_ARGUMENT;
    *count = 0;
    for (int i = 0; i < INSTANCES; i++)
        if (gpu->instances[i].live && gpu->instances[i].profile == p) list[(*count)++] = &gpu->instances[i];
    return check(gpu);
}
typedef struct { Gpu *gpu; unsigned id, profile; Placement place; } InstanceInfo;
int nvmlGpuInstanceGetInfo(Instance *instance, InstanceInfo *info) {
    *info = (InstanceInfo){instance->gpu, instance->id, instance->profile->id, instance->place};
    return check(instance->gpu);
}
typedef struct { unsigned id, slices, count, rest[6]; } ComputeProfileInfo;
int nvmlGpuInstanceGetComputeInstanceProfileInfo(Instance *instance, unsigned enumeration, unsigned engine, ComputeProfileInfo *info) {
    if (engine) return INVALID_ARGUMENT;
    if (enumeration >= COMPUTE_COUNT || COMPUTE[enumeration].slices > instance->profile->slices) return NOT_SUPPORTED;
    info->id = COMPUTE[enumeration].id;
    info->slices = COMPUTE[enumeration].slices;
    info->count = instance->profile->slices / info->slices;
    return check(instance->gpu);
}
int nvmlGpuInstanceCreateComputeInstance(Instance *instance, unsigned id, Compute **made_one) {
    for (int i = 0; i < COMPUTE_COUNT; i++) {
        if ((unsigned)COMPUTE[i].id != id) continue;
        if (refuse_compute > 0) { refuse_compute--; return INSUFFICIENT_RESOURCES; }
        if (COMPUTE[i].slices != instance->profile->slices) return INVALID_ARGUMENT;
        instance->compute = (Compute){.live = 1, .instance = instance, .profile = i};
        snprintf(instance->compute.uuid, sizeof instance->compute.uuid, "MIG-%08d-aaaa-bbbb-cccc-dddddddddddd", ++made);
        *made_one = &instance->compute;
        return SUCCESS;
    }
    return INVALID_ARGUMENT;
}
int nvmlGpuInstanceGetComputeInstances(Instance *instance, unsigned id, Compute **list, unsigned *count) {
    *count = 0;
    if (instance->compute.live && (unsigned)COMPUTE[instance->compute.profile].id == id) list[(*count)++] = &instance->compute;
    return check(instance->gpu);
}
typedef struct { void *device; Instance *instance; unsigned id, profile; Placement place; } ComputeInfo;
int nvmlComputeInstanceGetInfo_v2(Compute *compute, ComputeInfo *info) {
    *info = (ComputeInfo){compute, compute->instance, 0, COMPUTE[compute->profile].id, {0, 0}};
    return SUCCESS;
}
int nvmlComputeInstanceDestroy(Compute *compute) {
    if (busy > 0) { busy--; return IN_USE; }
    compute->live = 0;
    return SUCCESS;
}
