/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which tasks are traced. A task is ours when it belongs to the target process or was forked by one of ours; then it owns
 * a `struct state`, which each feature defines. For all others every program ends at once: after a comparison or, once
 * the target has forked another process, after a look-up.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct state);
} states SEC(".maps");

int forked; /* whether the target has had a child process since it is traced */

static __always_inline void meet(struct state *state, struct task_struct *task); /* the feature's: a new state */

static __always_inline struct state *adopt(struct task_struct *task)
{
	struct state *state = bpf_task_storage_get(&states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (state)
		meet(state, task);
	return state;
}

/* As most tasks: that must cost next to nothing. One that is ours has storage; others have it if someone else gave it. */
static __always_inline bool surely_not_ours(struct task_struct *task)
{
	return task->tgid != settings.target && !(forked && task->bpf_storage);
}

static __always_inline struct state *ours(struct task_struct *task)
{
	struct state *state;

	if (surely_not_ours(task))
		return 0;
	state = bpf_task_storage_get(&states, task, 0, 0);
	return state || task->tgid != settings.target ? state : adopt(task);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (!ours(parent))
		return 0;
	adopt(child);
	if (child->tgid != settings.target)
		forked = 1;
	return 0;
}
