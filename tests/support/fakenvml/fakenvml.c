/* A stand-in for libnvidia-ml.so.1: a card or a few whose figures can be set and whose functions can be made to fail.
 *
 * It has the functions that HeShare calls, with the binary interface that the Python binding expects, and no others.
 * Energy is power times wall time, or as set where `integrates` is 0. Every card has its own figures, all of an H100 at first. With
 * FAKENVML_STATE=path in the environment figures, faults and events live in that file, so that several processes see
 * one machine; FAKENVML_UUID=uuid makes it another machine's. A call that blocks returns when it is unblocked.
 * Nothing here is NVIDIA's code.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define NOT_FOUND 6
#define TIMEOUT 10
#define GPU_IS_LOST 15
#define CARDS 16
#define EVENTS 32
#define BLOCK (-1000) /* the "code" of a call that blocks */
#define EVERY_CARD (-1)
#define INSUFFICIENT_SIZE 7
#define UUID "GPU-00000000-1111-2222-3333-444444444444"
#define UUID_LENGTH (sizeof UUID - 1)
#define POWER_INSTANT 186
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct { const char *name; double own, first; } figure_t; /* own: a process's own, never shared */

/* The figures of a card: an H100 as its owner would see it; `count`, `events` and the last lines are the first card's. */
static figure_t figures[] = {
    {"count", 0, 1}, {"cores", 0, 16896}, {"memory_mib", 0, 81559}, {"free_mib", 0, 80900},
    {"memory_mhz", 0, 2619}, {"first_mhz", 0, 345}, {"last_mhz", 0, 1980}, {"step_mhz", 0, 15}, {"sm_mhz", 0, 1980},
    {"power_mw", 0, 100000}, {"limit_mw", 0, 700000}, {"most_mw", 0, 700000}, {"energy_mj", 0, 5e6}, {"integrates", 0, 1}, {"temperature_c", 0, 41},
    {"reasons", 0, 0}, {"persistence", 0, 1}, {"compute_mode", 0, 0}, {"mig", 0, 0}, {"gpm", 0, 1},
    {"sm_pct", 0, 55.5}, {"dram_pct", 0, 33.25}, {"major", 0, 9}, {"minor", 0, 0}, {"instant", 0, 1},
    {"value_type", 0, 1}, {"events", 0, 1}, {"uncorrected", 0, 0}, {"remap_failed", 0, 0}, {"may_lock", 0, 1},
    {"locked_mhz", 0, 0}, {"lost", 0, 0},
    {"began_s", 0, 0},
    {"open", 1, 0}, {"samples", 1, 0}, {"event_sets", 1, 0}, {"calls", 0, 0},
    {"process_pid", 0, 0},
};

typedef struct { char name[64]; int code, times, called, card; } fault_t;
typedef struct { int card; unsigned long long type, data; } happening_t;

/* What processes with the same FAKENVML_STATE share. */
typedef struct {
    double values[CARDS][COUNT(figures)];
    char names[CARDS][96];
    fault_t faults[96];
    size_t fault_count;
    happening_t happenings[EVENTS];
    size_t happening_count;
} machine_t;

static machine_t own_machine, *machine = &own_machine;
static fault_t own_faults[16]; /* from the environment, of this process alone */
static size_t own_fault_count;
static _Thread_local fault_t *current; /* the fault of the function that runs, if it is one card's */
static int ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int handles[CARDS]; /* the address of one is a card's handle */
static double own_values[COUNT(figures)];

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static figure_t *figure(const char *name) {
    for (size_t i = 0; i < COUNT(figures); i++)
        if (strcmp(figures[i].name, name) == 0) return &figures[i];
    return NULL;
}

static double *place(const figure_t *one, int card) {
    size_t i = (size_t)(one - figures);
    return one->own > 0 ? &own_values[i] : &machine->values[card][i];
}

static double *value(const char *name) { return place(figure(name), 0); }
static double get(const char *name) { return *value(name); }
static int index_of(const void *device) { return (int)((const int *)device - handles); }
static double *value_of(const void *device, const char *name) { return place(figure(name), index_of(device)); }
static double of(const void *device, const char *name) { return *value_of(device, name); }

static void set_on(const figure_t *one, int card, double to) {
    for (int i = 0; i < CARDS; i++)
        if (card == i || card == EVERY_CARD) *place(one, i) = to;
}

static fault_t *fault_of(const char *name) {
    for (size_t i = 0; i < machine->fault_count; i++)
        if (strcmp(machine->faults[i].name, name) == 0) return &machine->faults[i];
    if (machine->fault_count == COUNT(machine->faults) || strlen(name) >= sizeof machine->faults[0].name) return NULL;
    fault_t *fresh = &machine->faults[machine->fault_count];
    memset(fresh, 0, sizeof *fresh);
    fresh->card = EVERY_CARD;
    strcpy(fresh->name, name);
    machine->fault_count++;
    return fresh;
}

/* Faults from the environment: "function=code" separated by commas; "set:name=value" sets a figure. */
static void from_environment(void) {
    const char *value = getenv("FAKENVML_FAIL");
    own_fault_count = 0;
    if (value == NULL) return;
    char text[1024];
    snprintf(text, sizeof text, "%s", value);
    char *rest = NULL;
    for (char *part = strtok_r(text, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(part, '=');
        if (equals == NULL) continue;
        *equals = '\0';
        if (strncmp(part, "set:", 4) == 0) {
            figure_t *one = figure(part + 4);
            if (one != NULL) set_on(one, EVERY_CARD, atof(equals + 1));
        } else {
            fault_t *one = own_fault_count < COUNT(own_faults) ? &own_faults[own_fault_count++] : NULL;
            if (one != NULL) *one = (fault_t){"", atoi(equals + 1), -1, 0, EVERY_CARD};
            if (one != NULL) snprintf(one->name, sizeof one->name, "%s", part);
        }
    }
}

/* Use the file named in the environment for the figures; whether it holds some already. */
static int from_file(void) {
    const char *path = getenv("FAKENVML_STATE");
    if (path == NULL) return 0;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0) abort();
    int there = about.st_size >= (off_t)sizeof *machine;
    if (!there && ftruncate(file, sizeof *machine) != 0) abort();
    void *at = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) abort();
    machine = at;
    return there;
}

static void reset_all(void) {
    for (size_t i = 0; i < COUNT(figures); i++) set_on(&figures[i], EVERY_CARD, figures[i].first);
    for (int card = 0; card < CARDS; card++) strcpy(machine->names[card], "NVIDIA H100 80GB HBM3");
    machine->fault_count = machine->happening_count = 0;
    set_on(figure("began_s"), EVERY_CARD, now_s());
    from_environment();
    ready = 1;
}

static void begin(void) {
    if (ready) return;
    if (!from_file()) reset_all();
    else from_environment();
    ready = 1;
}

/* Whether a fault comes to bear now; a call that blocks waits here. */
static int strike(fault_t *one) {
    if (one->times == 0) return SUCCESS;
    if (one->code == BLOCK) {
        const struct timespec pause = {0, 5000000};
        while (one->code == BLOCK) nanosleep(&pause, NULL);
        return SUCCESS;
    }
    if (one->code != SUCCESS && one->times > 0) one->times -= 1;
    return one->code;
}

/* What a function begins with: it is counted, and fails if that is set. */
static int enter(const char *name) {
    pthread_mutex_lock(&lock);
    begin();
    *value("calls") += 1;
    fault_t *one = fault_of(name);
    if (one != NULL) one->called += 1;
    int code = get("open") <= 0 && strncmp(name, "nvmlInit", 8) != 0 ? UNINITIALIZED : SUCCESS;
    pthread_mutex_unlock(&lock);
    current = one != NULL && one->card != EVERY_CARD ? one : NULL;
    for (size_t i = 0; i < own_fault_count; i++)
        if (strcmp(own_faults[i].name, name) == 0) return own_faults[i].code;
    int struck = one == NULL || current != NULL ? SUCCESS : strike(one);
    return struck != SUCCESS ? struck : code;
}

/* What a call to a card begins with: whether there is such a card, and the faults of this card alone. */
static int on_card(const void *device) {
    const int *card = device;
    if (card < handles || card >= handles + CARDS) return INVALID_ARGUMENT;
    if (of(device, "lost") > 0) return GPU_IS_LOST;
    return current != NULL && current->card == index_of(device) ? strike(current) : SUCCESS;
}

#define BEGIN() do { int code_ = enter(__func__); if (code_ != SUCCESS) return code_; } while (0)
#define CARD(device) do { int code_ = on_card(device); if (code_ != SUCCESS) return code_; } while (0)

static int text_out(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int number_out(void *device, unsigned *out, const char *name) {
    CARD(device);
    *out = (unsigned)of(device, name);
    return SUCCESS;
}

/* For the tests. */
EXPORT void fakenvml_reset(void) {
    pthread_mutex_lock(&lock);
    begin();
    double before = get("open");
    reset_all();
    *value("open") = before;
    pthread_mutex_unlock(&lock);
}

EXPORT int fakenvml_fail(const char *name, int code, int times, int card) {
    if (!ready) fakenvml_reset();
    fault_t *one = fault_of(name);
    if (one == NULL) return 1;
    one->card = card;
    one->times = times;
    one->code = code;
    return 0;
}

/* An event of a card: type 8 is an Xid, whose number is the data; 2 is a double-bit ECC error. */
EXPORT int fakenvml_event(int card, unsigned long long type, unsigned long long data) {
    if (!ready) fakenvml_reset();
    if (machine->happening_count == EVENTS) return 1;
    machine->happenings[machine->happening_count] = (happening_t){card, type, data};
    machine->happening_count++;
    return 0;
}

EXPORT int fakenvml_set(const char *name, double to, int card) {
    if (!ready) fakenvml_reset();
    figure_t *one = figure(name);
    if (one == NULL || card < EVERY_CARD || card >= CARDS) return 1;
    set_on(one, card, to);
    return 0;
}

EXPORT double fakenvml_get(const char *name, int card) {
    begin();
    return figure(name) == NULL || card < 0 || card >= CARDS ? -1 : *place(figure(name), card);
}

EXPORT int fakenvml_rename(int card, const char *name) {
    if (!ready) fakenvml_reset();
    if (card < 0 || card >= CARDS || strlen(name) >= sizeof machine->names[card]) return 1;
    strcpy(machine->names[card], name);
    return 0;
}

EXPORT int fakenvml_called(const char *name) { fault_t *one = fault_of(name); return one == NULL ? 0 : one->called; }

/* NVML. */
EXPORT int nvmlInitWithFlags(unsigned flags) { (void)flags; BEGIN(); *value("open") += 1; return SUCCESS; }
EXPORT int nvmlShutdown(void) { BEGIN(); *value("open") -= 1; return SUCCESS; }
EXPORT const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) { BEGIN(); return text_out(out, size, "999.99.99"); }
EXPORT int nvmlDeviceGetCount_v2(unsigned *out) { BEGIN(); *out = (unsigned)get("count"); return SUCCESS; }

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    BEGIN();
    if (index >= (unsigned)get("count") || index >= CARDS) return INVALID_ARGUMENT;
    *out = &handles[index];
    return SUCCESS;
}

/* The UUID of the first card, from FAKENVML_UUID if that is as long; the others differ in the last character. */
static const char *first_uuid(void) {
    const char *value = getenv("FAKENVML_UUID");
    return value != NULL && strlen(value) == UUID_LENGTH ? value : UUID;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    BEGIN();
    const char *first = first_uuid();
    if (strlen(uuid) != UUID_LENGTH || strncmp(uuid, first, UUID_LENGTH - 1) != 0) return NOT_FOUND;
    int index = uuid[UUID_LENGTH - 1] - first[UUID_LENGTH - 1];
    if (index < 0 || index >= CARDS || index >= (int)get("count")) return NOT_FOUND;
    *out = &handles[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetName(void *device, char *out, unsigned size) {
    BEGIN();
    CARD(device);
    return text_out(out, size, machine->names[index_of(device)]);
}

EXPORT int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    BEGIN();
    CARD(device);
    int code = text_out(out, size, first_uuid());
    if (code == SUCCESS) out[UUID_LENGTH - 1] += (char)index_of(device);
    return code;
}

EXPORT int nvmlDeviceGetNumGpuCores(void *device, unsigned *out) { BEGIN(); return number_out(device, out, "cores"); }

EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    BEGIN();
    CARD(device);
    *major = (int)of(device, "major");
    *minor = (int)of(device, "minor");
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *out) {
    BEGIN();
    CARD(device);
    unsigned wanted = of(device, "memory_mhz") > 0 ? 2 : 0, given = *count;
    *count = wanted;
    if (wanted == 0) return SUCCESS;
    if (given < wanted) return INSUFFICIENT_SIZE;
    out[0] = 1593;
    out[1] = (unsigned)of(device, "memory_mhz");
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory_mhz, unsigned *count, unsigned *out) {
    BEGIN();
    CARD(device);
    if (memory_mhz != (unsigned)of(device, "memory_mhz")) return NOT_FOUND;
    unsigned first = (unsigned)of(device, "first_mhz"), last = (unsigned)of(device, "last_mhz"), step = (unsigned)of(device, "step_mhz");
    unsigned wanted = last < first ? 0 : (last - first) / step + 1, given = *count;
    *count = wanted;
    if (wanted == 0) return SUCCESS;
    if (given < wanted) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < wanted; i++) out[i] = last - i * step;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *out) {
    BEGIN();
    CARD(device);
    double locked = of(device, "locked_mhz"), free_mhz = of(device, "sm_mhz");
    *out = (unsigned)(type == 2 ? of(device, "memory_mhz") : locked > 0 && locked < free_mhz ? locked : free_mhz);
    return SUCCESS;
}

static int reasons_out(void *device, unsigned long long *out) {
    CARD(device);
    *out = (unsigned long long)of(device, "reasons");
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out) {
    BEGIN();
    return reasons_out(device, out);
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
    BEGIN();
    return reasons_out(device, out);
}

EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *out) { BEGIN(); return number_out(device, out, "power_mw"); }

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int code;
    union { double d; unsigned ui; int si; unsigned long ul; unsigned long long ull; long long sll; } value;
} field_t;

EXPORT int nvmlDeviceGetFieldValues(void *device, int count, field_t *out) {
    BEGIN();
    CARD(device);
    int inner = enter("field");
    for (int i = 0; i < count; i++) {
        out[i].code = out[i].field != POWER_INSTANT || of(device, "instant") <= 0 ? NOT_SUPPORTED : inner;
        out[i].type = (unsigned)of(device, "value_type");
        memset(&out[i].value, 0, sizeof out[i].value);
        if (out[i].code != SUCCESS) continue;
        if (out[i].type == 0) out[i].value.d = of(device, "power_mw");
        else out[i].value.ull = (unsigned long long)of(device, "power_mw");
    }
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out) {
    BEGIN();
    CARD(device);
    double counted = of(device, "energy_mj");
    double since_s = of(device, "integrates") > 0 ? now_s() - of(device, "began_s") : 0;
    *out = (unsigned long long)(counted <= 0 ? 0 : counted + of(device, "power_mw") * since_s);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out) {
    BEGIN();
    if (sensor != 0) return INVALID_ARGUMENT;
    return number_out(device, out, "temperature_c");
}

typedef struct { unsigned version, sensor; int temperature; } temperature_t;

EXPORT int nvmlDeviceGetTemperatureV(void *device, temperature_t *out) {
    BEGIN();
    CARD(device);
    out->temperature = (int)of(device, "temperature_c");
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } memory_t;

EXPORT int nvmlDeviceGetMemoryInfo(void *device, memory_t *out) {
    BEGIN();
    CARD(device);
    out->total = (unsigned long long)of(device, "memory_mib") << 20;
    out->free = (unsigned long long)of(device, "free_mib") << 20;
    out->used = out->total - out->free;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most) {
    BEGIN();
    CARD(device);
    *least = (unsigned)(of(device, "limit_mw") / 2);
    *most = (unsigned)of(device, "most_mw");
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *out) { BEGIN(); return number_out(device, out, "limit_mw"); }
EXPORT int nvmlDeviceGetPersistenceMode(void *device, unsigned *out) { BEGIN(); return number_out(device, out, "persistence"); }
EXPORT int nvmlDeviceGetComputeMode(void *device, unsigned *out) { BEGIN(); return number_out(device, out, "compute_mode"); }

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    BEGIN();
    CARD(device);
    *current = *pending = (unsigned)of(device, "mig");
    return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process_t;

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *out) {
    BEGIN();
    CARD(device);
    unsigned wanted = of(device, "process_pid") > 0 ? 1 : 0, given = *count;
    *count = wanted;
    if (wanted == 0) return SUCCESS;
    if (given < wanted || out == NULL) return INSUFFICIENT_SIZE;
    *out = (process_t){(unsigned)of(device, "process_pid"), 300ull << 20, 0, 0};
    return SUCCESS;
}

EXPORT int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most) {
    BEGIN();
    CARD(device);
    if (of(device, "may_lock") <= 0) return NO_PERMISSION;
    if (least > most) return INVALID_ARGUMENT;
    *value_of(device, "locked_mhz") = most;
    return SUCCESS;
}

EXPORT int nvmlDeviceResetGpuLockedClocks(void *device) {
    BEGIN();
    CARD(device);
    if (of(device, "may_lock") <= 0) return NO_PERMISSION;
    *value_of(device, "locked_mhz") = 0;
    return SUCCESS;
}

typedef struct { unsigned version, supported; } support_t;

EXPORT int nvmlGpmQueryDeviceSupport(void *device, support_t *out) {
    BEGIN();
    CARD(device);
    out->supported = (unsigned)of(device, "gpm");
    return SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(void **out) { BEGIN(); *value("samples") += 1; *out = malloc(16); return SUCCESS; }
EXPORT int nvmlGpmSampleFree(void *sample) { BEGIN(); *value("samples") -= 1; free(sample); return SUCCESS; }
EXPORT int nvmlGpmSampleGet(void *device, void *sample) { BEGIN(); CARD(device); return sample == NULL ? INVALID_ARGUMENT : SUCCESS; }

typedef struct { unsigned id; int code; double value; const char *info[3]; } metric_t;
typedef struct { unsigned version, count; void *first, *second; metric_t metrics[]; } metrics_t;

EXPORT int nvmlGpmMetricsGet(metrics_t *wanted) {
    BEGIN();
    if (wanted->version != 1) return INVALID_ARGUMENT;
    int inner = enter("metric");
    for (unsigned i = 0; i < wanted->count; i++) {
        metric_t *one = &wanted->metrics[i];
        one->code = one->id == 2 || one->id == 10 ? inner : NOT_SUPPORTED;
        one->value = one->code != SUCCESS ? 0 : get(one->id == 2 ? "sm_pct" : "dram_pct");
    }
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *out) {
    BEGIN();
    CARD(device);
    if (type != 1 || counter != 0) return INVALID_ARGUMENT; /* uncorrected, since the driver was loaded */
    *out = (unsigned long long)of(device, "uncorrected");
    return SUCCESS;
}

EXPORT int nvmlDeviceGetRemappedRows(void *device, unsigned *right, unsigned *wrong, unsigned *pending, unsigned *failed) {
    BEGIN();
    CARD(device);
    *right = *wrong = *pending = 0;
    *failed = (unsigned)of(device, "remap_failed");
    return SUCCESS;
}

/* A set of events: which types of which cards, and how many of the machine's events it has seen. */
typedef struct { unsigned long long types[CARDS]; size_t seen; } set_t;

EXPORT int nvmlEventSetCreate(set_t **out) {
    BEGIN();
    *out = calloc(1, sizeof **out);
    (*out)->seen = machine->happening_count;
    *value("event_sets") += 1;
    return SUCCESS;
}

EXPORT int nvmlEventSetFree(set_t *set) { BEGIN(); *value("event_sets") -= 1; free(set); return SUCCESS; }

EXPORT int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *out) {
    BEGIN();
    CARD(device);
    *out = get("events") > 0 ? 1 | 2 | 4 | 8 | 16 : 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceRegisterEvents(void *device, unsigned long long types, set_t *set) {
    BEGIN();
    CARD(device);
    if (get("events") <= 0 || types == 0) return NOT_SUPPORTED;
    set->types[index_of(device)] = types;
    return SUCCESS;
}

typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_t;

EXPORT int nvmlEventSetWait_v2(set_t *set, event_t *out, unsigned wait_ms) {
    BEGIN();
    const double until_s = now_s() + 1e-3 * wait_ms;
    const struct timespec pause = {0, 1000000};
    for (;;) {
        while (set->seen < machine->happening_count) {
            const happening_t *one = &machine->happenings[set->seen++];
            if (one->card < 0 || one->card >= CARDS || !(set->types[one->card] & one->type)) continue;
            *out = (event_t){&handles[one->card], one->type, one->data, 0xFFFFFFFF, 0xFFFFFFFF};
            return SUCCESS;
        }
        if (now_s() >= until_s) return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}
