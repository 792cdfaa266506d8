/* What CUPTI calls at the driver's functions, to keep one launch of one kernel: its code, its arguments, and the memory
 * of the process before and after it.
 *
 * Not in Python, for the reason of callbacks.c, and because every launch of the program passes here: one that is not
 * wanted costs a comparison of a pointer. Sources: cupti_callbacks.h, cupti_driver_cbid.h, generated_cuda_meta.h and
 * cuda.h of CUDA 13; the numbers and layouts are the same since CUDA 12.0.
 *
 * The file that it writes (read by aaco/replay/spool.py): pieces of a tag of eight bytes, the length as uint64, and that
 * many bytes. The last is DONE, or REFUSED with the reason; a file that ends otherwise was cut.
 */
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))
#define QUOTED(text) #text
#define TEXT(macro) QUOTED(macro)

/* The program's own C library, by the names that all share. */
void *malloc(size_t bytes);
void *realloc(void *old, size_t bytes);
void free(void *old);
long write(int file, const void *from, size_t bytes);
int regcomp(void *compiled, const char *text, int flags);
int regexec(const void *compiled, const char *text, size_t count, void *matches, int flags);
int sched_yield(void);
void *memcpy(void *to, const void *from, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);
size_t strlen(const char *text);
char *strstr(const char *text, const char *part);

EXPORTED const char aaco_source[] = TEXT(SOURCE);

enum { DRIVER_API = 1, RESOURCE = 3, MODULE_LOADED = 6, ENTER = 0, EXIT = 1 };
enum { EXTENDED = 1, NO_PLACES = 8 };			/* REG_EXTENDED, REG_NOSUB */
enum { KERNELS = 4096, STAGE = 16 << 20, NAMES = 1 << 14 }; /* KERNELS: a power of two */
enum kind { DEVICE, MANAGED, HOST, MAPPED, IMPORTED, TEXTURE };
enum { GLOBALS = 4096 };
enum { COOPERATIVE = 2, ATTRIBUTE_BYTES = 72, CAPTURING = 1, POINTER_DEVICE = 9 };

struct call { /* CUpti_CallbackData */
	int site;
	const char *function;
	void **parameters;
	int *status;
	const char *symbol;
	void *context;
	uint32_t context_number;
	uint64_t *correlation_data;
	uint32_t correlation; /* of both sites of a call */
};
struct resource { /* CUpti_ResourceData, and CUpti_ModuleResourceData */
	void *context, *handle;
	struct { uint32_t id; size_t bytes; const char *code; } *module;
};
struct region { uint64_t base, bytes, kind, device; };
struct launch { uint64_t function; uint32_t shape[7]; };
struct config { uint32_t shape[7]; void *stream; uint8_t *attributes; uint32_t count; };
struct about { int32_t device, carveout, major, minor, version, unused; uint64_t memory; char name[256]; };
struct code { uint64_t bytes; uint8_t *content; };

/* The driver's functions, which Python looks up. */
EXPORTED struct {
	int (*synchronize)(void);
	int (*to_host)(void *to, uint64_t from, size_t bytes);
	int (*kernel_parameter)(void *kernel, size_t number, size_t *offset, size_t *bytes);
	int (*function_parameter)(void *function, size_t number, size_t *offset, size_t *bytes);
	int (*is_capturing)(void *stream, int *status);
	int (*pointer_attribute)(void *to, int attribute, uint64_t pointer);
	int (*current_device)(int *number);
	int (*kernel_library)(void **library, void *kernel);
	int (*library_global)(uint64_t *base, size_t *bytes, void *library, const char *name);
	int (*function_module)(void **module, void *function);
	int (*module_global)(uint64_t *base, size_t *bytes, void *module, const char *name);
	int (*function_attribute)(int *value, int attribute, void *function);
	int (*kernel_function)(void **function, void *kernel);
	int (*device_name)(char *name, int bytes, int device);
	int (*device_attribute)(int *value, int attribute, int device);
	int (*device_memory)(size_t *bytes, int device);
	int (*driver_version)(int *version);
	char *(*demangle)(const char *name, char *buffer, size_t *bytes, int *status); /* may be NULL */
} aaco_driver;
EXPORTED int aaco_file = -1;
EXPORTED uint64_t aaco_number, aaco_most_bytes; /* which launch of the kernel, from 0; bytes of memory that may be kept */
EXPORTED uint64_t aaco_launches, aaco_matches;	/* seen so far, until the launch is kept */
EXPORTED uint32_t aaco_state;			/* 0 waits; 1 keeps it now; 2 kept; 3 refused */

static uint64_t compiled[32]; /* regex_t */
static struct { const char *symbol; int wanted; } seen[KERNELS];
static struct region *regions;
static size_t count_regions, room_regions;
static struct region globals[GLOBALS]; /* variables of the kernel's module */
static size_t count_globals;
static struct code *codes;
static size_t count_codes;
static uint32_t lock, code_lock; /* a launch that is kept holds the first until it is over, and may load code meanwhile */
static uint32_t kept_call; /* its correlation */
static size_t kept_codes;  /* how many were loaded before it */
static struct launch kept;

static void acquire(uint32_t *which)
{
	while (__atomic_exchange_n(which, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void release(uint32_t *which)
{
	__atomic_store_n(which, 0, __ATOMIC_RELEASE);
}

static int put(const void *from, size_t bytes)
{
	const uint8_t *at = from;
	while (bytes) {
		long written = write(aaco_file, at, bytes);
		if (written <= 0)
			return 0;
		at += written;
		bytes -= (size_t)written;
	}
	return 1;
}

static int head(const char *tag, uint64_t bytes)
{
	char name[8] = {0};
	memcpy(name, tag, strlen(tag));
	return put(name, 8) && put(&bytes, 8);
}

static int piece(const char *tag, const void *from, size_t bytes)
{
	return head(tag, bytes) && put(from, bytes);
}

static void refuse(const char *reason)
{
	piece("REFUSED", reason, strlen(reason));
	__atomic_store_n(&aaco_state, 3, __ATOMIC_RELEASE);
}

/* Allocations. */
static void add(uint64_t base, uint64_t bytes, uint64_t kind)
{
	acquire(&lock);
	if (count_regions == room_regions) {
		size_t room = room_regions ? 2 * room_regions : 1024;
		struct region *larger = realloc(regions, room * sizeof *larger);
		if (larger) {
			regions = larger;
			room_regions = room;
		}
	}
	if (count_regions < room_regions && base && bytes)
		regions[count_regions++] = (struct region){base, bytes, kind, 0};
	release(&lock);
}

static void drop(uint64_t base, uint64_t bytes, int texture)
{
	acquire(&lock);
	for (size_t at = count_regions; at-- > 0;) {
		struct region *one = &regions[at];
		int inside = bytes ? one->base >= base && one->base < base + bytes : one->base == base;
		if (inside && (one->kind == TEXTURE) == texture) {
			*one = regions[--count_regions];
			if (!bytes)
				break;
		}
	}
	release(&lock);
}

static void allocation(uint32_t number, struct call *call)
{
	void **p = call->parameters;
	int done = call->site == EXIT && call->status && *call->status == 0;
	switch (number) {
	case 29: case 243: /* cuMemAlloc(address, bytes) */
	case 598: case 599: case 611: case 612: /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
		if (done) add(*(uint64_t *)p[0], (uint64_t)p[1], DEVICE);
		return;
	case 31: case 244: /* cuMemAllocPitch(address, pitch, width, height) */
		if (done) add(*(uint64_t *)p[0], *(size_t *)p[1] * (size_t)p[3], DEVICE);
		return;
	case 371: /* cuMemAllocManaged */
		if (done) add(*(uint64_t *)p[0], (uint64_t)p[1], MANAGED);
		return;
	case 37: case 294: case 39: case 271: /* cuMemAllocHost, cuMemHostAlloc */
		if (done) add(*(uint64_t *)p[0], (uint64_t)p[1], HOST);
		return;
	case 301: case 379: /* cuMemHostRegister(address, bytes) */
		if (done) add((uint64_t)p[0], (uint64_t)p[1], HOST);
		return;
	case 551: /* cuMemMap(address, bytes) */
		if (done) add((uint64_t)p[0], (uint64_t)p[1], MAPPED);
		return;
	case 329: case 567: case 616: /* cuIpcOpenMemHandle, cuMemPoolImportPointer: of another process */
		if (done) add(*(uint64_t *)p[0], 1, IMPORTED);
		return;
	case 555: /* cuMemImportFromShareableHandle */
		if (done) add(*(uint64_t *)p[0], 1, IMPORTED);
		return;
	case 339: case 343: /* cuTexObjectCreate, cuSurfObjectCreate */
		if (done) add(*(uint64_t *)p[0], 1, TEXTURE);
		return;
	case 340: case 344:
		if (call->site == ENTER) drop((uint64_t)p[0], 0, 1);
		return;
	case 33: case 245: case 600: case 601: case 38: case 302: case 330: /* frees: gone before another may be there */
		if (call->site == ENTER) drop((uint64_t)p[0], 0, 0);
		return;
	case 552: /* cuMemUnmap(address, bytes) */
		if (call->site == ENTER) drop((uint64_t)p[0], (uint64_t)p[1], 0);
		return;
	}
}

/* Code. */
static int matches(const char *symbol)
{
	if (regexec(compiled, symbol, 0, NULL, 0) == 0)
		return 1;
	int status = 0, matched;
	char *plain = aaco_driver.demangle ? aaco_driver.demangle(symbol, NULL, NULL, &status) : NULL;
	matched = plain && status == 0 && regexec(compiled, plain, 0, NULL, 0) == 0;
	free(plain);
	return matched;
}

struct section { uint32_t name, type; uint64_t flags, address, offset, size; uint32_t link, info; uint64_t align, each; };

/* Whether an ELF file has the code of a kernel that is wanted: a section .text.SYMBOL. */
static int has_wanted(const uint8_t *elf, size_t bytes)
{
	uint64_t at;
	uint16_t count, names;
	if (bytes < 64 || memcmp(elf, "\177ELF\2", 5))
		return 0;
	memcpy(&at, elf + 40, 8);
	memcpy(&count, elf + 60, 2);
	memcpy(&names, elf + 62, 2);
	if (at > bytes || (bytes - at) / sizeof(struct section) < count || names >= count)
		return 0;
	const struct section *table = (const void *)(elf + at);
	const struct section *text = table + names;
	if (text->offset > bytes || text->size > bytes - text->offset)
		return 0;
	for (int each = 0; each < count; each++) {
		if (table[each].name >= text->size)
			continue;
		const char *name = (const char *)elf + text->offset + table[each].name;
		if (!memcmp(name, ".text.", 6) && matches(name + 6))
			return 1;
	}
	return 0;
}

static void module_loaded(struct resource *resource)
{
	size_t bytes = resource->module->bytes;
	const char *code = resource->module->code;
	if (!code || !has_wanted((const uint8_t *)code, bytes))
		return;
	uint8_t *copy = malloc(bytes);
	if (!copy)
		return;
	memcpy(copy, code, bytes);
	acquire(&code_lock);
	struct code *larger = realloc(codes, (count_codes + 1) * sizeof *codes);
	if (larger) {
		codes = larger;
		codes[count_codes++] = (struct code){bytes, copy};
	}
	release(&code_lock);
}

/* The launch. */
static int wanted(const char *symbol)
{
	size_t place = ((uintptr_t)symbol >> 4) * 0x9E3779B97F4A7C15u >> 32;
	for (int step = 0; step < 8; step++) {
		size_t at = (place + step) & (KERNELS - 1);
		const char *there = __atomic_load_n(&seen[at].symbol, __ATOMIC_ACQUIRE);
		if (there == symbol)
			return seen[at].wanted;
		if (!there) {
			int is = matches(symbol);
			acquire(&code_lock);
			if (!seen[at].symbol) {
				seen[at].wanted = is;
				__atomic_store_n(&seen[at].symbol, symbol, __ATOMIC_RELEASE);
			}
			release(&code_lock);
			return is;
		}
	}
	return matches(symbol);
}

static int write_arguments(void *function, void **pointers, void **extra)
{
	static uint8_t bytes[1 << 16];
	uint64_t places[2 * 4096], count = 0, length = 0;
	size_t offset, size;
	for (; count < 4096; count++) {
		if (aaco_driver.kernel_parameter(function, count, &offset, &size) &&
		    aaco_driver.function_parameter(function, count, &offset, &size))
			break;
		if (offset + size > sizeof bytes)
			return 0;
		places[2 * count] = offset;
		places[2 * count + 1] = size;
		if (offset + size > length)
			length = offset + size;
		if (pointers)
			memcpy(bytes + offset, pointers[count], size);
	}
	if (!pointers && extra) { /* CU_LAUNCH_PARAM_BUFFER_POINTER is 1, its size 2 */
		const void *buffer = NULL;
		length = 0;
		for (; *extra; extra += 2) {
			if (*extra == (void *)1) buffer = extra[1];
			if (*extra == (void *)2) length = *(size_t *)extra[1];
		}
		if (!buffer || length > sizeof bytes)
			return 0;
		memcpy(bytes, buffer, length);
	}
	return piece("PLACES", places, count * 16) && piece(pointers || !length ? "POINTERS" : "BUFFER", bytes, length);
}

static int is_global(uint64_t base)
{
	for (size_t each = 0; each < count_globals; each++)
		if (globals[each].base == base)
			return 1;
	return 0;
}

/* The variables of the module: every symbol of its code that is an object is one, or the driver does not know it. */
static void write_globals(void *function)
{
	void *library = NULL, *module = NULL;
	int of_library = aaco_driver.kernel_library(&library, function) == 0 && library;
	if (!of_library && aaco_driver.function_module(&module, function))
		return;
	for (size_t each = 0; each < count_codes; each++) {
		const uint8_t *elf = codes[each].content;
		uint64_t at;
		uint16_t count;
		memcpy(&at, elf + 40, 8);
		memcpy(&count, elf + 60, 2);
		const struct section *table = (const void *)(elf + at);
		for (int section = 0; section < count; section++) {
			const struct section *symbols = &table[section];
			if (symbols->type != 2 || symbols->link >= count || symbols->offset + symbols->size > codes[each].bytes)
				continue;
			const char *names = (const char *)elf + table[symbols->link].offset;
			for (uint64_t place = 0; place + 24 <= symbols->size; place += 24) {
				const uint8_t *symbol = elf + symbols->offset + place;
				uint32_t name;
				uint64_t base = 0;
				size_t bytes = 0;
				memcpy(&name, symbol, 4);
				if ((symbol[4] & 15) != 1) /* STT_OBJECT */
					continue;
				int status = of_library ? aaco_driver.library_global(&base, &bytes, library, names + name)
							: aaco_driver.module_global(&base, &bytes, module, names + name);
				uint64_t record[2] = {status ? 0 : base, status ? 0 : bytes};
				head("GLOBAL", 16 + strlen(names + name));
				put(record, 16);
				put(names + name, strlen(names + name));
				if (!status && base && bytes && count_globals < GLOBALS && !is_global(base))
					globals[count_globals++] = (struct region){base, bytes, DEVICE, 0};
			}
		}
	}
}

static int write_memory(const char *tag, uint8_t *stage, const struct region *region)
{
	uint64_t place[2] = {region->base, region->bytes}, base = region->base, bytes = region->bytes;
	if (!head(tag, 16 + bytes) || !put(place, 16))
		return 0;
	if (region->kind == HOST)
		return put((const void *)base, bytes);
	for (uint64_t done = 0; done < bytes;) {
		uint64_t step = bytes - done < STAGE ? bytes - done : STAGE;
		if (aaco_driver.to_host(stage, base + done, step) || !put(stage, step))
			return 0;
		done += step;
	}
	return 1;
}

static int snapshot(const char *tag)
{
	uint8_t *stage = malloc(STAGE);
	int whole = stage != NULL;
	for (size_t each = 0; each < count_regions && whole; each++)
		if (regions[each].kind <= MAPPED)
			whole = write_memory(tag, stage, &regions[each]);
	for (size_t each = 0; each < count_globals && whole; each++)
		whole = write_memory(tag, stage, &globals[each]);
	free(stage);
	return whole;
}

/* Why this launch cannot be kept; NULL if it can. */
static const char *obstacle(void *stream, struct config *config)
{
	int status = 0;
	uint64_t bytes = 0;
	for (uint32_t each = 0; config && each < config->count; each++) {
		uint32_t id, value;
		memcpy(&id, config->attributes + each * ATTRIBUTE_BYTES, 4);
		memcpy(&value, config->attributes + each * ATTRIBUTE_BYTES + 8, 4);
		if (id == COOPERATIVE && value)
			return "the launch is cooperative: its blocks wait for each other";
	}
	if (aaco_driver.is_capturing(stream, &status) || status == CAPTURING)
		return "the launch becomes part of a CUDA graph: it does not run now";
	for (size_t each = 0; each < count_regions; each++) {
		if (regions[each].kind == IMPORTED)
			return "the process uses memory of another process (IPC)";
		if (regions[each].kind == TEXTURE)
			return "the process has texture or surface objects, whose contents have no addresses";
		bytes += regions[each].bytes;
	}
	if (bytes > aaco_most_bytes)
		return "TOO LARGE"; /* the reader of the file says how much there was */
	return NULL;
}

static void find_devices(void)
{
	for (size_t each = 0; each < count_regions; each++) {
		int device = -1;
		if (aaco_driver.pointer_attribute(&device, POINTER_DEVICE, regions[each].base))
			device = -1;
		regions[each].device = (uint64_t)(int64_t)device;
	}
}

static void before(uint32_t number, struct call *call)
{
	struct config *config = NULL;
	void **pointers, **extra, *stream;
	uint64_t named[2] = {aaco_number, aaco_launches};
	struct about about = {-1, -1, 0, 0, 0, 0, 0, {0}};
	piece("KERNEL", call->symbol, strlen(call->symbol));
	piece("NUMBER", named, sizeof named);
	if (number >= 477 && number <= 480) {
		refuse("the launch is cooperative: its blocks wait for each other");
		return;
	}
	if (number == 652 || number == 653) {
		config = call->parameters[0];
		kept.function = (uint64_t)call->parameters[1];
		memcpy(kept.shape, config->shape, sizeof kept.shape);
		stream = config->stream;
		pointers = call->parameters[2];
		extra = call->parameters[3];
	} else {
		kept.function = (uint64_t)call->parameters[0];
		memcpy(kept.shape, call->parameters + 1, sizeof kept.shape);
		stream = call->parameters[5]; /* behind seven words, at 40 */
		pointers = call->parameters[6];
		extra = number == 307 || number == 442 ? call->parameters[7] : NULL;
	}
	acquire(&lock);
	find_devices();
	piece("REGIONS", regions, count_regions * sizeof *regions);
	const char *reason = obstacle(stream, config);
	if (!reason && aaco_driver.synchronize())
		reason = "the device reports an error before the launch";
	if (reason) {
		release(&lock);
		refuse(reason);
		return;
	}
	void *plain = (void *)kept.function;
	if (aaco_driver.kernel_function(&plain, (void *)kept.function))
		plain = (void *)kept.function;
	size_t memory = 0;
	aaco_driver.function_attribute(&about.carveout, 9, plain);
	aaco_driver.current_device(&about.device);
	aaco_driver.device_name(about.name, sizeof about.name, about.device);
	aaco_driver.device_attribute(&about.major, 75, about.device);
	aaco_driver.device_attribute(&about.minor, 76, about.device);
	aaco_driver.driver_version(&about.version);
	aaco_driver.device_memory(&memory, about.device);
	about.memory = memory;
	int whole = piece("ABOUT", &about, sizeof about) && piece("SHAPE", kept.shape, sizeof kept.shape) &&
		    write_arguments((void *)kept.function, pointers, extra) &&
		    piece("ATTRIBUT", config ? config->attributes : NULL, config ? config->count * ATTRIBUTE_BYTES : 0);
	kept_codes = count_codes;
	if (whole) {
		write_globals((void *)kept.function);
		whole = snapshot("BEFORE");
	}
	if (whole) {
		__atomic_store_n(&kept_call, call->correlation, __ATOMIC_RELEASE);
		return; /* the lock is held until the launch is over: nothing is freed, nothing else is launched */
	}
	release(&lock);
	refuse("its memory could not be read, or the disk is full");
}

static void after(struct call *call)
{
	const char *reason = NULL;
	if (call->status && *call->status)
		reason = "the launch itself failed";
	else if (aaco_driver.synchronize())
		reason = "the kernel failed: its memory after the launch is lost";
	else if (!snapshot("AFTER"))
		reason = "its memory could not be read, or the disk is full";
	else if (count_codes != kept_codes)
		reason = "this launch loaded its code, whose variables are then unknown before it; capture a later one";
	for (size_t each = 0; each < count_codes && !reason; each++)
		if (!piece("CODE", codes[each].content, codes[each].bytes))
			reason = "the disk is full";
	release(&lock);
	if (reason) {
		refuse(reason);
		return;
	}
	head("DONE", 0);
	__atomic_store_n(&aaco_state, 2, __ATOMIC_RELEASE);
}

static void launched(uint32_t number, struct call *call)
{
	uint32_t state = __atomic_load_n(&aaco_state, __ATOMIC_ACQUIRE);
	if (state > 1)
		return;
	if (call->site == EXIT) {
		if (state == 1 && call->correlation == __atomic_load_n(&kept_call, __ATOMIC_ACQUIRE))
			after(call);
		return;
	}
	__atomic_add_fetch(&aaco_launches, 1, __ATOMIC_RELAXED);
	if (state == 1) { /* another thread's launch is being kept */
		acquire(&lock);
		release(&lock);
		return;
	}
	if (!call->symbol || !wanted(call->symbol))
		return;
	if (__atomic_fetch_add(&aaco_matches, 1, __ATOMIC_ACQ_REL) != aaco_number)
		return;
	__atomic_store_n(&aaco_state, 1, __ATOMIC_RELEASE);
	before(number, call);
}

/* The pattern, a POSIX extended regular expression: 0 if it compiles. */
EXPORTED int aaco_pattern(const char *text)
{
	return regcomp(compiled, text, EXTENDED | NO_PLACES);
}

/* CUpti_CallbackFunc */
EXPORTED void aaco_called(void *context, int domain, uint32_t number, void *data)
{
	(void)context;
	if (domain == RESOURCE && number == MODULE_LOADED)
		module_loaded(data);
	if (domain != DRIVER_API)
		return;
	if (number == 307 || number == 442 || number == 652 || number == 653 || (number >= 477 && number <= 480))
		launched(number, data);
	else if (__atomic_load_n(&aaco_state, __ATOMIC_ACQUIRE) < 2)
		allocation(number, data);
}
