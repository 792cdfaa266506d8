// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * /dev/aaco: samples of a process taken by the kernel itself, and markers on the same clock.
 *
 * The sampler of /proc has to be scheduled to look; this one looks from a kernel worker, and its totals include what
 * threads did until their end. Nothing in AACO needs it. The interface is aaco_abi.h.
 */
#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/debugfs.h>
#include <linux/dma-fence.h>
#include <linux/fs.h>
#include <linux/kfifo.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <trace/events/dma_fence.h>

#include "aaco_abi.h"

#define MOST_MS 60000
#define LEAST_EVENTS 64
#define MOST_EVENTS 65536
#define MOST_FENCES 1000000

static bool fixture;
module_param(fixture, bool, 0444);
MODULE_PARM_DESC(fixture, "allow AACO_IOC_FENCE, which emits dma_fence events for tests");

/* Since the module was loaded, over all sessions. */
static struct {
	atomic64_t sessions, events, lost, samples, markers, fences;
} total;

struct queue {
	DECLARE_KFIFO_PTR(events, struct aaco_event);
	spinlock_t lock;		/* of the writers */
	u64 emitted, lost;
	u32 lost_since;			/* what the next event has to tell */
};

struct totals {
	u64 run_queue_wait, voluntary, involuntary, minor, major;
};

struct session {
	struct mutex lock;		/* of everything below but the queue's own */
	struct mutex reading;		/* one reader at a time, and no restart under it */
	wait_queue_head_t wait;
	struct queue queue;
	struct task_struct *target;
	s32 process_id;
	u32 period_ms;
	bool begun, running;
	struct delayed_work sampling;
	struct totals last;
	s64 last_ns;
	u64 samples, sampling_ns;
};

/* ---- the queue ---- */

static int queue_make(struct queue *queue, u32 capacity)
{
	spin_lock_init(&queue->lock);
	queue->emitted = queue->lost = queue->lost_since = 0;
	return kfifo_alloc(&queue->events, capacity, GFP_KERNEL_ACCOUNT);
}

static void queue_put(struct queue *queue, struct aaco_event *event)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	queue->emitted++;
	event->lost_before = queue->lost_since;
	if (kfifo_put(&queue->events, *event)) {
		queue->lost_since = 0;
		atomic64_inc(&total.events);
	} else {
		queue->lost_since++;
		queue->lost++;
		atomic64_inc(&total.lost);
	}
	spin_unlock_irqrestore(&queue->lock, flags);
}

static void emit(struct session *session, u16 type, s64 t_ns, u64 value, s32 thread_id, const char *label)
{
	struct aaco_event event = {
		.t_ns = t_ns, .value = value, .type = type, .cpu = raw_smp_processor_id(),
		.process_id = session->process_id, .thread_id = thread_id,
	};

	if (label)
		memcpy(event.label, label, AACO_LABEL_BYTES);
	queue_put(&session->queue, &event);
}

/* ---- samples ---- */

/* As getrusage(2) does: ended threads have left their counts in the signal struct. */
static void count(struct task_struct *target, struct totals *now)
{
	struct signal_struct *signal = target->signal;
	struct task_struct *thread;
	unsigned int seq;

	rcu_read_lock();
	do {
		seq = read_seqbegin(&signal->stats_lock);
		*now = (struct totals){
			.voluntary = signal->nvcsw, .involuntary = signal->nivcsw,
			.minor = signal->min_flt, .major = signal->maj_flt,
		};
		for_each_thread(target, thread) {
			now->run_queue_wait += thread->sched_info.run_delay;
			now->voluntary += thread->nvcsw;
			now->involuntary += thread->nivcsw;
			now->minor += thread->min_flt;
			now->major += thread->maj_flt;
		}
	} while (read_seqretry(&signal->stats_lock, seq));
	rcu_read_unlock();
}

/* The wait of a thread that has ended is gone from the sum, which may therefore shrink. */
static u64 grown(u64 before, u64 now)
{
	return now > before ? now - before : 0;
}

/* Until every thread has made its account: a dying one still sleeps and is preempted. */
static bool lives(struct task_struct *target)
{
	struct task_struct *thread;
	bool found = false;

	rcu_read_lock();
	for_each_thread(target, thread)
		found |= !READ_ONCE(thread->exit_state);
	rcu_read_unlock();
	return found;
}

static void sample(struct session *session)
{
	struct totals now, *last = &session->last;
	s64 t_ns = ktime_get_ns();

	count(session->target, &now);
	emit(session, AACO_SAMPLE, t_ns, t_ns - session->last_ns, -1, NULL);
	emit(session, AACO_RUN_QUEUE_WAIT, t_ns, grown(last->run_queue_wait, now.run_queue_wait), -1, NULL);
	emit(session, AACO_SWITCH_VOLUNTARY, t_ns, grown(last->voluntary, now.voluntary), -1, NULL);
	emit(session, AACO_SWITCH_INVOLUNTARY, t_ns, grown(last->involuntary, now.involuntary), -1, NULL);
	emit(session, AACO_FAULT_MINOR, t_ns, grown(last->minor, now.minor), -1, NULL);
	emit(session, AACO_FAULT_MAJOR, t_ns, grown(last->major, now.major), -1, NULL);
	session->last = now;
	session->last_ns = t_ns;
	session->samples++;
	session->sampling_ns += ktime_get_ns() - t_ns;
	atomic64_inc(&total.samples);
}

/* After its last event: a reader that finds no more events and this may leave. */
static void end(struct session *session)
{
	smp_store_release(&session->running, false);
}

static bool ended(struct session *session)
{
	return !smp_load_acquire(&session->running);
}

static void sample_and_go_on(struct work_struct *work)
{
	struct session *session = container_of(to_delayed_work(work), struct session, sampling);

	mutex_lock(&session->lock);
	if (session->running) {
		/* Asked before the sample, so that the last one holds everything. */
		bool alive = lives(session->target);

		sample(session);
		if (alive)
			schedule_delayed_work(&session->sampling, msecs_to_jiffies(session->period_ms));
		else
			end(session);
	}
	mutex_unlock(&session->lock);
	wake_up_interruptible(&session->wait);
}

/* ---- a session ---- */

static struct task_struct *target_of(s32 process_id)
{
	struct task_struct *target = NULL;
	struct pid *pid = find_get_pid(process_id);
	bool ours;

	if (pid)
		target = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!target)
		return ERR_PTR(-ESRCH);
	rcu_read_lock();
	ours = uid_eq(__task_cred(target)->uid, current_uid());
	rcu_read_unlock();
	if (ours || perfmon_capable())
		return target;
	put_task_struct(target);
	return ERR_PTR(-EPERM);
}

static long start(struct session *session, const struct aaco_start *asked)
{
	struct task_struct *target;
	int error;

	if (asked->period_ms > MOST_MS || asked->capacity < LEAST_EVENTS || asked->capacity > MOST_EVENTS ||
	    asked->reserved)
		return -EINVAL;
	if (session->begun)
		return -EBUSY;
	target = target_of(asked->process_id);
	if (IS_ERR(target))
		return PTR_ERR(target);
	error = queue_make(&session->queue, asked->capacity);
	if (error) {
		put_task_struct(target);
		return error;
	}
	session->target = target;
	session->process_id = asked->process_id;
	session->period_ms = asked->period_ms;
	session->last_ns = ktime_get_ns();
	count(target, &session->last);
	session->begun = session->running = true;
	atomic64_inc(&total.sessions);
	if (session->period_ms)
		schedule_delayed_work(&session->sampling, msecs_to_jiffies(session->period_ms));
	return 0;
}

/* The last sample is taken here, so that the counts are whole. */
static void stop(struct session *session)
{
	mutex_lock(&session->lock);
	if (session->running && session->period_ms)
		sample(session);
	end(session);
	mutex_unlock(&session->lock);
	cancel_delayed_work_sync(&session->sampling);
	wake_up_interruptible(&session->wait);
}

static void tell(struct session *session, struct aaco_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->samples = session->samples;
	stats->sampling_ns = session->sampling_ns;
	stats->running = session->running;
	if (!session->begun)
		return;
	spin_lock_irq(&session->queue.lock);
	stats->emitted = session->queue.emitted;
	stats->lost = session->queue.lost;
	stats->queued = kfifo_len(&session->queue.events);
	spin_unlock_irq(&session->queue.lock);
}

static long mark(struct session *session, const struct aaco_mark *asked)
{
	if (!session->running)
		return -ENODATA;
	emit(session, AACO_MARKER, ktime_get_ns(), 0, task_pid_vnr(current), asked->label);
	atomic64_inc(&total.markers);
	return 0;
}

/* ---- fences, for tests ---- */

static DEFINE_SPINLOCK(fence_lock);

static const char *fence_name(struct dma_fence *fence)
{
	return "aaco";
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
};

static long fence(struct session *session, u64 context, u64 sequence)
{
	struct dma_fence *made = kzalloc(sizeof(*made), GFP_KERNEL);

	if (!made)
		return -ENOMEM;
	dma_fence_init(made, &fence_ops, &fence_lock, context, sequence);
	emit(session, AACO_FENCE_CREATED, ktime_get_ns(), sequence, task_pid_vnr(current), NULL);
	trace_dma_fence_emit(made);	/* as a driver does that hands work to its ring */
	dma_fence_signal(made);
	emit(session, AACO_FENCE_SIGNALED, ktime_get_ns(), sequence, task_pid_vnr(current), NULL);
	dma_fence_put(made);		/* frees it: dma_fence_free by default */
	atomic64_inc(&total.fences);
	return 0;
}

static long fences(struct session *session, u32 wanted)
{
	u64 context, sequence;
	long error = 0;

	if (!fixture)
		return -EOPNOTSUPP;
	if (!session->running)
		return -ENODATA;
	if (wanted > MOST_FENCES)
		return -EINVAL;
	context = dma_fence_context_alloc(1);
	for (sequence = 1; sequence <= wanted && !error && !fatal_signal_pending(current); sequence++) {
		error = fence(session, context, sequence);
		cond_resched();
	}
	return error;
}

/* ---- self-test ---- */

static u32 test_queue(void)
{
	struct queue *queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	struct aaco_event event = {};
	u32 failed = 0, at;

	if (!queue || queue_make(queue, LEAST_EVENTS)) {
		kfree(queue);
		return 4 | 8;
	}
	for (at = 0; at < LEAST_EVENTS + 3; at++) {
		event.value = at;
		queue_put(queue, &event);
	}
	for (at = 0; at < LEAST_EVENTS; at++)
		if (!kfifo_get(&queue->events, &event) || event.value != at)
			failed |= 4;
	event.value = at;
	queue_put(queue, &event);
	if (!kfifo_get(&queue->events, &event) || event.lost_before != 3 || queue->lost != 3 ||
	    queue->emitted != LEAST_EVENTS + 4)
		failed |= 8;
	kfifo_free(&queue->events);
	kfree(queue);
	return failed;
}

static u32 self_test(void)
{
	s64 earlier = ktime_get_ns(), later = ktime_get_ns();

	return (sizeof(struct aaco_event) == 48 ? 0 : 1) | (later >= earlier ? 0 : 2) | test_queue();
}

/* ---- the device ---- */

static int device_open(struct inode *inode, struct file *file)
{
	struct session *session = kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);

	if (!session)
		return -ENOMEM;
	mutex_init(&session->lock);
	mutex_init(&session->reading);
	init_waitqueue_head(&session->wait);
	INIT_DELAYED_WORK(&session->sampling, sample_and_go_on);
	file->private_data = session;
	return stream_open(inode, file);
}

static int device_release(struct inode *inode, struct file *file)
{
	struct session *session = file->private_data;

	stop(session);
	if (session->begun) {
		kfifo_free(&session->queue.events);
		put_task_struct(session->target);
	}
	kfree(session);
	return 0;
}

/* 1: there are events; 0: there will be none; or an error. */
static int wait_for_events(struct session *session, bool patient)
{
	if (!patient && !ended(session) && kfifo_is_empty(&session->queue.events))
		return -EAGAIN;
	if (wait_event_interruptible(session->wait, !kfifo_is_empty(&session->queue.events) || ended(session)))
		return -ERESTARTSYS;
	return !kfifo_is_empty(&session->queue.events);
}

static ssize_t device_read(struct file *file, char __user *buffer, size_t size, loff_t *offset)
{
	struct session *session = file->private_data;
	unsigned int copied = 0;
	int error;

	if (!READ_ONCE(session->begun))
		return -ENODATA;
	if (size < sizeof(struct aaco_event))
		return -EINVAL;
	if (mutex_lock_interruptible(&session->reading))
		return -ERESTARTSYS;
	error = wait_for_events(session, !(file->f_flags & O_NONBLOCK));
	if (error > 0)
		error = kfifo_to_user(&session->queue.events, buffer, size, &copied);
	mutex_unlock(&session->reading);
	return error < 0 ? error : copied;
}

static __poll_t device_poll(struct file *file, poll_table *table)
{
	struct session *session = file->private_data;

	poll_wait(file, &session->wait, table);
	if (!READ_ONCE(session->begun))
		return EPOLLERR;
	return (kfifo_is_empty(&session->queue.events) ? 0 : EPOLLIN | EPOLLRDNORM) |
	       (ended(session) ? EPOLLHUP : 0);
}

static long locked_ioctl(struct session *session, unsigned int command, void __user *argument)
{
	union {
		struct aaco_start start;
		struct aaco_stats stats;
		struct aaco_mark mark;
		u32 number;
	} asked = {};

	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&asked, argument, _IOC_SIZE(command)))
		return -EFAULT;
	switch (command) {
	case AACO_IOC_START:
		return start(session, &asked.start);
	case AACO_IOC_MARK:
		return mark(session, &asked.mark);
	case AACO_IOC_FENCE:
		return fences(session, asked.number);
	case AACO_IOC_VERSION:
		asked.number = AACO_ABI_VERSION;
		break;
	case AACO_IOC_STATS:
		tell(session, &asked.stats);
		break;
	case AACO_IOC_SELF_TEST:
		asked.number = self_test();
		break;
	}
	return copy_to_user(argument, &asked, _IOC_SIZE(command)) ? -EFAULT : 0;
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct session *session = file->private_data;
	long answer;

	switch (command) {
	case AACO_IOC_STOP:
		stop(session);
		return 0;
	case AACO_IOC_START:
	case AACO_IOC_MARK:
	case AACO_IOC_FENCE:
	case AACO_IOC_VERSION:
	case AACO_IOC_STATS:
	case AACO_IOC_SELF_TEST:
		mutex_lock(&session->lock);
		answer = locked_ioctl(session, command, (void __user *)argument);
		mutex_unlock(&session->lock);
		wake_up_interruptible(&session->wait);
		return answer;
	default:
		return -ENOTTY;
	}
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.read = device_read,
	.poll = device_poll,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "aaco",
	.fops = &device_operations,
	.mode = 0600,
};

static int counters_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "sessions %lld\nevents %lld\nlost %lld\nsamples %lld\nmarkers %lld\nfences %lld\n",
		   atomic64_read(&total.sessions), atomic64_read(&total.events), atomic64_read(&total.lost),
		   atomic64_read(&total.samples), atomic64_read(&total.markers), atomic64_read(&total.fences));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static struct dentry *folder;

static int __init aaco_init(void)
{
	int error = misc_register(&device);

	if (error)
		return error;
	folder = debugfs_create_dir("aaco", NULL);
	debugfs_create_file("counters", 0400, folder, NULL, &counters_fops);
	return 0;
}

static void __exit aaco_exit(void)
{
	debugfs_remove_recursive(folder);
	misc_deregister(&device);
}

module_init(aaco_init);
module_exit(aaco_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Samples of a process and markers, for AACO");
