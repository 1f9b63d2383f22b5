/*
 * The command line: one table of commands, one of options (table.c), and what is made of them: parsing and environment
 * names (options.c), help, completion and the manual page (help.c).
 */
#ifndef APP_OPTIONS_H
#define APP_OPTIONS_H

#include "base/json.h"

/* ---- tables ------------------------------------------------------------------------------------------------------ */

typedef enum bt_command {
    BT_COMMAND_RUN,
    BT_COMMAND_CHAT,
    BT_COMMAND_LOGITS,
    BT_COMMAND_VERIFY,
    BT_COMMAND_TOKENIZE,
    BT_COMMAND_DETOKENIZE,
    BT_COMMAND_RENDER,
    BT_COMMAND_INFO,
    BT_COMMAND_DEVICES,
    BT_COMMAND_BENCH,
    BT_COMMAND_SYNTH,
    BT_COMMAND_HELP,
    BT_COMMAND_VERSION,
    BT_N_COMMANDS,
} bt_command;

typedef struct bt_command_spec {
    const char *name;
    const char *arguments;       /* as the usage line shows them: "MODEL [TEXT]"; "": none */
    size_t n_arguments_max;      /* MODEL included */
    bool takes_model;            /* the first argument, unless --model-dir gives it */
    const char *summary;         /* one line, no full stop */
    const char *text;            /* paragraphs, separated by "\n\n" */
    const char *const *examples; /* NULL-terminated */
} bt_command_spec;

extern const bt_command_spec bt_commands[BT_N_COMMANDS];
extern const char *const bt_commands_planned[]; /* NULL-terminated: names that later builds have */

typedef enum bt_option {
    BT_OPT_MODEL,
    BT_OPT_PROMPT,
    BT_OPT_PROMPT_FILE,
    BT_OPT_SPECIAL,
    BT_OPT_CHAT,
    BT_OPT_SYSTEM,
    BT_OPT_EFFORT,
    BT_OPT_MESSAGES,
    BT_OPT_TOOLS,
    BT_OPT_TEMPLATE,
    BT_OPT_RENDER_TEMPLATE,
    BT_OPT_RENDER_CONTEXT,
    BT_OPT_NOW,
    BT_OPT_LOAD,
    BT_OPT_MAX_NEW_TOKENS,
    BT_OPT_STOP,
    BT_OPT_IGNORE_EOS,
    BT_OPT_TEMPERATURE,
    BT_OPT_TOP_K,
    BT_OPT_TOP_P,
    BT_OPT_MIN_P,
    BT_OPT_REPETITION_PENALTY,
    BT_OPT_SEED,
    BT_OPT_IDS,
    BT_OPT_IDS_FILE,
    BT_OPT_OUTPUT,
    BT_OPT_TOLERANCE,
    BT_OPT_CHUNK,
    BT_OPT_JSONL,
    BT_OPT_TENSORS,
    BT_OPT_N_PROMPT,
    BT_OPT_N_GEN,
    BT_OPT_REPETITIONS,
    BT_OPT_N_DEPTH,
    BT_OPT_WARM_ONLY,
    BT_OPT_BENCH_OUTPUT,
    BT_OPT_COMPARE,
    BT_OPT_PRESET,
    BT_OPT_LAYERS,
    BT_OPT_EXPERTS,
    BT_OPT_WEIGHTS,
    BT_OPT_WEIGHTS_SEED,
    BT_OPT_DEVICE,
    BT_OPT_DTYPE,
    BT_OPT_KV_DTYPE,
    BT_OPT_CPU,
    BT_OPT_THREADS,
    BT_OPT_CONTEXT,
    BT_OPT_BATCH,
    BT_OPT_STATE_SNAPSHOTS,
    BT_OPT_OVERCOMMIT,
#ifdef BT_TEST_BUILD
    BT_OPT_ABLATE,
#endif
    BT_OPT_JSON,
    BT_OPT_QUIET,
    BT_OPT_VERBOSE,
    BT_OPT_COMPLETION,
    BT_OPT_MAN,
    BT_OPT_HELP,
    BT_N_OPTIONS,
} bt_option;

typedef enum bt_option_kind {
    BT_KIND_FLAG,
    BT_KIND_TEXT,    /* any text, the empty one too */
    BT_KIND_LIST,    /* any text, may be given again */
    BT_KIND_FILE,    /* a path */
    BT_KIND_CHOICE,  /* one of `choices` */
    BT_KIND_INTEGER, /* min .. max */
    BT_KIND_U64,
    BT_KIND_REAL, /* min .. max */
} bt_option_kind;

typedef enum bt_option_group {
    BT_GROUP_MODEL,
    BT_GROUP_BENCH,
    BT_GROUP_SYNTH,
    BT_GROUP_TEXT,
    BT_GROUP_CHAT,
    BT_GROUP_SAMPLING,
    BT_GROUP_IDS,
    BT_GROUP_ENGINE,
    BT_GROUP_OUTPUT,
    BT_N_GROUPS,
} bt_option_group;

extern const char *const bt_group_titles[BT_N_GROUPS];

typedef struct bt_option_spec {
    const char *name;     /* "max-new-tokens" */
    char letter;          /* 'n'; 0: none */
    const char *argument; /* "N"; NULL for a flag */
    bt_option_kind kind;
    bt_option_group group;
    double min, max;          /* of INTEGER and REAL */
    const char *choices;      /* of CHOICE: "f32 bf16" */
    const char *planned;      /* of CHOICE: names that later builds take */
    const char *default_text; /* as help shows it; NULL: none */
    const char *environment;  /* "BALTORO_..."; NULL: the flag only */
    const char *synonyms;     /* "--temp --heat -hf", separated by blanks; NULL: none */
    uint32_t commands;        /* bit set over bt_command */
    const char *help;         /* sentences */
} bt_option_spec;

extern const bt_option_spec bt_option_specs[BT_N_OPTIONS];

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

typedef enum bt_source { BT_SOURCE_NONE, BT_SOURCE_FLAG, BT_SOURCE_ENVIRONMENT } bt_source;

typedef struct bt_option_value {
    bt_source source; /* what set it */
    const char *text;
    int64_t integer;
    uint64_t u64;
    double real;
} bt_option_value;

typedef struct bt_options {
    bt_command command;
    bt_option_value values[BT_N_OPTIONS];
    const char *model;      /* NULL: none given */
    const char **arguments; /* without MODEL */
    size_t n_arguments;
    const char **stops; /* every --stop */
    size_t n_stops;
    bt_command topic; /* of help; BT_N_COMMANDS: all */
} bt_options;

typedef char *(*bt_getenv_fn)(const char *name);

/* Parses what follows the program's name. All strings of *o are borrowed from argv and the environment. */
bt_status bt_options_parse(int argc, char *const *argv, bt_getenv_fn env, bt_options *o, bt_error *e);
void bt_options_free(bt_options *o);

static inline bool bt_option_is_set(const bt_options *o, bt_option id)
{
    return o->values[id].source != BT_SOURCE_NONE;
}

/* Number texts to values, strictly: the whole text, finite, no blanks, no hexadecimal; zeros in front mean nothing. */
bool bt_parse_i64(const char *text, int64_t *v);
bool bt_parse_real(const char *text, double *v);

/* ---- help -------------------------------------------------------------------------------------------------------- */

void bt_help_overview(bt_text *t);
void bt_help_command(bt_text *t, bt_command c);
void bt_help_completion(bt_text *t, const char *shell); /* "bash", "zsh" or "fish" */
void bt_help_man(bt_text *t);

#endif
