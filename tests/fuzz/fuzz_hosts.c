/* SPDX-License-Identifier: Apache-2.0 */
/* What ringred-run reads: byte 0: a list of hosts, a file of them, or what another ringred-run tells of the job. It says what is wrong
 * and exits; here it comes back. */
#include "fuzz.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *keep(void *memory);
static void *keep_cleared(size_t n, size_t each);
static char *keep_copy(const char *text);
static void give_back(void *memory);
static FILE *keep_file(const char *path, const char *mode);
static int close_file(FILE *f);
_Noreturn static void leave(int status);

#define calloc keep_cleared
#define strdup keep_copy
#define free   give_back
#define fopen  keep_file
#define fclose close_file
#define exit   leave
#include "run_hosts.c"
#undef calloc
#undef strdup
#undef free
#undef fopen
#undef fclose
#undef exit

#include <sys/mman.h>

static jmp_buf out;
static int said;
static FILE *opened;

/* What it holds when it would exit. */
static void *held[65536];
static int count;

static void check(bool claim)
{
    if (!claim)
        abort();
}

static void *keep(void *memory)
{
    check(memory != NULL);
    if (count == (int)(sizeof held / sizeof *held)) {
        free(memory);
        leave(0);
    }
    return held[count++] = memory;
}
static void *keep_cleared(size_t n, size_t each)
{
    return keep(calloc(n, each));
}
static char *keep_copy(const char *text)
{
    return keep(strdup(text));
}
static void give_back(void *memory)
{
    for (int i = count - 1; i >= 0 && memory; i--)
        if (held[i] == memory) {
            held[i] = held[--count];
            break;
        }
    free(memory);
}
static FILE *keep_file(const char *path, const char *mode)
{
    return opened = fopen(path, mode);
}
static int close_file(FILE *f)
{
    opened = NULL;
    return fclose(f);
}
static void leave(int status)
{
    (void)status;
    longjmp(out, 1);
}

void say(const char *format, ...)
{
    char line[8192];
    va_list list;

    va_start(list, format);
    check(vsnprintf(line, sizeof line, format, list) > 0);
    va_end(list);
    said++;
}
void must(bool fine, const char *what)
{
    (void)what;
    if (!fine)
        leave(1);
}
long number(const char *text, const char *what, long least, long most)
{
    char *end;
    long v = strtol(text, &end, 10);

    (void)what;
    if (end == text || *end || v < least || v > most) {
        say("\"%s\"", text);
        leave(1);
    }
    return v;
}

static int file_of(const void *bytes, size_t n)
{
    int fd = memfd_create("hosts", MFD_CLOEXEC);

    check(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static void check_hosts(struct run_host *hosts, int n, int ranks)
{
    int all = 0;

    check(n >= 0 && n <= HOSTS_MOST);
    for (int i = 0; i < n; i++)
        check(hosts[i].name[0] && memchr(hosts[i].name, 0, sizeof hosts[i].name) && hosts[i].slots >= 1);
    int sum = run_hosts_fill(hosts, &n, ranks);
    for (int i = 0; i < n; i++)
        all += hosts[i].ranks;
    check(all == sum && n >= 1 && sum <= RANKS_MOST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct run_host hosts[HOSTS_MOST + 1];
    static struct run_part part;
    static int fd;
    char path[64];

    if (bytes < 2 || bytes > 65536)
        return 0;
    char *text = malloc(bytes - 1);
    check(text != NULL);
    memcpy(text, data + 2, bytes - 2);
    text[bytes - 2] = 0;
    memset(hosts, 0, sizeof hosts);
    said = 0;
    fd = -1;
    if (setjmp(out)) {
        check(said > 0 || count == (int)(sizeof held / sizeof *held));
    } else if (data[0] % 3 == 0) {
        check_hosts(hosts, run_hosts_list(hosts, text), data[1]);
    } else if (data[0] % 3 == 1) {
        fd = file_of(data + 2, bytes - 2);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        check_hosts(hosts, run_hosts_file(hosts, path), data[1]);
    } else {
        fd = file_of(data + 2, bytes - 2);
        run_part_read(fd, &part);
        check(part.ranks >= 1 && part.first + part.ranks <= part.size && part.command[0]);
    }
    if (fd >= 0)
        close(fd);
    if (opened)
        (void)close_file(opened);
    while (count)
        free(held[--count]);
    free(text);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "a:2,b,[fd00::1]:4", "a,a", "-x", "a:0", "[fd00::1]", ",",
        "# ours\nnode1 slots=2\nnode2:3\n\n node3\t slots=1 # last\n", "a slots=x\n", "a slots=99999\n",
    };
    char program[] = "program", word[] = "its argument", *argument[] = { program, word, NULL };
    struct run_part part = { .host = "here", .first = 2, .ranks = 2, .size = 4, .grace_ns = 5000000000, .directory = "/tmp",
                             .extra = { "A=b" }, .extras = 1, .command = argument };
    int all = (int)(sizeof seeds / sizeof *seeds);

    if (which > all || room < 4096)
        return 0;
    to[0] = which < 6 ? 0 : 1;
    to[1] = which % 2 ? 2 : 0;
    if (which < all) {
        memcpy(to + 2, seeds[which], strlen(seeds[which]));
        return 2 + strlen(seeds[which]);
    }
    int fd = file_of("", 0);
    run_part_send(fd, &part);
    run_root_send(fd, "10.0.0.1:4711");
    ssize_t n = pread(fd, to + 2, room - 2, 0);
    close(fd);
    to[0] = 2;
    return n > 0 ? 2 + (size_t)n : 0;
}
