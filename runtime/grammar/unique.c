/* unique.c - see unique.h. A byte that would make an item equal to one before it takes the ways out of the item away
 * (NODE_FRESH). As long as what is written of an item is the beginning of one before, a search looks for a way off: for
 * short sets of values, such as enums, it goes through those that are left.
 */
#include "runtime/grammar/unique.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 2000 /* of a search, which then says yes */ };

void unique_close(Unique *u)
{
	free(u->text);
	free(u->frames);
	free(u->items);
	*u = (Unique){0};
}

static uint32_t end_of_items(const Unique *u, uint32_t frame)
{
	return frame + 1 < u->depth ? u->frames[frame + 1].first : u->n_items;
}

/* Is what was written of the frame's item the beginning of one before, or the whole of it? */
static bool is_beginning(const Unique *u, uint32_t frame, bool whole)
{
	const Frame *f = &u->frames[frame];
	const uint32_t n = u->n - f->item;
	for (uint32_t i = f->first, end = end_of_items(u, frame); i < end; i++) {
		const uint32_t size = u->items[i].until - u->items[i].at;
		if ((whole ? size == n : size >= n) &&
			(n == 0 || (u->text[u->items[i].at + n - 1] == u->text[u->n - 1] &&
				memcmp(u->text + u->items[i].at, u->text + f->item, n) == 0)))
			return true;
	}
	return false;
}

static bool repeats(const Unique *u)
{
	return u->depth > 0 && !u->in_string && u->frames[u->depth - 1].is_list && u->n > u->frames[u->depth - 1].item &&
		is_beginning(u, u->depth - 1, true);
}

bool unique_may_repeat(const Unique *u)
{
	for (uint32_t i = 0; i < u->depth; i++)
		if (u->frames[i].is_list && end_of_items(u, i) > u->frames[i].first && is_beginning(u, i, false))
			return true;
	return false;
}

static void read_string(Unique *u, uint8_t byte)
{
	if (u->is_escaped)
		u->is_escaped = false;
	else if (byte == '\\')
		u->is_escaped = true;
	else if (byte == '"')
		u->in_string = false;
}

/* Outside of strings. */
static void read_sign(Unique *u, uint8_t byte, bool is_whole_item)
{
	Frame *top = u->depth ? &u->frames[u->depth - 1] : NULL;
	if (byte == '"')
		u->in_string = true;
	else if (byte == '[' || byte == '{')
		u->frames[u->depth++] = (Frame){byte == '[', u->n, u->n_items};
	else if ((byte == ']' || byte == '}') && top) {
		u->n_items = top->first;
		u->depth--;
	} else if (byte == ',' && top && top->is_list) {
		if (is_whole_item)
			u->items[u->n_items++] = (Span){top->item, u->n - 1};
		top->item = u->n;
	} else if (byte == ' ' && top && top->item == u->n - 1)
		top->item = u->n;
}

uint32_t unique_step(Unique *u, Match *m, uint32_t state, uint8_t byte, Undo *undo)
{
	if (!GROW(&m->effort, u->text, u->cap, u->n + 1) || !GROW(&m->effort, u->frames, u->frames_cap, u->depth + 2) ||
		!GROW(&m->effort, u->items, u->items_cap, u->n_items + 1))
		return 0;
	*undo = (Undo){u->n, u->depth, u->n_items, u->in_string, u->is_escaped,
		u->frames[u->depth ? u->depth - 1 : 0], u->frames[u->depth], u->items[u->n_items]};
	u->text[u->n++] = byte;
	if (u->in_string)
		read_string(u, byte);
	else
		read_sign(u, byte, m->states[state].ends_item);
	m->repeats = repeats(u);
	const uint32_t to = match_step(m, state, byte);
	m->repeats = false;
	if (to == 0)
		unique_undo(u, undo);
	return to;
}

void unique_undo(Unique *u, const Undo *undo)
{
	u->n = undo->n;
	u->depth = undo->depth;
	u->n_items = undo->n_items;
	u->in_string = undo->in_string;
	u->is_escaped = undo->is_escaped;
	u->frames[u->depth] = undo->over;
	if (u->depth)
		u->frames[u->depth - 1] = undo->last;
	u->items[u->n_items] = undo->item;
}

static bool goes_on(Unique *u, Match *m, uint32_t state)
{
	if (!unique_may_repeat(u) || u->steps >= MOST_STEPS)
		return true;
	uint64_t bytes[4];
	memcpy(bytes, m->states[state].bytes, sizeof bytes);
	for (int b = 0; b < 256; b++) {
		Undo undo;
		if (!(bytes[b / 64] >> b % 64 & 1))
			continue;
		u->steps++;
		const uint32_t to = unique_step(u, m, state, (uint8_t)b, &undo);
		if (to == 0)
			continue;
		const bool good = goes_on(u, m, to);
		unique_undo(u, &undo);
		if (good)
			return true;
	}
	return m->states[state].is_whole;
}

bool unique_goes_on(Unique *u, Match *m, uint32_t state)
{
	u->steps = 0;
	return goes_on(u, m, state);
}
