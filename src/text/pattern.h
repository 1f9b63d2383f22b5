/*
 * Split patterns. tokenizer.json writes them for Oniguruma (Ruby's syntax); we match with PCRE2. Most of the two
 * languages looks alike and some of it means something else, so a pattern is not handed over but parsed and written
 * anew, in the part of PCRE2's syntax that leaves no doubt. What the parser does not know it refuses.
 */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include "base/json.h"

/* Appends to *out the PCRE2 pattern (for PCRE2_UTF, without PCRE2_UCP) that matches what the Oniguruma pattern does. */
bt_status bt_pattern_translate(const char *pattern, size_t n, bt_text *out, bt_error *e);

/* Appends the PCRE2 pattern that matches this text and nothing else. */
void bt_pattern_quote(const char *text, size_t n, bt_text *out);

#endif
