/* Signals; see signals.h. Handlers here call only what POSIX lists as async-signal-safe. */
#include "app/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { N_WATCHED_MAX = 4096, EXIT_MODEL = 3, EXIT_INTERRUPTED = 130 };

typedef struct bt_watched {
    const char *path;
    uintptr_t begin, end;
} bt_watched;

static volatile sig_atomic_t is_deferred, is_interrupted;
static volatile sig_atomic_t is_conversing, is_resumed, terminal_fd = -1;
static const char *farewell, *greeting;
static struct termios terminal; /* as it was when the conversation began */
static bt_watched watched[N_WATCHED_MAX];
static const char *_Atomic opening; /* what is being opened: its mappings are not known yet */
static atomic_size_t n_watched;

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void leave_terminal(void)
{
    if (terminal_fd < 0) return;
    (void)!write(terminal_fd, farewell, strlen(farewell));
    (void)tcsetattr(terminal_fd, TCSANOW, &terminal);
}

/* Stops by the default action, for only that tells the shell; here it goes on when it is woken. */
static void on_suspend(int signal_number)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, ours;
    struct termios now;
    sigset_t this, before;
    int error_number = errno;
    bool is_ours = terminal_fd >= 0 && tcgetattr(terminal_fd, &now) == 0;
    leave_terminal();
    (void)sigemptyset(&standard.sa_mask);
    (void)sigemptyset(&this);
    (void)sigaddset(&this, signal_number);
    (void)sigaction(signal_number, &standard, &ours);
    (void)raise(signal_number);
    (void)sigprocmask(SIG_UNBLOCK, &this, &before);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)sigaction(signal_number, &ours, NULL);
    if (is_ours) {
        (void)tcsetattr(terminal_fd, TCSANOW, &now);
        (void)!write(terminal_fd, greeting, strlen(greeting));
    }
    is_resumed = 1;
    errno = error_number;
}

static void on_interrupt(int signal_number)
{
    if (is_conversing && (is_interrupted || signal_number != SIGINT)) {
        leave_terminal();
        _exit(EXIT_INTERRUPTED);
    }
    /* Outside a conversation SA_RESETHAND is set, but for SIGHUP: the next one kills. */
    if (!is_deferred) {
        say("\nbaltoro: interrupted\n");
        _exit(EXIT_INTERRUPTED);
    }
    is_interrupted = 1;
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    (void)context;
    uintptr_t address = (uintptr_t)info->si_addr;
    size_t n = atomic_load_explicit(&n_watched, memory_order_acquire);
    for (size_t i = 0; i < n; i++) {
        if (address < watched[i].begin || address >= watched[i].end) continue;
        say("\nbaltoro: ");
        say(watched[i].path);
        say(": the file shrank, or could not be read, while it was in use\n");
        _exit(EXIT_MODEL);
    }
    const char *path = atomic_load_explicit(&opening, memory_order_acquire);
    if (path != NULL && info->si_code == BUS_ADRERR) { /* beyond the end of a mapped file */
        say("\nbaltoro: ");
        say(path);
        say(": a file of it shrank, or could not be read, while it was opened\n");
        _exit(EXIT_MODEL);
    }
    /* Not ours: a bug. The default action leaves a core to look at. */
    (void)signal(SIGBUS, SIG_DFL);
    (void)raise(SIGBUS);
}

/* nohup and shells that run a job in the background set signals to be ignored: these are left so. */
static void handle_unless_ignored(int signal_number, const struct sigaction *action)
{
    struct sigaction before;
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        (void)sigaction(signal_number, action, NULL);
}

void bt_signals_install(void)
{
    struct sigaction interrupt = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    struct sigaction hangup = {.sa_handler = on_interrupt}; /* shell and system may both send it, which is no hurry */
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&interrupt.sa_mask);
    (void)sigemptyset(&hangup.sa_mask);
    (void)sigemptyset(&bus.sa_mask);
    handle_unless_ignored(SIGINT, &interrupt);
    handle_unless_ignored(SIGHUP, &hangup);
    (void)sigaction(SIGTERM, &interrupt, NULL);
    (void)sigaction(SIGBUS, &bus, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

void bt_signals_converse(int fd, const char *at_end, const char *at_begin)
{
    farewell = at_end;
    greeting = at_begin;
    terminal_fd = isatty(fd) == 1 && tcgetattr(fd, &terminal) == 0 ? fd : -1;
    is_deferred = is_conversing = 1;
    struct sigaction again = {.sa_handler = on_interrupt};
    (void)sigemptyset(&again.sa_mask);
    handle_unless_ignored(SIGINT, &again);
    (void)sigaction(SIGTERM, &again, NULL);
    struct sigaction suspend = {.sa_handler = on_suspend};
    (void)sigemptyset(&suspend.sa_mask);
    if (terminal_fd >= 0) handle_unless_ignored(SIGTSTP, &suspend);
}

void bt_signals_hold(bool is_held)
{
    sigset_t ends;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGHUP);
    /* This thread takes them all: the workers' masks are full (base/pool.c). */
    (void)pthread_sigmask(is_held ? SIG_BLOCK : SIG_UNBLOCK, &ends, NULL);
}

bool bt_signals_resumed(void)
{
    bool was = is_resumed != 0;
    is_resumed = 0;
    return was;
}

void bt_signals_clear(void)
{
    is_interrupted = 0;
}

void bt_signals_defer(bool deferred)
{
    is_deferred = deferred;
}

bool bt_signals_interrupted(void)
{
    return is_interrupted != 0;
}

void bt_signals_opening(const char *path)
{
    atomic_store_explicit(&opening, path, memory_order_release);
}

bool bt_signals_watch(const char *path, const void *data, size_t size)
{
    size_t n = atomic_load_explicit(&n_watched, memory_order_relaxed);
    if (n == N_WATCHED_MAX) return false;
    watched[n] = (bt_watched){.path = path, .begin = (uintptr_t)data, .end = (uintptr_t)data + size};
    atomic_store_explicit(&n_watched, n + 1, memory_order_release);
    return true;
}

void bt_signals_forget(void)
{
    atomic_store_explicit(&n_watched, 0, memory_order_release);
}
