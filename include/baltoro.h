/*
 * baltoro: run K2-Horizon, Kimi K3, Kimi Linear and Llama checkpoints, and know that the answer is right.
 *
 * Data flows one way:  model (immutable) -> engine (memory, threads) -> session (ids in, logits out)
 * -> sampler (logits in, id out) -> tokenizer (ids in, text out).
 *
 * Conventions of every function here:
 *   - It returns BT_OK, or another status after filling *e with one sentence that names the file, key or number at
 *     fault. `e` may be NULL. Out parameters are written on success only, unless a comment says more.
 *   - What may come from outside is checked: names, texts, ids, numbers, snapshots. NULL where there must be one gives
 *     BT_ERR_USAGE; a list or text of size 0 may be NULL. Where else NULL means something, the comment says what.
 *   - A handle, a bt_prompt and an out parameter must be given. NULL there, and a call out of the order that is marked
 *     "asserted", is a mistake in the calling program, which it ends.
 *   - Close and free functions accept NULL. Strings are UTF-8. Sizes are in bytes unless the name says otherwise.
 *   - An engine and its sessions belong to one thread at a time. A model and a tokenizer may be shared once opened.
 *   - The library never prints and never exits (but for such a mistake), never reads the environment, never installs
 *     signal handlers. Weights are used from a mapping of the checkpoint: if a file shrinks while it is mapped, the
 *     process gets SIGBUS.
 */
#ifndef BALTORO_H
#define BALTORO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define BT_API __attribute__((visibility("default")))
#else
#    define BT_API
#endif

#define BT_VERSION "0.1.0"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

typedef enum bt_status {
    BT_OK = 0,
    BT_ERR_USAGE,       /* an argument that cannot be meant: an unknown name, a number out of range */
    BT_ERR_IO,          /* the operating system refused: open, read, write */
    BT_ERR_FORMAT,      /* a file is not what it should be: broken, truncated, contradictory */
    BT_ERR_UNSUPPORTED, /* well formed, but this build does not run it */
    BT_ERR_MEMORY,      /* not enough memory or disk */
    BT_ERR_CONTEXT,     /* more tokens than the context holds */
    BT_ERR_NUMERIC,     /* NaN where a number is needed, or no candidate left to sample */
    BT_ERR_CANCELLED    /* the caller's hook said stop */
} bt_status;

#define BT_ERROR_BYTES_MAX 4096

typedef struct bt_error {
    bt_status status;
    char message[BT_ERROR_BYTES_MAX]; /* always terminated; valid UTF-8 */
} bt_error;

/* Frees what a function here documents as "bt_free by the caller". */
BT_API void bt_free(void *p);

/* The library's version, BT_VERSION of the build. */
BT_API const char *bt_version(void);

/* ---- finding a checkpoint ---------------------------------------------------------------------------------------- */

/* The variables that decide where the Hugging Face cache is; NULL = not set. The library reads no environment. */
typedef struct bt_cache_env {
    const char *hf_hub_cache;          /* HF_HUB_CACHE */
    const char *huggingface_hub_cache; /* HUGGINGFACE_HUB_CACHE */
    const char *hf_home;               /* HF_HOME */
    const char *xdg_cache_home;        /* XDG_CACHE_HOME */
    const char *home;                  /* HOME */
} bt_cache_env;

/* Resolves a model argument: an existing path wins, else NAME or ORG/NAME, each with an optional @REV, in the cache.
 * env NULL: nothing is set. *path: bt_free by the caller. */
BT_API bt_status bt_locate(const char *name, const bt_cache_env *env, char **path, bt_error *e);

/* ---- model: a checkpoint, mapped and checked, immutable ---------------------------------------------------------- */

typedef struct bt_model bt_model;

typedef struct bt_model_options {
    const char *ablate; /* NULL; "skip_layer=1,rope=off": faults planted on purpose, refused outside the test build */
} bt_model_options;

/* Sampling defaults that generation_config.json states; has_* says which it does. */
typedef struct bt_generation_defaults {
    bool has_temperature, has_top_k, has_top_p, has_min_p, has_repetition_penalty, has_do_sample;
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
} bt_generation_defaults;

/* Opens a folder with config.json and safetensors, or one .safetensors file with config.json beside it. Reads
 * config, headers and up to 4 KB of each tensor. Where a head is stored although the config ties it to the embedding,
 * it reads both whole, for they must be equal. Every tensor's name, dtype, shape and range is checked before this
 * returns. options NULL: none. */
BT_API bt_status bt_model_open(const char *path, const bt_model_options *options, bt_model **out, bt_error *e);
BT_API void bt_model_close(bt_model *m);

BT_API const char *bt_model_folder(const bt_model *m); /* borrowed; where tokenizer files are looked for */
BT_API const char *bt_model_family(const bt_model *m); /* borrowed; "k2_horizon", "llama", "kimi_k3", "kimi_linear" */
BT_API size_t bt_model_n_vocab(const bt_model *m);
BT_API size_t bt_model_max_position(const bt_model *m);   /* 0: no limit stated */
BT_API uint64_t bt_model_n_parameters(const bt_model *m); /* elements of all tensors, scales not counted */
/* End ids of config.json and generation_config.json, united, in ascending order; borrowed. */
BT_API const int32_t *bt_model_end_ids(const bt_model *m, size_t *n);
BT_API const bt_generation_defaults *bt_model_generation_defaults(const bt_model *m); /* borrowed */

/* ---- engine: the memory and threads that run a model ------------------------------------------------------------- */

typedef struct bt_engine bt_engine;

typedef struct bt_engine_options { /* all zero, or NULL for a pointer to it: the defaults */
    const char *device;            /* "cpu" */
    const char *cpu_level; /* the highest to use: "scalar", "avx2", "avx512", "avx512vnni", "amx"; NULL: the best there
                              is; one above that is refused */
    const char *dtype;     /* of activations: "f32" */
    const char *kv_dtype;  /* "f32" or "bf16". Names of what a later build may have are BT_ERR_UNSUPPORTED, here as of
                              device and dtype; others BT_ERR_USAGE */
    size_t n_threads;      /* 0: min(affinity, cgroup quota, physical cores) */
    size_t context;        /* positions per slot; 0: min(max_position, 8192) */
    size_t batch;          /* most rows in one step; 0: 512 */
    size_t n_slots;        /* sessions that can be open at once; 0: 1 */
    size_t logit_rows;     /* rows that the head computes at a time, n_vocab floats each; 0: one per slot. More makes
                              bt_session_score faster */
    int n_state_snapshots; /* copies of its recurrent states that a session keeps, to rewind to; 0: 4; -1: none. Only
                              families with such states take any */
    bool overcommit;       /* open even if private + mapped bytes exceed the memory there is */
    const char *root;      /* "" or the folder that holds proc/ and sys/ (tests); NULL: "" */
    /* What messages call the context where it may be too large: a program's own option. NULL: "the context". */
    const char *context_name;
} bt_engine_options;

typedef struct bt_memory_plan {                           /* bytes */
    uint64_t kv, state, scratch, weights_private, tables; /* private, by use */
    uint64_t private_bytes;                               /* their sum */
    uint64_t mapped_bytes;                                /* the checkpoint's files */
    uint64_t available_bytes; /* what machine and cgroup can give, at most; 0: unknown, no plan is refused for it */
    size_t context, batch, n_slots, n_threads; /* as used, defaults filled in */
    size_t n_state_snapshots;                  /* likewise; 0 where the family has no use for them */
} bt_memory_plan;

/* Computes the plan and takes none of the memory in it: all that it builds, and frees, is the model's tape. Fails as
 * bt_engine_open would: BT_ERR_MEMORY with the numbers, and *plan filled in that case too. */
BT_API bt_status bt_engine_plan(const bt_model *m, const bt_engine_options *o, bt_memory_plan *plan, bt_error *e);

/* The model must outlive the engine. Allocates all that steps will need. */
BT_API bt_status bt_engine_open(const bt_model *m, const bt_engine_options *o, bt_engine **out, bt_error *e);
BT_API void bt_engine_close(bt_engine *g);                  /* after its sessions (asserted) */
BT_API const char *bt_engine_cpu_level(const bt_engine *g); /* borrowed; the level in use */
BT_API size_t bt_engine_n_threads(const bt_engine *g);

/* ---- session: one timeline --------------------------------------------------------------------------------------- */

typedef struct bt_session bt_session;

/* Called between steps with the rows done and the rows asked for; false stops the work (BT_ERR_CANCELLED). The session
 * then holds the rows that were done. */
typedef struct bt_hook {
    bool (*keep_going)(void *user, size_t n_done, size_t n_total); /* NULL: as no hook */
    void *user;
} bt_hook;

/* Receives logits [n_vocab] of the row with this index among the ids given; borrowed for the call. false stops. */
typedef bool (*bt_logits_fn)(void *user, size_t row_i, const float *logits);

BT_API bt_status bt_session_open(bt_engine *g, bt_session **out, bt_error *e); /* takes a free slot */
BT_API void bt_session_close(bt_session *s);
BT_API size_t bt_session_length(const bt_session *s);
BT_API const int32_t *bt_session_ids(const bt_session *s); /* [length], borrowed until the session changes */

/* Appends ids. Nothing is done if one is outside the vocabulary or they do not fit. hook may be NULL. */
BT_API bt_status bt_session_extend(bt_session *s, const int32_t *ids, size_t n, const bt_hook *hook, bt_error *e);

/* As bt_session_extend, and gives the logits of every row to `sink`, in order; NULL: to nobody. Once the sink says stop
 * (BT_ERR_CANCELLED) the session holds the rows of the step at hand, those that were not given too, and no logits. */
BT_API bt_status bt_session_score(bt_session *s, const int32_t *ids, size_t n, bt_logits_fn sink, void *user,
                                  const bt_hook *hook, bt_error *e);

/* Logits [n_vocab] after the last id; NULL where there are none (empty session, after a rewind). Borrowed until the
 * session changes. */
BT_API const float *bt_session_logits(const bt_session *s);

/* Back to `length` <= the current one. May compute: recurrent families replay what lies after the last state that they
 * kept. hook may be NULL; once it stops the work the session is shorter than asked for, and whole. */
BT_API bt_status bt_session_rewind(bt_session *s, size_t length, const bt_hook *hook, bt_error *e);

/* A snapshot is self-contained: it restores into any session of the same model and KV type whose context holds it, in
 * another process too, with its logits if it has any. A session that was refused one is as it was, unless the backend
 * failed while writing: then it is empty. *data: bt_free by the caller. */
BT_API bt_status bt_session_snapshot(const bt_session *s, void **data, size_t *size, bt_error *e);
BT_API bt_status bt_session_restore(bt_session *s, const void *data, size_t size, bt_error *e);

/* One step over several timelines of one engine: at most `batch` rows in all, each session once. Afterwards
 * bt_session_logits of each holds its last row's. */
typedef struct bt_part {
    bt_session *session;
    const int32_t *ids;
    size_t n;
} bt_part;
BT_API bt_status bt_engine_step(bt_engine *g, const bt_part *parts, size_t n_parts, bt_error *e);

/* ---- sampler ----------------------------------------------------------------------------------------------------- */

typedef struct bt_sampler bt_sampler;

/* The filters act in this order: repetition penalty, temperature, top-k, top-p, min-p, draw. */
typedef struct bt_sample_params {
    double temperature;        /* >= 0; 0 = greedy, the lowest index wins ties */
    int64_t top_k;             /* <= 0 or > vocabulary: off */
    double top_p;              /* [0, 1]; 1: off; 0: the most likely one */
    double min_p;              /* [0, 1]; 0: off */
    double repetition_penalty; /* > 0; 1: off; counts prompt and output */
    uint64_t seed;
} bt_sample_params;

BT_API bt_sample_params bt_sample_params_default(void); /* greedy off: temperature 1, all filters off, seed 0 */
/* p NULL: bt_sample_params_default. */
BT_API bt_status bt_sampler_open(size_t n_vocab, const bt_sample_params *p, bt_sampler **out, bt_error *e);
BT_API void bt_sampler_close(bt_sampler *s);
/* Counts an id of the prompt or output for the penalty; one outside the vocabulary is nothing. */
BT_API void bt_sampler_accept(bt_sampler *s, int32_t id);
/* Chooses an id and counts it. NaN, +infinity (an overflow, not a preference), or no candidate: BT_ERR_NUMERIC.
 * NULL for logits, as of an empty session: BT_ERR_USAGE. */
BT_API bt_status bt_sampler_next(bt_sampler *s, const float *logits, int32_t *id, bt_error *e);

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

typedef struct bt_tokenizer bt_tokenizer;

#define BT_TEXT_SPECIAL 1u /* encode: recognise every added token, whatever its flag; decode: print special tokens */

BT_API bt_status bt_tokenizer_open(const char *folder, bt_tokenizer **out, bt_error *e);
BT_API void bt_tokenizer_close(bt_tokenizer *t);
/* One a line, "" if none: files and tokens that the folder has and the tokenizer does not use. Borrowed. */
BT_API const char *bt_tokenizer_warnings(const bt_tokenizer *t);
BT_API size_t bt_tokenizer_n_vocab(const bt_tokenizer *t); /* highest id + 1 */
/* Ids of text (may hold NUL; must be UTF-8). Adds no BOS. *ids: bt_free by the caller. */
BT_API bt_status bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t size, unsigned flags,
                                     int32_t **ids, size_t *n, bt_error *e);
/* Text of ids; bytes that are not UTF-8 become U+FFFD. An id outside the vocabulary is refused. *text: NUL-terminated,
 * bt_free by the caller. */
BT_API bt_status bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text,
                                     size_t *size, bt_error *e);
/* The id of a token by its text; -1: there is none, or text is NULL. */
BT_API int32_t bt_tokenizer_find(const bt_tokenizer *t, const char *text);
BT_API bool bt_tokenizer_is_added(const bt_tokenizer *t, int32_t id); /* listed among the added tokens */
/* The id to put before raw text: -1 = none. From tokenizer_config.json (add_bos_token) or the post-processor. */
BT_API int32_t bt_tokenizer_bos(const bt_tokenizer *t);

/* Streaming: gives whole UTF-8 characters only, holds back the rest. The tokenizer must outlive it. */
typedef struct bt_decoder bt_decoder;
BT_API bt_status bt_decoder_open(const bt_tokenizer *t, unsigned flags, bt_decoder **out, bt_error *e);
BT_API void bt_decoder_close(bt_decoder *d);
/* *text [*size]: borrowed until the next call. */
BT_API bt_status bt_decoder_push(bt_decoder *d, int32_t id, const char **text, size_t *size, bt_error *e);
/* What was held back, with U+FFFD for an unfinished character. Also readies d for a new text. */
BT_API void bt_decoder_finish(bt_decoder *d, const char **text, size_t *size);

/* Stop strings across token borders: text goes in, text that no stop string can touch comes out. */
typedef struct bt_stop bt_stop;
BT_API bt_status bt_stop_open(const char *const *strings, size_t n, bt_stop **out, bt_error *e); /* "" is refused */
BT_API void bt_stop_close(bt_stop *s);
/* *out [*out_size]: borrowed until the next call. Returns true once a stop string was met (text ends before it).
 * text NULL: nothing. Where memory for a push of more than 4,096 bytes runs out, the text ends as if one was met. */
BT_API bool bt_stop_push(bt_stop *s, const char *text, size_t size, const char **out, size_t *out_size);
BT_API void bt_stop_finish(bt_stop *s, const char **out, size_t *out_size); /* what was held back, no stop met */

/* ---- chat: messages in, events out ------------------------------------------------------------------------------- */

/* How a checkpoint talks: its chat template or a native renderer, and the grammar of its answers. Immutable. */
typedef struct bt_chat bt_chat;

/* The template, by the first of: template_path (NULL: none given), chat_template_generation.jinja, chat_template.jinja,
 * chat_template in tokenizer_config.json, the family's native renderer; none at all: BT_ERR_UNSUPPORTED. `family` is
 * bt_model_family's; NULL: told by the folder's config.json. The tokenizer must outlive the chat; NULL: no ids are
 * made. */
BT_API bt_status bt_chat_open(const char *folder, const char *family, const char *template_path, const bt_tokenizer *t,
                              bt_chat **out, bt_error *e);
BT_API void bt_chat_close(bt_chat *c);
BT_API const char *bt_chat_source(const bt_chat *c); /* borrowed; for people: which template it is */
/* Ids that end a turn in this family, by name, besides the model's own end ids; borrowed. */
BT_API const int32_t *bt_chat_end_ids(const bt_chat *c, size_t *n);
/* The id that ends a text that is no chat in this family, by name, besides the model's own; -1: none, or NULL was
 * given for either. */
BT_API int32_t bt_chat_text_end(const char *family, const bt_tokenizer *t);
/* For an effort of none, minimal, low, medium, high, xhigh, max: *used, the nearest that the family has, and *options,
 * for bt_chat_request. Both borrowed. Another word is refused. */
BT_API bt_status bt_chat_effort(const bt_chat *c, const char *effort, const char **used, const char **options,
                                bt_error *e);

typedef struct bt_chat_request { /* JSON texts in OpenAI's form; NULL where there is none, but for messages */
    const char *messages;        /* an array; or an object with messages, tools, tool_choice, response_format, */
    size_t messages_size;        /* add_generation_prompt (true), and template options, also in chat_template_kwargs */
    const char *tools;           /* an array, or an object with tools */
    size_t tools_size;
    const char *options; /* an object like that of messages, without messages and tools; it wins */
    size_t options_size;
    const char *messages_name, *tools_name; /* of the files that these came from, for errors; NULL: from none */
} bt_chat_request;

typedef struct bt_prompt { /* free with bt_prompt_free */
    char *text;            /* exactly what the model gets, as text; NUL-terminated after size bytes */
    size_t size;
    int32_t *ids; /* and as ids: what came from outside never becomes an added token. NULL without a tokenizer */
    size_t n_ids;
    char *warnings;    /* one a line, "" if none: input that the template left out, demands that nothing enforces */
    char *tools;       /* the tools in effect, a JSON array; NULL: none */
    char *demands;     /* what tool_choice and response_format demand, for bt_prompt_check_answer; NULL: nothing */
    size_t next_call;  /* a number for the next call's id: behind those, of up to nine digits, that ids so far end in */
    bool is_reasoning; /* the answer begins inside reasoning */
    bool calls_off;    /* tool_choice none: an answer's calls are text */
} bt_prompt;

/* A conversation that the template cannot take gives BT_ERR_USAGE with the reason. *out is all zero after a failure. */
BT_API bt_status bt_chat_render(const bt_chat *c, const bt_chat_request *request, bt_prompt *out, bt_error *e);
BT_API void bt_prompt_free(bt_prompt *p); /* NULL and an all-zero one are fine */
/* Whether a message (JSON, as of bt_reply_message) is what its prompt's request demanded: a call, or of a certain
 * function (tool_choice); content that is a JSON object (response_format; a schema is not looked at). BT_ERR_FORMAT,
 * with the reason: it is not. */
BT_API bt_status bt_prompt_check_answer(const bt_prompt *p, const char *message, size_t size, bt_error *e);

/* Reading an answer as it comes. Text goes in, in any pieces; what it means comes out as events, and is never taken
 * back. The ranges [begin, end) of the events, in order, are the whole output: no gap, no overlap. */
typedef struct bt_reply bt_reply;

typedef enum bt_reply_kind {
    BT_REPLY_REASONING,  /* text: the next part of it */
    BT_REPLY_CONTENT,    /* text: the next part of it */
    BT_REPLY_CALL,       /* a call begins; text: its name. Empty range */
    BT_REPLY_ARGUMENTS,  /* text: the next part of the call's arguments, a JSON object in the end. Empty range */
    BT_REPLY_CALL_DONE,  /* the call is complete. Range: from its opening tag to its closing one */
    BT_REPLY_INCOMPLETE, /* the call broke or the output ended: it is none. Range: what there was of it, raw */
    BT_REPLY_RAW,        /* tags and what lies between them, stop texts; for nobody to read */
} bt_reply_kind;

typedef struct bt_reply_event {
    bt_reply_kind kind;
    size_t call_i;    /* of calls: which, counted from 0, incomplete ones too */
    const char *text; /* [size]; of DONE, INCOMPLETE and RAW: "" */
    size_t size;
    size_t begin, end; /* bytes of the output */
} bt_reply_event;

/* For the answer to this prompt, whose tools tell the types of arguments. Neither is needed any more afterwards. */
BT_API bt_status bt_reply_open(const bt_chat *c, const bt_prompt *p, bt_reply **out, bt_error *e);
BT_API void bt_reply_close(bt_reply *r);
/* Before bt_reply_finish (asserted). *events [*n]: borrowed until the next call. */
BT_API bt_status bt_reply_push(bt_reply *r, const char *text, size_t size, const bt_reply_event **events, size_t *n,
                               bt_error *e);
/* The output ends here, by the model's own will or (is_cut) because a limit or a person stopped it. Once (asserted). */
BT_API bt_status bt_reply_finish(bt_reply *r, bool is_cut, const bt_reply_event **events, size_t *n, bt_error *e);
/* "tool_calls", "stop", or "length" for what is cut off, unfinished inside a call, or never left its reasoning. */
BT_API const char *bt_reply_finish_reason(const bt_reply *r);
/* The message so far as OpenAI has it: role, content, reasoning_content, tool_calls; calls get the ids
 * ID_PREFIX and a number, counted on from the prompt's next_call (complete calls only); in a
 * conversation that is sent whole no two are alike.
 * *json: bt_free by the caller. */
BT_API bt_status bt_reply_message(const bt_reply *r, const char *id_prefix, char **json, size_t *size, bt_error *e);

#ifdef __cplusplus
}
#endif

#endif
