/* Characters and numbers as Python's str and float know them. */
#ifndef TEXT_PYTEXT_H
#define TEXT_PYTEXT_H

#include "baltoro.h"

bool bt_py_is_space(uint32_t c);
bool bt_py_is_printable(uint32_t c);
bool bt_py_is_alpha(uint32_t c);
bool bt_py_is_decimal(uint32_t c);
uint32_t bt_py_decimal_value(uint32_t c); /* 0 to 9, of a decimal digit */
bool bt_py_is_digit(uint32_t c);
bool bt_py_is_numeric(uint32_t c);
bool bt_py_is_word(uint32_t c); /* \w of re: letters, numbers, underscore */
bool bt_py_is_upper(uint32_t c);
bool bt_py_is_lower(uint32_t c);
bool bt_py_is_title(uint32_t c);
bool bt_py_is_line_break(uint32_t c); /* of str.splitlines; "\r\n" is one break */
bool bt_py_is_case_ignorable(uint32_t c);

/* Case mappings to at most three characters; return how many. */
#define BT_PY_CASE_MAX 3
size_t bt_py_to_upper(uint32_t c, uint32_t out[BT_PY_CASE_MAX]);
size_t bt_py_to_lower(uint32_t c, uint32_t out[BT_PY_CASE_MAX]);
size_t bt_py_to_title(uint32_t c, uint32_t out[BT_PY_CASE_MAX]);
size_t bt_py_to_folded(uint32_t c, uint32_t out[BT_PY_CASE_MAX]);

#define BT_PY_FLOAT_BYTES 32
/* repr(v): the shortest digits that read back, 1e+16 from there on, 18.0, nan, inf. Needs no locale. Returns the
 * length. */
size_t bt_py_float_repr(double v, char out[BT_PY_FLOAT_BYTES]);
/* Decimal digits of |v| rounded to n_digits (1..800) significant ones: digits [n_digits], value d.ddd * 10^*exponent.
 */
void bt_py_float_digits(double v, size_t n_digits, char *digits, int *exponent);
/* digits * 10^exponent as a double, correctly rounded. n <= 800 digits. */
double bt_py_digits_value(const char *digits, size_t n, int exponent);

/* float(text) without surrounding space; false if it is no number. Accepts 1_000, .5, 5., inf, nan, +1e5. */
bool bt_py_parse_float(const char *text, size_t size, double *v);
/* int(text, base) without surrounding space, base 0 or 2..36. 1: *v; 0: no number; -1: beyond 64 bits. */
int bt_py_parse_int(const char *text, size_t size, unsigned base, int64_t *v);

#endif
