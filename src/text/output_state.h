/* The state of a reply, between output.c (the answer) and output_call.c (the inside of a call). */
#ifndef TEXT_OUTPUT_STATE_H
#define TEXT_OUTPUT_STATE_H

#include "text/output.h"

typedef enum bt_reply_state {
    BT_REPLY_STARTS,  /* nothing but white space yet */
    BT_REPLY_REASONS, /* in reasoning */
    BT_REPLY_HOLDS,   /* in reasoning, behind a tag that opens a block of calls */
    BT_REPLY_ANSWERS, /* in content */
    BT_REPLY_OUTSIDE, /* between sections, where content is one */
    BT_REPLY_BETWEEN, /* in a block of calls, outside of one */
    BT_REPLY_ENDED,   /* behind the message */
    BT_REPLY_BODY,    /* in a call, before its first character; this and all below: in a call */
    BT_REPLY_NAME,
    BT_REPLY_KEY, /* in the key of an argument */
    BT_REPLY_KEY_DONE,
    BT_REPLY_TYPE,
    BT_REPLY_TYPE_DONE,
    BT_REPLY_VALUE,
    BT_REPLY_VALUE_DONE, /* or the name is */
    BT_REPLY_JSON,       /* of name and arguments */
    BT_REPLY_JSON_DONE,
    BT_REPLY_OBJECT, /* of arguments alone */
    BT_REPLY_SKIPS,  /* in a call that is lost, up to its end */
} bt_reply_state;

typedef struct bt_reply_call {
    size_t name_at, name_size; /* in made */
    size_t arguments_at, arguments_size;
    bool is_done;
} bt_reply_call;

typedef struct bt_pending { /* an event whose text may still move */
    bt_reply_event event;
    bool is_made; /* its text lies in made, not in output */
    size_t at;
} bt_pending;

typedef enum bt_json_part { BT_PART_OTHER, BT_PART_NAME, BT_PART_ARGUMENTS } bt_json_part;

typedef struct bt_key_slot { /* of the keys that the open call has given */
    size_t call_n;           /* counted from 1; another call's: empty */
    size_t at, size;         /* in output or made, with the tags' white space off */
} bt_key_slot;

struct bt_reply {
    const bt_grammar *grammar;
    bt_arena *arena; /* of tools */
    const bt_json_node *tools;
    size_t next_call;
    bool starts_reasoning, calls_off;

    bt_text output; /* all of it */
    size_t at;      /* read up to here */
    size_t given;   /* events cover everything before */
    bt_reply_state state;
    size_t held_at;     /* HOLDS: where the block begins */
    size_t quoted_end;  /* blocks that open before this are quoted in reasoning */
    bool is_junk;       /* BETWEEN: text has begun */
    size_t content_end; /* where the last content ended */
    size_t tail;        /* bytes of content before a dropped tag that text behind it may make a tag */
    bool is_unanswered; /* the message ended in its reasoning */
    bool is_finished, failed;
    uint64_t n_steps; /* bytes read, each time they are; a '<' counts for the longest tag */
    const char *finish_reason;

    bt_text reasoning, content, made; /* made: names and arguments of calls, one behind the other */
    bt_reply_call *calls;             /* [n_calls] begun */
    size_t n_calls, calls_capacity, n_done;
    bt_pending *events; /* [n_events] of this push */
    size_t n_events, events_capacity;
    bt_reply_event *given_events;
    size_t given_capacity;

    /* A tag that is being read, where tags carry attributes (k3_output.c). */
    size_t tag_begin, tag_at; /* read up to tag_at; 0: none */
    size_t tag_part_at;       /* where the part of it begins that is being read */
    int tag_part;

    /* The open call. */
    bool is_begun;                               /* its name was told */
    size_t body_at;                              /* behind its opening tag */
    const bt_json_node *parameters;              /* of its tool; NULL: unknown */
    size_t part_at;                              /* where the name, key, type or value begins */
    size_t key_at, key_size, type_at, type_size; /* in output */
    bool has_type, has_arguments;
    bt_value_rule rule;
    unsigned types;
    bt_text argument;  /* scratch */
    bt_key_slot *keys; /* [n_slots, a power of two] */
    size_t n_slots, n_keys, keys_call;

    /* And if its body is JSON. */
    bt_walk walk;
    bool is_object_open, is_object_done; /* of arguments alone */
    bt_json_part part;
    size_t member_at;           /* where the key of the member begins */
    size_t value_at, value_end; /* of the arguments; value_end 0: they are not complete */
    size_t name_at;             /* of the name's string */
    bool has_name, is_passing;  /* passing: arguments go out as they come */
    size_t passed_at;           /* and did up to here */
};

/* output.c. Events from `given` up to `end`. */
void bt_reply_tell_raw(bt_reply *r, size_t end);
void bt_reply_tell_text(bt_reply *r, bt_reply_kind kind, size_t end);
/* Content. Where a tag was dropped, the text before it and the text behind it meet, and could make a tag together: the
 * byte that would complete it is dropped as well. */
void bt_reply_tell_content(bt_reply *r, size_t end);
void bt_reply_tell_start(bt_reply *r, size_t end); /* white space at the start, which turns out to be text */
/* Text where none belongs, between calls or sections: white space is nobody's; from the first other character to the
 * next tag it is content that has gone astray. */
void bt_reply_stray_text(bt_reply *r, size_t at, size_t end);
size_t bt_reply_skip_space(const bt_reply *r, size_t at, size_t end); /* the first byte from `at` on that is none */
void bt_reply_begin_call(bt_reply *r, bt_chars name);
void bt_reply_tell_arguments(bt_reply *r, size_t at); /* what was just appended to them in r->made, from `at` on */
void bt_reply_finish_call(bt_reply *r, size_t end);   /* it ends at `end` for good */
/* The call is none: what begins at `at` cannot stand there. If its name was told it ends incomplete; else all of it but
 * its tag is text, and is read again as that. */
void bt_reply_break_call(bt_reply *r, size_t at);

/* output_object.c: arguments that come as one JSON object, passed on as they come. */
void bt_reply_open_object(bt_reply *r);
bool bt_reply_object_text(bt_reply *r, size_t at, size_t end); /* false: it is none */
bool bt_reply_close_object(bt_reply *r);                       /* false: it is not complete; none at all is {} */
bool bt_reply_is_object(bt_reply *r, bt_chars text);           /* of JSON, to the parser that sees everything */

/* output_call.c. false: the open call has this key, `size` bytes at `at` of `in`, already, or no memory. All keys of a
 * call lie in the same text. */
bool bt_reply_add_key(bt_reply *r, const bt_text *in, size_t at, size_t size);
void bt_reply_close_arguments(bt_reply *r);
/* Text [at, end) inside a call; r->at is `end` on entry. A tag: true if it completes the call. */
void bt_reply_open_body(bt_reply *r, size_t at);
void bt_reply_body_text(bt_reply *r, size_t at, size_t end);
bool bt_reply_body_tag(bt_reply *r, bt_tag_kind kind, size_t begin, size_t end);

#endif
