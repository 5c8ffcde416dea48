/* page.h - pages of atlas audit, atlas bench and atlas serve: what all are made of.
 *
 * A page is one HTML file that loads nothing: its Content-Security-Policy admits the style sheets and scripts that are
 * in it, by their hashes. All content of an audit and of a bench is in the HTML; the script sorts, filters and switches
 * the theme. The page of a server asks that server alone.
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

/* From the doctype to the header with its h1; the caller writes <main> and what is in it. title: escaped here.
 * more: "serve": with serve.css and serve.js, which may ask the page's own server; NULL = none. */
void page_open(FILE *out, const char *title, const char *more);
/* The footer, whose text is escaped here; the scripts; the end. */
void page_close(FILE *out, const char *footer, const char *more);
const char *page_text_of(const char *name); /* of an embedded file, such as "serve.html"; "" = there is none */

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
