/*
 * What Python's str methods and float know about characters and numbers. General categories and simple case mappings
 * come from utf8proc; the tables below hold what it does not tell: mappings to several characters, and the few ranges
 * that str.isdigit, isnumeric, islower and isupper have beyond the general categories. They are facts of Unicode 14,
 * derived from the Unicode Character Database by comparison.
 *
 * Numbers never pass through the locale: digits are read off "%e" whatever its radix character is, and strtod is only
 * given integers with an exponent.
 */
#include "text/pytext.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#define DIGITS_MAX ((size_t)800) /* a double has no more than 767 significant decimal digits */

/* ---- tables ------------------------------------------------------------------------------------------------------ */

typedef struct case_entry {
    uint32_t from, to[BT_PY_CASE_MAX]; /* unused: 0 */
} case_entry;

typedef struct range {
    uint32_t first, last;
} range;

static const case_entry upper_table[] = {
    {0xdf, {0x53, 0x53, 0}},         {0x149, {0x2bc, 0x4e, 0}},       {0x1f0, {0x4a, 0x30c, 0}},
    {0x390, {0x399, 0x308, 0x301}},  {0x3b0, {0x3a5, 0x308, 0x301}},  {0x587, {0x535, 0x552, 0}},
    {0x1e96, {0x48, 0x331, 0}},      {0x1e97, {0x54, 0x308, 0}},      {0x1e98, {0x57, 0x30a, 0}},
    {0x1e99, {0x59, 0x30a, 0}},      {0x1e9a, {0x41, 0x2be, 0}},      {0x1f50, {0x3a5, 0x313, 0}},
    {0x1f52, {0x3a5, 0x313, 0x300}}, {0x1f54, {0x3a5, 0x313, 0x301}}, {0x1f56, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399, 0}},    {0x1f81, {0x1f09, 0x399, 0}},    {0x1f82, {0x1f0a, 0x399, 0}},
    {0x1f83, {0x1f0b, 0x399, 0}},    {0x1f84, {0x1f0c, 0x399, 0}},    {0x1f85, {0x1f0d, 0x399, 0}},
    {0x1f86, {0x1f0e, 0x399, 0}},    {0x1f87, {0x1f0f, 0x399, 0}},    {0x1f88, {0x1f08, 0x399, 0}},
    {0x1f89, {0x1f09, 0x399, 0}},    {0x1f8a, {0x1f0a, 0x399, 0}},    {0x1f8b, {0x1f0b, 0x399, 0}},
    {0x1f8c, {0x1f0c, 0x399, 0}},    {0x1f8d, {0x1f0d, 0x399, 0}},    {0x1f8e, {0x1f0e, 0x399, 0}},
    {0x1f8f, {0x1f0f, 0x399, 0}},    {0x1f90, {0x1f28, 0x399, 0}},    {0x1f91, {0x1f29, 0x399, 0}},
    {0x1f92, {0x1f2a, 0x399, 0}},    {0x1f93, {0x1f2b, 0x399, 0}},    {0x1f94, {0x1f2c, 0x399, 0}},
    {0x1f95, {0x1f2d, 0x399, 0}},    {0x1f96, {0x1f2e, 0x399, 0}},    {0x1f97, {0x1f2f, 0x399, 0}},
    {0x1f98, {0x1f28, 0x399, 0}},    {0x1f99, {0x1f29, 0x399, 0}},    {0x1f9a, {0x1f2a, 0x399, 0}},
    {0x1f9b, {0x1f2b, 0x399, 0}},    {0x1f9c, {0x1f2c, 0x399, 0}},    {0x1f9d, {0x1f2d, 0x399, 0}},
    {0x1f9e, {0x1f2e, 0x399, 0}},    {0x1f9f, {0x1f2f, 0x399, 0}},    {0x1fa0, {0x1f68, 0x399, 0}},
    {0x1fa1, {0x1f69, 0x399, 0}},    {0x1fa2, {0x1f6a, 0x399, 0}},    {0x1fa3, {0x1f6b, 0x399, 0}},
    {0x1fa4, {0x1f6c, 0x399, 0}},    {0x1fa5, {0x1f6d, 0x399, 0}},    {0x1fa6, {0x1f6e, 0x399, 0}},
    {0x1fa7, {0x1f6f, 0x399, 0}},    {0x1fa8, {0x1f68, 0x399, 0}},    {0x1fa9, {0x1f69, 0x399, 0}},
    {0x1faa, {0x1f6a, 0x399, 0}},    {0x1fab, {0x1f6b, 0x399, 0}},    {0x1fac, {0x1f6c, 0x399, 0}},
    {0x1fad, {0x1f6d, 0x399, 0}},    {0x1fae, {0x1f6e, 0x399, 0}},    {0x1faf, {0x1f6f, 0x399, 0}},
    {0x1fb2, {0x1fba, 0x399, 0}},    {0x1fb3, {0x391, 0x399, 0}},     {0x1fb4, {0x386, 0x399, 0}},
    {0x1fb6, {0x391, 0x342, 0}},     {0x1fb7, {0x391, 0x342, 0x399}}, {0x1fbc, {0x391, 0x399, 0}},
    {0x1fc2, {0x1fca, 0x399, 0}},    {0x1fc3, {0x397, 0x399, 0}},     {0x1fc4, {0x389, 0x399, 0}},
    {0x1fc6, {0x397, 0x342, 0}},     {0x1fc7, {0x397, 0x342, 0x399}}, {0x1fcc, {0x397, 0x399, 0}},
    {0x1fd2, {0x399, 0x308, 0x300}}, {0x1fd3, {0x399, 0x308, 0x301}}, {0x1fd6, {0x399, 0x342, 0}},
    {0x1fd7, {0x399, 0x308, 0x342}}, {0x1fe2, {0x3a5, 0x308, 0x300}}, {0x1fe3, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313, 0}},     {0x1fe6, {0x3a5, 0x342, 0}},     {0x1fe7, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399, 0}},    {0x1ff3, {0x3a9, 0x399, 0}},     {0x1ff4, {0x38f, 0x399, 0}},
    {0x1ff6, {0x3a9, 0x342, 0}},     {0x1ff7, {0x3a9, 0x342, 0x399}}, {0x1ffc, {0x3a9, 0x399, 0}},
    {0xfb00, {0x46, 0x46, 0}},       {0xfb01, {0x46, 0x49, 0}},       {0xfb02, {0x46, 0x4c, 0}},
    {0xfb03, {0x46, 0x46, 0x49}},    {0xfb04, {0x46, 0x46, 0x4c}},    {0xfb05, {0x53, 0x54, 0}},
    {0xfb06, {0x53, 0x54, 0}},       {0xfb13, {0x544, 0x546, 0}},     {0xfb14, {0x544, 0x535, 0}},
    {0xfb15, {0x544, 0x53b, 0}},     {0xfb16, {0x54e, 0x546, 0}},     {0xfb17, {0x544, 0x53d, 0}},
};

static const case_entry lower_table[] = {
    {0x130, {0x69, 0x307, 0}},
};

static const case_entry title_table[] = {
    {0xdf, {0x53, 0x73, 0}},         {0x149, {0x2bc, 0x4e, 0}},       {0x1f0, {0x4a, 0x30c, 0}},
    {0x390, {0x399, 0x308, 0x301}},  {0x3b0, {0x3a5, 0x308, 0x301}},  {0x587, {0x535, 0x582, 0}},
    {0x1e96, {0x48, 0x331, 0}},      {0x1e97, {0x54, 0x308, 0}},      {0x1e98, {0x57, 0x30a, 0}},
    {0x1e99, {0x59, 0x30a, 0}},      {0x1e9a, {0x41, 0x2be, 0}},      {0x1f50, {0x3a5, 0x313, 0}},
    {0x1f52, {0x3a5, 0x313, 0x300}}, {0x1f54, {0x3a5, 0x313, 0x301}}, {0x1f56, {0x3a5, 0x313, 0x342}},
    {0x1fb2, {0x1fba, 0x345, 0}},    {0x1fb4, {0x386, 0x345, 0}},     {0x1fb6, {0x391, 0x342, 0}},
    {0x1fb7, {0x391, 0x342, 0x345}}, {0x1fc2, {0x1fca, 0x345, 0}},    {0x1fc4, {0x389, 0x345, 0}},
    {0x1fc6, {0x397, 0x342, 0}},     {0x1fc7, {0x397, 0x342, 0x345}}, {0x1fd2, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}}, {0x1fd6, {0x399, 0x342, 0}},     {0x1fd7, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}}, {0x1fe3, {0x3a5, 0x308, 0x301}}, {0x1fe4, {0x3a1, 0x313, 0}},
    {0x1fe6, {0x3a5, 0x342, 0}},     {0x1fe7, {0x3a5, 0x308, 0x342}}, {0x1ff2, {0x1ffa, 0x345, 0}},
    {0x1ff4, {0x38f, 0x345, 0}},     {0x1ff6, {0x3a9, 0x342, 0}},     {0x1ff7, {0x3a9, 0x342, 0x345}},
    {0xfb00, {0x46, 0x66, 0}},       {0xfb01, {0x46, 0x69, 0}},       {0xfb02, {0x46, 0x6c, 0}},
    {0xfb03, {0x46, 0x66, 0x69}},    {0xfb04, {0x46, 0x66, 0x6c}},    {0xfb05, {0x53, 0x74, 0}},
    {0xfb06, {0x53, 0x74, 0}},       {0xfb13, {0x544, 0x576, 0}},     {0xfb14, {0x544, 0x565, 0}},
    {0xfb15, {0x544, 0x56b, 0}},     {0xfb16, {0x54e, 0x576, 0}},     {0xfb17, {0x544, 0x56d, 0}},
};

static const range lower_beyond_ll[] = {
    {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},     {0x345, 0x345},
    {0x37a, 0x37a},   {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
    {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};

static const range upper_beyond_lu[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};

static const range digit_beyond_nd[] = {
    {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
    {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

static const range numeric_beyond_n[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382a, 0x382a},   {0x3b4d, 0x3b4d},   {0x4e00, 0x4e00},
    {0x4e03, 0x4e03},   {0x4e07, 0x4e07},   {0x4e09, 0x4e09},   {0x4e5d, 0x4e5d},   {0x4e8c, 0x4e8c},
    {0x4e94, 0x4e94},   {0x4e96, 0x4e96},   {0x4ebf, 0x4ec0},   {0x4edf, 0x4edf},   {0x4ee8, 0x4ee8},
    {0x4f0d, 0x4f0d},   {0x4f70, 0x4f70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516b, 0x516b},   {0x516d, 0x516d},   {0x5341, 0x5341},   {0x5343, 0x5345},   {0x534c, 0x534c},
    {0x53c1, 0x53c4},   {0x56db, 0x56db},   {0x58f1, 0x58f1},   {0x58f9, 0x58f9},   {0x5e7a, 0x5e7a},
    {0x5efe, 0x5eff},   {0x5f0c, 0x5f0e},   {0x5f10, 0x5f10},   {0x62fe, 0x62fe},   {0x634c, 0x634c},
    {0x67d2, 0x67d2},   {0x6f06, 0x6f06},   {0x7396, 0x7396},   {0x767e, 0x767e},   {0x8086, 0x8086},
    {0x842c, 0x842c},   {0x8cae, 0x8cae},   {0x8cb3, 0x8cb3},   {0x8d30, 0x8d30},   {0x9621, 0x9621},
    {0x9646, 0x9646},   {0x964c, 0x964c},   {0x9678, 0x9678},   {0x96f6, 0x96f6},   {0xf96b, 0xf96b},
    {0xf973, 0xf973},   {0xf978, 0xf978},   {0xf9b2, 0xf9b2},   {0xf9d1, 0xf9d1},   {0xf9d3, 0xf9d3},
    {0xf9fd, 0xf9fd},   {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121},
    {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c}, {0x20aea, 0x20aea},
    {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23b1b, 0x23b1b},
    {0x2626d, 0x2626d}, {0x2f890, 0x2f890},
};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool in_ranges(const range *ranges, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n && ranges[i].first <= c; i++) {
        if (c <= ranges[i].last) return true;
    }
    return false;
}

static size_t map_case(const case_entry *table, size_t n, uint32_t c, utf8proc_int32_t simple,
                       uint32_t out[BT_PY_CASE_MAX])
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle].from < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == n || table[low].from != c) {
        out[0] = (uint32_t)simple;
        return 1;
    }
    size_t size = 0;
    while (size < BT_PY_CASE_MAX && table[low].to[size] != 0) {
        out[size] = table[low].to[size];
        size++;
    }
    return size;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool bt_py_is_space(uint32_t c)
{
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool bt_py_is_printable(uint32_t c)
{
    if (c < 0x7f) return c >= 0x20;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool bt_py_is_alpha(uint32_t c)
{
    if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool bt_py_is_decimal(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND;
}

/* Unicode lays the digits of a script out in order, and sets of ten side by side only where the first begins with 0. */
uint32_t bt_py_decimal_value(uint32_t c)
{
    assert(bt_py_is_decimal(c));
    uint32_t first = c;
    while (first > 0 && bt_py_is_decimal(first - 1)) first--;
    return (c - first) % 10;
}

bool bt_py_is_digit(uint32_t c)
{
    return bt_py_is_decimal(c) || in_ranges(digit_beyond_nd, COUNT(digit_beyond_nd), c);
}

bool bt_py_is_numeric(uint32_t c)
{
    if (c < 0x80) return bt_py_is_decimal(c);
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO) return true;
    return in_ranges(numeric_beyond_n, COUNT(numeric_beyond_n), c);
}

bool bt_py_is_word(uint32_t c)
{
    return c == '_' || bt_py_is_alpha(c) || bt_py_is_numeric(c);
}

bool bt_py_is_upper(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(upper_beyond_lu, COUNT(upper_beyond_lu), c);
}

bool bt_py_is_lower(uint32_t c)
{
    if (c < 0x80) return c >= 'a' && c <= 'z';
    return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(lower_beyond_ll, COUNT(lower_beyond_ll), c);
}

bool bt_py_is_title(uint32_t c)
{
    return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT;
}

bool bt_py_is_line_break(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool bt_py_is_case_ignorable(uint32_t c)
{
    if (c < 0x80) return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`';
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return c == 0xb7 || c == 0x387 || c == 0x55f || c == 0x5f4 || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
               c == 0x2027 || c == 0xfe13 || c == 0xfe52 || c == 0xfe55 || c == 0xff07 || c == 0xff0e || c == 0xff1a;
    }
}

size_t bt_py_to_upper(uint32_t c, uint32_t out[BT_PY_CASE_MAX])
{
    out[0] = c - ('a' - 'A') * (uint32_t)(c >= 'a' && c <= 'z');
    if (c < 0x80) return 1;
    return map_case(upper_table, COUNT(upper_table), c, utf8proc_toupper((utf8proc_int32_t)c), out);
}

size_t bt_py_to_lower(uint32_t c, uint32_t out[BT_PY_CASE_MAX])
{
    out[0] = c + ('a' - 'A') * (uint32_t)(c >= 'A' && c <= 'Z');
    if (c < 0x80) return 1;
    return map_case(lower_table, COUNT(lower_table), c, utf8proc_tolower((utf8proc_int32_t)c), out);
}

size_t bt_py_to_title(uint32_t c, uint32_t out[BT_PY_CASE_MAX])
{
    if (c < 0x80) return bt_py_to_upper(c, out);
    return map_case(title_table, COUNT(title_table), c, utf8proc_totitle((utf8proc_int32_t)c), out);
}

size_t bt_py_to_folded(uint32_t c, uint32_t out[BT_PY_CASE_MAX])
{
    if (c < 0x80) return bt_py_to_lower(c, out);
    utf8proc_int32_t folded[BT_PY_CASE_MAX];
    int last_class = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, folded, BT_PY_CASE_MAX, UTF8PROC_CASEFOLD, &last_class);
    if (n < 1 || n > BT_PY_CASE_MAX) return bt_py_to_lower(c, out);
    for (utf8proc_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)folded[i];
    return (size_t)n;
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

void bt_py_float_digits(double v, size_t n_digits, char *digits, int *exponent)
{
    char text[DIGITS_MAX + 32];
    assert(n_digits >= 1);
    assert(n_digits <= DIGITS_MAX);
    (void)snprintf(text, sizeof text, "%.*e", (int)n_digits - 1, fabs(v));
    size_t n = 0;
    const char *p = text;
    for (; *p != 'e'; p++) { /* the radix character may be anything but a digit */
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    }
    assert(n == n_digits);
    *exponent = (int)strtol(p + 1, NULL, 10);
}

double bt_py_digits_value(const char *digits, size_t n, int exponent)
{
    char text[DIGITS_MAX + 32];
    assert(n >= 1);
    assert(n <= DIGITS_MAX);
    memcpy(text, digits, n);
    (void)snprintf(text + n, sizeof text - n, "e%d", exponent);
    return strtod(text, NULL);
}

static bool reads_back(double v, const char *digits, size_t n, int exponent)
{
    return bt_py_digits_value(digits, n, exponent - (int)n + 1) == v;
}

/* Sixteen digits that are nearest to v may miss it where its neighbours are spaced unevenly, at powers of two: then one
 * more or less in the last place may still read back. */
static bool nudge(double v, char *digits, size_t n, int exponent)
{
    char last = digits[n - 1];
    for (int step = -1; step <= 1; step += 2) {
        if ((last == '0' && step < 0) || (last == '9' && step > 0)) continue;
        digits[n - 1] = (char)(last + step);
        if (reads_back(v, digits, n, exponent)) return true;
    }
    digits[n - 1] = last;
    return false;
}

/* The fewest digits that read back as v > 0, without trailing zeros. */
static size_t shortest_digits(double v, char digits[17], int *exponent)
{
    size_t n = v < 2.3e-308 ? 1 : 15; /* 15 digits survive a double, but not a subnormal one */
    for (; n <= 17; n++) {
        bt_py_float_digits(v, n, digits, exponent);
        if (reads_back(v, digits, n, *exponent) || (n == 16 && nudge(v, digits, n, *exponent))) break;
    }
    if (n > 17) n = 17;
    while (n > 1 && digits[n - 1] == '0') n--;
    return n;
}

size_t bt_py_float_repr(double v, char out[BT_PY_FLOAT_BYTES])
{
    if (isnan(v)) return (size_t)snprintf(out, BT_PY_FLOAT_BYTES, "nan");
    const char *sign = signbit(v) ? "-" : "";
    if (isinf(v)) return (size_t)snprintf(out, BT_PY_FLOAT_BYTES, "%sinf", sign);
    if (v == 0) return (size_t)snprintf(out, BT_PY_FLOAT_BYTES, "%s0.0", sign);
    char digits[17];
    int exponent;
    size_t n = shortest_digits(fabs(v), digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        int used =
            snprintf(out, BT_PY_FLOAT_BYTES, "%s%c%s%.*s", sign, digits[0], n > 1 ? "." : "", (int)n - 1, digits + 1);
        return (size_t)used + (size_t)snprintf(out + used, BT_PY_FLOAT_BYTES - (size_t)used, "e%c%02d",
                                               exponent < 0 ? '-' : '+', abs(exponent));
    }
    size_t size = 0;
    if (sign[0] != '\0') out[size++] = '-';
    if (exponent < 0) {
        out[size++] = '0';
        out[size++] = '.';
        for (int i = -1; i > exponent; i--) out[size++] = '0';
        memcpy(out + size, digits, n);
        size += n;
    } else {
        for (int i = 0; i <= exponent || (size_t)i < n; i++) {
            if (i == exponent + 1) out[size++] = '.';
            out[size++] = (size_t)i < n ? digits[i] : '0';
        }
        if (n <= (size_t)exponent + 1) {
            out[size++] = '.';
            out[size++] = '0';
        }
    }
    assert(size < BT_PY_FLOAT_BYTES);
    out[size] = '\0';
    return size;
}

/* ---- reading numbers --------------------------------------------------------------------------------------------- */

typedef struct number_reader {
    const char *at, *end;
    char digits[DIGITS_MAX];
    size_t n;   /* digits kept, without leading zeros */
    long scale; /* the value is digits * 10^scale */
} number_reader;

/* Digits with single underscores between them, before or after the point. Returns how many there were, SIZE_MAX if an
 * underscore is out of place. Beyond DIGITS_MAX only the fact that something other than zero follows matters: it
 * makes the last digit odd, which no tie survives. */
static size_t read_digits(number_reader *r, bool fraction)
{
    size_t count = 0;
    bool after_underscore = false;
    for (; r->at < r->end; r->at++) {
        char c = *r->at;
        if (c == '_') {
            if (count == 0 || after_underscore) return SIZE_MAX;
            after_underscore = true;
            continue;
        }
        if (c < '0' || c > '9') break;
        after_underscore = false;
        count++;
        bool leading_zero = r->n == 0 && c == '0', kept = !leading_zero && r->n < DIGITS_MAX;
        if (kept) r->digits[r->n++] = c;
        if (!kept && !leading_zero && c != '0') r->digits[r->n - 1] = (char)(r->digits[r->n - 1] | 1);
        if (fraction && (kept || leading_zero)) r->scale--;
        if (!fraction && !kept && !leading_zero) r->scale++;
    }
    return after_underscore ? SIZE_MAX : count;
}

/* "e+12" and nothing after it; false if it is malformed. Huge exponents are cut: they mean 0 or infinity all the
 * same. */
static bool read_exponent(number_reader *r)
{
    if (r->at == r->end) return true;
    if ((*r->at | 0x20) != 'e') return false;
    r->at++;
    bool negative = r->at < r->end && *r->at == '-';
    if (r->at < r->end && (*r->at == '-' || *r->at == '+')) r->at++;
    long exponent = 0;
    bool after_digit = false;
    for (; r->at < r->end; r->at++) {
        if (*r->at == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        if (*r->at < '0' || *r->at > '9') return false;
        after_digit = true;
        if (exponent < 1000000) exponent = exponent * 10 + (*r->at - '0');
    }
    r->scale += negative ? -exponent : exponent;
    return after_digit;
}

static bool word_is(const char *text, size_t size, const char *word)
{
    if (strlen(word) != size) return false;
    for (size_t i = 0; i < size; i++) {
        if ((text[i] | 0x20) != word[i]) return false;
    }
    return true;
}

/* "inf", "infinity", "nan" in any case. */
static bool read_word(const char *text, size_t size, double *v)
{
    bool infinite = word_is(text, size, "inf") || word_is(text, size, "infinity");
    *v = infinite ? (double)INFINITY : (double)NAN;
    return infinite || word_is(text, size, "nan");
}

static bool read_decimal(const char *text, size_t size, double *v)
{
    number_reader r = {.at = text, .end = text + size};
    size_t whole = read_digits(&r, false), fraction = 0;
    if (whole == SIZE_MAX) return false;
    if (r.at < r.end && *r.at == '.') {
        r.at++;
        fraction = read_digits(&r, true);
        if (fraction == SIZE_MAX) return false;
    }
    if (whole + fraction == 0 || !read_exponent(&r)) return false;
    if (r.scale > 2000000) r.scale = 2000000;
    if (r.scale < -2000000) r.scale = -2000000;
    *v = r.n == 0 ? 0.0 : bt_py_digits_value(r.digits, r.n, (int)r.scale);
    return true;
}

bool bt_py_parse_float(const char *text, size_t size, double *v)
{
    bool sign = size > 0 && (text[0] == '-' || text[0] == '+');
    double value;
    if (!read_word(text + sign, size - sign, &value) && !read_decimal(text + sign, size - sign, &value)) return false;
    *v = sign && text[0] == '-' ? -value : value;
    return true;
}

static unsigned digit_value(char c)
{
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return (unsigned)((c | 0x20) - 'a') + 10;
    return 99;
}

/* "0x", "0o", "0b" if the base asks for or allows it; base 0 is decided here. False: no such number. */
static bool skip_prefix(const char **text, size_t *size, unsigned *base)
{
    char letter = *size >= 2 && (*text)[0] == '0' ? (char)((*text)[1] | 0x20) : '\0';
    unsigned prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed != 0 && (*base == 0 || *base == prefixed)) {
        *base = prefixed;
        *text += 2;
        *size -= 2;
        if (*size > 0 && (*text)[0] == '_') { /* "0x_f" */
            (*text)++;
            (*size)--;
        }
    } else if (*base == 0) {
        *base = 10;
        if (*size > 1 && (*text)[0] == '0') { /* "007" is no number, "000" is */
            for (size_t i = 0; i < *size; i++) {
                if ((*text)[i] != '0' && (*text)[i] != '_') return false;
            }
        }
    }
    return true;
}

int bt_py_parse_int(const char *text, size_t size, unsigned base, int64_t *v)
{
    assert(base == 0 || (base >= 2 && base <= 36));
    bool sign = size > 0 && (text[0] == '-' || text[0] == '+'), negative = sign && text[0] == '-';
    text += sign;
    size -= sign;
    if (!skip_prefix(&text, &size, &base)) return 0;
    uint64_t value = 0, max = (uint64_t)INT64_MAX + negative;
    bool after_digit = false, over = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        unsigned digit = digit_value(text[i]);
        if (digit >= base) return 0;
        after_digit = true;
        over = over || value > (max - digit) / base;
        if (!over) value = value * base + digit;
    }
    if (!after_digit) return 0;
    if (over) return -1;
    *v = negative && value > 0 ? -(int64_t)(value - 1) - 1 : (int64_t)value;
    return 1;
}
