/* states.h - the states that a model of a protocol reaches, each once; a test includes it behind its own `State`.
 *
 * A State is compared and hashed by its bytes, so it has no padding, or zeros there.
 */
#ifndef ATLAS_TESTS_STATES_H
#define ATLAS_TESTS_STATES_H

typedef struct States {
	State *seen; bool *is_used; size_t n; /* [ROOM], by hash; how many */
	State *todo; size_t n_todo, todo_room; /* those that nobody has gone on from */
} States;

enum { ROOM = 1 << 22 };

static void states_begin(States *s)
{
	*s = (States){.seen = malloc(ROOM * sizeof *s->seen), .is_used = calloc(ROOM, sizeof *s->is_used)};
	assert_true(s->seen && s->is_used);
}

static void states_free(States *s)
{
	free(s->seen);
	free(s->is_used);
	free(s->todo);
}

static void states_visit(States *s, const State *x)
{
	uint64_t h = 1469598103934665603u; /* FNV-1a */
	for (size_t i = 0; i < sizeof *x; i++)
		h = (h ^ ((const uint8_t *)x)[i]) * 1099511628211u;
	size_t at = h % ROOM;
	for (; s->is_used[at]; at = (at + 1) % ROOM)
		if (memcmp(&s->seen[at], x, sizeof *x) == 0)
			return;
	assert_true(++s->n < ROOM / 2);
	s->is_used[at] = true;
	s->seen[at] = *x;
	if (s->n_todo == s->todo_room) {
		s->todo_room = 2 * s->todo_room + 1024;
		s->todo = realloc(s->todo, s->todo_room * sizeof *s->todo);
		assert_non_null(s->todo);
	}
	s->todo[s->n_todo++] = *x;
}

#endif
