/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/bars.c. */
#include "entrypoint/output/bars.h"

#include "base/clock.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#define UP "\033[A"
#define BLANKS "          "

static struct pl_bars bars;
static char log_text[1 << 20];
static size_t log_bytes;
static int64_t now_ns;

static void start(int64_t interval_ns)
{
    bars = (struct pl_bars){.interval_ns = interval_ns};
    log_bytes = 0;
    now_ns = PL_NS_PER_S;
}

/* The program writes `text`. */
static void add(const char *text)
{
    const size_t bytes = strlen(text);

    memcpy(log_text + log_bytes, text, bytes);
    log_bytes = pl_bars_pass(&bars, log_text, log_bytes, bytes, now_ns);
}

/* So much time passes. */
static void pass_time(int64_t time_ns)
{
    now_ns += time_ns;
    if (now_ns >= pl_bars_deadline(&bars)) {
        log_bytes += pl_bars_write_due(&bars, log_text + log_bytes, now_ns);
    }
}

static const char *at_end(void)
{
    log_bytes += pl_bars_end(&bars, log_text + log_bytes);
    log_text[log_bytes] = '\0';
    return log_text;
}

static const char *logged(void)
{
    log_text[log_bytes] = '\0';
    return log_text;
}

TEST(what_a_program_has_written_in_no_time_is_its_lines_and_last_states)
{
    static const struct {
        const char *written, *log;
    } cases[] = {
        {"a\n\n b \033[31mred\033[0m" UP "\n", "a\n\n b \033[31mred\033[0m" UP "\n"},
        /* the return before each state, as tqdm has it */
        {"\r 0%\r 50%  \r100%\ndone\n", "100%\ndone\n"},
        {"start\n\r 0%\r 50%", "start\n 50%\n"},
        {"\r 0%\r 50%   \r", " 50%\n"},
        /* or after it: a line that comes is none of the bar's */
        {"1/3 loss=3\r2/3 loss=2\rall done\n", "2/3 loss=2\nall done\n"},
        {"1/3\r3/3\r\n\nall done\n", "3/3\n\nall done\n"},
        {"Epoch 1 \r 0%\r 9%\n", " 0%\n 9%\n"},
        /* tqdm.write() and logging */
        {"\r 10%"
         "\r" BLANKS "\rline\n\r 10%\r 20%\n",
         " 10%\nline\n 20%\n"},
        {"\r 10%INFO line\n", " 10%INFO line\n"},
        /* a bar that leaves nothing on the terminal */
        {"\r 10%\r 20%\r" BLANKS "\r", " 20%\n"},
        {"\r 10%\r 20%\r" BLANKS "\rline", " 20%\nline\n"},
        {"\r\033[K 10%\r\033[K 20%\r\033[2Kline\n", " 20%\nline\n"},
        /* Keras */
        {"Epoch 1/2\n\r\033[1m1/9\033[0m\b\b\b\r\033[1m9/9\033[0m\n", "Epoch 1/2\n\033[1m9/9\033[0m\n"},
        {"\r|\b/\b-\b\xC3\xA4\b\xC3\xB6\n", "\xC3\xB6\n"},
        /* Windows */
        {"one  \r\n\r\ntwo\033[K\r\nthree\r\r\n", "one  \n\ntwo\033[K\nthree\n"},
        {"\r99%\r100%\r\nend\r\n", "100%\nend\n"},
        /* a column instead of the carriage return; what shows and hides the cursor; a sequence that ends in nothing */
        {"\033[?25l\r 1%\033[1G 2%\033[G 3%\033[?25h\n", " 3%\n"},
        {"\r 1%\033", " 1%\033\n"},
        {"\r 1%\033[3\n", " 1%\033[3\n"},
        {"\r 1%\0337 x\n", " 1%\0337 x\n"},
        /* tqdm with position=1, without and with leave=True, and a line of tqdm.write() */
        {"\router 0\n\rinner 0" UP "\n\rinner 1" UP "\router 1\n\rinner 2" UP "\n\r" BLANKS UP "\router 2\nend\n",
         "outer 0\nouter 2\ninner 2\nend\n"},
        {"\router 0\n\rinner 0" UP "\n\rinner 1" UP "\rinner 2\n\router 1\n", "outer 0\ninner 2\nouter 1\n"},
        {"\router 0\n\rinner 0" UP "\n\rinner 1" UP "\router 1\n\r" BLANKS UP "\r" BLANKS
         "\rline\n\router 1\n\rinner 2" UP,
         "outer 0\ninner 1\nouter 1\nline\nouter 1\ninner 2\n"},
        {"\router 0\n\rinner 0" UP "\n\rinner 1" UP "INFO line\n\rinner 2" UP,
         "outer 0\ninner 1\nINFO line\ninner 2\n"},
        /* bars that go down and up in one step */
        {"\ra 0\n\rb 0" UP "\n\n\rc 0\033[2A\n\rb 1\033[F\ra 1\033[2B\rc 1\033[2A\ra 2", "a 0\nb 0\na 2\nb 1\nc 1\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        start(10 * PL_NS_PER_S);
        add(cases[i].written);
        ck_assert_str_eq(at_end(), cases[i].log);
    }
}

TEST(the_newest_state_is_a_line_once_in_the_interval)
{
    char state[32];

    start(10 * PL_NS_PER_S);
    for (int second = 0; second < 35; second++) {
        snprintf(state, sizeof(state), "\rstate %d", second);
        add(state);
        pass_time(PL_NS_PER_S);
    }
    ck_assert_str_eq(logged(), "state 9\nstate 19\nstate 29\n");
    add("\n");
    ck_assert_str_eq(logged(), "state 9\nstate 19\nstate 29\nstate 34\n");
    ck_assert_int_eq(pl_bars_deadline(&bars), PL_DEADLINE_NEVER);
}

TEST(a_slow_bar_waits_for_nothing_and_a_state_is_written_once)
{
    start(10 * PL_NS_PER_S);
    add("\r 0%");
    pass_time(9 * PL_NS_PER_S);
    ck_assert_str_eq(logged(), "");
    pass_time(60 * PL_NS_PER_S);
    ck_assert_str_eq(logged(), " 0%\n");
    pass_time(20 * PL_NS_PER_S);
    add("\r 5");
    pass_time(PL_NS_PER_S / 8);
    ck_assert_str_eq(logged(), " 0%\n"); /* it may not be whole */
    add("0%");
    pass_time(PL_NS_PER_S / 4);
    ck_assert_str_eq(logged(), " 0%\n 50%\n");
    ck_assert_int_eq(pl_bars_deadline(&bars), PL_DEADLINE_NEVER);
    add("INFO line\n");
    ck_assert_str_eq(at_end(), " 0%\n 50%\nINFO line\n");
}

TEST(with_interval_0_each_state_is_a_line)
{
    start(0);
    add("\r 1%\r 2%\r  \r 3%");
    ck_assert_str_eq(logged(), " 1%\n 2%\n");
    pass_time(PL_NS_PER_S / 4);
    ck_assert_str_eq(logged(), " 1%\n 2%\n 3%\n");
    add("\n1/2\r2/2\rend\nline\r\n");
    ck_assert_str_eq(at_end(), " 1%\n 2%\n 3%\n1/2\n2/2\nend\nline\n");
}

TEST(a_line_that_was_written_without_its_end_gets_it_first)
{
    start(10 * PL_NS_PER_S);
    bars.is_open = true; /* "load" is in the log */
    add("ing\r 1%\r 2%");
    ck_assert_str_eq(at_end(), "ing\n 2%\n");
    start(10 * PL_NS_PER_S);
    bars.is_open = true;
    add("ing\r\nnext\r\n");
    ck_assert_str_eq(at_end(), "ing\nnext\n");
}

TEST(a_text_that_is_too_long_for_a_state_passes)
{
    static char text[5000], wanted[sizeof(text) + 32];

    for (size_t bytes = PL_BARS_TEXT_BYTES - 1; bytes < sizeof(text); bytes += 1 + bytes / 2) {
        memset(text, 'x', bytes);
        memcpy(text + bytes, "\n", 2);
        start(10 * PL_NS_PER_S);
        add("\r 1%\r");
        add(text);
        snprintf(wanted, sizeof(wanted), "%s%s", bytes > PL_BARS_TEXT_BYTES ? " 1%\n" : "", text);
        ck_assert_str_eq(at_end(), wanted);
        start(10 * PL_NS_PER_S);
        text[bytes] = '\r';
        add(text);
        add("\r 1%\r 2%\n");
        text[bytes] = '\n';
        snprintf(wanted, sizeof(wanted), "%s%s 2%%\n", bytes > PL_BARS_TEXT_BYTES ? text : "",
                 bytes > PL_BARS_TEXT_BYTES ? "" : " 1%\n");
        ck_assert_str_eq(at_end(), wanted);
    }
}

TEST(more_bars_than_there_is_room_for_lose_no_last_state)
{
    char text[64];

    start(10 * PL_NS_PER_S);
    for (int bar = 0; bar < 3 * PL_BARS_ROWS; bar++) {
        add("\n");
        snprintf(text, sizeof(text), "\rbar %d", bar);
        add(text);
    }
    add("\033[99A\033[99B\rlast\n");
    at_end();
    for (int bar = 0; bar < 3 * PL_BARS_ROWS - 1; bar++) {
        snprintf(text, sizeof(text), "bar %d\n", bar);
        ck_assert_msg(strstr(log_text, text), "no '%s'", text);
    }
    ck_has(log_text, "last\n");
}

UNIT_MAIN("entrypoint/bars")
