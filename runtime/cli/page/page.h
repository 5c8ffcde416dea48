/* page.h - pages of atlas audit and atlas bench: what both are made of.
 *
 * A page is one HTML file that loads and sends nothing: its Content-Security-Policy admits the one style sheet and the
 * one script that are in it, by their hashes. All content is in the HTML; the script sorts, filters and switches the
 * theme.
 * A page is well-formed XML too. Text from a plan goes through page_put alone.
 */
#ifndef ATLAS_PAGE_H
#define ATLAS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct PageText { const char *name, *text; } PageText; /* "page.css" */
extern const PageText page_text[];
extern const int n_page_text;

/* From the doctype to the header with its h1; the caller writes <main> and what is in it. title: escaped here. */
void page_open(FILE *out, const char *title);
void page_close(FILE *out, const char *footer); /* the footer's text is escaped here; the script; the end */

/* Text in an element or an attribute. What is no UTF-8 becomes U+FFFD; control characters, also those of direction and
 * those without width, become visible: nothing from a plan can end an element or turn the text around it. */
void page_put(FILE *out, const char *text);
void page_printf(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* page_put of it */
/* A name in id="" or href="#": as page_put, but spaces become _. */
void page_put_id(FILE *out, const char *text);
/* An entry of a <dl class="facts">: its name, then what the caller writes, then its end. */
void page_fact(FILE *out, const char *name);
void page_fact_end(FILE *out);
void page_hash(FILE *out, const unsigned char *hash); /* 32 bytes as <code> */
/* The bar of a share, 0 to 1, and the share in words, as cells of a table: <td>37.2 %</td> with the bar in it. */
void page_share(FILE *out, double share, bool is_bytes);
/* "209.4 kB", "35.71 GB": in the unit of 1000 that fits. */
void page_bytes(FILE *out, double bytes);

#endif
