// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* How long each page fault of one process, its threads and its children takes. Not every kernel allows fentry. */
#include "record.h"

/* include/linux/mm_types.h */
#define VM_FAULT_ERROR 0x873 /* OOM, SIGBUS, HWPOISON, HWPOISON_LARGE, SIGSEGV, FALLBACK */
#define VM_FAULT_MAJOR 0x4
#define VM_FAULT_RETRY 0x400
#define FAULT_FLAG_TRIED 0x20

struct vm_area_struct;
struct pt_regs;

struct state {
	__u64 since; /* 0: not in a fault */
	__u64 address;
};

#include "tasks.h"

static __always_inline void meet(struct state *state, struct task_struct *task)
{
}

/* A fault that must be tried again, as when it waits for the disk, is one fault. */
SEC("fentry/handle_mm_fault")
int BPF_PROG(on_fault_entry, struct vm_area_struct *area, unsigned long address, unsigned int flags)
{
	struct state *state = ours(bpf_get_current_task_btf());

	if (state && !(state->since && state->address == address)) {
		state->since = bpf_ktime_get_ns();
		state->address = address;
	}
	return 0;
}

/* Counts what mm_account_fault counts (mm/memory.c), and so what getrusage(2) says. */
SEC("fexit/handle_mm_fault")
int BPF_PROG(on_fault_exit, struct vm_area_struct *area, unsigned long address, unsigned int flags, struct pt_regs *regs,
	     unsigned int result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct state *state = ours(task);
	struct record *record;
	__u64 now, dur;
	__u32 kind;

	if (!state || !state->since || (result & VM_FAULT_RETRY && !(result & VM_FAULT_ERROR)))
		return 0;
	now = bpf_ktime_get_ns();
	dur = elapsed(state->since, now);
	state->since = 0;
	if (result & VM_FAULT_ERROR)
		return 0;
	kind = result & VM_FAULT_MAJOR || flags & FAULT_FLAG_TRIED ? FAULT_MAJOR : FAULT_MINOR;
	count(kind, 1, dur);
	record = reserve(kind, task, now, dur);
	if (record) {
		record->value = 1;
		submit(record);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
