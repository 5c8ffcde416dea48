/* greeting.h - what a rank says first, whichever way it comes. */
#ifndef ATLAS_GREETING_H
#define ATLAS_GREETING_H

#include "runtime/meet/rank_meet.h"

enum { MEET_MAGIC = 0x4b4e5241, MEET_LAYOUT = 3, MEET_WORD_MS = 2000 /* for a greeting that has begun */ };

typedef struct Greeting {
	uint32_t magic, layout;
	int32_t n, rank;
	char build[32], options[MEET_OPTIONS][48];
} Greeting;
typedef struct Answer { uint32_t magic; int32_t status; char text[512]; } Answer;

Greeting meet_greeting(const MeetSeat *seat);
/* At rank 0, to which those with links have come: the rank that greets, or -1 with what is wrong with it. */
int meet_judge(Greeting *g, const MeetSeat *first, const int *links, AtlasError *error);
/* The first that has not come; n = all have. */
int meet_missing(int n, const int *links);

#endif
