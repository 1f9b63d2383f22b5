/*
 * Reading a model's answer as it comes: what baltoro.h calls a reply. This header is what its parts share: the grammars
 * of the families, the rule by which the text of an argument becomes a value, a JSON walker that takes byte by byte.
 */
#ifndef TEXT_OUTPUT_H
#define TEXT_OUTPUT_H

#include "text/chat_schema.h"
#include "text/messages.h"

/* ---- grammars ---------------------------------------------------------------------------------------------------- */

typedef enum bt_tag_kind {
    BT_TAG_THINK_OPEN,
    BT_TAG_THINK_CLOSE,
    BT_TAG_CALLS_OPEN, /* a block of calls */
    BT_TAG_CALLS_CLOSE,
    BT_TAG_CALL_OPEN,
    BT_TAG_CALL_CLOSE,
    BT_TAG_OBJECT_OPEN, /* the arguments, as one JSON object */
    BT_TAG_KEY_OPEN,    /* of an argument */
    BT_TAG_KEY_CLOSE,
    BT_TAG_TYPE_OPEN,
    BT_TAG_TYPE_CLOSE,
    BT_TAG_VALUE_OPEN,
    BT_TAG_VALUE_CLOSE,
    BT_TAG_MARK_OPEN, /* what tags are made of where they carry names and attributes */
    BT_TAG_MARK_CLOSE,
    BT_TAG_MARK_END,
    BT_TAG_STOP,  /* ends the turn; the model's loop stops at its id, so here it is only text that nobody reads */
    BT_TAG_OTHER, /* of the prompt; a model may say it all the same */
} bt_tag_kind;

typedef struct bt_tag {
    const char *text; /* begins with '<'; no tag of a grammar begins with another one */
    bt_tag_kind kind;
} bt_tag;

typedef struct bt_effort { /* of --reasoning-effort */
    const char *asked, *used;
    const char *options; /* JSON for bt_chat_request.options */
} bt_effort;

/* How an answer is read where not as output.c does it: its tags are marks, from which these make what is meant. */
typedef struct bt_machine {
    void (*text)(bt_reply *r, size_t at, size_t end); /* without a tag in it; r->at is `end` on entry */
    /* Sets r->at, to `end` or behind it; false: what follows decides, and is not there yet. */
    bool (*tag)(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end);
} bt_machine;

extern const bt_machine bt_k3_machine; /* k3_output.c */

/* One family's way of answering. What a reply does with reasoning, content and calls is the same for all. */
typedef struct bt_grammar {
    const char *family;       /* bt_model_family's name; NULL: any other one */
    const char *architecture; /* config.json's word for it, where model_type does not tell; NULL: none */
    const bt_tag *tags;       /* [n_tags]; without any all is content */
    size_t n_tags;
    const bt_tag *sections; /* [n_sections] tags of a prompt that open and close reasoning; NULL: they are among tags */
    size_t n_sections;
    const char *text_end;      /* the token that ends any text, beside those of BT_TAG_STOP; NULL: none */
    const bt_machine *machine; /* NULL: that of output.c */
    const bt_effort *efforts;  /* [n_efforts]; the efforts that it has, under the names that people use */
    size_t n_efforts;
    bool has_reasoning; /* its history wants reasoning in every assistant message */
    bool takes_text;    /* arguments that are no JSON have a place in its history */
    bool drops_text;    /* its native renderer leaves out reasoning, at times */
    bool numbers_calls; /* a call's name is "functions.NAME:INDEX" */
    bool wants_tokens;  /* a tokenizer that lacks a tag which `native` writes is not the model's */
    /* Writes a conversation where there is no template; NULL: nobody here can. */
    bt_status (*native)(const bt_conversation *c, bt_rendered *out, bt_error *e);
} bt_grammar;

const bt_grammar *bt_grammar_of(const char *family);     /* never NULL; borrowed for ever */
const char *bt_grammar_family(const char *architecture); /* NULL: no grammar names it */

typedef enum bt_found { BT_FOUND_NONE, BT_FOUND_PART, BT_FOUND_TAG } bt_found;
/* What text [n], which begins with '<', is: a tag and perhaps more, text, or what may still become a tag. */
bt_found bt_find_tag(const bt_grammar *g, const char *text, size_t n, bt_tag_kind *kind, size_t *tag_size);

/* ---- replies ----------------------------------------------------------------------------------------------------- */

typedef struct bt_reply_options {
    const char *tools; /* [tools_size] a JSON array; NULL: none */
    size_t tools_size;
    size_t next_call;             /* as in bt_prompt */
    bool is_reasoning, calls_off; /* as in bt_prompt */
} bt_reply_options;

bt_status bt_reply_open_with(const bt_grammar *g, const bt_reply_options *o, bt_reply **out, bt_error *e);
uint64_t bt_reply_n_steps(const bt_reply *r); /* the work done: what a growth test counts */

/* ---- values of arguments ----------------------------------------------------------------------------------------- */

typedef enum bt_value_rule {
    BT_VALUE_RAW,    /* a string as it is, white space included: it can be passed on as it comes */
    BT_VALUE_JSON,   /* any JSON, else a string */
    BT_VALUE_TYPED,  /* JSON of one of several types, else a string as it is */
    BT_VALUE_SCALAR, /* a number, true, false or null, else a string as it is */
} bt_value_rule;

/* For an argument of a tool with these parameters (NULL: unknown) whose type the model named (text NULL: it did not).
 * *types: for BT_VALUE_TYPED. */
bt_value_rule bt_value_rule_for(const bt_json_node *parameters, bt_chars key, bt_chars named, unsigned *types);
/* Appends the JSON value that the text stands for. */
void bt_value_write(bt_value_rule rule, unsigned types, bt_chars text, bt_text *out);
/* The text as the inside of a JSON string; of bytes that are no UTF-8 each becomes U+FFFD. */
void bt_value_escape(bt_text *out, const char *s, size_t n);
bt_chars bt_value_trim(bt_chars s); /* without JSON's white space around it */
bool bt_value_is_space(char c);

/* ---- JSON, byte by byte ------------------------------------------------------------------------------------------ */

typedef struct bt_walk { /* through one object; zero it */
    int state;
    unsigned depth;      /* open objects and arrays */
    uint64_t objects;    /* bit i: the one at depth i + 1 is an object */
    bool is_key;         /* the string that is open is a key */
    unsigned hex_left;   /* of \u */
    const char *literal; /* what is left of true, false, null */
} bt_walk;

typedef enum bt_walked {
    BT_WALK_FAULT,       /* this byte cannot stand here */
    BT_WALK_ON,          /* nothing to tell */
    BT_WALK_KEY_OPEN,    /* the quote that opens a key of the object itself */
    BT_WALK_KEY_CLOSE,   /* the quote that closes it */
    BT_WALK_VALUE,       /* the first byte of a member's value */
    BT_WALK_VALUE_CLOSE, /* its last one, where it is a string, an object or an array */
    BT_WALK_DONE,        /* the brace that closes the object */
} bt_walked;

bt_walked bt_walk_step(bt_walk *w, char c); /* not after DONE or FAULT */

#endif
