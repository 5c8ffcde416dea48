/* workers.h - threads that do what would hold up the event loop, and the way back to it.
 *
 * A Job goes to a worker, which calls `work`, and then to the loop, which calls `done`. Where `work` sets `long_work`,
 * that is called in between, by one of a few other threads, so that jobs of a millisecond never wait for jobs of half a
 * second. The engine posts jobs without `work` straight to the loop. A job has one owner at a time.
 */
#ifndef ATLAS_WORKERS_H
#define ATLAS_WORKERS_H

#include <stdbool.h>

struct event_base;
typedef struct Job Job;
struct Job {
	Job *next;
	void (*work)(Job *); /* in a worker */
	void (*long_work)(Job *); /* NULL, until `work` sets it: in a thread for what takes long */
	void (*done)(Job *); /* in the loop's thread */
};

typedef struct Mail Mail; /* jobs not handed to the loop yet */
Mail *mail_open(struct event_base *base); /* NULL: no memory or descriptor */
void mail_post(Mail *mail, Job *job);     /* any thread */
void mail_close(Mail *mail);              /* after it delivered what was posted; NULL is fine */

typedef struct Workers Workers;
/* n threads, and at most two for long work. NULL: no memory or thread. */
Workers *workers_open(Mail *mail, int n);
void workers_add(Workers *w, Job *job);
void workers_close(Workers *w);           /* jobs that no thread has begun go back without it; NULL is fine */

#endif
