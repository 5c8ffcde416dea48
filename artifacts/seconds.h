/* seconds.h - the clock by which durations are measured. */
#ifndef ATLAS_SECONDS_H
#define ATLAS_SECONDS_H

#include <time.h>

/* Seconds since some moment in the past, of a clock that only goes forward. */
static inline double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
