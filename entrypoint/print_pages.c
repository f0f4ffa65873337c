/* SPDX-License-Identifier: Apache-2.0 */
/* print_pages man|bash|zsh: prints, for the build, the manual page or a shell's completion from the verbs' table. */
#include "entrypoint/verbs.h"

#include <stdlib.h>
#include <string.h>

/* Print text for roff: escape characters that roff would interpret, and print text in backquotes bold. */
static void print_roff(const char *text)
{
    bool bold = false, begins = true;

    for (; *text != '\0'; text++) {
        if (begins && (*text == '.' || *text == '\'')) {
            fputs("\\&", stdout);
        }
        begins = *text == '\n';
        if (*text == '`') {
            fputs(bold ? "\\fR" : "\\fB", stdout);
            bold = !bold;
        } else if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '-') {
            fputs("\\-", stdout);
        } else {
            fputc(*text, stdout);
        }
        if (*text == '\n' && text[1] == ' ') { /* a line of an example */
            fputs(".br\n", stdout);
        }
    }
    fputc('\n', stdout);
}

static void print_forms(const struct pl_verb *verb)
{
    for (const char *form = verb->arguments; form;) {
        const size_t bytes = strcspn(form, "\n");

        printf("%s.B paceline %s\n%.*s%s", form == verb->arguments ? "" : ".br\n", verb->name, (int)bytes, form,
               bytes > 0 ? "\n" : "");
        form = form[bytes] == '\n' ? form + bytes + 1 : NULL;
    }
}

static void print_manual_verb(const struct pl_verb *verb)
{
    printf(".SS %s\n", verb->name);
    print_roff(verb->summary);
    fputs(".PP\n", stdout);
    print_forms(verb);
    if (verb->text) {
        fputs(".PP\n", stdout);
        print_roff(verb->text);
    }
    for (size_t i = 0; i < verb->option_count; i++) {
        const struct pl_verb_option *option = &verb->options[i];

        printf(".TP\n\\fB%s\\fR%s%s\n", option->name, option->value ? " " : "", option->value ? option->value : "");
        print_roff(option->text);
    }
    if (verb->examples) {
        fputs(".PP\nExample:\n.PP\n.nf\n", stdout);
        print_roff(verb->examples);
        fputs(".fi\n", stdout);
    }
}

static void print_manual(void)
{
    fputs(".TH PACELINE 1 \"\" \"paceline " PACELINE_VERSION "\" \"User Commands\"\n.SH NAME\n"
          "paceline \\- run a SageMaker training job in this container\n.SH SYNOPSIS\n.B paceline\n"
          "[VERB] [ARGUMENT...]\n.SH DESCRIPTION\n"
          "Without arguments it is \\fBpaceline train\\fR where /opt/ml/input/config/resourceconfig.json exists.\n"
          "SAGEMAKER_BASE_DIR stands for /opt/ml where it is set.\n.SH VERBS\n",
          stdout);
    for (size_t i = 0; i < pl_verbs_count; i++) {
        if (pl_verbs[i].summary) {
            print_manual_verb(&pl_verbs[i]);
        }
    }
    fputs(".SH EXIT STATUS\n", stdout);
    for (const struct pl_verb_exit_code *exit_code = pl_verbs_exit_codes; exit_code->code; exit_code++) {
        printf(".TP\n\\fB%s\\fR\n", exit_code->code);
        print_roff(exit_code->text);
    }
}

static void print_completion(void)
{
    fputs("# bash completion of paceline\n_paceline() {\n  local words=''\n  if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "    words='help --help --version",
          stdout);
    for (size_t i = 0; i < pl_verbs_count; i++) {
        printf("%s%s", pl_verbs[i].summary ? " " : "", pl_verbs[i].summary ? pl_verbs[i].name : "");
    }
    fputs("'\n  else\n    case ${COMP_WORDS[1]} in\n", stdout);
    for (size_t i = 0; i < pl_verbs_count; i++) {
        const struct pl_verb *verb = &pl_verbs[i];

        if (!verb->summary) {
            continue;
        }
        printf("    %s) words='--help", verb->name);
        for (size_t k = 0; k < verb->option_count; k++) {
            printf(" %s", verb->options[k].name);
        }
        fputs("' ;;\n", stdout);
    }
    fputs("    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
          "complete -o default -F _paceline paceline\n",
          stdout);
}

/* Print text in single quotes for zsh's _describe and _arguments, and escape brackets and colons, which have a meaning
 * there. */
static void print_zsh(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
        } else if (strchr("[]:\\", *text)) {
            printf("\\%c", *text);
        } else {
            fputc(*text == '\n' ? ' ' : *text, stdout);
        }
    }
}

static void print_zsh_options(const struct pl_verb *verb)
{
    printf("    %s) _arguments '--help[explain this verb]'", verb->name);
    for (size_t i = 0; i < verb->option_count; i++) {
        const struct pl_verb_option *option = &verb->options[i];

        printf(" \\\n      '%s[", option->name);
        print_zsh(option->text);
        fputc(']', stdout);
        if (option->value) {
            fputc(':', stdout);
            print_zsh(option->value);
            fputc(':', stdout);
        }
        fputc('\'', stdout);
    }
    fputs(" '*:file:_files' ;;\n", stdout);
}

static void print_zsh_completion(void)
{
    fputs("#compdef paceline\n_paceline() {\n  local -a verbs=(\n    'help:list all verbs'\n", stdout);
    for (size_t i = 0; i < pl_verbs_count; i++) {
        if (pl_verbs[i].summary) {
            printf("    '%s:", pl_verbs[i].name);
            print_zsh(pl_verbs[i].summary);
            fputs("'\n", stdout);
        }
    }
    fputs("  )\n  if ((CURRENT == 2)); then\n    _describe verb verbs\n    return\n  fi\n"
          "  shift words\n  ((CURRENT--))\n  case $words[1] in\n",
          stdout);
    for (size_t i = 0; i < pl_verbs_count; i++) {
        if (pl_verbs[i].summary) {
            print_zsh_options(&pl_verbs[i]);
        }
    }
    fputs("  esac\n}\n_paceline \"$@\"\n", stdout);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "man") == 0) {
        print_manual();
    } else if (argc == 2 && strcmp(argv[1], "bash") == 0) {
        print_completion();
    } else if (argc == 2 && strcmp(argv[1], "zsh") == 0) {
        print_zsh_completion();
    } else {
        return EXIT_FAILURE;
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
