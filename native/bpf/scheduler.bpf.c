// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* What the scheduler, interrupts and page faults do to one process, its threads and the processes it starts. */
#include "record.h"

#define TASK_UNINTERRUPTIBLE 2 /* include/linux/sched.h */
#define TASK_DEAD 0x80
#define FUTEX_CALL 202 /* arch/x86/entry/syscalls/syscall_64.tbl */
#define FUTEX_WAITV_CALL 449
#define FAULTS_TOGETHER_NS 100000 /* faults closer than this are told in one record */

struct pt_regs {
	unsigned long orig_ax;
} OF_THE_KERNEL;

struct irqaction {
	const char *name;
} OF_THE_KERNEL;

/* Why a thread left its CPU: bpf_scheduler.py names them in this order. */
enum reason { FIRST_RUN, PREEMPTED, IN_FUTEX, IN_BLOCK_IO, UNINTERRUPTIBLE, SLEEP };

struct state {
	__u64 off_since;   /* 0: on a CPU, or not yet seen leaving one */
	__u64 waited;      /* as far as it is told, by the kernel's account */
	__u64 fault_since; /* first fault that is not told yet */
	__u64 minor, major; /* faults told */
	__u32 other;
	__u16 cpu; /* that it left */
	__u8 reason;
	char other_name[NAME_BYTES];
};

#include "tasks.h"

struct interruption { /* of the task on this CPU; 0: none, or the task is not ours */
	__u64 irq_since, timer_since, softirq_since;
	__u64 nested_ns; /* interrupts inside the softirq, which are told apart */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interruption);
} interruptions SEC(".maps");

/* A thread that lives already may be met amid a wait: if that moved it to another CPU before, it is told from there on. */
static __always_inline void meet(struct state *state, struct task_struct *task)
{
	state->waited = task->sched_info.run_delay;
	state->minor = task->min_flt;
	state->major = task->maj_flt;
}

static __always_inline void tell_faults(__u32 kind, struct task_struct *task, __u64 number, __u64 t_ns)
{
	struct record *record;

	if (!number)
		return;
	count(kind, number, 0);
	record = reserve(kind, task, t_ns, 0);
	if (record) {
		record->value = number;
		submit(record);
	}
}

/* The task's own counters are what getrusage(2) sums: they know kernel-mode faults, and minor from major. */
static __always_inline void look_for_faults(struct state *state, struct task_struct *task, __u64 now)
{
	__u64 minor = task->min_flt, major = task->maj_flt;
	__u64 t_ns = state->fault_since ? state->fault_since : now;

	if (!settings.faults)
		return;
	tell_faults(FAULT_MINOR, task, minor - state->minor, t_ns);
	tell_faults(FAULT_MAJOR, task, major - state->major, t_ns);
	state->minor = minor;
	state->major = major;
	state->fault_since = 0;
}

/* A sleeping thread's registers still hold the number of the system call it sleeps in. (In a page fault the place holds
 * the fault's error code, whose bits do not make these numbers.) */
static __always_inline bool in_futex(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	unsigned long call = regs->orig_ax;

	return call == FUTEX_CALL || call == FUTEX_WAITV_CALL;
}

static __always_inline __u8 why_blocked(struct task_struct *task, __u32 state)
{
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return IN_BLOCK_IO;
	if (in_futex(task))
		return IN_FUTEX;
	return state & TASK_UNINTERRUPTIBLE ? UNINTERRUPTIBLE : SLEEP;
}

/* How long the thread has waited for a CPU since it lives, as /proc/PID/schedstat shows it: from being queued, or
 * preempted, until the scheduler takes it on (sched_info_enqueue and sched_info_arrive of kernel/sched/stats.h). The
 * kernel closes the last wait just after this. Its clock is that of the run queue, which stands still while an idle CPU
 * turns to the thread that was woken: that is no wait. */
static __always_inline __u64 waited(struct task_struct *task, __u64 clock)
{
	__u64 queued = task->sched_info.last_queued; /* 0: not in a queue */

	return task->sched_info.run_delay + (queued ? elapsed(queued, clock) : 0);
}

static __always_inline void count_off(__u8 reason, __u64 off, __u64 wait)
{
	__u64 blocked = elapsed(wait, off);

	count(reason == PREEMPTED ? INVOLUNTARY : VOLUNTARY, 0, off);
	if (reason == IN_FUTEX)
		count(FUTEX_WAIT, 1, blocked);
	else if (reason == IN_BLOCK_IO)
		count(BLOCK_IO, 1, blocked);
}

/* The thread came on at `now`; `total`: how long it has waited since it lives. */
static __always_inline void come(struct state *state, struct task_struct *task, __u64 now, __u64 total)
{
	__u64 off = state->off_since ? elapsed(state->off_since, now) : 0;
	__u64 wait = elapsed(state->waited, total);
	struct record *record;

	if (!off && !wait)
		return;
	if (wait)
		count_time(RUN_QUEUE_WAIT, wait);
	if (off)
		count_off(state->reason, off, wait);
	record = reserve(OFF_CPU, task, now, off);
	if (record) {
		record->wait_ns = wait;
		record->other = state->other;
		record->value = state->cpu;
		record->reason = off ? state->reason : FIRST_RUN;
		if (off && state->reason == PREEMPTED)
			__builtin_memcpy(record->name, state->other_name, NAME_BYTES);
		submit(record);
	}
	state->off_since = 0;
	state->waited = total;
}

/* Some kernels do not show every switch. Then the kernel's account says when the thread came on, and after what wait. */
static __always_inline void come_unseen(struct state *state, struct task_struct *task, __u64 now, __u64 clock)
{
	__u64 total = waited(task, clock);

	if (!state->off_since && state->waited == total)
		return;
	count(OFF_CPU, 1, 0);
	come(state, task, now - elapsed(task->sched_info.last_arrival, clock), total);
}

/* As __schedule counts nvcsw and nivcsw (kernel/sched/core.c): preempted, or still runnable. */
static __always_inline void leave(struct state *state, bool preempt, struct task_struct *prev,
				  struct task_struct *next, __u64 now)
{
	__u32 task_state = prev->__state;

	look_for_faults(state, prev, now);
	if (task_state & TASK_DEAD)
		return;
	state->off_since = now;
	state->other = next->pid;
	state->cpu = bpf_get_smp_processor_id();
	if (preempt || !task_state) {
		state->reason = PREEMPTED;
		bpf_core_read(state->other_name, NAME_BYTES, &next->comm);
		count(INVOLUNTARY, 1, 0);
	} else {
		state->reason = why_blocked(prev, task_state);
		count(VOLUNTARY, 1, 0);
	}
}

/* Apart from on_switch, so that a switch between strangers runs a few instructions in a row and saves no registers. */
static __noinline int switched(bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 clock = next->se.cfs_rq->rq->clock; /* this CPU's, so it is that of the leaving thread too */
	struct state *leaving, *coming;
	__u64 now = 0;

	leaving = ours(prev);
	if (leaving) {
		now = bpf_ktime_get_ns();
		come_unseen(leaving, prev, now, clock);
		leave(leaving, preempt, prev, next, now);
	}
	coming = ours(next);
	if (coming)
		come(coming, next, now ? now : bpf_ktime_get_ns(), waited(next, clock));
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (surely_not_ours(prev) && surely_not_ours(next))
		return 0;
	return switched(preempt, prev, next);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int destination)
{
	struct record *record;

	if (!ours(task))
		return 0;
	count(MIGRATION, 1, 0);
	record = reserve(MIGRATION, task, bpf_ktime_get_ns(), 0);
	if (record) {
		record->value = destination;
		submit(record);
	}
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_fault, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct state *state;
	__u64 now;

	if (!settings.faults)
		return 0;
	state = ours(task);
	if (!state)
		return 0;
	now = bpf_ktime_get_ns();
	if (state->fault_since && elapsed(state->fault_since, now) > FAULTS_TOGETHER_NS)
		look_for_faults(state, task, now);
	if (!state->fault_since)
		state->fault_since = now; /* this one: the task's counters know it only when it is over */
	return 0;
}

/* Null for tasks that are not ours. An interruption begins and ends in the same task, so no time is left behind in it. */
static __always_inline struct interruption *interruption(void)
{
	__u32 zero = 0;

	if (surely_not_ours(bpf_get_current_task_btf()))
		return 0;
	return bpf_map_lookup_elem(&interruptions, &zero);
}

static __always_inline __u64 now_if_ours(void)
{
	return ours(bpf_get_current_task_btf()) ? bpf_ktime_get_ns() : 0;
}

static __always_inline struct record *stolen(__u32 kind, __u64 now, __u64 dur)
{
	count(kind, 1, dur);
	return reserve(kind, bpf_get_current_task_btf(), now, dur);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry, int irq, struct irqaction *action)
{
	struct interruption *here = interruption();

	if (here)
		here->irq_since = now_if_ours();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit, int irq, struct irqaction *action, int handled)
{
	struct interruption *here = interruption();
	struct record *record;
	__u64 now;

	if (!here || !here->irq_since)
		return 0;
	now = bpf_ktime_get_ns();
	here->nested_ns += elapsed(here->irq_since, now);
	record = stolen(IRQ, now, elapsed(here->irq_since, now));
	here->irq_since = 0;
	if (record) {
		record->value = irq;
		bpf_probe_read_kernel_str(record->name, NAME_BYTES, action->name);
		submit(record);
	}
	return 0;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(on_timer_entry, int vector)
{
	struct interruption *here = interruption();

	if (here)
		here->timer_since = now_if_ours();
	return 0;
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(on_timer_exit, int vector)
{
	struct interruption *here = interruption();
	struct task_struct *task = bpf_get_current_task_btf();
	struct record *record;
	struct state *state;
	__u64 now;

	if (!here || !here->timer_since)
		return 0;
	now = bpf_ktime_get_ns();
	here->nested_ns += elapsed(here->timer_since, now);
	record = stolen(TIMER, now, elapsed(here->timer_since, now));
	here->timer_since = 0;
	if (record)
		submit(record);
	state = ours(task); /* a thread that only computes is looked at by its tick */
	if (state)
		look_for_faults(state, task, now);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	struct interruption *here = interruption();

	if (here) {
		here->softirq_since = now_if_ours();
		here->nested_ns = 0; /* after the clock, and read before it: what interrupts here is never outside */
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	struct interruption *here = interruption();
	struct record *record;
	__u64 now, nested;

	if (!here || !here->softirq_since)
		return 0;
	nested = here->nested_ns;
	now = bpf_ktime_get_ns();
	record = stolen(SOFTIRQ, now, elapsed(here->softirq_since + nested, now));
	here->softirq_since = 0;
	if (record) {
		record->value = vector;
		submit(record);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
