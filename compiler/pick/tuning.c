/* tuning.c - the measured times that pick-kernels uses.
 *
 * A target's times are those of one card: of a file kernels/tuning/TARGET.CARD.toml, which the build embeds, or of the
 * file that --tuning names; so a compile needs no GPU and depends on none. Which card: the one that --card or
 * target.card names; else the only one that there is a file of; else the target's typical one (targets.c), or where
 * that has none the first by name. What was read is recorded in the plan: hash, card and driver. A time counts for
 * exactly one kernel: the same code and launch (time_key.c), with the same constants and tunables.
 */
#include "artifacts/hash.h"
#include "compiler/pick/times.h"
#include "compiler/text/input.h"

#include <string.h>

static const char *hash_text(Arena *a, const char *text, size_t n)
{
	uint8_t hash[32];
	sha256_of(text, n, hash);
	char *hex = arena_alloc(a, 2 * sizeof hash + 1);
	for (size_t i = 0; i < sizeof hash; i++) {
		hex[2 * i] = "0123456789abcdef"[hash[i] >> 4];
		hex[2 * i + 1] = "0123456789abcdef"[hash[i] & 15];
	}
	return hex;
}

/* A copy in the arena; its strings lie in a copy of the text. */
static Tuning keep(Arena *a, const Tuning *t, size_t n)
{
	Tuning kept = *t;
	kept.text = arena_alloc(a, n + 1);
	memcpy(kept.text, t->text, n + 1);
	kept.times = ARENA_ARRAY(a, TunedTime, t->n_times);
#define MOVED(s) (kept.text + ((s) - t->text))
	kept.target = MOVED(t->target);
	kept.card = MOVED(t->card);
	kept.driver = MOVED(t->driver);
	for (int i = 0; i < t->n_times; i++) {
		TunedTime *x = &kept.times[i];
		*x = t->times[i];
		x->tmpl = MOVED(x->tmpl);
		x->constants = MOVED(x->constants);
		x->tunables = MOVED(x->tunables);
	}
#undef MOVED
	return kept;
}

/* Are the names of "TILE=64 STAGES=2" the template's tunables? Both have them in the order of the contract. */
static bool has_names_of(const KernelTemplate *k, const char *tunables)
{
	int i = 0;
	for (const char *at = tunables; *at; i++) {
		const size_t n = strcspn(at, "=");
		if (i == k->n_tunables || strlen(k->tunables[i].name) != n || strncmp(at, k->tunables[i].name, n) != 0)
			return false;
		at += strcspn(at, " ");
		at += *at == ' ';
	}
	return i == k->n_tunables;
}

/* Which templates have times with other tunables than they have now. others [n_kernel_table]. */
static void find_others(const Tuning *t, bool *others)
{
	const KernelTemplate *k = kernel_table;
	for (int i = 0; i < t->n_times; i++) {
		while (k < kernel_table + n_kernel_table && strcmp(k->name, t->times[i].tmpl) < 0) /* both are sorted */
			k++;
		if (k < kernel_table + n_kernel_table && strcmp(k->name, t->times[i].tmpl) == 0 &&
			!has_names_of(k, t->times[i].tunables))
			others[k - kernel_table] = true;
	}
}

bool read_times(Compile *c, const char *file, const char *text, size_t n)
{
	Tuning t;
	TuningFault fault;
	if (!tuning_read(text, n, &t, &fault))
		return fail_at(&c->diags, A0703, (Loc){file, fault.line, fault.col}, "%s", fault.text);
	bool *others = ARENA_ARRAY(&c->arena, bool, n_kernel_table);
	find_others(&t, others);
	*vec_push(&c->arena, &c->tunings) = (TargetTuning){.file = file, .sha256 = hash_text(&c->arena, text, n),
		.times = keep(&c->arena, &t, n), .was_told = ARENA_ARRAY(&c->arena, bool, n_kernel_table),
		.has_others = others};
	tuning_free(&t);
	return true;
}

static TargetTuning *tuning_for(const Compile *c, const char *target)
{
	for (int i = 0; i < c->tunings.n; i++)
		if (strcmp(c->tunings.at[i].times.target, target) == 0)
			return &c->tunings.at[i];
	return NULL;
}

static bool is_compiled(const Compile *c, const char *target)
{
	for (int i = 0; i < c->cmd.n_targets; i++)
		if (strcmp(c->cmd.targets[i], target) == 0)
			return true;
	return false;
}

static bool read_given(Compile *c)
{
	char *text;
	size_t n;
	if (!input_read(&c->arena, &c->diags, c->cmd.tuning, false, TUNING_MAX_BYTES, &text, &n) ||
		!read_times(c, c->cmd.tuning, text, n))
		return false;
	const char *target = c->tunings.at[0].times.target;
	input_call(&c->diags, arena_printf(&c->arena, "%s.toml", target));
	return is_compiled(c, target) || fail_at(&c->diags, A0703, (Loc){c->cmd.tuning, 0, 0},
		"times of %s, which is not a target of this compile", target);
}

/* The word for the card in an embedded file's name where it is of that target, "h100"; else NULL. */
static const char *card_of(const TemplateSource *file, const char *target)
{
	const size_t n = strlen(target);
	return strncmp(file->name, target, n) == 0 && file->name[n] == '.' ? file->name + n + 1 : NULL;
}

/* Is it one of a list with commas? NULL lists nothing. */
static bool is_named(const char *list, const char *word)
{
	for (const char *at = list; at && *at;) {
		size_t n = strcspn(at, ",");
		if (strlen(word) == n && strncmp(at, word, n) == 0)
			return true;
		at += n + (at[n] == ',');
	}
	return false;
}

const TemplateSource *tuning_file(const TemplateSource *files, int n, const Target *t, const char *cards)
{
	const TemplateSource *first = NULL, *typical = NULL;
	for (int k = 0; k < n; k++) {
		const char *card = card_of(&files[k], t->name);
		if (card && is_named(cards, card))
			return &files[k];
		if (card && !first)
			first = &files[k];
		if (card && strcmp(card, t->card) == 0)
			typical = &files[k];
	}
	return typical ? typical : first;
}

static const char *known_cards(Compile *c)
{
	const char *known = "";
	for (int i = 0; i < c->cmd.n_targets; i++)
		for (int k = 0; k < n_tuning_toml; k++) {
			const char *card = card_of(&tuning_toml[k], c->cmd.targets[i]);
			if (card)
				known = arena_printf(&c->arena, "%s%s%s", known, *known ? ", " : "", card);
		}
	return *known ? known : "none";
}

/* Each card that is named must be one that a target has times of, and a target takes those of one. */
static bool check_cards(Compile *c, const char *cards, const char *what, Loc at)
{
	const int before = c->diags.n_errors;
	int *n_named = ARENA_ARRAY(&c->scratch, int, c->cmd.n_targets + 1); /* of each target */
	for (const char *word = cards; word;) {
		const size_t n = strcspn(word, ",");
		const char *card = arena_strndup(&c->arena, word, n);
		bool is_known = false;
		for (int i = 0; i < c->cmd.n_targets; i++)
			for (int k = 0; k < n_tuning_toml; k++) {
				const char *of = card_of(&tuning_toml[k], c->cmd.targets[i]);
				if (!of || strcmp(of, card) != 0)
					continue;
				is_known = true;
				if (++n_named[i] == 2)
					fail_at(&c->diags, A0707, at, "%s %s: more than one card of %s: its kernels are chosen by the "
						"times of one", what, cards, c->cmd.targets[i]);
			}
		if (!n)
			fail_at(&c->diags, A0707, at, "%s \"%s\": the name of a card is missing; there are: %s", what, cards,
				known_cards(c));
		else if (!is_known)
			fail_at(&c->diags, A0707, at, "%s %s: no target of this compile has times of that card; there are: %s",
				what, card, known_cards(c));
		word = word[n] ? word + n + 1 : NULL;
	}
	return c->diags.n_errors == before;
}

/* read_tuning - the times of each target: of --tuning where it is for that target, else those built in. */
void read_tuning(Compile *c, const char *card, Loc at)
{
	const bool is_none = c->cmd.tuning && strcmp(c->cmd.tuning, "none") == 0;
	const char *cards = c->cmd.cards ? c->cmd.cards : card;
	if (c->cmd.tuning && !is_none && !read_given(c))
		return;
	if (!check_cards(c, card, "target.card =", at) || !check_cards(c, c->cmd.cards, "--card", (Loc){0}))
		return;
	for (int i = 0; i < c->cmd.n_targets && !is_none; i++) {
		const char *target = c->cmd.targets[i];
		const TemplateSource *of = tuning_for(c, target) ? NULL
			: tuning_file(tuning_toml, n_tuning_toml, target_by_name(target), cards);
		if (!of)
			continue;
		const char *file = arena_printf(&c->arena, "kernels/tuning/%s.toml", of->name);
		input_note(&c->diags, file, of->text, strlen(of->text));
		read_times(c, file, of->text, strlen(of->text));
	}
}

static void record(Compile *c, const char *target, const char *what, const char *value)
{
	*vec_push(&c->arena, &c->model.options.resolved) =
		(Option){arena_printf(&c->arena, "tuning.%s%s", target, what), value};
}

void record_tuning(Compile *c)
{
	for (int i = 0; i < c->cmd.n_targets; i++) {
		const char *target = c->cmd.targets[i];
		const TargetTuning *t = tuning_for(c, target);
		record(c, target, "", t ? t->sha256 : "none");
		if (t) {
			record(c, target, ".card", t->times.card);
			record(c, target, ".driver", t->times.driver);
		}
		*vec_push(&c->arena, &c->model.options.resolved) = (Option){
			arena_printf(&c->arena, "target.%s.ran_on", target), target_ran(target_by_name(target))};
	}
}

/* That a template's times are of another version of it is reported once. */
static void note_other(Compile *c, TargetTuning *tuning, const KernelTemplate *t)
{
	bool *was_told = &tuning->was_told[t - kernel_table];
	if (!*was_told)
		note_at(&c->diags, A0704, (Loc){tuning->file, 0, 0}, "times of %s were measured with another version of it and "
			"are not used", t->name);
	*was_told = true;
}

const TunedTime *tuned_time(Compile *c, const Target *target, const KernelTemplate *t, const char *defines,
	const char *tunables)
{
	TargetTuning *tuning = tuning_for(c, target->name);
	if (!tuning)
		return NULL;
	char *constants = arena_alloc(&c->scratch, strlen(defines) + 1);
	tuning_constants(defines, tunables, constants);
	const TunedTime *time = tuning_find(&tuning->times, t->name, constants, tunables);
	uint8_t key[32];
	if (!time) {
		if (tuning->has_others[t - kernel_table])
			note_other(c, tuning, t);
		return NULL;
	}
	time_key(t, target, defines, key);
	if (memcmp(time->key, key, sizeof time->key) == 0)
		return time;
	note_other(c, tuning, t);
	return NULL;
}
