/* structured.h - --json-schema and --regex: answers that have a structure. */
#ifndef ATLAS_STRUCTURED_H
#define ATLAS_STRUCTURED_H

#include "runtime/cli/cli.h"
#include "runtime/serve/guide.h"

typedef struct Structured { /* zeroed: answers are free */
	Grammar *grammar;
	GrammarVocab *vocab;
} Structured;

/* By the options: 0, or the exit code after a message. structured_close in any case. */
int structured_open(const Args *args, const AtlasPlan *plan, Structured *s);
void structured_close(Structured *s);
/* Of an answer; *guide stays NULL where answers are free. False: no memory. */
bool structured_guide(const Structured *s, const AtlasPlanInfo *plan, Guide **guide);
/* AtlasMasksFn; ctx: where the answer's Guide * is. */
int structured_masks_after(void *ctx, int slot, const int32_t *drafts, int n, uint32_t *words);
/* Gives the sequence in the slot the mask of its next token. */
AtlasStatus structured_mask(AtlasSession *session, int slot, Guide *guide);

#endif
