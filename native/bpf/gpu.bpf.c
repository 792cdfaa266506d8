// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Copies trace records of the GPU's drivers as they are. Their fields differ between kernels, so nothing is known of them
 * here: bpf_gpu.py reads them by the `format` files of the kernel that wrote them.
 */
#include "record.h"

#define COMMON_BYTES 8 /* of a trace record; BPF keeps a pointer of its own there */
#define CONTENT_BYTES 152

struct copy { /* 184 bytes, 192 with the ring's own header: bpf_gpu.py reads it */
	__u64 t_ns;
	__u32 event; /* the number under which it was attached */
	__u32 lost;
	__u32 process, thread;
	__u32 cpu;
	__u32 unused;
	char content[CONTENT_BYTES]; /* the record from COMMON_BYTES on; beyond its end, whatever lay there */
};

SEC("tracepoint")
int on_event(void *context)
{
	struct account *here = account();
	__u64 task = bpf_get_current_pid_tgid();
	struct copy *copy;

	if (!here)
		return 0;
	copy = bpf_ringbuf_reserve(&ring, sizeof(*copy), 0);
	if (!copy) {
		lose(here);
		return 0;
	}
	copy->lost = found_room(here);
	copy->t_ns = bpf_ktime_get_ns();
	copy->event = bpf_get_attach_cookie(context);
	copy->process = task >> 32;
	copy->thread = task;
	copy->cpu = bpf_get_smp_processor_id();
	copy->unused = 0;
	if (bpf_probe_read_kernel(copy->content, CONTENT_BYTES, context + COMMON_BYTES))
		__builtin_memset(copy->content, 0, CONTENT_BYTES);
	bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
