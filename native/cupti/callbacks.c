/* What CUPTI calls when it wants a buffer for its records, and when it hands one back.
 *
 * Not in Python, because CUPTI calls the second with its own global lock held (found in libcupti 13.0: the function that
 * hands buffers back, and the look-up of a stream or a context, take the same mutex). A program that holds Python's lock
 * while CUDA makes it a stream, as ONNX Runtime does while it loads a model, would wait for that mutex, whose holder
 * would wait for Python's lock: for ever. Nothing in here waits for Python.
 *
 * Buffers are CUPTI's, full, or ready; all hold zeroes when CUPTI gets them. The tracer takes the full ones in the order
 * in which they came back, and gives them back when they are written.
 */
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))
#define QUOTED(text) #text
#define TEXT(macro) QUOTED(macro)
enum { MOST = 64, PAGE = 4096 };

void *calloc(size_t count, size_t bytes); /* the program's own */

EXPORTED size_t aaco_buffer_bytes = 4 << 20;
EXPORTED uint32_t aaco_most = MOST; /* buffers, no more than MOST; beyond them CUPTI gets none and counts what it drops */
EXPORTED uint32_t aaco_held;        /* buffers that CUPTI has, or that came back and were not taken yet */
EXPORTED const char aaco_source[] = TEXT(SOURCE);

static uint32_t made;
static uint8_t *ours[MOST], *ready[MOST];
static struct { uint8_t *buffer; size_t valid; } full[MOST]; /* a ring: no more buffers than places in it */
static uint32_t came_back, taken;

static void put(uint8_t **places, uint8_t *buffer)
{
	for (int at = 0; at < MOST; at++) {
		uint8_t *none = NULL;
		if (__atomic_compare_exchange_n(&places[at], &none, buffer, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			return;
	}
}

static uint8_t *make(void)
{
	uint8_t *buffer = NULL;
	if (__atomic_add_fetch(&made, 1, __ATOMIC_RELAXED) <= (aaco_most < MOST ? aaco_most : MOST))
		buffer = calloc(1, aaco_buffer_bytes);
	if (buffer)
		put(ours, buffer);
	else
		__atomic_sub_fetch(&made, 1, __ATOMIC_RELAXED);
	return buffer;
}

static int is_ours(const uint8_t *buffer)
{
	for (int at = 0; at < MOST && buffer; at++)
		if (__atomic_load_n(&ours[at], __ATOMIC_ACQUIRE) == buffer)
			return 1;
	return 0;
}

/* A buffer of zeroes is CUPTI's next. */
EXPORTED void aaco_give(uint8_t *buffer)
{
	put(ready, buffer);
}

/* There are so many buffers, the pages of those that are new touched; fewer, where there may be no more. */
EXPORTED void aaco_prepare(uint32_t count)
{
	uint8_t *buffer;
	while (__atomic_load_n(&made, __ATOMIC_RELAXED) < count && (buffer = make())) {
		for (volatile uint8_t *page = buffer; page < buffer + aaco_buffer_bytes; page += PAGE)
			*page = 0;
		aaco_give(buffer);
	}
}

/* The next full buffer; NULL: there is none. For one thread at a time. */
EXPORTED uint8_t *aaco_take(size_t *valid)
{
	uint8_t *buffer = __atomic_load_n(&full[taken % MOST].buffer, __ATOMIC_ACQUIRE);
	if (buffer) {
		*valid = full[taken % MOST].valid;
		__atomic_store_n(&full[taken++ % MOST].buffer, NULL, __ATOMIC_RELEASE);
		__atomic_sub_fetch(&aaco_held, 1, __ATOMIC_RELAXED);
	}
	return buffer;
}

/* CUpti_BuffersCallbackRequestFunc */
EXPORTED void aaco_requested(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
	uint8_t *found = NULL;
	for (int at = 0; at < MOST && !found; at++)
		if (__atomic_load_n(&ready[at], __ATOMIC_RELAXED))
			found = __atomic_exchange_n(&ready[at], NULL, __ATOMIC_ACQUIRE);
	if (!found)
		found = make();
	if (found)
		__atomic_add_fetch(&aaco_held, 1, __ATOMIC_RELAXED);
	*buffer = found;
	*bytes = found ? aaco_buffer_bytes : 0;
	*most_records = 0; /* as many as it holds */
}

/* CUpti_BuffersCallbackCompleteFunc */
EXPORTED void aaco_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
	(void)context;
	(void)stream;
	if (!is_ours(buffer)) /* another profiler's, from before */
		return;
	/* Acquired and released, so that whoever comes to a place again comes after it was read. */
	uint32_t place = __atomic_fetch_add(&came_back, 1, __ATOMIC_ACQ_REL) % MOST;
	full[place].valid = valid < bytes ? valid : bytes;
	__atomic_store_n(&full[place].buffer, buffer, __ATOMIC_RELEASE);
}
