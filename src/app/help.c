/*
 * What the tables look like from outside: help texts, completion for three shells, the manual page. Nothing is said
 * here about a single option: a new line in table.c appears in all of them.
 */
#include <string.h>

#include "app/options.h"

enum { WIDTH = 80, INDENT = 30 };

static const char model_is[] =
    "MODEL is a folder with config.json and safetensors, one .safetensors file with its config.json beside it, or "
    "ORG/NAME[@REVISION] in the Hugging Face cache";

static const struct {
    const char *code, *meaning;
} exits[] = {
    {"0", "done"},
    {"1", "failed"},
    {"2", "wrong usage or input"},
    {"3", "model unreadable or unsupported"},
    {"4", "not enough memory or disk"},
    {"130", "interrupted"},
};
enum { N_EXITS = sizeof exits / sizeof exits[0] };

static bool belongs_to(bt_option id, bt_command c)
{
    return (bt_option_specs[id].commands >> c & 1u) != 0;
}

static void add_blanks(bt_text *t, size_t n)
{
    for (size_t i = 0; i < n; i++) bt_text_puts(t, " ");
}

/* Adds words filled to WIDTH, the first at `column`, further lines indented; a blank line where the text has "\n\n". */
static void add_filled(bt_text *t, const char *words, size_t column, size_t indent)
{
    size_t at = column;
    for (const char *w = words; *w != '\0';) {
        size_t n = strcspn(w, " \n");
        bool is_paragraph = w[n] == '\n';
        if (at > indent && at + 1 + n > WIDTH) {
            bt_text_puts(t, "\n");
            add_blanks(t, indent);
            at = indent;
        } else if (at > indent) {
            bt_text_puts(t, " ");
            at++;
        }
        bt_text_add(t, w, n);
        at += n;
        w += n;
        w += strspn(w, " \n");
        if (is_paragraph && *w != '\0') {
            bt_text_puts(t, "\n\n");
            add_blanks(t, indent);
            at = indent;
        }
    }
    bt_text_puts(t, "\n");
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

void bt_help_overview(bt_text *t)
{
    bt_text_puts(t, "baltoro runs K2-Horizon, Kimi and Llama checkpoints on the CPU.\n\n"
                    "Usage: baltoro COMMAND [MODEL] [options]\n\nCommands:\n");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++)
        bt_text_printf(t, "  %-12s %s\n", bt_commands[c].name, bt_commands[c].summary);
    bt_text words = {0};
    bt_text_printf(&words,
                   "%s; without it the small demo model answers. `baltoro help COMMAND` explains a command and its "
                   "options.\n\nExit status: ",
                   model_is);
    for (size_t i = 0; i < N_EXITS; i++)
        bt_text_printf(&words, "%s%s %s", i > 0 ? ", " : "", exits[i].code, exits[i].meaning);
    bt_text_puts(&words, ".");
    bt_text_puts(t, "\n");
    if (words.data != NULL) add_filled(t, words.data, 0, 0);
    t->failed = t->failed || words.failed;
    bt_text_free(&words);
}

static void add_option(bt_text *t, const bt_option_spec *s)
{
    bt_text line = {0};
    if (s->letter != '\0')
        bt_text_printf(&line, "  -%c, --%s", s->letter, s->name);
    else
        bt_text_printf(&line, "      --%s", s->name);
    if (s->argument != NULL) bt_text_printf(&line, " %s", s->argument);
    bt_text_add(t, line.data, line.size);
    if (line.size + 2 > INDENT) {
        bt_text_puts(t, "\n");
        add_blanks(t, INDENT);
    } else {
        add_blanks(t, INDENT - line.size);
    }
    bt_text_free(&line);
    bt_text words = {0};
    bt_text_puts(&words, s->help);
    if (s->choices != NULL) bt_text_printf(&words, " One of: %s.", s->choices);
    if (s->synonyms != NULL) bt_text_printf(&words, " Also %s.", s->synonyms);
    if (s->default_text != NULL) bt_text_printf(&words, " [%s]", s->default_text);
    if (s->environment != NULL) bt_text_printf(&words, " (%s)", s->environment);
    if (words.data != NULL) add_filled(t, words.data, INDENT, INDENT);
    t->failed = t->failed || words.failed;
    bt_text_free(&words);
}

void bt_help_command(bt_text *t, bt_command c)
{
    const bt_command_spec *s = &bt_commands[c];
    bt_text_printf(t, "Usage: baltoro %s%s%s [options]\n\n", s->name, s->arguments[0] != '\0' ? " " : "", s->arguments);
    bt_text_printf(t, "%s: %s.\n\n", s->name, s->summary);
    add_filled(t, s->text, 0, 0);
    for (bt_option_group g = 0; g < BT_N_GROUPS; g++) {
        bool is_first = true;
        for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
            if (bt_option_specs[id].group != g || !belongs_to(id, c)) continue;
            if (is_first) bt_text_printf(t, "\n%s:\n", bt_group_titles[g]);
            is_first = false;
            add_option(t, &bt_option_specs[id]);
        }
    }
    bt_text_puts(t,
                 "\nDefaults stand in [], environment names in (); a flag beats its environment name.\n\nExamples:\n");
    for (const char *const *x = s->examples; *x != NULL; x++) bt_text_printf(t, "  %s\n", *x);
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

static void add_words_of(bt_text *t, bt_command c)
{
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        if (!belongs_to(id, c)) continue;
        bt_text_printf(t, " --%s", bt_option_specs[id].name);
        if (bt_option_specs[id].letter != '\0') bt_text_printf(t, " -%c", bt_option_specs[id].letter);
    }
}

static void add_command_names(bt_text *t)
{
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) bt_text_printf(t, "%s%s", c == 0 ? "" : " ", bt_commands[c].name);
}

/* What follows an option of this command that takes a value: its choices, files, or nothing. */
static void bash_values(bt_text *t, bt_command c)
{
    bt_text_puts(t, "        case $before in\n");
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        const bt_option_spec *s = &bt_option_specs[id];
        if (s->argument == NULL || !belongs_to(id, c)) continue;
        bt_text_printf(t, "        --%s", s->name);
        if (s->letter != '\0') bt_text_printf(t, "|-%c", s->letter);
        if (s->kind == BT_KIND_CHOICE)
            bt_text_printf(t, ") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", s->choices);
        else if (s->kind == BT_KIND_FILE)
            bt_text_puts(t, ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
        else
            bt_text_puts(t, ") return ;;\n");
    }
    bt_text_puts(t, "        esac\n");
}

static void complete_bash(bt_text *t)
{
    bt_text_puts(t,
                 "# bash completion for baltoro; made by `baltoro help --completion bash`\n"
                 "_baltoro()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
                 "    COMPREPLY=()\n    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W \"");
    add_command_names(t);
    bt_text_puts(t, " --help --version\" -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        bt_text_printf(t, "    %s)\n", bt_commands[c].name);
        bash_values(t, c);
        bt_text_puts(t, "        words=\"");
        if (c == BT_COMMAND_HELP) add_command_names(t);
        add_words_of(t, c);
        bt_text_puts(t, "\"\n        ;;\n");
    }
    bt_text_puts(t, "    esac\n    if [[ $word == -* || ${COMP_WORDS[1]} == help ]]; then\n"
                    "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n    else\n"
                    "        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
                    "complete -o filenames -F _baltoro baltoro\n");
}

/* Text inside a single-quoted zsh or fish string, where `escaped` are characters that need a backslash. */
static void add_quoted(bt_text *t, const char *s, const char *escaped, const char *quote)
{
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            bt_text_puts(t, quote);
            continue;
        }
        if (strchr(escaped, *s) != NULL) bt_text_puts(t, "\\");
        bt_text_add(t, s, 1);
    }
}

static void zsh_option(bt_text *t, const char *dashes, const char *name, size_t n, const bt_option_spec *s)
{
    bt_text_printf(t, "            '%s%s%.*s[", s->kind == BT_KIND_LIST ? "*" : "", dashes, (int)n, name);
    add_quoted(t, s->help, "[]:\\", "'\\''");
    bt_text_puts(t, "]");
    if (s->argument != NULL) bt_text_printf(t, ":%s:", s->argument);
    if (s->kind == BT_KIND_CHOICE) bt_text_printf(t, "(%s)", s->choices);
    if (s->kind == BT_KIND_FILE) bt_text_puts(t, "_files");
    bt_text_puts(t, "' \\\n");
}

static void complete_zsh(bt_text *t)
{
    bt_text_puts(t, "#compdef baltoro\n# zsh completion for baltoro; made by `baltoro help --completion zsh`\n"
                    "_baltoro()\n{\n    local -a commands\n    commands=(\n");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        bt_text_printf(t, "        '%s:", bt_commands[c].name);
        add_quoted(t, bt_commands[c].summary, ":\\", "'\\''");
        bt_text_puts(t, "'\n");
    }
    bt_text_puts(t, "    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n"
                    "    local command=$words[2]\n    shift words\n    ((CURRENT--))\n    case $command in\n");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        bt_text_printf(t, "    %s)\n        _arguments -s \\\n", bt_commands[c].name);
        for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
            const bt_option_spec *s = &bt_option_specs[id];
            if (!belongs_to(id, c)) continue;
            if (s->letter != '\0') zsh_option(t, "-", &s->letter, 1, s);
            zsh_option(t, "--", s->name, strlen(s->name), s);
        }
        if (c == BT_COMMAND_HELP) {
            bt_text_puts(t, "            '1:command:(");
            add_command_names(t);
            bt_text_puts(t, ")'\n");
        } else {
            bt_text_puts(t, "            '*:argument:_files'\n");
        }
        bt_text_puts(t, "        ;;\n");
    }
    bt_text_puts(t, "    esac\n}\n_baltoro \"$@\"\n");
}

static void complete_fish(bt_text *t)
{
    bt_text_puts(t, "# fish completion for baltoro; made by `baltoro help --completion fish`\n"
                    "complete -c baltoro -n __fish_use_subcommand -l version -d 'Print the version'\n");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        bt_text_printf(t, "complete -c baltoro -f -n __fish_use_subcommand -a %s -d '", bt_commands[c].name);
        add_quoted(t, bt_commands[c].summary, "\\", "\\'");
        bt_text_puts(t, "'\n");
    }
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        const bt_option_spec *s = &bt_option_specs[id];
        bt_text_puts(t, "complete -c baltoro -n '__fish_seen_subcommand_from");
        for (bt_command c = 0; c < BT_N_COMMANDS; c++)
            if (belongs_to(id, c)) bt_text_printf(t, " %s", bt_commands[c].name);
        bt_text_printf(t, "' -l %s", s->name);
        if (s->letter != '\0') bt_text_printf(t, " -s %c", s->letter);
        if (s->kind == BT_KIND_CHOICE)
            bt_text_printf(t, " -x -a '%s'", s->choices);
        else if (s->kind == BT_KIND_FILE)
            bt_text_puts(t, " -r -F");
        else if (s->argument != NULL)
            bt_text_puts(t, " -x");
        bt_text_puts(t, " -d '");
        add_quoted(t, s->help, "\\", "\\'");
        bt_text_puts(t, "'\n");
    }
    bt_text_puts(t, "complete -c baltoro -f -n '__fish_seen_subcommand_from help' -a '");
    add_command_names(t);
    bt_text_puts(t, "'\n");
}

void bt_help_completion(bt_text *t, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        complete_bash(t);
    else if (strcmp(shell, "zsh") == 0)
        complete_zsh(t);
    else
        complete_fish(t);
}

/* ---- manual page ------------------------------------------------------------------------------------------------- */

/* Text for roff: a backslash and a hyphen are escaped, a line never begins with a control character; "\n\n" is .PP. */
static void add_roff(bt_text *t, const char *s)
{
    for (; *s != '\0'; s++) {
        if (s[0] == '\n' && s[1] == '\n') {
            bt_text_puts(t, "\n.PP\n");
            s++;
        } else if (*s == '\\') {
            bt_text_puts(t, "\\e");
        } else if (*s == '-') {
            bt_text_puts(t, "\\-");
        } else if ((*s == '.' || *s == '\'') && t->size > 0 && t->data[t->size - 1] == '\n') {
            bt_text_puts(t, "\\&");
            bt_text_add(t, s, 1);
        } else {
            bt_text_add(t, s, 1);
        }
    }
}

static void man_option(bt_text *t, const bt_option_spec *s)
{
    bt_text_puts(t, ".TP\n");
    if (s->letter != '\0') bt_text_printf(t, "\\fB\\-%c\\fR, ", s->letter);
    bt_text_puts(t, "\\fB\\-\\-");
    add_roff(t, s->name);
    bt_text_puts(t, "\\fR");
    if (s->argument != NULL) bt_text_printf(t, " \\fI%s\\fR", s->argument);
    bt_text_puts(t, "\n");
    add_roff(t, s->help);
    if (s->choices != NULL) {
        bt_text_puts(t, " One of: ");
        add_roff(t, s->choices);
        bt_text_puts(t, ".");
    }
    if (s->default_text != NULL) {
        bt_text_puts(t, " Default: ");
        add_roff(t, s->default_text);
        bt_text_puts(t, ".");
    }
    bt_text_puts(t, " For");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++)
        if ((s->commands >> c & 1u) != 0) bt_text_printf(t, " %s", bt_commands[c].name);
    bt_text_puts(t, ".");
    if (s->synonyms != NULL) {
        bt_text_puts(t, " Also: ");
        add_roff(t, s->synonyms);
        bt_text_puts(t, ".");
    }
    bt_text_puts(t, "\n");
}

static void man_commands(bt_text *t)
{
    bt_text_puts(t, ".SH COMMANDS\n");
    for (bt_command c = 0; c < BT_N_COMMANDS; c++) {
        const bt_command_spec *s = &bt_commands[c];
        bt_text_printf(t, ".SS %s", s->name);
        if (s->arguments[0] != '\0') bt_text_puts(t, " ");
        add_roff(t, s->arguments);
        bt_text_puts(t, "\nTo ");
        add_roff(t, s->summary);
        bt_text_puts(t, ".\n.PP\n");
        add_roff(t, s->text);
        bt_text_puts(t, "\n.PP\n.nf\n");
        for (const char *const *x = s->examples; *x != NULL; x++) {
            add_roff(t, *x);
            bt_text_puts(t, "\n");
        }
        bt_text_puts(t, ".fi\n");
    }
}

void bt_help_man(bt_text *t)
{
    bt_text_printf(t,
                   ".TH BALTORO 1 \"\" \"baltoro %s\" \"User Commands\"\n.SH NAME\n"
                   "baltoro \\- run K2\\-Horizon, Kimi and Llama checkpoints on the CPU\n.SH SYNOPSIS\n"
                   ".B baltoro\n.I COMMAND\n.RI [ MODEL ]\n.RI [ options ]\n.SH DESCRIPTION\n",
                   bt_version());
    add_roff(t, model_is);
    add_roff(t, ", which is looked for at HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, "
                "XDG_CACHE_HOME/huggingface/hub and ~/.cache/huggingface/hub. Without MODEL the small demo model "
                "answers, which is installed beside the program.\n\nThe answer alone goes to stdout; notes, "
                "statistics and errors go to stderr.\n");
    man_commands(t);
    bt_text_puts(t, ".SH OPTIONS\n");
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) man_option(t, &bt_option_specs[id]);
    bt_text_puts(t, ".SH ENVIRONMENT\nA flag beats its environment name.\n");
    for (bt_option id = 0; id < BT_N_OPTIONS; id++) {
        if (bt_option_specs[id].environment == NULL) continue;
        bt_text_printf(t, ".TP\n.B %s\nFor \\-\\-", bt_option_specs[id].environment);
        add_roff(t, bt_option_specs[id].name);
        bt_text_puts(t, ".\n");
    }
    bt_text_puts(
        t, ".TP\n.BR NO_COLOR \", \" TERM=dumb\nNo progress line, and reasoning is not dimmed; TERM=dumb: chat reads "
           "plain lines.\n.SH EXIT STATUS\n");
    for (size_t i = 0; i < N_EXITS; i++) bt_text_printf(t, ".TP\n%s\n%s\n", exits[i].code, exits[i].meaning);
}
