/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The one contract between the kernel module and its readers; src/aaco/collectors/host/kernel_module.py is its mirror, and
 * a test compiles this file and compares the two.
 *
 * One open file is one session. START makes the module watch a process and queue events; read(2) gives whole events,
 * blocks while there are none, and ends (0) when the session has ended and all was read. Closing the file ends
 * everything, whoever closes it and however.
 *
 * Times are CLOCK_MONOTONIC, in ns.
 */
#ifndef AACO_ABI_H
#define AACO_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define AACO_ABI_VERSION 1
#define AACO_LABEL_BYTES 16

/* What an event is. From SAMPLE to FAULT_MAJOR `value` is what happened since the sample before. */
enum aaco_event_type {
	AACO_MARKER = 0x001,		/* label: the caller's text */
	AACO_SAMPLE = 0x100,		/* value: length of the interval that ends here, ns */
	AACO_RUN_QUEUE_WAIT = 0x101,	/* value: ns, of the living threads */
	AACO_SWITCH_VOLUNTARY = 0x102,	/* value: switches, ended threads included */
	AACO_SWITCH_INVOLUNTARY = 0x103,
	AACO_FAULT_MINOR = 0x104,	/* value: faults, ended threads included */
	AACO_FAULT_MAJOR = 0x105,
	AACO_FENCE_CREATED = 0x200,	/* value: sequence number */
	AACO_FENCE_SIGNALED = 0x201,
};

/* 48 bytes, naturally aligned, alike for 32 and 64 bits. */
struct aaco_event {
	__s64 t_ns;
	__u64 value;
	__u16 type;			/* enum aaco_event_type */
	__u16 cpu;			/* where it was recorded */
	__u32 lost_before;		/* events the full queue refused just before this one */
	__s32 process_id;
	__s32 thread_id;		/* -1: summed over the process */
	char label[AACO_LABEL_BYTES];	/* padded with zeros; a text that fills it has none */
};

struct aaco_start {
	__s32 process_id;		/* of the caller's PID namespace; any thread of the process names it */
	__u32 period_ms;		/* 1 to 60000; 0: no samples, markers only */
	__u32 capacity;			/* events the queue holds, rounded up to a power of two; 64 to 65536 */
	__u32 reserved;			/* must be 0 */
};

/* emitted = what the reader gets + lost, always. */
struct aaco_stats {
	__u64 emitted;
	__u64 lost;
	__u64 samples;
	__u64 sampling_ns;		/* time the module itself spent on sampling */
	__u32 queued;
	__u32 running;			/* 0: not begun, stopped, or the process has ended */
};

struct aaco_mark {
	char label[AACO_LABEL_BYTES];
};

#define AACO_IOC_VERSION	_IOR(0xAA, 0, __u32)
#define AACO_IOC_START		_IOW(0xAA, 1, struct aaco_start)
#define AACO_IOC_STOP		_IO(0xAA, 2)
#define AACO_IOC_STATS		_IOR(0xAA, 3, struct aaco_stats)
#define AACO_IOC_MARK		_IOW(0xAA, 4, struct aaco_mark)
/* Bits of what failed: 1 layout, 2 clock, 4 queue order, 8 account of losses; 0 is well. */
#define AACO_IOC_SELF_TEST	_IOR(0xAA, 5, __u32)
/* A test fixture, there with the module parameter fixture=1: that many dma_fences, each created and signaled. */
#define AACO_IOC_FENCE		_IOW(0xAA, 6, __u32)

#endif
