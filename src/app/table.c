/*
 * The two tables that the command line is: commands and options. Nothing else knows an option's name, range, default or
 * environment name; help, completion, the manual page and the parser all read them here.
 */
#include "app/options.h"

/* Bits of bt_option_spec.commands. */
enum {
    RUN = 1 << BT_COMMAND_RUN,
    CHAT = 1 << BT_COMMAND_CHAT,
    LOGITS = 1 << BT_COMMAND_LOGITS,
    VERIFY = 1 << BT_COMMAND_VERIFY,
    TOKENIZE = 1 << BT_COMMAND_TOKENIZE,
    DETOKENIZE = 1 << BT_COMMAND_DETOKENIZE,
    RENDER = 1 << BT_COMMAND_RENDER,
    INFO = 1 << BT_COMMAND_INFO,
    DEVICES = 1 << BT_COMMAND_DEVICES,
    BENCH = 1 << BT_COMMAND_BENCH,
    SYNTH = 1 << BT_COMMAND_SYNTH,
    HELP = 1 << BT_COMMAND_HELP,
    TALKING = RUN | CHAT,
    ENGINE = TALKING | LOGITS | VERIFY | INFO | BENCH,
    SCORING = LOGITS | VERIFY,
    TOKENS = TOKENIZE | DETOKENIZE,
    MODEL = ENGINE | TOKENS | RENDER,
    REPORTS = RUN | LOGITS | VERIFY | RENDER | INFO | BENCH | DEVICES | SYNTH,
    ALL = (1 << BT_N_COMMANDS) - 1,
};

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static const char *const run_examples[] = {
    "baltoro run ./K2-Horizon-0.9B -p \"The capital of France is\"",
    "baltoro run ORG/NAME -f question.txt --temperature 0 -n 200 > answer.txt",
    "baltoro run ORG/NAME --chat -p \"Why is the sky blue?\" --effort low --json",
    NULL,
};
static const char *const chat_examples[] = {
    "baltoro chat ./K2-Horizon-0.9B",
    "baltoro chat ORG/NAME --system \"Answer in one sentence.\" --load talk.session",
    NULL,
};
static const char *const logits_examples[] = {
    "baltoro logits ./K2-Horizon-0.9B --ids 0,17,300 --output out.safetensors",
    NULL,
};
static const char *const verify_examples[] = {
    "baltoro verify ./K2-Horizon-0.9B ./K2-Horizon-0.9B/expected.safetensors",
    NULL,
};
static const char *const tokenize_examples[] = {
    "baltoro tokenize ./K2-Horizon-0.9B \"Hello, world\"",
    "printf '\"one\"\\n\"two\"\\n' | baltoro tokenize ./K2-Horizon-0.9B --jsonl",
    NULL,
};
static const char *const detokenize_examples[] = {
    "baltoro detokenize ./K2-Horizon-0.9B 17,300,42",
    NULL,
};
static const char *const render_examples[] = {
    "baltoro render ./K2-Horizon-0.9B --messages talk.json --tools tools.json",
    "baltoro render --template chat_template.jinja --context variables.json",
    NULL,
};
static const char *const info_examples[] = {
    "baltoro info ./K2-Horizon-0.9B",
    "baltoro info ./K2-Horizon-0.9B --context 32768 --json",
    NULL,
};
static const char *const devices_examples[] = {"baltoro devices", NULL};
static const char *const bench_examples[] = {
    "baltoro bench ./K2-Horizon-0.9B",
    "baltoro bench ./K2-Horizon-0.9B -d 0,4096 --output results/",
    "baltoro bench ./K2-Horizon-0.9B --compare results/before.json",
    NULL,
};
static const char *const synth_examples[] = {
    "baltoro synth ./k2-0.9b --preset k2-0.9b",
    "baltoro synth ./mova-8 --preset k2-mova-36b --layers 8 --dtype fp8",
    "baltoro synth ./k3-4 --preset k3-full --layers 4 --experts 128",
    NULL,
};
static const char *const help_examples[] = {
    "baltoro help run",
    "source <(baltoro help --completion bash)",
    "baltoro help --man > baltoro.1",
    NULL,
};
static const char *const version_examples[] = {"baltoro version", NULL};

const bt_command_spec bt_commands[BT_N_COMMANDS] = {
    [BT_COMMAND_RUN] =
        {
            .name = "run",
            .arguments = "[MODEL]",
            .n_arguments_max = 1,
            .takes_model = true,
            .summary = "continue one prompt, streaming the text to stdout",
            .text =
                "The prompt is the text of -p, the file of -f, or all of stdin; of a file and of stdin one newline at "
                "the "
                "end is dropped. The answer alone goes to stdout, everything else to stderr. The token that begins a "
                "text (BOS) is put before the prompt once, where the tokenizer's configuration asks for it.\n\n"
                "Sampling filters act in this order: repetition penalty, temperature, top-k, top-p, min-p. What no "
                "option sets comes from the model's generation_config.json (do_sample false there means temperature "
                "0), then from the defaults shown here; stderr says which.\n\n"
                "The text ends at an end token, a stop string, after -n tokens, or when the context is full; the last "
                "line on stderr says which. Ctrl-C ends it at once and keeps what was said. With --json nothing "
                "streams: one JSON object on stdout holds text, ids and timings.\n\n"
                "With --chat the prompt is one turn of a conversation, rendered by the model's chat template. The "
                "answer goes to stdout, without its reasoning; where stdout is a terminal the reasoning is shown, "
                "dimmed. Each call of a tool is one line of JSON. With --json one object holds message, finish_reason, "
                "usage and seed, in OpenAI's form.",
            .examples = run_examples,
        },
    [BT_COMMAND_CHAT] =
        {
            .name = "chat",
            .arguments = "[MODEL]",
            .n_arguments_max = 1,
            .takes_model = true,
            .summary = "hold a conversation in the terminal",
            .text =
                "Lines are edited and remembered. A backslash at the end of a line continues the message, or the text "
                "of /system, on the next one; what is pasted arrives whole. A line that begins with / is a command, "
                "/help lists them. Reasoning is dimmed, and folded by /think.\n\n"
                "What was typed is kept in XDG_STATE_HOME/baltoro/history, by default "
                "~/.local/state/baltoro/history; XDG_STATE_HOME=/dev/null keeps none. That file and those that /save "
                "makes are for their owner alone.\n\n"
                "Ctrl-C stops the answer and keeps what was said; twice it leaves with 130. Ctrl-D leaves. Of each "
                "turn "
                "only what is new is computed. When the context is full the program says so; nothing is cut.\n\n"
                "Without a terminal every line of stdin is a message or command, stdout holds the answers alone, one "
                "after the other, and the program ends with stdin, or with the first message or command that fails; a "
                "backslash at the end of stdin is left out.",
            .examples = chat_examples,
        },
    [BT_COMMAND_LOGITS] =
        {
            .name = "logits",
            .arguments = "[MODEL]",
            .n_arguments_max = 1,
            .takes_model = true,
            .summary = "compute the logits of given token ids, into a safetensors file",
            .text = "Writes one tensor, logits, of shape [ids, vocabulary] and type F32: row i holds the logits after "
                    "id i. "
                    "The file appears under its name only when it is complete.",
            .examples = logits_examples,
        },
    [BT_COMMAND_VERIFY] =
        {
            .name = "verify",
            .arguments = "MODEL EXPECTED.safetensors",
            .n_arguments_max = 2,
            .takes_model = true,
            .summary = "compare the model's logits with stored ones",
            .text =
                "EXPECTED.safetensors holds pairs of tensors: ids.N, I64 [n], and logits.N, F32 [m, vocabulary], the "
                "logits of the last m of these n positions. Prints the largest and the mean difference, how often the "
                "most likely token agrees, and the Kullback-Leibler divergence; fails past the tolerance, on another "
                "most likely token, and on NaN.",
            .examples = verify_examples,
        },
    [BT_COMMAND_TOKENIZE] =
        {
            .name = "tokenize",
            .arguments = "[MODEL [TEXT]]",
            .n_arguments_max = 2,
            .takes_model = true,
            .summary = "turn text into token ids",
            .text =
                "Without TEXT all of stdin is the text, byte for byte. Prints the ids separated by commas; no token is "
                "added at the beginning. MODEL may be a folder with tokenizer files only.",
            .examples = tokenize_examples,
        },
    [BT_COMMAND_DETOKENIZE] =
        {
            .name = "detokenize",
            .arguments = "[MODEL [IDS]]",
            .n_arguments_max = 2,
            .takes_model = true,
            .summary = "turn token ids into text",
            .text = "IDS are numbers separated by commas or blanks, or a JSON array; without them stdin holds these. "
                    "Special "
                    "tokens are printed as they are written.",
            .examples = detokenize_examples,
        },
    [BT_COMMAND_RENDER] =
        {
            .name = "render",
            .arguments = "[MODEL]",
            .n_arguments_max = 1,
            .takes_model = true,
            .summary = "show the prompt that a conversation becomes",
            .text =
                "With MODEL and --messages: the exact prompt that the model would get, by its own chat template or, "
                "where it has none, by its family's format; stderr names the template and every text that it leaves "
                "out. With --json also the ids. Only small files are read; MODEL may be a folder without weights.\n\n"
                "With --template and --context: the text that this template makes of these variables, a JSON object.",
            .examples = render_examples,
        },
    [BT_COMMAND_INFO] =
        {
            .name = "info",
            .arguments = "[MODEL]",
            .n_arguments_max = 1,
            .takes_model = true,
            .summary = "show configuration, tensors, sizes and the memory plan of a model",
            .text = "Reads headers and the first bytes of each tensor. Only a head that is stored although the "
                    "configuration ties it to the embedding is read whole, to compare the two. Values that the "
                    "configuration leaves to a default are marked.",
            .examples = info_examples,
        },
    [BT_COMMAND_DEVICES] =
        {
            .name = "devices",
            .arguments = "",
            .summary = "show what this machine has and what this build can use",
            .text = "CPU, its levels, threads and memory, with the limits of the cgroup that the program runs in.",
            .examples = devices_examples,
        },
    [BT_COMMAND_BENCH] =
        {
            .name = "bench",
            .arguments = "[MODEL]",
            .n_arguments_max = 1,
            .takes_model = true,
            .summary = "measure speed and memory, beside what this machine can do",
            .text = "Prompt and decode speed, time to the first token, the time of every step, loading, memory; and in "
                    "the same run, in turn with these, the machine's limits: how fast memory can be read, how fast the "
                    "CPU level multiplies, how long a cache line takes between two cores. Figures are the minimum, "
                    "median and maximum of the repetitions. Prompts are random ids, and nothing is sampled.\n\n"
                    "Without --warm-only the model's files are dropped from the page cache once, to time a cold load.",
            .examples = bench_examples,
        },
    [BT_COMMAND_SYNTH] =
        {
            .name = "synth",
            .arguments = "OUT --preset NAME",
            .n_arguments_max = 1,
            .summary = "write a random checkpoint of a released model's true shapes",
            .text = "Makes the folder OUT: random weights, the configuration, and a tokenizer that works but knows no "
                    "language (k3-tiny, k3-small, k3-prod-width and kimi-linear-tiny have none, and take ids alone). "
                    "It shows how fast a model would run on this machine before it is downloaded. The same "
                    "preset, options and seed give the same bytes.\n\n"
                    "Whether the disk has room is checked first, and OUT appears only when it is complete.",
            .examples = synth_examples,
        },
    [BT_COMMAND_HELP] =
        {
            .name = "help",
            .arguments = "[COMMAND]",
            .n_arguments_max = 1,
            .summary = "explain a command; print shell completion or the manual page",
            .text = "Without COMMAND it lists all of them.",
            .examples = help_examples,
        },
    [BT_COMMAND_VERSION] =
        {
            .name = "version",
            .arguments = "",
            .summary = "print the version",
            .text = "The same as baltoro --version.",
            .examples = version_examples,
        },
};

const char *const bt_commands_planned[] = {
    "serve", "quantize", "pull", "doctor", "selftest", NULL,
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

const char *const bt_group_titles[BT_N_GROUPS] = {
    [BT_GROUP_MODEL] = "Model",   [BT_GROUP_BENCH] = "Benchmark",   [BT_GROUP_SYNTH] = "Checkpoint",
    [BT_GROUP_TEXT] = "Text",     [BT_GROUP_CHAT] = "Conversation", [BT_GROUP_SAMPLING] = "Sampling",
    [BT_GROUP_IDS] = "Token ids", [BT_GROUP_ENGINE] = "Engine",     [BT_GROUP_OUTPUT] = "Output",
};

const bt_option_spec bt_option_specs[BT_N_OPTIONS] = {
    [BT_OPT_MODEL] =
        {
            .name = "model-dir",
            .letter = 'm',
            .argument = "MODEL",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_MODEL,
            .environment = "BALTORO_MODEL",
            .synonyms = "--model --hf-repo -hf",
            .commands = MODEL,
            .help = "The model, instead of the first argument, which beats the environment name: a folder with "
                    "config.json and safetensors, one .safetensors "
                    "file with its config.json beside it, or ORG/NAME[@REVISION] in the Hugging Face cache.",
        },
    [BT_OPT_PROMPT] =
        {
            .name = "prompt",
            .letter = 'p',
            .argument = "TEXT",
            .kind = BT_KIND_TEXT,
            .group = BT_GROUP_TEXT,
            .commands = RUN,
            .help = "The prompt.",
        },
    [BT_OPT_PROMPT_FILE] =
        {
            .name = "prompt-file",
            .letter = 'f',
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_TEXT,
            .synonyms = "--file",
            .commands = RUN,
            .help = "Read the prompt from FILE; - is stdin.",
        },
    [BT_OPT_SPECIAL] =
        {
            .name = "special",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_TEXT,
            .commands = RUN | TOKENIZE,
            .help =
                "Recognise added tokens such as <|im_end|> where their text occurs. Without it they are plain text.",
        },
    [BT_OPT_CHAT] =
        {
            .name = "chat",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_CHAT,
            .synonyms = "-cnv --conversation",
            .commands = RUN,
            .help = "The prompt is a user's message, or with --messages a whole conversation; the model answers it.",
        },
    [BT_OPT_SYSTEM] =
        {
            .name = "system",
            .argument = "TEXT",
            .kind = BT_KIND_TEXT,
            .group = BT_GROUP_CHAT,
            .environment = "BALTORO_SYSTEM",
            .synonyms = "--system-prompt -sys",
            .commands = TALKING,
            .help = "The system message.",
        },
    [BT_OPT_EFFORT] =
        {
            .name = "reasoning-effort",
            .argument = "EFFORT",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_CHAT,
            .choices = "none minimal low medium high xhigh max",
            .default_text = "the template's own",
            .environment = "BALTORO_REASONING_EFFORT",
            .synonyms = "--effort",
            .commands = TALKING | RENDER,
            .help =
                "How much the model reasons before it answers. What its family lacks goes to the nearest that it has, "
                "and stderr says so.",
        },
    [BT_OPT_MESSAGES] =
        {
            .name = "messages",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_CHAT,
            .commands = RUN | RENDER,
            .help =
                "The conversation, JSON in OpenAI's form: an array of messages, or an object that also holds tools, "
                "tool_choice, response_format and template options. - is stdin.",
        },
    [BT_OPT_TOOLS] =
        {
            .name = "tools",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_CHAT,
            .commands = RUN | RENDER,
            .help = "The tools that the model may call, JSON in OpenAI's form. - is stdin.",
        },
    [BT_OPT_TEMPLATE] =
        {
            .name = "chat-template",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_CHAT,
            .environment = "BALTORO_CHAT_TEMPLATE",
            .synonyms = "--chat-template-file",
            .commands = TALKING | RENDER,
            .help = "A chat template (Jinja) to use instead of the model's own.",
        },
    [BT_OPT_RENDER_TEMPLATE] =
        {
            .name = "template",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_TEXT,
            .commands = RENDER,
            .help = "A template (Jinja) to render by itself.",
        },
    [BT_OPT_RENDER_CONTEXT] =
        {
            .name = "context",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_TEXT,
            .commands = RENDER,
            .help = "The variables of --template, a JSON object.",
        },
    [BT_OPT_NOW] =
        {
            .name = "now",
            .argument = "TIME",
            .kind = BT_KIND_TEXT,
            .group = BT_GROUP_TEXT,
            .environment = "BALTORO_NOW",
            .commands = RENDER,
            .help = "What --template takes for the time, as in 2026-11-29T12:00:00.",
            .default_text = "the local time",
        },
    [BT_OPT_LOAD] =
        {
            .name = "load",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_CHAT,
            .commands = CHAT,
            .help = "Go on with the conversation that /save wrote to FILE.",
        },
    [BT_OPT_MAX_NEW_TOKENS] =
        {
            .name = "max-new-tokens",
            .letter = 'n',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_TEXT,
            .min = -1,
            .max = INT32_MAX,
            .default_text = "-1: until an end token or the context",
            .environment = "BALTORO_MAX_NEW_TOKENS",
            .synonyms = "--max-tokens --predict --n-predict",
            .commands = TALKING,
            .help = "The most tokens to produce; cut to what the context has left.",
        },
    [BT_OPT_STOP] =
        {
            .name = "stop",
            .argument = "TEXT",
            .kind = BT_KIND_LIST,
            .group = BT_GROUP_TEXT,
            .commands = TALKING,
            .help = "End the text before this one; may be given 1024 times.",
        },
    [BT_OPT_IGNORE_EOS] =
        {
            .name = "ignore-eos",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_TEXT,
            .environment = "BALTORO_IGNORE_EOS",
            .commands = RUN,
            .help = "Go on after an end token.",
        },
    [BT_OPT_TEMPERATURE] =
        {
            .name = "temperature",
            .argument = "T",
            .kind = BT_KIND_REAL,
            .group = BT_GROUP_SAMPLING,
            .min = 0,
            .max = 1e9,
            .default_text = "1",
            .environment = "BALTORO_TEMPERATURE",
            .synonyms = "--temp",
            .commands = TALKING,
            .help = "0 takes the most likely token each time (the lowest id among equals).",
        },
    [BT_OPT_TOP_K] =
        {
            .name = "top-k",
            .argument = "K",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_SAMPLING,
            .min = -1,
            .max = 1e15, /* more than there are tokens: off */
            .default_text = "0: off",
            .environment = "BALTORO_TOP_K",
            .commands = TALKING,
            .help = "Keep the K most likely tokens.",
        },
    [BT_OPT_TOP_P] =
        {
            .name = "top-p",
            .argument = "P",
            .kind = BT_KIND_REAL,
            .group = BT_GROUP_SAMPLING,
            .min = 0,
            .max = 1,
            .default_text = "1: off",
            .environment = "BALTORO_TOP_P",
            .commands = TALKING,
            .help = "Keep the fewest tokens whose probabilities sum to P; 0 keeps one.",
        },
    [BT_OPT_MIN_P] =
        {
            .name = "min-p",
            .argument = "P",
            .kind = BT_KIND_REAL,
            .group = BT_GROUP_SAMPLING,
            .min = 0,
            .max = 1,
            .default_text = "0: off",
            .environment = "BALTORO_MIN_P",
            .commands = TALKING,
            .help = "Keep tokens at least P times as likely as the most likely one.",
        },
    [BT_OPT_REPETITION_PENALTY] =
        {
            .name = "repetition-penalty",
            .argument = "R",
            .kind = BT_KIND_REAL,
            .group = BT_GROUP_SAMPLING,
            .min = 1e-3,
            .max = 1e3,
            .default_text = "1: off",
            .environment = "BALTORO_REPETITION_PENALTY",
            .synonyms = "--repeat-penalty",
            .commands = TALKING,
            .help = "Divide positive logits of tokens that prompt or output hold by R, multiply negative ones.",
        },
    [BT_OPT_SEED] =
        {
            .name = "seed",
            .letter = 's',
            .argument = "N",
            .kind = BT_KIND_U64,
            .group = BT_GROUP_SAMPLING,
            .default_text = "a new one each time, printed",
            .environment = "BALTORO_SEED",
            .commands = TALKING,
            .help = "The same seed, model and options give the same text.",
        },
    [BT_OPT_IDS] =
        {
            .name = "ids",
            .argument = "LIST",
            .kind = BT_KIND_TEXT,
            .group = BT_GROUP_IDS,
            .commands = LOGITS,
            .help = "Token ids separated by commas.",
        },
    [BT_OPT_IDS_FILE] =
        {
            .name = "ids-file",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_IDS,
            .commands = LOGITS,
            .help = "A file of token ids separated by commas or white space, or a JSON array; - is stdin.",
        },
    [BT_OPT_OUTPUT] =
        {
            .name = "output",
            .letter = 'o',
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_OUTPUT,
            .commands = LOGITS,
            .help = "The safetensors file to write.",
        },
    [BT_OPT_TOLERANCE] =
        {
            .name = "tolerance",
            .argument = "T",
            .kind = BT_KIND_REAL,
            .group = BT_GROUP_IDS,
            .min = 0,
            .max = 1e9,
            .default_text = "1e-3",
            .environment = "BALTORO_TOLERANCE",
            .commands = VERIFY,
            .help = "The largest difference between two logits that passes.",
        },
    [BT_OPT_CHUNK] =
        {
            .name = "chunk",
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_IDS,
            .min = 1,
            .max = INT32_MAX,
            .default_text = "all at once",
            .environment = "BALTORO_CHUNK",
            .commands = SCORING,
            .help = "Hand over N ids at a time. Any value gives the same bits; tests use it.",
        },
    [BT_OPT_JSONL] =
        {
            .name = "jsonl",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .commands = TOKENS,
            .help = "One item per line of stdin: JSON strings on one side, JSON arrays of ids on the other.",
        },
    [BT_OPT_TENSORS] =
        {
            .name = "tensors",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .commands = INFO,
            .help = "List every tensor.",
        },
    [BT_OPT_N_PROMPT] =
        {
            .name = "n-prompt",
            .letter = 'p',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_BENCH,
            .min = 0,
            .max = 1 << 24,
            .default_text = "512",
            .commands = BENCH,
            .help = "Tokens of the prompt; 0: measure none.",
        },
    [BT_OPT_N_GEN] =
        {
            .name = "n-gen",
            .letter = 'n',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_BENCH,
            .min = 0,
            .max = 1 << 24,
            .default_text = "64",
            .commands = BENCH,
            .help = "Tokens to decode, one in a step; 0: measure none.",
        },
    [BT_OPT_REPETITIONS] =
        {
            .name = "repetitions",
            .letter = 'r',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_BENCH,
            .min = 1,
            .max = 1000,
            .default_text = "5",
            .commands = BENCH,
            .help = "How often each is measured.",
        },
    [BT_OPT_N_DEPTH] =
        {
            .name = "n-depth",
            .letter = 'd',
            .argument = "LIST",
            .kind = BT_KIND_TEXT,
            .group = BT_GROUP_BENCH,
            .default_text = "0",
            .commands = BENCH,
            .help = "Tokens that the context holds before, separated by commas: each is measured.",
        },
    [BT_OPT_WARM_ONLY] =
        {
            .name = "warm-only",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_BENCH,
            .commands = BENCH,
            .help = "Leave the page cache alone; the load is timed warm only.",
        },
    [BT_OPT_BENCH_OUTPUT] =
        {
            .name = "output",
            .letter = 'o',
            .argument = "PATH",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_BENCH,
            .commands = BENCH,
            .help =
                "Write the JSON report to this file; into a folder as DATE_MODEL_WEIGHTS_kvTYPE_ctxN_DEVICE.json, or "
                "with _2, _3 and so on behind it where that is taken.",
        },
    [BT_OPT_COMPARE] =
        {
            .name = "compare",
            .argument = "FILE",
            .kind = BT_KIND_FILE,
            .group = BT_GROUP_BENCH,
            .commands = BENCH,
            .help = "Print the ratios to an earlier JSON report; with --json they are its member compare.",
        },
    [BT_OPT_PRESET] =
        {
            .name = "preset",
            .argument = "NAME",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_SYNTH,
            .choices = "k2-0.9b k2-3.7b k2-7b k2-32b k2-mova-36b k2-375b k2-tiny k2-mova-tiny k3-full k3-twin-0.4b "
                       "k3-tiny k3-small k3-prod-width kimi-linear-48b kimi-linear-tiny",
            .commands = SYNTH,
            .help = "Whose shapes to write.",
        },
    [BT_OPT_LAYERS] =
        {
            .name = "layers",
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_SYNTH,
            .min = 1,
            .max = 1024, /* of the preset it has to be a part, see presets_*.c */
            .default_text = "all",
            .commands = SYNTH,
            .help = "The first N layers only: less disk and memory, the same speed per layer.",
        },
    [BT_OPT_EXPERTS] =
        {
            .name = "experts",
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_SYNTH,
            .min = 1,
            .max = 4096,
            .default_text = "all",
            .commands = SYNTH,
            .help = "N of the experts in each layer that has any; value experts are never more than that.",
        },
    [BT_OPT_WEIGHTS] =
        {
            .name = "dtype",
            .argument = "TYPE",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_SYNTH,
            .choices = "bf16 fp8",
            .default_text = "bf16",
            .commands = SYNTH,
            .help = "Type of K2-Horizon's weights. fp8 is what the FP8 releases are: of a dense model all projections, "
                    "of one with experts these alone. Kimi's are as released: k3-full's experts are MXFP4.",
        },
    [BT_OPT_WEIGHTS_SEED] =
        {
            .name = "seed",
            .letter = 's',
            .argument = "N",
            .kind = BT_KIND_U64,
            .group = BT_GROUP_SYNTH,
            .default_text = "the preset's",
            .commands = SYNTH,
            .help = "Another seed gives other weights.",
        },
    [BT_OPT_DEVICE] =
        {
            .name = "device",
            .argument = "NAME",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_ENGINE,
            .choices = "cpu",
            .planned = "cuda vulkan webgpu wgpu metal",
            .default_text = "cpu",
            .environment = "BALTORO_DEVICE",
            .commands = ENGINE,
            .help = "Where to compute.",
        },
    [BT_OPT_DTYPE] =
        {
            .name = "dtype",
            .argument = "TYPE",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_ENGINE,
            .choices = "f32",
            .planned = "bf16 f16",
            .default_text = "f32",
            .environment = "BALTORO_DTYPE",
            .commands = ENGINE,
            .help = "Type of activations; the weights keep the type they are stored in.",
        },
    [BT_OPT_KV_DTYPE] =
        {
            .name = "kv-dtype",
            .argument = "TYPE",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_ENGINE,
            .choices = "f32 bf16",
            .planned = "f16 int8",
            .default_text = "f32",
            .environment = "BALTORO_KV_DTYPE",
            .commands = ENGINE,
            .help = "Type of the keys and values kept for the context.",
        },
    [BT_OPT_CPU] =
        {
            .name = "cpu",
            .argument = "LEVEL",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_ENGINE,
            .choices = "scalar avx2 avx512 avx512vnni amx",
            .planned = "neon",
            .default_text = "the best that this CPU has",
            .environment = "BALTORO_CPU",
            .commands = ENGINE,
            .help = "The highest CPU level to use. avx512vnni and amx have no kernels of their own yet and compute as "
                    "avx512.",
        },
    [BT_OPT_THREADS] =
        {
            .name = "threads",
            .letter = 't',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_ENGINE,
            .min = 1,
            .max = 1024,
            .default_text = "the cores that affinity and cgroup allow",
            .environment = "BALTORO_THREADS",
            .commands = ENGINE | SYNTH,
            .help = "Threads that compute. Any number gives the same bits.",
        },
    [BT_OPT_CONTEXT] =
        {
            .name = "context",
            .letter = 'c',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_ENGINE,
            .min = 1,
            .max = 1 << 27,
            .default_text = "the model's largest, at most 8192",
            .environment = "BALTORO_CONTEXT",
            .synonyms = "--ctx-size",
            .commands = TALKING | INFO,
            .help = "Tokens of prompt and output together; memory is set aside for them.",
        },
    [BT_OPT_BATCH] =
        {
            .name = "batch",
            .letter = 'b',
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_ENGINE,
            .min = 1,
            .max = 16384,
            .default_text = "512",
            .environment = "BALTORO_BATCH",
            .synonyms = "--batch-size",
            .commands = ENGINE,
            .help = "The most tokens of a prompt in one step.",
        },
    [BT_OPT_STATE_SNAPSHOTS] =
        {
            .name = "state-snapshots",
            .argument = "N",
            .kind = BT_KIND_INTEGER,
            .group = BT_GROUP_ENGINE,
            .min = 0,
            .max = 1024,
            .default_text = "4",
            .environment = "BALTORO_STATE_SNAPSHOTS",
            .commands = ENGINE,
            .help = "Recurrent models: how many copies of the state are kept, to go back in a text without reading it "
                    "all again.",
        },
    [BT_OPT_OVERCOMMIT] =
        {
            .name = "overcommit",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_ENGINE,
            .environment = "BALTORO_OVERCOMMIT",
            .commands = ENGINE,
            .help =
                "Start even if the weights do not fit into memory beside the rest; they are then read again and again.",
        },
#ifdef BT_TEST_BUILD
    [BT_OPT_ABLATE] =
        {
            .name = "ablate",
            .argument = "FAULTS",
            .kind = BT_KIND_TEXT,
            .group = BT_GROUP_ENGINE,
            .environment = "BALTORO_ABLATE",
            .commands = ENGINE,
            .help = "Test build only: plant faults, as in skip_layer=1,rope=off. The answers are wrong on purpose.",
        },
#endif
    [BT_OPT_JSON] =
        {
            .name = "json",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .commands = REPORTS,
            .help = "Print the report as one JSON object on stdout.",
        },
    [BT_OPT_QUIET] =
        {
            .name = "quiet",
            .letter = 'q',
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .environment = "BALTORO_QUIET",
            .commands = MODEL | SYNTH,
            .help = "Nothing on stderr but errors.",
        },
    [BT_OPT_VERBOSE] =
        {
            .name = "verbose",
            .letter = 'v',
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .environment = "BALTORO_VERBOSE",
            .commands = MODEL | SYNTH,
            .help = "Also what was found and chosen: files, tokenizer, CPU level, options from the environment.",
        },
    [BT_OPT_COMPLETION] =
        {
            .name = "completion",
            .argument = "SHELL",
            .kind = BT_KIND_CHOICE,
            .group = BT_GROUP_OUTPUT,
            .choices = "bash zsh fish",
            .commands = HELP,
            .help = "Print the completion script for this shell.",
        },
    [BT_OPT_MAN] =
        {
            .name = "man",
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .commands = HELP,
            .help = "Print the manual page.",
        },
    [BT_OPT_HELP] =
        {
            .name = "help",
            .letter = 'h',
            .kind = BT_KIND_FLAG,
            .group = BT_GROUP_OUTPUT,
            .commands = ALL,
            .help = "Explain the command and stop.",
        },
};
