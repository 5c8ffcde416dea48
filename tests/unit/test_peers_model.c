/* test_peers_model.c - the meeting of kernels/templates/ranks/peers.cuh in every order that memory allows.
 *
 * A state is where each block of each rank is, which stores can be seen by the others, and which are not there yet.
 * Stores arrive in any order, but a release after all that its block stored before it. From the first state all
 * others are visited. In none may a block read a part of another collective than its own; each but the last has a
 * successor. Parts that are pushed carry their collective with them: there, a part that is written over before it was
 * seen leaves its reader waiting. The same with one slot, or with a flag that does not release, must go wrong: what
 * the protocol has is what it needs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, BLOCKS = 2, EPOCHS = 3 };
enum { WRITE, RELEASE, WAIT, READ, ENDED };

typedef struct Protocol { int ranks, blocks, epochs, slots; bool releases, pushes; } Protocol;

typedef struct Block {
	uint8_t at, epoch;
	uint8_t slot[2], on_way[2];            /* the collective whose part is there; one that is not there yet */
	uint8_t flag[RANKS], flag_on_way[RANKS]; /* by the rank that sets it */
	uint8_t in[RANKS][2], in_on_way[RANKS][2]; /* what a rank pushes here: the collective that it is of */
} Block;
typedef struct State { Block of[RANKS][BLOCKS]; } State;

#include "tests/unit/states.h"

typedef struct Search {
	const Protocol *p;
	States states;
	bool is_stale, is_stuck;
} Search;

/* May the kernel of a rank's next collective begin to write? Its blocks begin when all of the one before have ended. */
static bool may_begin(const Protocol *p, const State *x, int rank, int block)
{
	const int epoch = x->of[rank][block].epoch;
	for (int b = 0; b < p->blocks; b++)
		if (x->of[rank][b].epoch < epoch)
			return false;
	return true;
}

static bool all_seen(const Protocol *p, const State *x, int rank, int block)
{
	const int slot = x->of[rank][block].epoch % p->slots;
	for (int r = 0; r < p->ranks && p->pushes; r++)
		if (r != rank && x->of[rank][block].in[r][slot] != x->of[rank][block].epoch)
			return false;
	if (p->pushes)
		return true;
	for (int r = 0; r < p->ranks; r++)
		if (r != rank && x->of[rank][block].flag[r] < x->of[rank][block].epoch)
			return false;
	return true;
}

/* The block's next step, where it can make one. */
static bool step(Search *s, State x, int rank, int block)
{
	const Protocol *p = s->p;
	Block *b = &x.of[rank][block];
	const int slot = b->epoch % p->slots;
	if (b->at == ENDED || (b->at == WRITE && !may_begin(p, &x, rank, block)) || (b->at == WAIT && !all_seen(p, &x, rank,
			block)))
		return false;
	for (int r = 0; r < p->ranks && p->pushes && b->at == WRITE; r++)
		if (r != rank)
			x.of[r][block].in_on_way[rank][slot] = b->epoch;
	if (p->pushes) { /* a part that arrives is its own flag, and is read with it */
		b->at = b->at == WRITE ? RELEASE : READ;
	} else if (b->at == WRITE) {
		if (b->on_way[slot]) /* an older store to the same place arrives first */
			b->slot[slot] = b->on_way[slot];
		b->on_way[slot] = b->epoch;
	} else if (b->at == RELEASE) {
		for (int i = 0; i < p->slots && p->releases; i++)
			if (b->on_way[i]) {
				b->slot[i] = b->on_way[i];
				b->on_way[i] = 0;
			}
		for (int r = 0; r < p->ranks; r++)
			if (r != rank)
				x.of[r][block].flag_on_way[rank] = b->epoch;
	} else if (b->at == READ) {
		for (int r = 0; r < p->ranks; r++)
			s->is_stale |= r != rank && x.of[r][block].slot[slot] != b->epoch;
	}
	b->at++;
	if (b->at == ENDED && b->epoch < p->epochs) {
		b->at = WRITE;
		b->epoch++;
	}
	states_visit(&s->states, &x);
	return true;
}

/* Each store on its way may arrive. */
static bool arrive(Search *s, const State *x, int rank, int block)
{
	bool any = false;
	for (int i = 0; i < 2; i++)
		if (x->of[rank][block].on_way[i]) {
			State next = *x;
			next.of[rank][block].slot[i] = next.of[rank][block].on_way[i];
			next.of[rank][block].on_way[i] = 0;
			states_visit(&s->states, &next);
			any = true;
		}
	for (int r = 0; r < s->p->ranks; r++)
		for (int i = 0; i < 2; i++)
			if (x->of[rank][block].in_on_way[r][i]) {
				State next = *x;
				next.of[rank][block].in[r][i] = next.of[rank][block].in_on_way[r][i];
				next.of[rank][block].in_on_way[r][i] = 0;
				states_visit(&s->states, &next);
				any = true;
			}
	for (int r = 0; r < s->p->ranks; r++)
		if (x->of[rank][block].flag_on_way[r]) {
			State next = *x;
			next.of[rank][block].flag[r] = next.of[rank][block].flag_on_way[r];
			next.of[rank][block].flag_on_way[r] = 0;
			states_visit(&s->states, &next);
			any = true;
		}
	return any;
}

static bool is_over(const Protocol *p, const State *x)
{
	for (int r = 0; r < p->ranks; r++)
		for (int b = 0; b < p->blocks; b++)
			if (x->of[r][b].at != ENDED)
				return false;
	return true;
}

static void search(const Protocol *p, bool is_sound)
{
	Search s = {.p = p};
	State first = {0};
	states_begin(&s.states);
	for (int r = 0; r < p->ranks; r++)
		for (int b = 0; b < p->blocks; b++)
			first.of[r][b].epoch = 1;
	states_visit(&s.states, &first);
	while (s.states.n_todo && !s.is_stale) {
		const State x = s.states.todo[--s.states.n_todo];
		bool goes_on = false;
		for (int r = 0; r < p->ranks; r++)
			for (int b = 0; b < p->blocks; b++) {
				goes_on |= step(&s, x, r, b);
				goes_on |= arrive(&s, &x, r, b);
			}
		s.is_stuck |= !goes_on && !is_over(p, &x);
	}
	assert_int_equal(s.is_stale || (p->pushes && s.is_stuck), !is_sound);
	assert_false(is_sound && s.is_stuck);
	assert_true(!is_sound || s.states.n > 500); /* it went somewhere */
	states_free(&s.states);
}

static void two_ranks_meet(void **state)
{
	(void)state;
	search(&(Protocol){2, 2, 3, 2, true, false}, true);
}

static void three_ranks_meet(void **state)
{
	(void)state;
	search(&(Protocol){3, 1, 3, 2, true, false}, true);
}

static void one_slot_is_too_few(void **state)
{
	(void)state;
	search(&(Protocol){2, 1, 3, 1, true, false}, false);
}

static void a_flag_must_release(void **state)
{
	(void)state;
	search(&(Protocol){2, 1, 3, 2, false, false}, false);
}

static void parts_are_pushed(void **state)
{
	(void)state;
	search(&(Protocol){.ranks = 2, .blocks = 2, .epochs = 5, .slots = 2, .pushes = true}, true);
}

static void one_slot_is_too_few_to_push(void **state)
{
	(void)state;
	search(&(Protocol){.ranks = 2, .blocks = 1, .epochs = 5, .slots = 1, .pushes = true}, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(two_ranks_meet), cmocka_unit_test(three_ranks_meet),
		cmocka_unit_test(one_slot_is_too_few), cmocka_unit_test(a_flag_must_release),
		cmocka_unit_test(parts_are_pushed), cmocka_unit_test(one_slot_is_too_few_to_push)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
