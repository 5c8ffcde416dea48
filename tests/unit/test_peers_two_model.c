/* test_peers_two_model.c - sums in two shots, kernels/templates/ranks/sum_peers_two.cu, in every order that memory
 * allows, in a row with sums in one shot (test_peers_model.c has those alone, and says how orders are visited).
 *
 * A run is a list of launches: one shot or two, each as often as graphs are replayed. A rank may be a launch ahead of
 * another: nothing holds it but what it waits for. Regions stand for what a block works on; another launch has them in
 * another order, since its grid is another. Each region of a slot has a piece for each rank: a rank writes all pieces
 * of its own parts, and in the second shot others write theirs. Who reads must find what its own collective put there;
 * and when a rank has ended a launch, the parts of all others are still there for a measurement to read. Each rule of
 * the protocol left out must go wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, REGIONS = 2, OWN = RANKS };
enum { WRITE, SHOW, WAIT, ADD, SEND, WAIT_SUMS, TAKE, ENDED };

typedef struct Protocol {
	const char *launches; /* '1' and '2': shots */
	int ranks, regions;
	int slots, epochs;    /* of the arena; that a sum in two shots counts */
	bool releases, waits_again, is_second_counted;
} Protocol;

typedef struct Region {
	uint8_t cell[2][RANKS];       /* by slot and piece: the collective that it is of, 16 + it for a sum */
	uint8_t on_way[2];            /* the rank's own parts, all pieces; 0 = none */
	uint8_t sent[2][RANKS];       /* on the way here, by the rank whose piece it is */
	uint8_t flag[RANKS], flag_on_way[RANKS];
} Region;

typedef struct State {
	Region in[RANKS][REGIONS];
	uint8_t at[RANKS][REGIONS];   /* the block that works on that region */
	uint8_t launch[RANKS][REGIONS];
} State;

#include "tests/unit/states.h"

typedef struct Search {
	const Protocol *p;
	uint8_t first[16];            /* epoch of each launch */
	int n_launches;
	States states;
	bool is_stale, is_stuck;
} Search;

/* Region b of flags is of the block, which works on another region of slots in every other launch. */
static int region_of(const Protocol *p, int launch, int block) { return (block + launch) % p->regions; }

static bool have_all_ended(const Protocol *p, const State *x, int rank, int launch)
{
	for (int b = 0; b < p->regions; b++)
		if (x->launch[rank][b] < launch)
			return false;
	return true;
}

static bool all_flags(const Protocol *p, const State *x, int rank, int block, int epoch)
{
	for (int r = 0; r < p->ranks; r++)
		if (r != rank && x->in[rank][block].flag[r] < epoch)
			return false;
	return true;
}

/* What the block has on its way arrives before its flags do; or, where flags do not release, when it likes. */
static void release(const Protocol *p, State *x, int rank, int block, int region, int epoch)
{
	for (int slot = 0; slot < p->slots && p->releases; slot++) {
		if (x->in[rank][region].on_way[slot])
			memset(x->in[rank][region].cell[slot], x->in[rank][region].on_way[slot], (size_t)p->ranks);
		x->in[rank][region].on_way[slot] = 0;
		for (int r = 0; r < p->ranks; r++) {
			Region *to = &x->in[r][region];
			if (to->sent[slot][rank])
				to->cell[slot][rank] = to->sent[slot][rank];
			to->sent[slot][rank] = 0;
		}
	}
	for (int r = 0; r < p->ranks; r++)
		if (r != rank)
			x->in[r][block].flag_on_way[rank] = (uint8_t)epoch;
}

/* The rank has ended a launch and not begun another: are the others' parts there still? */
static bool parts_are_there(const Search *s, const State *x, int rank)
{
	const Protocol *p = s->p;
	const int launch = x->launch[rank][0] - 1;
	for (int b = 0; b < p->regions; b++)
		if (launch < 0 || x->launch[rank][b] != launch + 1 || x->at[rank][b] != WRITE)
			return true;
	const int slot = s->first[launch] % p->slots;
	for (int r = 0; r < p->ranks; r++)
		for (int b = 0; b < p->regions && r != rank; b++)
			for (int piece = 0; piece < p->ranks; piece++)
				if (x->in[r][b].cell[slot][piece] != s->first[launch])
					return false;
	return true;
}

/* The block's next step, where it can make one. */
static bool step(Search *s, State x, int rank, int block)
{
	const Protocol *p = s->p;
	uint8_t *at = &x.at[rank][block];
	const int launch = x.launch[rank][block];
	if (launch == s->n_launches || (*at == WRITE && !have_all_ended(p, &x, rank, launch)))
		return false;
	const bool is_in_two = p->launches[launch] == '2';
	const int region = region_of(p, launch, block), epoch = s->first[launch], again = epoch + p->is_second_counted;
	const int slot = epoch % p->slots, other = (epoch + 1) % p->slots;
	if (*at == WAIT && !all_flags(p, &x, rank, block, epoch))
		return false;
	if (*at == WAIT_SUMS && p->waits_again && !all_flags(p, &x, rank, block, again))
		return false;
	if (*at == WRITE) {
		Region *own = &x.in[rank][region];
		if (own->on_way[slot]) /* an older store to the same place arrives first */
			memset(own->cell[slot], own->on_way[slot], (size_t)p->ranks);
		own->on_way[slot] = (uint8_t)epoch;
	} else if (*at == SHOW) {
		release(p, &x, rank, block, region, epoch);
	} else if (*at == ADD) {
		for (int r = 0; r < p->ranks; r++)
			for (int piece = 0; piece < p->ranks && r != rank; piece++)
				s->is_stale |= (piece == rank || !is_in_two) && x.in[r][region].cell[slot][piece] != epoch;
		for (int r = 0; r < p->ranks && is_in_two; r++)
			if (r != rank)
				x.in[r][region].sent[other][rank] = (uint8_t)(16 + epoch);
	} else if (*at == SEND) {
		release(p, &x, rank, block, region, again);
	} else if (*at == TAKE) {
		for (int piece = 0; piece < p->ranks; piece++)
			s->is_stale |= piece != rank && x.in[rank][region].cell[other][piece] != 16 + epoch;
	}
	*at = *at == ADD && !is_in_two ? ENDED : (uint8_t)(*at + 1);
	if (*at == ENDED) {
		x.launch[rank][block]++;
		*at = WRITE;
	}
	states_visit(&s->states, &x);
	return true;
}

/* Each store on its way to a region may arrive. */
static bool arrive(Search *s, const State *x, int rank, int region)
{
	bool any = false;
	const Region *in = &x->in[rank][region];
	for (int slot = 0; slot < 2; slot++) {
		if (in->on_way[slot]) {
			State next = *x;
			memset(next.in[rank][region].cell[slot], in->on_way[slot], (size_t)s->p->ranks);
			next.in[rank][region].on_way[slot] = 0;
			states_visit(&s->states, &next);
			any = true;
		}
		for (int r = 0; r < s->p->ranks; r++)
			if (in->sent[slot][r]) {
				State next = *x;
				next.in[rank][region].cell[slot][r] = in->sent[slot][r];
				next.in[rank][region].sent[slot][r] = 0;
				states_visit(&s->states, &next);
				any = true;
			}
	}
	for (int r = 0; r < s->p->ranks; r++)
		if (in->flag_on_way[r]) {
			State next = *x;
			next.in[rank][region].flag[r] = in->flag_on_way[r];
			next.in[rank][region].flag_on_way[r] = 0;
			states_visit(&s->states, &next);
			any = true;
		}
	return any;
}

static void search(Protocol of, bool is_sound)
{
	const Protocol *p = &of;
	Search s = {.p = p};
	State first = {.launch = {{0}}};
	for (int epoch = 1; p->launches[s.n_launches]; s.n_launches++) {
		s.first[s.n_launches] = (uint8_t)epoch;
		epoch += p->launches[s.n_launches] == '2' ? p->epochs : 1;
		assert_true(epoch < 16);
	}
	states_begin(&s.states);
	states_visit(&s.states, &first);
	while (s.states.n_todo && !s.is_stale) {
		const State x = s.states.todo[--s.states.n_todo];
		bool goes_on = false, is_over = true;
		for (int r = 0; r < p->ranks; r++) {
			s.is_stale |= !parts_are_there(&s, &x, r);
			for (int b = 0; b < p->regions; b++) {
				goes_on |= step(&s, x, r, b);
				goes_on |= arrive(&s, &x, r, b);
				is_over &= x.launch[r][b] == s.n_launches;
			}
		}
		s.is_stuck |= !goes_on && !is_over;
	}
	assert_int_equal(s.is_stale, !is_sound);
	assert_false(is_sound && s.is_stuck);
	assert_true(!is_sound || s.states.n > 250); /* it went somewhere */
	states_free(&s.states);
}

static Protocol whole(const char *launches, int ranks, int regions)
{
	return (Protocol){launches, ranks, regions, 2, 3, true, true, true};
}

static void two_ranks_meet(void **state)
{
	(void)state;
	static const char *const launches[] = {"2222", "1212", "2121", "1122", "2211", "1221", "2112", "11211", "12111"};
	for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++)
		search(whole(launches[i], 2, 1), true);
}

static void three_ranks_meet(void **state)
{
	(void)state;
	static const char *const launches[] = {"222", "121", "212"};
	for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++)
		search(whole(launches[i], 3, 1), true);
}

static void grids_may_differ(void **state)
{
	(void)state;
	static const char *const launches[] = {"222", "122", "121", "212"};
	for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++)
		search(whole(launches[i], 2, 2), true);
}

static void parts_must_stay(void **state)
{
	(void)state;
	Protocol p = whole("222", 2, 1);
	p.epochs = 2;
	search(p, false);
}

static void one_slot_is_too_few(void **state)
{
	(void)state;
	Protocol p = whole("1212", 2, 1);
	p.slots = 1;
	search(p, false);
}

static void flags_must_release(void **state)
{
	(void)state;
	Protocol p = whole("222", 2, 1);
	p.releases = false;
	search(p, false);
}

static void sums_must_be_waited_for(void **state)
{
	(void)state;
	Protocol p = whole("222", 2, 1);
	p.waits_again = false;
	search(p, false);
}

static void the_second_meeting_is_another(void **state)
{
	(void)state;
	Protocol p = whole("222", 2, 1);
	p.is_second_counted = false;
	search(p, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(two_ranks_meet), cmocka_unit_test(three_ranks_meet),
		cmocka_unit_test(grids_may_differ), cmocka_unit_test(parts_must_stay), cmocka_unit_test(one_slot_is_too_few),
		cmocka_unit_test(flags_must_release), cmocka_unit_test(sums_must_be_waited_for),
		cmocka_unit_test(the_second_meeting_is_another)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
