/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What every traced feature shares: the few types of the kernel that are needed, found by CO-RE where the running kernel
 * has them (so there is no vmlinux.h), records of one size in a ring, and an exact account of those that did not fit.
 */
#pragma once
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define OF_THE_KERNEL __attribute__((preserve_access_index))
#define NAME_BYTES 16 /* TASK_COMM_LEN */

struct sched_info { /* by the clock of the run queue, in ns */
	unsigned long long run_delay, last_arrival, last_queued;
} OF_THE_KERNEL;

struct rq {
	__u64 clock;
} OF_THE_KERNEL;

struct cfs_rq {
	struct rq *rq;
} OF_THE_KERNEL;

struct sched_entity {
	struct cfs_rq *cfs_rq;
} OF_THE_KERNEL;

struct task_struct {
	int pid, tgid; /* the kernel's names: thread and process */
	unsigned int __state;
	struct sched_info sched_info;
	struct sched_entity se;
	unsigned in_iowait : 1;
	unsigned long min_flt, maj_flt;
	char comm[NAME_BYTES];
	struct bpf_local_storage *bpf_storage;
} OF_THE_KERNEL;

/* Written by the loader before the kernel verifies; constants from then on. bpf_scheduler.py packs it. */
const volatile struct {
	int target;   /* process whose threads, and whose children from now on, are traced */
	__u32 events; /* whether records are written, besides the totals */
	__u32 faults; /* whether page faults are counted */
} settings = {};

/* Kinds of records and totals: bpf_scheduler.py names them in this order. */
enum kind {
	OFF_CPU, /* as a total: how often a thread's return to a CPU was not shown, and told only when it left again */
	VOLUNTARY, INVOLUNTARY, RUN_QUEUE_WAIT, MIGRATION, FAULT_MINOR, FAULT_MAJOR, IRQ, SOFTIRQ, TIMER,
	FUTEX_WAIT, BLOCK_IO, KINDS
};

struct record { /* 64 bytes, 72 with the ring's own header: bpf_ring.py reads it */
	__u64 t_ns;    /* CLOCK_MONOTONIC, at the end of what is told */
	__u64 dur_ns;
	__u64 wait_ns; /* how long the thread waited for a CPU at its end, as the kernel counts it */
	__u32 process, thread;
	__u32 other;   /* thread that came on */
	__u32 lost;    /* records of this CPU that found no room just before this one */
	__u32 value;
	__u16 cpu;
	__u8 kind;
	__u8 reason;
	char name[NAME_BYTES];
};

struct total {
	__u64 count, ns;
};

#define BUCKETS 64
struct account { /* of one CPU; bpf_ring.py sums them */
	__u64 emitted, lost, untold; /* records; untold: lost since the last record of this CPU */
	struct total totals[KINDS];
	__u64 histogram[BUCKETS]; /* times by their binary logarithm, in ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

static __always_inline struct account *account(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&accounts, &zero);
}

static __always_inline void count(__u32 kind, __u64 number, __u64 ns)
{
	struct account *here = account();

	if (here) {
		here->totals[kind].count += number;
		here->totals[kind].ns += ns;
	}
}

/* The clock that may be read in interrupts can step back a little (ktime_get_mono_fast_ns in kernel/time/timekeeping.c). */
static __always_inline __u64 elapsed(__u64 since, __u64 now)
{
	return now > since ? now - since : 0;
}

static __always_inline __u32 log2(__u64 value)
{
	__u32 bits = 0;

	if (value >> 32) { value >>= 32; bits += 32; }
	if (value >> 16) { value >>= 16; bits += 16; }
	if (value >> 8) { value >>= 8; bits += 8; }
	if (value >> 4) { value >>= 4; bits += 4; }
	if (value >> 2) { value >>= 2; bits += 2; }
	return bits + (value >> 1);
}

static __always_inline void count_time(__u32 kind, __u64 ns)
{
	struct account *here = account();

	if (here)
		here->histogram[log2(ns) & (BUCKETS - 1)] += 1;
	count(kind, 1, ns);
}

/* Atomic, because an interrupt may tell something while a system call is telling something. */
static __always_inline void lose(struct account *here)
{
	__sync_fetch_and_add(&here->lost, 1);
	__sync_fetch_and_add(&here->untold, 1);
}

/* Counts a record that found room; returns how many of this CPU did not since the last that did. */
static __always_inline __u32 found_room(struct account *here)
{
	__sync_fetch_and_add(&here->emitted, 1);
	return here->untold ? __sync_lock_test_and_set(&here->untold, 0) : 0;
}

/* Room for a record with what is known of every one, or null: then it is counted as lost. */
static __always_inline struct record *reserve(__u8 kind, struct task_struct *task, __u64 now, __u64 dur)
{
	struct account *here = account();
	struct record *record;

	if (!settings.events || !here)
		return 0;
	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record) {
		lose(here);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->lost = found_room(here);
	record->t_ns = now;
	record->dur_ns = dur;
	record->process = task->tgid;
	record->thread = task->pid;
	record->cpu = bpf_get_smp_processor_id();
	record->kind = kind;
	return record;
}

static __always_inline void submit(struct record *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP); /* the reader polls: a wakeup per event would be a switch per event */
}
