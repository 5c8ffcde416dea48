/* workers.c - see workers.h: one list with a lock for each direction, and an eventfd that wakes the loop. */
#include "runtime/serve/workers.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
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

enum { MOST_WORKERS = 16, STACK_BYTES = 8 << 20 }; /* a template may take 2 MiB */
struct Workers {
	Mail *mail;
	pthread_mutex_t lock;
	pthread_cond_t more;
	JobList jobs;
	pthread_t threads[MOST_WORKERS];
	int n;
	bool is_ending;
};

static void *work(void *arg)
{
	Workers *w = arg;
	for (;;) {
		pthread_mutex_lock(&w->lock);
		while (!w->jobs.first && !w->is_ending)
			pthread_cond_wait(&w->more, &w->lock);
		Job *job = w->is_ending ? NULL : take(&w->jobs);
		pthread_mutex_unlock(&w->lock);
		if (!job)
			return NULL;
		job->work(job);
		mail_post(w->mail, job);
	}
}

Workers *workers_open(Mail *mail, int n)
{
	Workers *w = calloc(1, sizeof *w);
	pthread_attr_t attributes;
	if (!w)
		return NULL;
	w->mail = mail;
	w->jobs.end = &w->jobs.first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	while (w->n < n && w->n < MOST_WORKERS && pthread_create(&w->threads[w->n], &attributes, work, w) == 0)
		w->n++;
	pthread_attr_destroy(&attributes);
	if (w->n)
		return w;
	workers_close(w);
	return NULL;
}

void workers_add(Workers *w, Job *job)
{
	pthread_mutex_lock(&w->lock);
	add(&w->jobs, job);
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
}

void workers_close(Workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->is_ending = true;
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < w->n; i++)
		pthread_join(w->threads[i], NULL);
	for (Job *job; (job = take(&w->jobs));)
		mail_post(w->mail, job);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
