/*
 * Conversations: OpenAI's form of messages, tools and options (JSON text) checked and brought into one form, which
 * native renderers read as structs and templates as JSON text.
 *
 * What is done to them: "developer" becomes system, "function" becomes tool, function_call becomes a call; content
 * parts become one text, joined by newlines, and stay at hand one by one; a tool's content that is an object becomes
 * its JSON text; arguments given as a string are parsed ("" is {}), and kept as text where that fails and the format
 * can say so; reasoning is found under each of its names. Whatever cannot be meant is refused by the path of the value:
 * an unknown role, a part that is no text, a second spelling that says something else.
 */
#ifndef TEXT_MESSAGES_H
#define TEXT_MESSAGES_H

#include "text/chat_text.h"

typedef enum bt_role { BT_ROLE_SYSTEM, BT_ROLE_USER, BT_ROLE_ASSISTANT, BT_ROLE_TOOL } bt_role;

typedef struct bt_message_call {
    bt_chars id; /* none: text NULL */
    bt_chars name;
    const bt_json_node *arguments; /* an object */
    bt_chars text;                 /* the arguments as they came, where that was a string; else text NULL */
    const char *fault;             /* why that string is no object, which `arguments` then is all the same, empty */
} bt_message_call;

typedef struct bt_message {
    bt_role role;
    bt_chars content;      /* of null: text NULL */
    const bt_chars *parts; /* [n_parts] the content, where it came in parts; else NULL */
    size_t n_parts;
    bool is_content_null;         /* said so, in a tool's message: null is a result */
    bt_chars reasoning;           /* none: text NULL */
    const char *reasoning_key;    /* the name it was found under; NULL: none */
    const bt_message_call *calls; /* [n_calls] */
    size_t n_calls;
    const bt_json_node *tools; /* an array, of a system message; NULL: none */
    const bt_json_node *given; /* the message as it came */
} bt_message;

typedef enum bt_tool_choice { BT_TOOLS_AUTO, BT_TOOLS_NONE, BT_TOOLS_REQUIRED, BT_TOOLS_NAMED } bt_tool_choice;

typedef struct bt_conversation { /* free with bt_conversation_free */
    bt_arena *arena;
    bt_message *messages; /* [n_messages] */
    size_t n_messages;
    const bt_json_node *tools; /* a non-empty array of objects; NULL: none */
    bt_tool_choice choice;
    const bt_json_node *tool_choice, *response_format; /* as given; NULL: not */
    bool add_generation_prompt;
    const bt_json_node **options; /* [n_options] of the template, each with its key */
    size_t n_options;
} bt_conversation;

/* From the texts of a request (baltoro.h). The second one takes arguments that are text of any kind. */
bt_status bt_conversation_parse(const bt_chat_request *request, bt_conversation *out, bt_error *e);
bt_status bt_conversation_parse_loosely(const bt_chat_request *request, bt_conversation *out, bt_error *e);
/* Puts the name of the messages' file before an error found in the conversation later. Returns st. */
bt_status bt_request_name(const bt_chat_request *request, bt_status st, bt_error *e);
void bt_conversation_free(bt_conversation *c);                                          /* an all-zero one is fine */
const bt_json_node *bt_conversation_option(const bt_conversation *c, const char *name); /* NULL: not given */

/* The variables of a template: messages, tools, documents, add_generation_prompt, options, in this order; to be closed
 * by the caller ("}"). Every assistant message gets reasoning_content where `with_reasoning`, else only where it has
 * some. */
void bt_conversation_write(const bt_conversation *c, bool with_reasoning, bt_text *t);

const char *bt_role_name(bt_role role); /* "system", "user", "assistant", "tool" */

#endif
