/* workers.c - see workers.h: lists with a lock, and an eventfd that wakes the loop. */
#include "runtime/serve/workers.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct JobList { Job *first, **end; } JobList;

static void add(JobList *list, Job *job)
{
	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
}

static Job *take(JobList *list)
{
	Job *job = list->first;
	if (job && !(list->first = job->next))
		list->end = &list->first;
	return job;
}

/* To the loop ------------------------------------------------------------ */

struct Mail {
	pthread_mutex_t lock;
	JobList jobs;
	struct event *event;
	int fd;
};

static void deliver(Mail *mail)
{
	pthread_mutex_lock(&mail->lock);
	Job *job = mail->jobs.first;
	mail->jobs = (JobList){NULL, &mail->jobs.first};
	pthread_mutex_unlock(&mail->lock);
	for (Job *next; job; job = next) {
		next = job->next;
		job->done(job);
	}
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
	uint64_t count;
	(void)what;
	(void)!read(fd, &count, sizeof count);
	deliver(arg);
}

Mail *mail_open(struct event_base *base)
{
	Mail *mail = calloc(1, sizeof *mail);
	if (!mail)
		return NULL;
	mail->jobs.end = &mail->jobs.first;
	mail->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	mail->event = mail->fd < 0 ? NULL : event_new(base, mail->fd, EV_READ | EV_PERSIST, on_mail, mail);
	pthread_mutex_init(&mail->lock, NULL);
	if (mail->event && event_add(mail->event, NULL) == 0)
		return mail;
	mail_close(mail);
	return NULL;
}

void mail_post(Mail *mail, Job *job)
{
	pthread_mutex_lock(&mail->lock);
	const bool wakes = !mail->jobs.first;
	add(&mail->jobs, job);
	pthread_mutex_unlock(&mail->lock);
	if (wakes)
		(void)!write(mail->fd, &(uint64_t){1}, sizeof(uint64_t));
}

void mail_close(Mail *mail)
{
	if (!mail)
		return;
	deliver(mail);
	if (mail->event)
		event_free(mail->event);
	if (mail->fd >= 0)
		close(mail->fd);
	pthread_mutex_destroy(&mail->lock);
	free(mail);
}

/* Workers ------------------------------------------------------------ */

enum {
	MOST_WORKERS = 16, MOST_LONG = 2,
	STACK_BYTES = 8 << 20, /* a template may take 2 MiB */
	LONG_NICE = 5,         /* the engine's thread goes first where there are few processors */
};

typedef struct Lane { JobList jobs; pthread_cond_t more; } Lane; /* that some threads serve */

struct Workers {
	Mail *mail;
	pthread_mutex_t lock;
	Lane quick, slow;
	pthread_t threads[MOST_WORKERS + MOST_LONG];
	int n;
	bool is_ending;
};

static void add_to(Workers *w, Lane *lane, Job *job)
{
	pthread_mutex_lock(&w->lock);
	add(&lane->jobs, job);
	pthread_cond_signal(&lane->more);
	pthread_mutex_unlock(&w->lock);
}

/* NULL: no more are done. */
static Job *next_of(Workers *w, Lane *lane)
{
	pthread_mutex_lock(&w->lock);
	while (!lane->jobs.first && !w->is_ending)
		pthread_cond_wait(&lane->more, &w->lock);
	Job *job = w->is_ending ? NULL : take(&lane->jobs);
	pthread_mutex_unlock(&w->lock);
	return job;
}

static void *work(void *arg)
{
	Workers *w = arg;
	for (Job *job; (job = next_of(w, &w->quick));) {
		job->work(job);
		if (job->long_work)
			add_to(w, &w->slow, job);
		else
			mail_post(w->mail, job);
	}
	return NULL;
}

static void *work_long(void *arg)
{
	Workers *w = arg;
	setpriority(PRIO_PROCESS, (id_t)gettid(), LONG_NICE); /* of this thread alone */
	for (Job *job; (job = next_of(w, &w->slow));) {
		job->long_work(job);
		mail_post(w->mail, job);
	}
	return NULL;
}

Workers *workers_open(Mail *mail, int n)
{
	Workers *w = calloc(1, sizeof *w);
	pthread_attr_t attributes;
	if (!w)
		return NULL;
	w->mail = mail;
	w->quick.jobs.end = &w->quick.jobs.first;
	w->slow.jobs.end = &w->slow.jobs.first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->quick.more, NULL);
	pthread_cond_init(&w->slow.more, NULL);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	int n_long = 0;
	while (n_long < n && n_long < MOST_LONG && pthread_create(&w->threads[w->n], &attributes, work_long, w) == 0)
		w->n = ++n_long;
	while (w->n < n_long + n && w->n < n_long + MOST_WORKERS &&
		pthread_create(&w->threads[w->n], &attributes, work, w) == 0)
		w->n++;
	pthread_attr_destroy(&attributes);
	if (n_long && w->n > n_long)
		return w;
	workers_close(w);
	return NULL;
}

void workers_add(Workers *w, Job *job) { add_to(w, &w->quick, job); }

void workers_close(Workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->is_ending = true;
	pthread_cond_broadcast(&w->quick.more);
	pthread_cond_broadcast(&w->slow.more);
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < w->n; i++)
		pthread_join(w->threads[i], NULL);
	for (Job *job; (job = take(&w->quick.jobs)) || (job = take(&w->slow.jobs));)
		mail_post(w->mail, job);
	pthread_cond_destroy(&w->quick.more);
	pthread_cond_destroy(&w->slow.more);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
